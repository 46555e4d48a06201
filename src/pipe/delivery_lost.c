/* Deliveries by the delivery store whose effect the views lost with their memory.
 *
 * After a restart the views come back as they were saved, at some position, and the relay delivers
 * later events again. But a retry may succeed, and a released event be delivered, long after its
 * own event lies below a saved position: then the save does not hold its effect, and the relay
 * would not deliver it again. So a row that such a success closes notes the watermark of that
 * moment in `due_at`, which a closed row does not need. Positions of saves are watermarks, too,
 * taken before the save begins, and they never fall: a note below the position that was loaded
 * means that the save began later and holds the effect. Any other is done once more, which is
 * harmless, because sinks into the views are idempotent.
 *
 * A closed row does not open: it makes room for a new one, as when it is recorded again. */
#include "base/check.h"
#include "pipe/delivery_ledger.h"

enum { LOST_SLICE = 64 };

/* As the index of late ones wants it; the sum keeps planners from the index by event, which leads
 * through all that ever was. */
#define LOST_WITH(state)                                                                           \
    "SELECT " STORED_COLUMNS " FROM deliveries WHERE state IN (5, 9) AND state = " state           \
    " AND due_at >= $1 AND event_id + 0 <= $1 ORDER BY due_at LIMIT 64"

static enum err forget_note(struct tx *tx, const struct stored *lost)
{
    return tx_exec(tx, "UPDATE deliveries SET due_at = 0 WHERE id = $1",
                   DB_ARGS(DB_I64(lost->entry.id)), NULL);
}

/* Positions in the walk are of another epoch (no views have epoch 0): it begins anew when it is
 * claimed. */
static enum err record_again(struct tx *tx, const struct stored *lost, int64_t now_ms)
{
    enum lane lane;
    if (lost->unread != EVENT_READ || !lane_parse(str_of(lost->entry.lane), &lane))
        return forget_note(tx, lost);
    struct delivery_record b = {.kind = RECORD_WAIT,
                                .event = lost->event,
                                .consumer = lost->entry.consumer,
                                .lane = lane,
                                .order_key = lost->entry.order_key,
                                .cursor = lost->cursor,
                                .replay = lost->replay,
                                .reason = "VIEWS_LOST_IT"};
    return delivery_store_write(tx, &b, 1, 0, now_ms);
}

/* The relay finds it as it found it when it was released. */
static enum err release_again(struct tx *tx, const struct stored *lost)
{
    int64_t there;
    enum err e = tx_get_i64(tx, "SELECT 1 FROM outbox WHERE id = $1",
                            DB_ARGS(DB_I64(lost->entry.event)), &there);
    if (e && e != ERR_NOT_FOUND)
        return e;
    bool archived = e == ERR_NOT_FOUND;
    TRY(ledger_unpark_event(tx, lost->entry.id));
    TRY(tx_exec(tx,
                "UPDATE event_counts SET count = count - 1 WHERE type = $1 "
                "AND (state = 'settled' OR (state = 'archived' AND $2 = 1))",
                DB_ARGS(DB_TEXT(str_of(lost->entry.type)), DB_I64(archived)), NULL));
    return forget_note(tx, lost);
}

enum err delivery_store_redo_lost(struct tx *tx, uint64_t position, int64_t now_ms, bool *more)
{
    struct stored lost[LOST_SLICE];
    size_t done, released;
    TRY(tx_get_rows(tx, LOST_WITH("5"), DB_ARGS(DB_I64(position)), stored_read, lost,
                    sizeof lost[0], LOST_SLICE, &done));
    for (size_t i = 0; i < done; i++)
        TRY(record_again(tx, &lost[i], now_ms));
    enum err e = tx_get_rows(tx, LOST_WITH("9"), DB_ARGS(DB_I64(position)), stored_read, lost,
                             sizeof lost[0], LOST_SLICE, &released);
    for (size_t i = 0; i < released && !e; i++)
        e = release_again(tx, &lost[i]);
    *more = done == LOST_SLICE || released == LOST_SLICE;
    return e;
}
