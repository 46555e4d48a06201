/* The PostgreSQL driver as a whole: opening in the right order, the vtable, statistics, the record
 * of an absent server, the end.
 *
 * Threads: the writers' own (all changes), and any number of callers who borrow reader connections.
 * The first caller that fails to connect notices that a server is away. From then on one caller at
 * a time tries again, and all others fail at once: threads that all wait for the same dead server
 * would only take each other's place. Nothing in a network is fatal: the server's word that data
 * are damaged is. */
#include "db/postgres.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/log.h"
#include "db/postgres_driver.h"

enum { SIZE_EVERY_MS = 10000, TRY_EVERY_MS = 100 };

int64_t pg_now_ms(void)
{
    return clock_mono_ms(clock_system());
}

void postgres_config_default(struct postgres_config *c)
{
    *c = (struct postgres_config){
        .url = "postgresql:///fantail",
        .writers = 4,
        .readers = 8,
        .queue_max = 16384,
        .group_max = 64,
        .connect_timeout_ms = 3000,
        .statement_timeout_ms = 15000,
        .read_wait_ms = 1000,
        .retry_ms = 2000,
        .lookup_ms = 10000,
    };
}

/* ---- an absent server ---- */

bool pg_absence_may_try(struct pg_db *db)
{
    struct pg_absence *a = &db->absence;
    LOCK_SCOPE(&a->lock);
    int64_t now = pg_now_ms();
    bool may = a->since_ms == 0 || now >= a->next_ms;
    if (a->since_ms && may) /* this one may take that long; no other needs to */
        a->next_ms = now + db->config.connect_timeout_ms + TRY_EVERY_MS;
    return may;
}

void pg_absence_end(struct pg_db *db)
{
    LOCK_SCOPE(&db->absence.lock);
    db->absence.since_ms = 0;
}

void pg_absence_note(struct pg_db *db)
{
    struct pg_absence *a = &db->absence;
    LOCK_SCOPE(&a->lock);
    int64_t now = pg_now_ms();
    if (a->since_ms == 0)
        a->since_ms = now;
    a->next_ms = now + TRY_EVERY_MS;
}

int64_t pg_absence_lasted_ms(struct pg_db *db)
{
    LOCK_SCOPE(&db->absence.lock);
    return db->absence.since_ms ? pg_now_ms() - db->absence.since_ms : 0;
}

void pg_db_damaged(struct pg_db *db, const char *why)
{
    if (!atomic_exchange(&db->damaged, true) && db->base.fatal)
        db->base.fatal(db->base.fatal_ctx, why);
}

/* ---- the vtable ---- */

static enum err driver_backup(struct db *db, const char *path,
                              void (*progress)(void *arg, int done, int total), void *arg)
{
    (void)db, (void)path, (void)progress, (void)arg;
    return ERR_INVALID; /* POSTGRES_BACKUP_ADVICE */
}

/* Statistics must not wait for a server, so they give the last known size and wish for a new one,
 * which a writer asks for after its next job. */
static void driver_stats(struct db *base, struct db_stats *out)
{
    struct pg_db *db = pg_of(base);
    struct pg_writers *w = &db->writers;
    *out = (struct db_stats){
        .commits = atomic_load_explicit(&w->commits, memory_order_relaxed),
        .transactions = atomic_load_explicit(&w->transactions, memory_order_relaxed),
        .failures = atomic_load_explicit(&w->failures, memory_order_relaxed),
        .queue_limit = db->config.queue_max,
        .file_bytes = atomic_load_explicit(&db->file_bytes, memory_order_relaxed),
        .full = atomic_load(&w->full),
    };
    pthread_mutex_lock(&w->lock);
    out->queue_depth = w->waiting;
    pthread_mutex_unlock(&w->lock);
    atomic_store_explicit(&db->size_wanted, true, memory_order_relaxed);
}

void pg_db_measure(struct pg_db *db, struct pg_link *l)
{
    int64_t now = pg_now_ms(), due = atomic_load_explicit(&db->size_due_ms, memory_order_relaxed);
    if (!atomic_load_explicit(&db->size_wanted, memory_order_relaxed) || now < due || !l->handle ||
        l->lost || !atomic_compare_exchange_strong(&db->size_due_ms, &due, now + SIZE_EVERY_MS))
        return;
    char text[24];
    atomic_store_explicit(&db->size_wanted, false, memory_order_relaxed);
    if (pg_link_ask(l, "SELECT pg_database_size(current_database())", NULL, 0, text, sizeof text))
        atomic_store_explicit(&db->file_bytes, strtoull(text, NULL, 10), memory_order_relaxed);
    l->failed = false;
}

static void driver_stop(struct db *db)
{
    pg_writers_stop(&pg_of(db)->writers);
    pg_apply_stop(&pg_of(db)->apply);
}

static void driver_free(struct db *base)
{
    struct pg_db *db = pg_of(base);
    driver_stop(base);
    pg_watch_done(&db->watch);
    pg_readers_done(&db->readers);
    pg_writers_done(&db->writers);
    pg_apply_done(&db->apply);
    pthread_mutex_destroy(&db->absence.lock);
    free((char *)db->config.url);
    free(db);
}

static const struct db_ops ops = {
    .submit = pg_writers_submit,
    .read = pg_readers_run,
    .exec = pg_statement_exec,
    .query = pg_statement_query,
    .exec_each = pg_statement_exec_each,
    .get_row_each = pg_statement_get_row_each,
    .next = pg_rows_next,
    .column_i64 = pg_rows_i64,
    .column_text = pg_rows_text,
    .column_null = pg_rows_null,
    .rows_done = pg_rows_done,
    .backup = driver_backup,
    .horizon = pg_watch_horizon,
    .now = pg_watch_now,
    .stats = driver_stats,
    .stop = driver_stop,
    .free = driver_free,
};

/* ---- life cycle ---- */

/* A libpq message about a bad URL would repeat the URL, password included. */
static enum err check_url(const char *url, char detail[TX_DETAIL_MAX])
{
    char *message = NULL;
    PQconninfoOption *options = PQconninfoParse(url, &message);
    bool ok = options != NULL;
    PQconninfoFree(options);
    PQfreemem(message);
    if (!ok)
        snprintf(detail, TX_DETAIL_MAX,
                 "the database's URL is not of the form postgresql://user:password@host/name");
    return ok ? OK : ERR_INVALID;
}

/* The contract's durability is the server's setting: warns an operator who turned it off. */
static void warn_if_not_durable(struct pg_link *l)
{
    static const char *const settings[] = {"synchronous_commit", "fsync", "full_page_writes"};
    for (size_t i = 0; i < COUNT_OF(settings); i++) {
        char value[24];
        const char *const name[] = {settings[i]};
        if (pg_link_ask(l, "SELECT current_setting($1)", name, 1, value, sizeof value) &&
            strcmp(value, "off") == 0)
            log_warn("PostgreSQL acknowledges writes before they are safe",
                     LOG_CSTR("setting", settings[i]), LOG_CSTR("value", value));
    }
}

static struct pg_db *make(const struct postgres_config *config, struct id_gen *ids)
{
    CHECK(config->writers > 0 && config->readers > 0 && config->queue_max > 0);
    CHECK(config->group_max > 0 && config->statement_timeout_ms > 0);
    struct pg_db *db = calloc(1, sizeof *db);
    CHECK(db);
    db->base.ops = &ops;
    db->base.shared = true;
    db->base.ids = ids;
    db->config = *config;
    db->config.url = strdup(config->url);
    CHECK(db->config.url);
    pthread_mutex_init(&db->absence.lock, NULL);
    pg_writers_init(&db->writers, db);
    pg_apply_init(&db->apply, db);
    pg_readers_init(&db->readers, db);
    pg_watch_init(&db->watch, db);
    return db;
}

static enum err open_all(struct pg_db *db, char detail[TX_DETAIL_MAX])
{
    struct pg_link *l = &db->writers.list[0].link;
    enum err e = check_url(db->config.url, detail);
    if (e == OK)
        e = pg_link_ensure(l, detail);
    if (e == OK)
        e = pg_schema_prepare(l, schema_steps, schema_step_count, detail);
    if (e == OK)
        e = pg_schema_raise_ids(l, db->base.ids, detail);
    if (e)
        return e;
    pg_link_note_life(l);
    warn_if_not_durable(l);
    atomic_store(&db->size_wanted, true);
    pg_db_measure(db, l);
    if (pg_apply_start(&db->apply) || pg_writers_start(&db->writers)) {
        snprintf(detail, TX_DETAIL_MAX, "cannot start a thread");
        return ERR_NO_MEMORY;
    }
    return OK;
}

enum err db_postgres_open(const struct postgres_config *config, struct id_gen *ids,
                          struct clock *clock, struct db **out, char detail[TX_DETAIL_MAX])
{
    (void)clock;
    detail[0] = '\0';
    struct pg_db *db = make(config, ids);
    enum err e = open_all(db, detail);
    if (e) {
        driver_free(&db->base);
        return e;
    }
    *out = &db->base;
    return OK;
}

enum err db_postgres_schema(const struct postgres_config *config, int *present, int *wanted,
                            char detail[TX_DETAIL_MAX])
{
    detail[0] = '\0';
    struct pg_db *db = make(config, NULL);
    struct pg_link *l = &db->watch.link;
    enum err e = check_url(config->url, detail);
    if (e == OK)
        e = pg_link_ensure(l, detail);
    if (e == OK)
        e = pg_schema_look(l, present, detail);
    if (e == OK)
        *wanted = schema_version();
    driver_free(&db->base);
    return e;
}
