/* Reads and names the state of one event.
 *
 * Memory is asked first: whatever leaves it meanwhile is settled or in the delivery store, and
 * those are read after it. */
#include "pipe/event_state.h"

#include <string.h>

#include "base/check.h"

enum { DELIVERIES_LOOKED_AT = 1000, EVENTS_LOOKED_AT = 200 };

const char *event_state_name(enum event_state state)
{
    static const char *const names[] = {
        [EVENT_IS_UNKNOWN] = NULL,          [EVENT_IS_DEAD] = "dead",
        [EVENT_IS_PARKED] = "parked",       [EVENT_IS_DELAYED] = "delayed",
        [EVENT_IS_WAITING] = "waiting",     [EVENT_IS_PENDING] = "pending",
        [EVENT_IS_PUBLISHED] = "published", [EVENT_IS_EXPANDED] = "expanded",
        [EVENT_IS_DONE] = "done",           [EVENT_IS_ARCHIVED] = "archived",
    };
    CHECK((size_t)state < COUNT_OF(names));
    return names[state];
}

static enum event_state state_by_stage(enum event_stage stage)
{
    static const enum event_state states[] = {
        [STAGE_UNKNOWN] = EVENT_IS_UNKNOWN,
        [STAGE_PENDING] = EVENT_IS_PENDING,
        [STAGE_PUBLISHED] = EVENT_IS_PUBLISHED,
        [STAGE_EXPANDED] = EVENT_IS_EXPANDED,
    };
    return states[stage];
}

enum event_state event_state_of(const struct event_evidence *s)
{
    if (s->has[DELIVERY_DEAD])
        return EVENT_IS_DEAD;
    if (s->has[DELIVERY_PARKED] || (s->has_row && s->row == OUTBOX_PARKED))
        return EVENT_IS_PARKED;
    if (s->has[DELIVERY_DELAYED] || s->has[DELIVERY_RETRYING])
        return EVENT_IS_DELAYED;
    if (s->has[DELIVERY_WAITING])
        return EVENT_IS_WAITING;
    if (s->stage != STAGE_UNKNOWN)
        return state_by_stage(s->stage);
    /* Rows learn that they are settled a moment after the engine knows; one that was released is
     * below the watermark and yet to be delivered. */
    bool settled = s->below_watermark && !s->has[DELIVERY_RELEASED];
    if (s->has_row && s->row == OUTBOX_PENDING && !settled)
        return EVENT_IS_PENDING;
    if (s->has_row)
        return EVENT_IS_DONE;
    return s->remembered ? EVENT_IS_ARCHIVED : EVENT_IS_UNKNOWN;
}

/* ---- finding it ---- */

static enum err find_among(struct db_rows rows,
                           bool (*is_it)(const void *ctx, const struct event *e), const void *ctx,
                           uint64_t *found)
{
    while (!*found && db_next(&rows)) {
        struct event event;
        if (event_read(db_id(&rows, 0), db_text(&rows, 1), db_i64(&rows, 2), db_text(&rows, 3),
                       &event) == EVENT_READ &&
            is_it(ctx, &event))
            *found = event.id;
    }
    return db_rows_done(&rows);
}

enum err event_find(struct tx *tx, uint64_t after,
                    bool (*is_it)(const void *ctx, const struct event *e), const void *ctx,
                    uint64_t *found)
{
    *found = 0;
    TRY(find_among(
        tx_rows(tx,
                "SELECT id, type, version, payload FROM outbox WHERE id > $1 ORDER BY id LIMIT $2",
                DB_ARGS(DB_I64(after), DB_I64(EVENTS_LOOKED_AT))),
        is_it, ctx, found));
    if (*found)
        return OK;
    return find_among(tx_rows(tx,
                              "SELECT event_id, type, version, payload FROM deliveries "
                              "WHERE event_id > $1 ORDER BY event_id LIMIT $2",
                              DB_ARGS(DB_I64(after), DB_I64(EVENTS_LOOKED_AT))),
                      is_it, ctx, found);
}

/* ---- what holds it up ---- */

struct gathering {
    struct engine *engine;
    struct event_standing *out;
    struct event_evidence evidence;
    uint64_t order_key;
    char lane[16];
};

/* How much a delivery in this state tells; 0: it holds nothing up. */
static int weight_of(enum delivery_state state)
{
    static const int weights[DELIVERY_STATES] = {[DELIVERY_DEAD] = 4,
                                                 [DELIVERY_PARKED] = 3,
                                                 [DELIVERY_DELAYED] = 2,
                                                 [DELIVERY_RETRYING] = 2,
                                                 [DELIVERY_WAITING] = 1};
    return weights[state];
}

/* An event that could not be read has one row, of no consumer. */
static bool is_for_views(const struct engine *g, const struct delivery_row *row)
{
    size_t n;
    const struct rule *rules = engine_rules((struct engine *)g, &n);
    for (size_t i = 0; i < n; i++) {
        if (rules[i].effect == EFFECT_VIEWS && str_eq(row->consumer, str_of(rules[i].consumer)) &&
            str_eq(row->type, str_of(event_wire_name(rules[i].on))))
            return true;
    }
    return row->consumer.len == 0;
}

static void visit(void *ctx, const struct delivery_row *row)
{
    struct gathering *a = ctx;
    struct event_standing *out = a->out;
    if (!is_for_views(a->engine, row))
        return;
    a->evidence.has[row->state] = true;
    a->evidence.remembered = true;
    if (weight_of(row->state) <= (out->delivery ? weight_of(out->delivery_state) : 0))
        return;
    out->delivery = row->delivery;
    out->delivery_state = row->state;
    out->due_ms = row->due_ms;
    str_copy(out->consumer, sizeof out->consumer, row->consumer);
    str_copy(out->reason, sizeof out->reason, row->reason);
    str_copy(out->detail, sizeof out->detail, str_cut(row->detail, sizeof out->detail));
    a->order_key = row->order_key;
    str_copy(a->lane, sizeof a->lane, row->lane);
}

static enum err read_row(struct tx *tx, uint64_t event, struct event_evidence *evidence)
{
    int64_t state;
    enum err e =
        tx_get_i64(tx, "SELECT state FROM outbox WHERE id = $1", DB_ARGS(DB_I64(event)), &state);
    evidence->has_row = !e;
    evidence->row = e ? OUTBOX_PENDING : (enum outbox_state)state;
    return e == ERR_NOT_FOUND ? OK : e;
}

enum err event_standing_read(struct tx *tx, struct engine *g, uint64_t event,
                             struct event_standing *out)
{
    struct event_look look;
    *out = (struct event_standing){.event = event};
    struct gathering a = {.engine = g, .out = out};
    engine_look(g, event, &look);
    a.evidence.stage = look.stage;
    a.evidence.below_watermark = event <= engine_settled_through(g);
    TRY(read_row(tx, event, &a.evidence));
    struct delivery_filter filter = {.event = event};
    uint64_t go_on_below;
    TRY(delivery_store_list(tx, &filter, UINT64_MAX, DELIVERIES_LOOKED_AT, visit, &a,
                            &go_on_below));
    out->state = event_state_of(&a.evidence);
    out->given_up = a.evidence.has[DELIVERY_DISCARDED] || a.evidence.has[DELIVERY_DROPPED];
    if (out->state != EVENT_IS_WAITING || a.order_key == 0)
        return OK;
    struct key_head head;
    enum err e = delivery_store_key_head(tx, str_of(a.lane), a.order_key, &head);
    if (e || head.delivery == out->delivery)
        return e == ERR_NOT_FOUND ? OK : e;
    out->behind = head.delivery;
    out->behind_event = head.event;
    out->behind_state = head.state;
    str_copy(out->behind_reason, sizeof out->behind_reason, str_of(head.reason));
    return OK;
}
