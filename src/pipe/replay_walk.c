/* The walk through the outbox.
 *
 * Rows are read by id and chosen here, not by the statement: a LIMIT bounds the rows that match,
 * and a rare type would make one statement walk the whole table. The dead letters' part of the
 * choice is made by the statement, one probe of an index for each row.
 *
 * An event that no rule of the consumer wants is none of this replay's business and is counted
 * nowhere. A row that cannot be read matches by its type's name alone. */
#include "pipe/replay_walk.h"

#include "base/check.h"

static bool is_any(const char *text)
{
    return text[0] == '\0';
}

/* The rules of the consumer on events of this type; with an event only those that want it. */
static uint32_t rules_of(const struct replay_spec *spec, const struct rule *rules, size_t n,
                         enum event_type type, const struct event *e)
{
    uint32_t mask = 0;
    unsigned ordinal = 0;
    for (size_t i = 0; i < n; i++) {
        const struct rule *rule = &rules[i];
        if (rule->on != type)
            continue;
        CHECK(ordinal < 32);
        if (str_eq(str_of(rule->consumer), str_of(spec->consumer)) &&
            (!e || !rule->wants || rule->wants(e)))
            mask |= UINT32_C(1) << ordinal;
        ordinal++;
    }
    return mask;
}

struct outbox_row {
    uint64_t id;
    struct str type, payload;
    int64_t version, state;
};

/* False: it is not meant. */
static bool choose(const struct replay_spec *spec, const struct rule *rules, size_t n,
                   const struct outbox_row *row, struct replay_found *out)
{
    enum { PENDING = 0, SETTLED = 1 };
    enum event_type type;
    if (!event_type_parse(row->type, &type) || !rules_of(spec, rules, n, type, NULL))
        return false;
    if (!is_any(spec->type) && !str_eq(row->type, str_of(spec->type)))
        return false;
    *out = (struct replay_found){.kind = row->state == SETTLED ? REPLAY_SETTLED : REPLAY_UNDONE,
                                 .pending = row->state == PENDING};
    out->why = event_read(row->id, row->type, row->version, row->payload, &out->event);
    if (out->why != EVENT_READ) {
        out->kind = REPLAY_UNREADABLE;
        out->event.id = row->id;
        return row->state == SETTLED; /* otherwise the engine parks it, or has done so */
    }
    if (spec->key != 0 && out->event.actor != spec->key)
        return false;
    out->rule_mask = rules_of(spec, rules, n, type, &out->event);
    return out->rule_mask != 0;
}

static enum err query(struct tx *tx, const struct replay_spec *spec, uint64_t after, uint64_t last,
                      size_t max, struct db_rows *rows)
{
    if (is_any(spec->dead_reason))
        return tx_query(tx,
                        "SELECT id, type, version, payload, state, 1 FROM outbox "
                        "WHERE id > $1 AND id <= $2 ORDER BY id LIMIT $3",
                        DB_ARGS(DB_I64(after), DB_I64(last), DB_I64(max)), rows);
    return tx_query(tx,
                    "SELECT id, type, version, payload, state, CASE WHEN EXISTS ("
                    "SELECT 1 FROM deliveries d WHERE d.event_id = o.id AND d.consumer = $4 "
                    "AND d.state = 4 AND ($5 = '*' OR d.reason = $5)) THEN 1 ELSE 0 END "
                    "FROM outbox o WHERE id > $1 AND id <= $2 ORDER BY id LIMIT $3",
                    DB_ARGS(DB_I64(after), DB_I64(last), DB_I64(max),
                            DB_TEXT(str_of(spec->consumer)), DB_TEXT(str_of(spec->dead_reason))),
                    rows);
}

enum err replay_walk(struct tx *tx, const struct replay_spec *spec, const struct rule *rules,
                     size_t n, uint64_t after, uint64_t last, struct replay_found *out, size_t max,
                     size_t *count, uint64_t *reached, bool *end)
{
    struct db_rows rows;
    size_t looked = 0;
    *count = 0;
    *reached = after;
    *end = false;
    TRY(query(tx, spec, after, last, max, &rows));
    for (; looked < max && db_next(&rows); looked++) {
        const struct outbox_row row = {.id = db_id(&rows, 0),
                                       .type = db_text(&rows, 1),
                                       .version = db_i64(&rows, 2),
                                       .payload = db_text(&rows, 3),
                                       .state = db_i64(&rows, 4)};
        if (db_i64(&rows, 5) != 0 && choose(spec, rules, n, &row, &out[*count]))
            (*count)++;
        *reached = row.id;
    }
    enum err e = db_rows_done(&rows);
    *end = !e && looked < max;
    if (*end && last > after)
        *reached = last;
    return e;
}

bool replay_allows(const struct replay_spec *spec, const struct rule *rule)
{
    if (rule->effect != EFFECT_OUTSIDE)
        return true;
    for (size_t i = 0; i < spec->allow_count; i++) {
        if (str_eq(str_of(rule->channel), str_of(spec->allow[i])))
            return true;
    }
    return false;
}
