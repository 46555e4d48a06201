/* Feed, post and mixed over HTTP: a server process of its own on a temporary world, and a load
 * generator here. Peaks are found in a closed loop; latencies are measured at a fixed offered rate,
 * about 30% of the peak, from the moment a request was due. A peer is measured in turn, round by
 * round, with the same client and the same request bytes. */
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/check.h"
#include "base/rand.h"
#include "bench/requests.h"
#include "bench/world.h"
#include "net/http_client.h"

enum {
    CELEBRITIES = 50,
    CELEBRITY_FIRST = 0,
    AUTHOR_FIRST = 100,
    AUTHORS = 800,
    VIEWER_FIRST = 1000, /* follow authors only */
    VIEWERS = 2000,
    FAN_FIRST = 4000, /* follow authors and all celebrities */
    POSTS_EACH = 40,
    FOLLOWED = 60,
    ROUNDS_MAX = 32,
};

static struct requests post_requests(struct arena *arena, const struct str *tokens, size_t n)
{
    static const char caption[] =
        "A caption of a hundred and twenty characters, give or take: what people write "
        "under a picture of their breakfast table.";
    struct requests r = {ARENA_ARRAY(arena, struct str, n), n};
    for (size_t i = 0; i < n; i++)
        r.items[i] = arena_printf(
            arena,
            "POST /v1/posts HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer %.*s\r\n"
            "Content-Type: application/json\r\nContent-Length: %zu\r\n\r\n{\"caption\":\"%s\"}",
            STR_ARG(tokens[i]), sizeof caption - 1 + 14, caption);
    return r;
}

/* ---- feed ---- */

static size_t feed_follows(void *ctx, int64_t follower, int64_t *out, size_t max)
{
    (void)ctx;
    (void)max;
    struct rand r;
    size_t n = 0;
    rand_seed(&r, (uint64_t)follower);
    for (size_t i = 0; i < FOLLOWED; i++)
        out[n++] = AUTHOR_FIRST + (int64_t)rand_below(&r, AUTHORS);
    if (follower >= FAN_FIRST) {
        for (int64_t i = 0; i < CELEBRITIES; i++)
            out[n++] = CELEBRITY_FIRST + i;
    }
    return n;
}

struct readers {
    struct arena *arena;
    struct str *viewers, *fans; /* tokens */
};

static enum err write_feed_world(struct world *w, struct db *db, void *ctx)
{
    const struct readers *r = ctx;
    enum err e = world_write_accounts(w, db);
    if (!e)
        e = world_write_follows(w, db, VIEWER_FIRST, VIEWER_FIRST + VIEWERS, feed_follows, NULL);
    if (!e)
        e = world_write_follows(w, db, FAN_FIRST, FAN_FIRST + VIEWERS, feed_follows, NULL);
    for (int i = 0; !e && i < POSTS_EACH;
         i++) { /* in turn, so that a page holds posts of both kinds */
        e = world_write_posts(w, db, AUTHOR_FIRST, AUTHOR_FIRST + AUTHORS, 1, DELIVERY_PUSH);
        if (!e)
            e = world_write_posts(w, db, CELEBRITY_FIRST, CELEBRITY_FIRST + CELEBRITIES, 1,
                                  DELIVERY_PULL);
    }
    if (!e)
        e = world_set_counters(w, db, CELEBRITY_FIRST, CELEBRITY_FIRST + CELEBRITIES);
    if (!e)
        e = world_write_sessions(w, db, VIEWER_FIRST, VIEWER_FIRST + VIEWERS, r->arena, r->viewers);
    if (!e)
        e = world_write_sessions(w, db, FAN_FIRST, FAN_FIRST + VIEWERS, r->arena, r->fans);
    return e;
}

/* "http://127.0.0.1:PORT/path" */
static bool split_url(const char *url, uint16_t *port, const char **path)
{
    unsigned number;
    int used = 0;
    if (sscanf(url, "http://127.0.0.1:%u%n", &number, &used) != 1 || number > 65535 ||
        url[used] != '/')
        return false;
    *port = (uint16_t)number;
    *path = url + used;
    return true;
}

/* A number of /metrics by its name there; 0: there is none. */
static double metric(uint16_t port, const char *name)
{
    struct http_client *client = http_client_tcp("127.0.0.1", port);
    struct buf text;
    int status = 0;
    double value = 0;
    if (!client)
        return 0;
    buf_init(&text, 1 << 20);
    if (http_client_call(client, "GET", "/metrics", NULL, STR(""), &status, &text, 5000) == OK) {
        struct str rest = buf_view(&text), line;
        size_t len = strlen(name);
        while (str_split(&rest, '\n', &line)) {
            char copy[128];
            snprintf(copy, sizeof copy, "%.*s", STR_ARG(line));
            if (strncmp(copy, name, len) == 0 && copy[len] == ' ')
                value = strtod(copy + len, NULL);
        }
    }
    buf_done(&text);
    http_client_free(client);
    return value;
}

/* The share of first pages that the server answered as they were kept. */
static double page_hit_rate(uint16_t port)
{
    double hits = metric(port, "fantail_page_hits_total");
    double all = hits + metric(port, "fantail_page_misses_total");
    return all > 0 ? hits / all : 0;
}

/* The same pages from a server that keeps none: each is drawn. */
static bool uncached_rounds(struct bench *b, uint16_t port, struct requests *viewers,
                            uint16_t peer_port, struct requests *peer)
{
    struct load_result r;
    double ours[ROUNDS_MAX], theirs[ROUNDS_MAX];
    size_t n = (size_t)(b->rounds < ROUNDS_MAX ? b->rounds : ROUNDS_MAX);
    if (!requests_prime(port, viewers))
        return false;
    for (size_t i = 0; i < n; i++) {
        if (!requests_run(b, port, viewers, 0, b->seconds * 1000, &r))
            return false;
        ours[i] = r.per_second;
        if (peer && !requests_run(b, peer_port, peer, 0, b->seconds * 1000, &r))
            return false;
        theirs[i] = r.per_second;
    }
    double peak = bench_median(ours, n);
    bench_number(b, "uncached_per_s", peak, "pages/s at the peak, each drawn anew");
    if (peer)
        bench_number(b, "uncached_ratio_peer", peak / bench_median(theirs, n), "times the peer");
    return true;
}

static bool feed_rounds(struct bench *b, uint16_t port, struct requests *viewers,
                        struct requests *fans, uint16_t peer_port, struct requests *peer)
{
    struct load_result r;
    double ours[ROUNDS_MAX], with_celebrities[ROUNDS_MAX], theirs[ROUNDS_MAX], p99[ROUNDS_MAX];
    size_t n = (size_t)(b->rounds < ROUNDS_MAX ? b->rounds : ROUNDS_MAX);
    int64_t run_ms = b->seconds * 1000;
    double body_bytes = 0;
    if (!requests_prime(port, viewers) || !requests_prime(port, fans))
        return false;
    for (size_t i = 0; i < n; i++) {
        if (!requests_run(b, port, viewers, 0, run_ms, &r))
            return false;
        ours[i] = r.per_second;
        p99[i] = load_quantile_ms(&r, 0.99);
        body_bytes = r.body_bytes;
        if (peer && !requests_run(b, peer_port, peer, 0, run_ms, &r))
            return false;
        theirs[i] = r.per_second;
        if (!requests_run(b, port, fans, 0, run_ms, &r))
            return false;
        with_celebrities[i] = r.per_second;
    }
    double peak = bench_median(ours, n);
    bench_number(b, "per_s", peak, "pages/s at the peak");
    bench_number(b, "closed_p99_ms", bench_median(p99, n), "ms, p99 at the peak");
    bench_number(b, "body_bytes", body_bytes, "bytes of an answer, head included");
    bench_number(b, "celebrity_per_s", bench_median(with_celebrities, n),
                 "pages/s with 50 celebrities followed");
    if (peer) {
        double other = bench_median(theirs, n);
        bench_number(b, "peer_per_s", other, "answers/s of the peer");
        bench_number(b, "ratio_peer", peak / other, "times the peer");
    }
    if (!requests_run(b, port, viewers, peak * 0.3, run_ms, &r))
        return false;
    bench_number(b, "offered_per_s", peak * 0.3, "pages/s offered for the latencies below");
    bench_number(b, "p50_ms", load_quantile_ms(&r, 0.5), "ms");
    bench_number(b, "p99_ms", load_quantile_ms(&r, 0.99), "ms");
    bench_number(b, "page_hit_rate", page_hit_rate(port), "of the pages were kept ones");
    return true;
}

static int measure_feed(struct bench *b, struct world *w, const struct readers *r)
{
    struct server server;
    struct requests mine = requests_get(r->arena, "/v1/feed", r->viewers, VIEWERS);
    struct requests celebrity = requests_get(r->arena, "/v1/feed", r->fans, VIEWERS);
    struct requests peer = {0};
    uint16_t peer_port = 0;
    const char *path;
    if (b->peer) {
        if (!split_url(b->peer, &peer_port, &path))
            return command_usage(b->in, "--peer: '%s' is not http://127.0.0.1:PORT/PATH", b->peer);
        peer = requests_get(r->arena, path, r->viewers, VIEWERS);
    }
    if (!server_start(&server, w))
        return command_fail(
            b->in, "the server under test did not start within its time; see the log above");
    bool good = feed_rounds(b, server.port, &mine, &celebrity, peer_port, b->peer ? &peer : NULL);
    bench_number(b, "rss_mib", (double)process_rss(server.pid) / 1048576, "MiB resident");
    server_stop(&server, SIGTERM);
    if (!good)
        return EXIT_FAILED;
    w->settings.page_cache_bytes = 0;
    if (!server_start(&server, w))
        return command_fail(b->in, "the server under test did not start again");
    good = uncached_rounds(b, server.port, &mine, peer_port, b->peer ? &peer : NULL);
    server_stop(&server, SIGTERM);
    return good ? EXIT_DONE : EXIT_FAILED;
}

int bench_feed(struct bench *b)
{
    struct world w;
    struct arena arena;
    char why[300];
    b->settings.celebrity_threshold = 1000;
    b->settings.celebrity_adaptive = false;
    if (b->accounts < FAN_FIRST + VIEWERS)
        return command_usage(b->in, "feed needs --accounts of at least %d", FAN_FIRST + VIEWERS);
    if (!world_init(&w, b))
        return command_fail(b->in, "cannot make a folder in $TMPDIR or /tmp");
    arena_init(&arena);
    struct readers readers = {&arena, ARENA_ARRAY(&arena, struct str, VIEWERS),
                              ARENA_ARRAY(&arena, struct str, VIEWERS)};
    bench_say(b, "writing %lld accounts, %d posts, %d readers", (long long)b->accounts,
              (AUTHORS + CELEBRITIES) * POSTS_EACH, 2 * VIEWERS);
    enum err e = world_write(&w, write_feed_world, &readers, why);
    int code = e ? command_fail(b->in, "%s", why) : measure_feed(b, &w, &readers);
    arena_done(&arena);
    world_done(&w);
    return code;
}

/* ---- post ---- */

enum { POSTERS = 1000, POST_FOLLOWERS = 20 };

static size_t post_follows(void *ctx, int64_t follower, int64_t *out, size_t max)
{
    const struct bench *b = ctx;
    struct rand r;
    size_t n = 0;
    rand_seed(&r, (uint64_t)follower);
    int64_t each = POSTERS * POST_FOLLOWERS / b->accounts + 1;
    for (int64_t i = 0; i < each && n < max; i++)
        out[n++] = (int64_t)rand_below(&r, POSTERS);
    return n;
}

/* What the store took for the posts of this server's life, within checkpoints and outside. */
static void report_checkpoints(struct bench *b, uint16_t port)
{
    const char *p99 = "fantail_db_write_seconds{quantile=\"0.99\"}";
    const char *during_p99 = "fantail_db_checkpoint_write_seconds{quantile=\"0.99\"}";
    double outside = metric(port, "fantail_db_write_seconds_count");
    double inside = metric(port, "fantail_db_checkpoint_write_seconds_count");
    bench_number(b, "checkpoint_share", outside + inside > 0 ? inside / (outside + inside) : 0,
                 "of these posts met a checkpoint");
    bench_number(b, "store_p99_ms", metric(port, p99) * 1e3,
                 "ms, p99 of the commit, outside checkpoints");
    bench_number(b, "store_checkpoint_p99_ms", metric(port, during_p99) * 1e3,
                 "ms, p99 of the commit, within checkpoints");
}

static int measure_post(struct bench *b, struct world *w, struct arena *arena, struct str *tokens)
{
    struct server server;
    struct load_result r;
    double rates[ROUNDS_MAX];
    size_t n = (size_t)(b->rounds < ROUNDS_MAX ? b->rounds : ROUNDS_MAX);
    struct requests posts = post_requests(arena, tokens, POSTERS);
    if (!server_start(&server, w))
        return command_fail(
            b->in, "the server under test did not start within its time; see the log above");
    bool good = true;
    for (size_t i = 0; good && i < n; i++) {
        good = requests_run(b, server.port, &posts, 0, b->seconds * 1000, &r);
        rates[i] = r.per_second;
    }
    if (good) {
        double peak = bench_median(rates, n);
        bench_number(b, "per_s", peak, "durable posts/s at the peak");
        /* A server of its own, whose store has measured nothing else. */
        server_stop(&server, SIGTERM);
        if (!server_start(&server, w))
            return command_fail(b->in, "the server under test did not start again");
        good = requests_run(b, server.port, &posts, peak * 0.3, b->seconds * 1000, &r);
        bench_number(b, "offered_per_s", peak * 0.3, "posts/s offered for the latencies below");
        bench_number(b, "p50_ms", load_quantile_ms(&r, 0.5), "ms");
        bench_number(b, "p99_ms", load_quantile_ms(&r, 0.99), "ms");
        report_checkpoints(b, server.port);
    }
    server_stop(&server, SIGTERM);
    return good ? EXIT_DONE : EXIT_FAILED;
}

struct posters {
    struct bench *bench;
    struct arena *arena;
    struct str *tokens;
};

static enum err write_post_world(struct world *w, struct db *db, void *ctx)
{
    const struct posters *p = ctx;
    enum err e = world_write_accounts(w, db);
    if (!e)
        e = world_write_follows(w, db, 0, w->accounts, post_follows, p->bench);
    if (!e)
        e = world_write_sessions(w, db, 0, POSTERS, p->arena, p->tokens);
    return e;
}

int bench_post(struct bench *b)
{
    struct world w;
    struct arena arena;
    char why[300];
    if (!world_init(&w, b))
        return command_fail(b->in, "cannot make a folder in $TMPDIR or /tmp");
    arena_init(&arena);
    struct posters p = {b, &arena, ARENA_ARRAY(&arena, struct str, POSTERS)};
    enum err e = world_write(&w, write_post_world, &p, why);
    int code = e ? command_fail(b->in, "%s", why) : measure_post(b, &w, &arena, p.tokens);
    arena_done(&arena);
    world_done(&w);
    return code;
}

/* ---- mixed ---- */

enum { LARGE = 1, OTHERS_FIRST = 10, OTHERS = 500 };

static size_t mixed_follows(void *ctx, int64_t follower, int64_t *out, size_t max)
{
    const struct bench *b = ctx;
    struct rand r;
    size_t n = 0;
    (void)max;
    rand_seed(&r, (uint64_t)follower);
    if (rand_below(&r, (uint64_t)b->accounts) < (uint64_t)b->followers)
        out[n++] = LARGE;
    if (rand_below(&r, 100) == 0)
        out[n++] = OTHERS_FIRST + (int64_t)rand_below(&r, OTHERS);
    return n;
}

/* Posts as the large author, one after the other, as fast as they are answered and delivered. */
struct back_to_back {
    uint16_t port;
    struct str token;
    _Atomic bool stop;
    _Atomic int64_t posts;
};

static void *post_back_to_back(void *arg)
{
    struct back_to_back *p = arg;
    struct http_client *client = http_client_tcp("127.0.0.1", p->port);
    char headers[256];
    struct buf body;
    buf_init(&body, 1 << 20);
    snprintf(headers, sizeof headers,
             "Authorization: Bearer %.*s\r\nContent-Type: application/json\r\n", STR_ARG(p->token));
    while (client && !atomic_load(&p->stop)) {
        int status = 0;
        if (http_client_call(client, "POST", "/v1/posts", headers,
                             STR("{\"caption\":\"To all of you.\"}"), &status, &body, 10000) ||
            status != 201)
            break;
        atomic_fetch_add(&p->posts, 1);
        usleep(
            60000); /* the time that one fan-out may take: the next begins when it should be over */
    }
    buf_done(&body);
    if (client)
        http_client_free(client);
    return NULL;
}

static bool mixed_rounds(struct bench *b, uint16_t port, struct requests *others, struct str large)
{
    double quiet[ROUNDS_MAX], busy[ROUNDS_MAX], offered = 1000;
    size_t n = (size_t)(b->rounds < ROUNDS_MAX ? b->rounds : ROUNDS_MAX);
    int64_t fan_outs = 0;
    struct load_result r;
    for (size_t i = 0; i < n; i++) {
        if (!requests_run(b, port, others, offered, b->seconds * 1000, &r))
            return false;
        quiet[i] = load_quantile_ms(&r, 0.99);
        struct back_to_back p = {.port = port, .token = large};
        pthread_t thread;
        CHECK(pthread_create(&thread, NULL, post_back_to_back, &p) == 0);
        bool good = requests_run(b, port, others, offered, b->seconds * 1000, &r);
        atomic_store(&p.stop, true);
        pthread_join(thread, NULL);
        if (!good)
            return false;
        busy[i] = load_quantile_ms(&r, 0.99);
        fan_outs += atomic_load(&p.posts);
    }
    bench_number(b, "offered_per_s", offered, "posts/s offered by others");
    bench_number(b, "fan_outs", (double)fan_outs, "large fan-outs meanwhile, in all rounds");
    bench_number(b, "quiet_p99_ms", bench_median(quiet, n),
                 "ms, p99 of others' posts, nothing else going on");
    bench_number(b, "busy_p99_ms", bench_median(busy, n),
                 "ms, p99 of others' posts during the fan-outs");
    return true;
}

struct mixed {
    struct posters others;
    struct str large; /* the token of the author whom all follow */
};

static enum err write_mixed_world(struct world *w, struct db *db, void *ctx)
{
    struct mixed *m = ctx;
    const struct posters *p = &m->others;
    enum err e = world_write_accounts(w, db);
    if (!e)
        e = world_write_follows(w, db, 0, w->accounts, mixed_follows, p->bench);
    if (!e)
        e = world_write_sessions(w, db, OTHERS_FIRST, OTHERS_FIRST + OTHERS, p->arena, p->tokens);
    if (!e)
        e = world_write_sessions(w, db, LARGE, LARGE + 1, p->arena, &m->large);
    return e;
}

int bench_mixed(struct bench *b)
{
    struct world w;
    struct arena arena;
    struct server server;
    char why[300];
    b->settings.celebrity_threshold = 1000000000;
    b->settings.celebrity_adaptive = false;
    if (!world_init(&w, b))
        return command_fail(b->in, "cannot make a folder in $TMPDIR or /tmp");
    arena_init(&arena);
    struct mixed m = {.others = {b, &arena, ARENA_ARRAY(&arena, struct str, OTHERS)}};
    bench_say(b, "writing %lld accounts and their follows", (long long)b->accounts);
    enum err e = world_write(&w, write_mixed_world, &m, why);
    if (!e)
        e = world_fill_timelines(&w, why);
    int code = EXIT_FAILED;
    if (e) {
        code = command_fail(b->in, "%s", why);
    } else if (!server_start(&server, &w)) {
        code = command_fail(
            b->in, "the server under test did not start within its time; see the log above");
    } else {
        struct requests others = post_requests(&arena, m.others.tokens, OTHERS);
        code = mixed_rounds(b, server.port, &others, m.large) ? EXIT_DONE : EXIT_FAILED;
        server_stop(&server, SIGTERM);
    }
    arena_done(&arena);
    world_done(&w);
    return code;
}
