/* 64-bit time-ordered ids: 41 bits of milliseconds since ID_EPOCH_MS, 10 bits of node, 12 bits of
 * counter; the top bit is zero. They never go backwards when the clock does: the generator then
 * stays in its last millisecond and borrows from the future when the counter runs out. */
#pragma once

#include <stdatomic.h>
#include <stdint.h>

#include "base/clock.h"
#include "base/str.h"

#define ID_EPOCH_MS INT64_C(1704067200000) /* 2024-01-01T00:00:00Z */

enum { ID_NODE_BITS = 10, ID_COUNTER_BITS = 12, ID_TEXT_MAX = 20 };

struct id_gen {
    struct clock *clock;
    uint32_t node;
    _Atomic uint64_t last; /* the last id without its node bits: (ms << 12) | counter */
};

void id_gen_init(struct id_gen *g, struct clock *clock, uint32_t node);
/* Never hands out an id at or below `floor` from now on (called with the greatest stored id). */
void id_gen_raise(struct id_gen *g, uint64_t floor);
uint64_t id_next(struct id_gen *g); /* any thread */

int64_t id_time_ms(uint64_t id);                                  /* wall time */
uint32_t id_node(uint64_t id);                                    /* that made it */
uint64_t id_at(int64_t wall_ms, uint32_t node, uint32_t counter); /* for imports and range cuts */
bool id_parse(struct str text, uint64_t *id);                     /* decimal, 1 … 2^63-1 */
size_t id_format(uint64_t id, char out[ID_TEXT_MAX]);             /* returns the length */
