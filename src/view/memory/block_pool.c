/* The block pool. Timelines are most of the memory, so it matters how their blocks lie: chunks of 2
 * MiB, aligned and advised to be huge pages, make a fan-out that touches a million blocks cheap on
 * the TLB; blocks of one size never fragment. A small installation starts with small chunks on
 * ordinary pages: a chunk is as large as everything its part has so far. */
#include "view/memory/block_pool.h"

#include <stddef.h>
#include <sys/mman.h>

enum { CHUNK_MIN_BYTES = 16 << 10, CHUNK_MAX_BYTES = 2 << 20 };

/* At the start of each chunk, in the room of its first block. */
struct pool_chunk {
    struct pool_chunk *before;
    void *mapped;
    size_t mapped_bytes;
};

_Static_assert(sizeof(struct pool_chunk) <= sizeof(struct block), "it takes a block's room");

void block_pool_init(struct block_pool *p)
{
    *p = (struct block_pool){0};
}

void block_pool_done(struct block_pool *p)
{
    for (size_t i = 0; i < POOL_PARTS; i++) {
        struct pool_chunk *c = p->parts[i].chunks;
        while (c) {
            struct pool_chunk *before = c->before;
            munmap(c->mapped, c->mapped_bytes);
            c = before;
        }
        p->parts[i] = (struct pool_part){0};
    }
}

static struct pool_part *part_of(struct block_pool *p, uint32_t near)
{
    return &p->parts[near % POOL_PARTS];
}

static int add_chunk(struct pool_part *s)
{
    size_t bytes = CHUNK_MIN_BYTES;
    while (bytes < CHUNK_MAX_BYTES && bytes < s->bytes)
        bytes *= 2;
    size_t mapped_bytes = bytes == CHUNK_MAX_BYTES ? bytes * 2 : bytes; /* room to align */
    char *mapped =
        mmap(NULL, mapped_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (mapped == MAP_FAILED)
        return -1;
    if (bytes == CHUNK_MAX_BYTES) { /* cut the ends off, so that it is one huge page */
        size_t skip = -(uintptr_t)mapped % CHUNK_MAX_BYTES;
        if (skip > 0)
            munmap(mapped, skip);
        munmap(mapped + skip + bytes, mapped_bytes - skip - bytes);
        mapped += skip;
        (void)madvise(mapped, bytes, MADV_HUGEPAGE);
    }
    struct pool_chunk *c = (struct pool_chunk *)(void *)mapped;
    *c = (struct pool_chunk){s->chunks, mapped, bytes};
    s->chunks = c;
    s->next = (struct block *)(void *)mapped + 1;
    s->end = (struct block *)(void *)(mapped + bytes);
    return 0;
}

struct block *block_take(struct block_pool *p, uint32_t near)
{
    struct pool_part *s = part_of(p, near);
    struct block *b = NULL;
    latch_lock(&s->latch);
    if (s->free) {
        b = s->free;
        s->free = b->older;
    } else if (s->next < s->end || add_chunk(s) == 0) {
        b = s->next++;
        s->bytes += sizeof *b;
    }
    latch_unlock(&s->latch);
    return b;
}

void block_give_back(struct block_pool *p, uint32_t near, struct block *b)
{
    struct pool_part *s = part_of(p, near);
    latch_lock(&s->latch);
    b->older = s->free;
    s->free = b;
    latch_unlock(&s->latch);
}

uint64_t block_pool_bytes(struct block_pool *p)
{
    uint64_t bytes = 0;
    for (size_t i = 0; i < POOL_PARTS; i++) {
        latch_lock(&p->parts[i].latch);
        bytes += p->parts[i].bytes;
        latch_unlock(&p->parts[i].latch);
    }
    return bytes;
}
