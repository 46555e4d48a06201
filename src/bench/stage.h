/* The engine alone, with rules of the benchmark's own: the embedded store, views and bus; a
 * consumer of posts whose sink does nothing, or fails on demand, and one of follows that sends each
 * to another server. */
#pragma once

#include "base/id.h"
#include "bench/world.h"
#include "net/outgoing.h"
#include "ops/runner.h"
#include "pipe/engine.h"

struct stage {
    char path[256];
    struct id_gen ids;
    struct db *db;
    struct views *views;
    struct cards *cards;
    struct bus *bus;
    struct engine *engine;
    struct runner *runners[ENGINE_SLEEPERS];
    struct runner *tidy;
    _Atomic bool failing;
    struct outgoing *outgoing; /* for follows: set before the start, with the URL */
    char url[64];
    double recover_ms; /* how long engine_recover took */
};

/* On the store in the world's folder, which is made when it is not there. On failure nothing is
 * left open. */
enum err stage_open(struct stage *s, const struct world *w);
bool stage_start(struct stage *s, unsigned workers); /* the engine's threads */
void stage_close(struct stage *s);

/* Commits `count` events, many to a transaction. */
enum err stage_fill(struct stage *s, int64_t count); /* posts */
enum err stage_fill_with(struct stage *s, enum event_type type, int64_t count);

/* Rows written past the engine, while the stage is closed: pending events, or deliveries that wait
 * for their next try. False: SQLite refused. */
bool stage_write_pending(const struct world *w, int64_t count);
bool stage_write_deliveries(const struct world *w, int64_t count);
