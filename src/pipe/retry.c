/* The ladder. The jitter (up to a quarter more) is a function of what is
 * retried, not of a generator: a simulation with the same seed meets the same
 * delays, and a restart does not change them. */
#include "pipe/retry.h"

#include "base/check.h"
#include "base/hash.h"

static const int64_t ladder_ms[RETRY_STEPS] = {2000, 8000, 32000, 128000, 240000, 240000};

static const uint32_t limits[] = {
    [PRIORITY_CRITICAL] = 6,
    [PRIORITY_NORMAL] = 4,
    [PRIORITY_LOW] = 2,
};

uint32_t retry_limit(enum priority priority)
{
    CHECK((size_t)priority < COUNT_OF(limits));
    return limits[priority];
}

int64_t retry_delay_ms(uint32_t retry, uint64_t salt, int64_t asked_ms)
{
    int64_t step_ms = ladder_ms[retry < RETRY_STEPS ? retry : RETRY_STEPS - 1];
    int64_t delay_ms = step_ms + (int64_t)(hash_u64(salt + retry) % ((uint64_t)step_ms / 4 + 1));
    if (asked_ms > RETRY_ASKED_MAX_MS)
        asked_ms = RETRY_ASKED_MAX_MS;
    return asked_ms > delay_ms ? asked_ms : delay_ms;
}
