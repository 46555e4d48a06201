/* Account id → slot. Lookups take no lock and never wait; inserting is for one caller at a time. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/hash.h"

struct directory_entry {
    _Atomic uint64_t id; /* 0: free */
    _Atomic uint32_t slot;
};

struct directory_table {
    struct directory_table *older; /* outgrown; readers may still be in it */
    uint64_t mask;
    struct directory_entry *entries;
};

struct directory {
    _Atomic(struct directory_table *) table;
    uint64_t count;
};

#define DIRECTORY_NONE UINT32_MAX

bool directory_init(struct directory *d, uint64_t expected);
void directory_done(struct directory *d);

/* `id` must not be there yet. False: no memory. */
bool directory_insert(struct directory *d, uint64_t id, uint32_t slot);

uint32_t directory_find(struct directory *d, uint64_t id); /* DIRECTORY_NONE: unknown */
void directory_prefetch(struct directory *d, uint64_t id);
uint64_t directory_bytes(struct directory *d);
