/* What the flight knows, for others to read: the mark, counts, one event. */
#include "base/check.h"
#include "pipe/flight_lists.h"

uint64_t flight_through(struct flight *f)
{
    pthread_mutex_lock(&f->lock);
    uint64_t through = f->passed;
    if (f->all.first != FLIGHT_NONE)
        through = flight_seat(f, f->all.first)->event.id - 1;
    pthread_mutex_unlock(&f->lock);
    return through;
}

void flight_count(struct flight *f, struct flight_counts *out)
{
    pthread_mutex_lock(&f->lock);
    out->passed = f->passed;
    out->ahead_after = f->ahead_after;
    out->ahead_passed = f->ahead_passed;
    out->undone = f->undone;
    out->done = f->done;
    out->expanded = f->expanded;
    out->aside = f->aside;
    out->blocked_keys = f->order.blocked;
    out->oldest = f->all.first == FLIGHT_NONE ? 0 : flight_seat(f, f->all.first)->event.id;
    out->cell_count = f->cell_count;
    for (size_t i = 0; i < f->cell_count; i++) {
        const struct flight_cell *cell = &f->cells[i];
        out->cells[i].rule = cell->rule;
        out->cells[i].lane = cell->lane;
        out->cells[i].count = cell->count;
        out->cells[i].entered = cell->entered;
        uint32_t first = cell->units.first;
        out->cells[i].oldest =
            first == FLIGHT_NONE ? 0 : flight_seat(f, unit_at(f, first)->seat)->event.id;
    }
    pthread_mutex_unlock(&f->lock);
}

bool flight_owes(struct flight *f)
{
    bool owes = false;
    pthread_mutex_lock(&f->lock);
    for (int lane = 0; lane < LANE_COUNT; lane++)
        owes |= f->owed[lane].first != FLIGHT_NONE || f->fresh[lane].first != FLIGHT_NONE;
    pthread_mutex_unlock(&f->lock);
    return owes;
}

/* The list is by rising id, and whoever asks is one operator: a walk is good
 * enough. */
bool flight_look(struct flight *f, uint64_t event,
                 void (*visit)(void *ctx, const struct flight_seat *s, const struct flight_unit *u),
                 void *ctx)
{
    pthread_mutex_lock(&f->lock);
    uint32_t seat = f->all.first;
    while (seat != FLIGHT_NONE && flight_seat(f, seat)->event.id < event)
        seat = flight_seat(f, seat)->all.next;
    if (seat == FLIGHT_NONE)
        seat = f->ahead.first;
    while (seat != FLIGHT_NONE && flight_seat(f, seat)->event.id < event)
        seat = flight_seat(f, seat)->all.next;
    bool found = seat != FLIGHT_NONE && flight_seat(f, seat)->event.id == event;
    if (found) {
        const struct flight_seat *s = flight_seat(f, seat);
        for (uint32_t unit = s->first_unit; unit != FLIGHT_NONE; unit = unit_at(f, unit)->sibling)
            visit(ctx, s, unit_at(f, unit));
    }
    pthread_mutex_unlock(&f->lock);
    return found;
}
