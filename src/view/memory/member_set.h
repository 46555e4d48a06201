/* What the groups of one account are to it: an entry of a bucket cache. Not thread-safe. */
#pragma once

#include "port/cards.h"
#include "view/memory/bucket_cache.h"

struct member_set {
    struct bucket_cache_entry base;
    uint32_t count;
    struct member_card cards[];
};

/* These, and behind them what `old` (NULL: nothing) has of other groups. NULL: no memory. */
struct member_set *member_set_new(uint64_t account, const struct member_card *cards, size_t n,
                                  const struct member_set *old);
/* `hint`: where it may be, as the groups of a page mostly lie in its order. NULL: it is not there.
 */
const struct member_card *member_set_find(const struct member_set *s, uint64_t group, size_t hint);
/* What is left of it is who the other one of a chat is. */
void member_set_forget(struct member_set *s, uint64_t group);
