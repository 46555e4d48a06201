/* Graves lie in two yards. New ones go to the young yard; when it has been open for TOMBSTONE_MS,
 * everything in the old yard has expired: it is given up and the young one takes its place. So
 * nothing is ever removed one by one. A mark answers for exactly TOMBSTONE_MS, whichever yard it
 * lies in.
 *
 * Memory is bounded: a yard that is full takes the other's place early, and the oldest marks are
 * lost. That is safe here: what a mark guards against, a fill that read truth before the delete, is
 * refused by its ticket anyway. */
#include "view/memory/graves.h"

#include <stdlib.h>

#include "base/hash.h"
#include "port/cards.h"

enum { FIRST_SIZE = 64 };

void graves_init(struct graves *g, size_t budget_bytes)
{
    *g = (struct graves){0};
    /* Two yards, each at most half full; while one grows its old table is there, too. */
    g->marks_max = budget_bytes / 2 / sizeof(struct grave) / 4;
    if (g->marks_max < FIRST_SIZE / 2)
        g->marks_max = FIRST_SIZE / 2;
}

void graves_done(struct graves *g)
{
    free(g->young.graves);
    free(g->old.graves);
    g->young = g->old = (struct grave_yard){0};
}

static struct grave *place_of(const struct grave_yard *y, uint64_t id)
{
    size_t i = hash_u64(id) & (y->size - 1);
    while (y->graves[i].id != 0 && y->graves[i].id != id)
        i = (i + 1) & (y->size - 1);
    return &y->graves[i];
}

static bool yard_has(const struct grave_yard *y, uint64_t id, int64_t now_ms)
{
    if (y->count == 0)
        return false;
    const struct grave *g = place_of(y, id);
    return g->id == id && now_ms - g->gone_at_ms < TOMBSTONE_MS;
}

static bool yard_grow(struct grave_yard *y)
{
    struct grave_yard larger = {.size = y->size > 0 ? y->size * 2 : FIRST_SIZE,
                                .count = y->count,
                                .opened_at_ms = y->opened_at_ms};
    larger.graves = calloc(larger.size, sizeof *larger.graves);
    if (!larger.graves)
        return false;
    for (size_t i = 0; i < y->size; i++)
        if (y->graves[i].id != 0)
            *place_of(&larger, y->graves[i].id) = y->graves[i];
    free(y->graves);
    *y = larger;
    return true;
}

void graves_add(struct graves *g, uint64_t id, int64_t now_ms)
{
    struct grave_yard *y = &g->young;
    if (y->count > 0 && (y->count >= g->marks_max || now_ms - y->opened_at_ms >= TOMBSTONE_MS)) {
        free(g->old.graves);
        g->old = g->young;
        *y = (struct grave_yard){0};
    }
    if (y->count == 0)
        y->opened_at_ms = now_ms;
    if (y->count * 2 >= y->size && !yard_grow(y))
        return;
    struct grave *place = place_of(y, id);
    y->count += place->id == 0;
    *place = (struct grave){id, now_ms};
}

bool graves_has(const struct graves *g, uint64_t id, int64_t now_ms)
{
    return yard_has(&g->young, id, now_ms) || yard_has(&g->old, id, now_ms);
}

size_t graves_count(const struct graves *g)
{
    return g->young.count + g->old.count;
}

size_t graves_bytes(const struct graves *g)
{
    return (g->young.size + g->old.size) * sizeof(struct grave);
}
