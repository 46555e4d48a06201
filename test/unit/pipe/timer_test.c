/* Timers: set and cancelled in transactions, fired once, in order and on time, through crashes,
 * lost replies and clocks that jump. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/rand.h"
#include "port/timer.h"
#include "world.h"

enum { KEYS = 24, LOOK_MS = 100 };

static struct world w;

static int set_up(void **state)
{
    (void)state;
    world_init(&w);
    w.config.timer_every_ms = LOOK_MS;
    world_engine(&w);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    world_done(&w);
    return 0;
}

/* ---- transactions ---- */

struct change {
    uint64_t key;
    int64_t due_ms; /* INT64_MAX: cancel */
    bool waited, roll_back;
};

/* The event says when it is due, so that what fired can be compared with what was asked for. */
static enum err run_change(struct tx *tx, void *arg)
{
    struct change *c = arg;
    struct event e = {.type = EVENT_FOLLOW_CREATED, .actor = c->key, .value = c->due_ms};
    enum err error = c->due_ms == INT64_MAX
                         ? timer_cancel(tx, EVENT_FOLLOW_CREATED, c->key, &c->waited)
                         : timer_set(tx, &e, c->key, c->due_ms);
    return error ? error : c->roll_back ? ERR_CONFLICT : OK;
}

static bool change(uint64_t key, int64_t due_ms)
{
    struct change c = {.key = key, .due_ms = due_ms};
    w.faults->lose_replies = 0;
    assert_int_equal(db_write(&w.db, run_change, &c, NULL), OK);
    return c.waited;
}

static void cancel(uint64_t key, bool waited)
{
    assert_int_equal(change(key, INT64_MAX), waited);
}

static int64_t now_ms(void)
{
    return clock_wall_ms(w.clock);
}

/* Until nothing is due; returns when it wants to be called again, in ms from now. */
static int64_t fire(void)
{
    int64_t again_us;
    while ((again_us = engine_timer_step(w.engine)) <= clock_mono_us(w.clock)) {
    }
    return (again_us - clock_mono_us(w.clock)) / 1000;
}

static int64_t fired(void)
{
    return plain_db_ask(w.store, "SELECT COUNT(*) FROM outbox");
}

/* ---- tests ---- */

static void test_fires_when_due(void **state)
{
    (void)state;
    int64_t start = now_ms();
    assert_int_equal(fire(), LOOK_MS);
    change(7, start + 5000);
    assert_int_equal(fire(), LOOK_MS); /* another may be set to be due sooner */
    manual_clock_advance(&w.manual, 4950);
    assert_int_equal(fire(), 50); /* it is known of: not later than that */
    assert_int_equal(fired(), 0);
    manual_clock_advance(&w.manual, 50);
    fire();
    assert_int_equal(fired(), 1);
    world_run(&w);
    assert_int_equal(w.log_count, 1);
    assert_true(w.log[0].type == EVENT_FOLLOW_CREATED && w.log[0].actor == 7);
    manual_clock_advance(&w.manual, 60 * 60 * 1000);
    fire();
    assert_int_equal(fired(), 1);
    struct engine_stats stats;
    engine_stats(w.engine, &stats);
    assert_int_equal(stats.timers_fired, 1);
    assert_true(stats.timer_due_ms == INT64_MAX);
    assert_true(hist_quantile(engine_timers_late_us(w.engine), 1) <= 1);
}

static void test_one_of_a_key(void **state)
{
    (void)state;
    int64_t start = now_ms();
    cancel(1, false);
    change(1, start + 100);
    change(1, start + 300); /* moves it */
    change(2, start + 100);
    cancel(2, true);
    cancel(2, false);
    struct change undone = {.key = 3, .due_ms = start + 100, .roll_back = true};
    assert_int_equal(db_write(&w.db, run_change, &undone, NULL), ERR_CONFLICT);
    manual_clock_advance(&w.manual, 200);
    fire();
    assert_int_equal(fired(), 0);
    assert_int_equal(
        plain_db_ask(w.store, "SELECT due_at FROM timers WHERE type = 'follow.created'"),
        start + 300);
    manual_clock_advance(&w.manual, 100);
    fire();
    assert_int_equal(fired(), 1);
    cancel(1, false); /* too late */
}

/* What a later program set, and this one does not know, is parked, not lost. */
static void test_strange_ones_are_parked(void **state)
{
    (void)state;
    plain_db_run(w.store, "INSERT INTO timers (type, key, due_at, version, payload) VALUES "
                          "('tea.ready', 1, 5, 3, '{\"cup\":2}')");
    fire();
    assert_int_equal(plain_db_ask(w.store, "SELECT COUNT(*) FROM timers"), 0);
    assert_int_equal(plain_db_ask(w.store, "SELECT COUNT(*) FROM deliveries WHERE state = 8 "
                                           "AND reason = 'UNKNOWN_TYPE'"),
                     1);
    assert_int_equal(plain_db_ask(w.store, "SELECT state FROM outbox WHERE type = 'tea.ready' "
                                           "AND version = 3 AND payload = '{\"cup\":2}'"),
                     2);
}

/* A look is one read of one row; nothing is written. */
static void test_waiting_costs_nothing(void **state)
{
    (void)state;
    plain_db_run(w.store, "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n "
                          "WHERE i < 50000) INSERT INTO timers (type, key, due_at, version, "
                          "payload) SELECT 'follow.created', i, 9000000000000, 1, '{}' FROM n");
    uint64_t reads = w.reads, writes = w.writes;
    for (int i = 0; i < 100; i++) {
        fire();
        manual_clock_advance(&w.manual, LOOK_MS);
    }
    assert_int_equal(w.reads - reads, 100);
    assert_int_equal(w.writes - writes, 0);
    assert_int_equal(plain_db_ask(w.store, "SELECT COUNT(*) FROM (SELECT 1 FROM timers "
                                           "ORDER BY due_at, type, key LIMIT 1)"),
                     1);
}

/* ---- random histories ---- */

struct model {
    int64_t due_ms[KEYS]; /* INT64_MAX: none waits */
    int64_t expected, checked;
    int64_t last_due_ms;
};

/* What the table of events got since the last look: in the order of its due times, each as it was
 * set last. */
static void check_fired(struct model *m, int64_t now)
{
    size_t due = 0;
    for (size_t k = 0; k < KEYS; k++)
        due += m->due_ms[k] <= now;
    assert_int_equal(fired(), m->expected + (int64_t)due);
    int64_t before = INT64_MIN;
    for (size_t i = 0; i < due; i++) {
        char sql[200];
        snprintf(sql, sizeof sql,
                 "SELECT json_extract(payload, '$.value') FROM outbox ORDER BY id LIMIT 1 "
                 "OFFSET %lld",
                 (long long)m->expected + (long long)i);
        int64_t value = plain_db_ask(w.store, sql);
        snprintf(sql, sizeof sql,
                 "SELECT CAST(json_extract(payload, '$.actor') AS INTEGER) FROM outbox "
                 "ORDER BY id LIMIT 1 OFFSET %lld",
                 (long long)m->expected + (long long)i);
        int64_t key = plain_db_ask(w.store, sql);
        assert_true(key >= 0 && key < KEYS && m->due_ms[key] == value);
        assert_true(value >= before && value <= now);
        before = value;
        m->due_ms[key] = INT64_MAX;
    }
    m->expected += (int64_t)due;
}

static void random_step(struct model *m, struct rand *r)
{
    uint64_t key = rand_below(r, KEYS);
    int64_t due = now_ms() - 100 + (int64_t)rand_below(r, 3000);
    switch (rand_below(r, 12)) {
    case 0:
        cancel(key, m->due_ms[key] != INT64_MAX);
        m->due_ms[key] = INT64_MAX;
        break;
    case 1:
        w.faults->lose_replies = 0;
        world_crash(&w);
        world_engine(&w);
        break;
    case 2:
        w.faults->lose_replies = 1;
        break;
    case 3:
        w.faults->writes_fail = ERR_UNAVAILABLE;
        (void)engine_timer_step(w.engine);
        w.faults->writes_fail = OK;
        break;
    case 4: /* the wall clock jumps, forward or back */
        w.manual.wall_ms += (int64_t)rand_below(r, 4000) - 2000;
        break;
    case 5:
    case 6:
        manual_clock_advance(&w.manual, (int64_t)rand_below(r, 700));
        break;
    default:
        change(key, due);
        m->due_ms[key] = due;
    }
}

static void test_random_histories(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 40; seed++) {
        struct rand r;
        struct model m;
        rand_seed(&r, seed);
        plain_db_run(w.store, "DELETE FROM outbox; DELETE FROM timers; DELETE FROM deliveries");
        m = (struct model){0};
        for (size_t k = 0; k < KEYS; k++)
            m.due_ms[k] = INT64_MAX;
        for (int i = 0; i < 300; i++) {
            random_step(&m, &r);
            if (rand_below(&r, 3) > 0)
                continue;
            int64_t now = now_ms();
            while (engine_timer_step(w.engine) <= clock_mono_us(w.clock) ||
                   w.faults->lose_replies > 0)
                w.faults->lose_replies = 0;
            check_fired(&m, now);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_fires_when_due, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_one_of_a_key, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_strange_ones_are_parked, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_waiting_costs_nothing, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_random_histories, set_up, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
