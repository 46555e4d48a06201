/* What has become of an event: one word for it, from everything that knows of it.
 *
 *   memory              what of it is under way at this moment (engine_look)
 *   the outbox          its row, while that is kept
 *   the delivery store  its deliveries that did not simply succeed
 *
 * The state is the worst of what is open: a dead delivery says more than the nine that succeeded.
 */
#pragma once

#include "pipe/engine.h"
#include "pipe/outbox.h"

enum event_state {
    EVENT_IS_UNKNOWN, /* nothing says that there ever was such an event */
    EVENT_IS_DEAD,
    EVENT_IS_PARKED,
    EVENT_IS_DELAYED,
    EVENT_IS_WAITING,
    EVENT_IS_PENDING,
    EVENT_IS_PUBLISHED,
    EVENT_IS_EXPANDED,
    EVENT_IS_DONE,
    EVENT_IS_ARCHIVED, /* its row was removed after its retention */
};
const char *event_state_name(enum event_state state); /* NULL: unknown */

struct event_evidence {
    enum event_stage stage;
    bool below_watermark;
    bool has_row;
    enum outbox_state row;
    bool has[DELIVERY_STATES]; /* does it have deliveries in this state? */
    bool remembered;           /* something else tells of it */
};
enum event_state event_state_of(const struct event_evidence *evidence);

/* The first event above `after` that `is_it`, in the outbox or in the delivery store, which keeps
 * what failed for longer; *found is 0 when there is none among the next few. */
enum err event_find(struct tx *tx, uint64_t after,
                    bool (*is_it)(const void *ctx, const struct event *e), const void *ctx,
                    uint64_t *found);

/* How far an event has got with what it does to the views, and what holds it up. */
struct event_standing {
    uint64_t event;
    enum event_state state;
    bool given_up; /* a delivery of it was discarded or dropped */
    /* The delivery that says so; 0: none. The rest is set only then. */
    uint64_t delivery;
    enum delivery_state delivery_state;
    char consumer[40], reason[DELIVERY_REASON_MAX], detail[DELIVERY_DETAIL_MAX];
    int64_t due_ms;
    /* WAITING: the first open delivery of its order key; 0: none */
    uint64_t behind, behind_event;
    enum delivery_state behind_state;
    char behind_reason[DELIVERY_REASON_MAX];
};
/* Is something of it dead, parked, delayed or waiting? */
static inline bool event_is_held_up(enum event_state state)
{
    return state == EVENT_IS_DEAD || state == EVENT_IS_PARKED || state == EVENT_IS_DELAYED ||
           state == EVENT_IS_WAITING;
}
enum err event_standing_read(struct tx *tx, struct engine *g, uint64_t event,
                             struct event_standing *out);
