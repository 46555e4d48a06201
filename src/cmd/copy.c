/* `fantail copy`: a store from one driver into the other, or into another one of the same.
 *
 * The source is read in one snapshot, so the copy is the store as it was at one moment; a data
 * folder is locked against its server, because what is written afterwards would be missing. The
 * target is all or nothing: PostgreSQL takes everything in one transaction; a data folder gets a
 * file beside the store's name, which is renamed at the end. What was read is counted and summed up
 * by table, and the target is read again and must give the same.
 *
 * Ids need no care: a server that opens the copy continues above the highest id in it. */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/check.h"
#include "base/id.h"
#include "cmd/command.h"
#include "db/copy.h"
#include "db/postgres.h"
#include "db/sqlite.h"
#include "node/runtime.h"
#include "ops/lock.h"
#include "ops/progress.h"

#define PART_FILE "copy.part"

enum { PATIENCE_MS = 24 * 3600 * 1000 }; /* one statement reads a whole table */

/* ---- the two places ---- */

struct side {
    const char *where;
    bool shared;
    char path[PATH_MAX]; /* of the embedded store, or of what becomes it */
    struct data_lock lock;
    bool locked;
    struct id_gen ids;
    struct copy_store store;
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

static void side_close(struct side *s)
{
    copy_tables_done(&s->store.tables);
    if (s->store.db) {
        db_stop(s->store.db);
        db_free(s->store.db);
        s->store.db = NULL;
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
        e = db_postgres_open(&config, &s->ids, clock_system(), &s->store.db, detail);
    } else {
        struct sqlite_config config;
        sqlite_config_default(&config);
        config.path = s->path;
        config.readers = 1;
        e = db_sqlite_open(&config, &s->ids, clock_system(), &s->store.db, detail);
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

static int open_source(const struct invocation *in, struct side *s)
{
    int present = 0, wanted = 0;
    char detail[TX_DETAIL_MAX] = "";
    enum err e;
    if (!s->shared && !command_path(in, s->where, STORE_FILE, s->path))
        return EXIT_FAILED;
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
    return code;
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
    if (!command_path(in, s->where, STORE_FILE, store) ||
        !command_path(in, s->where, SNAPSHOT_FILE, snapshot) ||
        !command_path(in, s->where, PART_FILE, s->path))
        return EXIT_FAILED;
    int code = lock_folder(in, s);
    if (code != EXIT_DONE)
        return code;
    if (access(store, F_OK) == 0 || access(snapshot, F_OK) == 0)
        return command_fail(in, "%s holds a store already; give a new folder as --to", s->where);
    if (access(s->path, F_OK) == 0 && !invocation_has(in, "again"))
        return command_fail(in,
                            "%s holds a copy that was not finished and cannot be used; --again "
                            "removes it and starts over",
                            s->where);
    remove_part(s);
    return EXIT_DONE;
}

static int open_target(const struct invocation *in, struct side *s)
{
    int code = s->shared ? EXIT_DONE : make_folder_ready(in, s);
    if (code == EXIT_DONE)
        code = open_store(in, s);
    if (code != EXIT_DONE || !s->shared)
        return code;
    const char *table;
    uint64_t found;
    char detail[TX_DETAIL_MAX] = "", rows[32];
    enum err e = copy_find_rows(&s->store, &table, &found, detail);
    if (e)
        return command_fail(in, "%s: %s", name_of(s), detail[0] ? detail : err_title(e));
    if (found == 0)
        return EXIT_DONE;
    progress_print_count(found, rows);
    return command_fail(in,
                        "the target is not empty (%s: %s rows); give a new database as --to, or an "
                        "empty schema in one",
                        table, rows);
}

/* ---- copying and verifying ---- */

static int transfer(const struct invocation *in, struct side *from, struct side *to)
{
    struct progress p;
    char detail[TX_DETAIL_MAX] = "";
    progress_init(&p, "copying", 0, PROGRESS_COUNT);
    const struct copy_watcher watcher = {progress_follow, &p};
    enum err e = copy_transfer(&from->store, &to->store, &watcher, detail);
    progress_done(&p);
    return e ? command_fail(in, "the copy failed: %s", detail[0] ? detail : err_title(e))
             : EXIT_DONE;
}

static int verify(const struct invocation *in, struct side *from, struct side *to)
{
    struct progress p;
    char detail[TX_DETAIL_MAX] = "";
    const struct copy_table *differs;
    progress_init(&p, "verifying", 0, PROGRESS_COUNT);
    const struct copy_watcher watcher = {progress_follow, &p};
    enum err e = copy_verify(&from->store, &to->store, &watcher, &differs, detail);
    progress_done(&p);
    if (e)
        return command_fail(in, "cannot read the copy: %s", detail[0] ? detail : err_title(e));
    if (!differs)
        return EXIT_DONE;
    return command_fail(in, "the copy differs from the source in %s (%llu rows); do not use it",
                        differs->schema->name, (unsigned long long)differs->rows);
}

/* ---- all of it ---- */

/* Closes the file, so that all of it is in one, and gives it its name. */
static int give_name(const struct invocation *in, struct side *s)
{
    char store[PATH_MAX];
    db_stop(s->store.db);
    db_free(s->store.db);
    s->store.db = NULL;
    int folder = open(s->where, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    bool ok = command_path(in, s->where, STORE_FILE, store) && folder >= 0 &&
              rename(s->path, store) == 0 && fsync(folder) == 0;
    if (folder >= 0)
        close(folder);
    return ok ? EXIT_DONE
              : command_fail(in, "cannot rename the copy in %s to " STORE_FILE ": %s", s->where,
                             strerror(errno));
}

static int copy(const struct invocation *in, struct side *from, struct side *to)
{
    char count[32];
    copy_tables_init(&from->store.tables);
    copy_tables_init(&to->store.tables);
    int code = open_source(in, from);
    if (code == EXIT_DONE)
        code = open_target(in, to);
    if (code != EXIT_DONE)
        return code;
    size_t tables = from->store.tables.count;
    code = transfer(in, from, to);
    if (code == EXIT_DONE)
        code = verify(in, from, to);
    if (code == EXIT_DONE && !to->shared)
        code = give_name(in, to);
    if (code != EXIT_DONE)
        return code;
    progress_print_count(copy_rows(&from->store), count);
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
        return command_usage(in, "both --from PLACE and --to PLACE are required");
    if (strcmp(from_where, to_where) == 0)
        return command_usage(in, "--from and --to are the same place: %s", to_where);
    struct side *sides = calloc(2, sizeof *sides);
    CHECK(sides);
    struct side *from = &sides[0], *to = &sides[1];
    from->where = from_where;
    to->where = to_where;
    from->shared = is_url(from_where);
    to->shared = is_url(to_where);
    to->store.url = to->shared ? to_where : NULL;
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
             "compares the two. A place is a data folder or postgresql://user@host/database. The "
             "server of a data folder must be stopped; what nodes of a PostgreSQL store write "
             "meanwhile is not in the copy. A copy that is interrupted leaves nothing that can be "
             "used by mistake. The views are made again by the first server that uses the copy.",
    .examples = "  fantail copy --from ./data --to postgresql://fantail@db/fantail\n"
                "  fantail copy --from postgresql://fantail@db/fantail --to ./data-again",
    .options = {{"from", "PLACE", "what is copied"},
                {"to", "PLACE", "an empty one"},
                {"again", NULL, "throw away what an interrupted copy left in a folder"}},
    .run = run,
};
