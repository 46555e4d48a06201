/* Reading the SQL texts that both engines share: what each has to rewrite is found here. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "base/str.h"

bool sql_is_word(char c);
/* The length of `ids($N)` at `p`, with the place of `$N`; 0 when it is something else. */
size_t sql_match_ids(const char *p, struct str *parameter);
