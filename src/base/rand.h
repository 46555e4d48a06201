/* A small seeded generator (xoshiro256**) for simulations, jitter and demo worlds. Not for
 * secrets. */
#pragma once

#include <stdint.h>

struct rand {
    uint64_t s[4];
};

void rand_seed(struct rand *r, uint64_t seed);
uint64_t rand_u64(struct rand *r);
uint64_t rand_below(struct rand *r, uint64_t n); /* 0 … n-1, n > 0, unbiased */
double rand_unit(struct rand *r);                /* [0, 1) */
