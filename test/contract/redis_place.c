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

/* Replicas refuse to be emptied, and follow their master. */
static void clear_node(const char *host, int port, bool cluster)
{
    redisContext *c = redisConnect(host, port);
    if (c && !c->err) {
        freeReplyObject(redisCommand(c, "FLUSHALL"));
        if (cluster) /* none of these tests harms a node: a busy machine must not replace one */
            freeReplyObject(redisCommand(c, "CONFIG SET cluster-node-timeout 60000"));
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
        clear_node(url.hosts[i].host, url.hosts[i].port, kind == REDIS_CLUSTER);
}
