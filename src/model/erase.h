/* Erasing what was written: the messages of deleted accounts, and deleted posts and comments after
 * their retention. */
#pragma once

#include "base/clock.h"
#include "port/db.h"

/* Notes, in the transaction that deletes an account, all groups in which it may have written. */
enum err erase_messages_later(struct tx *tx, uint64_t account);
/* The next bounded part of that. `erase` off: texts stay, and only the notes go. *more: call again.
 * In a write. */
enum err erase_messages_slice(struct tx *tx, uint64_t account, bool erase, bool *more);

/* A step: erases the text of posts that were deleted so long ago, with their earlier versions, and
 * removes such comments, a bounded number at a time. Returns when to call again (monotonic µs). */
int64_t erase_deleted_step(struct db *db, struct clock *clock, int64_t retention_ms);
