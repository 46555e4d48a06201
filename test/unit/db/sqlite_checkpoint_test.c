/* The write-ahead log stays small under load, grows only while a reader holds it, and a file that
 * cannot be synced ends the store as surely as a log that cannot. */
#include "sqlite_disk.h"
#include "store.h"

enum { LIMIT_BYTES = 1 << 20, ROW_BYTES = 20000 };

static char filler[ROW_BYTES];

static enum err write_row(struct tx *tx, void *arg)
{
    int64_t *id = arg;
    return tx_exec(tx,
                   "INSERT INTO post_versions (post_id, replaced_at, caption) VALUES ($1, 0, $2)",
                   DB_ARGS(DB_I64(*id), DB_TEXT(((struct str){filler, sizeof filler}))), NULL);
}

static enum err write_rows(struct store *s, int64_t from, int64_t n)
{
    enum err e = OK;
    for (int64_t id = from; id < from + n && !e; id++)
        e = db_write(s->db, write_row, &id, NULL);
    return e;
}

static void open_small(struct store *s)
{
    memset(filler, 'x', sizeof filler);
    s->config.wal_limit_bytes = LIMIT_BYTES;
    store_open(s);
}

static uint64_t log_bytes(struct store *s)
{
    struct db_stats stats;
    db_stats(s->db, &stats);
    return stats.wal_bytes;
}

static void the_log_stays_near_its_limit(void **state)
{
    struct store *s = *state;
    open_small(s);
    assert_int_equal(write_rows(s, 1, 500), OK); /* 10 MB, ten times the limit */
    assert_in_range(log_bytes(s), 1, 4 * LIMIT_BYTES);
    struct db_stats stats;
    db_stats(s->db, &stats);
    assert_true(stats.file_bytes > 5u << 20);
    store_close(s);
    assert_int_equal(store_ask_raw(s, "SELECT count(*) FROM post_versions"), 500);
    assert_int_equal(store_ask_raw(s, "SELECT integrity_check = 'ok' FROM pragma_integrity_check"),
                     1);
}

struct long_read {
    struct store *store;
    uint64_t log_bytes;
    int64_t before, after;
    enum err written;
};

static enum err read_while_writing(struct tx *tx, void *arg)
{
    struct long_read *r = arg;
    enum err e = tx_get_i64(tx, "SELECT count(*) FROM post_versions", DB_NO_ARGS, &r->before);
    if (e)
        return e;
    r->written = write_rows(r->store, 1000, 300);
    r->log_bytes = log_bytes(r->store);
    return tx_get_i64(tx, "SELECT count(*) FROM post_versions", DB_NO_ARGS, &r->after);
}

static void a_long_reader_holds_the_log_and_nothing_else(void **state)
{
    struct store *s = *state;
    open_small(s);
    assert_int_equal(write_rows(s, 1, 10), OK);
    struct long_read r = {.store = s};
    assert_int_equal(db_read(s->db, read_while_writing, &r, NULL), OK);
    assert_int_equal(r.written, OK);
    assert_int_equal(r.before, 10);
    assert_int_equal(r.after, 10);
    assert_true(r.log_bytes > 5u << 20);
    /* When it is gone the log begins again, and shrinks back to its limit. */
    int64_t id = 2000;
    for (; id < 20000 && log_bytes(s) > 4 * LIMIT_BYTES; id++)
        assert_int_equal(write_rows(s, id, 1), OK);
    assert_true(id < 20000);
}

static void a_file_that_cannot_be_synced_is_fatal(void **state)
{
    struct store *s = *state;
    open_small(s);
    sqlite_disk_fail_file_sync(true);
    enum err e = OK;
    for (int64_t id = 1; id < 5000 && !e; id++)
        e = write_rows(s, id, 1);
    sqlite_disk_fail_file_sync(false);
    assert_true(e == ERR_STORAGE_FAILED || e == ERR_UNKNOWN_COMMIT);
    assert_int_equal(s->fatal_calls, 1);
    assert_int_equal(write_rows(s, 10000, 1), ERR_STORAGE_FAILED);
}

static void a_full_disk_during_a_checkpoint_loses_nothing(void **state)
{
    struct store *s = *state;
    open_small(s);
    int64_t written = 0;
    for (int round = 0; round < 5; round++) {
        for (int i = 0; i < 30; i++)
            written += write_rows(s, 1 + written, 1) == OK;
        sqlite_disk_full(true);
        assert_int_equal(write_rows(s, 100000, 1), ERR_STORAGE_FULL);
        sqlite_disk_full(false);
    }
    assert_int_equal(written, 150);
    assert_int_equal(s->fatal_calls, 0);
    store_close(s);
    assert_int_equal(store_ask_raw(s, "SELECT count(*) FROM post_versions"), 150);
    assert_int_equal(store_ask_raw(s, "SELECT integrity_check = 'ok' FROM pragma_integrity_check"),
                     1);
}

/* ---- slices ---- */

enum { LARGE_LIMIT_BYTES = 16 << 20, SLICES_MIN = 4, SLICE_MAX_BYTES = 160 * 1024 };

struct cut {
    struct store *store;
    _Atomic int64_t acknowledged;
    _Atomic int slices;
    int64_t promised[SLICES_MIN]; /* rows acknowledged when the copy was made */
};

/* What a power cut right after this write would leave: the file, and the log without its index. */
static void copy_as_cut(void *ctx)
{
    struct cut *c = ctx;
    int n = atomic_fetch_add(&c->slices, 1);
    if (n >= SLICES_MIN)
        return;
    c->promised[n] = atomic_load(&c->acknowledged);
    char command[500];
    snprintf(command, sizeof command, "cp %s %s.cut%d && cp %s-wal %s.cut%d-wal", c->store->path,
             c->store->path, n, c->store->path, c->store->path, n);
    CHECK(system(command) == 0);
}

static void write_a_quarter(struct store *s, struct cut *c)
{
    memset(filler, 'x', sizeof filler);
    s->config.wal_limit_bytes = LARGE_LIMIT_BYTES;
    store_open(s);
    (void)sqlite_disk_file_burst();
    c->store = s;
    sqlite_disk_on_file_slice(copy_as_cut, c);
    for (int64_t id = 1; id < 20000 && atomic_load(&c->slices) <= 3 * SLICES_MIN; id++) {
        assert_int_equal(write_rows(s, id, 1), OK);
        atomic_store(&c->acknowledged, id);
    }
    sqlite_disk_on_file_slice(NULL, NULL);
    assert_true(atomic_load(&c->slices) > 3 * SLICES_MIN);
}

/* The rest is longer than a pause must be, and a busy machine only makes it longer still. */
static void a_pass_rests_between_slices(void **state)
{
    struct cut c = {.slices = SLICES_MIN}; /* no copies: they take their time, too */
    write_a_quarter(*state, &c);
    assert_in_range(sqlite_disk_file_burst(), 1, SLICE_MAX_BYTES);
}

static void a_power_cut_between_two_slices_loses_nothing(void **state)
{
    struct store *s = *state;
    struct cut c = {0};
    write_a_quarter(s, &c);
    store_close(s);
    char path[sizeof s->path];
    memcpy(path, s->path, sizeof path);
    for (int n = 0; n < SLICES_MIN; n++) {
        snprintf(s->path, sizeof s->path, "%.80s.cut%d", path, n);
        assert_int_equal(
            store_ask_raw(s, "SELECT integrity_check = 'ok' FROM pragma_integrity_check"), 1);
        assert_true(store_ask_raw(s, "SELECT count(*) FROM post_versions") >= c.promised[n]);
    }
    memcpy(s->path, path, sizeof path);
    assert_true(c.promised[0] > 100); /* the round began when there was something to copy */
}

/* The end does not wait for the rests. */
static void a_store_can_be_closed_within_a_round(void **state)
{
    struct cut c = {0};
    write_a_quarter(*state, &c);
    int64_t start_us = clock_mono_us(clock_system());
    store_close(*state);
    assert_true(clock_mono_us(clock_system()) - start_us < 5000000);
    assert_int_equal(store_ask_raw(*state, "SELECT count(*) FROM post_versions"), c.acknowledged);
}

static void writes_are_timed_by_whether_they_met_a_checkpoint(void **state)
{
    struct store *s = *state;
    struct db_stats stats;
    s->config.wal_limit_bytes = LARGE_LIMIT_BYTES;
    store_open(s);
    assert_int_equal(write_rows(s, 1, 5), OK); /* too few for a round */
    db_stats(s->db, &stats);
    assert_int_equal(hist_count(stats.write_us), 5);
    assert_int_equal(hist_count(stats.checkpoint_write_us), 0);
    int64_t id = 6;
    while (id < 3000 && hist_count(stats.checkpoint_write_us) == 0)
        assert_int_equal(write_rows(s, id++, 1), OK);
    assert_true(hist_count(stats.checkpoint_write_us) > 0);
    assert_int_equal(hist_count(stats.write_us) + hist_count(stats.checkpoint_write_us), id - 1);
}

int main(void)
{
    sqlite_disk_register();
#define STORE_TEST(f) cmocka_unit_test_setup_teardown(f, store_set_up, store_tear_down)
    const struct CMUnitTest tests[] = {
        STORE_TEST(the_log_stays_near_its_limit),
        STORE_TEST(a_long_reader_holds_the_log_and_nothing_else),
        STORE_TEST(a_file_that_cannot_be_synced_is_fatal),
        STORE_TEST(a_full_disk_during_a_checkpoint_loses_nothing),
        STORE_TEST(a_pass_rests_between_slices),
        STORE_TEST(a_power_cut_between_two_slices_loses_nothing),
        STORE_TEST(a_store_can_be_closed_within_a_round),
        STORE_TEST(writes_are_timed_by_whether_they_met_a_checkpoint),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
