/* Threads that call step functions. A step does one bounded unit of work and returns when it wants
 * to be called again (monotonic µs): now or earlier means at once, INT64_MAX means when woken.
 *
 * runner_wake() makes every step of the runner run at least once more after the call, also when the
 * call came while a step was running: no wake-up is lost. It costs two atomic operations when no
 * thread sleeps. Steps that must not wake for each other's work belong to different runners. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

struct runner;

enum { RUNNER_THREADS_MAX = 128 };

typedef int64_t (*runner_step)(void *ctx);

struct runner *runner_new(void);
/* Starts `threads` threads that call `step`; `name` (at most 15 characters) is what `top` shows,
 * `nice` is added to their niceness. False: the system gives no more threads. */
bool runner_add(struct runner *r, const char *name, runner_step step, void *ctx, unsigned threads,
                int nice);
void runner_wake(struct runner *r); /* any thread */

/* Lets each thread end its present step and joins them. False: some did not end within `within_ms`;
 * they may still touch what their step works on, so nothing of it may be freed. May be called
 * again. */
bool runner_stop(struct runner *r, int64_t within_ms);
void runner_free(struct runner *r); /* after runner_stop returned true */
