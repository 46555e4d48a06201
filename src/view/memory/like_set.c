/* The posts that one person likes, newest LIKES_MAX of them, sorted. When a set is full the oldest
 * makes room and the floor rises to it: below the floor the set says nothing. */
#include "view/memory/like_set.h"

#include <stdlib.h>
#include <string.h>

#include "base/check.h"

enum { LIKES_MAX = 1000 };

static struct like_set *set_of(uint64_t viewer, uint64_t floor, uint32_t capacity)
{
    struct like_set *s = malloc(sizeof *s + capacity * sizeof s->ids[0]);
    if (s) {
        s->base.key = viewer;
        s->floor = floor;
        s->count = 0;
        s->capacity = capacity;
    }
    return s;
}

struct like_set *like_set_new(uint64_t viewer, const uint64_t *ids, size_t n, uint64_t floor)
{
    if (n > LIKES_MAX) {
        floor = ids[LIKES_MAX] > floor ? ids[LIKES_MAX] : floor;
        n = LIKES_MAX;
    }
    struct like_set *s = set_of(viewer, floor, (uint32_t)n + 2);
    for (size_t i = n; s && i > 0; i--) {
        CHECK(i == n || ids[i - 1] > ids[i]);
        if (ids[i - 1] > floor)
            s->ids[s->count++] = ids[i - 1];
    }
    return s;
}

static uint32_t below(const struct like_set *s, uint64_t id) /* how many are */
{
    uint32_t low = 0, high = s->count;
    while (low < high) {
        uint32_t middle = (low + high) / 2;
        if (s->ids[middle] < id)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

bool like_set_knows(const struct like_set *s, const uint64_t *ids, size_t n, bool *out)
{
    for (size_t i = 0; i < n; i++) {
        if (ids[i] <= s->floor)
            return false;
        uint32_t at = below(s, ids[i]);
        out[i] = at < s->count && s->ids[at] == ids[i];
    }
    return true;
}

struct like_set *like_set_add(struct like_set *s, uint64_t post)
{
    uint32_t at = below(s, post);
    if (post <= s->floor || (at < s->count && s->ids[at] == post))
        return s;
    if (s->count >= LIKES_MAX) { /* the oldest makes room */
        s->floor = at == 0 ? post : s->ids[0];
        if (at > 0) {
            memmove(s->ids, s->ids + 1, (at - 1) * sizeof s->ids[0]);
            s->ids[at - 1] = post;
        }
        return s;
    }
    if (s->count == s->capacity) {
        struct like_set *larger = set_of(s->base.key, s->floor, s->capacity + s->capacity / 4 + 8);
        if (!larger)
            return NULL;
        larger->count = s->count;
        memcpy(larger->ids, s->ids, s->count * sizeof s->ids[0]);
        s = larger;
    }
    memmove(s->ids + at + 1, s->ids + at, (s->count - at) * sizeof s->ids[0]);
    s->ids[at] = post;
    s->count++;
    return s;
}

void like_set_remove(struct like_set *s, uint64_t post)
{
    uint32_t at = below(s, post);
    if (at == s->count || s->ids[at] != post)
        return;
    s->count--;
    memmove(s->ids + at, s->ids + at + 1, (s->count - at) * sizeof s->ids[0]);
}
