/* Writes the delivery store: the engine's reports of deliveries, one batch in one transaction.
 *
 * The usual case is a page that failed for the first time: one INSERT, which the unique index
 * `deliveries_what` turns into nothing when the page has a row already. Only then is that row read
 * and changed.
 *
 * A page that is recorded again, by the state of its row:
 *  - open: the row takes the new failure. Its tries never fall, and it reaches as far as either of
 *    the two did. A dead row stays dead: only an operator brings it back. A row that is being
 *    retried waits for the outcome of that try.
 *  - discarded, dropped: nothing. An operator decided, or the policy did, and a repetition after a
 *    restart does not undo that.
 *  - done: the failure counts. After a restart events are delivered again because the views lost
 *    what they held, so "it was done once" does not say that it is there now. The closed row does
 *    not open: it is removed, and the failure has a row of its own.
 *  - released: like done; an event that is again unreadable is parked again.
 *
 * Positions in a walk (`after`, `until`) belong to the views; the delivery store compares them for
 * being equal and never for which is further. So two reaches that differ become "to the end", which
 * at worst repeats what idempotent sinks recognise; and positions of another epoch are left as they
 * are until the row is claimed, when its part of the audience begins anew.
 *
 * A row named by its id is changed whatever page it stands at now. When it gets to a page where
 * another row stands, that one's reach is added to it, the other is done (it is covered), and the
 * two change places, so that no row is lost from the record. A late report on a row that is closed
 * or gone changes nothing. */
#include "pipe/delivery_store.h"

#include <stdio.h>

#include "base/check.h"
#include "base/id.h"
#include "pipe/delivery_ledger.h"

static const char *const state_names[DELIVERY_STATES] = {
    [DELIVERY_DELAYED] = "delayed",   [DELIVERY_RETRYING] = "retrying",
    [DELIVERY_WAITING] = "waiting",   [DELIVERY_DEAD] = "dead",
    [DELIVERY_DONE] = "done",         [DELIVERY_DISCARDED] = "discarded",
    [DELIVERY_DROPPED] = "dropped",   [DELIVERY_PARKED] = "parked",
    [DELIVERY_RELEASED] = "released",
};

const char *delivery_state_name(enum delivery_state state)
{
    CHECK(state >= DELIVERY_DELAYED && state < DELIVERY_STATES);
    return state_names[state];
}

bool delivery_state_parse(struct str name, enum delivery_state *state)
{
    for (int i = DELIVERY_DELAYED; i < DELIVERY_STATES; i++) {
        if (str_eq(name, str_of(state_names[i]))) {
            *state = (enum delivery_state)i;
            return true;
        }
    }
    return false;
}

/* ---- texts ---- */

/* Details come from other systems: what is not valid UTF-8 is not kept. */
static struct str detail_of(const struct delivery_record *b)
{
    return str_cut((struct str){b->detail, strnlen(b->detail, sizeof b->detail)}, sizeof b->detail);
}

/* The newest DELIVERY_HISTORY_TRIES - 1 lines of `old`, and one more. */
static struct str add_history(struct str old, int64_t now_ms, const char *reason,
                              char out[HISTORY_MAX])
{
    size_t lines = 0;
    size_t from = old.len;
    while (from > 0) {
        if (old.ptr[from - 1] == '\n' && ++lines == DELIVERY_HISTORY_TRIES)
            break;
        from--;
    }
    size_t kept = old.len - from;
    if (kept > HISTORY_MAX - HISTORY_LINE_MAX) /* not written by us */
        kept = 0;
    if (kept)
        memcpy(out, old.ptr + from, kept);
    int n = snprintf(out + kept, HISTORY_MAX - kept, "%lld %s\n", (long long)now_ms, reason);
    return (struct str){out, kept + (size_t)n};
}

/* ---- rows that are there ---- */

static uint64_t farther(uint64_t a, uint64_t b)
{
    return a == b ? a : 0;
}

/* Makes room for the row `s` at another page of its walk; the caller then writes it there. Adds the
 * reach of a row that stood there to *until. False in *may: a row with positions of another epoch
 * is in the way, so this row stays where it is. */
static enum err make_room(struct ledger *l, const struct stored *s, unsigned part, uint64_t after,
                          uint64_t epoch, uint64_t *until, bool *may)
{
    struct stored other;
    *may = true;
    if (part == (unsigned)s->cursor.part && after == s->cursor.after)
        return OK;
    enum err e =
        stored_find(l->tx, s->entry.event, s->entry.consumer, part, after, s->replay, &other);
    if (e)
        return e == ERR_NOT_FOUND ? OK : e;
    if (!state_is_closed(other.entry.state)) {
        if (other.epoch != epoch) {
            *may = false;
            return OK;
        }
        *until = farther(*until, other.until);
        e = ledger_change(l, &other.entry, (struct row_change){.to = DELIVERY_DONE});
        if (e)
            return e;
    }
    return stored_give_place(l->tx, s, other.entry.id);
}

/* ---- new rows ---- */

static void name_entry(const struct delivery_record *b, struct entry *e)
{
    CHECK(b->consumer && strlen(b->consumer) < sizeof e->consumer);
    e->event = b->event.id;
    e->order_key = b->order_key;
    str_copy(e->consumer, sizeof e->consumer, str_of(b->consumer));
    str_copy(e->type, sizeof e->type, str_of(event_wire_name(b->event.type)));
    str_copy(e->lane, sizeof e->lane, str_of(lane_name(b->lane)));
    str_copy(e->reason, sizeof e->reason, str_of(b->reason));
}

/* An event as its outbox row has it. */
struct written_event {
    struct str type;
    int64_t version;
    struct str payload;
};

/* *added is false when the page has a row. */
static enum err insert_event(struct ledger *l, const struct delivery_record *b,
                             struct written_event event, struct entry *entry, struct str history,
                             uint64_t epoch, bool *added)
{
    int64_t due_ms =
        entry->state == DELIVERY_DELAYED && b->kind == RECORD_FAIL ? b->due_ms : l->now_ms;
    int64_t changed;
    entry->id = id_next(l->tx->ids);
    TRY(tx_exec(
        l->tx,
        "INSERT INTO deliveries (id, event_id, type, version, payload, consumer, lane, order_key, "
        "part, active_since, started, after, until, epoch, state, tries, due_at, opened_at, "
        "changed_at, members, replay, reason, detail, history) VALUES ($1, $2, $3, $4, "
        "COALESCE((SELECT payload FROM outbox WHERE id = $2 AND version = $4), $5), "
        "$6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18, $18, 0, $19, $20, $21, $22) "
        "ON CONFLICT (event_id, consumer, part, after, replay) DO NOTHING",
        DB_ARGS(DB_I64(entry->id), DB_I64(entry->event), DB_TEXT(event.type), DB_I64(event.version),
                DB_TEXT(event.payload), DB_TEXT(str_of(entry->consumer)),
                DB_TEXT(str_of(entry->lane)), DB_I64(entry->order_key), DB_I64(b->cursor.part),
                DB_I64(b->cursor.active_since_ms), DB_I64(b->cursor.started_ms),
                DB_I64(b->cursor.after), DB_I64(b->until), DB_I64(epoch), DB_I64(entry->state),
                DB_I64(b->tries), DB_I64(due_ms), DB_I64(l->now_ms), DB_I64(b->replay),
                DB_TEXT(str_of(entry->reason)), DB_TEXT(detail_of(b)), DB_TEXT(history)),
        &changed));
    *added = changed == 1;
    return *added ? ledger_added(l, entry) : OK;
}

static enum err insert(struct ledger *l, const struct delivery_record *b, struct entry *entry,
                       struct str history, uint64_t epoch, bool *added)
{
    char memory[EVENT_PAYLOAD_MAX];
    struct buf payload = buf_over(memory, sizeof memory);
    event_payload(&b->event, &payload);
    CHECK(!payload.failed);
    struct written_event event = {str_of(entry->type), b->event.version, buf_view(&payload)};
    return insert_event(l, b, event, entry, history, epoch, added);
}

/* Inserts the row, or finds the one that its page has: then *there is true. */
static enum err insert_or_find(struct ledger *l, const struct delivery_record *b,
                               struct entry *entry, struct str history, uint64_t epoch,
                               struct stored *s, bool *there)
{
    bool added;
    *there = false;
    TRY(insert(l, b, entry, history, epoch, &added));
    if (added)
        return OK;
    enum err e =
        stored_find(l->tx, b->event.id, b->consumer, b->cursor.part, b->cursor.after, b->replay, s);
    if (e)
        return e == ERR_NOT_FOUND ? ERR_INTERNAL : e;
    if (s->entry.state != DELIVERY_DONE) {
        *there = true;
        return OK;
    }
    char memory[HISTORY_MAX];
    if (b->kind == RECORD_FAIL)
        history = add_history(str_of(s->history), l->now_ms, entry->reason, memory);
    else
        history = str_of(s->history);
    TRY(ledger_remove(l, &s->entry));
    TRY(insert(l, b, entry, history, epoch, &added));
    CHECK(added);
    return OK;
}

/* ---- failures ---- */

static enum err fail_row(struct ledger *l, const struct delivery_record *b, const struct stored *s,
                         uint64_t epoch)
{
    const struct entry *entry = &s->entry;
    if (!state_is_open(entry->state))
        return OK;
    bool dead = entry->state == DELIVERY_DEAD;
    bool under_way = entry->state == DELIVERY_RETRYING && b->delivery == 0;
    enum delivery_state state = dead || under_way ? entry->state : b->state;
    const char *reason = dead || under_way ? entry->reason : b->reason;
    struct audience_cursor at = s->cursor;
    uint64_t until = b->delivery ? s->until : farther(s->until, b->until);
    if (s->epoch == epoch) {
        bool may;
        enum err e = make_room(l, s, b->cursor.part, b->cursor.after, epoch, &until, &may);
        if (e)
            return e;
        if (may)
            at = b->cursor;
    }
    char memory[HISTORY_MAX];
    struct str history = add_history(str_of(s->history), l->now_ms, b->reason, memory);
    uint16_t tries = b->tries > s->tries ? b->tries : s->tries;
    /* An event that a restart delivers again is no try of its row: the row's own timer stands. */
    bool timed = under_way || (b->delivery == 0 && entry->state == DELIVERY_DELAYED);
    int64_t due_ms = timed ? s->due_ms : b->state == DELIVERY_DELAYED ? b->due_ms : l->now_ms;
    enum err e = tx_exec(
        l->tx,
        "UPDATE deliveries SET state = $2, tries = $3, due_at = $4, changed_at = $5, "
        "reason = $6, detail = $7, history = $8, part = $9, active_since = $10, started = $11, "
        "after = $12, until = $13 WHERE id = $1",
        DB_ARGS(DB_I64(entry->id), DB_I64(state), DB_I64(tries), DB_I64(due_ms), DB_I64(l->now_ms),
                DB_TEXT(str_of(reason)), DB_TEXT(detail_of(b)), DB_TEXT(history), DB_I64(at.part),
                DB_I64(at.active_since_ms), DB_I64(at.started_ms), DB_I64(at.after), DB_I64(until)),
        NULL);
    return e ? e : ledger_changed(l, entry, state, reason);
}

static void check_failure(const struct delivery_record *b)
{
    CHECK(b->reason && strlen(b->reason) < DELIVERY_REASON_MAX);
    CHECK(b->state == DELIVERY_DELAYED || b->state == DELIVERY_DEAD ||
          b->state == DELIVERY_DROPPED);
}

static enum err write_fail(struct ledger *l, const struct delivery_record *b, uint64_t epoch)
{
    struct stored s;
    char memory[HISTORY_MAX];
    struct str history = add_history(STR(""), l->now_ms, b->reason, memory);
    struct entry entry = {.state = b->state};
    bool there;
    name_entry(b, &entry);
    enum err e = insert_or_find(l, b, &entry, history, epoch, &s, &there);
    return e || !there ? e : fail_row(l, b, &s, epoch);
}

static enum err write_wait(struct ledger *l, const struct delivery_record *b, uint64_t epoch)
{
    struct entry entry = {.state = b->order_key ? DELIVERY_WAITING : DELIVERY_DELAYED};
    struct stored s;
    bool there;
    name_entry(b, &entry);
    TRY(insert_or_find(l, b, &entry, STR(""), epoch, &s, &there));
    if (!there || !state_is_open(s.entry.state) || farther(s.until, b->until) == s.until)
        return OK;
    return tx_exec(l->tx, "UPDATE deliveries SET until = 0 WHERE id = $1",
                   DB_ARGS(DB_I64(s.entry.id)), NULL);
}

/* ---- progress ---- */

/* A try that knew of a shorter reach than its row has now has done its part; the rest is due. */
static enum err write_rest(struct ledger *l, const struct delivery_record *b,
                           const struct stored *s, uint64_t epoch)
{
    bool may;
    uint64_t until = s->until;
    TRY(make_room(l, s, s->cursor.part, b->until, epoch, &until, &may));
    enum delivery_state state = s->entry.state == DELIVERY_DEAD ? DELIVERY_DEAD : DELIVERY_DELAYED;
    TRY(tx_exec(l->tx,
                "UPDATE deliveries SET state = $2, after = $3, until = $4, members = members + $5, "
                "due_at = $6, changed_at = $6 WHERE id = $1",
                DB_ARGS(DB_I64(s->entry.id), DB_I64(state),
                        DB_I64(may ? b->until : s->cursor.after), DB_I64(until), DB_I64(b->members),
                        DB_I64(l->now_ms)),
                NULL));
    return ledger_changed(l, &s->entry, state, s->entry.reason);
}

static enum err done_row(struct ledger *l, const struct delivery_record *b, const struct stored *s,
                         uint64_t epoch)
{
    if (b->until && b->until != s->until && s->epoch == epoch)
        return write_rest(l, b, s, epoch);
    return ledger_change(l, &s->entry,
                         (struct row_change){.to = DELIVERY_DONE,
                                             .members = b->members,
                                             .due_ms = (int64_t)b->watermark});
}

static enum err move_row(struct ledger *l, const struct delivery_record *b, const struct stored *s,
                         uint64_t epoch)
{
    if (s->epoch != epoch)
        return OK;
    bool may;
    uint64_t until = s->until;
    TRY(make_room(l, s, b->cursor.part, b->cursor.after, epoch, &until, &may));
    if (!may)
        return OK;
    return tx_exec(l->tx,
                   "UPDATE deliveries SET part = $2, active_since = $3, started = $4, after = $5, "
                   "until = $6, tries = 0, members = members + $7, changed_at = $8, due_at = "
                   "CASE WHEN state = 2 AND $9 > due_at THEN $9 ELSE due_at END WHERE id = $1",
                   DB_ARGS(DB_I64(s->entry.id), DB_I64(b->cursor.part),
                           DB_I64(b->cursor.active_since_ms), DB_I64(b->cursor.started_ms),
                           DB_I64(b->cursor.after), DB_I64(until), DB_I64(b->members),
                           DB_I64(l->now_ms), DB_I64(b->due_ms)),
                   NULL);
}

/* ---- parking ---- */

/* A settled event may turn out unreadable, too, when it is read again for the views' sake. */
static enum err park_in_outbox(struct ledger *l, uint64_t event, struct str type, int64_t state)
{
    enum err e =
        tx_exec(l->tx, "UPDATE outbox SET state = 2 WHERE id = $1", DB_ARGS(DB_I64(event)), NULL);
    return e || state != OUTBOX_SETTLED ? e : outbox_count(l->tx, type, "settled", -1);
}

static enum err write_park(struct ledger *l, const struct delivery_record *b, uint64_t epoch)
{
    CHECK(b->reason && strlen(b->reason) < DELIVERY_REASON_MAX);
    struct stored s;
    enum err e = stored_find(l->tx, b->event.id, "", 0, 0, 0, &s);
    if (e && e != ERR_NOT_FOUND)
        return e;
    if (!e && s.entry.state != DELIVERY_RELEASED)
        return OK;
    if (!e) {
        TRY(ledger_remove(l, &s.entry));
    }
    struct db_rows rows =
        tx_rows(l->tx, "SELECT type, version, payload, state FROM outbox WHERE id = $1",
                DB_ARGS(DB_I64(b->event.id)));
    if (db_next(&rows)) {
        struct entry entry = {.event = b->event.id, .state = DELIVERY_PARKED};
        struct str type = db_text(&rows, 0);
        str_copy(entry.type, sizeof entry.type, type);
        str_copy(entry.reason, sizeof entry.reason, str_of(b->reason));
        struct delivery_record parked = {.kind = RECORD_PARK};
        memcpy(parked.detail, b->detail, sizeof parked.detail);
        bool added;
        e = insert_event(l, &parked,
                         (struct written_event){type, db_i64(&rows, 1), db_text(&rows, 2)}, &entry,
                         STR(""), epoch, &added);
        if (!e)
            e = park_in_outbox(l, b->event.id, type, db_i64(&rows, 3));
    }
    enum err closed = db_rows_done(&rows);
    return e ? e : closed;
}

/* ---- released events ---- */

static enum err write_settled(struct ledger *l, const struct delivery_record *b)
{
    TRY(ledger_settle_event(l, b->event.id, OUTBOX_PENDING));
    if (b->watermark == 0)
        return OK;
    return tx_exec(l->tx,
                   "UPDATE deliveries SET due_at = $2 "
                   "WHERE event_id = $1 AND consumer = '' AND state = 9",
                   DB_ARGS(DB_I64(b->event.id), DB_I64(b->watermark)), NULL);
}

/* ---- the batch ---- */

/* Of a row that is there. One that is closed or gone has no use for it any more. */
static enum err write_known(struct ledger *l, const struct delivery_record *b, uint64_t epoch)
{
    CHECK(b->delivery);
    struct stored s;
    enum err e = tx_get_row(l->tx, "SELECT " STORED_COLUMNS " FROM deliveries WHERE id = $1",
                            DB_ARGS(DB_I64(b->delivery)), stored_read, &s);
    if (e || !state_is_open(s.entry.state))
        return e == ERR_NOT_FOUND ? OK : e;
    return b->kind == RECORD_DONE   ? done_row(l, b, &s, epoch)
           : b->kind == RECORD_MOVE ? move_row(l, b, &s, epoch)
                                    : fail_row(l, b, &s, epoch);
}

static enum err write_one(struct ledger *l, const struct delivery_record *b, uint64_t epoch)
{
    switch (b->kind) {
    case RECORD_FAIL:
        check_failure(b);
        return b->delivery ? write_known(l, b, epoch) : write_fail(l, b, epoch);
    case RECORD_WAIT:
        return write_wait(l, b, epoch);
    case RECORD_PARK:
        return write_park(l, b, epoch);
    case RECORD_DONE:
    case RECORD_MOVE:
        return write_known(l, b, epoch);
    case RECORD_SETTLE:
        return write_settled(l, b);
    }
    return ERR_INTERNAL;
}

static enum err find_free_keys(struct tx *tx, struct delivery_record *records, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        struct delivery_record *b = &records[i];
        b->key_is_free = false;
        if (b->order_key == 0)
            continue;
        bool open;
        TRY(ledger_key_is_open(tx, lane_name(b->lane), b->order_key, &open));
        b->key_is_free = !open;
    }
    return OK;
}

enum err delivery_store_write(struct tx *tx, struct delivery_record *records, size_t n,
                              uint64_t epoch, int64_t now_ms)
{
    struct ledger l;
    enum err e = OK;
    ledger_begin(&l, tx, now_ms);
    for (size_t i = 0; i < n && !e; i++)
        e = write_one(&l, &records[i], epoch);
    if (!e)
        e = ledger_end(&l);
    return e ? e : find_free_keys(tx, records, n);
}
