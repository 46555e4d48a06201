/* The table `subscribers`, and the outbox as its readers see it.
 *
 * What was removed is known without a scan: removal goes by rising id and leaves `archived_through`
 * in meta. Counting unread events is a walk along the primary key that ends at its limit. */
#include "model/subscriber.h"

#include <stdio.h>

#include "base/id.h"
#include "model/meta.h"

/* ---- the events ---- */

static enum err read_first(struct tx *tx, const char *sql, uint64_t above, uint64_t *out)
{
    int64_t id = 0;
    enum err e = tx_get_i64(tx, sql, DB_ARGS(DB_I64(above)), &id);
    *out = e ? 0 : (uint64_t)id;
    return e == ERR_NOT_FOUND ? OK : e;
}

static enum err first_after(struct tx *tx, uint64_t position, uint64_t *out)
{
    return read_first(tx, "SELECT id FROM outbox WHERE id > $1 ORDER BY id LIMIT 1", position, out);
}

enum err stored_events_bounds(struct tx *tx, uint64_t *removed_through, uint64_t *oldest)
{
    TRY(meta_get(tx, STR("archived_through"), removed_through));
    return first_after(tx, 0, oldest);
}

enum err stored_events_reach(struct tx *tx, uint64_t position)
{
    uint64_t removed, oldest;
    TRY(stored_events_bounds(tx, &removed, &oldest));
    if (position >= removed)
        return OK;
    return tx_fail(
        tx, ERR_GONE,
        "position %llu is too old: events up to %llu were removed after their retention; "
        "read the present state through the API, then go on from %llu",
        (unsigned long long)position, (unsigned long long)removed, (unsigned long long)removed);
}

enum err stored_events_after(struct tx *tx, uint64_t after, size_t limit,
                             void (*visit)(void *ctx, const struct stored_event *e), void *ctx)
{
    struct db_rows rows = tx_rows(tx,
                                  "SELECT id, type, version, payload FROM outbox WHERE id > $1 "
                                  "ORDER BY id LIMIT $2",
                                  DB_ARGS(DB_I64(after), DB_I64(limit)));
    while (db_next(&rows)) {
        struct stored_event event = {
            .id = db_id(&rows, 0),
            .type = db_text(&rows, 1),
            .version = db_i64(&rows, 2),
            .payload = db_text(&rows, 3),
        };
        visit(ctx, &event);
    }
    return db_rows_done(&rows);
}

/* ---- positions ---- */

static void read_row(struct db_rows *rows, struct subscriber *out)
{
    struct str name = db_text(rows, 0);
    snprintf(out->name, sizeof out->name, "%.*s", STR_ARG(name));
    out->position = db_id(rows, 1);
    out->created_ms = db_i64(rows, 2);
    out->changed_ms = db_i64(rows, 3);
}

enum err subscriber_get(struct tx *tx, struct str name, struct subscriber *out)
{
    struct db_rows rows = tx_rows(
        tx, "SELECT name, position, created_at, changed_at FROM subscribers WHERE name = $1",
        DB_ARGS(DB_TEXT(name)));
    bool found = db_next(&rows);
    if (found)
        read_row(&rows, out);
    enum err e = db_rows_done(&rows);
    return e || found ? e : ERR_NOT_FOUND;
}

enum err subscriber_list(struct tx *tx, struct subscriber out[SUBSCRIBERS_MAX], size_t *n)
{
    *n = 0;
    struct db_rows rows = tx_rows(tx,
                                  "SELECT name, position, created_at, changed_at FROM subscribers "
                                  "ORDER BY name LIMIT $1",
                                  DB_ARGS(DB_I64(SUBSCRIBERS_MAX)));
    while (*n < SUBSCRIBERS_MAX && db_next(&rows))
        read_row(&rows, &out[(*n)++]);
    return db_rows_done(&rows);
}

/* The newest id that a position may have: of an event that was made. */
static enum err newest_known(struct tx *tx, uint64_t *newest)
{
    uint64_t removed, oldest, last;
    TRY(stored_events_bounds(tx, &removed, &oldest));
    TRY(read_first(tx, "SELECT id FROM outbox WHERE id > $1 ORDER BY id DESC LIMIT 1", 0, &last));
    *newest = last > removed ? last : removed;
    return OK;
}

static enum err check_position(struct tx *tx, const struct subscriber *known, uint64_t position,
                               bool rewind)
{
    uint64_t newest = 0;
    TRY(newest_known(tx, &newest));
    if (position > newest && position > known->position)
        return tx_fail(
            tx, ERR_INVALID,
            "cursor is beyond the newest event (%llu): it must be the id of an event that "
            "was dealt with",
            (unsigned long long)newest);
    if (known->position > position && !rewind)
        return tx_fail(
            tx, ERR_CONFLICT, "%s is at %llu already; add \"rewind\": true to go back to %llu",
            known->name, (unsigned long long)known->position, (unsigned long long)position);
    return stored_events_reach(tx, position);
}

enum err subscriber_save(struct tx *tx, struct str name, uint64_t position, bool rewind,
                         int64_t now_ms, struct subscriber *out)
{
    *out = (struct subscriber){.created_ms = now_ms};
    enum err e = subscriber_get(tx, name, out);
    bool fresh = e == ERR_NOT_FOUND;
    if (e && !fresh)
        return e;
    int64_t count = 0;
    if (fresh)
        e = tx_get_i64(tx, "SELECT COUNT(*) FROM subscribers", DB_NO_ARGS, &count);
    if (!e && count >= SUBSCRIBERS_MAX)
        e = tx_fail(tx, ERR_CONFLICT, "there are %d consumers already: delete one that is not used",
                    SUBSCRIBERS_MAX);
    if (!e)
        e = check_position(tx, out, position, rewind);
    if (e)
        return e;
    snprintf(out->name, sizeof out->name, "%.*s", STR_ARG(name));
    out->position = position;
    out->changed_ms = now_ms;
    return tx_exec(
        tx,
        "INSERT INTO subscribers (name, position, changed_at, created_at) "
        "VALUES ($1, $2, $3, $4) ON CONFLICT (name) DO UPDATE "
        "SET position = excluded.position, changed_at = excluded.changed_at",
        DB_ARGS(DB_TEXT(name), DB_I64(position), DB_I64(now_ms), DB_I64(out->created_ms)), NULL);
}

enum err subscriber_delete(struct tx *tx, struct str name)
{
    int64_t removed = 0;
    enum err e =
        tx_exec(tx, "DELETE FROM subscribers WHERE name = $1", DB_ARGS(DB_TEXT(name)), &removed);
    return e || removed ? e : tx_fail(tx, ERR_NOT_FOUND, "there is no consumer of this name");
}

/* ---- how far behind ---- */

enum err subscriber_lag(struct tx *tx, uint64_t position, struct subscriber_lag *out)
{
    int64_t unread = 0;
    enum err e = first_after(tx, position, &out->oldest_unread);
    if (!e)
        e = tx_get_i64(
            tx,
            "SELECT COUNT(*) FROM (SELECT id FROM outbox WHERE id > $1 ORDER BY id LIMIT $2) AS u",
            DB_ARGS(DB_I64(position), DB_I64(SUBSCRIBER_COUNTED_MAX)), &unread);
    out->unread = (uint64_t)unread;
    return e;
}

enum err subscriber_ages(struct tx *tx, int64_t now_ms, struct subscriber_ages *out)
{
    struct subscriber list[SUBSCRIBERS_MAX];
    size_t n;
    out->count = 0;
    enum err e = subscriber_list(tx, list, &n);
    for (size_t i = 0; i < n && !e; i++) {
        uint64_t unread;
        e = first_after(tx, list[i].position, &unread);
        int64_t age_ms = unread ? now_ms - id_time_ms(unread) : 0;
        snprintf(out->items[i].name, sizeof out->items[i].name, "%.40s", list[i].name);
        out->items[i].age_ms = age_ms > 0 ? age_ms : 0;
        out->count = i + 1;
    }
    return e;
}
