/* The page source's contract (port/page_source.h) on real servers: what is read for many at once is
 * what the ports say one by one, and what stands against one page leaves the others alone. */
#include "base/check.h"
#include "base/rand.h"
#include "card_writes.h"
#include "port/page_source.h"
#include "traced_page.h"
#include "view/redis/keys.h"

enum { READERS = 60, PEOPLE = 12, POSTS = 30, ROUNDS = 6 };

static struct page_source *source_of(struct fixture *f)
{
    return page_source_redis_new(f->mine.v, f->mine.c);
}

/* ---- one by one ---- */

static const struct page_candidate *candidate(const struct page_read *r, uint64_t id)
{
    for (size_t i = 0; i < r->n; i++)
        if (r->candidates[i].id == id)
            return &r->candidates[i];
    return NULL;
}

/* The five questions that a page asks of the ports. */
static void assert_as_the_ports_say(struct process *p, const struct page_read *r)
{
    struct arena arena;
    uint64_t ids[PAGE], floor;
    size_t n;
    struct post_card cards[PAGE];
    enum card_state states[PAGE];
    struct account_card accounts[PAGE];
    bool visible, liked[PAGE];
    arena_init(&arena);
    assert_true(r->good);
    assert_true(r->max <= PAGE);
    assert_int_equal(
        timelines_home(p->v->timelines, r->viewer, UINT64_MAX, ids, r->max, &n, &floor), OK);
    assert_int_equal(r->n, n);
    assert_int_equal(r->floor, floor);
    cards_posts(p->c, ids, n, cards, states, &arena);
    assert_int_equal(cards_liked(p->c, r->viewer, ids, n, liked), OK);
    for (size_t i = 0; i < n; i++) {
        const struct page_candidate *c = &r->candidates[i];
        assert_int_equal(c->id, ids[i]);
        assert_int_equal(c->state, states[i]);
        assert_int_equal(c->liked, liked[i]);
        if (c->state != CARD_FOUND)
            continue;
        assert_int_equal(c->card->id, ids[i]);
        assert_int_equal(c->card->author, cards[i].author);
        assert_int_equal(c->card->like_count, cards[i].like_count);
        assert_true(str_eq(c->card->caption, cards[i].caption));
        assert_int_equal(graph_visible(p->v->graph, r->viewer, &cards[i].author, 1, &visible), OK);
        assert_int_equal(c->visible, visible);
        cards_accounts(p->c, &cards[i].author, 1, &accounts[i], &arena);
        assert_int_equal(c->author != NULL, accounts[i].id != 0);
        if (c->author)
            assert_true(c->author->id == cards[i].author &&
                        str_eq(c->author->username, accounts[i].username));
    }
    arena_done(&arena);
}

/* ---- a world ---- */

#define READER(i) (UINT64_C(100000) + (uint64_t)(i)*7919)
#define PERSON(i) (UINT64_C(500000) + (uint64_t)(i)*104729)

static void add_account(struct process *p, uint64_t id)
{
    apply(p, (struct view_change){.kind = VIEW_ACCOUNT, .on = true, .account = id, .value = 1000});
}

static void post_by(struct process *p, struct rand *r, size_t n)
{
    uint64_t author = PERSON(rand_below(r, PEOPLE)), id = POST(1000 + n);
    bool pull = author == PERSON(0) || author == PERSON(1);
    post(p, author, id, pull ? DELIVERY_PULL : DELIVERY_PUSH, true);
    put_card(p, id, author, (uint32_t)rand_below(r, 50));
    for (size_t i = 0; i < READERS && !pull; i++) {
        uint64_t reader = READER(i);
        size_t added;
        if (rand_below(r, 3) > 0) /* also to some who do not follow: a timeline may hold too much */
            assert_int_equal(timelines_push_one(p->v->timelines, id, &reader, 1, &added), OK);
    }
}

static void fill_world(struct process *p, struct rand *r)
{
    for (size_t i = 0; i < PEOPLE; i++) {
        add_account(p, PERSON(i));
        put_account(p, PERSON(i));
    }
    for (size_t i = 0; i < READERS; i++) {
        add_account(p, READER(i));
        for (size_t k = 0; k < PEOPLE; k++)
            if (rand_below(r, 3) > 0)
                follow(p, READER(i), PERSON(k), true);
    }
    for (size_t n = 0; n < POSTS; n++)
        post_by(p, r, n);
    for (size_t i = 0; i < READERS; i++) {
        uint64_t likes[] = {POST(1000 + POSTS - 1 - rand_below(r, 8)), POST(1002)};
        cards_put_likes(p->c, cards_ticket(p->c, cards_likes_key(READER(i))), READER(i), likes,
                        likes[0] > likes[1] ? 2 : 1, 0);
    }
}

static void something_happens(struct process *p, struct rand *r)
{
    uint64_t reader = READER(rand_below(r, READERS)), person = PERSON(rand_below(r, PEOPLE));
    uint64_t id = POST(1000 + rand_below(r, POSTS));
    switch (rand_below(r, 7)) {
    case 0:
        follow(p, reader, person, rand_below(r, 2));
        break;
    case 1:
        apply(p,
              (struct view_change){
                  .kind = VIEW_MUTE, .on = rand_below(r, 2), .account = reader, .other = person});
        break;
    case 2:
        apply(p,
              (struct view_change){.kind = VIEW_HIDE, .on = rand_below(r, 2), .account = person});
        break;
    case 3:
        cards_post_gone(p->c, id);
        break;
    case 4:
        cards_forget_post(p->c, id);
        break;
    case 5:
        cards_like(p->c, reader, id, rand_below(r, 2));
        break;
    default:
        cards_forget_account(p->c, person);
        put_account(p, rand_below(r, 2) ? person : PERSON(0));
    }
}

/* ---- 1: what it says ---- */

static void what_is_read_together_is_what_is_read_one_by_one(void **state)
{
    struct fixture *f = *state;
    struct page_source *source = source_of(f);
    struct page_read reads[READERS];
    struct rand r;
    struct arena arena;
    rand_seed(&r, 5);
    arena_init(&arena);
    fill_world(&f->other, &r);
    for (int round = 0; round < ROUNDS; round++) {
        for (size_t i = 0; i < READERS; i++)
            reads[i] = (struct page_read){.viewer = READER(i), .max = 1 + rand_below(&r, PAGE)};
        page_source_read(source, reads, READERS, &arena);
        for (size_t i = 0; i < READERS; i++)
            assert_as_the_ports_say(&f->mine, &reads[i]);
        arena_reset(&arena);
        for (int i = 0; i < 30; i++)
            something_happens(&f->other, &r);
    }
    arena_done(&arena);
    page_source_free(source);
}

/* ---- 2, 3: what stands against one ---- */

static void drop_timeline_of(struct process *p, uint64_t viewer)
{
    apply(p, (struct view_change){.kind = VIEW_ACCOUNT, .account = viewer, .value = 1000});
}

static struct page_read read_one(struct page_source *source, uint64_t viewer, struct arena *arena)
{
    struct page_read read = {.viewer = viewer, .max = PAGE};
    page_source_read(source, &read, 1, arena);
    return read;
}

static void one_that_is_not_good_leaves_the_others_alone(void **state)
{
    enum { STRANGE = 8888, ASLEEP = 8889, NO_LIKES = 8890 };
    struct fixture *f = *state;
    struct page_source *source = source_of(f);
    struct arena arena;
    arena_init(&arena);
    drop_timeline_of(&f->other, ASLEEP);
    add_account(&f->other, NO_LIKES);
    follow(&f->other, NO_LIKES, AUTHOR, true);
    deliver(&f->other, AUTHOR, FIRST, false);
    put_likes(&f->other, OTHER_VIEWER);
    struct page_read reads[] = {{.viewer = STRANGE, .max = PAGE},
                                {.viewer = VIEWER, .max = PAGE},
                                {.viewer = ASLEEP, .max = PAGE},
                                {.viewer = NO_LIKES, .max = PAGE},
                                {.viewer = OTHER_VIEWER, .max = PAGE}};
    page_source_read(source, reads, COUNT_OF(reads), &arena);
    assert_false(reads[0].good);
    assert_as_the_ports_say(&f->mine, &reads[1]);
    assert_int_equal(reads[1].n, 3);
    assert_true(candidate(&reads[1], FIRST)->visible);
    assert_false(reads[2].good);
    assert_false(reads[3].good); /* it is not known what is liked */
    assert_as_the_ports_say(&f->mine, &reads[4]);
    arena_done(&arena);
    page_source_free(source);
}

/* The author of a post is remembered; that it is gone, changed or hidden is not. */
static void nothing_but_an_author_is_remembered(void **state)
{
    struct fixture *f = *state;
    struct page_source *source = source_of(f);
    struct arena arena;
    arena_init(&arena);
    for (int i = 0; i < 2; i++) {
        struct page_read read = read_one(source, VIEWER, &arena);
        assert_as_the_ports_say(&f->mine, &read);
        assert_true(candidate(&read, FIRST)->visible);
    }
    put_card(&f->other, FIRST, AUTHOR, 77);
    struct page_read read = read_one(source, VIEWER, &arena);
    assert_int_equal(candidate(&read, FIRST)->card->like_count, 77);
    follow(&f->other, VIEWER, AUTHOR, false);
    read = read_one(source, VIEWER, &arena);
    assert_false(candidate(&read, FIRST)->visible);
    follow(&f->other, VIEWER, AUTHOR, true);
    apply(&f->other, (struct view_change){.kind = VIEW_HIDE, .on = true, .account = AUTHOR});
    read = read_one(source, VIEWER, &arena);
    assert_false(candidate(&read, FIRST)->visible);
    cards_post_gone(f->other.c, FIRST);
    read = read_one(source, VIEWER, &arena);
    assert_int_equal(candidate(&read, FIRST)->state, CARD_GONE);
    /* A card that names another author than before is nobody's word. */
    put_card(&f->other, OWN, AUTHOR, 0);
    read = read_one(source, VIEWER, &arena);
    assert_false(read.good);
    arena_done(&arena);
    page_source_free(source);
}

/* What is not ours may lie in Redis: it is nobody's word, and harms nothing. */
static void garbage_is_not_believed(void **state)
{
    struct fixture *f = *state;
    struct page_source *source = source_of(f);
    struct arena arena;
    char command[200];
    arena_init(&arena);
    put_card(&f->other, FIRST, 0, 1); /* of no author */
    assert_false(read_one(source, VIEWER, &arena).good);
    put_card(&f->other, FIRST, AUTHOR, 1);
    assert_true(read_one(source, VIEWER, &arena).good);
    const enum key_kind sets[] = {KEY_PULLED, KEY_FOLLOWED};
    for (size_t i = 0; i < COUNT_OF(sets); i++) {
        struct key k = key_of_account(sets[i], VIEWER);
        snprintf(command, sizeof command, "SADD %.*s nobody", (int)k.len, k.text);
        freeReplyObject(servers_ask(&f->servers, viewers_host(f), command));
    }
    assert_false(read_one(source, VIEWER, &arena).good);
    struct key k = key_of_account(KEY_TIMELINE, OTHER_VIEWER);
    snprintf(command, sizeof command, "ZADD %.*s 0 0000000000000000000", (int)k.len, k.text);
    freeReplyObject(servers_ask(&f->servers, servers_host_of(&f->servers, OTHER_VIEWER), command));
    assert_false(read_one(source, OTHER_VIEWER, &arena).good);
    arena_done(&arena);
    page_source_free(source);
}

static void who_is_suspect_says_nothing(void **state)
{
    struct fixture *f = *state;
    struct page_source *source = source_of(f);
    struct arena arena;
    arena_init(&arena);
    views_suspect(f->mine.v, true);
    assert_false(read_one(source, VIEWER, &arena).good);
    views_suspect(f->mine.v, false);
    cards_suspect(f->mine.c, true);
    assert_false(read_one(source, VIEWER, &arena).good);
    cards_suspect(f->mine.c, false);
    assert_true(read_one(source, VIEWER, &arena).good);
    assert_int_equal(views_clear(f->other.v), OK);
    assert_false(read_one(source, VIEWER, &arena).good);
    arena_done(&arena);
    page_source_free(source);
}

static void a_server_that_does_not_answer_is_not_waited_for_twice(void **state)
{
    struct fixture *f = *state;
    struct page_source *source = source_of(f);
    struct arena arena;
    arena_init(&arena);
    assert_true(read_one(source, VIEWER, &arena).good);
    stop_server(f);
    assert_false(read_one(source, VIEWER, &arena).good);
    int64_t began = now_ms();
    for (int i = 0; i < 20; i++)
        assert_false(read_one(source, VIEWER, &arena).good);
    assert_true(now_ms() - began < PATIENCE_MS);
    go_on(f);
    int64_t until = now_ms() + 2 * PATIENCE_MS;
    while (!read_one(source, VIEWER, &arena).good && now_ms() < until)
        a_moment();
    struct page_read read = read_one(source, VIEWER, &arena);
    assert_as_the_ports_say(&f->mine, &read);
    arena_done(&arena);
    page_source_free(source);
}

/* ---- 1: while things are removed ---- */

struct remover {
    struct fixture *f;
    _Atomic size_t gone; /* posts POST(1000 …) up to here are gone, and it was answered */
    _Atomic bool over;
};

static void *remove_all(void *arg)
{
    struct remover *m = arg;
    for (size_t n = 0; n < POSTS; n++) {
        if (n % 3 == 0)
            follow(&m->f->other, READER(n % READERS), PERSON(n % PEOPLE), false);
        cards_post_gone(m->f->other.c, POST(1000 + n));
        atomic_store(&m->gone, n + 1);
    }
    atomic_store(&m->over, true);
    return NULL;
}

static void what_was_removed_before_a_read_is_not_in_it(void **state)
{
    struct fixture *f = *state;
    struct page_source *source = source_of(f);
    struct page_read reads[READERS];
    struct remover m = {.f = f};
    struct arena arena;
    struct rand r;
    pthread_t thread;
    rand_seed(&r, 9);
    arena_init(&arena);
    fill_world(&f->other, &r);
    assert_int_equal(pthread_create(&thread, NULL, remove_all, &m), 0);
    bool over = false;
    while (!over) {
        over = atomic_load(&m.over);
        size_t gone = atomic_load(&m.gone);
        for (size_t i = 0; i < READERS; i++)
            reads[i] = (struct page_read){.viewer = READER(i), .max = PAGE};
        page_source_read(source, reads, READERS, &arena);
        for (size_t i = 0; i < READERS; i++)
            for (size_t k = 0; reads[i].good && k < reads[i].n; k++)
                assert_true(reads[i].candidates[k].state != CARD_FOUND ||
                            reads[i].candidates[k].id >= POST(1000 + gone));
        arena_reset(&arena);
    }
    pthread_join(thread, NULL);
    arena_done(&arena);
    page_source_free(source);
}

int main(int argc, char **argv)
{
    if (argc < 2 || !servers_are_known()) {
        fprintf(stderr, "to be run by script/servers\n");
        return 2;
    }
    servers_script = argv[1];
#define CASE(name, kind)                                                                           \
    {                                                                                              \
#name " (" kind ")", name, set_up, tear_down, (void *)(uintptr_t)kind                      \
    }
#define BOTH(name) CASE(name, "redis"), CASE(name, "redis-cluster")
    const struct CMUnitTest tests[] = {
        BOTH(what_is_read_together_is_what_is_read_one_by_one),
        BOTH(one_that_is_not_good_leaves_the_others_alone),
        BOTH(nothing_but_an_author_is_remembered),
        BOTH(garbage_is_not_believed),
        BOTH(who_is_suspect_says_nothing),
        BOTH(a_server_that_does_not_answer_is_not_waited_for_twice),
        BOTH(what_was_removed_before_a_read_is_not_in_it),
    };
    return cmocka_run_group_tests_name("redis pages", tests, NULL, NULL);
}
