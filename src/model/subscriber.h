/* Other systems that follow our events (search, analytics, a CRM): each has a name and a position,
 * the id of the last event that it has dealt with. Positions only go forward, unless asked
 * otherwise.
 *
 * Events are read from the outbox by rising id, which embedded is the order of commits. They are
 * kept for their retention and then removed, so a position can become too old: then something was
 * missed for good, and that is said, never passed over. */
#pragma once

#include "port/db.h"

enum {
    SUBSCRIBER_NAME_MAX = 40,
    SUBSCRIBERS_MAX = 100,
    SUBSCRIBER_COUNTED_MAX = 10000, /* unread events are counted up to this */
    SUBSCRIBER_TARGET_MS = 60 * 1000,
};

struct subscriber {
    char name[SUBSCRIBER_NAME_MAX + 1];
    uint64_t position;
    int64_t created_ms, changed_ms;
};

/* Saves the position; a new name is made. ERR_CONFLICT: it would go back and `rewind` is not given,
 * or there are SUBSCRIBERS_MAX already. ERR_INVALID: no such event was made yet. ERR_GONE: events
 * after it were removed already. */
enum err subscriber_save(struct tx *tx, struct str name, uint64_t position, bool rewind,
                         int64_t now_ms, struct subscriber *out);
enum err subscriber_delete(struct tx *tx, struct str name);

enum err subscriber_get(struct tx *tx, struct str name, struct subscriber *out);
enum err subscriber_list(struct tx *tx, struct subscriber out[SUBSCRIBERS_MAX], size_t *n);

struct subscriber_lag {
    uint64_t oldest_unread; /* event id; 0: none */
    uint64_t unread;        /* at most SUBSCRIBER_COUNTED_MAX: then there may be more */
};
enum err subscriber_lag(struct tx *tx, uint64_t position, struct subscriber_lag *out);

struct subscriber_ages {
    struct {
        char name[SUBSCRIBER_NAME_MAX + 1];
        int64_t age_ms;
    } items[SUBSCRIBERS_MAX];
    size_t count;
};
/* One key look-up for each: for metrics. */
enum err subscriber_ages(struct tx *tx, int64_t now_ms, struct subscriber_ages *out);

/* ---- the events themselves ---- */

struct stored_event {
    uint64_t id;
    struct str type, payload; /* valid during the visit */
    int64_t version;
};
/* Visits at most `limit` events with id > after, by rising id. */
enum err stored_events_after(struct tx *tx, uint64_t after, size_t limit,
                             void (*visit)(void *ctx, const struct stored_event *e), void *ctx);
/* Events up to this id may have been removed after their retention; 0: none were. The oldest that
 * is kept in *oldest (0: there is none). */
enum err stored_events_bounds(struct tx *tx, uint64_t *removed_through, uint64_t *oldest);
/* ERR_GONE, with both ids and what to do in the transaction's detail, when events after `position`
 * were removed. */
enum err stored_events_reach(struct tx *tx, uint64_t position);
