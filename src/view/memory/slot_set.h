/* Sets of accounts, by slot. A slot_list is a sorted array: an account's followees, its mutes. A
 * follower_set is the same while it is small and a compressed bitmap when it is large.
 *
 * Not thread-safe: the owner's latch is held by the caller. `bytes` arguments are running totals
 * that the calls keep up to date. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

struct slot_list {
    uint32_t *slots;
    uint32_t count;
    uint32_t capacity;
};

void slot_list_done(struct slot_list *l, int64_t *bytes);
enum err slot_list_add(struct slot_list *l, uint32_t slot, bool *added, int64_t *bytes);
bool slot_list_remove(struct slot_list *l, uint32_t slot);
uint32_t slot_list_at_least(const struct slot_list *l,
                            uint32_t slot); /* index of the first ≥ slot */

static inline bool slot_list_has(const struct slot_list *l, uint32_t slot)
{
    uint32_t i = slot_list_at_least(l, slot);
    return i < l->count && l->slots[i] == slot;
}

struct roaring_bitmap_s;

enum { FOLLOWERS_LIST_MAX = 4096, FOLLOWERS_LIST_AGAIN = 2048 };

struct follower_set {
    union {
        struct slot_list list;
        struct {
            struct roaring_bitmap_s *bitmap;
            uint32_t count;
            uint32_t capacity; /* FOLLOWERS_BITMAP: it is a bitmap */
        };
    };
};

_Static_assert(offsetof(struct follower_set, count) == offsetof(struct slot_list, count) &&
                   offsetof(struct follower_set, capacity) == offsetof(struct slot_list, capacity),
               "both forms count in the same place");

#define FOLLOWERS_BITMAP UINT32_MAX

void follower_set_done(struct follower_set *f, int64_t *bytes);
enum err follower_set_add(struct follower_set *f, uint32_t slot, bool *added, int64_t *bytes);
bool follower_set_remove(struct follower_set *f, uint32_t slot, int64_t *bytes);
/* Copies at most `max` members ≥ from, rising; returns how many. Fewer than max: that was the end.
 */
size_t follower_set_read(const struct follower_set *f, uint32_t from, uint32_t *out, size_t max);
uint32_t follower_set_below(const struct follower_set *f, uint32_t slot); /* how many are */
/* For loading: room for `count` members, added in rising order, then closed. */
enum err follower_set_reserve(struct follower_set *f, uint32_t count, int64_t *bytes);
static inline void follower_set_append(struct follower_set *f, uint32_t slot)
{
    f->list.slots[f->count++] = slot;
}
enum err follower_set_close(struct follower_set *f, int64_t *bytes);
enum err slot_list_fill(struct slot_list *l, const uint32_t *slots, uint32_t count, int64_t *bytes);
