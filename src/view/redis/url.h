/* redis://[[user]:password@]host[:port][/db] for one server, redis-cluster://… with a comma between
 * hosts for a cluster. */
#pragma once

#include "base/err.h"
#include "base/str.h"

enum { URL_HOSTS_MAX = 32, URL_HOST_MAX = 256, URL_SECRET_MAX = 256, REDIS_PORT = 6379 };

struct redis_url {
    bool cluster;
    char user[URL_SECRET_MAX]; /* "": the default user */
    char password[URL_SECRET_MAX];
    unsigned db; /* 0 in a cluster */
    size_t host_count;
    struct {
        char host[URL_HOST_MAX];
        int port;
    } hosts[URL_HOSTS_MAX];
};

/* ERR_BAD_INPUT: *why (a constant text) says what is wrong; it never repeats the URL, which may
 * hold a password. */
enum err redis_url_parse(struct str text, struct redis_url *out, const char **why);
