/* A latency histogram: logarithmic buckets, 32 to a doubling (error under 3.2%), values from 1
 * to 2^40 in whatever unit the caller counts in. Recording is one relaxed atomic add, from any
 * thread. */
#pragma once

#include <stdatomic.h>
#include <stdint.h>

enum { HIST_BUCKETS = 36 * 32 + 32 };

struct hist {
    _Atomic uint64_t counts[HIST_BUCKETS];
    _Atomic uint64_t sum;
    _Atomic uint64_t max;
};

void hist_clear(struct hist *h);
void hist_record(struct hist *h, uint64_t value);
void hist_merge(struct hist *into, const struct hist *from);
uint64_t hist_quantile(const struct hist *h, double q); /* 0 when empty; the bucket's upper edge */
uint64_t hist_count_at_most(const struct hist *h, uint64_t value);
static inline uint64_t hist_count(const struct hist *h)
{
    return hist_count_at_most(h, UINT64_MAX);
}
