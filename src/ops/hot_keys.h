/* Which keys are written to most, and how long their writes took, over the last minute and on this
 * node; a key is a group's id, say. In memory of a fixed size, however many keys there are: so a
 * key's count is a lower and an upper bound, which differ by at most one in HOT_KEYS_KEPT of all
 * that was written, and a key with more than that is sure to be known. */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "base/hist.h"

enum { HOT_KEYS_SHOWN = 20, HOT_KEYS_KEPT = 256, HOT_KEYS_WINDOW_S = 60 };

struct hot_key {
    uint64_t key;
    uint64_t entries; /* written in the window, at least */
    uint64_t at_most;
    double per_s; /* of entries */
};

struct hot_keys_look {
    struct hot_key top[HOT_KEYS_SHOWN]; /* by falling number of entries */
    size_t count;
    uint64_t entries; /* of all keys, in the window */
    double per_s;
    double window_s;           /* shorter than HOT_KEYS_WINDOW_S after a start */
    uint64_t p50_us, p99_us;   /* submit to commit, in the window; 0: nothing was written */
    uint64_t all_p50, all_p99; /* since the start, as the two below */
    uint64_t all_entries, all_sum_us;
    uint64_t refused; /* since the start: writes refused by their key's limit */
};

struct hot_keys;

struct hot_keys *hot_keys_new(int64_t now_us);
void hot_keys_free(struct hot_keys *h);

/* A write to the key was committed, `took_us` after it was submitted. Any thread. */
void hot_keys_record(struct hot_keys *h, uint64_t key, int64_t took_us, int64_t now_us);

/* A write was refused because its key has too many. Any thread. */
void hot_keys_refused(struct hot_keys *h);

void hot_keys_look(struct hot_keys *h, int64_t now_us, struct hot_keys_look *out);
