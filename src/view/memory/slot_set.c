/* Slot sets. Most people follow a few hundred and are followed by a few hundred: a sorted array of
 * 4 bytes an edge is smallest and fastest there. From 4,096 followers on a roaring bitmap takes
 * over (0.2 to 2 bytes an edge, and adding one does not move kilobytes); it goes back only below
 * 2,048, so that an account at the border is not converted to and fro. */
#include "view/memory/slot_set.h"

#include <roaring/roaring.h>
#include <stdlib.h>
#include <string.h>

#include "view/memory/capacity.h"

/* An array container costs 2 bytes a member, a bitset less: the upper bound is what we account for.
 */
enum { BITMAP_BYTES_PER_MEMBER = 2 };

uint32_t slot_list_at_least(const struct slot_list *l, uint32_t slot)
{
    const uint32_t *base = l->slots;
    uint32_t left = l->count;
    if (left == 0)
        return 0;
    while (left >
           1) { /* without a branch to mispredict: the compiler makes a conditional move of it */
        uint32_t half = left / 2;
        base += base[half - 1] < slot ? half : 0;
        left -= half;
    }
    return (uint32_t)(base - l->slots) + (*base < slot);
}

/* Changes the capacity; no smaller than the count. */
static enum err resize(struct slot_list *l, uint32_t capacity, int64_t *bytes)
{
    uint32_t *slots = realloc(l->slots, capacity * sizeof *slots);
    if (!slots)
        return ERR_NO_MEMORY;
    *bytes += ((int64_t)capacity - l->capacity) * (int64_t)sizeof *slots;
    l->slots = slots;
    l->capacity = capacity;
    return OK;
}

void slot_list_done(struct slot_list *l, int64_t *bytes)
{
    *bytes -= (int64_t)l->capacity * (int64_t)sizeof *l->slots;
    free(l->slots);
    *l = (struct slot_list){0};
}

enum err slot_list_add(struct slot_list *l, uint32_t slot, bool *added, int64_t *bytes)
{
    *added = false;
    uint32_t at = slot_list_at_least(l, slot);
    if (at < l->count && l->slots[at] == slot)
        return OK;
    if (l->count == l->capacity && resize(l, capacity_next(l->capacity), bytes) != OK)
        return ERR_NO_MEMORY;
    memmove(l->slots + at + 1, l->slots + at, (l->count - at) * sizeof *l->slots);
    l->slots[at] = slot;
    l->count++;
    *added = true;
    return OK;
}

bool slot_list_remove(struct slot_list *l, uint32_t slot)
{
    uint32_t at = slot_list_at_least(l, slot);
    if (at == l->count || l->slots[at] != slot)
        return false;
    l->count--;
    memmove(l->slots + at, l->slots + at + 1, (l->count - at) * sizeof *l->slots);
    return true;
}

static bool is_bitmap(const struct follower_set *f)
{
    return f->capacity == FOLLOWERS_BITMAP;
}

void follower_set_done(struct follower_set *f, int64_t *bytes)
{
    if (!is_bitmap(f)) {
        slot_list_done(&f->list, bytes);
        return;
    }
    *bytes -= (int64_t)f->count * BITMAP_BYTES_PER_MEMBER;
    roaring_bitmap_free(f->bitmap);
    f->list = (struct slot_list){0};
}

static enum err to_bitmap(struct follower_set *f, int64_t *bytes)
{
    uint32_t count = f->count;
    roaring_bitmap_t *bitmap = roaring_bitmap_of_ptr(count, f->list.slots);
    if (!bitmap)
        return ERR_NO_MEMORY;
    slot_list_done(&f->list, bytes);
    *bytes += (int64_t)count * BITMAP_BYTES_PER_MEMBER;
    f->bitmap = bitmap;
    f->count = count;
    f->capacity = FOLLOWERS_BITMAP;
    return OK;
}

static void to_list(struct follower_set *f, int64_t *bytes)
{
    struct slot_list list = {0};
    if (resize(&list, capacity_for(f->count), bytes) != OK)
        return; /* a small bitmap is as right as a list */
    roaring_bitmap_to_uint32_array(f->bitmap, list.slots);
    list.count = f->count;
    follower_set_done(f, bytes);
    f->list = list;
}

enum err follower_set_add(struct follower_set *f, uint32_t slot, bool *added, int64_t *bytes)
{
    if (!is_bitmap(f)) {
        enum err e = slot_list_add(&f->list, slot, added, bytes);
        if (e != OK || f->count <= FOLLOWERS_LIST_MAX)
            return e;
        (void)to_bitmap(f, bytes); /* without memory the list just stays */
        return OK;
    }
    *added = roaring_bitmap_add_checked(f->bitmap, slot);
    f->count += *added;
    *bytes += *added ? BITMAP_BYTES_PER_MEMBER : 0;
    return OK;
}

bool follower_set_remove(struct follower_set *f, uint32_t slot, int64_t *bytes)
{
    if (!is_bitmap(f))
        return slot_list_remove(&f->list, slot);
    if (!roaring_bitmap_remove_checked(f->bitmap, slot))
        return false;
    f->count--;
    *bytes -= BITMAP_BYTES_PER_MEMBER;
    if (f->count < FOLLOWERS_LIST_AGAIN)
        to_list(f, bytes);
    return true;
}

size_t follower_set_read(const struct follower_set *f, uint32_t from, uint32_t *out, size_t max)
{
    if (!is_bitmap(f)) {
        uint32_t at = slot_list_at_least(&f->list, from);
        size_t n = f->count - at < max ? f->count - at : max;
        if (n > 0)
            memcpy(out, f->list.slots + at, n * sizeof *out);
        return n;
    }
    roaring_uint32_iterator_t it;
    roaring_init_iterator(f->bitmap, &it);
    if (from > 0 && !roaring_move_uint32_iterator_equalorlarger(&it, from))
        return 0;
    return roaring_read_uint32_iterator(&it, out, (uint32_t)max);
}

uint32_t follower_set_below(const struct follower_set *f, uint32_t slot)
{
    if (is_bitmap(f))
        return slot > 0 ? (uint32_t)roaring_bitmap_rank(f->bitmap, slot - 1) : 0;
    return slot_list_at_least(&f->list, slot);
}

enum err follower_set_reserve(struct follower_set *f, uint32_t count, int64_t *bytes)
{
    return count > 0 ? resize(&f->list, capacity_for(count), bytes) : OK;
}

enum err follower_set_close(struct follower_set *f, int64_t *bytes)
{
    return !is_bitmap(f) && f->count > FOLLOWERS_LIST_MAX ? to_bitmap(f, bytes) : OK;
}

enum err slot_list_fill(struct slot_list *l, const uint32_t *slots, uint32_t count, int64_t *bytes)
{
    if (count == 0)
        return OK;
    if (resize(l, capacity_for(count), bytes) != OK)
        return ERR_NO_MEMORY;
    memcpy(l->slots, slots, count * sizeof *slots);
    l->count = count;
    return OK;
}
