/* `fantail copy`: a store from one engine into the other, or into another one of the same.
 *
 * The source is read in one snapshot, so the copy is the store as it was at one moment; a data
 * folder is locked against its server, because what is written afterwards would be missing. The
 * target is all or nothing: PostgreSQL takes everything in one transaction; a data folder gets a
 * file beside the store's name, which is renamed at the end. What was read is counted and summed up
 * by table, and the target is read again and must give the same.
 *
 * Nothing is said about ids: whoever opens a store goes on above the highest id in it. */
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/check.h"
#include "base/id.h"
#include "cmd/app.h"
#include "cmd/commands.h"
#include "cmd/copy_table.h"
#include "db/postgres.h"
#include "db/postgres_load.h"
#include "db/sqlite.h"
#include "ops/lock.h"
#include "ops/progress.h"

#define PART_FILE "copy.part"

enum {
    PATIENCE_MS = 24 * 3600 * 1000, /* one statement reads a whole table */
    LINES_BYTES = 256 * 1024,       /* sent to PostgreSQL at a time */
    BATCH_ROWS = 2000,              /* of one transaction of SQLite */
};

/* ---- the two places ---- */

struct side {
    const char *where;
    bool shared;
    char path[PATH_MAX]; /* of the embedded store, or of what becomes it */
    struct data_lock lock;
    bool locked;
    struct id_gen ids;
    struct db *db;
    struct copy_tables tables;
};

static bool is_url(const char *where)
{
    return strncmp(where, "postgresql://", 13) == 0 || strncmp(where, "postgres://", 11) == 0;
}

/* For people: a URL may hold a password. */
static const char *name_of(const struct side *s)
{
    return s->shared ? "the PostgreSQL store" : s->where;
}

static bool path_in(const struct side *s, const char *file, char out[PATH_MAX])
{
    return snprintf(out, PATH_MAX, "%s/%s", s->where, file) < PATH_MAX;
}

static void side_close(struct side *s)
{
    copy_tables_done(&s->tables);
    if (s->db) {
        db_stop(s->db);
        db_free(s->db);
        s->db = NULL;
    }
    if (s->locked)
        data_lock_release(&s->lock);
    s->locked = false;
}

static void config_of(const struct side *s, struct postgres_config *config)
{
    postgres_config_default(config);
    config->url = s->where;
    config->writers = 1;
    config->readers = 1;
    config->statement_timeout_ms = PATIENCE_MS;
}

static int open_store(const struct invocation *in, struct side *s)
{
    char detail[TX_DETAIL_MAX] = "";
    enum err e;
    id_gen_init(&s->ids, clock_system(), 0);
    if (s->shared) {
        struct postgres_config config;
        config_of(s, &config);
        e = db_postgres_open(&config, &s->ids, clock_system(), &s->db, detail);
    } else {
        struct sqlite_config config;
        sqlite_config_default(&config);
        config.path = s->path;
        config.readers = 1;
        e = db_sqlite_open(&config, &s->ids, clock_system(), &s->db, detail);
    }
    if (e)
        return command_fail(in, "cannot open %s: %s", name_of(s),
                            detail[0] ? detail : err_title(e));
    return EXIT_DONE;
}

static int lock_folder(const struct invocation *in, struct side *s)
{
    char why[300];
    if (data_lock_take(&s->lock, s->where, why))
        return command_fail(in, "%s", why);
    s->locked = true;
    return EXIT_DONE;
}

static enum err find_tables(struct tx *tx, void *arg)
{
    return copy_tables_find(tx, &((struct side *)arg)->tables);
}

static int read_tables(const struct invocation *in, struct side *s)
{
    char detail[TX_DETAIL_MAX];
    enum err e = db_read(s->db, find_tables, s, detail);
    return e ? command_fail(in, "%s: %s", name_of(s), detail[0] ? detail : err_title(e))
             : EXIT_DONE;
}

static int open_source(const struct invocation *in, struct side *s)
{
    int present = 0, wanted = 0;
    char detail[TX_DETAIL_MAX] = "";
    enum err e;
    if (!s->shared && !path_in(s, STORE_FILE, s->path))
        return command_fail(in, "the path %s is too long", s->where);
    if (s->shared) {
        struct postgres_config config;
        config_of(s, &config);
        e = db_postgres_schema(&config, &present, &wanted, detail);
    } else {
        e = db_sqlite_schema(s->path, &present, &wanted, detail);
    }
    if (e)
        return command_fail(in, "cannot read %s: %s", name_of(s),
                            detail[0] ? detail : err_title(e));
    if (present == 0)
        return command_fail(in, "there is no store in %s", name_of(s));
    int code = s->shared ? EXIT_DONE : lock_folder(in, s);
    if (code == EXIT_DONE)
        code = open_store(in, s);
    return code == EXIT_DONE ? read_tables(in, s) : code;
}

/* ---- an empty target ---- */

static void remove_part(const struct side *s)
{
    static const char *const ends[] = {"", "-wal", "-shm", "-journal"};
    char path[PATH_MAX + 16];
    for (size_t i = 0; i < COUNT_OF(ends); i++) {
        snprintf(path, sizeof path, "%s%s", s->path, ends[i]);
        unlink(path);
    }
}

static int make_folder_ready(const struct invocation *in, struct side *s)
{
    char store[PATH_MAX], snapshot[PATH_MAX];
    if (!path_in(s, STORE_FILE, store) || !path_in(s, SNAPSHOT_FILE, snapshot) ||
        !path_in(s, PART_FILE, s->path))
        return command_fail(in, "the path %s is too long", s->where);
    int code = lock_folder(in, s);
    if (code != EXIT_DONE)
        return code;
    if (access(store, F_OK) == 0 || access(snapshot, F_OK) == 0)
        return command_fail(in, "%s holds a store already; copy wants a new folder", s->where);
    if (access(s->path, F_OK) == 0 && !invocation_has(in, "again"))
        return command_fail(in,
                            "%s holds a copy that was not finished and is of no use; --again "
                            "throws it away and begins anew",
                            s->where);
    remove_part(s);
    return EXIT_DONE;
}

struct look {
    struct side *side;
    char found[COPY_NAME_MAX];
    uint64_t rows;
};

static enum err look_for_rows(struct tx *tx, void *arg)
{
    struct look *l = arg;
    int64_t nodes = 0;
    l->rows = 0;
    enum err e = tx_get_i64(tx, "SELECT count(*) FROM nodes", DB_NO_ARGS, &nodes);
    if (!e && nodes > 0) {
        snprintf(l->found, sizeof l->found, "nodes");
        l->rows = (uint64_t)nodes;
    }
    for (size_t i = 0; !e && l->rows == 0 && i < l->side->tables.count; i++) {
        const struct copy_table *t = &l->side->tables.list[i];
        e = copy_table_count(tx, t, &l->rows);
        snprintf(l->found, sizeof l->found, "%s", t->name);
    }
    return e;
}

static int open_target(const struct invocation *in, struct side *s)
{
    int code = s->shared ? EXIT_DONE : make_folder_ready(in, s);
    if (code == EXIT_DONE)
        code = open_store(in, s);
    if (code == EXIT_DONE)
        code = read_tables(in, s);
    if (code != EXIT_DONE || !s->shared)
        return code;
    struct look l = {.side = s};
    char detail[TX_DETAIL_MAX], rows[32];
    enum err e = db_read(s->db, look_for_rows, &l, detail);
    if (e)
        return command_fail(in, "%s: %s", name_of(s), detail[0] ? detail : err_title(e));
    if (l.rows == 0)
        return EXIT_DONE;
    progress_print_count(l.rows, rows);
    return command_fail(in,
                        "the target is not empty (%s: %s rows); copy wants a new database, or an "
                        "empty schema in one",
                        l.found, rows);
}

/* ---- writing ---- */

struct copy {
    struct side *from, *to;
    struct progress progress;
    uint64_t done;
    bool begun;
    struct pg_load *load; /* into PostgreSQL */
    struct buf lines;
    struct copy_table *table; /* into SQLite: rows of this table wait … */
    struct buf bytes;         /* … with their values one after the other, */
    size_t *lengths;          /* of these lengths; SIZE_MAX: NULL */
    size_t rows;
    char detail[TX_DETAIL_MAX];
};

static enum err run_batch(struct tx *tx, void *arg)
{
    const struct copy *c = arg;
    struct copy_value values[COPY_COLUMNS_MAX];
    const char *at = c->bytes.ptr;
    const size_t *length = c->lengths;
    enum err e = OK;
    for (size_t i = 0; !e && i < c->rows; i++) {
        for (size_t k = 0; k < c->table->column_count; k++, length++) {
            bool null = *length == SIZE_MAX;
            values[k].text.ptr = null ? NULL : at;
            values[k].text.len = null ? 0 : *length;
            at += values[k].text.len;
        }
        e = copy_table_insert(tx, c->table, values);
    }
    return e;
}

static enum err flush(struct copy *c)
{
    enum err e = OK;
    if (c->load && c->lines.len > 0) {
        CHECK(!c->lines.failed);
        e = pg_load_rows(c->load, c->lines.ptr, c->lines.len, c->detail);
        buf_clear(&c->lines);
    } else if (c->rows > 0) {
        e = db_write(c->to->db, run_batch, c, c->detail);
        c->rows = 0;
        buf_clear(&c->bytes);
    }
    return e;
}

static enum err put_row(void *ctx, struct copy_table *t, const struct copy_value *values)
{
    struct copy *c = ctx;
    progress_update(&c->progress, ++c->done);
    if (c->load) {
        copy_table_line(t, values, &c->lines);
        return c->lines.len >= LINES_BYTES ? flush(c) : OK;
    }
    if (!c->bytes.ptr) /* no value may lie at NULL, however short */
        buf_reserve(&c->bytes, LINES_BYTES);
    for (size_t k = 0; k < t->column_count; k++) {
        struct str s = values[k].text;
        c->lengths[c->rows * t->column_count + k] = s.ptr ? s.len : SIZE_MAX;
        if (s.ptr)
            buf_append(&c->bytes, s.ptr, s.len);
    }
    CHECK(!c->bytes.failed);
    return ++c->rows == BATCH_ROWS ? flush(c) : OK;
}

static enum err copy_one(struct tx *tx, struct copy *c, size_t i)
{
    struct copy_table *from = &c->from->tables.list[i];
    c->table = &c->to->tables.list[i]; /* its statements are the target's */
    enum err e = OK;
    if (c->load) {
        struct buf columns;
        buf_init(&columns, 0);
        copy_table_columns(from, &columns);
        buf_append(&columns, "", 1);
        e = pg_load_table(c->load, from->name, columns.ptr, c->detail);
        buf_done(&columns);
    }
    if (!e)
        e = copy_table_read(tx, from, put_row, c);
    if (!e)
        e = flush(c);
    if (!e && c->load)
        e = pg_load_table_end(c->load, c->detail);
    return e;
}

static enum err copy_all(struct tx *tx, void *arg)
{
    struct copy *c = arg;
    uint64_t total = 0;
    if (c->begun) /* a snapshot that is lost cannot be gone on with */
        return tx_fail(tx, ERR_UNAVAILABLE, "the connection to the source was lost");
    c->begun = true;
    enum err e = OK;
    for (size_t i = 0; !e && i < c->from->tables.count; i++) {
        uint64_t rows = 0;
        e = copy_table_count(tx, &c->from->tables.list[i], &rows);
        total += rows;
    }
    progress_init(&c->progress, "copying", total, PROGRESS_COUNT);
    for (size_t i = 0; !e && i < c->from->tables.count; i++)
        e = copy_one(tx, c, i);
    progress_done(&c->progress);
    return e ? tx_fail(tx, e, "%s", c->detail[0] ? c->detail : tx->detail) : OK;
}

static int transfer(const struct invocation *in, struct side *from, struct side *to)
{
    struct copy c = {.from = from, .to = to};
    char detail[TX_DETAIL_MAX] = "";
    enum err e = OK;
    buf_init(&c.lines, 0);
    buf_init(&c.bytes, 0);
    c.lengths = calloc((size_t)BATCH_ROWS * COPY_COLUMNS_MAX, sizeof *c.lengths);
    CHECK(c.lengths);
    if (to->shared)
        e = pg_load_begin(to->where, &c.load, detail);
    if (!e)
        e = db_read(from->db, copy_all, &c, detail);
    if (!e && c.load)
        e = pg_load_commit(c.load, detail);
    pg_load_free(c.load);
    buf_done(&c.lines);
    buf_done(&c.bytes);
    free(c.lengths);
    return e ? command_fail(in, "the copy failed: %s", detail[0] ? detail : err_title(e))
             : EXIT_DONE;
}

/* ---- verifying ---- */

struct verification {
    struct side *side;
    struct progress progress;
    uint64_t done;
};

static enum err count_row(void *ctx, struct copy_table *t, const struct copy_value *values)
{
    struct verification *v = ctx;
    (void)t, (void)values;
    progress_update(&v->progress, ++v->done);
    return OK;
}

static enum err read_again(struct tx *tx, void *arg)
{
    struct verification *v = arg;
    enum err e = OK;
    v->done = 0;
    for (size_t i = 0; !e && i < v->side->tables.count; i++)
        e = copy_table_read(tx, &v->side->tables.list[i], count_row, v);
    return e;
}

static int verify(const struct invocation *in, struct side *from, struct side *to, uint64_t *rows)
{
    struct verification v = {.side = to};
    char detail[TX_DETAIL_MAX];
    *rows = 0;
    for (size_t i = 0; i < from->tables.count; i++)
        *rows += from->tables.list[i].rows;
    progress_init(&v.progress, "verifying", *rows, PROGRESS_COUNT);
    enum err e = db_read(to->db, read_again, &v, detail);
    progress_done(&v.progress);
    if (e)
        return command_fail(in, "cannot read the copy: %s", detail[0] ? detail : err_title(e));
    for (size_t i = 0; i < from->tables.count; i++) {
        const struct copy_table *a = &from->tables.list[i], *b = &to->tables.list[i];
        if (a->rows != b->rows || a->sum != b->sum)
            return command_fail(in,
                                "the copy differs from the source in %s (%llu rows of %llu); do "
                                "not use it",
                                a->name, (unsigned long long)b->rows, (unsigned long long)a->rows);
    }
    return EXIT_DONE;
}

/* ---- all of it ---- */

/* Closes the file, so that all of it is in one, and gives it its name. */
static int give_name(const struct invocation *in, struct side *s)
{
    char store[PATH_MAX];
    db_stop(s->db);
    db_free(s->db);
    s->db = NULL;
    int folder = open(s->where, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    bool ok = path_in(s, STORE_FILE, store) && folder >= 0 && rename(s->path, store) == 0 &&
              fsync(folder) == 0;
    if (folder >= 0)
        close(folder);
    return ok ? EXIT_DONE : command_fail(in, "cannot give the copy its name in %s", s->where);
}

static int copy(const struct invocation *in, struct side *from, struct side *to)
{
    char why[200], count[32];
    uint64_t rows = 0;
    int code = open_source(in, from);
    if (code == EXIT_DONE)
        code = open_target(in, to);
    if (code != EXIT_DONE)
        return code;
    if (!copy_tables_match(&from->tables, &to->tables, why))
        return command_fail(in, "%s", why);
    size_t tables = from->tables.count;
    code = transfer(in, from, to);
    if (code == EXIT_DONE)
        code = verify(in, from, to, &rows);
    if (code == EXIT_DONE && !to->shared)
        code = give_name(in, to);
    if (code != EXIT_DONE)
        return code;
    progress_print_count(rows, count);
    printf("copied and verified %s rows in %zu tables\n", count, tables);
    if (to->shared)
        printf("go on with: fantail serve --db URL --views redis://… --bus amqp://… (each node)\n");
    else
        printf("go on with: fantail serve --data %s\n", to->where);
    return EXIT_DONE;
}

static int run(struct invocation *in)
{
    const char *from_where = invocation_value(in, "from"), *to_where = invocation_value(in, "to");
    if (!from_where || !to_where)
        return command_usage(in, "--from and --to are wanted");
    if (strcmp(from_where, to_where) == 0)
        return command_usage(in, "--from and --to are the same place");
    struct side *sides = calloc(2, sizeof *sides);
    CHECK(sides);
    struct side *from = &sides[0], *to = &sides[1];
    from->where = from_where;
    to->where = to_where;
    from->shared = is_url(from_where);
    to->shared = is_url(to_where);
    int code = copy(in, from, to);
    side_close(to);
    side_close(from);
    free(sides);
    return code;
}

const struct command command_copy = {
    .name = "copy",
    .arguments = "",
    .summary = "copy a store into PostgreSQL, or back into a data folder",
    .about = "Copies every table of a store, as it is at one moment, into an empty place, and "
             "compares the two.\n"
             "A place is a data folder or postgresql://user@host/database. The server of a data "
             "folder must\n"
             "be stopped; what nodes of a PostgreSQL store write meanwhile is not in the copy. A "
             "copy that is\n"
             "interrupted leaves nothing that can be used by mistake. The views are made again by "
             "the first\n"
             "server that uses the copy.",
    .examples = "  fantail copy --from ./data --to postgresql://fantail@db/fantail\n"
                "  fantail copy --from postgresql://fantail@db/fantail --to ./data-again",
    .options = {{"from", "PLACE", "what is copied"},
                {"to", "PLACE", "an empty one"},
                {"again", NULL, "throw away what an interrupted copy left in a folder"}},
    .run = run,
};
