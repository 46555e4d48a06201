/* Parcels live in one array. Each is free, waiting (linked in the order of sending) or sent (found
 * through the ring by the number under which the broker will confirm it). Confirms may come out of
 * order and for many at once; `oldest` moves over whatever is settled, so the ring never holds more
 * numbers than there are parcels: a parcel that is sent again gets a new number, but only after its
 * old one was settled or all numbers were forgotten. A gap can keep `oldest` back while others go
 * round, so sending pauses when the ring is full of numbers. */
#include "bus/rabbitmq_window.h"

#include <stdlib.h>

#include "base/check.h"

void rabbitmq_window_init(struct rabbitmq_window *w, uint32_t capacity)
{
    CHECK(capacity > 0 && capacity < UINT32_MAX / 4);
    *w = (struct rabbitmq_window){.tail = &w->first, .ring = 1, .oldest = 1, .next_number = 1};
    while (w->ring < 2 * capacity)
        w->ring *= 2;
    w->parcels = calloc(capacity, sizeof *w->parcels);
    w->sent = calloc(w->ring, sizeof(struct rabbitmq_parcel *));
    CHECK(w->parcels && w->sent);
    for (uint32_t i = capacity; i-- > 0; w->free = &w->parcels[i])
        w->parcels[i].next = w->free;
}

void rabbitmq_window_done(struct rabbitmq_window *w)
{
    free(w->parcels);
    free(w->sent);
}

static struct rabbitmq_parcel **sent_at(const struct rabbitmq_window *w, uint64_t number)
{
    return &w->sent[number & (w->ring - 1)];
}

static struct rabbitmq_parcel *take_sent(struct rabbitmq_window *w, uint64_t number)
{
    struct rabbitmq_parcel *p = *sent_at(w, number);
    *sent_at(w, number) = NULL;
    return p;
}

void rabbitmq_window_again(struct rabbitmq_window *w, struct rabbitmq_parcel *p)
{
    p->next = NULL;
    *w->tail = p;
    w->tail = &p->next;
}

struct rabbitmq_parcel *rabbitmq_window_add(struct rabbitmq_window *w, bool forwarded)
{
    struct rabbitmq_parcel *p = w->free;
    if (!p)
        return NULL;
    w->free = p->next;
    rabbitmq_window_again(w, p);
    p->forwarded = forwarded;
    w->in_use++;
    w->own += !forwarded;
    return p;
}

bool rabbitmq_window_has_waiting(const struct rabbitmq_window *w)
{
    return w->first && w->next_number - w->oldest < w->ring;
}

struct rabbitmq_parcel *rabbitmq_window_send(struct rabbitmq_window *w)
{
    if (!rabbitmq_window_has_waiting(w))
        return NULL;
    struct rabbitmq_parcel *p = w->first;
    *sent_at(w, w->next_number++) = p;
    w->first = p->next;
    if (!w->first)
        w->tail = &w->first;
    return p;
}

struct rabbitmq_parcel *rabbitmq_window_settle(struct rabbitmq_window *w, uint64_t number,
                                               bool multiple)
{
    struct rabbitmq_parcel *p = NULL;
    if (number >= w->next_number)
        return NULL;
    while (multiple && w->oldest <= number && !p)
        p = take_sent(w, w->oldest++);
    if (!multiple && number >= w->oldest)
        p = take_sent(w, number);
    while (w->oldest < w->next_number && !*sent_at(w, w->oldest))
        w->oldest++;
    return p;
}

void rabbitmq_window_drop(struct rabbitmq_window *w, struct rabbitmq_parcel *p)
{
    w->in_use--;
    w->own -= !p->forwarded;
    p->next = w->free;
    w->free = p;
}

void rabbitmq_window_lost(struct rabbitmq_window *w)
{
    struct rabbitmq_parcel *waiting = w->first, **waiting_tail = w->tail;
    w->tail = &w->first;
    for (; w->oldest < w->next_number; w->oldest++) {
        struct rabbitmq_parcel *p = take_sent(w, w->oldest);
        if (p)
            rabbitmq_window_again(w, p);
    }
    *w->tail = waiting;
    if (waiting)
        w->tail = waiting_tail;
    w->oldest = w->next_number = 1;
}

uint64_t rabbitmq_window_count(const struct rabbitmq_window *w, uint16_t lane)
{
    uint64_t count = 0;
    for (const struct rabbitmq_parcel *p = w->first; p; p = p->next)
        count += !p->forwarded && p->message.lane == lane;
    for (uint64_t number = w->oldest; number < w->next_number; number++) {
        const struct rabbitmq_parcel *p = *sent_at(w, number);
        count += p && !p->forwarded && p->message.lane == lane;
    }
    return count;
}
