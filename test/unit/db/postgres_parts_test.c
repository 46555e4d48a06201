/* Parts of the PostgreSQL driver that need no server: rewriting, limits, numbers, the order of
 * telling, what errors mean. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/check.h"
#include "db/postgres_driver.h"

/* ---- statements ---- */

static void rewrites_to(const char *sql, const char *expected)
{
    struct buf out;
    buf_init(&out, 0);
    pg_statement_rewrite(sql, &out);
    assert_string_equal(out.ptr, expected);
    buf_done(&out);
}

static void ids_become_a_table(void **state)
{
    (void)state;
    rewrites_to("SELECT 1", "SELECT 1");
    rewrites_to("… IN (SELECT id FROM ids($1)) AND x",
                "… IN (SELECT id FROM (SELECT unnest($1::bigint[]) AS id) AS ids) AND x");
    rewrites_to("FROM ids($12) AS i JOIN t",
                "FROM (SELECT unnest($12::bigint[]) AS id) AS i JOIN t");
    rewrites_to("FROM ids($1)  as i", "FROM (SELECT unnest($1::bigint[]) AS id)  as i");
    rewrites_to("FROM ids($1) ASCII", "FROM (SELECT unnest($1::bigint[]) AS id) AS ids ASCII");
    rewrites_to("'ids($1)' \"ids($1)\" kids($1) ids(x) ids($)",
                "'ids($1)' \"ids($1)\" kids($1) ids(x) ids($)");
    rewrites_to("'it''s' ids($1)", "'it''s' (SELECT unnest($1::bigint[]) AS id) AS ids");
}

static void the_limit_of_a_text_is_found(void **state)
{
    (void)state;
    assert_int_equal(pg_statement_find_limit("SELECT 1"), -1);
    assert_int_equal(pg_statement_find_limit("SELECT id FROM t LIMIT $3"), 3);
    assert_int_equal(pg_statement_find_limit("SELECT id FROM t LIMIT 20 OFFSET $1"), 0);
    assert_int_equal(pg_statement_find_limit("SELECT id FROM t LIMIT 100000"), -1);
    assert_int_equal(pg_statement_find_limit("SELECT (SELECT x LIMIT 1) FROM t"), -1);
    assert_int_equal(pg_statement_find_limit("SELECT UNLIMIT 3"), -1);
}

/* ---- numbers ---- */

static void numeric_is(const unsigned char *bytes, size_t n, bool ok, int64_t expected)
{
    int64_t value = -1;
    assert_int_equal(pg_numeric_i64(bytes, n, &value), ok);
    if (ok)
        assert_int_equal(value, expected);
}

#define NUMERIC(ok, value, ...)                                                                    \
    numeric_is((const unsigned char[]){__VA_ARGS__}, sizeof((const unsigned char[]){__VA_ARGS__}), \
               ok, value)

static void numerics_are_read_exactly(void **state)
{
    (void)state;
    NUMERIC(true, 0, 0, 0, 0, 0, 0, 0, 0, 0);
    NUMERIC(true, 7, 0, 1, 0, 0, 0, 0, 0, 0, 0, 7);
    NUMERIC(true, -7, 0, 1, 0, 0, 0x40, 0, 0, 0, 0, 7);
    NUMERIC(true, 70000, 0, 1, 0, 1, 0, 0, 0, 0, 0, 7, /* weight 1, one digit: 7 * 10000 */);
    NUMERIC(true, 10001, 0, 2, 0, 1, 0, 0, 0, 0, 0, 1, 0, 1);
    NUMERIC(false, 0, 0, 1, 0xff, 0xff, 0, 0, 0, 1, 0x13, 0x88); /* 0.5 */
    NUMERIC(false, 0, 0, 0, 0, 0, 0xc0, 0, 0, 0);                /* NaN */
    NUMERIC(false, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0, 7);             /* cut short */
    NUMERIC(false, 0, 0, 1);
    /* 9223372036854775807, one more, and its negative */
    NUMERIC(true, INT64_MAX, 0, 5, 0, 4, 0, 0, 0, 0, 0x03, 0x9a, 0x0d, 0x2c, 0x01, 0x70, 0x15, 0x65,
            0x16, 0xaf);
    NUMERIC(false, 0, 0, 5, 0, 4, 0, 0, 0, 0, 0x03, 0x9a, 0x0d, 0x2c, 0x01, 0x70, 0x15, 0x65, 0x16,
            0xb0);
    NUMERIC(true, INT64_MIN, 0, 5, 0, 4, 0x40, 0, 0, 0, 0x03, 0x9a, 0x0d, 0x2c, 0x01, 0x70, 0x15,
            0x65, 0x16, 0xb0);
}

/* ---- errors ---- */

static void errors_have_their_kinds(void **state)
{
    (void)state;
    static const struct {
        struct pg_failure failure;
        enum err kind;
        enum pg_trouble trouble;
    } rows[] = {
        {{"23505", ""}, ERR_CONFLICT, PG_CONFLICT},
        {{"23502", ""}, ERR_INTERNAL, PG_REFUSED},
        {{"40001", ""}, ERR_UNAVAILABLE, PG_CONTENTION},
        {{"40P01", ""}, ERR_UNAVAILABLE, PG_CONTENTION},
        {{"55P03", ""}, ERR_UNAVAILABLE, PG_CONTENTION},
        {{"53100", ""}, ERR_STORAGE_FULL, PG_REFUSED},
        {{"53300", ""}, ERR_UNAVAILABLE, PG_REFUSED},
        {{"25006", ""}, ERR_UNAVAILABLE, PG_REFUSED},
        {{"57014", ""}, ERR_TIMEOUT, PG_REFUSED},
        {{"57P01", ""}, ERR_UNAVAILABLE, PG_LOST},
        {{"08006", ""}, ERR_UNAVAILABLE, PG_LOST},
        {{"", ""}, ERR_UNAVAILABLE, PG_LOST},
        {{"XX001", ""}, ERR_STORAGE_FAILED, PG_REFUSED},
        {{"42601", ""}, ERR_INTERNAL, PG_REFUSED},
    };
    for (size_t i = 0; i < COUNT_OF(rows); i++) {
        assert_int_equal(pg_failure_kind(&rows[i].failure, PG_WRITER), rows[i].kind);
        assert_int_equal(pg_failure_trouble(&rows[i].failure), rows[i].trouble);
    }
    assert_int_equal(pg_failure_kind(&(struct pg_failure){"25006", ""}, PG_READER), ERR_INTERNAL);
}

/* ---- order ---- */

static struct pg_turn turn_of(uint64_t actor, uint64_t object)
{
    struct event e = {.actor = actor, .object = object};
    struct event_list list = {.items = &e, .count = 1};
    struct pg_turn turn = {0};
    pg_keys_add(&turn.keys, &list);
    return turn;
}

struct visitor {
    struct pg_order *order;
    struct pg_turn turn;
    _Atomic bool inside;
};

static void *visit(void *arg)
{
    struct visitor *v = arg;
    pg_order_enter(v->order, &v->turn);
    v->inside = true;
    return NULL;
}

static bool waits(struct pg_order *o, size_t n)
{
    pthread_mutex_lock(&o->lock);
    size_t found = 0;
    for (struct pg_turn *t = o->first; t; t = t->next)
        found++;
    pthread_mutex_unlock(&o->lock);
    return found == n;
}

/* The second waits for the first; the third, which shares a key only with the second, waits behind
 * it; a fourth with other keys passes both. */
static void turns_are_taken_in_the_order_of_coming(void **state)
{
    (void)state;
    struct pg_order order;
    pg_order_init(&order);
    struct pg_turn first = turn_of(1, 2), fourth = turn_of(5, 0);
    struct visitor second = {.order = &order, .turn = turn_of(2, 3)};
    struct visitor third = {.order = &order, .turn = turn_of(3, 4)};
    pthread_t threads[2];
    pg_order_enter(&order, &first);
    pthread_create(&threads[0], NULL, visit, &second);
    while (!waits(&order, 1))
        usleep(100);
    pthread_create(&threads[1], NULL, visit, &third);
    while (!waits(&order, 2))
        usleep(100);
    pg_order_enter(&order, &fourth);
    pg_order_leave(&order, &fourth);
    assert_false(second.inside || third.inside);
    pg_order_leave(&order, &first);
    pthread_join(threads[0], NULL);
    assert_true(second.inside);
    assert_true(waits(&order, 1));
    assert_false(third.inside);
    pg_order_leave(&order, &second.turn);
    pthread_join(threads[1], NULL);
    assert_true(third.inside && waits(&order, 0));
    pg_order_leave(&order, &third.turn);
    pg_order_done(&order);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ids_become_a_table),
        cmocka_unit_test(the_limit_of_a_text_is_found),
        cmocka_unit_test(numerics_are_read_exactly),
        cmocka_unit_test(errors_have_their_kinds),
        cmocka_unit_test(turns_are_taken_in_the_order_of_coming),
    };
    return cmocka_run_group_tests_name("db/postgres_parts", tests, NULL, NULL);
}
