/* When people were last here. The views are told at once; truth is told in batches, about once a
 * minute, because a write per visit would cost more than the visit. What is lost in a crash is at
 * most that minute. */
#pragma once

#include "base/clock.h"
#include "port/db.h"

struct seen;

struct seen *seen_new(struct db *db, struct clock *clock, int64_t session_life_ms,
                      size_t marks_max);
void seen_free(struct seen *s);

/* `account` (through `session`, 0: none) was here now. Any thread; never blocks for long; dropped
 * when full. */
void seen_mark(struct seen *s, uint64_t account, uint64_t session);

/* Writes what has gathered, a slice at a time; blocking. Returns when to call again (monotonic µs).
 * One caller. */
int64_t seen_step(struct seen *s);
size_t seen_waiting(struct seen *s);
