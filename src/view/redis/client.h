/* What every Redis driver begins with: connections to the servers, spare batches and random
 * numbers. Any thread. */
#pragma once

#include <pthread.h>

#include "base/rand.h"
#include "view/redis/batch.h"
#include "view/redis/redis.h"

enum { SPARE_BATCHES_MAX = 64 };

struct client {
    struct connections *connections;
    pthread_mutex_t lock; /* of what follows */
    struct batch *spare[SPARE_BATCHES_MAX];
    size_t spare_count;
    struct rand rand;
};

/* ERR_BAD_INPUT: the log says why. */
enum err client_url(const struct redis_config *config, struct redis_url *out);
/* As client_url. Asks the cluster who serves what, if it answers. */
enum err client_open(struct client *c, const struct redis_config *config);
void client_close(struct client *c);
uint64_t client_random(struct client *c);
/* The number at EPOCH_KEY; 0: there is none. Flushes as `how` says. */
enum err client_epoch(struct client *c, unsigned how, uint64_t *epoch);

/* BORROWED struct batch *b = batch_borrow(…): it goes back at the end of the scope. */
struct batch *batch_borrow(struct client *c);
void batch_return(struct batch **b);
#define BORROWED __attribute__((cleanup(batch_return)))

/* The caller answers from elsewhere than Redis: the thread's trace is not whole. */
static inline void client_spoil(const struct client *c)
{
    invalidation_spoil(connections_invalidation(c->connections));
}
