/* A group's log: taking the next number, and reading by number.
 *
 * The group's row is the sequencer. Its UPDATE comes first in every transaction that appends, so
 * that those of one group stand in line there and nowhere else, and the entry goes in behind it in
 * the same transaction. Numbers have no gaps, which reading relies on: a page of the last fifty is
 * a range whose ends are known, and "is there more" is a comparison.
 *
 * An edit's entry has no text of its own. It shows the message's as it is now, so a deletion erases
 * one row however often the message was edited, and no reader can find an earlier text. What a
 * reader may not have seen stays out of it: the text of a message from before they joined, and what
 * was edited after they left. */
#include "base/id.h"
#include "model/group.h"

#define LOG_COLUMNS                                                                                \
    "l.seq, l.kind, l.author_id, l.client_id, l.body, l.target_seq, l.subject_id, l.created_at, "  \
    "l.edited_at, l.edited_seq, l.deleted_at, t.body, t.edited_seq, t.deleted_at"
#define LOG_RANGE                                                                                  \
    "SELECT " LOG_COLUMNS " FROM group_log l LEFT JOIN group_log t "                               \
    "ON t.group_id = l.group_id AND t.seq = l.target_seq "                                         \
    "WHERE l.group_id = $1 AND l.seq > $2 AND l.seq <= $3 "

static const char *const kind_names[] = {
    [ENTRY_MESSAGE] = "message",       [ENTRY_EDIT] = "edit", [ENTRY_DELETE] = "delete",
    [ENTRY_MODERATION] = "moderation", [ENTRY_JOIN] = "join", [ENTRY_LEAVE] = "leave",
    [ENTRY_RENAME] = "rename",         [ENTRY_ROLE] = "role", [ENTRY_HISTORY] = "history",
};

const char *group_entry_kind_name(enum group_entry_kind kind)
{
    return kind_names[kind];
}

/* ---- appending ---- */

static struct db_value number_or_null(uint64_t n)
{
    return n ? DB_I64(n) : DB_NULL;
}

static enum err write_entry(struct tx *tx, const struct group_append *in,
                            const struct group_appended *at)
{
    TRY(tx_exec(tx,
                "INSERT INTO group_log (group_id, seq, kind, author_id, body, target_seq, "
                "subject_id, messages, created_at) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9)",
                DB_ARGS(DB_I64(in->group), DB_I64(at->seq), DB_I64(in->kind), DB_I64(in->author),
                        DB_TEXT_OR_NULL(in->body), number_or_null((uint64_t)in->target_seq),
                        number_or_null(in->subject), DB_I64(at->messages), DB_I64(at->at_ms)),
                NULL));
    enum event_type type = in->kind == ENTRY_JOIN    ? EVENT_GROUP_JOINED
                           : in->kind == ENTRY_LEAVE ? EVENT_GROUP_LEFT
                                                     : EVENT_GROUP_ENTRY;
    bool about_subject = type != EVENT_GROUP_ENTRY;
    return outbox_emit(tx, (struct event){.id = at->event,
                                          .type = type,
                                          .actor = in->group,
                                          .subject = type == EVENT_GROUP_LEFT ? in->subject : 0,
                                          .object = about_subject ? in->subject : in->author,
                                          .value = at->seq});
}

enum err group_append(struct tx *tx, const struct group_append *in, struct group_appended *out)
{
    static const struct db_update append =
        DB_UPDATE("groups", "seq = seq + 1, member_count = member_count + $2", "", "seq, messages");
    int64_t row[2];
    enum err e =
        tx_update_numbers(tx, &append, DB_ARGS(DB_I64(in->group), DB_I64(in->members)), row, 2);
    if (e)
        return e == ERR_NOT_FOUND ? tx_fail(tx, e, "no such group") : e;
    out->seq = row[0];
    out->messages = row[1];
    out->at_ms = clock_wall_ms(tx->ids->clock);
    out->event = id_next(tx->ids);
    return write_entry(tx, in, out);
}

enum err group_first_member(struct tx *tx, uint64_t group, uint64_t account, enum group_role role,
                            uint64_t author, int64_t seq, int64_t now_ms)
{
    struct group_append join = {
        .group = group, .author = author, .kind = ENTRY_JOIN, .subject = account};
    struct group_appended at = {.seq = seq, .at_ms = now_ms, .event = id_next(tx->ids)};
    TRY(tx_exec(
        tx,
        "INSERT INTO group_members (group_id, account_id, role, joined_seq, "
        "joined_id, read_seq, read_count) VALUES ($1, $2, $3, $4, $5, $4, 0)",
        DB_ARGS(DB_I64(group), DB_I64(account), DB_I64(role), DB_I64(seq), DB_I64(at.event)),
        NULL));
    return write_entry(tx, &join, &at);
}

/* ---- reading ---- */

/* What the reader may see: entries from `first` to `last`. */
struct bounds {
    int64_t first, last;
};

static struct bounds bounds_of(const struct group *g)
{
    return (struct bounds){
        .first = g->history == GROUP_HISTORY_ALL ? 1 : g->joined_seq,
        .last = g->left_seq ? g->left_seq : g->seq,
    };
}

static void read_entry(struct db_rows *rows, uint64_t group, const struct bounds *seen,
                       struct group_entry *out)
{
    *out = (struct group_entry){
        .group = group,
        .seq = db_i64(rows, 0),
        .kind = (enum group_entry_kind)db_i64(rows, 1),
        .author = db_id(rows, 2),
        .client_id = db_text(rows, 3),
        .body = db_text(rows, 4),
        .target_seq = db_i64(rows, 5),
        .subject = db_id(rows, 6),
        .created_at_ms = db_i64(rows, 7),
        .edited_at_ms = db_i64(rows, 8),
        .deleted = !db_is_null(rows, 10),
    };
    int64_t edited_seq = db_i64(rows, 9);
    if (out->kind == ENTRY_EDIT) {
        out->body = db_text(rows, 11);
        out->deleted = !db_is_null(rows, 13);
        edited_seq = db_i64(rows, 12);
    }
    bool before_joining = out->kind == ENTRY_EDIT && out->target_seq < seen->first;
    if (before_joining || edited_seq > seen->last)
        out->body = (struct str){NULL, 0};
}

/* At most this much text on a page, or one entry: the server holds the pages of slow readers. */
enum { PAGE_TEXT_MAX = 512 * 1024 };

/* Entries above `above` up to `last`, from the end that is asked for, as far as a page goes. */
static enum err read_range(struct tx *tx, uint64_t group, const struct bounds *seen, int64_t above,
                           int64_t last, bool forward, struct arena *arena,
                           struct group_entry *entries, size_t *n)
{
    size_t room = (size_t)(last - above), text = 0;
    *n = 0;
    struct db_rows rows =
        tx_rows(tx, forward ? LOG_RANGE "ORDER BY l.seq" : LOG_RANGE "ORDER BY l.seq DESC",
                DB_ARGS(DB_I64(group), DB_I64(above), DB_I64(last)));
    while (*n < room && db_next(&rows)) {
        struct group_entry *entry = &entries[*n];
        read_entry(&rows, group, seen, entry);
        text += entry->body.len;
        if (*n > 0 && text > PAGE_TEXT_MAX)
            break;
        entry->body = arena_str_or_null(arena, entry->body);
        entry->client_id = arena_str_or_null(arena, entry->client_id);
        (*n)++;
    }
    return db_rows_done(&rows);
}

static void reverse(struct group_entry *entries, size_t n)
{
    for (size_t i = 0; i < n / 2; i++) {
        struct group_entry swapped = entries[i];
        entries[i] = entries[n - 1 - i];
        entries[n - 1 - i] = swapped;
    }
}

enum err group_log_read(struct tx *tx, uint64_t group, uint64_t reader,
                        const struct log_range *range, struct arena *arena, struct log_page *out)
{
    struct group g;
    *out = (struct log_page){0};
    TRY(group_get_or_left(tx, group, reader, arena, &g));
    struct bounds seen = bounds_of(&g);
    bool forward = range->after >= 0;
    int64_t limit = (int64_t)range->limit;
    int64_t last = seen.last, above = seen.first - 1; /* above < seq ≤ last */
    if (forward) {
        above = range->after > above ? range->after : above;
        last = last - above > limit ? above + limit : last;
    } else {
        last = range->before <= last ? range->before - 1 : last;
        above = last - above > limit ? last - limit : above;
    }
    if (last <= above)
        return OK;
    out->entries = ARENA_ARRAY(arena, struct group_entry, (size_t)(last - above));
    TRY(read_range(tx, group, &seen, above, last, forward, arena, out->entries, &out->count));
    if (out->count == 0)
        return OK;
    int64_t n = (int64_t)out->count; /* it may have ended before its limit */
    if (forward) {
        out->next = above + n < seen.last ? above + n : 0;
    } else {
        reverse(out->entries, out->count);
        out->next = last - n + 1 > seen.first ? last - n + 1 : 0;
    }
    return OK;
}

enum err message_again(struct tx *tx, uint64_t group, int64_t seq, uint64_t author,
                       struct arena *arena, struct group_entry *out)
{
    struct db_rows rows = tx_rows(tx,
                                  "SELECT " LOG_COLUMNS " FROM group_log l LEFT JOIN group_log t "
                                  "ON t.group_id = l.group_id AND t.seq = l.target_seq "
                                  "WHERE l.group_id = $1 AND l.seq = $2 AND l.author_id = $3 "
                                  "AND l.kind = 0",
                                  DB_ARGS(DB_I64(group), DB_I64(seq), DB_I64(author)));
    bool found = db_next(&rows);
    if (found) {
        read_entry(&rows, group, &(struct bounds){1, INT64_MAX}, out);
        out->body = arena_str_or_null(arena, out->body);
        out->client_id = arena_str_or_null(arena, out->client_id);
    }
    TRY(db_rows_done(&rows));
    return found ? OK : tx_fail(tx, ERR_NOT_FOUND, "no such message");
}
