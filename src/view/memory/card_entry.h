/* Cards as entries of a bucket cache: the fields, and behind them the texts and fragments. */
#pragma once

#include "port/cards.h"
#include "view/memory/bucket_cache.h"

/* `text` holds the card's texts and fragments one after the other, `bytes` in all. */
struct post_entry {
    struct bucket_cache_entry base;
    struct post_card card;
    size_t bytes;
    char text[];
};

struct account_entry {
    struct bucket_cache_entry base;
    struct account_card card;
    size_t bytes;
    char text[];
};

struct group_entry {
    struct bucket_cache_entry base;
    struct group_card card;
    size_t bytes;
    char text[];
};

/* `attach`: keeps the card's fragments, and this one; NULL: keeps none. Returns NULL without
 * memory. */
struct post_entry *post_entry_new(const struct post_card *card, const struct card_write *attach);
struct account_entry *account_entry_new(const struct account_card *card,
                                        const struct card_write *attach);
struct group_entry *group_entry_new(const struct group_card *card);

/* A copy, with its texts in the arena. */
void post_entry_get(const struct post_entry *e, struct post_card *out, struct arena *arena);
void account_entry_get(const struct account_entry *e, struct account_card *out,
                       struct arena *arena);
void group_entry_get(const struct group_entry *e, struct group_card *out, struct arena *arena);
/* Does it hold the same texts? */
bool account_entry_matches(const struct account_entry *e, const struct account_card *card);
