/* Erasing, in bounded slices, so that the embedded writer is never held for long.
 *
 * Messages lie by group and number, and no index finds those of one author: it would cost every
 * message that is sent. So the deletion of an account notes the groups in which it was, and each
 * slice walks some numbers of one of them; the note knows how far. A message that is erased is like
 * one that its author deleted, without an entry of its own in the log: its number stays, and
 * readers find no text. The caches of this process forget what they show of the group.
 *
 * A deleted post keeps its row, which says that the id is gone; its text and its earlier versions
 * go. A deleted comment counts for nothing any more: its row goes. */
#include "model/erase.h"

#include "base/id.h"
#include "base/log.h"
#include "port/event.h"

enum {
    NUMBERS_A_SLICE = 5000,
    ROWS_A_SLICE = 200,
    EVERY_MS = 60 * 1000,
    OFTEN_MS = 1000, /* when the retention is shorter than that */
    SLICE_PAUSE_MS = 10,
};

/* ---- messages ---- */

enum err erase_messages_later(struct tx *tx, uint64_t account)
{
    return tx_exec(tx,
                   "INSERT INTO erasures (account_id, group_id) "
                   "SELECT account_id, group_id FROM group_members "
                   "WHERE account_id = $1 AND left_seq IS NULL UNION ALL "
                   "SELECT account_id, group_id FROM group_members "
                   "WHERE account_id = $1 AND left_seq IS NOT NULL "
                   "ON CONFLICT (account_id, group_id) DO NOTHING",
                   DB_ARGS(DB_I64(account)), NULL);
}

static enum err erase_numbers(struct tx *tx, uint64_t account, uint64_t group, int64_t after,
                              int64_t through)
{
    int64_t now_ms = clock_wall_ms(tx->ids->clock), changed = 0;
    TRY(tx_exec(tx,
                "DELETE FROM group_mentions WHERE group_id = $1 AND seq IN "
                "(SELECT seq FROM group_log WHERE group_id = $1 AND seq > $2 AND seq <= $3 "
                "AND author_id = $4 AND kind = 0)",
                DB_ARGS(DB_I64(group), DB_I64(after), DB_I64(through), DB_I64(account)), NULL));
    TRY(tx_exec(
        tx,
        "UPDATE group_log SET body = NULL, sent_hash = NULL, client_id = NULL, "
        "deleted_at = $5 WHERE group_id = $1 AND seq > $2 AND seq <= $3 "
        "AND author_id = $4 AND kind = 0 AND body IS NOT NULL",
        DB_ARGS(DB_I64(group), DB_I64(after), DB_I64(through), DB_I64(account), DB_I64(now_ms)),
        &changed));
    if (changed == 0)
        return OK;
    return outbox_emit(tx, (struct event){.type = EVENT_GROUP_UPDATED, .actor = group});
}

static enum err move_on(struct tx *tx, uint64_t account, uint64_t group, int64_t through,
                        int64_t last)
{
    if (through >= last)
        return tx_exec(tx, "DELETE FROM erasures WHERE account_id = $1 AND group_id = $2",
                       DB_ARGS(DB_I64(account), DB_I64(group)), NULL);
    return tx_exec(tx, "UPDATE erasures SET after_seq = $3 WHERE account_id = $1 AND group_id = $2",
                   DB_ARGS(DB_I64(account), DB_I64(group), DB_I64(through)), NULL);
}

enum err erase_messages_slice(struct tx *tx, uint64_t account, bool erase, bool *more)
{
    int64_t row[3]; /* group, how far, its last number */
    enum err e = tx_get_numbers(tx,
                                "SELECT e.group_id, e.after_seq, g.seq FROM erasures e "
                                "JOIN groups g ON g.id = e.group_id "
                                "WHERE e.account_id = $1 ORDER BY e.group_id LIMIT 1",
                                DB_ARGS(DB_I64(account)), row, 3);
    *more = !e;
    if (e)
        return e == ERR_NOT_FOUND ? OK : e;
    int64_t through = erase ? row[1] + NUMBERS_A_SLICE : row[2];
    if (erase)
        TRY(erase_numbers(tx, account, (uint64_t)row[0], row[1], through));
    return move_on(tx, account, (uint64_t)row[0], through, row[2]);
}

/* ---- what was deleted long ago ---- */

struct erasing {
    int64_t before_ms;
    bool more;
};

static enum err erase_posts(struct tx *tx, struct erasing *e)
{
    uint64_t ids[ROWS_A_SLICE];
    size_t n = 0;
    TRY(tx_get_ids(tx,
                   "SELECT id FROM posts WHERE deleted_at IS NOT NULL AND caption <> '' "
                   "AND deleted_at <= $1 ORDER BY deleted_at LIMIT $2",
                   DB_ARGS(DB_I64(e->before_ms), DB_I64(ROWS_A_SLICE)), ids, ROWS_A_SLICE, &n));
    e->more |= n == ROWS_A_SLICE;
    if (n == 0)
        return OK;
    TRY(tx_exec(tx, "DELETE FROM post_versions WHERE post_id IN (SELECT id FROM ids($1))",
                DB_ARGS(DB_IDS(ids, n)), NULL));
    return tx_exec(tx, "UPDATE posts SET caption = '' WHERE id IN (SELECT id FROM ids($1))",
                   DB_ARGS(DB_IDS(ids, n)), NULL);
}

static enum err erase_comments(struct tx *tx, struct erasing *e)
{
    int64_t removed = 0;
    TRY(tx_exec(tx,
                "DELETE FROM comments WHERE id IN (SELECT id FROM comments "
                "WHERE deleted_at IS NOT NULL AND deleted_at <= $1 ORDER BY deleted_at LIMIT $2)",
                DB_ARGS(DB_I64(e->before_ms), DB_I64(ROWS_A_SLICE)), &removed));
    e->more |= removed == ROWS_A_SLICE;
    return OK;
}

static enum err erase_some(struct tx *tx, void *arg)
{
    struct erasing *e = arg;
    e->more = false;
    TRY(erase_posts(tx, e));
    return erase_comments(tx, e);
}

int64_t erase_deleted_step(struct db *db, struct clock *clock, int64_t retention_ms)
{
    struct erasing erasing = {.before_ms = clock_wall_ms(clock) - retention_ms};
    enum err e = db_write(db, erase_some, &erasing, NULL);
    if (e && e != ERR_STOPPING)
        log_warn("deleted posts and comments could not be erased; it is tried again",
                 LOG_CSTR("error", err_name(e)));
    int64_t pause_ms = !e && erasing.more        ? SLICE_PAUSE_MS
                       : retention_ms < EVERY_MS ? OFTEN_MS
                                                 : EVERY_MS;
    return clock_mono_us(clock) + pause_ms * 1000;
}
