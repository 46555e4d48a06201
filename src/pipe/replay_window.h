/* The events of a replay that were begun and are not yet all done: at most REPLAY_WINDOW, in the
 * order of their ids. They may be done in any order; they leave in theirs, each with its counts, so
 * that position and counts always speak of the same events. Not thread-safe. */
#pragma once

#include "pipe/replay.h"

struct window_slot {
    uint64_t event;
    bool told;
    struct job_counts counts;
};

struct replay_window {
    struct window_slot slots[REPLAY_WINDOW]; /* a ring; the oldest is never told */
    uint32_t oldest, count;
    struct job_counts left; /* of those that left; for the caller to take and clear */
};

/* False: the window is full. `event` is above all that were entered before. */
bool replay_window_enter(struct replay_window *w, uint64_t event);
void replay_window_undo(struct replay_window *w); /* the last enter did not happen */
/* False: it is not there, or has its outcome. */
bool replay_window_tell(struct replay_window *w, uint64_t event, const struct job_counts *what);
/* Everything at or below it is done, when everything up to `walked` was entered or passed over. */
uint64_t replay_window_position(const struct replay_window *w, uint64_t walked);

void job_counts_add(struct job_counts *to, const struct job_counts *more);
void job_counts_take(struct job_counts *from, const struct job_counts *less);
