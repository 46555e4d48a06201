/* Rebuilds of what is derived, online and at a rate: home timelines and inboxes from truth,
 * counters from edges and rows. A rebuild is a job: it walks accounts by id and goes on after a
 * restart. */
#pragma once

#include "base/clock.h"
#include "port/cards.h"
#include "port/db.h"
#include "port/views.h"

enum rebuild_what { REBUILD_TIMELINES, REBUILD_COUNTERS, REBUILD_INBOXES, REBUILD_KINDS };
const char *rebuild_name(enum rebuild_what what); /* "timelines", "counters", "inboxes" */
bool rebuild_parse(struct str name, enum rebuild_what *what);

/* Looks at the next at most `max` accounts with after < id ≤ last (UINT64_MAX: to the end) and
 * rebuilds those that are active. *next: the last one looked at, `after` when there was none; *end:
 * there are no more. *seen: how many were active; *changed: how many of them were different before.
 * On failure *next is where to go on. Safe while posts, messages, follows and reads go on; a
 * timeline or inbox that is not in memory is left alone: it is made from truth when it is read. */
enum err rebuild_slice(struct db *db, struct views *views, struct cards *cards,
                       enum rebuild_what what, uint64_t after, uint64_t last, size_t max,
                       uint64_t *next, bool *end, uint64_t *seen, uint64_t *changed);
