/* What the measurements over HTTP share: rings of prepared requests, and their way to a server. */
#pragma once

#include "base/arena.h"
#include "bench/bench.h"
#include "bench/load.h"

/* Sent in turn, over and over. */
struct requests {
    struct str *items;
    size_t count;
};

/* GET `target` as each of these. */
struct requests requests_get(struct arena *arena, const char *target, const struct str *tokens,
                             size_t n);

/* With the bench's number of connections; a rate of 0: as fast as they are answered. False, and
 * said so: the server did not answer as it should. */
bool requests_run(struct bench *b, uint16_t port, struct requests *r, double rate, int64_t run_ms,
                  struct load_result *out);
/* Each once: what is made at the first look is made, caches are filled. */
bool requests_prime(uint16_t port, const struct requests *r);

double load_quantile_ms(const struct load_result *r, double q);
