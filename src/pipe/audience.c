/* The audience of an event, page by page.
 *
 * A fan-out starts in its rule's lane. In a lane that splits the worker that reads the first page
 * sees whether that was all. If not, it delivers nothing there: the fan-out moves to the lanes of
 * large ones (inflight_split). So the small lane spends one page read on a fan-out of any size, no
 * page is read twice for a small one, and later events in the small lane never wait behind a large
 * audience. The relay need not ask the views at all. */
#include <string.h>

#include "base/check.h"
#include "pipe/state.h"
#include "port/views.h"

/* Data stays in truth until a sink needs it: messages and inflight slots are small, and few events
 * have any. */
struct data_read {
    const struct event *event;
    char *memory;
    struct event *out;
};

static enum err read_data(struct tx *tx, void *arg)
{
    struct data_read *r = arg;
    struct db_rows rows =
        tx_rows(tx,
                "SELECT type, version, payload FROM outbox WHERE id = $1 UNION ALL "
                "SELECT type, version, payload FROM deliveries WHERE event_id = $1 "
                "LIMIT 1",
                DB_ARGS(DB_I64(r->event->id)));
    *r->out = *r->event;
    if (db_next(&rows)) {
        struct str payload = db_text(&rows, 2);
        payload.len = payload.len < EVENT_PAYLOAD_MAX ? payload.len : EVENT_PAYLOAD_MAX;
        memcpy(r->memory, payload.ptr, payload.len);
        payload.ptr = r->memory;
        struct event whole;
        if (event_read_whole(r->event->id, db_text(&rows, 0), db_i64(&rows, 1), payload, &whole) ==
            EVENT_READ)
            r->out->data = whole.data;
    }
    return db_rows_done(&rows);
}

enum err audience_event(struct engine *g, const struct bus_message *m,
                        char memory[EVENT_PAYLOAD_MAX], struct event *out)
{
    struct data_read r = {.event = &m->event, .memory = memory, .out = out};
    *out = m->event;
    return g->rules[m->rule].reads_data ? db_read(g->env.db, read_data, &r, NULL) : OK;
}

enum err audience_page(struct engine *g, const struct bus_message *m, const struct event *event,
                       struct audience_cursor *cursor, uint64_t *members, size_t *n)
{
    const struct rule *rule = &g->rules[m->rule];
    struct audience_page page = {
        .cursor = m->cursor, .members = members, .max = rule_walks(rule) ? rule->batch : 1};
    rule->audience->pages(&g->env, &event, &page, 1);
    CHECK(page.n <= page.max);
    *cursor = page.cursor;
    *n = page.n;
    return page.error;
}

/* A page that is tried again while another message already works on what
 * follows it ends where that one began. When followers came in between, the
 * pages no longer fall on that spot; then the walk goes on past it, to the end,
 * and what it meets twice is harmless. */
bool audience_is_last(const struct bus_message *m, const struct audience_cursor *cursor)
{
    return cursor->end || (m->until && cursor->after == m->until);
}

static uint32_t as_count(double n)
{
    return n < (double)UINT32_MAX ? (uint32_t)n : UINT32_MAX;
}

/* Those who were active lately among the members of the page stand for all. */
static double active_share(struct engine *g, const uint64_t *members, size_t n)
{
    bool active[ENGINE_BATCH_MAX];
    size_t found = 0;
    int64_t since_ms = clock_wall_ms(g->env.clock) - g->config.active_within_ms;
    if (graph_seen_since(g->env.views->graph, members, n, since_ms, active))
        return 0;
    for (size_t i = 0; i < n; i++)
        found += active[i];
    return (double)found / (double)n;
}

/* A walk leaves members out who are long gone. So the page's members, as a part of those whom the
 * walk has passed, say how many of all it will meet. */
struct audience_estimate audience_estimate(struct engine *g, const struct bus_message *m,
                                           const struct event *event,
                                           const struct audience_cursor *cursor,
                                           const uint64_t *members, size_t n)
{
    const struct audience *audience = g->rules[m->rule].audience;
    struct audience_estimate estimate = {0};
    uint64_t passed, all;
    if (!audience->extent || n == 0 || m->cursor.after != 0 || is_retry(m->kind) ||
        audience->extent(&g->env, event, cursor->after, &passed, &all) || passed == 0)
        return estimate;
    double expected = (double)n * (double)all / (double)passed;
    estimate.members = as_count(expected);
    estimate.audience = as_count((double)all);
    if (audience->parts && audience->handles)
        estimate.active = as_count(expected * active_share(g, members, n));
    return estimate;
}

/* A retry stays where it is: it is one delivery in the delivery store, and walks on
 * alone. */
bool audience_is_large(const struct engine *g, const struct bus_message *m,
                       const struct audience_cursor *cursor)
{
    return lane_rows[m->lane].splits && !is_retry(m->kind) && rule_splits(&g->rules[m->rule]) &&
           !cursor->end;
}
