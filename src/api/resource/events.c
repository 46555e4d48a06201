/* `GET /v1/admin/events/{id}`: one event's whole story, from three memories that overlap:
 *
 *   truth      its outbox row, and its rows in the delivery store, for as long as they are kept
 *   the engine what of it is under way at this moment
 *   the trace  what happened to it lately, batch by batch, as far back as the ring reaches
 *
 * What they come to is one state (pipe/event_state.h). */
#include "api/edge/handlers.h"
#include "api/render/render.h"
#include "api/resource/status.h"
#include "base/id.h"
#include "model/subscriber.h"
#include "pipe/event_state.h"

enum { STORY_RECORDS = 64, STORY_DELIVERIES = 50 };

struct story {
    struct call *call;
    uint64_t id;
    /* truth */
    struct event_evidence evidence;
    struct str type, payload; /* in the call's arena */
    int64_t version;
    bool told; /* type, version and payload are known */
    uint64_t removed_through, oldest;
    /* in the delivery store */
    struct buf deliveries; /* a JSON array */
    struct json_out deliveries_json;
    size_t delivery_count;
    bool deliveries_cut;
    /* memory */
    struct event_look look;
    struct trace_summary summary;
    struct trace_record records[STORY_RECORDS];
    size_t record_count, records_left_out;
    uint64_t settled_through;
};

/* ---- gathering ---- */

static void tell(struct story *s, struct str type, int64_t version, struct str payload)
{
    if (s->told)
        return;
    s->type = arena_str(&s->call->x->arena, type);
    s->version = version;
    s->payload = arena_str(&s->call->x->arena, payload);
    s->told = true;
}

static enum err read_row(struct tx *tx, struct story *s)
{
    struct db_rows rows =
        tx_rows(tx, "SELECT type, version, payload, state FROM outbox WHERE id = $1",
                DB_ARGS(DB_I64(s->id)));
    if (db_next(&rows)) {
        s->evidence.has_row = true;
        s->evidence.row = (enum outbox_state)db_i64(&rows, 3);
        tell(s, db_text(&rows, 0), db_i64(&rows, 1), db_text(&rows, 2));
    }
    return db_rows_done(&rows);
}

static void visit_delivery(void *ctx, const struct delivery_row *row)
{
    struct story *s = ctx;
    if (s->delivery_count == STORY_DELIVERIES) {
        s->deliveries_cut = true;
        return;
    }
    tell(s, row->type, row->version, row->payload);
    s->evidence.has[row->state] = true;
    s->delivery_count++;
    render_delivery(&s->deliveries_json, row);
}

static enum err gather(struct tx *tx, struct story *s)
{
    struct engine *g = s->call->api->engine;
    /* Memory first: what leaves it is in the delivery store or settled, and truth is read after it.
     */
    engine_look(g, s->id, &s->look);
    s->settled_through = engine_settled_through(g);
    trace_find(engine_trace(g), s->id, &s->summary, s->records, STORY_RECORDS, &s->record_count,
               &s->records_left_out);
    TRY(read_row(tx, s));
    TRY(stored_events_bounds(tx, &s->removed_through, &s->oldest));
    struct delivery_filter filter = {.event = s->id};
    uint64_t go_on_below;
    return delivery_store_list(tx, &filter, UINT64_MAX, STORY_DELIVERIES + 1, visit_delivery, s,
                               &go_on_below);
}

/* ---- what it comes to ---- */

static const char *stage_name(enum event_stage stage)
{
    static const char *const names[] = {[STAGE_UNKNOWN] = NULL,
                                        [STAGE_PENDING] = "pending",
                                        [STAGE_PUBLISHED] = "published",
                                        [STAGE_EXPANDED] = "expanded"};
    return names[stage];
}

/* NULL: nothing says that there ever was such an event. */
static const char *state_of(struct story *s)
{
    s->evidence.stage = s->look.stage;
    s->evidence.below_watermark = s->id <= s->settled_through;
    s->evidence.remembered = s->told || s->record_count > 0;
    return event_state_name(event_state_of(&s->evidence));
}

static enum err not_known(const struct story *s)
{
    char kept[32];
    render_span_text(s->call->api->settings->retain_events_ms, kept);
    if (s->id <= s->removed_through)
        return call_fail(s->call, ERR_NOT_FOUND,
                         "unknown: events of that time were removed; they are kept for %s after "
                         "they are done",
                         kept);
    return call_fail(s->call, ERR_NOT_FOUND,
                     "unknown: no event has this id, and events of that time are still kept (for "
                     "%s after they are done); check the id",
                     kept);
}

/* ---- telling ---- */

static const char *rule_consumer(const struct story *s, const struct trace_record *r)
{
    size_t n;
    const struct rule *rules = engine_rules(s->call->api->engine, &n);
    return r->rule < n ? rules[r->rule].consumer : NULL;
}

static void write_fact(struct json_out *j, const struct story *s)
{
    struct event e = {0};
    enum event_unread unread = EVENT_UNKNOWN_TYPE;
    if (s->told)
        unread = event_read(s->id, s->type, s->version, s->payload, &e);
    render_put_stored(j, "type", s->type);
    json_put_if(s->told, j, "version", i64, s->version);
    render_put_id(j, "actor", e.actor);
    render_put_id(j, "object", e.object);
    json_put_if(s->told && unread == EVENT_READ, j, "value", i64, e.value);
    render_put_text(j, "unread", s->told && unread ? event_unread_name(unread) : NULL);
}

static void write_batches(struct json_out *j, const struct story *s)
{
    const struct trace_summary *t = &s->summary;
    json_key(j, STR("batches"));
    json_object_begin(j);
    json_put(j, "count", u64, t->batches);
    json_put(j, "members", u64, t->members);
    json_put(j, "delivered", u64, t->delivered);
    json_put(j, "skipped", u64, t->skipped);
    json_put(j, "failed", u64, t->failed);
    json_put(j, "duplicates", u64, t->duplicates);
    render_put_time(j, "first_at", t->first_ms);
    render_put_time(j, "last_at", t->last_ms);
    json_put(j, "complete", bool, t->complete);
    json_object_end(j);
}

static void write_record(struct json_out *j, const struct story *s, const struct trace_record *r)
{
    json_object_begin(j);
    json_put(j, "at", time, r->at_ms);
    json_put(j, "kind", str, str_of(trace_kind_name((enum trace_kind)r->kind)));
    render_put_text(j, "consumer", rule_consumer(s, r));
    bool whole = r->rule == UINT16_MAX || r->lane >= LANE_COUNT; /* of no lane */
    render_put_text(j, "lane", whole ? NULL : lane_name((enum lane)r->lane));
    json_put(j, "n", u64, r->n);
    json_put(j, "done", u64, r->done);
    render_put_text(j, "why", r->why);
    json_object_end(j);
}

static void write_trace(struct json_out *j, const struct story *s)
{
    json_key(j, STR("trace"));
    json_array_begin(j);
    for (size_t i = 0; i < s->record_count; i++)
        write_record(j, s, &s->records[i]);
    json_array_end(j);
    json_put(j, "trace_left_out", u64, s->records_left_out);
}

static void write_items(struct json_out *j, const struct event_look *look)
{
    static const char *const parts[] = {
        [AUDIENCE_ALL] = "all", [AUDIENCE_ACTIVE] = "active", [AUDIENCE_REST] = "rest"};
    json_key(j, STR("in_flight"));
    json_array_begin(j);
    for (size_t i = 0; i < look->item_count; i++) {
        const struct event_item *u = &look->items[i];
        json_object_begin(j);
        render_put_text(j, "consumer", u->consumer);
        render_put_text(j, "lane", u->lane);
        json_put(j, "part", str, str_of(parts[u->part]));
        json_put(j, "cursor", id, u->after);
        json_put(j, "state", str, u->out ? STR("under way") : STR("waits for its turn"));
        json_object_end(j);
    }
    json_array_end(j);
    json_put(j, "in_flight_left_out", u64, look->items_left_out);
}

static bool is_decision(enum trace_kind kind)
{
    return kind == TRACE_UNWANTED || kind == TRACE_SKIPPED || kind == TRACE_SUPPRESSED ||
           kind == TRACE_DUPLICATE;
}

/* The rules on its type, whether each wants the event, and the decisions on its way. */
static void write_rules(struct json_out *j, const struct story *s)
{
    size_t n;
    const struct rule *rules = engine_rules(s->call->api->engine, &n);
    struct event e;
    bool read = s->told && event_read(s->id, s->type, s->version, s->payload, &e) == EVENT_READ;
    json_key(j, STR("rules"));
    json_array_begin(j);
    for (size_t i = 0; i < n && read; i++) {
        const struct rule *r = &rules[i];
        if (r->on != e.type)
            continue;
        bool wanted = !r->wants || r->wants(&e);
        json_object_begin(j);
        json_put(j, "consumer", str, str_of(r->consumer));
        json_put(j, "lane", str, str_of(lane_name(r->lane)));
        json_put(j, "wanted", bool, wanted);
        render_put_text(j, "why_not", wanted ? NULL : r->unwanted_as ? r->unwanted_as : "unwanted");
        json_put(j, "late_means", str, str_of(r->late_means ? r->late_means : ""));
        json_object_end(j);
    }
    json_array_end(j);
    json_key(j, STR("decisions"));
    json_array_begin(j);
    for (size_t i = 0; i < s->record_count; i++) {
        if (is_decision((enum trace_kind)s->records[i].kind))
            write_record(j, s, &s->records[i]);
    }
    json_array_end(j);
}

/* When the ring first saw it: a replay may have published and ended it again since. */
static int64_t first_ms(const struct story *s, enum trace_kind kind)
{
    for (size_t i = 0; i < s->record_count; i++) {
        if (s->records[i].kind == kind)
            return s->records[i].at_ms;
    }
    return 0;
}

static void write_story(struct json_out *j, const struct story *s, const char *state)
{
    json_object_begin(j);
    json_put(j, "id", id, s->id);
    write_fact(j, s);
    json_put(j, "time", time, id_time_ms(s->id));
    json_put(j, "state", str, str_of(state));
    render_put_text(j, "stage", stage_name(s->look.stage));
    json_put(j, "settled", bool,
             (s->evidence.has_row && s->evidence.row == OUTBOX_SETTLED) ||
                 s->id <= s->settled_through);
    json_put(j, "kept", bool, s->evidence.has_row);
    json_put(j, "committed_at", time, id_time_ms(s->id));
    render_put_time(j, "published_at", first_ms(s, TRACE_PUBLISHED));
    render_put_time(j, "done_at", first_ms(s, TRACE_DONE));
    json_key(j, STR("progress"));
    json_object_begin(j);
    json_put(j, "members", u64, s->look.members);
    json_put(j, "delivered", u64, s->look.delivered);
    json_put(j, "repeated", u64, s->look.repeated);
    json_put(j, "skipped", u64, s->look.skipped);
    json_object_end(j);
    write_items(j, &s->look);
    write_rules(j, s);
    json_put(j, "deliveries", raw, buf_view(&s->deliveries));
    json_put(j, "deliveries_left_out", bool, s->deliveries_cut);
    write_batches(j, s);
    write_trace(j, s);
    json_object_end(j);
}

enum err admin_event_show(struct call *c, struct tx *tx)
{
    struct story *s = ARENA_NEW(&c->x->arena, struct story);
    s->call = c;
    s->id = c->params[0];
    buf_init(&s->deliveries, 0);
    json_out_init(&s->deliveries_json, &s->deliveries);
    json_array_begin(&s->deliveries_json);
    enum err e = gather(tx, s);
    json_array_end(&s->deliveries_json);
    const char *state = e ? NULL : state_of(s);
    if (state)
        write_story(&c->json, s, state);
    else if (!e)
        e = not_known(s);
    buf_done(&s->deliveries);
    return e;
}
