/* Opening a connection: connect, log in, choose the database, and find out that a process answers
 * and which one it is. */
#include "view/redis/handshake.h"

#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "base/str.h"
#include "view/redis/connections.h"

static struct timeval timeval_of(int64_t ms)
{
    return (struct timeval){ms / 1000, (ms % 1000) * 1000};
}

bool handshake_set_timeout(redisContext *context, int64_t ms)
{
    return redisSetTimeout(context, timeval_of(ms)) == REDIS_OK;
}

/* One command of the greeting; an error reply (a wrong password) counts as unreachable. */
bool handshake_command(redisContext *context, int argc, const char **argv)
{
    redisReply *reply = redisCommandArgv(context, argc, argv, NULL);
    bool good = reply && reply->type != REDIS_REPLY_ERROR;
    if (reply && !good)
        log_warn("Redis refuses a connection",
                 LOG_STR("why", ((struct str){reply->str, reply->len})));
    if (reply)
        freeReplyObject(reply);
    return good;
}

static bool log_in(const struct redis_url *url, redisContext *context)
{
    char db[16];
    snprintf(db, sizeof db, "%u", url->db);
    if (url->password[0]) {
        bool named = url->user[0] != 0;
        const char *argv[] = {"AUTH", named ? url->user : url->password, url->password};
        if (!handshake_command(context, named ? 3 : 2, argv))
            return false;
    }
    if (url->db > 0 && !handshake_command(context, 2, (const char *[]){"SELECT", db}))
        return false;
    /* A stopped process still accepts connections: the kernel does. */
    return handshake_command(context, 1, (const char *[]){"PING"});
}

/* Which process is it? One that does not say is taken for the same as ever. */
void handshake_run_id(redisContext *context, char run[RUN_ID + 1])
{
    static const char name[] = "run_id:";
    redisReply *reply = redisCommandArgv(context, 2, (const char *[]){"INFO", "server"}, NULL);
    const char *at = reply && reply->type == REDIS_REPLY_STRING ? strstr(reply->str, name) : NULL;
    run[0] = 0;
    if (at && strlen(at) >= sizeof name - 1 + RUN_ID) {
        memcpy(run, at + sizeof name - 1, RUN_ID);
        run[RUN_ID] = 0;
    }
    if (reply)
        freeReplyObject(reply);
}

redisContext *handshake_open(const struct redis_url *url, const char *host, int port)
{
    redisContext *context = redisConnectWithTimeout(host, port, timeval_of(CONNECT_MS));
    if (!context)
        return NULL;
    if (context->err || !handshake_set_timeout(context, PROBE_MS) || !log_in(url, context)) {
        redisFree(context);
        return NULL;
    }
    (void)redisEnableKeepAlive(context);
    return context;
}
