/* The setting freshness-targets: CONSUMER[:TYPE]=SPAN, separated by commas. */
#pragma once

#include "pipe/freshness.h"

/* Sets the targets that the text names; of a rule that is named twice the last counts. ERR_INVALID:
 * `why` says what is wrong with which entry. */
enum err targets_set(const char *text, const struct rule *rules, size_t n, struct freshness *f,
                     char why[200]);
