/* The relay's taking: where events come from, and which rules want them.
 *
 * Live events come through the commit queue, which the commit hook fills. When it was full, the
 * relay claims them from the outbox table by their state, up to the last id known to be offered
 * (never beyond: a row whose commit hook has not run yet must not be fanned out before the views
 * know of it). Queued events at or below `taken` were read from the table already and are passed
 * over. After a start the relay reads the table from the position that the views' saved state
 * covers: pending rows for all their rules, settled ones for the rules whose effect was lost with
 * the views' memory, except where the delivery store has the delivery.
 *
 * All of this rests on one writer that gives ids in commit order: watermark.c settles every pending
 * row up to the watermark, also one that this relay was never offered.
 *
 * Where many nodes commit (shared), the commit queue is not used: other nodes' commits are not
 * offered, and they become visible in another order than that of their ids. The leader's relay asks
 * the store for its horizon, below which nothing can appear any more, and reads the table up to
 * there: so it meets all events of all nodes once, in the order of their ids, and the watermark
 * means what it always meant. The node that committed an event brings the views up to date with it;
 * it may have died before it did, so the relay does it once more before the event is begun. */
#include "base/check.h"
#include "base/id.h"
#include "base/log.h"
#include "pipe/state.h"

enum {
    READ_AGAIN_US = 100 * 1000,
    ASK_IDLE_US = 25 * 1000, /* for the horizon, when nothing came for IDLE_AFTER_US */
    IDLE_AFTER_US = 1000 * 1000,
    OUTDONE_WINDOW = 64,
};

static void note_unwanted(struct engine *g, const struct event *e, uint16_t rule, const char *why)
{
    struct relay *r = &g->relay;
    if (r->traced == COUNT_OF(r->trace))
        return;
    r->trace[r->traced++] = (struct trace_record){.event = e->id,
                                                  .at_ms = clock_wall_ms(g->env.clock),
                                                  .why = why,
                                                  .rule = rule,
                                                  .kind = TRACE_UNWANTED,
                                                  .lane = (uint8_t)g->rules[rule].lane};
}

/* Bit i: the i-th rule on the event's type wants it. */
uint32_t relay_wanted_by(struct engine *g, const struct event *e)
{
    uint32_t mask = 0;
    for (uint16_t i = 0; i < g->rules_on_count[e->type]; i++) {
        uint16_t index = g->rules_on[e->type][i];
        const struct rule *rule = &g->rules[index];
        if (!rule->wants || rule->wants(e))
            mask |= UINT32_C(1) << i;
        else if (rule->unwanted_as)
            note_unwanted(g, e, index, rule->unwanted_as);
    }
    return mask;
}

/* Of an event that is delivered again after a start: what the delivery store has stays
 * with them, and what is settled is repeated only where its effect was lost. A
 * walk over an audience is repeated even when the delivery store has a page of it: the
 * others may be lost. */
uint32_t relay_wanted_again(struct engine *g, const struct event *e, uint32_t mask,
                            enum outbox_state state, const struct outbox_slice *slice)
{
    for (uint16_t i = 0; i < g->rules_on_count[e->type]; i++) {
        const struct rule *rule = &g->rules[g->rules_on[e->type][i]];
        bool keep = state == OUTBOX_PENDING || rule->effect == EFFECT_VIEWS;
        for (size_t b = 0; keep && b < slice->recorded_count; b++) {
            if (slice->recorded[b].event == e->id && !rule_walks(rule) &&
                strcmp(slice->recorded[b].consumer, rule->consumer) == 0)
                keep = false;
        }
        if (!keep)
            mask &= ~(UINT32_C(1) << i);
    }
    return mask;
}

static bool was_parked(const struct event *e, const struct outbox_slice *slice)
{
    for (size_t b = 0; b < slice->recorded_count; b++) {
        if (slice->recorded[b].event == e->id && slice->recorded[b].consumer[0] == '\0')
            return true;
    }
    return false;
}

/* Of the events of one actor in this batch the last stands for the others, where a rule says so. A
 * burst comes together, and comes from one place: what lies far back is delivered for itself. */
static void outdo_earlier(struct engine *g, const struct event *e, uint32_t mask)
{
    struct relay *r = &g->relay;
    for (uint16_t i = 0; i < g->rules_on_count[e->type]; i++) {
        const struct rule *rule = &g->rules[g->rules_on[e->type][i]];
        uint32_t bit = UINT32_C(1) << i;
        size_t left = rule->outdone_as && (mask & bit) ? OUTDONE_WINDOW : 0;
        for (size_t at = r->count; left > 0 && at > 0; left--) {
            struct inflight_start *earlier = &r->starts[--at];
            if (earlier->event.type == e->type && earlier->event.actor == e->actor &&
                (earlier->wanted & bit)) {
                earlier->wanted &= ~bit;
                note_unwanted(g, &earlier->event, g->rules_on[e->type][i], rule->outdone_as);
                break; /* it has outdone those before it */
            }
        }
    }
}

void relay_drop_outdone(struct engine *g)
{
    struct relay *r = &g->relay;
    size_t kept = 0;
    for (size_t i = 0; i < r->count; i++) {
        if (r->starts[i].wanted || r->starts[i].unreadable)
            r->starts[kept++] = r->starts[i];
        else
            atomic_fetch_add_explicit(&g->events_unwanted, 1, memory_order_relaxed);
    }
    r->count = kept;
}

/* Notes an event for this step's batch, unless no rule wants it. */
void relay_consider(struct engine *g, const struct event *e, int64_t started_us, uint32_t mask,
                    bool fresh)
{
    struct relay *r = &g->relay;
    struct inflight_start *start = &r->starts[r->count];
    *start = (struct inflight_start){
        .event = *e, .started_us = started_us, .wanted = mask, .fresh = fresh};
    atomic_fetch_add_explicit(&g->events_taken, 1, memory_order_relaxed);
    if (e->type >= EVENT_TYPE_COUNT) {
        engine_complain(&r->log_after_us, clock_mono_us(g->env.clock),
                        "an outbox row cannot be read and is parked", LOG_ID("event", e->id));
        start->unreadable = true;
        r->count++;
        return;
    }
    start->rules = g->rules_on[e->type];
    outdo_earlier(g, e, mask);
    if (e->id <= r->recovered && r->found[e->type] > 0)
        r->found[e->type]--;
    atomic_fetch_add_explicit(&g->taken[e->type], 1, memory_order_relaxed);
    if (mask)
        r->count++;
    else
        atomic_fetch_add_explicit(&g->events_unwanted, 1, memory_order_relaxed);
}

/* When it was committed, for an event that came through the table
 * because the queue was full: its id knows to the millisecond. */
static int64_t started_from_id(struct engine *g, uint64_t id, int64_t now_us)
{
    if (id <= g->relay.recovered)
        return INFLIGHT_UNTIMED;
    return now_us - engine_age_ms(g, id) * 1000;
}

bool relay_may_read(struct relay *r, int64_t now_us, int64_t *due_us)
{
    if (now_us >= r->read_after_us)
        return true;
    due_by(due_us, r->read_after_us);
    return false;
}

void relay_read_failed(struct relay *r, enum err e, int64_t now_us, int64_t *due_us)
{
    engine_complain(&r->log_after_us, now_us, "the outbox cannot be read",
                    LOG_CSTR("error", err_name(e)));
    r->read_after_us = now_us + READ_AGAIN_US;
    due_by(due_us, r->read_after_us);
}

/* Everything that was there at the start is taken. What was counted and could not be read (it is
 * parked, whatever type it has) is not pending any more. */
static void end_recovery(struct engine *g)
{
    atomic_store_explicit(&g->oldest_found, 0, memory_order_relaxed);
    for (int type = 0; type < EVENT_TYPE_COUNT; type++) {
        atomic_fetch_sub_explicit(&g->offered[type], g->relay.found[type], memory_order_relaxed);
        g->relay.found[type] = 0;
    }
}

/* Shared: applies these events to the views before any delivery. Their data stays with the slice:
 * the events go on without it. */
enum err relay_apply_slice(struct engine *g)
{
    struct outbox_slice *slice = &g->relay.slice;
    struct event readable[OUTBOX_READ_MAX];
    size_t n = 0;
    for (size_t i = 0; i < slice->count; i++) {
        if (slice->events[i].type < EVENT_TYPE_COUNT)
            readable[n++] = slice->events[i];
        slice->events[i].data = (struct str){0};
    }
    return g->config.shared && g->apply && n ? g->apply(g->apply_ctx, readable, n) : OK;
}

/* Views that outlive the process have what is settled. */
static enum err read_table(struct engine *g, bool again, uint64_t through, size_t max)
{
    struct relay *r = &g->relay;
    enum outbox_read what = !again             ? OUTBOX_READ_PENDING
                            : g->config.shared ? OUTBOX_READ_FOUND
                                               : OUTBOX_READ_AGAIN;
    return outbox_read(g->env.db, what, r->taken, through, max, &r->slice);
}

/* Everything up to the horizon has been read. */
static void note_look(struct engine *g, int64_t now_us)
{
    struct relay *r = &g->relay;
    bool found = r->slice.count > 0;
    if (found) {
        r->moved_us = now_us;
        atomic_store(&r->last_event, r->slice.events[r->slice.count - 1].id);
    }
    bool all = r->taken >= atomic_load(&r->horizon) && r->taken >= r->recovered;
    atomic_store(&r->looked_us, found || !all ? INT64_MIN : now_us);
    for (int type = 0; all && type < EVENT_TYPE_COUNT; type++)
        atomic_store_explicit(&g->offered[type], atomic_load(&g->taken[type]),
                              memory_order_relaxed);
}

/* Rows up to `recovered` are read again as a whole, those above by their state.
 */
static bool take_from_table(struct engine *g, uint64_t through, size_t max, int64_t now_us,
                            int64_t *due_us)
{
    struct relay *r = &g->relay;
    if (!relay_may_read(r, now_us, due_us))
        return false;
    bool again = r->taken < r->recovered;
    if (again && (!g->config.shared || r->recovered < through))
        through = r->recovered;
    max = max < OUTBOX_READ_MAX ? max : OUTBOX_READ_MAX;
    enum err e = read_table(g, again, through, max);
    if (!e)
        e = relay_apply_slice(g);
    if (e) {
        relay_read_failed(r, e, now_us, due_us);
        return false;
    }
    for (size_t i = 0; i < r->slice.count; i++) {
        const struct event *event = &r->slice.events[i];
        uint32_t mask = event->type < EVENT_TYPE_COUNT ? relay_wanted_by(g, event) : 0;
        if (again && mask)
            mask = relay_wanted_again(g, event, mask, r->slice.states[i], &r->slice);
        if (again && r->slice.states[i] == OUTBOX_PENDING && was_parked(event, &r->slice))
            mask = 0; /* released: found below the watermark, and delivered out of band */
        bool fresh = g->config.shared && event->id > r->recovered;
        relay_consider(g, event, started_from_id(g, event->id, now_us), mask, fresh);
        r->taken = event->id;
    }
    if (r->slice.count < max)
        r->taken = through; /* a short slice was the last one */
    if (g->config.shared)
        note_look(g, now_us);
    commit_queue_read(&g->commit_queue, r->taken);
    if (r->taken >= r->recovered)
        end_recovery(g);
    return true;
}

/* Up to where the table must be read before the queue may be trusted to be without gaps. */
uint64_t relay_table_end(struct engine *g)
{
    const struct relay *r = &g->relay;
    uint64_t missed = atomic_load(&g->commit_queue.missed);
    return r->ahead ? r->ahead_after : missed > r->recovered ? missed : r->recovered;
}

/* Takes at most `max` events; true when it got any further. */
static bool take_local(struct engine *g, size_t max, int64_t now_us, int64_t *due_us)
{
    struct relay *r = &g->relay;
    size_t waiting = commit_queue_waiting(&g->commit_queue);
    uint64_t table_through = relay_table_end(g); /* after `waiting`: see commit_queue.h */
    bool further = false;
    if (table_through > r->taken) {
        further = take_from_table(g, table_through, max, now_us, due_us);
        max = 0; /* only pass over what the table gave */
    }
    size_t popped = 0;
    for (; popped < waiting; popped++) {
        const struct queued_event *h = commit_queue_at(&g->commit_queue, popped);
        if (h->event.id <= r->taken)
            continue;
        if (r->count >= max || popped >= RELAY_BATCH)
            break;
        relay_consider(g, &h->event, h->at_us, relay_wanted_by(g, &h->event), true);
        r->taken = h->event.id;
    }
    if (popped)
        commit_queue_pop(&g->commit_queue, popped);
    return further || popped;
}

/* Shared: asks for the horizon when it is time to. False: there is nothing new below it. */
static bool ask_horizon(struct engine *g, int64_t now_us, int64_t *due_us)
{
    struct relay *r = &g->relay;
    uint64_t horizon = 0;
    if (now_us < r->ask_after_us) {
        due_by(due_us, r->ask_after_us);
        return false;
    }
    enum err e = db_horizon(g->env.db, &horizon);
    if (e) {
        relay_read_failed(r, e, now_us, due_us);
        return false;
    }
    int64_t every_us = g->config.horizon_every_ms * 1000;
    bool idle = now_us - IDLE_AFTER_US > r->moved_us;
    r->ask_after_us = now_us + (idle && every_us < ASK_IDLE_US ? ASK_IDLE_US : every_us);
    due_by(due_us, r->ask_after_us);
    horizon = horizon < INT64_MAX ? horizon : INT64_MAX;
    if (horizon > atomic_load(&r->horizon))
        atomic_store(&r->horizon, horizon);
    return atomic_load(&r->horizon) > r->taken;
}

/* The rows are read after the horizon was: whatever lies below it is among them. */
static bool take_shared(struct engine *g, size_t max, int64_t now_us, int64_t *due_us)
{
    struct relay *r = &g->relay;
    if (!relay_may_read(r, now_us, due_us))
        return false;
    if (r->taken >= atomic_load(&r->horizon) && !ask_horizon(g, now_us, due_us))
        return false;
    return take_from_table(g, atomic_load(&r->horizon), max, now_us, due_us);
}

bool relay_take(struct engine *g, size_t max, int64_t now_us, int64_t *due_us)
{
    return g->config.shared ? take_shared(g, max, now_us, due_us)
                            : take_local(g, max, now_us, due_us);
}
