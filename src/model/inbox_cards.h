/* What is shown of a page's groups, from cards: the group as all members see it, and what it is to
 * the reader. Any thread; blocks nowhere. */
#pragma once

#include "model/inbox.h"

/* One look at some groups of an account, and what a fill from truth needs of the moment before. */
struct inbox_look {
    struct cards *cards;
    uint64_t account;
    const uint64_t *groups;
    size_t n;
    struct member_card members[INBOX_LIMIT_MAX];
    card_ticket inbox, group[INBOX_LIMIT_MAX], member[INBOX_LIMIT_MAX], peer[INBOX_LIMIT_MAX];
};

/* The items of all groups that the account is in, in their order. False: the cards do not have all
 * of it. */
bool inbox_look(struct inbox_look *look, struct cards *cards, uint64_t account,
                const uint64_t *groups, size_t n, struct arena *arena, struct inbox_item *out,
                size_t *count);
/* Now truth is read (inbox_rows) for these groups; what was found is kept, unless it was changed
 * meanwhile. */
void inbox_fill_begin(struct inbox_look *look);
void inbox_fill_end(struct inbox_look *look, const struct inbox_item *rows, size_t count,
                    struct arena *arena);
