/* The flight's pools and lists: seats and units in chunks that never move, linked by index. All of
 * it is used under the flight's lock, by the files of the flight alone. */
#pragma once

#include <stdlib.h>

#include "base/check.h"
#include "pipe/flight.h"

static inline struct flight_unit *unit_at(struct flight *f, uint32_t unit)
{
    return &f->units[unit / FLIGHT_CHUNK][unit % FLIGHT_CHUNK];
}

/* ---- getting and freeing, under the lock ---- */

static inline uint32_t get_seat(struct flight *f)
{
    if (f->free_seat == FLIGHT_NONE) {
        CHECK(f->seat_chunks < f->seat_chunks_max);
        uint32_t first = (uint32_t)(f->seat_chunks * FLIGHT_CHUNK);
        struct flight_seat *chunk = calloc(FLIGHT_CHUNK, sizeof *chunk);
        CHECK(chunk);
        f->seats[f->seat_chunks++] = chunk;
        for (uint32_t i = FLIGHT_CHUNK; i-- > 0;) {
            chunk[i].all.next = f->free_seat;
            chunk[i].uses = f->uses_from;
            f->free_seat = first + i;
        }
    }
    uint32_t seat = f->free_seat;
    f->free_seat = flight_seat(f, seat)->all.next;
    flight_seat(f, seat)->uses++;
    return seat;
}

static inline uint32_t get_unit(struct flight *f)
{
    if (f->free_unit == FLIGHT_NONE) {
        CHECK(f->unit_chunks < f->unit_chunks_max);
        uint32_t first = (uint32_t)(f->unit_chunks * FLIGHT_CHUNK);
        struct flight_unit *chunk = calloc(FLIGHT_CHUNK, sizeof *chunk);
        CHECK(chunk);
        f->units[f->unit_chunks++] = chunk;
        for (uint32_t i = FLIGHT_CHUNK; i-- > 0;) {
            chunk[i].sibling = f->free_unit;
            f->free_unit = first + i;
        }
    }
    uint32_t unit = f->free_unit;
    f->free_unit = unit_at(f, unit)->sibling;
    return unit;
}

/* ---- lists of seats and of a cell's units, under the lock ---- */

static inline void append_seat(struct flight *f, struct flight_list *list, uint32_t seat)
{
    flight_seat(f, seat)->all = (struct flight_links){FLIGHT_NONE, list->last};
    if (list->last == FLIGHT_NONE)
        list->first = seat;
    else
        flight_seat(f, list->last)->all.next = seat;
    list->last = seat;
}

static inline void unlink_seat(struct flight *f, struct flight_list *list, uint32_t seat)
{
    struct flight_links links = flight_seat(f, seat)->all;
    if (links.previous == FLIGHT_NONE)
        list->first = links.next;
    else
        flight_seat(f, links.previous)->all.next = links.next;
    if (links.next == FLIGHT_NONE)
        list->last = links.previous;
    else
        flight_seat(f, links.next)->all.previous = links.previous;
}

static inline uint64_t id_of(struct flight *f, uint32_t unit)
{
    return flight_seat(f, unit_at(f, unit)->seat)->event.id;
}

static inline void link_in_cell(struct flight *f, uint32_t unit)
{
    struct flight_list *list = &f->cells[unit_at(f, unit)->cell].units;
    uint64_t id = id_of(f, unit);
    uint32_t previous = list->last;
    while (previous != FLIGHT_NONE && id_of(f, previous) > id)
        previous = unit_at(f, previous)->in_cell.previous;
    uint32_t next = previous == FLIGHT_NONE ? list->first : unit_at(f, previous)->in_cell.next;
    unit_at(f, unit)->in_cell = (struct flight_links){next, previous};
    if (previous == FLIGHT_NONE)
        list->first = unit;
    else
        unit_at(f, previous)->in_cell.next = unit;
    if (next == FLIGHT_NONE)
        list->last = unit;
    else
        unit_at(f, next)->in_cell.previous = unit;
}

static inline void unlink_in_cell(struct flight *f, uint32_t unit)
{
    struct flight_list *list = &f->cells[unit_at(f, unit)->cell].units;
    struct flight_links links = unit_at(f, unit)->in_cell;
    if (links.previous == FLIGHT_NONE)
        list->first = links.next;
    else
        unit_at(f, links.previous)->in_cell.next = links.next;
    if (links.next == FLIGHT_NONE)
        list->last = links.previous;
    else
        unit_at(f, links.next)->in_cell.previous = links.previous;
}

/* ---- queues of units, under the lock ---- */

static inline void push_back(struct flight *f, struct flight_list *queue, uint32_t unit)
{
    unit_at(f, unit)->queue = (struct flight_links){FLIGHT_NONE, queue->last};
    if (queue->last == FLIGHT_NONE)
        queue->first = unit;
    else
        unit_at(f, queue->last)->queue.next = unit;
    queue->last = unit;
}

static inline void push_front(struct flight *f, struct flight_list *queue, uint32_t unit)
{
    unit_at(f, unit)->queue = (struct flight_links){queue->first, FLIGHT_NONE};
    if (queue->first == FLIGHT_NONE)
        queue->last = unit;
    else
        unit_at(f, queue->first)->queue.previous = unit;
    queue->first = unit;
}

static inline uint32_t pop_front(struct flight *f, struct flight_list *queue)
{
    uint32_t unit = queue->first;
    if (unit == FLIGHT_NONE)
        return unit;
    queue->first = unit_at(f, unit)->queue.next;
    if (queue->first == FLIGHT_NONE)
        queue->last = FLIGHT_NONE;
    else
        unit_at(f, queue->first)->queue.previous = FLIGHT_NONE;
    return unit;
}

static inline uint32_t pop_back(struct flight *f, struct flight_list *queue)
{
    uint32_t unit = queue->last;
    if (unit == FLIGHT_NONE)
        return unit;
    queue->last = unit_at(f, unit)->queue.previous;
    if (queue->last == FLIGHT_NONE)
        queue->first = FLIGHT_NONE;
    else
        unit_at(f, queue->last)->queue.next = FLIGHT_NONE;
    return unit;
}

/* ---- of flight.c, for the other files, under the lock ---- */

/* The unit that a message stands for, or FLIGHT_NONE; also by any other place in its walk. */
uint32_t flight_find(struct flight *f, const struct bus_message *m, uint64_t after);
uint32_t flight_add_unit(struct flight *f, uint32_t seat, uint16_t rule, enum lane lane,
                         const struct audience_cursor *cursor, uint64_t until);
void flight_move_unit(struct flight *f, uint32_t unit, const struct audience_cursor *cursor,
                      const struct flight_totals *add, int64_t now_us);
