/* The engine's SQL on the real store: rows written by transactions, read back, marked, trimmed; and
 * a whole engine that dies and starts again over the same file. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/check.h"
#include "db/sqlite.h"
#include "pipe/outbox.h"
#include "world.h"

static struct world w;
static struct db *db;
static char folder[64], path[96];

static void hook(void *ctx, const struct event *events, size_t n)
{
    struct world *world = ctx;
    if (world->engine)
        engine_offer(world->engine, events, n);
}

static int set_up(void **state)
{
    (void)state;
    world_init(&w);
    w.followers[1] = 3;
    snprintf(folder, sizeof folder, "/tmp/fantail-outbox-XXXXXX");
    if (!mkdtemp(folder))
        return -1;
    snprintf(path, sizeof path, "%s/store.db", folder);
    struct sqlite_config config;
    sqlite_config_default(&config);
    config.path = path;
    char detail[TX_DETAIL_MAX];
    if (db_sqlite_open(&config, &w.ids, w.clock, &db, detail))
        return -1;
    db->on_commit = hook;
    db->on_commit_ctx = &w;
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    db_stop(db);
    world_done(&w);
    db_free(db);
    char command[160];
    snprintf(command, sizeof command, "rm -rf '%s'", folder);
    return system(command);
}

static void start_engine(void)
{
    w.bus = bus_local_new(LANE_COUNT, w.lane_limits);
    struct sink_env env = {.db = db, .views = &w.views, .clock = w.clock};
    w.engine = engine_new(&w.config, w.rules, w.rule_count, env, w.bus);
    assert_int_equal(engine_recover(w.engine), OK);
}

struct emission {
    struct event event;
    size_t times;
    uint64_t last_id;
};

static enum err emit(struct tx *tx, void *arg)
{
    struct emission *m = arg;
    for (size_t i = 0; i < m->times; i++) {
        enum err e = outbox_emit(tx, m->event);
        if (e)
            return e;
    }
    m->last_id = tx->events.items[tx->events.count - 1].id;
    return OK;
}

static uint64_t emit_events(enum event_type type, uint64_t actor, int64_t value, size_t times)
{
    struct emission m = {.event = {.type = type, .actor = actor, .object = 77, .value = value},
                         .times = times};
    assert_int_equal(db_write(db, emit, &m, NULL), OK);
    return m.last_id;
}

static size_t rows(void)
{
    static struct event events[2000];
    size_t n;
    assert_int_equal(outbox_read(db, 0, INT64_MAX, events, COUNT_OF(events), &n), OK);
    return n;
}

static void rows_come_back_as_the_events_they_were(void **state)
{
    (void)state;
    uint64_t first = emit_events(EVENT_FOLLOW_CREATED, 5, -3, 1);
    uint64_t second = emit_events(EVENT_POST_CREATED, 6, 0, 1);
    emit_events(EVENT_POST_LIKED, 6, 0, 1); /* passing: leaves no row */
    struct event e[5];
    size_t n;
    assert_int_equal(outbox_read(db, 0, INT64_MAX, e, 5, &n), OK);
    assert_int_equal(n, 2);
    assert_int_equal(e[0].id, first);
    assert_int_equal(e[0].type, EVENT_FOLLOW_CREATED);
    assert_int_equal(e[0].actor, 5);
    assert_int_equal(e[0].object, 77);
    assert_int_equal(e[0].value, -3);
    assert_int_equal(e[1].id, second);
    assert_int_equal(outbox_read(db, first, second - 1, e, 5, &n), OK);
    assert_int_equal(n, 0); /* above `after`, up to `through` */
    assert_int_equal(outbox_read(db, first - 1, second, e, 1, &n), OK);
    assert_int_equal(n, 1);
    assert_int_equal(e[0].id, first);
}

static enum err write_strange(struct tx *tx, void *arg)
{
    (void)arg;
    return tx_exec(
        tx,
        "INSERT INTO outbox (id, type, version, payload) VALUES "
        "(1, 'future.thing', 1, '{}'), (2, 'post.created', 99, '{}'), (3, 'post.created', 1, 'x')",
        DB_NO_ARGS, NULL);
}

static void strange_rows_are_told_apart(void **state)
{
    (void)state;
    assert_int_equal(db_write(db, write_strange, NULL, NULL), OK);
    struct event e[5];
    size_t n;
    assert_int_equal(outbox_read(db, 0, INT64_MAX, e, 5, &n), OK);
    assert_int_equal(n, 3);
    for (size_t i = 0; i < 3; i++) {
        assert_int_equal(e[i].id, i + 1);
        assert_int_equal(e[i].type, OUTBOX_UNREADABLE);
    }
}

static void the_mark_is_kept_and_replaced(void **state)
{
    (void)state;
    uint64_t mark = 1, last = 1;
    assert_int_equal(outbox_look(db, &mark, &last), OK);
    assert_int_equal(mark, 0);
    assert_int_equal(last, 0);
    uint64_t id = emit_events(EVENT_POST_CREATED, 1, 0, 3);
    assert_int_equal(outbox_save_mark(db, 41), OK);
    assert_int_equal(outbox_save_mark(db, INT64_MAX), OK);
    assert_int_equal(outbox_look(db, &mark, &last), OK);
    assert_int_equal(mark, INT64_MAX);
    assert_int_equal(last, id);
}

static void trimming_takes_the_oldest_and_only_up_to_the_bound(void **state)
{
    (void)state;
    uint64_t middle = emit_events(EVENT_POST_CREATED, 1, 0, 25);
    emit_events(EVENT_POST_CREATED, 1, 0, 5);
    size_t removed;
    assert_int_equal(outbox_trim(db, middle, 10, &removed), OK);
    assert_int_equal(removed, 10);
    assert_int_equal(rows(), 20);
    struct event e;
    size_t n;
    assert_int_equal(outbox_read(db, 0, INT64_MAX, &e, 1, &n), OK);
    assert_true(e.id < middle);
    assert_int_equal(outbox_trim(db, middle, 100, &removed), OK);
    assert_int_equal(removed, 15);
    assert_int_equal(outbox_trim(db, middle, 100, &removed), OK);
    assert_int_equal(removed, 0);
    assert_int_equal(rows(), 5);
}

static void the_engine_dies_and_starts_again_over_the_store(void **state)
{
    (void)state;
    w.config.hand_over_max = 16; /* overflows: live and table mix */
    w.config.trim_slice = 100;
    start_engine();
    uint64_t first = emit_events(EVENT_POST_CREATED, 1, DELIVERY_PUSH, 300);
    world_run(&w);
    assert_true(engine_drained(w.engine));
    assert_int_equal(w.log_count, 300);
    assert_int_equal(engine_done_through(w.engine), first);
    engine_mark_step(w.engine);
    uint64_t undone = emit_events(EVENT_POST_CREATED, 1, DELIVERY_PUSH, 300);
    engine_relay_step(w.engine);
    engine_worker_step(w.engine);
    world_crash(&w);

    w.log_count = 0;
    start_engine();
    uint64_t live = emit_events(EVENT_POST_CREATED, 1, DELIVERY_PUSH, 40);
    world_run(&w);
    assert_true(engine_drained(w.engine));
    assert_int_equal(w.log_count, 340);
    assert_int_equal(world_deliveries_of(&w, undone), 3);
    assert_int_equal(engine_done_through(w.engine), live);

    w.saved_position = undone;
    for (int i = 0; i < 10; i++) {
        manual_clock_advance(&w.manual, 1000);
        engine_mark_step(w.engine);
    }
    assert_int_equal(rows(), 40);
    uint64_t mark, last;
    assert_int_equal(outbox_look(db, &mark, &last), OK);
    assert_int_equal(mark, live);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(rows_come_back_as_the_events_they_were),
        TEST(strange_rows_are_told_apart),
        TEST(the_mark_is_kept_and_replaced),
        TEST(trimming_takes_the_oldest_and_only_up_to_the_bound),
        TEST(the_engine_dies_and_starts_again_over_the_store),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
