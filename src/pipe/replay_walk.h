/* Which events a replay means: the one answer for the dry run and for the replay itself. */
#pragma once

#include "pipe/replay.h"

enum replay_found_kind {
    REPLAY_SETTLED, /* to be delivered again */
    REPLAY_UNDONE,  /* matches, and the live engine will deliver it, or has not noted that it did;
                       or parked, and delivered when it is released */
    REPLAY_UNREADABLE, /* of a type that matches; event.id alone is set, `why` says what is wrong */
};

struct replay_found {
    enum replay_found_kind kind;
    enum event_unread why;
    bool pending;       /* UNDONE: as its row says */
    uint32_t rule_mask; /* bit: the n-th rule on the event's type, in the order of the table */
    struct event event;
};

/* Is it to be delivered again? The engine is done with the events between the two ids, though their
 * rows do not say so yet (engine_unsaved). */
static inline bool replay_is_settled(const struct replay_found *f, uint64_t after, uint64_t through)
{
    bool unsaved = f->pending && f->event.id > after && f->event.id <= through;
    return f->kind == REPLAY_SETTLED || (f->kind == REPLAY_UNDONE && unsaved);
}

/* Looks at the next at most `max` rows of the outbox above `after`, up to `last`, and gives those
 * that match, in order. *reached: the last row looked at; *end: there are no more, and *reached is
 * `last`. */
enum err replay_walk(struct tx *tx, const struct replay_spec *spec, const struct rule *rules,
                     size_t n, uint64_t after, uint64_t last, struct replay_found *out, size_t max,
                     size_t *count, uint64_t *reached, bool *end);

/* Is the channel of this rule open to the replay? Anything but an outside effect always is. */
bool replay_allows(const struct replay_spec *spec, const struct rule *rule);
