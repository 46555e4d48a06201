/* The server: N loops that share a port, and the control socket on the first of them. It owns the
 * loops' threads; a loop itself may live a little longer (see loop.c). */
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/check.h"
#include "net/listen.h"
#include "net/loop.h"
#include "net/peers.h"

enum { LOOPS_MAX = 64, WHY_MAX = 200 };

struct http_server {
    uint16_t port;
    char *control_path;
    bool stopped;
    unsigned loop_count;
    unsigned thread_count;
    struct loop *loops[LOOPS_MAX];
    _Atomic unsigned connections;
    struct peers *peers; /* NULL: addresses have no limit */
};

void http_config_default(struct http_config *c)
{
    *c = (struct http_config){
        .listen_host = "127.0.0.1",
        .listen_port = 8080,
        .loops = 1,
        .connections_max = 10000,
        .head_timeout_ms = 10 * 1000,
        .idle_timeout_ms = 75 * 1000,
        .body_min_rate = 1024,
        .body_grace_ms = 10 * 1000,
        .write_timeout_ms = 20 * 1000,
        .stream_heartbeat_ms = 20 * 1000,
    };
}

static void *run_thread(void *arg)
{
    loop_run(arg);
    return NULL;
}

static bool start_thread(struct loop *loop)
{
    char name[16];
    snprintf(name, sizeof name, "http-%u", loop->index % 1000);
    return thread_start(&loop->thread, name, run_thread, loop);
}

static enum err add_loop(struct http_server *s, const struct http_config *config, char why[WHY_MAX])
{
    bool shared = config->loops > 1;
    int tcp = -1, control = -1;
    if (config->listen_host) {
        tcp = listen_tcp(config->listen_host, &s->port, shared, why);
        if (tcp < 0)
            return ERR_UNAVAILABLE;
    }
    if (s->loop_count == 0 && config->control_path) {
        control = listen_unix(config->control_path, why);
        if (control < 0) {
            if (tcp >= 0)
                close(tcp);
            return ERR_UNAVAILABLE;
        }
        s->control_path = strdup(config->control_path);
        CHECK(s->control_path);
    }
    enum err e = loop_new(config, s->loop_count, &s->connections, s->peers, tcp, control,
                          &s->loops[s->loop_count]);
    if (e != OK) {
        snprintf(why, WHY_MAX,
                 "cannot start an event loop: %s; does the system allow enough open files?",
                 err_title(e));
        return e;
    }
    s->loop_count++;
    return OK;
}

enum err http_server_start(const struct http_config *config, struct http_server **out,
                           char why[WHY_MAX])
{
    CHECK(config->handler && config->loops > 0 && config->loops <= LOOPS_MAX);
    CHECK(config->listen_host || config->control_path);
    struct http_config checked = *config;
    if (checked.body_min_rate < 1)
        checked.body_min_rate = 1; /* no wait without a limit */
    if (checked.stream_heartbeat_ms < 1)
        checked.stream_heartbeat_ms = 1;
    struct http_server *s = calloc(1, sizeof *s);
    if (!s)
        return ERR_NO_MEMORY;
    s->port = checked.listen_port;
    s->peers = checked.address_max > 0 ? peers_new(checked.address_max) : NULL;
    enum err e = OK;
    if (checked.listen_host && s->port != 0 && checked.loops > 1 &&
        !listen_tcp_is_free(checked.listen_host, s->port, why))
        e = ERR_UNAVAILABLE;
    while (e == OK && s->loop_count < checked.loops)
        e = add_loop(s, &checked, why);
    while (e == OK && s->thread_count < s->loop_count) {
        if (!start_thread(s->loops[s->thread_count])) {
            snprintf(why, WHY_MAX, "cannot start a thread");
            e = ERR_UNAVAILABLE;
            break;
        }
        s->thread_count++;
    }
    if (e != OK) {
        http_server_free(s);
        return e;
    }
    *out = s;
    return OK;
}

uint16_t http_server_port(const struct http_server *s)
{
    return s->port;
}

void http_server_stop(struct http_server *s, int64_t grace_ms)
{
    if (s->stopped)
        return;
    s->stopped = true;
    for (unsigned i = 0; i < s->loop_count; i++)
        loop_stop(s->loops[i], grace_ms);
    for (unsigned i = 0; i < s->loop_count; i++) {
        if (i < s->thread_count)
            thread_join(&s->loops[i]->thread);
        else
            loop_run(s->loops[i]); /* its thread never began: its handles are closed from here */
    }
    if (s->control_path)
        unlink(s->control_path);
}

void http_server_free(struct http_server *s)
{
    if (!s)
        return;
    http_server_stop(s, 0);
    for (unsigned i = 0; i < s->loop_count; i++)
        loop_unref(s->loops[i]);
    peers_free(s->peers);
    free(s->control_path);
    free(s);
}

void http_server_stats(const struct http_server *s, struct http_stats *out)
{
    *out = (struct http_stats){.connections =
                                   atomic_load_explicit(&s->connections, memory_order_relaxed)};
    for (unsigned i = 0; i < s->loop_count; i++) {
        const struct loop *loop = s->loops[i];
#define ADD(name) out->name += atomic_load_explicit(&loop->name, memory_order_relaxed);
        LOOP_COUNTERS(ADD)
#undef ADD
    }
}
