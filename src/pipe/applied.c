/* The notes: a table with one place for each remainder of an id's hash, in which the latest stays.
 * An event is noted by the commit hook and asked for by the relay some milliseconds later, so what
 * is displaced is rare; and an id is compared as a whole, so nothing is found that was not noted.
 */
#include "pipe/applied.h"

#include <string.h>

#include "base/hash.h"

void applied_init(struct applied *a)
{
    *a = (struct applied){0};
    pthread_mutex_init(&a->lock, NULL);
}

void applied_done(struct applied *a)
{
    pthread_mutex_destroy(&a->lock);
}

static uint64_t *place_of(struct applied *a, uint64_t id)
{
    return &a->ids[hash_u64(id) % APPLIED_MAX];
}

void applied_note(struct applied *a, uint64_t term, const struct event *events, size_t n)
{
    if (term == 0)
        return;
    pthread_mutex_lock(&a->lock);
    if (term > a->term) {
        a->term = term;
        memset(a->ids, 0, sizeof a->ids);
    }
    for (size_t i = 0; term == a->term && i < n; i++) {
        if (event_keep(events[i].type) == EVENT_STORED)
            *place_of(a, events[i].id) = events[i].id;
    }
    pthread_mutex_unlock(&a->lock);
}

size_t applied_sift(struct applied *a, uint64_t term, const struct event *events, size_t n,
                    struct event *left)
{
    size_t kept = 0;
    pthread_mutex_lock(&a->lock);
    for (size_t i = 0; i < n; i++) {
        uint64_t *place = place_of(a, events[i].id);
        if (term != 0 && term == a->term && *place == events[i].id)
            *place = 0;
        else
            left[kept++] = events[i];
    }
    pthread_mutex_unlock(&a->lock);
    return kept;
}
