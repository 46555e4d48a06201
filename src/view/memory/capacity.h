/* Capacities of growing arrays: doubling up to 64, then four steps to a doubling (80, 96, 112, 128,
 * 160 …). With 4- or 8-byte elements each of them fills one of jemalloc's size classes exactly, so
 * slack stays under a quarter. */
#pragma once

#include <stdint.h>

static inline uint32_t capacity_step(uint32_t capacity) /* for capacity ≥ 64 */
{
    return (UINT32_C(1) << (31 - __builtin_clz(capacity))) / 4;
}

static inline uint32_t capacity_next(uint32_t capacity)
{
    if (capacity < 64)
        return capacity < 8 ? 8 : capacity * 2;
    return capacity + capacity_step(capacity);
}

/* The smallest capacity that holds `count`. */
static inline uint32_t capacity_for(uint32_t count)
{
    if (count <= 64)
        return count <= 8 ? 8 : UINT32_C(1) << (32 - __builtin_clz(count - 1));
    uint32_t step = capacity_step(count - 1);
    return (count + step - 1) / step * step;
}
