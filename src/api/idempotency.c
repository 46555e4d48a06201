/* Several nodes, one key: the set below knows of this process alone, so that the same request may
 * be run at two nodes at once. Both find no row, both act, both write the row: the second waits for
 * the first, whose commit then fails it, because its transaction has read what is no longer so. It
 * is run again like every transaction that met another, finds the row and answers from it. What is
 * remembered outside of the act's own transaction, a refusal, never takes the place of an answer.
 *
 * The set of keys in progress is a fixed table with chaining by index under one lock: it is touched
 * twice per keyed write, which is nothing beside the commit. Entries point at the request's own key
 * and never outlive it. */
#include "api/idempotency.h"

#include <pthread.h>
#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/check.h"
#include "base/hash.h"

enum { CLEAN_SLICE = 500, CLEAN_EVERY_MS = 60 * 1000, ROUTE_TEXT_MAX = 96 };

struct entry {
    const struct idempotency_key *key; /* NULL: free */
    uint32_t next;                     /* index + 1 in the chain or the free list; 0: end */
};

struct idempotency {
    pthread_mutex_t lock;
    uint32_t free_list;
    uint32_t bucket_count; /* a power of two */
    uint32_t *buckets;
    struct entry *entries;
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
    CHECK(in_progress_max > 0 && in_progress_max < UINT32_MAX / 2);
    struct idempotency *i = calloc(1, sizeof *i);
    CHECK(i);
    i->bucket_count = 1;
    while (i->bucket_count < in_progress_max)
        i->bucket_count *= 2;
    i->buckets = calloc(i->bucket_count, sizeof *i->buckets);
    i->entries = calloc(in_progress_max, sizeof *i->entries);
    CHECK(i->buckets && i->entries);
    for (uint32_t n = 0; n < in_progress_max; n++)
        i->entries[n].next = n + 1 < in_progress_max ? n + 2 : 0;
    i->free_list = 1;
    pthread_mutex_init(&i->lock, NULL);
    return i;
}

void idempotency_free(struct idempotency *i)
{
    if (!i)
        return;
    pthread_mutex_destroy(&i->lock);
    free(i->buckets);
    free(i->entries);
    free(i);
}

static uint32_t *bucket_of(struct idempotency *i, const struct idempotency_key *k)
{
    uint64_t h = hash_bytes(k->text.ptr, k->text.len) ^ hash_u64(k->account + hash_u64(k->subject));
    return &i->buckets[h & (i->bucket_count - 1)];
}

static bool same_scope(const struct idempotency_key *a, const struct idempotency_key *b)
{
    return a->account == b->account && a->subject == b->subject && str_eq(a->text, b->text) &&
           strcmp(a->route, b->route) == 0;
}

static bool same_body(const uint8_t *a, const uint8_t *b)
{
    return memcmp(a, b, IDEMPOTENCY_FINGERPRINT_BYTES) == 0;
}

enum err idempotency_begin(struct idempotency *i, const struct idempotency_key *k)
{
    enum err e = OK;
    pthread_mutex_lock(&i->lock);
    uint32_t *bucket = bucket_of(i, k);
    for (uint32_t at = *bucket; at && !e; at = i->entries[at - 1].next) {
        const struct idempotency_key *other = i->entries[at - 1].key;
        if (same_scope(other, k))
            e = same_body(other->fingerprint, k->fingerprint) ? ERR_IN_PROGRESS : ERR_INVALID;
    }
    if (!e && !i->free_list)
        e = ERR_OVERLOADED;
    if (!e) {
        uint32_t at = i->free_list;
        i->free_list = i->entries[at - 1].next;
        i->entries[at - 1] = (struct entry){k, *bucket};
        *bucket = at;
    }
    pthread_mutex_unlock(&i->lock);
    return e;
}

void idempotency_end(struct idempotency *i, const struct idempotency_key *k)
{
    pthread_mutex_lock(&i->lock);
    uint32_t *link = bucket_of(i, k);
    while (*link && i->entries[*link - 1].key != k)
        link = &i->entries[*link - 1].next;
    CHECK(*link);
    uint32_t at = *link;
    *link = i->entries[at - 1].next;
    i->entries[at - 1] = (struct entry){NULL, i->free_list};
    i->free_list = at;
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
                          struct arena *arena, struct idempotency_answer *out)
{
    char route[ROUTE_TEXT_MAX];
    struct db_rows rows;
    enum err e = tx_query(tx,
                          "SELECT fingerprint, status, body FROM idempotency "
                          "WHERE account_id = $1 AND route = $2 AND key = $3 AND created_at > $4",
                          DB_ARGS(DB_I64(k->account), DB_TEXT(route_text(k, route)),
                                  DB_TEXT(k->text), DB_I64(now_ms - IDEMPOTENCY_KEEP_MS)),
                          &rows);
    if (e)
        return e;
    enum err found = ERR_NOT_FOUND;
    if (db_next(&rows)) {
        struct str fingerprint = db_text(&rows, 0);
        bool same = fingerprint.len == IDEMPOTENCY_FINGERPRINT_BYTES &&
                    same_body((const uint8_t *)fingerprint.ptr, k->fingerprint);
        found = same ? OK : ERR_INVALID;
        *out = (struct idempotency_answer){
            .status = (int)db_i64(&rows, 1),
            .body = arena_str(arena, db_text(&rows, 2)),
        };
    }
    e = db_rows_done(&rows);
    return e ? e : found;
}

enum err idempotency_store(struct tx *tx, const struct idempotency_key *k, int64_t now_ms,
                           int status, struct str body)
{
    char route[ROUTE_TEXT_MAX];
    struct str fingerprint = {(const char *)k->fingerprint, IDEMPOTENCY_FINGERPRINT_BYTES};
    int64_t stored = 0;
    /* Only a row that has outlived its day and waits to be cleaned away is written over. */
    enum err e =
        tx_exec(tx,
                "INSERT INTO idempotency (account_id, route, key, fingerprint, status, body, "
                "created_at) VALUES ($1, $2, $3, $4, $5, $6, $7) "
                "ON CONFLICT (account_id, route, key) DO UPDATE SET "
                "fingerprint = excluded.fingerprint, status = excluded.status, "
                "body = excluded.body, created_at = excluded.created_at "
                "WHERE idempotency.created_at <= $8",
                DB_ARGS(DB_I64(k->account), DB_TEXT(route_text(k, route)), DB_TEXT(k->text),
                        DB_BLOB(fingerprint), DB_I64(status), DB_TEXT(body.ptr ? body : STR("")),
                        DB_I64(now_ms), DB_I64(now_ms - IDEMPOTENCY_KEEP_MS)),
                &stored);
    return e ? e : stored ? OK : ERR_CONFLICT;
}

bool idempotency_keeps(int status)
{
    return (status >= 200 && status < 300) || status == 403 || status == 404 || status == 422;
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
