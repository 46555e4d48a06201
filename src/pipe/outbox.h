/* The outbox table, as the engine reads and trims it. Blocking. */
#pragma once

#include "port/db.h"

/* As the type of a row that this program cannot read: of a newer version, or damaged. */
#define OUTBOX_UNREADABLE EVENT_TYPE_COUNT

/* Up to `max` events with after < id ≤ through, by rising id. */
enum err outbox_read(struct db *db, uint64_t after, uint64_t through, struct event *events,
                     size_t max, size_t *n);

/* The saved mark and the greatest id in the table; 0 where there is none. */
enum err outbox_look(struct db *db, uint64_t *mark, uint64_t *last);
enum err outbox_save_mark(struct db *db, uint64_t mark);

/* Removes the oldest at most `slice` rows with id ≤ through. */
enum err outbox_trim(struct db *db, uint64_t through, size_t slice, size_t *removed);
