/* Sentences of the demo world: patterns with slots, see demo/words.h. */
#pragma once

#include "base/buf.h"
#include "base/rand.h"
#include "demo/words.h"

const char *demo_text_pick(struct rand *r, const struct demo_list *list);

/* Appends the pattern with its slots filled; `topic` (may be NULL) gives the things. */
void demo_text_fill(const char *pattern, const struct demo_topic *topic, struct rand *r,
                    struct buf *out);
