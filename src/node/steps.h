/* Every background step of the server: one row each of the table in steps.c, which says what it
 * calls, on which nodes, with how many threads, and what wakes it. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "ops/runner.h"
#include "pipe/engine.h"

struct runtime;

/* Steps that share one are woken together, and are stopped in this order. */
enum step_runner {
    RUN_BY_CLOCK, /* nothing wakes them */
    RUN_RELAY,    /* from here on as enum engine_sleeper: the engine wakes them */
    RUN_VIEWS,
    RUN_TRUTH,
    RUN_OUTSIDE,
    RUN_RECORDER,
    RUN_REPLAYS,
    RUN_LIVE,       /* streams wake them */
    RUN_MEMBERSHIP, /* nothing wakes them, and they go on until everything else has ended */
    RUNNERS
};

enum { STEPS_MAX = 32 };

struct steps {
    struct runner *runners[RUNNERS];
    struct step_call {
        struct runtime *runtime;
        const struct step *row;
    } calls[STEPS_MAX];
};

void steps_init(struct steps *s);
/* Starts the threads of every row that this node has. False: the system gives no more threads. */
bool steps_start(struct steps *s, struct runtime *runtime);
void steps_wake(struct steps *s, enum step_runner who);
void steps_wake_engine(struct steps *s, enum engine_sleeper who);
/* False: some did not end within `within_ms`; nothing that they work on may be freed. */
bool steps_stop(struct steps *s, int64_t within_ms);
void steps_done(struct steps *s); /* after steps_stop returned true, or before steps_start */
