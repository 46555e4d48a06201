/* The engine alone, with a rule of the benchmark's own: the embedded store, views and bus, and one
 * consumer whose sink does nothing, or fails when it is told to. */
#pragma once

#include "base/id.h"
#include "bench/world.h"
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
    double recover_ms; /* how long engine_recover took */
};

/* On the store in the world's folder, which is made when it is not there. On failure nothing is
 * left open. */
enum err stage_open(struct stage *s, const struct world *w);
bool stage_start(struct stage *s, unsigned workers); /* the engine's threads */
void stage_close(struct stage *s);

/* Commits `count` events, many to a transaction. */
enum err stage_fill(struct stage *s, int64_t count);

/* Rows written past the engine, while the stage is closed: pending events, or deliveries that wait
 * for their next try. False: SQLite refused. */
bool stage_write_pending(const struct world *w, int64_t count);
bool stage_write_deliveries(const struct world *w, int64_t count);
