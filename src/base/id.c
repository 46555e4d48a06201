/* The id generator. Its whole state is one 64-bit number, (milliseconds << 12) | counter, moved by
 * compare-and-swap: an id is either the present millisecond with counter 0, or one more than the
 * last. The second case covers everything that could go wrong: several ids in a millisecond, a
 * clock that stands still or goes back, and a counter that runs out, which carries into the
 * milliseconds and so borrows from the future.
 *
 * The invariant: the number only rises, and each value is given to one caller. Uniqueness between
 * nodes comes from the node bits, which stand between milliseconds and counter. */
#include "base/id.h"

#include "base/check.h"

enum { NODE_SHIFT = ID_COUNTER_BITS, TIME_SHIFT = ID_COUNTER_BITS + ID_NODE_BITS };

#define COUNTER_MASK ((UINT64_C(1) << ID_COUNTER_BITS) - 1)
#define NODE_MASK    ((UINT64_C(1) << ID_NODE_BITS) - 1)
#define TIME_LIMIT   (UINT64_C(1) << 41)

/* Milliseconds that an id can hold; moments outside become the nearest. */
static uint64_t time_bits(int64_t wall_ms)
{
    if (wall_ms < ID_EPOCH_MS)
        return 0;
    uint64_t ms = (uint64_t)(wall_ms - ID_EPOCH_MS);
    return ms < TIME_LIMIT ? ms : TIME_LIMIT - 1;
}

void id_gen_init(struct id_gen *g, struct clock *clock, uint32_t node)
{
    CHECK(node <= NODE_MASK);
    g->clock = clock;
    g->node = node;
    atomic_init(&g->last, 0);
}

void id_gen_raise(struct id_gen *g, uint64_t floor)
{
    uint64_t last = floor >> TIME_SHIFT << ID_COUNTER_BITS | (floor & COUNTER_MASK);
    /* An id of a greater node in the same millisecond is above all of ours there. */
    if ((floor >> NODE_SHIFT & NODE_MASK) > g->node)
        last |= COUNTER_MASK;
    uint64_t old = atomic_load_explicit(&g->last, memory_order_relaxed);
    while (old < last && !atomic_compare_exchange_weak_explicit(
                             &g->last, &old, last, memory_order_relaxed, memory_order_relaxed)) {
    }
}

uint64_t id_next(struct id_gen *g)
{
    uint64_t now = time_bits(clock_wall_ms(g->clock)) << ID_COUNTER_BITS;
    uint64_t old = atomic_load_explicit(&g->last, memory_order_relaxed);
    uint64_t next;
    do {
        next = now > old ? now : old + 1;
    } while (!atomic_compare_exchange_weak_explicit(&g->last, &old, next, memory_order_relaxed,
                                                    memory_order_relaxed));
    CHECK(next >> ID_COUNTER_BITS < TIME_LIMIT);
    return next >> ID_COUNTER_BITS << TIME_SHIFT | (uint64_t)g->node << NODE_SHIFT |
           (next & COUNTER_MASK);
}

uint32_t id_node(uint64_t id)
{
    return (uint32_t)(id >> NODE_SHIFT & NODE_MASK);
}

int64_t id_time_ms(uint64_t id)
{
    return (int64_t)(id >> TIME_SHIFT) + ID_EPOCH_MS;
}

uint64_t id_at(int64_t wall_ms, uint32_t node, uint32_t counter)
{
    CHECK(node <= NODE_MASK && counter <= COUNTER_MASK);
    return time_bits(wall_ms) << TIME_SHIFT | (uint64_t)node << NODE_SHIFT | counter;
}

bool id_parse(struct str text, uint64_t *id)
{
    uint64_t value;
    if (text.len > ID_TEXT_MAX || !str_parse_u64(text, &value) || value == 0 || value > INT64_MAX)
        return false;
    /* One spelling only: "007" is not an id. */
    if (text.ptr[0] == '0')
        return false;
    *id = value;
    return true;
}

/* Eight digits, with leading zeros. 32-bit divisions by constants: pages hold dozens of ids. */
static void put_eight(char *out, uint32_t value)
{
    uint32_t high = value / 10000, low = value % 10000;
    memcpy(out, str_digit_pairs + high / 100 * 2, 2);
    memcpy(out + 2, str_digit_pairs + high % 100 * 2, 2);
    memcpy(out + 4, str_digit_pairs + low / 100 * 2, 2);
    memcpy(out + 6, str_digit_pairs + low % 100 * 2, 2);
}

size_t id_format(uint64_t id, char out[ID_TEXT_MAX])
{
    if (id < 100) { /* most counters */
        memcpy(out, str_digit_pairs + id * 2 + (id < 10), id < 10 ? 1 : 2);
        return id < 10 ? 1 : 2;
    }
    char digits[24];
    const uint64_t eight = 100000000;
    put_eight(digits, (uint32_t)(id / eight / eight));
    put_eight(digits + 8, (uint32_t)(id / eight % eight));
    put_eight(digits + 16, (uint32_t)(id % eight));
    size_t zeros = id >= eight * eight ? 0 : id >= eight ? 8 : 16;
    while (zeros < 23 && digits[zeros] == '0')
        zeros++;
    memcpy(out, digits + zeros, 24 - zeros);
    return 24 - zeros;
}
