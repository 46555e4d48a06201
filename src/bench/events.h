/* Small events to measure the engine with: posts to a few followers and follows, made by the model
 * in a world of many people with few followers each. */
#pragma once

#include "bench/world.h"

enum { EVENTS_FOLLOWERS = 5 };

/* Writes the world and gives everyone a timeline. */
enum err events_make_world(struct world *w, struct bench *b, char why[300]);

/* Commits `count` posts by the accounts [from, to), in transactions of many: the fast way to a
 * backlog. */
enum err events_fill(const struct world *w, struct db *db, int64_t from, int64_t to, int64_t count);

/* ---- events one by one ---- */

/* A source of single durable transactions, each with one event: four posts, then a follow or an
 * unfollow. Closed (rate 0): `window` are under way at any time. Open: due at fixed moments,
 * whatever the store does; what finds no free place is left out and counted. */
struct event_source;
struct event_source *event_source_start(const struct world *w, struct db *db, int64_t from,
                                        int64_t to, size_t window, double rate, bool posts_only);
/* Waits for what is under way. */
struct event_source_end {
    int64_t committed, left_out;
    double seconds;
};
struct event_source_end event_source_stop(struct event_source *s);

/* ---- until when ---- */

/* So far, of all lanes. */
uint64_t events_deliveries(struct engine *engine);
/* Everything is delivered. */
void events_wait_delivered(struct engine *engine);
/* No outbox row is pending: delivered, and saved as settled. */
enum err events_wait_settled(struct engine *engine, struct db *db);
