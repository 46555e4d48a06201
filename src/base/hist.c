/* The histogram. Values below 32 have a bucket each; above, every doubling is cut into 32 equal
 * buckets, so a bucket is at most 1/32 of its lower edge wide: a quantile, given as the upper edge,
 * is exact or too high by less than 3.2%. Values beyond the range are counted in the last bucket;
 * `sum` and `max` keep them as they are.
 *
 * Readers walk the counters while writers add: what they see is some moment's state give or take
 * the records in flight, which is all that a metric needs. */
#include "base/hist.h"

#include <math.h>
#include <stddef.h>

enum { PER_DOUBLING_BITS = 5, PER_DOUBLING = 1 << PER_DOUBLING_BITS };

static size_t bucket_of(uint64_t value)
{
    if (value < PER_DOUBLING)
        return (size_t)value;
    unsigned top = 63 - (unsigned)__builtin_clzll(value);
    unsigned shift = top - PER_DOUBLING_BITS;
    size_t bucket = (size_t)(shift + 1) * PER_DOUBLING + (value >> shift & (PER_DOUBLING - 1));
    return bucket < HIST_BUCKETS ? bucket : HIST_BUCKETS - 1;
}

/* The greatest value that the bucket holds. */
static uint64_t upper_edge(size_t bucket)
{
    if (bucket < PER_DOUBLING)
        return bucket;
    unsigned shift = (unsigned)(bucket / PER_DOUBLING) - 1;
    uint64_t lower = (uint64_t)(PER_DOUBLING + bucket % PER_DOUBLING) << shift;
    return lower + (UINT64_C(1) << shift) - 1;
}

static void raise_max(struct hist *h, uint64_t value)
{
    uint64_t max = atomic_load_explicit(&h->max, memory_order_relaxed);
    while (value > max && !atomic_compare_exchange_weak_explicit(
                              &h->max, &max, value, memory_order_relaxed, memory_order_relaxed)) {
    }
}

static uint64_t count_in(const struct hist *h, size_t bucket)
{
    return atomic_load_explicit(&h->counts[bucket], memory_order_relaxed);
}

void hist_clear(struct hist *h)
{
    for (size_t i = 0; i < HIST_BUCKETS; i++)
        atomic_store_explicit(&h->counts[i], 0, memory_order_relaxed);
    atomic_store_explicit(&h->sum, 0, memory_order_relaxed);
    atomic_store_explicit(&h->max, 0, memory_order_relaxed);
}

void hist_record(struct hist *h, uint64_t value)
{
    atomic_fetch_add_explicit(&h->counts[bucket_of(value)], 1, memory_order_relaxed);
    atomic_fetch_add_explicit(&h->sum, value, memory_order_relaxed);
    raise_max(h, value);
}

void hist_merge(struct hist *into, const struct hist *from)
{
    for (size_t i = 0; i < HIST_BUCKETS; i++) {
        uint64_t n = count_in(from, i);
        if (n > 0)
            atomic_fetch_add_explicit(&into->counts[i], n, memory_order_relaxed);
    }
    atomic_fetch_add_explicit(&into->sum, atomic_load_explicit(&from->sum, memory_order_relaxed),
                              memory_order_relaxed);
    raise_max(into, atomic_load_explicit(&from->max, memory_order_relaxed));
}

uint64_t hist_quantile(const struct hist *h, double q)
{
    uint64_t count = hist_count(h);
    if (count == 0)
        return 0;
    /* The rank of the value asked for: a share q of all values is at most it. */
    uint64_t rank = q >= 1 ? count : q > 0 ? (uint64_t)ceil(q * (double)count) : 1;
    size_t bucket = 0;
    uint64_t seen = count_in(h, 0);
    while (seen < rank && bucket + 1 < HIST_BUCKETS)
        seen += count_in(h, ++bucket);
    return upper_edge(bucket);
}

/* Counts the whole bucket that `value` falls in, as a quantile does: exact when `value` is an upper
 * edge. */
uint64_t hist_count_at_most(const struct hist *h, uint64_t value)
{
    size_t end = bucket_of(value);
    uint64_t count = 0;
    for (size_t i = 0; i <= end; i++)
        count += count_in(h, i);
    return count;
}
