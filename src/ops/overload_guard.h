/* The overload guard: when the store itself is at risk, work that can wait stops first, then what
 * makes the store grow; reads and deletes continue.
 *
 *  - Level 0: nothing stops.
 *  - Level 1, when free disk < 2 × --guard-free, or the backlog > half of --guard-backlog: bulk
 *    work stops (replays, rebuilds, imports), and for the disk's sake expansion (the lanes of large
 *    fan-outs).
 *  - Level 2, when free disk < --guard-free, or a commit found no room, or the backlog >
 *    --guard-backlog: also writes that make the store grow (posts, edits, likes, follows, messages,
 *    sign-ups): 503 with Retry-After.
 *
 * A level ends when there is a tenth more room than its limit. A backlog never stops expansion,
 * because expansion drains it.
 *
 * The reserve: a file of `reserve_bytes` in the data folder, made at start. Level 2 releases it for
 * want of disk, so that deletes still find room; level 0 makes it again. Its room never counts as
 * free, whether the file exists or not. */
#pragma once

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

struct overload_guard_config {
    const char *folder;    /* of the store; outlives the overload guard */
    int64_t free_bytes;    /* level 2 below this; 0: the disk is not watched, nothing is reserved */
    uint64_t backlog_max;  /* level 2 above this; 0: the backlog is not watched */
    int64_t reserve_bytes; /* 0: none */
    /* Bytes free for us where `folder` is, -1: unknown. NULL: the file system is asked. */
    int64_t (*disk_free)(const char *folder);
};

struct overload_guard {
    struct overload_guard_config config;
    _Atomic int level;
    _Atomic bool disk, backlog;    /* which of them asks for the present level */
    _Atomic int64_t free_bytes;    /* as last seen; -1: not yet */
    _Atomic uint64_t backlog_seen; /* as last told */
    _Atomic bool full;             /* a commit found no room a short while ago */
    bool reserved;                 /* the file is there */
    int disk_level, backlog_level; /* each with its own memory, see overload_guard.c */
    int full_looks;                /* for how many more looks `full` holds */
};

/* Makes the reserve, unless that alone would raise the level; later looks at level 0 try again. */
void overload_guard_init(struct overload_guard *b, const struct overload_guard_config *config);
/* Looks at the disk and takes what the caller knows of the backlog and whether a commit found no
 * room since the last look. Returns the level; logs when it changes. Ten times a second, by one
 * thread at a time. */
int overload_guard_look(struct overload_guard *b, uint64_t backlog, bool store_full);
static inline int overload_guard_level(const struct overload_guard *b)
{
    return atomic_load_explicit(&b->level, memory_order_relaxed);
}
/* For the answer: "the disk is nearly full (12 MiB free)" …; empty at level 0. */
void overload_guard_why(const struct overload_guard *b, char out[120]);
