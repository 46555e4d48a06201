/* The signal contract (port/signal.h), line by line, against every driver in the table below. Line
 * 2 and the remote half of line 3 are about traces: test/unit/view/redis_invalidation_test.c. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/check.h"
#include "redis_place.h"
#include "signal/local.h"
#include "signal/redis.h"

enum { MANY = 1000 };

/* Two nodes' handles on the same signal; a local one has only one. */
struct fixture {
    struct signal *mine, *theirs;
    enum redis_kind kind;
    bool remote;
};

static struct fixture fixture;
static struct signal_batch consumed; /* large */

static struct signal *open_redis(enum redis_kind kind)
{
    struct redis_config config = {.url = redis_place_url(kind)};
    struct signal *s = NULL;
    assert_int_equal(signal_redis_open(&config, &s), OK);
    return s;
}

static int set_up(void **state)
{
    struct fixture *f = &fixture;
    if (f->remote) {
        redis_place_clear(f->kind);
        f->mine = open_redis(f->kind);
        f->theirs = open_redis(f->kind);
    } else {
        f->mine = f->theirs = signal_local_new();
    }
    assert_int_equal(f->mine->remote, f->remote);
    *state = f;
    return 0;
}

static int tear_down(void **state)
{
    struct fixture *f = *state;
    if (f->theirs != f->mine)
        signal_free(f->theirs);
    signal_free(f->mine);
    return 0;
}

static void publish(struct signal *s, uint64_t group, int64_t first, int64_t last)
{
    assert_int_equal(signal_publish(s, &(struct signal_range){group, first, last}, 1), OK);
}

static void consume(struct signal *s, struct signal_cursor *cursor)
{
    assert_int_equal(signal_consume(s, cursor, &consumed), OK);
}

/* How many; all of them are of groups in rising order. */
static size_t consume_all(struct signal *s, struct signal_cursor *cursor, uint64_t next_group)
{
    size_t n = 0;
    do {
        consume(s, cursor);
        assert_false(consumed.missed);
        for (size_t i = 0; i < consumed.n; i++, n++)
            assert_int_equal(consumed.ranges[i].group, next_group + n);
    } while (consumed.more);
    return n;
}

/* A consumer that has just begun: whatever was published before is missed. */
static struct signal_cursor begin(struct signal *s)
{
    struct signal_cursor cursor = {{0}};
    consume(s, &cursor);
    assert_true(consumed.missed);
    assert_int_equal(consumed.n, 0);
    return cursor;
}

/* ---- 1 ---- */

static void the_first_time_something_may_be_missed(void **state)
{
    struct fixture *f = *state;
    begin(f->mine);
    publish(f->theirs, 1, 4, 7);
    struct signal_cursor cursor = begin(f->mine);
    assert_int_equal(consume_all(f->mine, &cursor, 0), 0);
}

static void every_consumer_gets_what_was_published_in_order(void **state)
{
    struct fixture *f = *state;
    static struct signal_range many[MANY];
    publish(f->theirs, 1, 1, 1);
    struct signal_cursor mine = begin(f->mine), theirs = begin(f->theirs);
    publish(f->theirs, 2, 5, INT64_MAX);
    publish(f->mine, 3, 6, 6);
    assert_int_equal(consume_all(f->mine, &mine, 2), 2);
    assert_int_equal(consume_all(f->mine, &mine, 4), 0);
    consume(f->theirs, &theirs);
    assert_int_equal(consumed.n, 2);
    assert_int_equal(consumed.ranges[0].first, 5);
    assert_int_equal(consumed.ranges[0].last, INT64_MAX);
    assert_int_equal(consumed.ranges[1].first, 6);
    assert_int_equal(consumed.ranges[1].last, 6);
    for (size_t i = 0; i < MANY; i++)
        many[i] = (struct signal_range){4 + i, 1, 2};
    assert_int_equal(signal_publish(f->mine, many, MANY), OK);
    assert_int_equal(consume_all(f->theirs, &theirs, 4), MANY);
    assert_int_equal(signal_publish(f->mine, many, 0), OK);
    assert_int_equal(consume_all(f->theirs, &theirs, 0), 0);
}

/* More than one batch holds. */
static void a_consumer_reads_on_while_there_is_more(void **state)
{
    struct fixture *f = *state;
    static struct signal_range many[MANY];
    uint64_t group = 1;
    publish(f->mine, group++, 1, 1);
    struct signal_cursor cursor = begin(f->theirs);
    for (int round = 0; round < 2 * SIGNAL_BATCH_MAX / MANY; round++) {
        for (size_t i = 0; i < MANY; i++)
            many[i] = (struct signal_range){group++, 1, 2};
        assert_int_equal(signal_publish(f->mine, many, MANY), OK);
    }
    assert_int_equal(consume_all(f->theirs, &cursor, 2), group - 2);
}

static void a_late_consumer_knows_that_it_missed_something(void **state)
{
    struct fixture *f = *state;
    static struct signal_range many[MANY];
    publish(f->mine, 1, 1, 1);
    struct signal_cursor late = begin(f->theirs), cursor;
    for (size_t i = 0; i < MANY; i++)
        many[i] = (struct signal_range){4 + i, 1, 2};
    size_t published = 0;
    do {
        assert_int_equal(signal_publish(f->mine, many, MANY), OK);
        cursor = late;
        consume(f->theirs, &cursor);
        assert_true(++published < 10000);
    } while (!consumed.missed);
    assert_int_equal(consumed.n, 0);
    assert_int_equal(consume_all(f->theirs, &cursor, 0), 0);
    publish(f->mine, 9, 1, 1);
    assert_int_equal(consume_all(f->theirs, &cursor, 9), 1);
}

static void a_loss_is_noticed(void **state)
{
    struct fixture *f = *state;
    publish(f->mine, 1, 1, 1);
    struct signal_cursor cursor = begin(f->theirs);
    if (!f->remote)
        return; /* it lives and dies with its consumers */
    redis_place_clear(f->kind);
    consume(f->theirs, &cursor);
    assert_true(consumed.missed);
}

/* ---- 3 ---- */

struct looked {
    uint64_t accounts[8];
    size_t n;
};

static void look(void *ctx, uint64_t account)
{
    struct looked *l = ctx;
    assert_true(l->n < COUNT_OF(l->accounts));
    l->accounts[l->n++] = account;
}

static void invalidated_accounts_are_looked_at(void **state)
{
    struct fixture *f = *state;
    const uint64_t accounts[] = {7, 9, 7};
    struct looked looked = {.n = 0};
    f->mine->invalidated = look;
    f->mine->invalidated_ctx = &looked;
    assert_int_equal(signal_invalidate(f->mine, accounts, COUNT_OF(accounts)), OK);
    assert_int_equal(looked.n, f->remote ? 0 : COUNT_OF(accounts)); /* remote: by traces */
    for (size_t i = 0; i < looked.n; i++)
        assert_int_equal(looked.accounts[i], accounts[i]);
    assert_int_equal(signal_invalidate(f->mine, accounts, 0), OK);
}

/* The driver's name is the argument; "local" when there is none. */
int main(int argc, char **argv)
{
    const char *driver = argc > 1 ? argv[1] : "local";
    fixture.remote = strcmp(driver, "local") != 0;
    fixture.kind = strcmp(driver, "redis-cluster") == 0 ? REDIS_CLUSTER : REDIS_SINGLE;
#define CASE(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        CASE(the_first_time_something_may_be_missed),
        CASE(every_consumer_gets_what_was_published_in_order),
        CASE(a_consumer_reads_on_while_there_is_more),
        CASE(a_late_consumer_knows_that_it_missed_something),
        CASE(a_loss_is_noticed),
        CASE(invalidated_accounts_are_looked_at),
    };
    return cmocka_run_group_tests_name(driver, tests, NULL, NULL);
}
