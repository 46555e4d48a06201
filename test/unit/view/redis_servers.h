/* Real Redis servers that a test may kill, stop and start again; see script/servers. */
#pragma once

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/types.h>

#include <cmocka.h>
#include <hiredis/hiredis.h>

#include "base/clock.h"
#include "view/redis/url.h"

struct redis_servers {
    const char *script; /* script/servers */
    const char *kind;   /* "redis" or "redis-cluster" */
    const char *address;
    struct redis_url url;
};

/* Starts those that an earlier test killed, finds them, and empties them. */
void servers_begin(struct redis_servers *s, const char *script, const char *kind);
void servers_start(const struct redis_servers *s);
bool servers_are_known(void); /* was this program started by script/servers? */

/* By the number of a host in the URL. */
redisReply *servers_ask(const struct redis_servers *s, size_t host, const char *command);
pid_t servers_pid(const struct redis_servers *s, size_t host);
/* Which of the hosts serves the account? */
size_t servers_host_of(const struct redis_servers *s, uint64_t account);
/* Waits until each master's replica has all that the master has. */
void servers_replicate(const struct redis_servers *s);
