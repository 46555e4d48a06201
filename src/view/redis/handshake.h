/* The first words with a Redis server. */
#pragma once

#include <hiredis/hiredis.h>
#include <stdbool.h>
#include <stdint.h>

#include "view/redis/url.h"

enum { RUN_ID = 40 }; /* digits: every start of a server draws another */

/* A connection of its own, logged in, with PROBE_MS for each answer; NULL: unreachable. */
redisContext *handshake_open(const struct redis_url *url, const char *host, int port);
/* False: no answer, or an error, which is logged. */
bool handshake_command(redisContext *context, int argc, const char **argv);
bool handshake_set_timeout(redisContext *context, int64_t ms);
void handshake_run_id(redisContext *context, char run[RUN_ID + 1]); /* "": it does not say */
