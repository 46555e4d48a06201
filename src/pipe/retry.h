/* When a failed delivery is tried again, and how often. */
#pragma once

#include <stdint.h>

#include "port/rule.h"

enum { RETRY_STEPS = 6, RETRY_ASKED_MAX_MS = 24 * 3600 * 1000 };

/* How many times after the first try. */
uint32_t retry_limit(enum priority priority);
/* The delay before retry number `retry` (0: the first): the ladder's step with
 * jitter, or what the sink asked for (at most RETRY_ASKED_MAX_MS), whichever is
 * longer. `salt` names what is retried. */
int64_t retry_delay_ms(uint32_t retry, uint64_t salt, int64_t asked_ms);
