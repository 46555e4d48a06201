/* The store of one unit test. */
#include "store.h"

#include <ftw.h>

int store_set_up(void **state)
{
    struct store *s = calloc(1, sizeof *s);
    CHECK(s);
    snprintf(s->folder, sizeof s->folder, "/tmp/fantail-sqlite-XXXXXX");
    CHECK(mkdtemp(s->folder));
    snprintf(s->path, sizeof s->path, "%s/store.db", s->folder);
    sqlite_config_default(&s->config);
    s->config.path = s->path;
    s->config.cache_bytes = 4 << 20;
    manual_clock_init(&s->clock, ID_EPOCH_MS + 1000000);
    *state = s;
    return 0;
}

static int remove_entry(const char *path, const struct stat *st, int kind, struct FTW *ftw)
{
    (void)st, (void)kind, (void)ftw;
    return remove(path);
}

int store_tear_down(void **state)
{
    struct store *s = *state;
    store_close(s);
    nftw(s->folder, remove_entry, 8, FTW_DEPTH | FTW_PHYS);
    free(s);
    return 0;
}

static void count_fatal(void *ctx, const char *why)
{
    (void)why;
    atomic_fetch_add(&((struct store *)ctx)->fatal_calls, 1);
}

enum err store_try_open(struct store *s, char detail[TX_DETAIL_MAX])
{
    id_gen_init(&s->ids, &s->clock.clock, 1);
    enum err e = db_sqlite_open(&s->config, &s->ids, &s->clock.clock, &s->db, detail);
    if (e)
        return e;
    s->db->fatal = count_fatal;
    s->db->fatal_ctx = s;
    return OK;
}

void store_open(struct store *s)
{
    char detail[TX_DETAIL_MAX];
    enum err e = store_try_open(s, detail);
    if (e)
        fail_msg("open: %s %s", err_name(e), detail);
}

void store_close(struct store *s)
{
    if (!s->db)
        return;
    db_stop(s->db);
    db_free(s->db);
    s->db = NULL;
}

void store_run_raw(struct store *s, const char *sql)
{
    sqlite3 *handle;
    assert_int_equal(sqlite3_open(s->path, &handle), SQLITE_OK);
    assert_int_equal(sqlite3_exec(handle, sql, NULL, NULL, NULL), SQLITE_OK);
    sqlite3_close(handle);
}

int64_t store_ask_raw(struct store *s, const char *sql)
{
    struct connection c = {0};
    int64_t number = -1;
    assert_int_equal(sqlite3_open(s->path, &c.handle), SQLITE_OK);
    assert_int_equal(connection_ask(&c, sql, &number, NULL, 0), SQLITE_OK);
    sqlite3_close(c.handle);
    return number;
}
