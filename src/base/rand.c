/* xoshiro256** by Blackman and Vigna, seeded through splitmix64 as they advise, so that every seed,
 * 0 too, gives a good state. The same seed gives the same numbers on every machine for ever:
 * failing simulations are kept by their seed. */
#include "base/rand.h"

#include "base/check.h"

static uint64_t rotate(uint64_t x, int k)
{
    return x << k | x >> (64 - k);
}

void rand_seed(struct rand *r, uint64_t seed)
{
    for (int i = 0; i < 4; i++) {
        seed += UINT64_C(0x9e3779b97f4a7c15);
        uint64_t z = seed;
        z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
        z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
        r->s[i] = z ^ z >> 31;
    }
}

uint64_t rand_u64(struct rand *r)
{
    uint64_t *s = r->s;
    uint64_t result = rotate(s[1] * 5, 7) * 9;
    uint64_t shifted = s[1] << 17;
    s[2] ^= s[0];
    s[3] ^= s[1];
    s[1] ^= s[2];
    s[0] ^= s[3];
    s[2] ^= shifted;
    s[3] = rotate(s[3], 45);
    return result;
}

/* Multiply and keep the high half; the few low halves that would favour some results are drawn
 * again. */
uint64_t rand_below(struct rand *r, uint64_t n)
{
    CHECK(n > 0);
    unsigned __int128 product = (unsigned __int128)rand_u64(r) * n;
    if ((uint64_t)product < n) {
        uint64_t threshold = (0 - n) % n;
        while ((uint64_t)product < threshold)
            product = (unsigned __int128)rand_u64(r) * n;
    }
    return (uint64_t)(product >> 64);
}

double rand_unit(struct rand *r)
{
    return (double)(rand_u64(r) >> 11) * 0x1.0p-53;
}
