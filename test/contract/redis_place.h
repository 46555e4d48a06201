/* Where the Redis drivers are tested: servers that script/servers has started. */
#pragma once

#include <stdbool.h>

enum redis_kind { REDIS_SINGLE, REDIS_CLUSTER };

/* The URL from the environment; NULL: no such server was started. */
const char *redis_place_url(enum redis_kind kind);
/* Empties every node. */
void redis_place_clear(enum redis_kind kind);
