/* Starting, finding and asking the servers. */
#include "redis_servers.h"

#include <string.h>

#include "view/redis/connections.h"
#include "view/redis/keys.h"

static const char *folder(void)
{
    return getenv("FANTAIL_TEST_SERVERS");
}

bool servers_are_known(void)
{
    return folder() != NULL;
}

void servers_start(const struct redis_servers *s)
{
    char command[600];
    snprintf(command, sizeof command, "'%s' start '%s' %s >/dev/null", s->script, folder(),
             s->kind);
    assert_int_equal(system(command), 0);
}

void servers_begin(struct redis_servers *s, const char *script, const char *kind)
{
    const char *why;
    s->script = script;
    s->kind = kind;
    servers_start(s);
    s->address =
        getenv(strcmp(kind, "redis") ? "FANTAIL_TEST_REDIS_CLUSTER" : "FANTAIL_TEST_REDIS");
    assert_non_null(s->address);
    assert_int_equal(redis_url_parse(str_of(s->address), &s->url, &why), OK);
    for (size_t i = 0; i < s->url.host_count; i++) /* replicas refuse, and follow */
        freeReplyObject(servers_ask(s, i, "FLUSHALL"));
}

redisReply *servers_ask(const struct redis_servers *s, size_t host, const char *command)
{
    redisContext *c = redisConnect(s->url.hosts[host].host, s->url.hosts[host].port);
    assert_non_null(c);
    assert_int_equal(c->err, 0);
    redisReply *reply = redisCommand(c, command);
    redisFree(c);
    assert_non_null(reply);
    return reply;
}

size_t servers_host_of(const struct redis_servers *s, uint64_t account)
{
    struct key k = key_of_account(KEY_TIMELINE, account);
    struct connections *l = connections_new(&s->url, 0, NULL);
    size_t host = 0;
    assert_int_equal(connections_refresh(l), OK);
    if (s->url.cluster) { /* hosts are the first nodes, in their order */
        assert_true(connections_node_of(l, k.slot) >= 0);
        host = (size_t)connections_node_of(l, k.slot);
        assert_true(host < s->url.host_count);
    }
    connections_free(l);
    return host;
}

pid_t servers_pid(const struct redis_servers *s, size_t host)
{
    char path[400];
    long pid = 0;
    if (s->url.cluster)
        snprintf(path, sizeof path, "%s/redis-cluster/%zu/pid", folder(), host + 1);
    else
        snprintf(path, sizeof path, "%s/redis/pid", folder());
    FILE *file = fopen(path, "r");
    assert_non_null(file);
    assert_int_equal(fscanf(file, "%ld", &pid), 1);
    fclose(file);
    return (pid_t)pid;
}

static long long number_after(const char *text, const char *name)
{
    const char *at = strstr(text, name);
    return at ? atoll(at + strlen(name)) : -1;
}

static bool is_replicated(const struct redis_servers *s, size_t host)
{
    redisReply *reply = servers_ask(s, host, "INFO replication");
    bool master = strstr(reply->str, "role:master") != NULL;
    bool done = !master || (strstr(reply->str, "state=online") &&
                            number_after(reply->str, ",offset=") >=
                                number_after(reply->str, "master_repl_offset:"));
    freeReplyObject(reply);
    return done;
}

void servers_replicate(const struct redis_servers *s)
{
    int64_t until = clock_mono_ms(clock_system()) + 10000;
    for (size_t i = 0; s->url.cluster && i < s->url.host_count; i++)
        while (!is_replicated(s, i))
            assert_true(clock_mono_ms(clock_system()) < until);
}
