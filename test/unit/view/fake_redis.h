/* A server that speaks Redis's protocol and answers as the test says: what a real one does only in
 * rare moments. */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"

struct fake_redis;

/* Called for every command but PING, from the server's thread, one at a time. Appends the reply to
 * `out` ("+OK\r\n"); nothing appended: no answer. False: closes the connection. */
typedef bool (*fake_answer)(void *ctx, const struct str *argv, size_t argc, struct buf *out);

struct fake_redis *fake_redis_new(fake_answer answer, void *ctx);
void fake_redis_free(struct fake_redis *f);
int fake_redis_port(const struct fake_redis *f);
