/* How long a failed batch waits before its next try. */
#pragma once

#include <stdint.h>

/* 2, 8, 32, 128 and then always 240 seconds, plus up to a quarter by `salt`, so that what failed
 * together does not come back together. `tries`: how many failed before this one. */
int64_t retry_delay_us(uint32_t tries, uint64_t salt);
