/* The flight of a leader whose units are worked on by other nodes, too; and, for all, what becomes
 * of a unit whose delivery failed.
 *
 * What such a worker did is told by reports, which come late, in another order, twice or never, and
 * a unit that nobody told of for too long is with two workers at a time. So a unit knows whether,
 * and where, its walk was handed on. When its page is delivered and the walk was not handed on at
 * that very spot (the report was lost, was overtaken, or another worker's page ended elsewhere),
 * the unit itself goes on there: at worst a few members are met twice, never is one left out.
 *
 * A unit that is not OUT any more has been spoken of by somebody else; what comes after is passed
 * over. */
#include "pipe/flight_lists.h"

void flight_clear(struct flight *f)
{
    uint32_t uses = f->uses_from;
    for (size_t i = 0; i < f->seat_chunks * FLIGHT_CHUNK; i++) {
        uint32_t of_seat = flight_seat(f, (uint32_t)i)->uses;
        uses = of_seat > uses ? of_seat : uses;
    }
    const struct rule *rules = f->rules;
    size_t rule_count = f->rule_count, max = f->max;
    int64_t patience = f->outside_patience;
    flight_done(f);
    flight_init(f, rules, rule_count, max);
    f->outside_patience = patience;
    f->uses_from = uses;
}

/* Under the lock. */
static struct flight_unit *find_out(struct flight *f, const struct bus_message *m, uint32_t *unit)
{
    *unit = flight_find(f, m, m->cursor.after);
    if (*unit == FLIGHT_NONE || unit_at(f, *unit)->state != UNIT_OUT)
        return NULL;
    return unit_at(f, *unit);
}

bool flight_is_out(struct flight *f, const struct bus_message *m)
{
    uint32_t unit;
    pthread_mutex_lock(&f->lock);
    bool out = find_out(f, m, &unit) != NULL;
    pthread_mutex_unlock(&f->lock);
    return out;
}

/* Where order matters one unit is at work at a time; a retry is one delivery on the books. */
static bool may_be_handed_on(struct flight *f, const struct flight_unit *u)
{
    const struct flight_seat *s = flight_seat(f, u->seat);
    return !u->handed_on && u->until == 0 && s->kind != SEAT_RETRY && s->kind != SEAT_FORCED &&
           !lane_is_ordered(f->rules[u->rule].lane) && !atomic_load(&s->unwell);
}

bool flight_hand_on(struct flight *f, const struct bus_message *m,
                    const struct audience_cursor *cursor, int64_t now_us)
{
    uint32_t unit;
    bool added = false;
    pthread_mutex_lock(&f->lock);
    struct flight_unit *u = find_out(f, m, &unit);
    if (u && may_be_handed_on(f, u)) {
        u->handed_on = true;
        u->next = cursor->after;
        added = flight_find(f, m, cursor->after) == FLIGHT_NONE;
    }
    if (added) {
        uint32_t rest = flight_add_unit(f, u->seat, u->rule, (enum lane)u->lane, cursor, 0);
        unit_at(f, rest)->state = UNIT_OUT;
        unit_at(f, rest)->sent_us = now_us;
    }
    pthread_mutex_unlock(&f->lock);
    return added;
}

bool flight_go_on(struct flight *f, const struct bus_message *m,
                  const struct audience_cursor *cursor, const struct flight_totals *add,
                  int64_t now_us)
{
    uint32_t unit;
    pthread_mutex_lock(&f->lock);
    struct flight_unit *u = find_out(f, m, &unit);
    bool goes_on = u && !(u->handed_on && u->next == cursor->after);
    if (goes_on) {
        if (u->handed_on && u->until == 0)
            u->until = u->next;
        flight_move_unit(f, unit, cursor, add, now_us);
    }
    pthread_mutex_unlock(&f->lock);
    return goes_on;
}

uint64_t flight_until(struct flight *f, const struct bus_message *m)
{
    pthread_mutex_lock(&f->lock);
    uint32_t unit = flight_find(f, m, m->cursor.after);
    const struct flight_unit *u = unit == FLIGHT_NONE ? NULL : unit_at(f, unit);
    uint64_t until = u && u->handed_on ? u->next : u ? u->until : m->until;
    pthread_mutex_unlock(&f->lock);
    return until;
}

bool flight_has_moved(struct flight *f, const struct bus_message *m)
{
    pthread_mutex_lock(&f->lock);
    uint32_t unit = flight_find(f, m, m->cursor.after);
    bool moved = false;
    if (unit != FLIGHT_NONE) {
        const struct flight_totals *t = &flight_seat(f, unit_at(f, unit)->seat)->totals;
        moved = t->members || t->delivered || t->repeated || t->skipped;
    }
    pthread_mutex_unlock(&f->lock);
    return moved;
}

/* ---- failing ---- */

bool flight_fail(struct flight *f, const struct bus_message *m)
{
    pthread_mutex_lock(&f->lock);
    uint32_t unit = flight_find(f, m, m->cursor.after);
    bool out = unit != FLIGHT_NONE && unit_at(f, unit)->state == UNIT_OUT;
    if (out) {
        unit_at(f, unit)->state = UNIT_FAILED;
        atomic_store(&flight_seat(f, unit_at(f, unit)->seat)->unwell, true);
    }
    pthread_mutex_unlock(&f->lock);
    return out;
}

void flight_unfail(struct flight *f, const struct bus_message *m)
{
    pthread_mutex_lock(&f->lock);
    uint32_t unit = flight_find(f, m, m->cursor.after);
    if (unit != FLIGHT_NONE && unit_at(f, unit)->state == UNIT_FAILED) {
        unit_at(f, unit)->state = UNIT_OUT;
        unit_at(f, unit)->in_hand = false;
    }
    pthread_mutex_unlock(&f->lock);
}

uint32_t flight_tries(struct flight *f, const struct bus_message *m)
{
    pthread_mutex_lock(&f->lock);
    uint32_t unit = flight_find(f, m, m->cursor.after);
    uint32_t tries = unit == FLIGHT_NONE ? 0 : flight_seat(f, unit_at(f, unit)->seat)->tries;
    pthread_mutex_unlock(&f->lock);
    return tries;
}
