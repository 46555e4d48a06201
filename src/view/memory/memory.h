/* The embedded drivers of the views and cards ports: in memory, with a snapshot file for a fast
 * restart. */
#pragma once

#include "base/clock.h"
#include "port/cards.h"
#include "port/views.h"

struct memory_views_config {
    const char *snapshot_path; /* NULL: no snapshot, save() does nothing */
    size_t timeline_cap;       /* entries kept per timeline, at most 1,000 by default */
    size_t pull_cap;           /* ids kept per pull list */
    struct clock *clock;
};

/* Loads the snapshot when there is a whole, readable one (views->loaded_position > 0); a damaged
 * one is put aside, logged, and treated as missing. */
enum err views_memory_open(const struct memory_views_config *config, struct views **out);

struct cards *cards_memory_new(size_t bytes_max, struct clock *clock);
