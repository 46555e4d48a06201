/* Blocks of one size for timelines, from large chunks. Freed blocks are kept for the next taker;
 * memory goes back to the system when the pool closes. */
#pragma once

#include <stdint.h>

#include "view/memory/latch.h"

enum { BLOCK_IDS = 30, POOL_PARTS = 16 };

struct block {
    struct block *older, *newer;
    uint64_t ids[BLOCK_IDS];
};

_Static_assert(sizeof(struct block) == 256, "four cache lines");

struct pool_chunk;

/* A part of the pool with a latch of its own: a run of neighbouring accounts uses one, so that
 * their blocks lie side by side, and threads that work in different places rarely meet. */
struct pool_part {
    _Alignas(64) struct latch latch;
    struct block *free;
    struct block *next, *end; /* not yet handed out, of the last chunk */
    struct pool_chunk *chunks;
    uint64_t bytes; /* handed out at least once */
};

struct block_pool {
    struct pool_part parts[POOL_PARTS];
};

void block_pool_init(struct block_pool *p);
void block_pool_done(struct block_pool *p);

/* `near` names the part: give it back with the same. The content is undefined. NULL: no memory. */
struct block *block_take(struct block_pool *p, uint32_t near);
void block_give_back(struct block_pool *p, uint32_t near, struct block *b);
uint64_t block_pool_bytes(struct block_pool *p);
