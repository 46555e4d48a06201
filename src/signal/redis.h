/* The signal between nodes that share a Redis: it lives beside the views. */
#pragma once

#include "port/signal.h"
#include "view/redis/redis.h"

/* Needs of the config the URL and how long to wait for a failover; with `invalidation` consumers
 * can trace. ERR_BAD_INPUT: the URL. Redis need not answer yet. */
enum err signal_redis_open(const struct redis_config *config, struct signal **out);
