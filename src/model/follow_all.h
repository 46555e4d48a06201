/* The event of several follows of one account, FOLLOWS_IMPORTED: whom it follows now is in its
 * data, {"followees":["…",…]}. */
#pragma once

#include "port/event.h"

/* As many as EVENT_DATA_MAX has room for: 15 bytes around them, 22 for an id of 19 digits. */
enum { FOLLOWS_AN_EVENT = 22 };

void followees_write(const uint64_t *followees, size_t n, struct buf *out);
/* How many there are, at most FOLLOWS_AN_EVENT; 0: the data is not such a list. */
size_t followees_read(struct str data, uint64_t followees[FOLLOWS_AN_EVENT]);
