/* Parcels live in one array. Each is free, waiting (linked in the order of sending) or sent (found
 * through the ring by the number under which the broker will confirm it). Confirms may come out of
 * order and for many at once; `oldest` moves over whatever is settled, so the ring never holds more
 * numbers than there are parcels: a parcel that is sent again gets a new number, but only after its
 * old one was settled or all numbers were forgotten. A gap can keep `oldest` back while others go
 * round, so sending pauses when the ring is full of numbers. */
#include "bus/rabbitmq_window.h"

#include <stdlib.h>

#include "base/check.h"

#define NO_PARCEL UINT32_MAX

void rabbitmq_window_init(struct rabbitmq_window *w, uint32_t capacity)
{
    CHECK(capacity > 0 && capacity < UINT32_MAX / 4);
    *w = (struct rabbitmq_window){.capacity = capacity, .first = NO_PARCEL, .last = NO_PARCEL};
    w->ring = 1;
    while (w->ring < 2 * capacity)
        w->ring *= 2;
    w->parcels = calloc(capacity, sizeof *w->parcels);
    w->sent = calloc(w->ring, sizeof *w->sent);
    CHECK(w->parcels && w->sent);
    for (uint32_t i = 0; i < capacity; i++)
        w->parcels[i].next = i + 1 < capacity ? i + 1 : NO_PARCEL;
    w->oldest = w->next_number = 1;
}

void rabbitmq_window_done(struct rabbitmq_window *w)
{
    free(w->parcels);
    free(w->sent);
}

static uint32_t index_of(const struct rabbitmq_window *w, const struct rabbitmq_parcel *p)
{
    return (uint32_t)(p - w->parcels);
}

static uint32_t *ring_at(struct rabbitmq_window *w, uint64_t number)
{
    return &w->sent[number & (w->ring - 1)];
}

static void append(struct rabbitmq_window *w, uint32_t index)
{
    w->parcels[index].next = NO_PARCEL;
    if (w->last == NO_PARCEL)
        w->first = index;
    else
        w->parcels[w->last].next = index;
    w->last = index;
}

struct rabbitmq_parcel *rabbitmq_window_add(struct rabbitmq_window *w, bool forwarded)
{
    if (w->free == NO_PARCEL)
        return NULL;
    uint32_t index = w->free;
    struct rabbitmq_parcel *p = &w->parcels[index];
    w->free = p->next;
    append(w, index);
    p->forwarded = forwarded;
    w->in_use++;
    w->own += !forwarded;
    return p;
}

bool rabbitmq_window_has_waiting(const struct rabbitmq_window *w)
{
    return w->first != NO_PARCEL && w->next_number - w->oldest < w->ring;
}

struct rabbitmq_parcel *rabbitmq_window_send(struct rabbitmq_window *w)
{
    if (!rabbitmq_window_has_waiting(w))
        return NULL;
    struct rabbitmq_parcel *p = &w->parcels[w->first];
    *ring_at(w, w->next_number++) = w->first;
    w->first = p->next;
    if (w->first == NO_PARCEL)
        w->last = NO_PARCEL;
    return p;
}

struct rabbitmq_parcel *rabbitmq_window_settle(struct rabbitmq_window *w, uint64_t number,
                                               bool multiple)
{
    if (number >= w->next_number)
        return NULL;
    uint32_t index = NO_PARCEL;
    if (multiple) {
        while (w->oldest <= number && index == NO_PARCEL) {
            index = *ring_at(w, w->oldest);
            *ring_at(w, w->oldest++) = NO_PARCEL;
        }
    } else if (number >= w->oldest) {
        index = *ring_at(w, number);
        *ring_at(w, number) = NO_PARCEL;
    }
    while (w->oldest < w->next_number && *ring_at(w, w->oldest) == NO_PARCEL)
        w->oldest++;
    return index == NO_PARCEL ? NULL : &w->parcels[index];
}

void rabbitmq_window_drop(struct rabbitmq_window *w, struct rabbitmq_parcel *p)
{
    w->in_use--;
    w->own -= !p->forwarded;
    p->next = w->free;
    w->free = index_of(w, p);
}

void rabbitmq_window_again(struct rabbitmq_window *w, struct rabbitmq_parcel *p)
{
    append(w, index_of(w, p));
}

void rabbitmq_window_lost(struct rabbitmq_window *w)
{
    uint32_t waiting = w->first;
    uint32_t waiting_last = w->last;
    w->first = w->last = NO_PARCEL;
    for (; w->oldest < w->next_number; w->oldest++) {
        uint32_t index = *ring_at(w, w->oldest);
        if (index != NO_PARCEL)
            append(w, index);
    }
    if (waiting != NO_PARCEL) {
        if (w->last == NO_PARCEL)
            w->first = waiting;
        else
            w->parcels[w->last].next = waiting;
        w->last = waiting_last;
    }
    w->oldest = w->next_number = 1;
}

uint64_t rabbitmq_window_count(const struct rabbitmq_window *w, uint16_t lane)
{
    uint64_t count = 0;
    for (uint32_t index = w->first; index != NO_PARCEL; index = w->parcels[index].next)
        count += !w->parcels[index].forwarded && w->parcels[index].message.lane == lane;
    for (uint64_t number = w->oldest; number < w->next_number; number++) {
        uint32_t index = w->sent[number & (w->ring - 1)];
        count += index != NO_PARCEL && !w->parcels[index].forwarded &&
                 w->parcels[index].message.lane == lane;
    }
    return count;
}
