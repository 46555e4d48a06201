/* The signal contract (port/signal.h), line by line, against every driver in the table below. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/check.h"
#include "base/clock.h"
#include "redis_place.h"
#include "signal/local.h"
#include "signal/redis.h"

enum { MANY = 1000, SOON_MS = 20, KEPT = 4096 };

struct kept {
    enum signal_kind kind;
    uint64_t key;
    int64_t seq;
    size_t n;
    uint64_t sum; /* of the receivers */
};

/* What a node has received. */
struct node {
    struct signal *s;
    struct kept kept[KEPT];
    size_t n;
    bool missed;
};

/* Two nodes' handles on the same signal; a local one has only one. */
struct fixture {
    struct node mine, theirs;
    struct node *there; /* theirs, or mine when there is only one */
    enum redis_kind kind;
    bool remote;
};

static struct fixture fixture;

static void keep(void *ctx, const struct signal_message *messages, size_t n)
{
    struct node *node = ctx;
    for (size_t i = 0; i < n; i++) {
        const struct signal_message *m = &messages[i];
        assert_true(node->n < KEPT);
        struct kept *k = &node->kept[node->n++];
        *k = (struct kept){m->kind, m->key, m->seq, m->n, 0};
        for (size_t j = 0; j < m->n; j++)
            k->sum += m->receivers[j];
    }
}

static void open_node(struct node *node, struct signal *s)
{
    *node = (struct node){.s = s};
    s->received = keep;
    s->received_ctx = node;
}

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
    if (f->remote)
        redis_place_clear(f->kind);
    open_node(&f->mine, f->remote ? open_redis(f->kind) : signal_local_new());
    if (f->remote)
        open_node(&f->theirs, open_redis(f->kind));
    f->there = f->remote ? &f->theirs : &f->mine;
    assert_int_equal(f->mine.s->remote, f->remote);
    *state = f;
    return 0;
}

static int tear_down(void **state)
{
    struct fixture *f = *state;
    if (f->remote)
        signal_free(f->theirs.s);
    signal_free(f->mine.s);
    return 0;
}

static void publish(struct node *node, enum signal_kind kind, uint64_t key, int64_t seq,
                    const uint64_t *receivers, size_t n)
{
    const struct signal_message m = {kind, key, seq, receivers, n};
    assert_int_equal(signal_publish(node->s, &m, 1), OK);
}

static void consume(struct node *node)
{
    bool missed;
    assert_int_equal(signal_consume(node->s, SOON_MS, &missed), OK);
    node->missed = missed;
}

/* Until nothing more comes. */
static void consume_all(struct node *node)
{
    size_t before;
    do {
        before = node->n;
        consume(node);
        assert_false(node->missed);
    } while (node->n > before);
}

static void begin(struct node *node)
{
    consume(node);
    assert_true(node->missed);
    assert_int_equal(node->n, 0);
}

/* ---- 1 ---- */

static void the_first_time_something_may_be_missed(void **state)
{
    struct fixture *f = *state;
    begin(&f->mine);
    consume_all(&f->mine);
}

static void what_is_published_arrives_whole_and_in_order(void **state)
{
    struct fixture *f = *state;
    static uint64_t receivers[SIGNAL_RECEIVERS_MAX];
    uint64_t sum = 0;
    for (size_t i = 0; i < SIGNAL_RECEIVERS_MAX; i++)
        sum += receivers[i] = UINT64_C(0x0d0a000000000001) * (i + 1) & INT64_MAX;
    begin(&f->mine);
    publish(&f->mine, SIGNAL_GROUP, 7, INT64_MAX, receivers, SIGNAL_RECEIVERS_MAX);
    publish(f->there, SIGNAL_READ, UINT64_MAX, 3, receivers, 1);
    publish(f->there, SIGNAL_EVERYBODY, 0, 0, NULL, 0);
    consume_all(&f->mine);
    const struct kept *k = f->mine.kept;
    assert_int_equal(f->mine.n, 3);
    assert_true(k[0].kind == SIGNAL_GROUP && k[0].key == 7 && k[0].seq == INT64_MAX);
    assert_true(k[0].n == SIGNAL_RECEIVERS_MAX && k[0].sum == sum);
    assert_true(k[1].kind == SIGNAL_READ && k[1].key == UINT64_MAX && k[1].seq == 3);
    assert_true(k[1].n == 1 && k[1].sum == receivers[0]);
    assert_true(k[2].kind == SIGNAL_EVERYBODY && k[2].n == 0);
}

static void every_node_gets_everything(void **state)
{
    struct fixture *f = *state;
    struct signal_message many[MANY];
    const uint64_t who = 9;
    begin(&f->mine);
    if (f->remote)
        begin(&f->theirs);
    for (size_t i = 0; i < MANY; i++)
        many[i] = (struct signal_message){SIGNAL_GROUP, 4 + i, 1, &who, 1};
    assert_int_equal(signal_publish(f->mine.s, many, MANY), OK);
    assert_int_equal(signal_publish(f->mine.s, many, 0), OK);
    for (size_t i = 0; i < 100; i++)
        publish(f->there, SIGNAL_READ, 1 + i, 1, &who, 1);
    for (int side = 0; side < (f->remote ? 2 : 1); side++) {
        struct node *node = side ? &f->theirs : &f->mine;
        consume_all(node);
        assert_int_equal(node->n, MANY + 100);
        for (size_t i = 0; i < node->n; i++)
            assert_int_equal(node->kept[i].key, i < MANY ? 4 + i : 1 + i - MANY);
    }
}

static void a_late_consumer_knows_that_it_missed_something(void **state)
{
    struct fixture *f = *state;
    const uint64_t who = 9;
    if (!f->remote)
        return; /* nobody is late who is called */
    begin(&f->theirs);
    begin(&f->mine);
    for (int i = 1; i <= 6000; i++) {
        publish(&f->mine, SIGNAL_GROUP, 1, i, &who, 1);
        if (i % 1000 > 0)
            continue;
        consume_all(&f->mine); /* whoever reads in time misses nothing */
        assert_int_equal(f->mine.n, 1000);
        f->mine.n = 0;
    }
    consume(&f->theirs);
    assert_true(f->theirs.missed);
    f->theirs.n = 0;
    publish(&f->mine, SIGNAL_GROUP, 2, 1, &who, 1);
    consume_all(&f->theirs);
    assert_int_equal(f->theirs.n, 1);
    assert_int_equal(f->theirs.kept[0].key, 2);
}

static void a_loss_is_noticed(void **state)
{
    struct fixture *f = *state;
    const uint64_t who = 9;
    if (!f->remote)
        return; /* it lives and dies with its consumers */
    begin(&f->theirs);
    redis_place_clear(f->kind);
    publish(&f->mine, SIGNAL_GROUP, 1, 1, &who, 1);
    publish(&f->mine, SIGNAL_GROUP, 1, 2, &who, 1);
    consume(&f->theirs);
    assert_true(f->theirs.missed);
    f->theirs.n = 0;
    redis_place_clear(f->kind); /* and nothing since */
    consume(&f->theirs);
    assert_true(f->theirs.missed);
    consume_all(&f->theirs);
}

/* ---- 2, 3, 4 ---- */

static void who_is_alone_is_called_at_once(void **state)
{
    struct fixture *f = *state;
    const uint64_t who = 9;
    if (f->remote)
        return;
    publish(&f->mine, SIGNAL_GROUP, 1, 1, &who, 1);
    assert_int_equal(f->mine.n, 1);
    f->mine.s->received = NULL;
    publish(&f->mine, SIGNAL_GROUP, 1, 2, &who, 1);
    assert_int_equal(f->mine.n, 1);
}

static void waiting_has_an_end(void **state)
{
    struct fixture *f = *state;
    begin(&f->mine);
    int64_t began_us = clock_mono_us(clock_system());
    consume_all(&f->mine);
    int64_t took_ms = (clock_mono_us(clock_system()) - began_us) / 1000;
    assert_true(took_ms < 1000 && (!f->remote || took_ms >= SOON_MS - 1));
}

static void who_begins_anew_has_missed_something(void **state)
{
    struct fixture *f = *state;
    begin(&f->mine);
    consume_all(&f->mine);
    signal_reset(f->mine.s);
    consume(&f->mine);
    assert_true(f->mine.missed);
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
        CASE(what_is_published_arrives_whole_and_in_order),
        CASE(every_node_gets_everything),
        CASE(a_late_consumer_knows_that_it_missed_something),
        CASE(a_loss_is_noticed),
        CASE(who_is_alone_is_called_at_once),
        CASE(waiting_has_an_end),
        CASE(who_begins_anew_has_missed_something),
    };
    return cmocka_run_group_tests_name(driver, tests, NULL, NULL);
}
