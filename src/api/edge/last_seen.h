/* When people were last active. The views get a mark at once, or within a second when they are
 * remote; truth gets them in batches, about once a minute, because a write per visit would cost
 * more than the visit. A crash loses at most that minute. */
#pragma once

#include "base/clock.h"
#include "model/account.h"
#include "port/db.h"
#include "port/views.h"

struct last_seen;

struct last_seen *last_seen_new(struct db *db, struct views *views, struct clock *clock,
                                struct session_terms sessions, size_t marks_max);
void last_seen_free(struct last_seen *s);

/* `account` (through `session`, 0: none) was here now. Any thread; never blocks for long; dropped
 * when full. */
void last_seen_mark(struct last_seen *s, uint64_t account, uint64_t session);

/* Writes what has gathered, a slice at a time; blocking. Returns when to call again (monotonic µs).
 * One caller. */
int64_t last_seen_step(struct last_seen *s);
