/* Finding and emptying the Redis servers of a test. */
#include "redis_place.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>
#include <hiredis/hiredis.h>

#include "view/redis/url.h"

const char *redis_place_url(enum redis_kind kind)
{
    return getenv(kind == REDIS_SINGLE ? "FANTAIL_TEST_REDIS" : "FANTAIL_TEST_REDIS_CLUSTER");
}

/* Replicas refuse, and follow their master. */
static void clear_node(const char *host, int port)
{
    redisContext *c = redisConnect(host, port);
    if (c && !c->err) {
        redisReply *reply = redisCommand(c, "FLUSHALL");
        if (reply)
            freeReplyObject(reply);
    }
    if (c)
        redisFree(c);
}

void redis_place_clear(enum redis_kind kind)
{
    struct redis_url url;
    const char *why;
    assert_int_equal(redis_url_parse(str_of(redis_place_url(kind)), &url, &why), OK);
    for (size_t i = 0; i < url.host_count; i++)
        clear_node(url.hosts[i].host, url.hosts[i].port);
}
