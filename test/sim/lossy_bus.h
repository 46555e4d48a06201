/* The bus port as a bad network would keep it: `exact` is false. Published messages vanish, come
 * twice, late and out of order; acknowledgements vanish, so that what was done comes back; a
 * consumer's connection breaks, so that what it holds is given to the next. What the port promises
 * in spite of all that stays: one taker at a time for each copy, the lanes' limits, no retry before
 * its delay, nothing invented.
 *
 * Everything follows from the seed and the clock that is handed in: the same history, each time. */
#pragma once

#include "base/clock.h"
#include "port/bus.h"

enum { LOSSY_WINDOW_MAX = 1000 };

/* Chances in a thousand. */
struct lossy_config {
    uint64_t seed;
    uint32_t lose;       /* a published message vanishes */
    uint32_t lose_ack;   /* an ack vanishes: the message comes back after at most redeliver_us */
    uint32_t lose_retry; /* what a taker gives back vanishes */
    uint32_t double_up;  /* a published message comes twice */
    uint32_t delay;      /* a published message comes late, by at most delay_us */
    uint32_t break_off;  /* a take ends by a broken connection: another may get it meanwhile */
    uint32_t window;     /* how many later ones may overtake a message */
    int64_t delay_us, redeliver_us;
};

struct lossy_counts {
    uint64_t lost, doubled, delayed, acks_lost, retries_lost, redelivered;
};

struct bus *lossy_bus_new(size_t lanes, const size_t *limits, struct clock *clock,
                          const struct lossy_config *config);
/* From now on nothing is lost or doubled any more; what is under way stays as it is. */
void lossy_bus_calm(struct bus *b);
/* All takers are gone: their messages can be taken again, and old acks are void. */
void lossy_bus_drop_takers(struct bus *b);
void lossy_bus_count(struct bus *b, struct lossy_counts *out);
