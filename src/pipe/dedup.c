/* The duplicate memory: all SQL of it. An entry is a row of `dedup`; the one row of
 * `dedup_retention` says how long entries are kept. What must hold:
 *  1. A key has one row. Claiming is inserting it: the primary key decides between two claims.
 *  2. A claim is written only while the retention in truth is at least the claimer's (a condition
 *     of the INSERT itself). So no node forgets it sooner than the claimer was promised.
 *  3. Entries that are older than the last change of the retention are kept for `keep`, the longest
 *     of the retentions that were in force since they were made; the others for `retention`.
 *
 * Time is wall time. When the clock goes back, claims are dated like the newest entry, which only
 * keeps them longer. */
#include "pipe/dedup.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/check.h"

enum { STATE_CLAIMED = 0, STATE_DONE = 1, WHY_MAX = 300 };

/* ---- keys ---- */

void dedup_key_of(const struct rule *rule, const struct event *e, uint64_t member,
                  struct dedup_key *out)
{
    struct buf text = buf_over(out->text, DEDUP_KEY_MAX);
    if (rule->dedup == DEDUP_BY_KEY) {
        rule->business_key(e, member, &text);
    } else {
        buf_u64(&text, e->id);
        buf_append(&text, ":", 1);
        buf_u64(&text, member);
    }
    /* A shortened key would mix up different acts. Keys are made by our rules, of ids and times. */
    CHECK(!text.failed && text.len > 0);
    out->len = text.len;
    out->text[text.len] = '\0';
}

#define KEY_ARGS(consumer, k)                                                                      \
    DB_TEXT(str_of(consumer)), DB_TEXT(((struct str){(k)->text, (k)->len}))

/* ---- how long ---- */

struct retention {
    int64_t retention_ms, keep_ms, changed_ms;
};

void dedup_init(struct dedup *d, int64_t retention_ms)
{
    if (retention_ms < 0)
        retention_ms = 0;
    *d = (struct dedup){.retention_ms =
                            retention_ms < DEDUP_FOR_EVER_MS ? retention_ms : DEDUP_FOR_EVER_MS};
}

/* ERR_NOT_FOUND: there is no row. */
static enum err load(struct tx *tx, struct retention *r)
{
    int64_t row[3];
    enum err e =
        tx_get_numbers(tx, "SELECT retention, keep, changed FROM dedup_retention WHERE id = 1",
                       DB_NO_ARGS, row, 3);
    if (!e)
        *r = (struct retention){row[0], row[1], row[2]};
    return e;
}

static enum err save(struct tx *tx, const struct retention *r)
{
    return tx_exec(
        tx,
        "INSERT INTO dedup_retention (id, retention, keep, changed) VALUES (1, $1, $2, $3) "
        "ON CONFLICT (id) DO UPDATE SET retention = excluded.retention, keep = excluded.keep, "
        "changed = excluded.changed",
        DB_ARGS(DB_I64(r->retention_ms), DB_I64(r->keep_ms), DB_I64(r->changed_ms)), NULL);
}

enum err dedup_begin(struct tx *tx, struct dedup *d, int64_t now_ms)
{
    if (d->ready)
        return OK;
    struct retention r;
    enum err e = load(tx, &r);
    bool found = e != ERR_NOT_FOUND;
    if (!e || !found)
        e = tx_get_i64(tx, "SELECT COALESCE(max(at), 0) FROM dedup", DB_NO_ARGS, &d->newest_ms);
    if (e)
        return e;
    int64_t changed_ms = now_ms > d->newest_ms ? now_ms : d->newest_ms + 1;
    if (!found) {
        r = (struct retention){d->retention_ms, d->retention_ms, 0};
        e = save(tx, &r);
    } else if (r.retention_ms != d->retention_ms) {
        int64_t keep_ms = r.retention_ms > d->retention_ms ? r.retention_ms : d->retention_ms;
        bool older = r.changed_ms + r.keep_ms > now_ms; /* some from before may still be there */
        if (older && r.keep_ms > keep_ms)
            keep_ms = r.keep_ms;
        r = (struct retention){d->retention_ms, keep_ms, changed_ms};
        d->newest_ms = changed_ms;
        e = save(tx, &r);
    }
    d->ready = !e;
    return e;
}

/* ---- entries ---- */

static enum err insert(struct tx *tx, struct dedup *d, const char *consumer,
                       const struct dedup_key *key, int64_t now_ms, bool *inserted)
{
    int64_t changed = 0;
    int64_t at_ms = now_ms > d->newest_ms ? now_ms : d->newest_ms;
    enum err e =
        tx_exec(tx,
                "INSERT INTO dedup (consumer, key, state, at) SELECT $1, $2, 0, $3 WHERE EXISTS "
                "(SELECT 1 FROM dedup_retention WHERE id = 1 AND retention >= $4) "
                "ON CONFLICT (consumer, key) DO NOTHING",
                DB_ARGS(KEY_ARGS(consumer, key), DB_I64(at_ms), DB_I64(d->retention_ms)), &changed);
    *inserted = !e && changed == 1;
    d->newest_ms = at_ms;
    return e;
}

enum err dedup_claim(struct tx *tx, struct dedup *d, const char *consumer,
                     const struct dedup_key *key, int64_t now_ms, enum dedup_answer *answer)
{
    bool inserted = false;
    enum err e = d->ready ? insert(tx, d, consumer, key, now_ms, &inserted) : OK;
    *answer = DEDUP_NEW;
    if (!e && !inserted)
        e = dedup_look(tx, consumer, key, answer);
    if (e || inserted || *answer != DEDUP_NEW)
        return e;
    /* Nothing is known of it, and still it was not taken: the retention in truth is not the one
     * that this process knows (any more). */
    struct dedup now;
    dedup_init(&now, d->retention_ms);
    TRY(dedup_begin(tx, &now, now_ms));
    TRY(insert(tx, &now, consumer, key, now_ms, &inserted));
    return inserted ? OK : tx_fail(tx, ERR_INTERNAL, "the duplicate memory takes no claim");
}

enum err dedup_look(struct tx *tx, const char *consumer, const struct dedup_key *key,
                    enum dedup_answer *answer)
{
    int64_t state = STATE_CLAIMED;
    enum err e = tx_get_i64(tx, "SELECT state FROM dedup WHERE consumer = $1 AND key = $2",
                            DB_ARGS(KEY_ARGS(consumer, key)), &state);
    *answer = e ? DEDUP_NEW : state == STATE_DONE ? DEDUP_DONE : DEDUP_UNKNOWN;
    return e == ERR_NOT_FOUND ? OK : e;
}

/* The claim remembers the order by a negative state. */
enum err dedup_claim_by_order(struct tx *tx, const char *consumer, const struct dedup_key *key,
                              uint64_t order, enum dedup_answer *answer)
{
    int64_t state = -(int64_t)(order >> 2) - 1, changed = 0;
    TRY(tx_exec(tx,
                "UPDATE dedup SET state = $3 WHERE consumer = $1 AND key = $2 AND state <> 1 "
                "AND state <> $3",
                DB_ARGS(KEY_ARGS(consumer, key), DB_I64(state)), &changed));
    *answer = changed ? DEDUP_NEW : DEDUP_UNKNOWN;
    return OK;
}

enum err dedup_confirm(struct tx *tx, const char *consumer, const struct dedup_key *key)
{
    int64_t changed = 0;
    enum err e = tx_exec(tx, "UPDATE dedup SET state = 1 WHERE consumer = $1 AND key = $2",
                         DB_ARGS(KEY_ARGS(consumer, key)), &changed);
    return !e && changed == 0 ? ERR_NOT_FOUND : e;
}

enum err dedup_give_back(struct tx *tx, const char *consumer, const struct dedup_key *key)
{
    int64_t changed = 0;
    TRY(tx_exec(tx, "DELETE FROM dedup WHERE consumer = $1 AND key = $2 AND state <> 1",
                DB_ARGS(KEY_ARGS(consumer, key)), &changed));
    if (changed)
        return OK;
    enum dedup_answer answer;
    enum err e = dedup_look(tx, consumer, key, &answer);
    return !e && answer == DEDUP_DONE ? ERR_CONFLICT : e;
}

/* ---- forgetting ---- */

/* Removes the oldest of those that were made in [from, to]. */
static enum err forget(struct tx *tx, int64_t from_ms, int64_t to_ms, size_t max, size_t *removed)
{
    int64_t changed = 0;
    if (from_ms > to_ms || *removed == max)
        return OK;
    enum err e = tx_exec(tx,
                         "DELETE FROM dedup WHERE (consumer, key) IN (SELECT consumer, key "
                         "FROM dedup WHERE at >= $1 AND at <= $2 ORDER BY at, consumer, key "
                         "LIMIT $3)",
                         DB_ARGS(DB_I64(from_ms), DB_I64(to_ms), DB_I64(max - *removed)), &changed);
    *removed += (size_t)changed;
    return e;
}

enum err dedup_forget(struct tx *tx, int64_t now_ms, size_t max, bool *more)
{
    struct retention r;
    size_t removed = 0;
    *more = false;
    max = max ? max : 1;
    enum err e = load(tx, &r);
    if (e)
        return e == ERR_NOT_FOUND ? OK : e;
    int64_t old_ms = now_ms - r.keep_ms, over_ms = now_ms - r.retention_ms;
    e = forget(tx, 0, old_ms < r.changed_ms ? old_ms : over_ms, max, &removed);
    if (!e && old_ms < r.changed_ms)
        e = forget(tx, r.changed_ms, over_ms, max, &removed);
    *more = !e && removed == max;
    return e;
}

/* ---- is it long enough? ---- */

enum { SPAN_TEXT_MAX = 40 };

/* "14 days", in the largest unit that needs no fraction. */
static const char *span_text(int64_t ms, char out[SPAN_TEXT_MAX])
{
    static const struct {
        int64_t ms;
        const char *name;
    } units[] = {
        {86400000, "day"}, {3600000, "hour"},  {60000, "minute"},
        {1000, "second"},  {1, "millisecond"},
    };
    size_t u = 0;
    while (ms % units[u].ms)
        u++;
    int64_t n = ms / units[u].ms;
    snprintf(out, SPAN_TEXT_MAX, "%" PRId64 " %s%s", n, units[u].name, n == 1 ? "" : "s");
    return out;
}

enum err dedup_check_retention(const struct rule *rules, size_t n, int64_t dedup_ms,
                               int64_t dead_ms, int64_t replay_ms, char why[300])
{
    why[0] = '\0';
    const char *consumer = NULL;
    for (size_t i = 0; i < n && !consumer; i++) {
        if (rules[i].dedup != DEDUP_OFF)
            consumer = rules[i].consumer;
    }
    bool endless = dead_ms == 0 && dedup_ms < DEDUP_FOR_EVER_MS;
    int64_t needed_ms = dead_ms > replay_ms ? dead_ms : replay_ms;
    if (dedup_ms >= needed_ms && !endless)
        return OK;

    char of[64] = "", ours[SPAN_TEXT_MAX], needed[SPAN_TEXT_MAX];
    bool replay = replay_ms == needed_ms;
    if (consumer)
        snprintf(of, sizeof of, " of consumer '%.40s'", consumer);
    span_text(dedup_ms, ours);
    span_text(needed_ms, needed);
    if (dedup_ms >= needed_ms)
        snprintf(
            why, WHY_MAX,
            "the duplicate memory%s (dedup-retention %s) is shorter than dead letters are kept "
            "(retain-dead 0: for ever): re-driving one could repeat what was forgotten; set "
            "retain-dead to at most %s, or dedup-retention to 0",
            of, ours, ours);
    else
        snprintf(why, WHY_MAX,
                 "the duplicate memory%s (dedup-retention %s) is shorter than %s %s): %s could "
                 "repeat what was forgotten; set dedup-retention to at least %s",
                 of, ours,
                 replay ? "the replay window (retain-events" : "dead letters are kept (retain-dead",
                 needed, replay ? "a replay" : "re-driving one", needed);
    return ERR_INVALID;
}
