/* The ladder has an end but no limit of tries: the done mark waits for every event, and every error
 * of a sink means "later". The jitter is a function of what is retried, not of a generator: a
 * simulation with the same seed meets the same delays. */
#include "pipe/retry.h"

#include "base/check.h"
#include "base/hash.h"

int64_t retry_delay_us(uint32_t tries, uint64_t salt)
{
    static const int64_t ladder_ms[] = {2000, 8000, 32000, 128000, 240000};
    size_t step = tries < COUNT_OF(ladder_ms) ? tries : COUNT_OF(ladder_ms) - 1;
    int64_t delay_us = ladder_ms[step] * 1000;
    uint64_t spread = hash_u64(salt + tries) % ((uint64_t)delay_us / 4 + 1);
    return delay_us + (int64_t)spread;
}
