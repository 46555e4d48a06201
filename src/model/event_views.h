/* What a committed event does to views and cards before its answer. */
#pragma once

#include "port/cards.h"
#include "port/event.h"
#include "port/views.h"

/* The immediate part: graph, tombstones, own timeline, caches. Called in commit order, and
 * again, for stored events, on start for everything the views' saved state does not cover.
 * Idempotent. */
void event_apply(struct views *views, struct cards *cards, const struct event *e);

/* The same for many events at once, in their order: one trip to shared cards and one to shared
 * views. An error is the views': they may hold some of it. (Shared cards queue a change that they
 * could not write, and this process does not read its key meanwhile.) */
enum err event_apply_all(struct views *views, struct cards *cards, const struct event *events,
                         size_t n);
