/* What servers say in rare moments, said by scripted ones: slots that moved or move, scripts that
 * are not known, closed and silent connections, replies that make no sense. */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <cmocka.h>

#include "base/check.h"
#include "base/clock.h"
#include "fake_redis.h"
#include "view/redis/batch.h"
#include "view/redis/script.h"

enum { NODES = 2 };

struct world;

struct node {
    struct world *w;
    int number;
    struct fake_redis *server;
    _Atomic int gets, asked, loads, infos;
    bool asking;            /* the last command was ASKING */
    bool queueing, refused; /* in a transaction */
    char queued[16];
};

enum trouble {
    NO_TROUBLE,
    MOVED_AWAY,      /* the map says node 0, node 1 has it */
    ON_THE_WAY,      /* node 0 says ASK, node 1 wants ASKING first */
    TRY_AGAIN_TWICE, /* a multi-key command while a slot moves */
    NO_SCRIPT,       /* until it was loaded */
    CLOSE_ONCE,      /* in the middle of a batch */
    SILENCE,
    NONSENSE,
    SENT_AROUND, /* both say that the other has it */
};

struct world {
    struct node nodes[NODES];
    _Atomic enum trouble trouble;
    _Atomic int left; /* how often it still happens */
    bool cluster;
    struct connections *connections;
    struct batch *batch;
};

static bool answer_slots(const struct node *n, struct buf *out)
{
    const struct world *w = n->w;
    buf_printf(out, "*1\r\n*3\r\n:0\r\n:16383\r\n*2\r\n$9\r\n127.0.0.1\r\n:%d\r\n",
               fake_redis_port(w->nodes[0].server));
    return true;
}

static bool happens(struct world *w)
{
    return atomic_fetch_sub(&w->left, 1) > 0;
}

static bool answer_get(struct node *n, const struct str *argv, struct buf *out)
{
    struct world *w = n->w;
    int other = fake_redis_port(w->nodes[1 - n->number].server);
    bool asking = n->asking;
    n->asking = false;
    atomic_fetch_add(&n->gets, 1);
    switch (atomic_load(&w->trouble)) {
    case MOVED_AWAY:
        if (n->number == 0)
            return buf_printf(out, "-MOVED %u 127.0.0.1:%d\r\n", slot_of(argv[1]), other), true;
        break;
    case ON_THE_WAY:
        if (n->number == 0)
            return buf_printf(out, "-ASK %u :%d\r\n", slot_of(argv[1]), other), true;
        if (!asking)
            return buf_printf(out, "-MOVED %u 127.0.0.1:%d\r\n", slot_of(argv[1]), other), true;
        break;
    case SENT_AROUND:
        return buf_printf(out, "-MOVED %u 127.0.0.1:%d\r\n", slot_of(argv[1]), other), true;
    case TRY_AGAIN_TWICE:
        if (happens(w))
            return buf_str(out, STR("-TRYAGAIN later\r\n")), true;
        break;
    case CLOSE_ONCE:
        if (str_eq(argv[1], STR("k5")) && happens(w))
            return false;
        break;
    case SILENCE:
        return true;
    case NONSENSE:
        return buf_str(out, STR("!what?\r\n")), true;
    default:
        break;
    }
    buf_printf(out, "$%zu\r\n%.*s\r\n", argv[1].len, STR_ARG(argv[1]));
    return true;
}

static bool answer_transaction(struct node *n, struct str word, struct buf *out)
{
    n->queueing = str_eq(word, STR("MULTI"));
    if (n->queueing)
        buf_str(out, STR("+OK\r\n"));
    else if (n->refused)
        buf_str(out, STR("-EXECABORT Transaction discarded\r\n"));
    else
        buf_printf(out, "*1\r\n$%zu\r\n%s\r\n", strlen(n->queued), n->queued);
    return true;
}

static bool answer(void *ctx, const struct str *argv, size_t argc, struct buf *out)
{
    struct node *n = ctx;
    if (str_eq(argv[0], STR("CLUSTER")))
        return answer_slots(n, out);
    if (str_eq(argv[0], STR("ASKING"))) {
        n->asking = true;
        atomic_fetch_add(&n->asked, 1);
        return buf_str(out, STR("+OK\r\n")), true;
    }
    if (str_eq(argv[0], STR("SCRIPT"))) {
        atomic_fetch_add(&n->loads, 1);
        return buf_str(out, STR("$2\r\nok\r\n")), true;
    }
    if (str_eq(argv[0], STR("EVALSHA"))) {
        if (atomic_load(&n->w->trouble) == NO_SCRIPT && n->loads < SCRIPT_COUNT)
            return buf_str(out, STR("-NOSCRIPT No matching script.\r\n")), true;
        return buf_str(out, STR(":42\r\n")), true;
    }
    if (str_eq(argv[0], STR("MULTI")) || str_eq(argv[0], STR("EXEC")))
        return answer_transaction(n, argv[0], out);
    CHECK(argc == 2);
    if (!n->queueing)
        return answer_get(n, argv, out);
    size_t before = out->len;
    bool good = answer_get(n, argv, out);
    n->refused = out->ptr[before] == '-';
    if (!n->refused) {
        out->len = before;
        snprintf(n->queued, sizeof n->queued, "%.*s", STR_ARG(argv[1]));
        buf_str(out, STR("+QUEUED\r\n"));
    }
    return good;
}

/* ---- the fixture ---- */

static void connect_to(struct world *w, int64_t failover_wait_ms)
{
    char text[100];
    struct redis_url url;
    const char *why;
    snprintf(text, sizeof text, "redis%s://127.0.0.1:%d", w->cluster ? "-cluster" : "",
             fake_redis_port(w->nodes[0].server));
    assert_int_equal(redis_url_parse(str_of(text), &url, &why), OK);
    w->connections = connections_new(&url, failover_wait_ms, NULL);
    w->batch = batch_new(w->connections, NULL);
}

static int set_up(void **state)
{
    struct world *w = calloc(1, sizeof *w);
    w->cluster = true;
    for (int i = 0; i < NODES; i++) {
        w->nodes[i].w = w;
        w->nodes[i].number = i;
        w->nodes[i].server = fake_redis_new(answer, &w->nodes[i]);
    }
    connect_to(w, 400);
    *state = w;
    return 0;
}

static int tear_down(void **state)
{
    struct world *w = *state;
    batch_free(w->batch);
    connections_free(w->connections);
    for (int i = 0; i < NODES; i++)
        if (w->nodes[i].server)
            fake_redis_free(w->nodes[i].server);
    free(w);
    return 0;
}

static void queue_more_gets(struct world *w, int n)
{
    for (int i = 0; i < n; i++) {
        char key[16];
        snprintf(key, sizeof key, "k%d", i);
        batch_command(w->batch, "GET", arg_key(key_named(key)));
    }
}

static void queue_gets(struct world *w, int n)
{
    batch_reset(w->batch);
    queue_more_gets(w, n);
}

static void assert_answered(struct world *w, int n)
{
    for (int i = 0; i < n; i++) {
        char key[16];
        snprintf(key, sizeof key, "k%d", i);
        assert_true(str_eq(batch_text(w->batch, (size_t)i), str_of(key)));
    }
}

static int64_t timed_flush(struct world *w, enum err expected)
{
    int64_t began = clock_mono_ms(clock_system());
    assert_int_equal(batch_flush(w->batch, FLUSH_WAIT), expected);
    return clock_mono_ms(clock_system()) - began;
}

/* ---- the tests ---- */

static void every_command_gets_its_own_answer(void **state)
{
    struct world *w = *state;
    for (int n = 1; n <= 1000; n *= 10) {
        queue_gets(w, n);
        timed_flush(w, OK);
        assert_answered(w, n);
    }
    batch_reset(w->batch);
    timed_flush(w, OK); /* nothing to do */
}

static void a_slot_that_moved_is_found_and_remembered(void **state)
{
    struct world *w = *state;
    atomic_store(&w->trouble, MOVED_AWAY);
    queue_gets(w, 20);
    timed_flush(w, OK);
    assert_answered(w, 20);
    int before = atomic_load(&w->nodes[0].gets);
    queue_gets(w, 20);
    timed_flush(w, OK);
    assert_answered(w, 20);
    assert_int_equal(atomic_load(&w->nodes[0].gets), before); /* asked the right one at once */
}

static void a_slot_on_its_way_is_asked_for_and_not_remembered(void **state)
{
    struct world *w = *state;
    atomic_store(&w->trouble, ON_THE_WAY);
    queue_gets(w, 20);
    timed_flush(w, OK);
    assert_answered(w, 20);
    assert_int_equal(atomic_load(&w->nodes[1].asked), 20);
    assert_int_equal(connections_node_of(w->connections, slot_of(STR("k1"))), 0);
}

static void nodes_that_send_us_in_circles_end_in_an_error(void **state)
{
    struct world *w = *state;
    atomic_store(&w->trouble, SENT_AROUND);
    queue_gets(w, 1);
    assert_in_range(timed_flush(w, ERR_UNAVAILABLE), 300, 1500);
    assert_true(atomic_load(&w->nodes[0].gets) < 60); /* with pauses */
}

static void try_again_is_tried_again(void **state)
{
    struct world *w = *state;
    atomic_store(&w->trouble, TRY_AGAIN_TWICE);
    atomic_store(&w->left, 2);
    queue_gets(w, 3);
    timed_flush(w, OK);
    assert_answered(w, 3);
}

static void a_script_that_is_not_known_is_told(void **state)
{
    struct world *w = *state;
    atomic_store(&w->trouble, NO_SCRIPT);
    batch_script(w->batch, SCRIPT_raise, arg_key(key_named("k")), arg_text("v"));
    timed_flush(w, OK);
    assert_int_equal(batch_integer(w->batch, 0, 0), 42);
    assert_int_equal(atomic_load(&w->nodes[0].loads), SCRIPT_COUNT);
}

static void a_connection_that_closes_is_replaced(void **state)
{
    struct world *w = *state;
    queue_gets(w, 10);
    timed_flush(w, OK); /* from now on there is one in the pool */
    atomic_store(&w->trouble, CLOSE_ONCE);
    atomic_store(&w->left, 1);
    queue_gets(w, 10);
    assert_true(timed_flush(w, OK) < 300);
    assert_answered(w, 10);
}

static void silence_ends_after_the_timeout(void **state)
{
    struct world *w = *state;
    atomic_store(&w->trouble, SILENCE);
    queue_gets(w, 3);
    assert_in_range(timed_flush(w, ERR_UNAVAILABLE), 900, 3000);
    atomic_store(&w->trouble, NO_TROUBLE);
    int64_t until = clock_mono_ms(clock_system()) + 5000;
    enum err e;
    do { /* it is asked again after a pause */
        queue_gets(w, 3);
        e = batch_flush(w->batch, FLUSH_WAIT);
    } while (e && clock_mono_ms(clock_system()) < until);
    assert_int_equal(e, OK);
    assert_answered(w, 3);
}

static void nonsense_is_no_answer(void **state)
{
    struct world *w = *state;
    atomic_store(&w->trouble, NONSENSE);
    queue_gets(w, 3);
    assert_true(timed_flush(w, ERR_UNAVAILABLE) < 3000);
    atomic_store(&w->trouble, NO_TROUBLE);
}

static void an_absent_server_is_reported_at_once_and_found_again(void **state)
{
    struct world *w = *state;
    batch_free(w->batch);
    connections_free(w->connections);
    w->cluster = false;
    connect_to(w, 0);
    fake_redis_free(w->nodes[0].server);
    w->nodes[0].server = NULL;
    queue_gets(w, 3);
    assert_true(timed_flush(w, ERR_UNAVAILABLE) < 1600);
    for (int i = 0; i < 50; i++) { /* many callers, none of whom waits for long */
        queue_gets(w, 3);
        assert_true(timed_flush(w, ERR_UNAVAILABLE) < 1600);
    }
}

/* MULTI, one GET, EXEC. */
static void queue_transaction(struct world *w)
{
    batch_reset(w->batch);
    assert_int_equal(batch_transaction(w->batch, slot_of(STR("k0"))), 0);
    batch_also(w->batch, "GET", arg_key(key_named("k0")));
    batch_commit(w->batch);
    queue_more_gets(w, 3); /* what follows is answered for itself */
}

static void transactions_are_answered_as_one(void **state)
{
    struct world *w = *state;
    atomic_store(&w->trouble, MOVED_AWAY);
    queue_transaction(w);
    timed_flush(w, OK);
    assert_int_equal(batch_count(w->batch), 4);
    const redisReply *r = batch_reply(w->batch, 0);
    assert_int_equal(r->type, REDIS_REPLY_ARRAY);
    assert_int_equal(r->elements, 1);
    assert_string_equal(r->element[0]->str, "k0");
    assert_true(str_eq(batch_text(w->batch, 3), STR("k2")));
}

static void a_transaction_on_a_moving_slot_is_an_error(void **state)
{
    struct world *w = *state;
    atomic_store(&w->trouble, ON_THE_WAY);
    queue_transaction(w);
    timed_flush(w, OK);
    assert_true(batch_failed(w->batch, 0));
    assert_true(str_eq(batch_text(w->batch, 3), STR("k2")));
}

int main(void)
{
#define CASE(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        CASE(every_command_gets_its_own_answer),
        CASE(a_slot_that_moved_is_found_and_remembered),
        CASE(a_slot_on_its_way_is_asked_for_and_not_remembered),
        CASE(nodes_that_send_us_in_circles_end_in_an_error),
        CASE(try_again_is_tried_again),
        CASE(a_script_that_is_not_known_is_told),
        CASE(a_connection_that_closes_is_replaced),
        CASE(silence_ends_after_the_timeout),
        CASE(nonsense_is_no_answer),
        CASE(an_absent_server_is_reported_at_once_and_found_again),
        CASE(transactions_are_answered_as_one),
        CASE(a_transaction_on_a_moving_slot_is_an_error),
    };
    return cmocka_run_group_tests_name("redis batch", tests, NULL, NULL);
}
