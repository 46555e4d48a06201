/* The engine-independent half of the db port, over a small engine that runs each job on a thread of
 * its own. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "base/check.h"
#include "port/db.h"

struct small_db {
    struct db db;
    enum err refusal;    /* what submit says */
    int rows_left;       /* what a query yields */
    enum err rows_error; /* what ends the rows */
    int open_rows;
    pthread_t thread;
    struct db_job *job;
};

static struct small_db *small(struct db *db)
{
    return CONTAINER_OF(db, struct small_db, db);
}

static void *work(void *arg)
{
    struct small_db *s = arg;
    struct db_job *job = s->job;
    struct tx tx = {.db = &s->db, .writable = true};
    enum err result = job->run(&tx, job);
    job->done(job, result, tx.detail);
    return NULL;
}

static enum err small_submit(struct db *db, struct db_job *job)
{
    struct small_db *s = small(db);
    if (s->refusal)
        return s->refusal;
    s->job = job;
    CHECK(pthread_create(&s->thread, NULL, work, s) == 0);
    return OK;
}

static enum err small_read(struct db *db, tx_fn run, void *arg, char *detail)
{
    struct tx tx = {.db = db};
    enum err e = run(&tx, arg);
    strcpy(detail, tx.detail); /* an engine may rely on a place for it */
    return e;
}

static enum err small_query(struct tx *tx, const char *sql, const struct db_value *args, size_t n,
                            struct db_rows *rows)
{
    (void)args;
    (void)n;
    if (strcmp(sql, "fail") == 0)
        return ERR_UNAVAILABLE;
    small(tx->db)->open_rows++;
    rows->row = 0;
    return OK;
}

static bool small_next(struct db_rows *rows)
{
    return small(rows->tx->db)->rows_left-- > 0;
}

static int64_t small_i64(struct db_rows *rows, int column)
{
    (void)rows;
    return 40 + column;
}

static enum err small_rows_done(struct db_rows *rows)
{
    small(rows->tx->db)->open_rows--;
    return small(rows->tx->db)->rows_error;
}

static const struct db_ops small_ops = {
    .submit = small_submit,
    .read = small_read,
    .query = small_query,
    .next = small_next,
    .column_i64 = small_i64,
    .rows_done = small_rows_done,
};

static enum err succeed(struct tx *tx, void *arg)
{
    CHECK(tx->writable);
    *(int *)arg = 42;
    return OK;
}

static enum err fail_with_reason(struct tx *tx, void *arg)
{
    (void)arg;
    return tx_fail(tx, ERR_INVALID, "no %s today", "luck");
}

static void test_write_waits_for_its_result(void **state)
{
    (void)state;
    struct small_db s = {.db = {.ops = &small_ops}};
    char detail[TX_DETAIL_MAX] = "old";
    int seen = 0;
    for (int i = 0; i < 50; i++) {
        seen = 0;
        assert_int_equal(db_write(&s.db, succeed, &seen, detail), OK);
        assert_int_equal(seen, 42);
        assert_string_equal(detail, "");
        pthread_join(s.thread, NULL);
    }
    assert_int_equal(db_write(&s.db, fail_with_reason, NULL, detail), ERR_INVALID);
    assert_string_equal(detail, "no luck today");
    pthread_join(s.thread, NULL);
    assert_int_equal(db_write(&s.db, fail_with_reason, NULL, NULL), ERR_INVALID);
    pthread_join(s.thread, NULL);
}

static void test_refused_write_returns_at_once(void **state)
{
    (void)state;
    struct small_db s = {.db = {.ops = &small_ops}, .refusal = ERR_OVERLOADED};
    char detail[TX_DETAIL_MAX] = "old";
    int seen = 0;
    assert_int_equal(db_write(&s.db, succeed, &seen, detail), ERR_OVERLOADED);
    assert_int_equal(seen, 0);
    assert_string_equal(detail, "");
}

static void test_read_gives_its_detail(void **state)
{
    (void)state;
    struct small_db s = {.db = {.ops = &small_ops}};
    char detail[TX_DETAIL_MAX];
    assert_int_equal(db_read(&s.db, fail_with_reason, NULL, detail), ERR_INVALID);
    assert_string_equal(detail, "no luck today");
    assert_int_equal(db_read(&s.db, fail_with_reason, NULL, NULL), ERR_INVALID);
}

static enum err fail_in_words(struct tx *tx, void *arg)
{
    (void)arg;
    return tx_fail(tx, ERR_INTERNAL, "disk I/O error");
}

static void test_words_of_a_failure_are_its_cause(void **state)
{
    (void)state;
    struct small_db s = {.db = {.ops = &small_ops}};
    err_cause_clear();
    assert_int_equal(db_read(&s.db, fail_in_words, NULL, NULL), ERR_INTERNAL);
    assert_string_equal(err_cause(), "disk I/O error");
    err_cause_clear();
    assert_int_equal(db_write(&s.db, fail_in_words, NULL, NULL), ERR_INTERNAL);
    assert_string_equal(err_cause(), "disk I/O error");
    pthread_join(s.thread, NULL);
}

static void test_get_i64(void **state)
{
    (void)state;
    struct small_db s = {.db = {.ops = &small_ops}, .rows_left = 1};
    struct tx tx = {.db = &s.db};
    int64_t value = 7;
    assert_int_equal(tx_get_i64(&tx, "one", DB_NO_ARGS, &value), OK);
    assert_int_equal(value, 40);
    value = 7;
    s.rows_left = 0;
    assert_int_equal(tx_get_i64(&tx, "none", DB_NO_ARGS, &value), ERR_NOT_FOUND);
    s.rows_left = 0;
    s.rows_error = ERR_UNAVAILABLE; /* "no row" because of an error is an error */
    assert_int_equal(tx_get_i64(&tx, "broken", DB_NO_ARGS, &value), ERR_UNAVAILABLE);
    assert_int_equal(tx_get_i64(&tx, "fail", DB_NO_ARGS, &value), ERR_UNAVAILABLE);
    assert_int_equal(value, 7);
    assert_int_equal(s.open_rows, 0); /* every statement was given back */
}

static void test_detail_is_cut_between_characters(void **state)
{
    (void)state;
    struct tx tx = {0};
    char text[3 * TX_DETAIL_MAX + 1];
    for (size_t i = 0; i < TX_DETAIL_MAX; i++)
        memcpy(text + i * 3, "\xe2\x82\xac", 3);
    text[3 * TX_DETAIL_MAX] = '\0';
    for (int lead = 0; lead < 3; lead++) {
        assert_int_equal(tx_fail(&tx, ERR_CONFLICT, "%.*s%s", lead, "ab", text), ERR_CONFLICT);
        size_t n = strlen(tx.detail);
        assert_true(n < TX_DETAIL_MAX && n > TX_DETAIL_MAX - 5);
        assert_true(str_is_utf8(str_of(tx.detail)));
    }
    tx_fail(&tx, ERR_CONFLICT, "short");
    assert_string_equal(tx.detail, "short");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_write_waits_for_its_result),
        cmocka_unit_test(test_refused_write_returns_at_once),
        cmocka_unit_test(test_read_gives_its_detail),
        cmocka_unit_test(test_words_of_a_failure_are_its_cause),
        cmocka_unit_test(test_get_i64),
        cmocka_unit_test(test_detail_is_cut_between_characters),
    };
    return cmocka_run_group_tests_name("port/db", tests, NULL, NULL);
}
