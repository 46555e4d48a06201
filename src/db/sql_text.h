/* Reading the SQL texts that both drivers share: what each has to rewrite is found here. */
#pragma once

#include "base/buf.h"

bool sql_is_word(char c);

/* Copies the text, NUL included, with each `ids($N)` as `write` puts it; `rest` is what follows it.
 * False: there was none. */
bool sql_rewrite_ids(const char *sql, struct buf *out,
                     void (*write)(struct buf *out, struct str parameter, const char *rest));
int sql_parameter_count(const char *sql); /* the highest $N */
