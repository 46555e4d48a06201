/* The hash map. Its invariant: between an entry's home (where its hash points) and its place there
 * is no free place, so that a search may end at the first one. Removing keeps it by moving later
 * entries of the run into the hole; there are no tombstones, and a map that is filled and emptied
 * for ever stays as fast as a new one. */
#include "base/map.h"

#include <stdlib.h>

#include "base/check.h"

enum { SIZE_MIN = 16 };

void map_init(struct map *m, size_t entry_bytes, size_t key_bytes)
{
    CHECK(key_bytes >= 8 && key_bytes % 8 == 0 && entry_bytes >= key_bytes);
    *m = (struct map){.entry_bytes = (uint32_t)entry_bytes, .key_bytes = (uint32_t)key_bytes};
}

void map_done(struct map *m)
{
    free(m->entries);
    m->entries = NULL;
    m->size = m->count = 0;
}

static char *entry_at(const struct map *m, size_t at)
{
    return m->entries + at * m->entry_bytes;
}

static bool is_free(const struct map *m, size_t at)
{
    return map_word(entry_at(m, at)) == 0;
}

static size_t home_of(const struct map *m, const void *key)
{
    return (size_t)map_hash(m, key) & (m->size - 1);
}

/* The free place where a key that is not there belongs. */
static char *place_for(const struct map *m, const void *key)
{
    size_t at = home_of(m, key);
    while (!is_free(m, at))
        at = (at + 1) & (m->size - 1);
    return entry_at(m, at);
}

static bool fits(size_t count, size_t size)
{
    return count <= size / 8 * 5;
}

bool map_reserve(struct map *m, size_t count)
{
    struct map larger = *m;
    if (fits(count, m->size))
        return true;
    for (larger.size = SIZE_MIN; !fits(count, larger.size);)
        larger.size *= 2;
    larger.entries = calloc(larger.size, m->entry_bytes);
    if (!larger.entries)
        return false;
    for (size_t i = 0; i < m->size; i++)
        if (!is_free(m, i))
            memcpy(place_for(&larger, entry_at(m, i)), entry_at(m, i), m->entry_bytes);
    free(m->entries);
    *m = larger;
    return true;
}

void *map_put(struct map *m, const void *key, bool *made)
{
    CHECK(map_word(key) != 0);
    char *entry = map_find(m, key);
    if (made)
        *made = !entry;
    if (entry)
        return entry;
    if (!map_reserve(m, m->count + 1))
        return NULL;
    entry = place_for(m, key);
    memcpy(entry, key, m->key_bytes);
    m->count++;
    return entry;
}

/* Each later entry of the run moves into the hole unless that would put it before its home. */
void map_remove(struct map *m, void *entry)
{
    size_t mask = m->size - 1;
    size_t hole = (size_t)((char *)entry - m->entries) / m->entry_bytes;
    for (size_t at = (hole + 1) & mask; !is_free(m, at); at = (at + 1) & mask) {
        size_t home = home_of(m, entry_at(m, at));
        if (((at - home) & mask) >= ((at - hole) & mask)) {
            memcpy(entry_at(m, hole), entry_at(m, at), m->entry_bytes);
            hole = at;
        }
    }
    memset(entry_at(m, hole), 0, m->entry_bytes);
    m->count--;
}

/* After a removal another entry may lie in the same place, one from further on or, round the end,
 * from the beginning: none moves to a place that was passed. */
void map_sweep(struct map *m, bool (*drop)(void *entry, void *ctx), void *ctx)
{
    for (size_t at = 0; at < m->size && m->count > 0;) {
        if (!is_free(m, at) && drop(entry_at(m, at), ctx))
            map_remove(m, entry_at(m, at));
        else
            at++;
    }
}

void map_clear(struct map *m)
{
    if (m->count > 0)
        memset(m->entries, 0, map_bytes(m));
    m->count = 0;
}

void *map_next(const struct map *m, const void *entry)
{
    size_t at = entry ? (size_t)((const char *)entry - m->entries) / m->entry_bytes + 1 : 0;
    while (at < m->size && is_free(m, at))
        at++;
    return at < m->size ? entry_at(m, at) : NULL;
}
