/* Size: the stated world (1,000,000 accounts, 20,000,000 edges, timelines of 200) in memory, and
 * how soon a server is ready on it: after a clean stop, and after kill -9 with events that no
 * snapshot covers. */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/rand.h"
#include "cmd/bench_world.h"
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
    struct app *app;
    enum err e = app_open(&w->settings, NULL, NULL, &app, why);
    if (e)
        return e;
    struct views *views = app_api(app)->views;
    uint64_t ids[1000];
    for (int64_t i = 0; i < b->entries; i++)
        ids[i] = world_account(w, b->accounts + (b->entries - i) * 1000);
    for (int64_t i = 0; !e && i < w->accounts; i++) {
        uint64_t account = world_account(w, i);
        e = views_rebuild_begin(views, account);
        if (!e)
            e = views_rebuild_end(views, account, ids, (size_t)b->entries, 0);
        if (e == ERR_CONFLICT)
            e = OK;
    }
    if (!e)
        e = world_settle(w, app);
    snprintf(why, 300, "%s", err_title(e));
    double start_s = bench_now_s();
    app_close(app, 0);
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
static enum err write_edges(struct world *w, struct bench *b, struct db *db)
{
    enum err e = db_write(db, drop_index_tx, NULL, NULL);
    if (!e)
        e = world_write_follows(w, db, 0, w->accounts, size_follows, b);
    if (!e)
        e = db_write(db, make_index_tx, NULL, NULL);
    return e;
}

int bench_size(struct bench *b)
{
    struct world w;
    struct app *app;
    struct arena arena;
    struct str token;
    char why[300];
    b->settings.celebrity_threshold = 1000000000;
    b->settings.celebrity_adaptive = false;
    if (!world_init(&w, b))
        return command_fail(b->in, "cannot make a temporary folder");
    arena_init(&arena);
    bench_say(b, "writing %lld accounts and %lld follows: this takes minutes",
              (long long)b->accounts, (long long)b->accounts * FOLLOWED_EACH);
    enum err e = app_open(&w.settings, NULL, NULL, &app, why);
    if (!e) {
        e = world_write_accounts(&w, app_api(app)->db);
        if (!e)
            e = write_edges(&w, b, app_api(app)->db);
        if (!e)
            e = world_write_sessions(&w, app_api(app)->db, 7, 8, &arena, &token);
        app_close(app, 0);
        world_forget_snapshot(&w);
        snprintf(why, sizeof why, "%s", err_title(e));
    }
    if (!e)
        e = fill_with_ids(&w, b, why);
    int code =
        e ? command_fail(b->in, "%s", why)
          : (measure_restarts(b, &w, token) ? EXIT_DONE
                                            : command_fail(b->in, "the server did not start"));
    arena_done(&arena);
    world_done(&w);
    return code;
}
