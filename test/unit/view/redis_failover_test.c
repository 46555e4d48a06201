/* Real servers that die, hang, come back and forget: `script/servers run redis redis-cluster --
 * redis_failover_test SCRIPT`. */
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <unistd.h>

#include "redis_servers.h"

#include "base/check.h"
#include "base/id.h"
#include "card_writes.h"
#include "port/event.h"
#include "view/redis/connections.h"
#include "view/redis/keys.h"
#include "view/redis/redis.h"

enum {
    VIEWERS = 40,
    AUTHOR = 5000,
    CAP = 50,
    DEAD_CALL_MS = 5000, /* half of it on an idle machine */
    QUICK_MS = 250,
    FAILOVER_MS = 9000
};

static const char *script; /* script/servers */

struct fixture {
    struct redis_servers servers;
    struct redis_config config;
    struct views *v;
    struct cards *c;
    pid_t stopped; /* to be continued */
};

static redisReply *ask(struct fixture *f, size_t host, const char *command)
{
    return servers_ask(&f->servers, host, command);
}
static size_t host_of(struct fixture *f, uint64_t account)
{
    return servers_host_of(&f->servers, account);
}
static pid_t pid_of(struct fixture *f, size_t host)
{
    return servers_pid(&f->servers, host);
}
static void replicate_all(struct fixture *f)
{
    servers_replicate(&f->servers);
}
static void flush(struct fixture *f, size_t host)
{
    freeReplyObject(ask(f, host, "FLUSHALL"));
}

/* ---- the fixture ---- */

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

static void rebuild_all(struct fixture *f)
{
    for (uint64_t i = 1; i <= VIEWERS; i++) {
        assert_int_equal(timelines_begin(f->v->timelines, i), OK);
        assert_int_equal(timelines_end(f->v->timelines, i, (const uint64_t[]){30, 20}, 2, 0), OK);
    }
}

static int set_up(void **state)
{
    struct fixture *f = calloc(1, sizeof *f);
    servers_begin(&f->servers, script, *state);
    f->config = (struct redis_config){.timeline_cap = CAP,
                                      .pull_cap = CAP,
                                      .failover_wait_ms = FAILOVER_MS,
                                      .clock = clock_system()};
    f->config.url = f->servers.address;
    assert_int_equal(views_redis_open(&f->config, &f->v), OK);
    assert_int_equal(f->v->loaded_position, 0);
    assert_int_equal(cards_redis_open(&f->config, &f->c), OK);
    load(f);
    rebuild_all(f);
    *state = f;
    return 0;
}

static int tear_down(void **state)
{
    struct fixture *f = *state;
    if (f->stopped)
        kill(f->stopped, SIGCONT);
    views_free(f->v);
    cards_free(f->c);
    servers_start(&f->servers);
    free(f);
    return 0;
}

/* ---- words ---- */

static int64_t now_ms(void)
{
    return clock_mono_ms(clock_system());
}

static enum err home_of(struct fixture *f, uint64_t viewer, size_t *n, uint64_t *floor)
{
    uint64_t ids[CAP];
    return timelines_home(f->v->timelines, viewer, UINT64_MAX, ids, 20, n, floor);
}

static enum err see(struct fixture *f, uint64_t viewer, bool *out)
{
    uint64_t author = AUTHOR;
    return graph_visible(f->v->graph, viewer, &author, 1, out);
}

/* A reader goes to truth while nobody answers, and is told so at once, except for the few who find
 * it out. */
static struct {
    int64_t longest_ms;
    int slow, failed;
} waits;

static bool read_once(struct fixture *f, uint64_t viewer, size_t posts)
{
    size_t n;
    uint64_t floor;
    bool visible;
    int64_t began = now_ms();
    enum err e = home_of(f, viewer, &n, &floor);
    if (!e)
        e = see(f, viewer, &visible);
    int64_t took = now_ms() - began;
    waits.longest_ms = took > waits.longest_ms ? took : waits.longest_ms;
    waits.slow += took > QUICK_MS;
    waits.failed += e != OK;
    assert_true(e == OK || e == ERR_UNAVAILABLE);
    if (e)
        return false;
    assert_int_equal(n, posts);
    assert_int_equal(floor, 0);
    assert_true(visible);
    return true;
}

static void assert_all_viewers_read(struct fixture *f, size_t posts)
{
    int64_t until = now_ms() + 3 * FAILOVER_MS;
    for (uint64_t i = 1; i <= VIEWERS; i++)
        while (!read_once(f, i, posts)) {
            assert_true(now_ms() < until);
            nanosleep(&(struct timespec){.tv_nsec = 5000000}, NULL);
        }
}

static void assert_readers_hardly_waited(void)
{
    print_message("# %d reads failed, %d took long, the longest %lld ms\n", waits.failed,
                  waits.slow, (long long)waits.longest_ms);
    assert_true(waits.failed > 0);
    assert_true(waits.longest_ms < DEAD_CALL_MS);
    assert_true(waits.slow <= waits.failed / 10 + 10); /* one looks now and then, the others not */
    memset(&waits, 0, sizeof waits);
}

static size_t push_to_all(struct fixture *f, uint64_t post)
{
    struct audience_cursor cursor = {.part = AUDIENCE_ALL};
    uint64_t members[VIEWERS];
    size_t n, added;
    assert_int_equal(graph_audience(f->v->graph, AUTHOR, &cursor, members, VIEWERS, &n), OK);
    assert_int_equal(n, VIEWERS);
    assert_int_equal(timelines_push_one(f->v->timelines, post, members, n, &added), OK);
    return added;
}

/* ---- a cluster ---- */

static void a_killed_master_costs_no_reader_an_error(void **state)
{
    struct fixture *f = *state;
    replicate_all(f);
    size_t host = host_of(f, 1);
    int64_t began = now_ms();
    kill(pid_of(f, host), SIGKILL);
    assert_all_viewers_read(f, 2);
    assert_readers_hardly_waited();
    print_message("# a killed master: everybody read after %lld ms\n",
                  (long long)(now_ms() - began));
    push_to_all(f, 40);
    assert_all_viewers_read(f, 3);
}

static void a_stopped_master_costs_no_reader_an_error(void **state)
{
    struct fixture *f = *state;
    replicate_all(f);
    size_t host = host_of(f, 1);
    int64_t began = now_ms();
    f->stopped = pid_of(f, host);
    kill(f->stopped, SIGSTOP);
    assert_all_viewers_read(f, 2);
    assert_readers_hardly_waited();
    print_message("# a stopped master: everybody read after %lld ms\n",
                  (long long)(now_ms() - began));
    push_to_all(f, 40);
    assert_all_viewers_read(f, 3);
    kill(f->stopped, SIGCONT); /* it still thinks that it is the master, for a moment */
    f->stopped = 0;
    assert_all_viewers_read(f, 3);
    push_to_all(f, 50);
    assert_all_viewers_read(f, 4);
}

/* Answered, so it is on the replica, too. */
static void a_removal_survives_its_master(void **state)
{
    struct fixture *f = *state;
    replicate_all(f);
    struct view_change c = {.kind = VIEW_FOLLOW, .account = 1, .other = AUTHOR};
    size_t host = host_of(f, 1);
    pid_t pid = pid_of(f, host);
    bool visible = true;
    assert_int_equal(views_apply(f->v, &c, 1), OK);
    kill(pid, SIGKILL);
    enum err e;
    int64_t until = now_ms() + 3 * FAILOVER_MS;
    while ((e = see(f, 1, &visible)) == ERR_UNAVAILABLE && now_ms() < until)
        nanosleep(&(struct timespec){.tv_nsec = 5000000}, NULL);
    assert_int_equal(e, OK);
    assert_false(visible);
}

/* What was pushed before a save survives, too, however fast the end comes. */
static void a_save_is_a_barrier(void **state)
{
    struct fixture *f = *state;
    replicate_all(f);
    pid_t pid = pid_of(f, host_of(f, 1));
    for (uint64_t post = 40; post < 60; post++)
        push_to_all(f, post);
    assert_int_equal(views_save(f->v, 4711), OK);
    kill(pid, SIGKILL);
    int64_t until = now_ms() + 3 * FAILOVER_MS;
    for (uint64_t i = 1; i <= VIEWERS; i++) {
        size_t n;
        uint64_t floor, ids[CAP];
        enum err e;
        while ((e = timelines_home(f->v->timelines, i, UINT64_MAX, ids, 40, &n, &floor)) ==
                   ERR_UNAVAILABLE &&
               now_ms() < until)
            nanosleep(&(struct timespec){.tv_nsec = 5000000}, NULL);
        assert_int_equal(e, OK);
        assert_int_equal(n, 22);
    }
}

static void a_master_that_lost_everything_is_noticed(void **state)
{
    struct fixture *f = *state;
    size_t host = host_of(f, AUTHOR), n;
    flush(f, host);
    bool complete = true, visible;
    uint64_t floor;
    assert_int_equal(views_is_complete(f->v, &complete), OK);
    assert_false(complete);
    size_t silent = 0;
    for (uint64_t i = 1; i <= VIEWERS; i++) {
        assert_int_equal(home_of(f, i, &n, &floor), OK);
        enum err e = see(f, i, &visible);
        if (host_of(f, i) == host) {
            assert_int_equal(floor, UINT64_MAX);
            assert_int_equal(e, ERR_NEEDS_TRUTH);
            silent++;
        } else {
            assert_int_equal(n, 2);
            assert_int_equal(e, OK);
        }
    }
    assert_in_range(silent, 1, VIEWERS - 1);
    struct audience_cursor cursor = {.part = AUDIENCE_ALL};
    uint64_t members[VIEWERS];
    assert_int_equal(graph_audience(f->v->graph, AUTHOR, &cursor, members, VIEWERS, &n),
                     ERR_UNAVAILABLE);
    load(f);
    for (uint64_t i = 1; i <= VIEWERS; i++) {
        enum err e = timelines_begin(f->v->timelines, i);
        assert_int_equal(e, host_of(f, i) == host ? OK : ERR_CONFLICT);
        if (!e)
            assert_int_equal(timelines_end(f->v->timelines, i, (const uint64_t[]){30, 20}, 2, 0),
                             OK);
    }
    assert_all_viewers_read(f, 2);
    assert_int_equal(push_to_all(f, 40), VIEWERS);
}

/* ---- a slot on its way ---- */

static void ask_ok(struct fixture *f, size_t host, const char *format, ...)
{
    char command[600];
    va_list args;
    va_start(args, format);
    vsnprintf(command, sizeof command, format, args);
    va_end(args);
    redisReply *reply = ask(f, host, command);
    assert_int_equal(reply->type, REDIS_REPLY_STATUS);
    freeReplyObject(reply);
}

static void node_id(struct fixture *f, size_t host, char id[41])
{
    redisReply *reply = ask(f, host, "CLUSTER MYID");
    snprintf(id, 41, "%s", reply->str);
    freeReplyObject(reply);
}

/* Moves at most `max` keys of the slot. Returns how many there were. */
static size_t move_keys(struct fixture *f, unsigned slot, size_t from, size_t to, size_t max)
{
    char command[100];
    snprintf(command, sizeof command, "CLUSTER GETKEYSINSLOT %u %zu", slot, max);
    redisReply *keys = ask(f, from, command);
    size_t n = keys->elements;
    for (size_t i = 0; i < n; i++)
        ask_ok(f, from, "MIGRATE 127.0.0.1 %d %s 0 1000", f->servers.url.hosts[to].port,
               keys->element[i]->str);
    freeReplyObject(keys);
    return n;
}

struct reader {
    struct fixture *f;
    _Atomic bool stop;
    _Atomic int wrong, pages;
};

static void *read_on(void *arg)
{
    struct reader *r = arg;
    while (!r->stop) {
        uint64_t ids[CAP], floor;
        size_t n = 0;
        for (uint64_t below = 25; below != 0; below = below == 25 ? UINT64_MAX : 0) {
            enum err e = timelines_home(r->f->v->timelines, 1, below, ids, 20, &n, &floor);
            r->wrong += e != OK || n < (below == 25 ? 1 : 2) || floor != 0;
        }
        r->pages++;
    }
    return NULL;
}

/* While some keys of the slot are here and others there, readers wait a moment; none is wrong. */
static void a_slot_moves_under_the_readers(void **state)
{
    struct fixture *f = *state;
    struct key k = key_of_account(KEY_TIMELINE, 1);
    char from_id[41], to_id[41];
    size_t from = host_of(f, 1), to = from, keys = 0;
    for (uint64_t i = 2; to == from; i++)
        to = host_of(f, i);
    node_id(f, from, from_id);
    node_id(f, to, to_id);
    struct reader reader = {.f = f};
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, read_on, &reader), 0);
    ask_ok(f, to, "CLUSTER SETSLOT %u IMPORTING %s", k.slot, from_id);
    ask_ok(f, from, "CLUSTER SETSLOT %u MIGRATING %s", k.slot, to_id);
    for (size_t n; (n = move_keys(f, k.slot, from, to, 1)) > 0;)
        keys += n;
    assert_true(keys >= 3);                        /* the timeline, whom they follow, the people */
    assert_int_equal(push_to_all(f, 40), VIEWERS); /* to the node that is asked for */
    ask_ok(f, to, "CLUSTER SETSLOT %u NODE %s", k.slot, to_id);
    ask_ok(f, from, "CLUSTER SETSLOT %u NODE %s", k.slot, to_id);
    atomic_store(&reader.stop, true);
    pthread_join(thread, NULL);
    assert_int_equal(reader.wrong, 0);
    assert_true(reader.pages > 0);
    assert_all_viewers_read(f, 3);
    assert_int_equal(host_of(f, 1), to);
}

/* ---- a single server ---- */

static void a_flushed_server_sends_readers_to_truth(void **state)
{
    struct fixture *f = *state;
    size_t n = 7;
    uint64_t floor = 0, epoch = f->v->epoch;
    bool visible, complete = true;
    flush(f, 0);
    assert_int_equal(home_of(f, 1, &n, &floor), OK);
    assert_int_equal(n, 0);
    assert_int_equal(floor, UINT64_MAX);
    assert_int_equal(home_of(f, 777, &n, &floor), OK); /* nobody knows who exists */
    assert_int_equal(see(f, 1, &visible), ERR_NEEDS_TRUTH);
    assert_int_equal(timelines_begin(f->v->timelines, 1), ERR_CONFLICT);
    assert_int_equal(views_is_complete(f->v, &complete), OK);
    assert_false(complete);
    /* While it is loaded again, changes are applied as always; they must not look like the whole.
     */
    struct view_change change = {.kind = VIEW_FOLLOW, .on = true, .account = 1, .other = 2};
    assert_int_equal(views_apply(f->v, &change, 1), OK);
    assert_int_equal(home_of(f, 1, &n, &floor), OK);
    assert_int_equal(floor, UINT64_MAX);
    change = (struct view_change){.kind = VIEW_ACCOUNT, .on = true, .account = 3}; /* once more */
    assert_int_equal(views_apply(f->v, &change, 1), OK);
    load(f);
    for (uint64_t i = 1; i <= VIEWERS; i++) {
        assert_int_equal(home_of(f, i, &n, &floor), OK);
        assert_int_equal(floor, UINT64_MAX); /* to be rebuilt */
    }
    rebuild_all(f);
    assert_all_viewers_read(f, 2);
    struct views *again;
    assert_int_equal(views_redis_open(&f->config, &again), OK);
    assert_true(again->epoch != epoch);
    assert_int_equal(again->loaded_position, VIEWS_LASTING);
    views_free(again);
}

static void a_dead_server_is_told_of_in_time_and_found_again(void **state)
{
    struct fixture *f = *state;
    size_t n;
    uint64_t floor;
    bool visible;
    kill(pid_of(f, 0), SIGKILL);
    for (int i = 0; i < 20; i++) {
        int64_t began = now_ms();
        assert_int_equal(home_of(f, 1, &n, &floor), ERR_UNAVAILABLE);
        assert_int_equal(see(f, 1, &visible), ERR_UNAVAILABLE);
        assert_true(now_ms() - began < 2 * DEAD_CALL_MS);
    }
    servers_start(&f->servers);
    int64_t until = now_ms() + 5000;
    enum err e;
    do
        e = home_of(f, 1, &n, &floor);
    while (e && now_ms() < until);
    assert_int_equal(e, OK);
    assert_int_equal(floor, UINT64_MAX); /* it kept nothing */
}

static void a_stopped_server_is_told_of_in_time_and_found_again(void **state)
{
    struct fixture *f = *state;
    size_t n, added;
    uint64_t floor, member = 1;
    f->stopped = pid_of(f, 0);
    kill(f->stopped, SIGSTOP);
    int64_t began = now_ms();
    assert_int_equal(home_of(f, 1, &n, &floor), ERR_UNAVAILABLE);
    assert_true(now_ms() - began < DEAD_CALL_MS);
    began = now_ms();
    assert_int_equal(timelines_push_one(f->v->timelines, 99, &member, 1, &added), ERR_UNAVAILABLE);
    assert_true(now_ms() - began < DEAD_CALL_MS);
    kill(f->stopped, SIGCONT);
    f->stopped = 0;
    int64_t until = now_ms() + 5000;
    enum err e;
    do
        e = home_of(f, 1, &n, &floor);
    while (e && now_ms() < until);
    assert_int_equal(e, OK);
    assert_true(n == 2 || n == 3); /* the push may have been run */
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

static void a_card_deleted_while_the_server_hangs_stays_deleted(void **state)
{
    struct fixture *f = *state;
    struct cards *other;
    struct post_card card = {.id = 7, .author = 1, .caption = STR("x")};
    bool liked;
    cards_change_post(f->c, &card);
    card.id = 8;
    cards_change_post(f->c, &card);
    cards_put_likes(f->c, cards_ticket(f->c, cards_likes_key(5)), 5, &card.id, 1, 0);
    assert_int_equal(card_of(f->c, 7), CARD_FOUND);
    assert_int_equal(cards_liked(f->c, 5, &card.id, 1, &liked), OK);
    assert_int_equal(cards_redis_open(&f->config, &other), OK);
    f->stopped = pid_of(f, 0);
    kill(f->stopped, SIGSTOP);
    int64_t began = now_ms();
    cards_post_gone(f->c, 7);
    cards_post_counts(f->c, 8, 5, 5);
    cards_like(f->c, 5, 8, false);
    assert_true(now_ms() - began < 3 * DEAD_CALL_MS);
    assert_int_equal(card_of(f->c, 7), CARD_GONE);
    assert_int_equal(card_of(f->c, 8), CARD_MISSING);
    assert_int_equal(cards_liked(f->c, 5, &card.id, 1, &liked), ERR_NEEDS_TRUTH);
    assert_int_equal(cards_ticket(f->c, 9), 0); /* a fill without a ticket is refused */
    kill(f->stopped, SIGCONT);
    f->stopped = 0;
    int64_t until = now_ms() + 5000;
    while ((card_of(other, 7) != CARD_GONE || card_of(other, 8) == CARD_FOUND) && now_ms() < until)
        assert_int_equal(card_of(f->c, 7), CARD_GONE); /* what is owed is paid on the way */
    assert_int_equal(card_of(other, 7), CARD_GONE);
    assert_true(card_of(other, 8) != CARD_FOUND);
    assert_int_equal(cards_liked(other, 5, &card.id, 1, &liked), ERR_NEEDS_TRUTH);
    assert_true(cards_ticket(f->c, 9) != 0);
    cards_put_likes(f->c, cards_ticket(f->c, cards_likes_key(5)), 5, NULL, 0, 0);
    assert_int_equal(cards_liked(f->c, 5, &card.id, 1, &liked), OK); /* nothing is owed any more */
    cards_free(other);
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
#name, name, set_up, tear_down, (void *)(uintptr_t)kind                                    \
    }
    const struct CMUnitTest tests[] = {
        CASE(a_flushed_server_sends_readers_to_truth, "redis"),
        CASE(a_dead_server_is_told_of_in_time_and_found_again, "redis"),
        CASE(a_stopped_server_is_told_of_in_time_and_found_again, "redis"),
        CASE(a_card_deleted_while_the_server_hangs_stays_deleted, "redis"),
        CASE(a_master_that_lost_everything_is_noticed, "redis-cluster"),
        CASE(a_slot_moves_under_the_readers, "redis-cluster"),
        CASE(a_killed_master_costs_no_reader_an_error, "redis-cluster"),
        CASE(a_stopped_master_costs_no_reader_an_error, "redis-cluster"),
        CASE(a_removal_survives_its_master, "redis-cluster"),
        CASE(a_save_is_a_barrier, "redis-cluster"),
    };
    return cmocka_run_group_tests_name("redis failover", tests, NULL, NULL);
}
