/* Marks of deleted posts, each kept for TOMBSTONE_MS. Not thread-safe. */
#pragma once

#include "base/map.h"

struct tombstones {
    struct map young, old;
    int64_t opened_at_ms; /* the young one */
    size_t marks_max;     /* of each */
};

void tombstones_init(struct tombstones *g, size_t budget_bytes);
void tombstones_done(struct tombstones *g);

void tombstones_add(struct tombstones *g, uint64_t id, int64_t now_ms);
bool tombstones_has(const struct tombstones *g, uint64_t id, int64_t now_ms);
size_t tombstones_count(const struct tombstones *g);
size_t tombstones_bytes(const struct tombstones *g);
