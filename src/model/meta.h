/* Named numbers in the table `meta`, whose values are text. */
#pragma once

#include "port/db.h"

/* 0 when there is none, or what is there is no number. */
enum err meta_get(struct tx *tx, struct str name, uint64_t *value);
enum err meta_set(struct tx *tx, struct str name, uint64_t value);
