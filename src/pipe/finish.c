/* What is left to do when a unit has left the flight with the last of its event: for a retry the
 * books hear that it is done, for a released event its outbox row is settled, a replay is told, and
 * of a live post the celebrity threshold learns how long its fan-out took.
 *
 * What a retry or a released event did to the views lies below positions at which they may have
 * been saved already: the mark of this moment is noted with it (book_lost.c). */
#include "base/fault.h"
#include "pipe/state.h"

struct flight_exit exit_of(const struct bus_message *m, enum exit_how how)
{
    return (struct flight_exit){.seat = m->seat,
                                .event_id = m->event.id,
                                .after = m->cursor.after,
                                .rule = m->rule,
                                .part = (uint8_t)m->cursor.part,
                                .how = how};
}

static void tell_books(struct engine *g, const struct book_entry *entry)
{
    book_add(&g->book, entry, true);
    engine_wake_up(g, ENGINE_BOOKS);
}

static void finish_retry(struct engine *g, const struct flight_exit *x)
{
    const struct rule *rule = &g->rules[x->rule];
    if (x->totals.booked)
        return; /* on the books as something else now */
    FAULT(retry_after_done);
    struct book_entry entry = {
        .booking = {.kind = BOOK_DONE,
                    .event = x->event,
                    .delivery = x->owner,
                    .consumer = rule->consumer,
                    .lane = rule->lane,
                    .order_key = lane_is_ordered(rule->lane) ? x->event.actor : 0,
                    .members = (size_t)x->add.members, /* the pages before are on the books */
                    .mark = rule->effect == EFFECT_VIEWS ? flight_through(&g->flight) : 0,
                    .until = x->until},
        .in_views = rule->effect == EFFECT_VIEWS};
    tell_books(g, &entry);
}

static void finish_released(struct engine *g, const struct flight_exit *x)
{
    struct book_entry entry = {
        .booking = {.kind = BOOK_SETTLE, .event = x->event, .mark = flight_through(&g->flight)},
        .released = true,
        .in_views = true};
    tell_books(g, &entry);
}

static void finish_replayed(struct engine *g, const struct flight_exit *x)
{
    bool quiet = x->totals.booked || x->totals.duplicates || x->totals.suppressed;
    struct job_counts counts = {.seen = 1,
                                .acted = !quiet,
                                .repeated = x->totals.duplicates > 0,
                                .suppressed = x->totals.suppressed > 0,
                                .failed = x->totals.booked > 0};
    replays_told(g->replays, x->owner, x->event.id, &counts);
}

static void finish_live(struct engine *g, const struct flight_exit *x, int64_t now_us)
{
    if (g->observer && x->event.type == EVENT_POST_CREATED && x->totals.members &&
        x->started_us != FLIGHT_UNTIMED)
        g->observer(g->observer_ctx, &x->event, (size_t)x->totals.members, now_us - x->started_us);
}

void engine_finished(struct engine *g, const struct flight_exit *x, int64_t now_us)
{
    if (x->kind == SEAT_LIVE) {
        finish_live(g, x, now_us);
        return;
    }
    atomic_fetch_add(&g->late, 1);
    if (is_retry(x->kind))
        finish_retry(g, x);
    else if (x->kind == SEAT_RELEASED)
        finish_released(g, x);
    else
        finish_replayed(g, x);
}
