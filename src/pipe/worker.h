/* What the pools' steps have in common: taking a message up, and telling what became of it. */
#pragma once

#include "pipe/outcome.h"

/* What one step did. */
struct tally {
    struct outcomes o;
    size_t weight;
    uint32_t failed, succeeded;
    enum err error; /* of the failures: steps are short, and mostly fail for one
                       reason */
    uint64_t failed_keys[WORKER_MESSAGES];
};

void worker_begin(struct engine *g, struct tally *t, enum lane lane, int64_t now_us);
/* At most WORKER_MESSAGES messages between begin and end. */
void worker_end(struct engine *g, struct tally *t);

/* False: there is nothing to do, and the outcome is reported already. */
bool worker_begin_message(struct engine *g, struct tally *t, const struct bus_message *m);
/* A page of `n` members was delivered, as `a` says. */
void worker_succeed(struct engine *g, struct tally *t, const struct bus_message *m,
                    struct bus_report *r, size_t n, const struct delivered *a);
void worker_fail(struct engine *g, struct tally *t, const struct bus_message *m,
                 struct bus_report *r, enum err e);
