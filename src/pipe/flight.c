/* The undone events as a list by rising id, and for each lane the list of those that have units in
 * it: the oldest are the heads, so the mark and every lane's age are read in O(1). Beginning
 * appends and finishing unlinks, both O(1), in any order. Memory follows what is undone, not how
 * far the oldest undone event lies back: one that fails for a day costs one seat.
 *
 * Ids rise in the order in which the relay takes events. An event enters a further lane (a large
 * fan-out that leaves the small lane) a little out of order; it is put in its place from the tail,
 * past the few that overtook it.
 *
 * Invariants, under the lock: units = the sum of lane_units, plus one for a parked event; a seat is
 * linked in `all` while units > 0, and in a lane while it has units there. `owed` is touched by the
 * relay alone, and a seat that owes is never free, because what is owed counts as a unit. */
#include "pipe/flight.h"

#include <stdlib.h>

#include "base/check.h"
#include "pipe/lock.h"

struct flight_seat *flight_seat(struct flight *f, uint32_t seat)
{
    return &f->chunks[seat / FLIGHT_CHUNK][seat % FLIGHT_CHUNK];
}

void flight_init(struct flight *f, size_t max, uint64_t through)
{
    CHECK(max > 0 && max < FLIGHT_NONE - FLIGHT_CHUNK);
    *f = (struct flight){.max = max, .free = FLIGHT_NONE, .passed = through};
    f->all = (struct flight_list){FLIGHT_NONE, FLIGHT_NONE};
    for (int i = 0; i < LANE_COUNT; i++)
        f->lanes[i] = (struct flight_list){FLIGHT_NONE, FLIGHT_NONE};
    f->chunks = calloc((max + FLIGHT_CHUNK - 1) / FLIGHT_CHUNK, sizeof(struct flight_seat *));
    CHECK(f->chunks);
    lock_init(&f->lock);
}

void flight_done(struct flight *f)
{
    for (size_t i = 0; i < f->chunk_count; i++)
        free(f->chunks[i]);
    free(f->chunks);
    pthread_mutex_destroy(&f->lock);
}

void flight_reset(struct flight *f, uint64_t through)
{
    pthread_mutex_lock(&f->lock);
    CHECK(f->undone == 0);
    f->passed = through;
    pthread_mutex_unlock(&f->lock);
}

/* ---- seats and lists, under the lock ---- */

static struct flight_links *links_of(struct flight *f, struct flight_list *list, uint32_t seat)
{
    struct flight_seat *s = flight_seat(f, seat);
    return list == &f->all ? &s->all : &s->lanes[list - f->lanes];
}

static void unlink_seat(struct flight *f, struct flight_list *list, uint32_t seat)
{
    struct flight_links *links = links_of(f, list, seat);
    if (links->previous == FLIGHT_NONE)
        list->first = links->next;
    else
        links_of(f, list, links->previous)->next = links->next;
    if (links->next == FLIGHT_NONE)
        list->last = links->previous;
    else
        links_of(f, list, links->next)->previous = links->previous;
}

static void link_by_id(struct flight *f, struct flight_list *list, uint32_t seat)
{
    uint64_t id = flight_seat(f, seat)->event.id;
    uint32_t previous = list->last;
    while (previous != FLIGHT_NONE && flight_seat(f, previous)->event.id > id)
        previous = links_of(f, list, previous)->previous;
    uint32_t next = previous == FLIGHT_NONE ? list->first : links_of(f, list, previous)->next;
    *links_of(f, list, seat) = (struct flight_links){next, previous};
    if (previous == FLIGHT_NONE)
        list->first = seat;
    else
        links_of(f, list, previous)->next = seat;
    if (next == FLIGHT_NONE)
        list->last = seat;
    else
        links_of(f, list, next)->previous = seat;
}

static void add_chunk(struct flight *f)
{
    uint32_t first = (uint32_t)(f->chunk_count * FLIGHT_CHUNK);
    struct flight_seat *chunk = calloc(FLIGHT_CHUNK, sizeof *chunk);
    CHECK(chunk);
    f->chunks[f->chunk_count++] = chunk;
    for (uint32_t i = FLIGHT_CHUNK; i-- > 0;) {
        chunk[i].all.next = f->free;
        f->free = first + i;
    }
}

static uint32_t get_seat(struct flight *f)
{
    if (f->free == FLIGHT_NONE)
        add_chunk(f);
    uint32_t seat = f->free;
    f->free = flight_seat(f, seat)->all.next;
    return seat;
}

static void add_units(struct flight *f, uint32_t seat, enum lane lane, uint32_t units)
{
    struct flight_seat *s = flight_seat(f, seat);
    if (s->lane_units[lane] == 0)
        link_by_id(f, &f->lanes[lane], seat);
    s->lane_units[lane] += units;
    s->units += units;
    atomic_fetch_add(&f->lane_units[lane], units);
}

static void begin_one(struct flight *f, struct flight_start *start)
{
    start->seat = get_seat(f);
    struct flight_seat *s = flight_seat(f, start->seat);
    *s = (struct flight_seat){.event = start->event,
                              .started_us = start->started_us,
                              .owed = start->owed,
                              .units = start->parked};
    CHECK(f->all.last == FLIGHT_NONE || flight_seat(f, f->all.last)->event.id < s->event.id);
    link_by_id(f, &f->all, start->seat);
    for (int lane = 0; lane < LANE_COUNT; lane++) {
        if (start->lane_units[lane])
            add_units(f, start->seat, (enum lane)lane, start->lane_units[lane]);
    }
    CHECK(s->units > 0);
    f->undone++;
}

/* ---- the relay's and the workers' side ---- */

size_t flight_room(struct flight *f)
{
    pthread_mutex_lock(&f->lock);
    size_t room = f->max - (size_t)f->undone;
    pthread_mutex_unlock(&f->lock);
    return room;
}

void flight_begin(struct flight *f, struct flight_start *starts, size_t n, uint64_t passed)
{
    pthread_mutex_lock(&f->lock);
    CHECK(f->undone + n <= f->max);
    for (size_t i = 0; i < n; i++)
        begin_one(f, &starts[i]);
    CHECK(passed >= f->passed);
    f->passed = passed;
    pthread_mutex_unlock(&f->lock);
}

void flight_enter(struct flight *f, uint32_t seat, enum lane lane)
{
    pthread_mutex_lock(&f->lock);
    CHECK(flight_seat(f, seat)->units > 0);
    add_units(f, seat, lane, 1);
    pthread_mutex_unlock(&f->lock);
}

static void leave_one(struct flight *f, struct flight_exit *x)
{
    struct flight_seat *s = flight_seat(f, x->seat);
    CHECK(s->lane_units[x->lane] > 0);
    s->members += x->members;
    atomic_fetch_sub(&f->lane_units[x->lane], 1);
    if (--s->lane_units[x->lane] == 0)
        unlink_seat(f, &f->lanes[x->lane], x->seat);
    x->finished = --s->units == 0;
    if (!x->finished)
        return;
    x->event = s->event;
    x->event_members = s->members;
    x->started_us = s->started_us;
    unlink_seat(f, &f->all, x->seat);
    s->all.next = f->free;
    f->free = x->seat;
    f->undone--;
    f->done++;
}

bool flight_leave(struct flight *f, struct flight_exit *exits, size_t n)
{
    pthread_mutex_lock(&f->lock);
    bool was_full = f->undone == f->max;
    for (size_t i = 0; i < n; i++)
        leave_one(f, &exits[i]);
    bool freed = was_full && f->undone < f->max;
    pthread_mutex_unlock(&f->lock);
    return freed;
}

/* ---- queries ---- */

uint64_t flight_through(struct flight *f)
{
    pthread_mutex_lock(&f->lock);
    uint64_t through = f->passed;
    if (f->all.first != FLIGHT_NONE)
        through = flight_seat(f, f->all.first)->event.id - 1;
    pthread_mutex_unlock(&f->lock);
    return through;
}

uint32_t flight_next_owing(struct flight *f, enum lane lane, uint32_t seat, const uint32_t *masks)
{
    pthread_mutex_lock(&f->lock);
    uint32_t next = flight_seat(f, seat)->lanes[lane].next;
    while (next != FLIGHT_NONE) {
        const struct flight_seat *s = flight_seat(f, next);
        if (s->owed & masks[s->event.type])
            break;
        next = s->lanes[lane].next;
    }
    pthread_mutex_unlock(&f->lock);
    return next;
}

static uint64_t first_id(struct flight *f, const struct flight_list *list)
{
    return list->first == FLIGHT_NONE ? 0 : flight_seat(f, list->first)->event.id;
}

void flight_count(struct flight *f, struct flight_counts *out)
{
    pthread_mutex_lock(&f->lock);
    out->passed = f->passed;
    out->undone = f->undone;
    out->done = f->done;
    out->oldest = first_id(f, &f->all);
    for (int lane = 0; lane < LANE_COUNT; lane++) {
        out->lane_oldest[lane] = first_id(f, &f->lanes[lane]);
        out->lane_units[lane] = atomic_load(&f->lane_units[lane]);
    }
    pthread_mutex_unlock(&f->lock);
}
