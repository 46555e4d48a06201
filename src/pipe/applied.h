/* Which events this very process has brought into the shared views itself, while it led: the
 * leader's relay applies what it reads from the table once more, for nodes that died in between,
 * and need not do so for these.
 *
 * What was noted in a term counts in that term alone. Whatever the views may have lost before a
 * term began, or lose within it, is made good by applying all undone events in the next one. Each
 * note counts once: an event that is read a second time is applied. Notes are few and may be
 * forgotten, which costs an apply; nothing is ever taken for noted that was not. */
#pragma once

#include <pthread.h>
#include <stdbool.h>

#include "port/event.h"

enum { APPLIED_MAX = 16384 };

struct applied {
    pthread_mutex_t lock;
    uint64_t term; /* of all notes */
    uint64_t ids[APPLIED_MAX];
};

void applied_init(struct applied *a);
void applied_done(struct applied *a);

/* They were applied, by a call that began when the process led in `term` (0: it did not). */
void applied_note(struct applied *a, uint64_t term, const struct event *events, size_t n);
/* Which of the events must be applied in `term`? `left` has room for all; returns how many. */
size_t applied_sift(struct applied *a, uint64_t term, const struct event *events, size_t n,
                    struct event *left);
