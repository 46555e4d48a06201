/* The ring of slots, and all SQL of it.
 *
 * A slot is a table inbox_N and, while it is in use or holds anything, a row in inbox_slots: when
 * it was taken, when it ends, how long its entries are kept after that. What must hold:
 *  1. An entry is written only into a slot that has not ended at that moment (a condition of the
 *     INSERT itself) and whose `keep` is at least the retention in force. A slot is emptied `keep`
 *     after its end: so nothing is forgotten before its retention is over.
 *  2. A key is in one slot at most: the INSERT looks into all the others, and the primary key of
 *     its own slot does the rest. What is in any table is remembered, also while a slot is emptied.
 *  3. A slot is taken only when it has no row, and its row goes only when it is empty.
 *
 * Of INBOX_SLOTS one is in use, INBOX_SLOTS - 2 are remembered, and one has a whole span's time to
 * be emptied. When none is free (forgetting lags behind, or the retention was changed, so that the
 * slots' spans and their `keep` do not fit together any more) the one in use goes on: its end is
 * moved, and its entries are remembered for longer.
 *
 * Time is wall time. When the clock goes back, claims go on into a slot that has not ended, which
 * only keeps them longer. */
#include "pipe/inbox.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/check.h"

enum { STATE_CLAIMED = 0, STATE_DONE = 1 };

/* How long at least a ring without a free slot stays as it is before it looks again. */
enum { LOOK_AGAIN_MS = 1000 };

/* Sums of times stay far from overflow. */
#define RETENTION_MAX_MS (INT64_MAX / 8)

/* ---- statements: one text for each slot, because texts are told apart by their address ---- */

#define NOT_IN(n) " AND NOT EXISTS (SELECT 1 FROM inbox_" #n " WHERE consumer = $1 AND key = $2)"

#define CLAIM(n, a, b, c, d, e, f, g)                                                              \
    [n] = "INSERT INTO inbox_" #n " (consumer, key, state, at) SELECT $1, $2, 0, $3 "              \
          "WHERE EXISTS (SELECT 1 FROM inbox_slots WHERE slot = " #n                               \
          " AND ends > $3 AND keep >= $4)" NOT_IN(a) NOT_IN(b) NOT_IN(c) NOT_IN(d) NOT_IN(e)       \
              NOT_IN(f) NOT_IN(g) " ON CONFLICT (consumer, key) DO NOTHING"

/* The slots before its own, the newest first: where a duplicate is most likely. */
static const char *const claim_sql[INBOX_SLOTS] = {
    CLAIM(0, 7, 6, 5, 4, 3, 2, 1), CLAIM(1, 0, 7, 6, 5, 4, 3, 2), CLAIM(2, 1, 0, 7, 6, 5, 4, 3),
    CLAIM(3, 2, 1, 0, 7, 6, 5, 4), CLAIM(4, 3, 2, 1, 0, 7, 6, 5), CLAIM(5, 4, 3, 2, 1, 0, 7, 6),
    CLAIM(6, 5, 4, 3, 2, 1, 0, 7), CLAIM(7, 6, 5, 4, 3, 2, 1, 0),
};

#define FIND(n)    "SELECT " #n ", state FROM inbox_" #n " WHERE consumer = $1 AND key = $2"
#define OR_FIND(n) " UNION ALL " FIND(n)

static const char find_sql[] =
    FIND(0) OR_FIND(1) OR_FIND(2) OR_FIND(3) OR_FIND(4) OR_FIND(5) OR_FIND(6) OR_FIND(7);

#define EACH_SLOT(X)                                                                               \
    {                                                                                              \
        X(0), X(1), X(2), X(3), X(4), X(5), X(6), X(7)                                             \
    }

#define CONFIRM(n)   "UPDATE inbox_" #n " SET state = 1 WHERE consumer = $1 AND key = $2"
#define GIVE_BACK(n) "DELETE FROM inbox_" #n " WHERE consumer = $1 AND key = $2"
#define EMPTY_TO(n)  "DELETE FROM inbox_" #n " WHERE (consumer, key) < ($1, $2)"
#define EMPTY(n)     "DELETE FROM inbox_" #n

#define AFTER(n) "SELECT consumer, key FROM inbox_" #n " ORDER BY consumer, key LIMIT 1 OFFSET $1"

static const char *const confirm_sql[INBOX_SLOTS] = EACH_SLOT(CONFIRM);
static const char *const give_back_sql[INBOX_SLOTS] = EACH_SLOT(GIVE_BACK);
static const char *const after_sql[INBOX_SLOTS] = EACH_SLOT(AFTER);
static const char *const empty_to_sql[INBOX_SLOTS] = EACH_SLOT(EMPTY_TO);
static const char *const empty_sql[INBOX_SLOTS] = EACH_SLOT(EMPTY);

_Static_assert(INBOX_SLOTS == 8, "the statements name the slots 0 to 7");

/* ---- keys ---- */

void inbox_key_of(const struct rule *rule, const struct event *e, uint64_t member,
                  struct inbox_key *out)
{
    struct buf text = buf_over(out->text, INBOX_KEY_MAX);
    if (rule->inbox == INBOX_BY_KEY) {
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

/* ---- the ring ---- */

struct slot {
    bool used; /* it has a row */
    int64_t since_ms, ends_ms, keep_ms;
};

void inbox_ring_init(struct inbox_ring *r, int64_t retention_ms)
{
    if (retention_ms < 0)
        retention_ms = 0;
    *r = (struct inbox_ring){.retention_ms =
                                 retention_ms < RETENTION_MAX_MS ? retention_ms : RETENTION_MAX_MS};
}

static int64_t span_of(const struct inbox_ring *r)
{
    int64_t parts = INBOX_SLOTS - 2;
    int64_t span_ms = (r->retention_ms + parts - 1) / parts;
    return span_ms ? span_ms : 1;
}

static enum err load(struct tx *tx, struct slot slots[INBOX_SLOTS])
{
    memset(slots, 0, INBOX_SLOTS * sizeof *slots);
    struct db_rows rows;
    enum err e =
        tx_query(tx, "SELECT slot, since, ends, keep FROM inbox_slots ORDER BY slot LIMIT 8",
                 DB_NO_ARGS, &rows);
    while (!e && db_next(&rows)) {
        int64_t at = db_i64(&rows, 0);
        if (at >= 0 && at < INBOX_SLOTS)
            slots[at] = (struct slot){true, db_i64(&rows, 1), db_i64(&rows, 2), db_i64(&rows, 3)};
    }
    return e ? e : db_rows_done(&rows);
}

/* A longer retention holds for what is remembered already. */
static enum err raise_keep(struct tx *tx, const struct inbox_ring *r, struct slot *slots)
{
    bool shorter = false;
    for (int i = 0; i < INBOX_SLOTS; i++) {
        if (!slots[i].used || slots[i].keep_ms >= r->retention_ms)
            continue;
        slots[i].keep_ms = r->retention_ms;
        shorter = true;
    }
    if (!shorter)
        return OK;
    return tx_exec(tx, "UPDATE inbox_slots SET keep = $1 WHERE keep < $1",
                   DB_ARGS(DB_I64(r->retention_ms)), NULL);
}

/* The slot that `now` falls into; of several, after the clock went back, the one that ends last.
 * -1: none. */
static int slot_at(const struct slot *slots, int64_t now_ms)
{
    int found = -1;
    for (int i = 0; i < INBOX_SLOTS; i++) {
        const struct slot *s = &slots[i];
        if (s->used && s->since_ms <= now_ms && now_ms < s->ends_ms &&
            (found < 0 || s->ends_ms > slots[found].ends_ms))
            found = i;
    }
    return found;
}

static int last_slot(const struct slot *slots)
{
    int last = -1;
    for (int i = 0; i < INBOX_SLOTS; i++) {
        if (slots[i].used && (last < 0 || slots[i].ends_ms > slots[last].ends_ms))
            last = i;
    }
    return last;
}

/* The free slot that follows `last` in the ring; -1: none. */
static int free_slot(const struct slot *slots, int last)
{
    for (int i = 1; i <= INBOX_SLOTS; i++) {
        int at = (last + i) % INBOX_SLOTS;
        if (!slots[at].used)
            return at;
    }
    return -1;
}

static enum err take_slot(struct tx *tx, const struct inbox_ring *r, struct slot *slots, int at,
                          int64_t now_ms)
{
    slots[at] = (struct slot){true, now_ms, now_ms + span_of(r), r->retention_ms};
    return tx_exec(
        tx, "INSERT INTO inbox_slots (slot, since, ends, keep) VALUES ($1, $2, $3, $4)",
        DB_ARGS(DB_I64(at), DB_I64(now_ms), DB_I64(slots[at].ends_ms), DB_I64(r->retention_ms)),
        NULL);
}

/* No slot is free: the last one goes on until one will be, by a span at most. */
static enum err extend_slot(struct tx *tx, const struct inbox_ring *r, struct slot *slots, int at,
                            int64_t now_ms)
{
    if (slots[at].ends_ms > now_ms) /* it begins later: the clock went back */
        return OK;
    int64_t wait_ms = INT64_MAX;
    for (int i = 0; i < INBOX_SLOTS; i++) {
        int64_t free_in_ms = slots[i].ends_ms + slots[i].keep_ms - now_ms;
        if (i != at && free_in_ms < wait_ms)
            wait_ms = free_in_ms;
    }
    if (wait_ms < LOOK_AGAIN_MS)
        wait_ms = LOOK_AGAIN_MS;
    if (wait_ms > span_of(r))
        wait_ms = span_of(r);
    slots[at].ends_ms = now_ms + wait_ms;
    return tx_exec(tx, "UPDATE inbox_slots SET ends = $2 WHERE slot = $1",
                   DB_ARGS(DB_I64(at), DB_I64(slots[at].ends_ms)), NULL);
}

enum err inbox_turn(struct tx *tx, struct inbox_ring *r, int64_t now_ms)
{
    if (r->ready && now_ms < r->present_until_ms)
        return OK;
    r->ready = false;
    struct slot slots[INBOX_SLOTS];
    enum err e = load(tx, slots);
    if (!e)
        e = raise_keep(tx, r, slots);
    if (e)
        return e;
    int at = slot_at(slots, now_ms);
    if (at < 0) {
        int last = last_slot(slots);
        at = free_slot(slots, last < 0 ? INBOX_SLOTS - 1 : last);
        if (at >= 0) {
            e = take_slot(tx, r, slots, at, now_ms);
        } else {
            at = last;
            e = extend_slot(tx, r, slots, at, now_ms);
        }
        if (e)
            return e;
    }
    r->present = at;
    r->present_until_ms = slots[at].ends_ms;
    r->ready = true;
    return OK;
}

/* ---- entries ---- */

static enum err add_counts(struct tx *tx, int slot, const char *consumer, int done, int unknown)
{
    return tx_exec(tx,
                   "INSERT INTO inbox_counts (slot, consumer, done, unknown) "
                   "VALUES ($1, $2, $3, $4) ON CONFLICT (slot, consumer) DO UPDATE SET "
                   "done = inbox_counts.done + excluded.done, "
                   "unknown = inbox_counts.unknown + excluded.unknown",
                   DB_ARGS(DB_I64(slot), DB_TEXT(str_of(consumer)), DB_I64(done), DB_I64(unknown)),
                   NULL);
}

/* Where the key is and in which state. *slot -1: nowhere. */
static enum err find(struct tx *tx, const char *consumer, const struct inbox_key *key, int *slot,
                     int64_t *state)
{
    *slot = -1;
    struct db_rows rows;
    enum err e = tx_query(tx, find_sql, DB_ARGS(KEY_ARGS(consumer, key)), &rows);
    if (e)
        return e;
    if (db_next(&rows)) {
        *slot = (int)db_i64(&rows, 0);
        *state = db_i64(&rows, 1);
    }
    return db_rows_done(&rows);
}

static enum err insert(struct tx *tx, const struct inbox_ring *r, const char *consumer,
                       const struct inbox_key *key, int64_t now_ms, bool *inserted)
{
    int64_t changed = 0;
    enum err e = tx_exec(tx, claim_sql[r->present],
                         DB_ARGS(KEY_ARGS(consumer, key), DB_I64(now_ms), DB_I64(r->retention_ms)),
                         &changed);
    *inserted = !e && changed == 1;
    return *inserted ? add_counts(tx, r->present, consumer, 0, 1) : e;
}

enum err inbox_claim(struct tx *tx, const struct inbox_ring *r, const char *consumer,
                     const struct inbox_key *key, int64_t now_ms, enum inbox_answer *answer)
{
    bool inserted = false;
    enum err e = r->ready ? insert(tx, r, consumer, key, now_ms, &inserted) : OK;
    if (!e && !inserted)
        e = inbox_look(tx, consumer, key, answer);
    else
        *answer = INBOX_NEW;
    if (e || inserted || *answer != INBOX_NEW)
        return e;
    /* Nothing is known of it, and still it was not taken: the ring in memory is not the one in the
     * tables (any more). */
    struct inbox_ring now;
    inbox_ring_init(&now, r->retention_ms);
    e = inbox_turn(tx, &now, now_ms);
    if (!e)
        e = insert(tx, &now, consumer, key, now_ms, &inserted);
    if (!e && !inserted)
        e = tx_fail(tx, ERR_INTERNAL, "no slot of the duplicate memory takes a claim");
    return e;
}

enum err inbox_look(struct tx *tx, const char *consumer, const struct inbox_key *key,
                    enum inbox_answer *answer)
{
    int slot;
    int64_t state = STATE_CLAIMED;
    enum err e = find(tx, consumer, key, &slot, &state);
    *answer = slot < 0 ? INBOX_NEW : state == STATE_DONE ? INBOX_DONE : INBOX_UNKNOWN;
    return e;
}

enum err inbox_confirm(struct tx *tx, const char *consumer, const struct inbox_key *key)
{
    int slot;
    int64_t state = STATE_CLAIMED;
    enum err e = find(tx, consumer, key, &slot, &state);
    if (e)
        return e;
    if (slot < 0)
        return ERR_NOT_FOUND;
    if (state == STATE_DONE)
        return OK;
    e = tx_exec(tx, confirm_sql[slot], DB_ARGS(KEY_ARGS(consumer, key)), NULL);
    return e ? e : add_counts(tx, slot, consumer, 1, -1);
}

enum err inbox_give_back(struct tx *tx, const char *consumer, const struct inbox_key *key)
{
    int slot;
    int64_t state = STATE_CLAIMED;
    enum err e = find(tx, consumer, key, &slot, &state);
    if (e || slot < 0)
        return e;
    if (state == STATE_DONE)
        return ERR_CONFLICT;
    e = tx_exec(tx, give_back_sql[slot], DB_ARGS(KEY_ARGS(consumer, key)), NULL);
    return e ? e : add_counts(tx, slot, consumer, 0, -1);
}

/* ---- forgetting ---- */

/* Removes the first `max` entries. *empty: nothing is left. */
static enum err empty_slot(struct tx *tx, int slot, size_t max, bool *empty)
{
    struct db_rows rows;
    *empty = false;
    enum err e = tx_query(tx, after_sql[slot], DB_ARGS(DB_I64(max)), &rows);
    if (e)
        return e;
    /* Copied: the DELETE must not run while the rows it reaches are being read. */
    char consumer[256];
    struct inbox_key key;
    struct str first = {0};
    bool more = db_next(&rows);
    if (more) {
        struct str text = db_text(&rows, 0), key_text = db_text(&rows, 1);
        CHECK(text.len <= sizeof consumer && key_text.len <= INBOX_KEY_MAX);
        memcpy(consumer, text.ptr, text.len);
        memcpy(key.text, key_text.ptr, key_text.len);
        first = (struct str){consumer, text.len};
        key.len = key_text.len;
    }
    e = db_rows_done(&rows);
    if (e)
        return e;
    *empty = !more;
    if (*empty)
        return tx_exec(tx, empty_sql[slot], DB_NO_ARGS, NULL);
    return tx_exec(tx, empty_to_sql[slot],
                   DB_ARGS(DB_TEXT(first), DB_TEXT(((struct str){key.text, key.len}))), NULL);
}

enum err inbox_forget(struct tx *tx, struct inbox_ring *r, int64_t now_ms, size_t max, bool *more)
{
    *more = false;
    struct slot slots[INBOX_SLOTS];
    enum err e = load(tx, slots);
    if (!e)
        e = raise_keep(tx, r, slots); /* never by a shorter retention than is in force */
    if (e)
        return e;
    int oldest = -1, over = 0;
    for (int i = 0; i < INBOX_SLOTS; i++) {
        const struct slot *s = &slots[i];
        if (!s->used || s->ends_ms + s->keep_ms > now_ms)
            continue;
        over++;
        if (oldest < 0 || s->ends_ms < slots[oldest].ends_ms)
            oldest = i;
    }
    if (over == 0)
        return OK;
    bool empty;
    e = empty_slot(tx, oldest, max ? max : 1, &empty);
    if (!e && empty)
        e = tx_exec(tx, "DELETE FROM inbox_counts WHERE slot = $1", DB_ARGS(DB_I64(oldest)), NULL);
    if (!e && empty)
        e = tx_exec(tx, "DELETE FROM inbox_slots WHERE slot = $1", DB_ARGS(DB_I64(oldest)), NULL);
    if (e)
        return e;
    if (empty && oldest == r->present)
        r->ready = false;
    *more = !empty || over > 1;
    return OK;
}

enum err inbox_counts(struct tx *tx, struct inbox_count *out, size_t max, size_t *n)
{
    struct db_rows rows;
    *n = 0;
    enum err e = tx_query(tx,
                          "SELECT consumer, SUM(done), SUM(unknown) FROM inbox_counts "
                          "GROUP BY consumer ORDER BY consumer LIMIT $1",
                          DB_ARGS(DB_I64(max)), &rows);
    if (e)
        return e;
    while (*n < max && db_next(&rows)) {
        struct inbox_count *c = &out[(*n)++];
        snprintf(c->consumer, sizeof c->consumer, "%.*s", STR_ARG(db_text(&rows, 0)));
        c->done = (uint64_t)db_i64(&rows, 1);
        c->unknown = (uint64_t)db_i64(&rows, 2);
    }
    return db_rows_done(&rows);
}

/* ---- is it long enough? ---- */

/* "14 days", in the largest unit that needs no fraction. */
static void write_span(struct buf *out, int64_t ms)
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
    buf_printf(out, "%" PRId64 " %s%s", n, units[u].name, n == 1 ? "" : "s");
}

static enum err refuse(char why[300], struct str text)
{
    memcpy(why, text.ptr, text.len);
    why[text.len] = '\0';
    return ERR_INVALID;
}

enum err inbox_check_retention(const struct rule *rules, size_t n, int64_t inbox_ms,
                               int64_t dead_ms, int64_t replay_ms, char why[300])
{
    why[0] = '\0';
    const char *consumer = NULL;
    for (size_t i = 0; i < n && !consumer; i++) {
        if (rules[i].inbox != INBOX_OFF)
            consumer = rules[i].consumer;
    }
    bool endless = consumer && dead_ms == 0;
    int64_t needed_ms = dead_ms > replay_ms ? dead_ms : replay_ms;
    if (inbox_ms >= needed_ms && !endless)
        return OK;

    char memory[299];
    struct buf text = buf_over(memory, sizeof memory);
    buf_str(&text, STR("the duplicate memory"));
    if (consumer)
        buf_printf(&text, " of consumer '%.40s'", consumer);
    buf_str(&text, STR(" (inbox-retention "));
    write_span(&text, inbox_ms);
    buf_str(&text, STR(") is shorter than "));
    if (inbox_ms >= needed_ms) {
        buf_str(&text, STR("dead letters are kept (retain-dead 0: until somebody decides): "
                           "re-driving one could repeat what was forgotten; "
                           "set retain-dead to at most "));
        write_span(&text, inbox_ms);
        return refuse(why, buf_view(&text));
    }
    bool replay = replay_ms == needed_ms;
    buf_str(&text, replay ? STR("the replay window (retain-events ")
                          : STR("dead letters are kept (retain-dead "));
    write_span(&text, needed_ms);
    buf_printf(&text, "): %s could repeat what was forgotten; set inbox-retention to at least ",
               replay ? "a replay" : "re-driving one");
    write_span(&text, needed_ms);
    return refuse(why, buf_view(&text));
}
