/* What the groups of one account are to it, those of the pages that it read last. One entry for an
 * account, not one for each membership: a page of an inbox is one look then. */
#include "view/memory/member_set.h"

#include <stdlib.h>
#include <string.h>

enum { MEMBERS_KEPT = 128 /* a page has at most a hundred */ };

static bool is_among(const struct member_card *cards, size_t n, uint64_t group)
{
    for (size_t i = 0; i < n; i++) {
        if (cards[i].group == group)
            return true;
    }
    return false;
}

struct member_set *member_set_new(uint64_t account, const struct member_card *cards, size_t n,
                                  const struct member_set *old)
{
    struct member_card kept[MEMBERS_KEPT];
    size_t count = 0;
    n = n < MEMBERS_KEPT ? n : MEMBERS_KEPT;
    for (size_t i = 0; old && i < old->count && n + count < MEMBERS_KEPT; i++) {
        if (!is_among(cards, n, old->cards[i].group))
            kept[count++] = old->cards[i];
    }
    struct member_set *s = malloc(sizeof *s + (n + count) * sizeof *cards);
    if (!s)
        return NULL;
    s->base.key = account;
    s->count = (uint32_t)(n + count);
    if (n > 0)
        memcpy(s->cards, cards, n * sizeof *cards);
    if (count > 0)
        memcpy(s->cards + n, kept, count * sizeof *kept);
    return s;
}

static size_t find(const struct member_set *s, uint64_t group, size_t hint)
{
    if (hint < s->count && s->cards[hint].group == group)
        return hint;
    size_t i = 0;
    while (i < s->count && s->cards[i].group != group)
        i++;
    return i;
}

const struct member_card *member_set_find(const struct member_set *s, uint64_t group, size_t hint)
{
    size_t i = find(s, group, hint);
    return i < s->count ? &s->cards[i] : NULL;
}

void member_set_forget(struct member_set *s, uint64_t group)
{
    size_t i = find(s, group, 0);
    if (i < s->count)
        s->cards[i].stale = true;
}
