/* Hydrating the feed: for model/feed.c alone. */
#pragma once

#include "model/feed.h"

/* An account that is deleted gets the id 0. */
enum err feed_load_authors(struct tx *tx, const uint64_t *ids, size_t n, struct arena *arena,
                           struct account_card *out);
enum err feed_load_liked(struct tx *tx, uint64_t viewer, const uint64_t *posts, size_t n,
                         bool *liked);
/* Puts author and liked into the items; drops those without an author. */
void feed_put_hydrated(struct feed_item *items, size_t *count, const struct account_card *authors,
                       const bool *liked);

/* One page from one snapshot of truth. ERR_OVERLOADED: too many of these are being read. */
enum err feed_page_from_truth(struct db *db, uint64_t viewer, uint64_t below, size_t limit,
                              struct arena *arena, struct feed_page *page);
