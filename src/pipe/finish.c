/* The last steps of an event, when its last work item has left the inflight set: for a retry the
 * recorder writes that it is done, for a released event its outbox row is settled, a replay gets
 * its outcome, and of a live event the observer learns how long its fan-out took.
 *
 * The effect of a retry or a released event on the views lies below positions at which they may
 * have been saved already: the watermark of this moment is noted with it (delivery_lost.c). */
#include "base/fault.h"
#include "pipe/state.h"

struct inflight_exit exit_of(const struct bus_message *m, enum exit_how how)
{
    return (struct inflight_exit){.slot = m->slot,
                                  .event_id = m->event.id,
                                  .after = m->cursor.after,
                                  .rule = m->rule,
                                  .part = (uint8_t)m->cursor.part,
                                  .how = how};
}

struct delivery_record record_of(const struct engine *g, const struct bus_message *m,
                                 enum record_kind kind)
{
    const struct rule *rule = &g->rules[m->rule];
    return (struct delivery_record){.kind = kind,
                                    .delivery = is_retry(m->kind) ? m->owner : 0,
                                    .event = m->event,
                                    .consumer = rule->consumer,
                                    .lane = rule->lane,
                                    .order_key = lane_is_ordered(rule->lane) ? m->event.actor : 0,
                                    .cursor = m->cursor,
                                    .until = m->until,
                                    .replay = m->replay};
}

static void tell_deliveries(struct engine *g, const struct recorder_entry *entry)
{
    recorder_add(&g->recorder, entry, true);
    engine_wake_up(g, ENGINE_RECORDER);
}

static void finish_retry(struct engine *g, const struct inflight_exit *x)
{
    const struct rule *rule = &g->rules[x->rule];
    if (x->totals.recorded)
        return; /* in the delivery store as something else now */
    FAULT(retry_after_done);
    struct recorder_entry entry = {
        .delivery_record =
            {.kind = RECORD_DONE,
             .event = x->event,
             .delivery = x->owner,
             .consumer = rule->consumer,
             .lane = rule->lane,
             .order_key = lane_is_ordered(rule->lane) ? x->event.actor : 0,
             .members = (size_t)x->add.members, /* the pages before are in the delivery store */
             .watermark = rule->effect == EFFECT_VIEWS ? inflight_through(&g->inflight) : 0,
             .until = x->until},
        .in_views = rule->effect == EFFECT_VIEWS};
    tell_deliveries(g, &entry);
}

static void finish_released(struct engine *g, const struct inflight_exit *x)
{
    struct recorder_entry entry = {.delivery_record = {.kind = RECORD_SETTLE,
                                                       .event = x->event,
                                                       .watermark = inflight_through(&g->inflight)},
                                   .released = true,
                                   .in_views = true};
    tell_deliveries(g, &entry);
}

static void finish_replayed(struct engine *g, const struct inflight_exit *x)
{
    bool quiet = x->totals.recorded || x->totals.duplicates || x->totals.suppressed;
    struct job_counts counts = {.seen = 1,
                                .acted = !quiet,
                                .repeated = x->totals.duplicates > 0,
                                .suppressed = x->totals.suppressed > 0,
                                .failed = x->totals.recorded > 0};
    replays_told(g->replays, x->owner, x->event.id, &counts);
}

static void finish_live(struct engine *g, const struct inflight_exit *x, int64_t now_us)
{
    if (x->event.type >= EVENT_TYPE_COUNT) /* it could not be read, and was not delivered */
        return;
    if (g->observer && g->observed[x->event.type] && x->totals.members &&
        x->started_us != INFLIGHT_UNTIMED)
        g->observer(g->observer_ctx, &x->event, (size_t)x->totals.members, now_us - x->started_us);
}

void engine_finished(struct engine *g, const struct inflight_exit *x, int64_t now_us)
{
    if (x->kind == SLOT_LIVE) {
        finish_live(g, x, now_us);
        return;
    }
    atomic_fetch_add(&g->late, 1);
    if (is_retry(x->kind))
        finish_retry(g, x);
    else if (x->kind == SLOT_RELEASED)
        finish_released(g, x);
    else
        finish_replayed(g, x);
}
