/* The layer that gathers the log's writes: the file must read as if every write had gone through at
 * once, and after a failed one nothing may be written behind the gap. */
#include <fcntl.h>

#include "base/rand.h"
#include "sqlite_disk.h"
#include "store.h"

enum { FILE_BYTES = 600000, FRAME_BYTES = 4120 };

struct log {
    sqlite3_file *file;
    char *path;
};

static struct log log_open(struct store *s)
{
    store_open(s); /* registers the layer */
    sqlite3_vfs *vfs = sqlite3_vfs_find(VFS_NAME);
    assert_non_null(vfs);
    /* SQLite takes the log's rights from the file that it belongs to, and keeps the name. */
    struct log log = {.file = calloc(1, (size_t)vfs->szOsFile), .path = calloc(1, 120)};
    CHECK(log.file && log.path);
    snprintf(log.path, 110, "%s/other", s->folder);
    CHECK(close(open(log.path, O_WRONLY | O_CREAT, 0600)) == 0);
    snprintf(log.path, 120, "%s/other-wal", s->folder);
    int flags = SQLITE_OPEN_WAL | SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE;
    CHECK(vfs->xOpen(vfs, log.path, log.file, flags, &flags) == SQLITE_OK);
    return log;
}

static void log_close(struct log *log)
{
    log->file->pMethods->xClose(log->file);
    free(log->file);
    free(log->path);
}

static int put(struct log *log, int64_t at, char with, int n)
{
    static char bytes[65536];
    memset(bytes, with, (size_t)n);
    return log->file->pMethods->xWrite(log->file, bytes, n, at);
}

static int get(struct log *log, int64_t at, char *out, int n)
{
    return log->file->pMethods->xRead(log->file, out, n, at);
}

static int sync_log(struct log *log)
{
    return log->file->pMethods->xSync(log->file, SQLITE_SYNC_NORMAL);
}

static int64_t size_on_disk(struct log *log)
{
    struct stat st;
    return stat(log->path, &st) == 0 ? st.st_size : -1;
}

static void small_writes_wait_for_the_sync(void **state)
{
    struct log log = log_open(*state);
    for (int i = 0; i < 10; i++)
        assert_int_equal(put(&log, i * FRAME_BYTES, 'a', FRAME_BYTES), SQLITE_OK);
    assert_int_equal(size_on_disk(&log), 0);
    assert_int_equal(sync_log(&log), SQLITE_OK);
    assert_int_equal(size_on_disk(&log), 10 * FRAME_BYTES);
    log_close(&log);
}

/* Random writes, reads, syncs and truncations against a plain array; like a log, without gaps. */
static void it_reads_as_it_was_written(void **state)
{
    struct log log = log_open(*state);
    static char model[FILE_BYTES], got[FILE_BYTES];
    int64_t size = 0, next = 0;
    struct rand r;
    rand_seed(&r, 7);
    memset(model, 0, sizeof model);
    for (int step = 0; step < 4000; step++) {
        uint64_t kind = rand_below(&r, 20);
        int n = (int)rand_below(&r, kind == 0 ? 65536 : 9000) + 1;
        int64_t at = kind < 14 ? next : (int64_t)rand_below(&r, (uint64_t)size + 1);
        if (at + n > FILE_BYTES)
            at = 0;
        if (kind < 16) {
            char with = (char)('a' + step % 26);
            assert_int_equal(put(&log, at, with, n), SQLITE_OK);
            memset(model + at, with, (size_t)n);
            next = at + n;
            size = size > next ? size : next;
        } else if (kind < 18 && at + n <= size) {
            assert_int_equal(get(&log, at, got, n), SQLITE_OK);
            assert_memory_equal(got, model + at, (size_t)n);
        } else if (kind == 18) {
            sqlite3_int64 told;
            assert_int_equal(log.file->pMethods->xFileSize(log.file, &told), SQLITE_OK);
            assert_int_equal(told, size);
        } else if (step % 7 == 0) {
            assert_int_equal(log.file->pMethods->xTruncate(log.file, at < size ? at : size),
                             SQLITE_OK);
            size = at < size ? at : size;
            next = next < size ? next : size;
            memset(model + size, 0, (size_t)(FILE_BYTES - size));
        }
    }
    assert_int_equal(get(&log, 0, got, (int)size), SQLITE_OK);
    assert_memory_equal(got, model, (size_t)size);
    log_close(&log);
}

/* Ten frames written, of which the disk has none. */
static struct log log_with_hole(struct store *s)
{
    struct log log = log_open(s);
    assert_int_equal(put(&log, 0, 'a', FRAME_BYTES), SQLITE_OK);
    assert_int_equal(sync_log(&log), SQLITE_OK);
    for (int i = 1; i <= 10; i++)
        assert_int_equal(put(&log, i * FRAME_BYTES, 'b', FRAME_BYTES), SQLITE_OK);
    sqlite_disk_full(true);
    assert_int_equal(sync_log(&log), SQLITE_FULL);
    sqlite_disk_full(false);
    return log;
}

static void nothing_is_written_behind_a_hole(void **state)
{
    struct log log = log_with_hole(*state);
    char got[FRAME_BYTES];
    assert_int_equal(put(&log, 11 * FRAME_BYTES, 'c', FRAME_BYTES), SQLITE_FULL);
    assert_int_equal(put(&log, 5 * FRAME_BYTES, 'c', FRAME_BYTES), SQLITE_FULL);
    assert_int_equal(get(&log, 5 * FRAME_BYTES, got, FRAME_BYTES), SQLITE_FULL);
    assert_int_equal(get(&log, 0, got, FRAME_BYTES), SQLITE_OK);
    assert_int_equal(size_on_disk(&log), FRAME_BYTES);
    log_close(&log);
}

static void writing_from_before_a_hole_closes_it(void **state)
{
    struct log log = log_with_hole(*state);
    char got[FRAME_BYTES];
    for (int i = 0; i <= 12; i++)
        assert_int_equal(put(&log, i * FRAME_BYTES, 'd', FRAME_BYTES), SQLITE_OK);
    assert_int_equal(sync_log(&log), SQLITE_OK);
    for (int i = 0; i <= 12; i++) {
        assert_int_equal(get(&log, i * FRAME_BYTES, got, FRAME_BYTES), SQLITE_OK);
        assert_int_equal(got[17], 'd');
    }
    log_close(&log);
}

static void a_short_transaction_before_a_hole_is_fine(void **state)
{
    struct log log = log_with_hole(*state);
    assert_int_equal(put(&log, FRAME_BYTES, 'e', FRAME_BYTES), SQLITE_OK);
    assert_int_equal(sync_log(&log), SQLITE_OK);
    assert_int_equal(put(&log, 4 * FRAME_BYTES, 'f', FRAME_BYTES), SQLITE_FULL);
    assert_int_equal(put(&log, 2 * FRAME_BYTES, 'f', FRAME_BYTES), SQLITE_OK);
    assert_int_equal(log.file->pMethods->xTruncate(log.file, 0), SQLITE_OK);
    assert_int_equal(put(&log, 4 * FRAME_BYTES, 'f', FRAME_BYTES), SQLITE_OK);
    assert_int_equal(sync_log(&log), SQLITE_OK);
    log_close(&log);
}

/* ---- through the driver: transactions that overflow the page cache and write early ---- */

static char filler[30000];

struct spill {
    int rows;
    bool ignore; /* go on after a failed statement */
    bool fill;   /* the disk is full in the middle and has space again before the end */
    int64_t first;
};

static enum err write_much(struct tx *tx, void *arg)
{
    struct spill *p = arg;
    for (int i = 0; i < p->rows; i++) {
        if (p->fill && i == p->rows / 2)
            sqlite_disk_full(true);
        enum err e = tx_exec(
            tx, "INSERT INTO post_versions (post_id, replaced_at, caption) VALUES ($1, 0, $2)",
            DB_ARGS(DB_I64(p->first + i), DB_TEXT(((struct str){filler, sizeof filler}))), NULL);
        if (e && !p->ignore) {
            sqlite_disk_full(false);
            return e;
        }
    }
    sqlite_disk_full(false);
    return OK;
}

static void a_transaction_larger_than_the_cache_is_whole_or_nothing(void **state)
{
    struct store *s = *state;
    s->config.cache_bytes = 1 << 18;
    memset(filler, 'x', sizeof filler);
    store_open(s);
    int64_t rows = 0;
    for (int round = 0; round < 12; round++) {
        struct spill p = {
            .rows = 100, .ignore = round % 2, .fill = round % 3 == 2, .first = round * 1000};
        enum err e = db_write(s->db, write_much, &p, NULL);
        assert_int_equal(e, p.fill ? ERR_STORAGE_FULL : OK);
        rows += e == OK ? 100 : 0;
    }
    assert_int_equal(s->fatal_calls, 0);
    store_close(s);
    assert_int_equal(store_ask_raw(s, "SELECT count(*) FROM post_versions"), rows);
    assert_int_equal(store_ask_raw(s, "SELECT integrity_check = 'ok' FROM pragma_integrity_check"),
                     1);
}

int main(void)
{
    sqlite_disk_register();
#define STORE_TEST(f) cmocka_unit_test_setup_teardown(f, store_set_up, store_tear_down)
    const struct CMUnitTest tests[] = {
        STORE_TEST(small_writes_wait_for_the_sync),
        STORE_TEST(it_reads_as_it_was_written),
        STORE_TEST(nothing_is_written_behind_a_hole),
        STORE_TEST(writing_from_before_a_hole_closes_it),
        STORE_TEST(a_short_transaction_before_a_hole_is_fine),
        STORE_TEST(a_transaction_larger_than_the_cache_is_whole_or_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
