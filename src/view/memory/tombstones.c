/* Tombstones lie in two maps. New ones go to the young map; when it has been open for
 * TOMBSTONE_MS, everything in the old map has expired: it is given up and the young one takes its
 * place. So nothing is ever removed one by one. A mark answers for exactly TOMBSTONE_MS, whichever
 * map it lies in.
 *
 * Memory is bounded: a map that is full takes the other's place early, and the oldest marks are
 * lost. That is safe here: what a mark guards against, a fill that read truth before the delete, is
 * refused by its ticket anyway. */
#include "view/memory/tombstones.h"

#include "port/cards.h"

enum { MARKS_MIN = 32 };

struct tombstone {
    uint64_t id;
    int64_t gone_at_ms;
};

static void init_map(struct map *m)
{
    map_init(m, sizeof(struct tombstone), sizeof(uint64_t));
}

void tombstones_init(struct tombstones *g, size_t budget_bytes)
{
    *g = (struct tombstones){0};
    init_map(&g->young);
    init_map(&g->old);
    /* Two maps, each at least a third full; while one grows its old table is there, too. */
    g->marks_max = budget_bytes / 2 / sizeof(struct tombstone) / 4;
    if (g->marks_max < MARKS_MIN)
        g->marks_max = MARKS_MIN;
}

void tombstones_done(struct tombstones *g)
{
    map_done(&g->young);
    map_done(&g->old);
}

static bool map_has(const struct map *m, uint64_t id, int64_t now_ms)
{
    const struct tombstone *t = map_find(m, &id);
    return t && now_ms - t->gone_at_ms < TOMBSTONE_MS;
}

void tombstones_add(struct tombstones *g, uint64_t id, int64_t now_ms)
{
    size_t count = g->young.count;
    if (count > 0 && (count >= g->marks_max || now_ms - g->opened_at_ms >= TOMBSTONE_MS)) {
        map_done(&g->old);
        g->old = g->young;
        init_map(&g->young);
    }
    if (g->young.count == 0)
        g->opened_at_ms = now_ms;
    struct tombstone *t = map_put(&g->young, &id, NULL);
    if (t)
        t->gone_at_ms = now_ms;
}

bool tombstones_has(const struct tombstones *g, uint64_t id, int64_t now_ms)
{
    return map_has(&g->young, id, now_ms) || map_has(&g->old, id, now_ms);
}

size_t tombstones_count(const struct tombstones *g)
{
    return g->young.count + g->old.count;
}

size_t tombstones_bytes(const struct tombstones *g)
{
    return map_bytes(&g->young) + map_bytes(&g->old);
}
