/* What became of work items, and what follows from it: the inflight set, the delivery
 * store, the bus, the trace.
 *
 * A worker says it as a value, a bus_report. On the node that leads (or is alone) the worker
 * applies it here itself, at once; elsewhere it publishes it, and the leader's relay applies it
 * when it comes. Outcomes are gathered for a step and told to the shared counters once, at its end.
 */
#pragma once

#include "pipe/state.h"

enum { OUTCOMES_MAX = WORKER_MESSAGES, OUTCOME_RECORDS = OUTCOMES_MAX * 2 };

struct outcomes {
    enum lane lane; /* that they were delivered in */
    int64_t now_us, now_ms;
    uint64_t delivered, repeated, skipped, failed;
    bool told;  /* by other nodes, whose work it was */
    bool relay; /* it has something to do */
    size_t count, records;
    struct inflight_exit exits[OUTCOMES_MAX];
    struct trace_record trace[OUTCOME_RECORDS];
};

enum outcome_end {
    OUTCOME_TOLD,     /* the message that brought it is done with */
    OUTCOME_RECORDED, /* the recorder acknowledges the work item's message, if it is on the bus
                       */
    OUTCOME_NO_ROOM,  /* in the delivery store; nothing happened: report it again in
                         OUTCOME_AGAIN_US */
};
enum { OUTCOME_AGAIN_US = 50 * 1000 };

void outcomes_begin(struct outcomes *o, enum lane lane, int64_t now_us, int64_t now_ms);
/* Something else to remember of a message. */
void outcome_note(struct outcomes *o, const struct bus_message *m, enum trace_kind kind, uint64_t n,
                  uint64_t done, const char *why);
/* `m` is the work item's own message, `on_bus` when it was taken from there and is not
 * acknowledged. `why` may be NULL: why members were skipped (static), or the words of what
 * failed. At most OUTCOMES_MAX between begin and end. */
enum outcome_end outcome_apply(struct engine *g, struct outcomes *o, const struct bus_message *m,
                               const struct bus_report *r, const char *why, bool on_bus);
void outcomes_end(struct engine *g, struct outcomes *o);

/* May this work item be worked on? What a replay was not allowed to do is not even sent. */
bool outcome_allows(struct engine *g, const struct bus_message *m);
/* The relay's part: what workers of other nodes told. True when there was anything. */
bool outcome_hear(struct engine *g, int64_t now_us);
