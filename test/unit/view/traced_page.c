/* Words: a viewer with three posts on the page, one of them pulled, and all cards filled in. */
#include "traced_page.h"
#include "card_writes.h"

#include <signal.h>
#include <time.h>

#include "base/check.h"

const char *servers_script;

int64_t now_ms(void)
{
    return clock_mono_ms(clock_system());
}

void a_moment(void)
{
    nanosleep(&(struct timespec){.tv_nsec = 5000000}, NULL);
}

/* ---- words: changing ---- */

void apply(struct process *p, struct view_change change)
{
    assert_int_equal(views_apply(p->v, &change, 1), OK);
}

void follow(struct process *p, uint64_t viewer, uint64_t author, bool on)
{
    apply(p,
          (struct view_change){.kind = VIEW_FOLLOW, .on = on, .account = viewer, .other = author});
}

void post(struct process *p, uint64_t author, uint64_t id, enum delivery how, bool on)
{
    apply(p, (struct view_change){
                 .kind = VIEW_POST, .on = on, .account = author, .other = id, .value = how});
}

void put_card(struct process *p, uint64_t id, uint64_t author, uint32_t likes)
{
    struct post_card card = {.id = id, .author = author, .like_count = likes, .caption = STR("x")};
    cards_change_post(p->c, &card);
}

void put_account(struct process *p, uint64_t id)
{
    cards_put_account(p->c, cards_ticket(p->c, id), id, STR("{}"));
}

void put_likes(struct process *p, uint64_t viewer)
{
    uint64_t liked = LIKED;
    cards_put_likes(p->c, cards_ticket(p->c, cards_likes_key(viewer)), viewer, &liked, 1, 0);
}

/* To all of the author's followers that are there. */
void deliver(struct process *p, uint64_t author, uint64_t id, bool retract)
{
    struct audience_cursor cursor = {.part = AUDIENCE_ALL};
    uint64_t members[8];
    size_t n, count;
    assert_int_equal(graph_audience(p->v->graph, author, &cursor, members, 8, &n), OK);
    assert_true(n > 0);
    assert_int_equal(retract ? timelines_retract(p->v->timelines, id, members, n, &count)
                             : timelines_push_one(p->v->timelines, id, members, n, &count),
                     OK);
}

void load(struct fixture *f)
{
    struct process *p = &f->other;
    const uint64_t accounts[] = {VIEWER, OTHER_VIEWER, AUTHOR, FRIEND, STAR, RISING, STRANGER};
    assert_int_equal(views_loaded(p->v), OK); /* new accounts are empty, not unknown */
    for (size_t i = 0; i < COUNT_OF(accounts); i++)
        apply(p, (struct view_change){
                     .kind = VIEW_ACCOUNT, .on = true, .account = accounts[i], .value = 1000});
    follow(p, VIEWER, AUTHOR, true);
    follow(p, VIEWER, STAR, true);
    follow(p, VIEWER, RISING, true);
    follow(p, OTHER_VIEWER, FRIEND, true);
    deliver(p, AUTHOR, FIRST, false);
    post(p, VIEWER, OWN, DELIVERY_PUSH, true);
    post(p, STAR, STARS, DELIVERY_PULL, true);
    put_card(p, FIRST, AUTHOR, 1);
    put_card(p, OWN, VIEWER, 0);
    put_card(p, STARS, STAR, 0);
    put_account(p, AUTHOR);
    put_account(p, VIEWER);
    put_account(p, STAR);
    put_likes(p, VIEWER);
}

/* ---- words: reading ---- */

/* As a page is drawn; ids that are on it. */
size_t draw(struct process *p, uint64_t *ids)
{
    struct arena arena;
    struct post_card cards[PAGE];
    enum card_state states[PAGE];
    uint64_t authors[PAGE], floor;
    struct account_card accounts[PAGE];
    bool visible[PAGE], liked[PAGE];
    size_t n = 0;
    arena_init(&arena);
    enum err e = timelines_home(p->v->timelines, VIEWER, UINT64_MAX, ids, PAGE, &n, &floor);
    n = e ? 0 : n;
    cards_posts(p->c, ids, n, cards, states, &arena);
    for (size_t i = 0; i < n; i++)
        authors[i] = states[i] == CARD_FOUND ? cards[i].author : AUTHOR;
    (void)graph_visible(p->v->graph, VIEWER, authors, n, visible);
    cards_accounts(p->c, authors, n, accounts, &arena);
    (void)cards_liked(p->c, VIEWER, ids, n, liked);
    arena_done(&arena);
    return n;
}

/* Until the invalidation listener hears from everybody, and all is there. */
void note(struct fixture *f, struct read_trace *trace)
{
    uint64_t ids[PAGE];
    int64_t until = now_ms() + PATIENCE_MS;
    do {
        invalidation_begin(f->w, trace);
        size_t n = draw(&f->mine, ids);
        invalidation_end(f->w, trace);
        if (trace->whole) {
            assert_true(n >= 3);
            return;
        }
        a_moment();
    } while (now_ms() < until);
    fail_msg("no trace was ever whole");
}

void on_done(struct invalidation_question *base, bool good)
{
    struct question *q = (struct question *)base;
    pthread_mutex_lock(&q->lock);
    q->answers++;
    q->good = good;
    pthread_cond_signal(&q->told);
    pthread_mutex_unlock(&q->lock);
}

bool await(struct question *q)
{
    pthread_mutex_lock(&q->lock);
    while (q->answers == 0)
        pthread_cond_wait(&q->told, &q->lock);
    assert_int_equal(q->answers, 1);
    bool good = q->good;
    pthread_mutex_unlock(&q->lock);
    return good;
}

bool ask(struct invalidation *w)
{
    struct question q = {
        .q.done = on_done, .lock = PTHREAD_MUTEX_INITIALIZER, .told = PTHREAD_COND_INITIALIZER};
    int64_t began = now_ms();
    invalidation_ask(w, &q.q);
    bool good = await(&q);
    assert_true(now_ms() - began <= INVALIDATION_ASK_MS + 4000); /* of a busy machine */
    return good;
}

bool same(struct fixture *f, const struct read_trace *t)
{
    return invalidation_same(f->w, t->generation, t->reads, t->count);
}

/* ---- set up ---- */

void open_process(const struct redis_config *config, struct process *p)
{
    assert_int_equal(views_redis_open(config, &p->v), OK);
    assert_int_equal(cards_redis_open(config, &p->c), OK);
}

void close_process(struct process *p)
{
    views_free(p->v);
    cards_free(p->c);
}

int set_up(void **state)
{
    struct fixture *f = calloc(1, sizeof *f);
    servers_begin(&f->servers, servers_script, *state);
    f->config = (struct redis_config){.url = f->servers.address,
                                      .store = "ours",
                                      .timeline_cap = CAP,
                                      .pull_cap = CAP,
                                      .failover_wait_ms = 9000,
                                      .clock = clock_system()};
    open_process(&f->config, &f->other);
    load(f);
    assert_int_equal(invalidation_redis_open(&f->config, &f->w), OK);
    f->config.invalidation = f->w;
    open_process(&f->config, &f->mine);
    *state = f;
    return 0;
}

size_t viewers_host(struct fixture *f)
{
    return servers_host_of(&f->servers, VIEWER);
}

void stop_server(struct fixture *f)
{
    f->stopped = servers_pid(&f->servers, viewers_host(f));
    kill(f->stopped, SIGSTOP);
}

void go_on(struct fixture *f)
{
    if (f->stopped)
        kill(f->stopped, SIGCONT);
    f->stopped = 0;
}

int tear_down(void **state)
{
    struct fixture *f = *state;
    go_on(f);
    close_process(&f->other);
    close_process(&f->mine);
    invalidation_free(f->w);
    servers_start(&f->servers);
    free(f);
    return 0;
}
