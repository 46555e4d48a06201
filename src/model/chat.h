/* The chat of two people: a group that both find by naming the other. */
#pragma once

#include "model/group.h"

/* The chat of the two; made when there is none yet. Concurrent calls get the same one.
 * ERR_NOT_FOUND: no such account. ERR_FORBIDDEN: a block lies between the two. ERR_INVALID:
 * oneself. ERR_CONFLICT: one of them has too many groups. */
enum err chat_open(struct tx *tx, uint64_t account, uint64_t other, struct arena *arena,
                   struct group *out, bool *made);
