/* Size: the stated world (1,000,000 accounts, 20,000,000 edges, timelines of 200) in memory, and
 * how soon a server is ready on it: after a clean stop, and after kill -9 with events that no
 * snapshot covers. */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/rand.h"
#include "bench/world.h"
#include "net/http_client.h"

enum { FOLLOWED_EACH = 20, AUTHOR_SPREAD = 50000, UNCOVERED_POSTS = 2000 };

/* Twenty followees each, half of them among the first accounts: a graph with a head and a long
 * tail. */
static size_t size_follows(void *ctx, int64_t follower, int64_t *out, size_t max)
{
    const struct bench *b = ctx;
    struct rand r;
    (void)max;
    rand_seed(&r, (uint64_t)follower);
    for (size_t i = 0; i < FOLLOWED_EACH; i++) {
        uint64_t among = i % 2 ? AUTHOR_SPREAD : (uint64_t)b->accounts;
        out[i] = (int64_t)rand_below(&r, among);
    }
    return FOLLOWED_EACH;
}

static enum err fill_with_ids(struct world *w, struct bench *b, char why[300])
{
    struct runtime *runtime;
    enum err e = runtime_open(&w->settings, NULL, NULL, &runtime, why);
    if (e)
        return e;
    struct views *views = runtime_api(runtime)->views;
    uint64_t ids[1000];
    for (int64_t i = 0; i < b->entries; i++)
        ids[i] = world_account(w, b->accounts + (b->entries - i) * 1000);
    for (int64_t i = 0; !e && i < w->accounts; i++) {
        uint64_t account = world_account(w, i);
        e = timelines_begin(views->timelines, account);
        if (!e)
            e = timelines_end(views->timelines, account, ids, (size_t)b->entries, 0);
        if (e == ERR_CONFLICT)
            e = OK;
    }
    if (!e)
        e = world_settle(w, runtime);
    snprintf(why, 300, "%s", err_title(e));
    double start_s = bench_now_s();
    runtime_close(runtime, 0);
    bench_number(b, "stop_s", bench_now_s() - start_s, "s to save the views and close");
    return e;
}

static bool post_some(const struct server *server, struct str token)
{
    struct http_client *client = http_client_tcp("127.0.0.1", server->port);
    struct buf body;
    char headers[256];
    bool good = client != NULL;
    buf_init(&body, 1 << 20);
    snprintf(headers, sizeof headers,
             "Authorization: Bearer %.*s\r\nContent-Type: application/json\r\n", STR_ARG(token));
    for (int i = 0; good && i < UNCOVERED_POSTS; i++) {
        int status = 0;
        good = !http_client_call(client, "POST", "/v1/posts", headers,
                                 STR("{\"caption\":\"Here again.\"}"), &status, &body, 10000) &&
               status == 201;
    }
    buf_done(&body);
    if (client)
        http_client_free(client);
    return good;
}

static bool measure_restarts(struct bench *b, struct world *w, struct str token)
{
    struct server server;
    if (!server_start(&server, w))
        return false;
    bench_number(b, "ready_after_stop_s", server.ready_s,
                 "s from start to ready, after a clean stop");
    bench_number(b, "rss_mib", (double)process_rss(server.pid) / 1048576, "MiB resident");
    bool good = post_some(&server, token);
    server_stop(&server, SIGKILL);
    if (!good || !server_start(&server, w))
        return false;
    bench_number(b, "ready_after_kill_s", server.ready_s,
                 "s from start to ready, after kill -9 and 2,000 posts");
    server_stop(&server, SIGTERM);
    return true;
}

static enum err drop_index_tx(struct tx *tx, void *arg)
{
    (void)arg;
    return tx_exec(tx, "DROP INDEX follows_back", DB_NO_ARGS, NULL);
}

static enum err make_index_tx(struct tx *tx, void *arg)
{
    (void)arg;
    return tx_exec(tx, "CREATE INDEX follows_back ON follows (followee_id, follower_id)",
                   DB_NO_ARGS, NULL);
}

/* The edges come in the order of their first key; the index by the other is made in one go. */
struct size_world {
    struct bench *bench;
    struct arena arena;
    struct str token;
};

static enum err write_size_world(struct world *w, struct db *db, void *ctx)
{
    struct size_world *s = ctx;
    enum err e = world_write_accounts(w, db);
    if (!e)
        e = db_write(db, drop_index_tx, NULL, NULL);
    if (!e)
        e = world_write_follows(w, db, 0, w->accounts, size_follows, s->bench);
    if (!e)
        e = db_write(db, make_index_tx, NULL, NULL);
    if (!e)
        e = world_write_sessions(w, db, 7, 8, &s->arena, &s->token);
    return e;
}

int bench_size(struct bench *b)
{
    struct world w;
    struct size_world s = {.bench = b};
    char why[300];
    b->settings.celebrity_threshold = 1000000000;
    b->settings.celebrity_adaptive = false;
    if (!world_init(&w, b))
        return command_fail(b->in, "cannot make a folder in $TMPDIR or /tmp");
    arena_init(&s.arena);
    bench_say(b, "writing %lld accounts and %lld follows: this takes minutes",
              (long long)b->accounts, (long long)b->accounts * FOLLOWED_EACH);
    enum err e = world_write(&w, write_size_world, &s, why);
    if (!e)
        e = fill_with_ids(&w, b, why);
    int code =
        e ? command_fail(b->in, "%s", why)
          : (measure_restarts(b, &w, s.token)
                 ? EXIT_DONE
                 : command_fail(
                       b->in,
                       "the server under test did not start within its time; see the log above"));
    arena_done(&s.arena);
    world_done(&w);
    return code;
}
