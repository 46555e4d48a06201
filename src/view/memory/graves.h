/* Marks of deleted posts, each kept for TOMBSTONE_MS. Not thread-safe. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct grave {
    uint64_t id; /* 0: free */
    int64_t gone_at_ms;
};

struct grave_yard {
    struct grave *graves; /* open addressing; NULL: none yet */
    size_t size, count;
    int64_t opened_at_ms;
};

struct graves {
    struct grave_yard young, old;
    size_t marks_max; /* per yard */
};

void graves_init(struct graves *g, size_t budget_bytes);
void graves_done(struct graves *g);

void graves_add(struct graves *g, uint64_t id, int64_t now_ms);
bool graves_has(const struct graves *g, uint64_t id, int64_t now_ms);
size_t graves_count(const struct graves *g);
size_t graves_bytes(const struct graves *g);
