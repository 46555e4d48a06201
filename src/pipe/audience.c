/* Who gets an event, page by page.
 *
 * A fan-out starts in its rule's lane. In a lane of USE_SMALL the worker that reads the first page
 * sees whether that was all. If not, it delivers nothing there: the fan-out moves to the lanes of
 * large ones (inflight_split). So the small lane spends one page read on a fan-out of any
 * size, no page is read twice for a small one, and what follows in the small
 * lane never waits behind a large audience. The relay needs no look at the
 * views at all. */
#include "base/check.h"
#include "pipe/state.h"

enum err audience_page(struct engine *g, const struct bus_message *m,
                       struct audience_cursor *cursor, uint64_t *members, size_t *n)
{
    const struct rule *rule = &g->rules[m->rule];
    *cursor = m->cursor;
    if (!rule_walks(rule)) {
        members[0] = m->event.actor;
        *n = 1;
        cursor->end = true;
        return OK;
    }
    *n = 0;
    enum err e =
        graph_audience(g->env.views->graph, m->event.actor, cursor, members, rule->batch, n);
    CHECK(*n <= rule->batch);
    return e;
}

/* A page that is tried again while another message already works on what
 * follows it ends where that one began. When followers came in between, the
 * pages no longer fall on that spot; then the walk goes on past it, to the end,
 * and what it meets twice is harmless. */
bool audience_is_last(const struct bus_message *m, const struct audience_cursor *cursor)
{
    return cursor->end || (m->until && cursor->after == m->until);
}

/* A retry stays where it is: it is one delivery in the delivery store, and walks on
 * alone. */
bool audience_is_large(const struct engine *g, const struct bus_message *m,
                       const struct audience_cursor *cursor)
{
    return lane_rows[m->lane].use == USE_SMALL && !is_retry(m->kind) &&
           rule_walks(&g->rules[m->rule]) && !cursor->end;
}
