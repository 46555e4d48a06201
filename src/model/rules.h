/* The fan-out table of the domain and its sinks, and what a committed event does to the views
 * before its answer. */
#pragma once

#include "port/cards.h"
#include "port/rule.h"
#include "port/views.h"

extern const struct rule model_rules[];
extern const size_t model_rule_count;

/* The immediate part: graph, tombstones, own timeline, caches. Called in commit order, and
 * again, for stored events, on start for everything the views' saved state does not cover.
 * Idempotent. */
void event_apply(struct views *views, struct cards *cards, const struct event *e);
