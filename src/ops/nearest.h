/* "Did you mean …": the word of a list that is closest to a mistyped one. */
#pragma once

#include <stddef.h>

/* NULL when none is close enough to be worth suggesting. */
const char *nearest_word(const char *typed, const char *const *words, size_t n);
