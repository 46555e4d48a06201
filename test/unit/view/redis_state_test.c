/* Whose Redis it is, whether it holds everything, and what survives: on real servers that are
 * killed, restarted from their files, replaced by their replicas and shared with others. */
#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <time.h>

#include "base/check.h"
#include "card_writes.h"
#include "port/event.h"
#include "redis_servers.h"
#include "view/redis/redis.h"

enum { AUTHOR = 5000, VIEWERS = 20, CAP = 50, PATIENCE_MS = 15000 };

static const char *script;

struct fixture {
    struct redis_servers servers;
    struct redis_config config;
    struct views *v;
    struct cards *c;
};

static int64_t now_ms(void)
{
    return clock_mono_ms(clock_system());
}

static void a_moment(void)
{
    nanosleep(&(struct timespec){.tv_nsec = 5000000}, NULL);
}

static void load(struct fixture *f)
{
    struct view_change c[2 * VIEWERS + 1];
    size_t n = 0;
    c[n++] = (struct view_change){.kind = VIEW_ACCOUNT, .account = AUTHOR};
    for (uint64_t i = 1; i <= VIEWERS; i++) {
        c[n++] = (struct view_change){.kind = VIEW_ACCOUNT, .account = i};
        c[n++] =
            (struct view_change){.kind = VIEW_FOLLOW, .on = true, .account = i, .other = AUTHOR};
    }
    assert_int_equal(views_apply(f->v, c, n), OK);
    assert_int_equal(views_loaded(f->v), OK);
}

static int set_up(void **state)
{
    struct fixture *f = calloc(1, sizeof *f);
    servers_begin(&f->servers, script, *state);
    f->config = (struct redis_config){.url = f->servers.address,
                                      .store = "ours",
                                      .timeline_cap = CAP,
                                      .pull_cap = CAP,
                                      .failover_wait_ms = 9000,
                                      .clock = clock_system()};
    assert_int_equal(views_redis_open(&f->config, &f->v), OK);
    assert_int_equal(f->v->loaded_position, 0);
    assert_int_equal(cards_redis_open(&f->config, &f->c), OK);
    load(f);
    *state = f;
    return 0;
}

static int tear_down(void **state)
{
    struct fixture *f = *state;
    views_free(f->v);
    cards_free(f->c);
    servers_start(&f->servers);
    free(f);
    return 0;
}

/* ---- words ---- */

static enum err see(struct views *v, uint64_t viewer, bool *out)
{
    uint64_t author = AUTHOR;
    return graph_visible(v->graph, viewer, &author, 1, out);
}

static bool is_complete(struct views *v)
{
    bool complete = false;
    int64_t until = now_ms() + PATIENCE_MS;
    enum err e;
    while ((e = views_is_complete(v, &complete)) == ERR_UNAVAILABLE && now_ms() < until)
        a_moment();
    assert_int_equal(e, OK);
    return complete;
}

static enum err save(struct views *v)
{
    int64_t until = now_ms() + PATIENCE_MS;
    enum err e;
    while ((e = views_save(v, 1)) == ERR_UNAVAILABLE && now_ms() < until)
        a_moment();
    return e;
}

static enum card_state card_of(struct cards *c, uint64_t id)
{
    struct arena arena;
    struct post_card out;
    enum card_state state;
    arena_init(&arena);
    cards_posts(c, &id, 1, &out, &state, &arena);
    arena_done(&arena);
    return state;
}

static void keep_card(struct cards *c, uint64_t id)
{
    struct post_card card = {.id = id, .author = AUTHOR, .caption = STR("x")};
    cards_change_post(c, &card);
    assert_int_equal(card_of(c, id), CARD_FOUND);
}

/* ---- cards of an earlier version ---- */

static void ask_all(struct fixture *f, const char *command)
{
    for (size_t i = 0; i < f->servers.url.host_count; i++) /* one of them has the slot */
        freeReplyObject(servers_ask(&f->servers, i, command));
}

/* Cards once held escaped captions and drawn accounts. Nobody may read them as fields. */
static void drawn_cards_of_an_earlier_format_count_as_missing(void **state)
{
    struct fixture *f = *state;
    struct arena arena;
    struct account_card account;
    uint64_t id = 5;
    arena_init(&arena);
    ask_all(f, "SET P{77} P-author-likecomm-edited-Descaped\\ntext");
    ask_all(f, "SET A{5} {\"id\":\"5\",\"username\":\"ada\"}");
    assert_int_equal(card_of(f->c, 77), CARD_MISSING);
    cards_post_counts(f->c, 77, 5, 5);
    assert_int_equal(card_of(f->c, 77), CARD_MISSING);
    cards_accounts(f->c, &id, 1, &account, &arena);
    assert_int_equal(account.id, 0);
    keep_card(f->c, 77); /* and are replaced */
    cards_put_account(f->c, cards_ticket(f->c, id), id, STR("ada"));
    cards_accounts(f->c, &id, 1, &account, &arena);
    assert_string_equal(account.username.ptr, "ada");
    arena_done(&arena);
}

/* ---- whose it is ---- */

static void another_store_is_refused(void **state)
{
    struct fixture *f = *state;
    struct redis_config other = f->config;
    struct views *v = NULL;
    other.store = "theirs";
    assert_int_equal(views_redis_open(&other, &v), ERR_CONFLICT);
    assert_int_equal(views_clear(f->v), OK); /* it is still ours */
    assert_int_equal(views_redis_open(&other, &v), ERR_CONFLICT);
    assert_null(v);
    assert_int_equal(views_redis_open(&f->config, &v), OK);
    assert_int_equal(v->loaded_position, 0);
    views_free(v);
}

/* Not a single range of slots may be somebody else's; one that lost its stamp is stamped again. */
static void foreign_data_is_refused(void **state)
{
    struct fixture *f = *state;
    struct views *v = NULL;
    views_free(f->v);
    for (size_t i = 0; i < f->servers.url.host_count; i++)
        freeReplyObject(servers_ask(&f->servers, i, "FLUSHALL"));
    for (size_t i = 0; i < f->servers.url.host_count; i++)
        for (int k = 0; k < 40; k++) { /* one of them is this node's */
            char command[60];
            snprintf(command, sizeof command, "SET other:%d 1", k);
            freeReplyObject(servers_ask(&f->servers, i, command));
        }
    assert_int_equal(views_redis_open(&f->config, &v), ERR_CONFLICT);
    for (size_t i = 0; i < f->servers.url.host_count; i++)
        freeReplyObject(servers_ask(&f->servers, i, "FLUSHALL"));
    assert_int_equal(views_redis_open(&f->config, &f->v), OK);
    load(f);
    freeReplyObject(servers_ask(&f->servers, servers_host_of(&f->servers, 1), "FLUSHALL"));
    if (f->servers.url.cluster) { /* the other masters say whose it is */
        assert_int_equal(views_redis_open(&f->config, &v), OK);
        assert_int_equal(v->loaded_position, 0);
        views_free(v);
    }
}

/* Puts the stamp back once another node has had time to count keys without one. */
static void *stamp_late(void *fixture)
{
    nanosleep(&(struct timespec){.tv_nsec = 300000000}, NULL);
    freeReplyObject(servers_ask(fixture, 0, "SET o{h0} ours"));
    return NULL;
}

/* Two nodes start at once: one has written to the empty database, and its stamp is still to be
 * seen. The other one waits for it. */
static void a_stamp_that_comes_after_the_first_keys_is_awaited(void **state)
{
    struct fixture *f = *state;
    struct views *v = NULL;
    pthread_t late;
    redisReply *gone = servers_ask(&f->servers, 0, "DEL o{h0}");
    assert_int_equal(gone->integer, 1);
    freeReplyObject(gone);
    assert_int_equal(pthread_create(&late, NULL, stamp_late, &f->servers), 0);
    enum err e = views_redis_open(&f->config, &v);
    pthread_join(late, NULL);
    assert_int_equal(e, OK);
    views_free(v);
}

static void clearing_takes_cards_along(void **state)
{
    struct fixture *f = *state;
    for (uint64_t id = 1; id <= 30; id++)
        keep_card(f->c, id);
    assert_int_equal(views_clear(f->v), OK);
    for (uint64_t id = 1; id <= 30; id++)
        assert_int_equal(card_of(f->c, id), CARD_MISSING);
}

/* Its server hung while others cleared and loaded: it may be older than what they loaded. */
static void a_change_that_was_on_its_way_during_a_clearing_fails(void **state)
{
    struct fixture *f = *state;
    struct views *other;
    struct view_change late = {
        .kind = VIEW_FOLLOW, .on = true, .account = 1, .other = 2, .event = UINT64_C(1) << 40};
    assert_int_equal(views_redis_open(&f->config, &other), OK);
    assert_int_equal(views_clear(other), OK);
    load(f);
    freeReplyObject(servers_ask(&f->servers, 0, "CLIENT PAUSE 300 WRITE"));
    assert_int_equal(views_apply(f->v, &late, 1), ERR_UNAVAILABLE);
    freeReplyObject(servers_ask(&f->servers, 0, "CLIENT PAUSE 300 WRITE"));
    assert_int_equal(views_apply(f->v, &late, 1), OK); /* slow, but nobody cleared anything */
    views_free(other);
}

/* ---- losses in the middle ---- */

static void apply_one(struct views *v, struct view_change c)
{
    assert_int_equal(views_apply(v, &c, 1), OK);
}

static void a_loss_during_a_load_is_no_end_of_it(void **state)
{
    struct fixture *f = *state;
    size_t host = servers_host_of(&f->servers, 1);
    assert_int_equal(views_clear(f->v), OK);
    apply_one(f->v, (struct view_change){.kind = VIEW_ACCOUNT, .account = 1});
    freeReplyObject(servers_ask(&f->servers, host, "FLUSHALL"));
    apply_one(f->v, (struct view_change){.kind = VIEW_ACCOUNT, .account = 2});
    assert_int_equal(views_loaded(f->v), ERR_CONFLICT);
    assert_false(is_complete(f->v));
    assert_int_equal(views_clear(f->v), OK);
    load(f);
    assert_true(is_complete(f->v));
}

static uint64_t account_elsewhere(const struct fixture *f, size_t host)
{
    for (uint64_t id = 1; id <= VIEWERS; id++)
        if (servers_host_of(&f->servers, id) != host)
            return id;
    fail_msg("one master has all viewers");
    return 0;
}

static uint64_t floor_of(struct views *v, uint64_t viewer, size_t *n)
{
    uint64_t ids[CAP], floor = 0;
    assert_int_equal(timelines_home(v->timelines, viewer, UINT64_MAX, ids, CAP - 1, n, &floor), OK);
    return floor;
}

/* The author's master lost everything, the viewer's has everything: also after the author's next
 * post, which begins a list anew. */
static void a_pull_list_that_was_lost_is_not_taken_for_an_empty_one(void **state)
{
    struct fixture *f = *state;
    size_t host = servers_host_of(&f->servers, AUTHOR), n;
    uint64_t viewer = account_elsewhere(f, host);
    struct view_change post = {
        .kind = VIEW_POST, .on = true, .account = AUTHOR, .other = 30, .value = DELIVERY_PULL};
    apply_one(f->v, post);
    assert_int_equal(timelines_begin(f->v->timelines, viewer), OK);
    assert_int_equal(timelines_end(f->v->timelines, viewer, (const uint64_t[]){20}, 1, 0), OK);
    assert_int_equal(floor_of(f->v, viewer, &n), 0);
    assert_int_equal(n, 2);
    freeReplyObject(servers_ask(&f->servers, host, "FLUSHALL"));
    assert_int_equal(floor_of(f->v, viewer, &n), UINT64_MAX);
    post.other = 40;
    apply_one(f->v, post);
    assert_int_equal(floor_of(f->v, viewer, &n), UINT64_MAX);
}

/* The position that a spread writes belongs to the views of its beginning. */
static void a_spread_that_a_clearing_interrupts_is_made_again(void **state)
{
    struct fixture *f = *state;
    size_t told = 0;
    bool more = false;
    struct view_change post = {
        .kind = VIEW_POST, .on = true, .account = AUTHOR, .other = 30, .value = DELIVERY_PULL};
    apply_one(f->v, post);
    assert_int_equal(timelines_spread(f->v->timelines, AUTHOR, &told, &more), OK);
    assert_int_equal(told, 0);
    assert_int_equal(views_clear(f->v), OK);
    assert_int_equal(timelines_spread(f->v->timelines, AUTHOR, &told, &more), ERR_UNAVAILABLE);
    load(f); /* without the post: it is told of by the spread alone */
    apply_one(f->v, post);
    do
        assert_int_equal(timelines_spread(f->v->timelines, AUTHOR, &told, &more), OK);
    while (more);
    for (uint64_t viewer = 1; viewer <= VIEWERS; viewer++) {
        size_t n;
        assert_int_equal(timelines_begin(f->v->timelines, viewer), OK);
        assert_int_equal(timelines_end(f->v->timelines, viewer, NULL, 0, 0), OK);
        assert_int_equal(floor_of(f->v, viewer, &n), 0);
        assert_int_equal(n, 1);
    }
}

/* ---- restarts ---- */

static void restart(struct fixture *f, size_t host)
{
    kill(servers_pid(&f->servers, host), SIGKILL);
    servers_start(&f->servers);
}

/* It comes back from its file, with all marks, and without what came after. */
static void a_server_that_comes_back_with_less_is_not_believed(void **state)
{
    struct fixture *f = *state;
    struct views *other;
    bool visible = true;
    keep_card(f->c, 7);
    assert_int_equal(views_redis_open(&f->config, &other), OK);
    assert_int_equal(see(other, 1, &visible), OK);
    freeReplyObject(servers_ask(&f->servers, 0, "SAVE"));
    struct view_change unfollow = {.kind = VIEW_FOLLOW, .account = 1, .other = AUTHOR};
    assert_int_equal(views_apply(f->v, &unfollow, 1), OK);
    cards_post_gone(f->c, 7);
    assert_int_equal(save(f->v), OK);
    restart(f, 0);
    /* The first answer already: the one who finds the new server there. */
    int64_t until = now_ms() + PATIENCE_MS;
    enum err e;
    while ((e = see(other, 1, &visible)) == ERR_UNAVAILABLE && now_ms() < until)
        a_moment();
    assert_int_equal(e, ERR_NEEDS_TRUTH);
    while (card_of(f->c, 7) == CARD_MISSING && cards_ticket(f->c, 1) == 0 && now_ms() < until &&
           see(f->v, 1, &visible) != ERR_NEEDS_TRUTH)
        a_moment();
    assert_true(card_of(f->c, 7) != CARD_FOUND);
    assert_false(is_complete(f->v));
    assert_false(is_complete(other));
    assert_int_equal(save(f->v), ERR_CONFLICT);
    assert_int_equal(save(f->v), ERR_CONFLICT); /* nothing makes it good but loading */
    assert_false(is_complete(f->v));
    struct views *late; /* who did not know it before sees as much */
    assert_int_equal(views_redis_open(&f->config, &late), OK);
    assert_int_equal(late->loaded_position, 0);
    views_free(late);
    assert_int_equal(views_clear(f->v), OK);
    load(f);
    assert_true(is_complete(f->v));
    assert_true(is_complete(other));
    assert_int_equal(see(f->v, 1, &visible), OK);
    assert_int_equal(see(other, 1, &visible), OK);
    assert_int_equal(save(f->v), OK);
    struct post_card card = {.id = 8, .author = AUTHOR, .caption = STR("x")};
    do /* cards are believed again, as soon as they notice */
        cards_change_post(f->c, &card);
    while (card_of(f->c, 8) != CARD_FOUND && now_ms() < until + PATIENCE_MS);
    assert_int_equal(card_of(f->c, 8), CARD_FOUND);
    assert_true(card_of(f->c, 7) != CARD_FOUND);
    views_free(other);
}

/* ---- failovers ---- */

static void a_replaced_master_is_told_of_by_the_next_save(void **state)
{
    struct fixture *f = *state;
    struct views *other;
    assert_int_equal(views_redis_open(&f->config, &other), OK);
    assert_int_equal(save(f->v), OK);
    servers_replicate(&f->servers);
    kill(servers_pid(&f->servers, servers_host_of(&f->servers, 1)), SIGKILL);
    assert_int_equal(save(f->v), ERR_CONFLICT);
    assert_int_equal(save(f->v), OK);
    assert_true(is_complete(f->v)); /* what was saved is there */
    assert_true(is_complete(other));
    assert_int_equal(save(other), OK); /* it has saved nothing that could be lost */
    views_free(other);
}

/* Nobody has saved since: who saves first is told, whoever it is. */
static void a_replaced_master_is_told_of_to_a_newcomer(void **state)
{
    struct fixture *f = *state;
    struct views *newcomer;
    bool visible;
    servers_replicate(&f->servers);
    kill(servers_pid(&f->servers, servers_host_of(&f->servers, 1)), SIGKILL);
    assert_int_equal(views_redis_open(&f->config, &newcomer), OK);
    assert_int_equal(newcomer->loaded_position, VIEWS_LASTING);
    assert_int_equal(save(newcomer), ERR_CONFLICT);
    assert_int_equal(save(newcomer), OK);
    assert_int_equal(see(newcomer, 1, &visible), OK);
    views_free(newcomer);
}

static void a_restarted_node_of_many_is_not_believed(void **state)
{
    struct fixture *f = *state;
    size_t host = servers_host_of(&f->servers, 1);
    assert_int_equal(save(f->v), OK);
    freeReplyObject(servers_ask(&f->servers, host, "SAVE"));
    restart(f, host); /* sooner than its replica would take over */
    int64_t until = now_ms() + PATIENCE_MS;
    bool visible;
    enum err e;
    while ((e = see(f->v, 1, &visible)) == ERR_UNAVAILABLE && now_ms() < until)
        a_moment();
    if (servers_host_of(&f->servers, 1) != host)
        skip(); /* the machine was too slow: that is another test */
    assert_int_equal(e, ERR_NEEDS_TRUTH);
    assert_false(is_complete(f->v));
}

int main(int argc, char **argv)
{
    if (argc < 2 || !servers_are_known()) {
        fprintf(stderr, "to be run by script/servers\n");
        return 2;
    }
    script = argv[1];
#define CASE(name, kind)                                                                           \
    {                                                                                              \
#name " (" kind ")", name, set_up, tear_down, (void *)(uintptr_t)kind                      \
    }
    const struct CMUnitTest tests[] = {
        CASE(another_store_is_refused, "redis"),
        CASE(another_store_is_refused, "redis-cluster"),
        CASE(a_stamp_that_comes_after_the_first_keys_is_awaited, "redis"),
        CASE(foreign_data_is_refused, "redis"),
        CASE(foreign_data_is_refused, "redis-cluster"),
        CASE(drawn_cards_of_an_earlier_format_count_as_missing, "redis"),
        CASE(drawn_cards_of_an_earlier_format_count_as_missing, "redis-cluster"),
        CASE(clearing_takes_cards_along, "redis"),
        CASE(clearing_takes_cards_along, "redis-cluster"),
        CASE(a_change_that_was_on_its_way_during_a_clearing_fails, "redis"),
        CASE(a_loss_during_a_load_is_no_end_of_it, "redis"),
        CASE(a_loss_during_a_load_is_no_end_of_it, "redis-cluster"),
        CASE(a_pull_list_that_was_lost_is_not_taken_for_an_empty_one, "redis-cluster"),
        CASE(a_spread_that_a_clearing_interrupts_is_made_again, "redis"),
        CASE(a_spread_that_a_clearing_interrupts_is_made_again, "redis-cluster"),
        CASE(a_server_that_comes_back_with_less_is_not_believed, "redis"),
        CASE(a_replaced_master_is_told_of_by_the_next_save, "redis-cluster"),
        CASE(a_replaced_master_is_told_of_to_a_newcomer, "redis-cluster"),
        CASE(a_restarted_node_of_many_is_not_believed, "redis-cluster"),
    };
    return cmocka_run_group_tests_name("redis state", tests, NULL, NULL);
}
