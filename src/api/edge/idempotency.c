/* Several nodes, one key: the set below knows of this process alone, so that the same request may
 * be run at two nodes at once. Both find no row, both act, both write the row: the second waits for
 * the first, whose commit then fails it, because its transaction has read what is no longer so. It
 * is run again like every transaction that met another, finds the row and answers from it.
 *
 * The set of keys in progress is a map under one lock: it is touched twice per keyed write, which
 * is nothing beside the commit. Entries point at the request's own key and never outlive it. */
#include "api/edge/idempotency.h"

#include <pthread.h>
#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/check.h"
#include "base/hash.h"
#include "base/map.h"

enum { CLEAN_SLICE = 500, CLEAN_EVERY_MS = 60 * 1000, ROUTE_TEXT_MAX = 96 };

/* Found by a digest of account, route, subject and text. */
struct entry {
    uint64_t digest[2];
    const struct idempotency_key *key;
};

struct idempotency {
    pthread_mutex_t lock;
    struct map entries;
    size_t entries_max;
};

/* ---- reading ---- */

enum err idempotency_read_key(struct str header, struct arena *arena, struct str *key)
{
    header = str_trim(header);
    bool quoted = header.len >= 2 && header.ptr[0] == '"' && header.ptr[header.len - 1] == '"';
    if (quoted)
        header = (struct str){header.ptr + 1, header.len - 2};
    char *text = arena_alloc(arena, header.len + 1);
    size_t len = 0;
    for (size_t i = 0; i < header.len; i++) {
        char c = header.ptr[i];
        if (quoted &&
            c == '\\') { /* a structured-field string escapes only quotes and backslashes */
            if (++i == header.len || (header.ptr[i] != '"' && header.ptr[i] != '\\'))
                return ERR_BAD_INPUT;
            c = header.ptr[i];
        } else if (c == '"') {
            return ERR_BAD_INPUT;
        }
        if (c < ' ' || c >= 0x7f)
            return ERR_BAD_INPUT;
        text[len++] = c;
    }
    if (len == 0 || len > IDEMPOTENCY_KEY_MAX)
        return ERR_BAD_INPUT;
    *key = (struct str){text, len};
    return OK;
}

uint64_t idempotency_subject(const uint64_t *params, size_t n)
{
    uint64_t subject = params[0];
    for (size_t i = 1; i < n; i++) {
        if (params[i])
            subject = hash_u64(subject) ^ params[i];
    }
    return subject;
}

void idempotency_fingerprint(const uint8_t secret[32], struct str body,
                             uint8_t out[IDEMPOTENCY_FINGERPRINT_BYTES])
{
    crypto_generichash(out, IDEMPOTENCY_FINGERPRINT_BYTES, (const uint8_t *)body.ptr, body.len,
                       secret, 32);
}

/* ---- in progress ---- */

struct idempotency *idempotency_new(size_t in_progress_max)
{
    struct idempotency *i = calloc(1, sizeof *i);
    CHECK(i && in_progress_max > 0);
    i->entries_max = in_progress_max;
    map_init(&i->entries, sizeof(struct entry), sizeof(uint64_t[2]));
    pthread_mutex_init(&i->lock, NULL);
    return i;
}

void idempotency_free(struct idempotency *i)
{
    if (!i)
        return;
    pthread_mutex_destroy(&i->lock);
    map_done(&i->entries);
    free(i);
}

static void digest(const struct idempotency_key *k, uint64_t out[2])
{
    crypto_generichash_state state;
    uint64_t numbers[] = {k->account, k->subject};
    crypto_generichash_init(&state, NULL, 0, sizeof(uint64_t[2]));
    crypto_generichash_update(&state, (const uint8_t *)numbers, sizeof numbers);
    crypto_generichash_update(&state, (const uint8_t *)k->route, strlen(k->route) + 1);
    crypto_generichash_update(&state, (const uint8_t *)k->text.ptr, k->text.len);
    crypto_generichash_final(&state, (uint8_t *)out, sizeof(uint64_t[2]));
    out[0] |= 1; /* never 0, as the map wants it */
}

static bool same_body(const uint8_t *a, const uint8_t *b)
{
    return memcmp(a, b, IDEMPOTENCY_FINGERPRINT_BYTES) == 0;
}

enum err idempotency_begin(struct idempotency *i, const struct idempotency_key *k)
{
    uint64_t key[2];
    enum err e = OK;
    digest(k, key);
    pthread_mutex_lock(&i->lock);
    const struct entry *other = map_find(&i->entries, key);
    if (other)
        e = same_body(other->key->fingerprint, k->fingerprint) ? ERR_IN_PROGRESS : ERR_INVALID;
    struct entry *mine =
        e || i->entries.count == i->entries_max ? NULL : map_put(&i->entries, key, NULL);
    if (mine)
        mine->key = k;
    else if (!e)
        e = ERR_OVERLOADED;
    pthread_mutex_unlock(&i->lock);
    return e;
}

void idempotency_end(struct idempotency *i, const struct idempotency_key *k)
{
    uint64_t key[2];
    digest(k, key);
    pthread_mutex_lock(&i->lock);
    struct entry *mine = map_find(&i->entries, key);
    CHECK(mine && mine->key == k);
    map_remove(&i->entries, mine);
    pthread_mutex_unlock(&i->lock);
}

/* ---- in truth ---- */

/* The route column: "like_put 123". */
static struct str route_text(const struct idempotency_key *k, char out[ROUTE_TEXT_MAX])
{
    int n = snprintf(out, ROUTE_TEXT_MAX, "%s %llu", k->route, (unsigned long long)k->subject);
    CHECK(n > 0 && n < ROUTE_TEXT_MAX);
    return (struct str){out, (size_t)n};
}

enum err idempotency_find(struct tx *tx, const struct idempotency_key *k, int64_t now_ms,
                          struct idempotency_answer *out)
{
    char route[ROUTE_TEXT_MAX];
    struct db_rows rows =
        tx_rows(tx,
                "SELECT fingerprint, status, object_id FROM idempotency "
                "WHERE account_id = $1 AND route = $2 AND key = $3 AND created_at > $4",
                DB_ARGS(DB_I64(k->account), DB_TEXT(route_text(k, route)), DB_TEXT(k->text),
                        DB_I64(now_ms - IDEMPOTENCY_KEEP_MS)));
    enum err found = ERR_NOT_FOUND;
    if (db_next(&rows)) {
        struct str fingerprint = db_text(&rows, 0);
        bool same = fingerprint.len == IDEMPOTENCY_FINGERPRINT_BYTES &&
                    same_body((const uint8_t *)fingerprint.ptr, k->fingerprint);
        found = same ? OK : ERR_INVALID;
        *out = (struct idempotency_answer){(int)db_i64(&rows, 1), db_id(&rows, 2)};
    }
    TRY(db_rows_done(&rows));
    return found;
}

enum err idempotency_store(struct tx *tx, const struct idempotency_key *k, int64_t now_ms,
                           const struct idempotency_answer *answer)
{
    char route[ROUTE_TEXT_MAX];
    struct str fingerprint = {(const char *)k->fingerprint, IDEMPOTENCY_FINGERPRINT_BYTES};
    int64_t stored = 0;
    /* Only a row that has outlived its day and waits to be cleaned away is written over. */
    TRY(tx_exec(tx,
                "INSERT INTO idempotency (account_id, route, key, fingerprint, status, object_id, "
                "created_at) VALUES ($1, $2, $3, $4, $5, $6, $7) "
                "ON CONFLICT (account_id, route, key) DO UPDATE SET "
                "fingerprint = excluded.fingerprint, status = excluded.status, "
                "object_id = excluded.object_id, created_at = excluded.created_at "
                "WHERE idempotency.created_at <= $8",
                DB_ARGS(DB_I64(k->account), DB_TEXT(route_text(k, route)), DB_TEXT(k->text),
                        DB_BLOB(fingerprint), DB_I64(answer->status), DB_I64(answer->object),
                        DB_I64(now_ms), DB_I64(now_ms - IDEMPOTENCY_KEEP_MS)),
                &stored));
    return stored ? OK : ERR_CONFLICT;
}

struct cleaning {
    int64_t before_ms;
    int64_t removed;
};

static enum err clean(struct tx *tx, void *arg)
{
    struct cleaning *c = arg;
    c->removed = 0;
    return tx_exec(tx,
                   "DELETE FROM idempotency WHERE (account_id, route, key) IN "
                   "(SELECT account_id, route, key FROM idempotency WHERE created_at <= $1 "
                   "ORDER BY created_at LIMIT $2)",
                   DB_ARGS(DB_I64(c->before_ms), DB_I64(CLEAN_SLICE)), &c->removed);
}

int64_t idempotency_clean_step(struct db *db, struct clock *clock)
{
    struct cleaning c = {.before_ms = clock_wall_ms(clock) - IDEMPOTENCY_KEEP_MS};
    enum err e = db_write(db, clean, &c, NULL);
    int64_t now_us = clock_mono_us(clock);
    bool more = !e && c.removed == CLEAN_SLICE;
    /* Between slices other writers get their turn. */
    return now_us + (more ? 10 : CLEAN_EVERY_MS) * INT64_C(1000);
}
