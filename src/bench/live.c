/* Live delivery: how long after a write every connected person has its live event.
 *
 * A server process with one group and one author; the members, who are the followers, too, each
 * with a stream. The streams are one epoll loop in this process, so that client and server have
 * file descriptors of their own. A thread writes: one message, then one post, a round each. A time
 * counts from when the write was sent, or from its answer, until the event was read from a socket;
 * so it holds what this client needs for reading, on the same processors. */
#include <arpa/inet.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <unistd.h>

#include "base/check.h"
#include "base/id.h"
#include "bench/world.h"
#include "model/group.h"
#include "net/http_client.h"

enum {
    SPARE_ACCOUNTS = 1000,
    ROWS_A_WRITE = 10000,
    CONNECT_AHEAD = 100,
    ROUND_S = 30,
    READ_BYTES = 16384,
    EVENTS = 1024,
};

struct listening {
    struct world *world;
    struct bench *bench;
    struct arena arena;
    struct str *tokens;
    size_t count; /* of streams */
    int *sockets;
    int epoll;
    double *heard_s; /* by stream: when in this round; 0: not yet */
    struct server server;
};

static uint64_t group_id(const struct world *w)
{
    return id_at(w->created_ms + INT64_C(20) * 24 * 3600 * 1000, 2, 0);
}

/* ---- the world ---- */

struct part {
    const struct listening *l;
    int64_t from;
};

static enum err group_tx(struct tx *tx, void *arg)
{
    const struct part *p = arg;
    const struct world *w = p->l->world;
    uint64_t id = group_id(w);
    int64_t count = (int64_t)p->l->count;
    if (p->from == 0)
        TRY(tx_exec(tx,
                    "INSERT INTO groups (id, kind, name, created_by, member_count) "
                    "VALUES ($1, 0, 'birds', $2, $3)",
                    DB_ARGS(DB_I64(id), DB_I64(world_account(w, 0)), DB_I64(count)), NULL));
    for (int64_t i = p->from; i < count && i < p->from + ROWS_A_WRITE; i++)
        TRY(tx_exec(tx,
                    "INSERT INTO group_members (group_id, account_id, role, joined_seq, joined_id, "
                    "read_seq, read_count) VALUES ($1, $2, $3, 0, $4, 0, 0)",
                    DB_ARGS(DB_I64(id), DB_I64(world_account(w, i)),
                            DB_I64(i == 0 ? GROUP_OWNER : GROUP_MEMBER), DB_I64(id)),
                    NULL));
    return OK;
}

static size_t follows_first(void *ctx, int64_t follower, int64_t *out, size_t max)
{
    (void)ctx;
    out[0] = 0;
    return follower > 0 && max > 0;
}

static enum err write_world(struct world *w, struct db *db, void *ctx)
{
    struct listening *l = ctx;
    struct part p = {.l = l};
    TRY(world_write_accounts(w, db));
    TRY(world_write_sessions(w, db, 0, (int64_t)l->count, &l->arena, l->tokens));
    TRY(world_write_follows(w, db, 0, (int64_t)l->count, follows_first, NULL));
    TRY(world_set_counters(w, db, 0, 0));
    for (; p.from < (int64_t)l->count; p.from += ROWS_A_WRITE)
        TRY(db_write(db, group_tx, &p, NULL));
    return OK;
}

/* ---- streams ---- */

static bool open_stream(struct listening *l, size_t i)
{
    struct sockaddr_in to = {.sin_family = AF_INET,
                             .sin_port = htons(l->server.port),
                             .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    char request[512];
    int n = snprintf(request, sizeof request,
                     "GET /v1/stream HTTP/1.1\r\nHost: bench\r\nAuthorization: Bearer %.*s\r\n\r\n",
                     STR_ARG(l->tokens[i]));
    int fd = l->sockets[i] = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    struct epoll_event event = {.events = EPOLLIN, .data.u64 = i};
    return fd >= 0 && connect(fd, (struct sockaddr *)&to, sizeof to) == 0 &&
           write(fd, request, (size_t)n) == n &&
           epoll_ctl(l->epoll, EPOLL_CTL_ADD, fd, &event) == 0;
}

/* Reads what is there; how many streams had `what` for the first time in this round. A closed one
 * ends the measurement. */
static bool hear(struct listening *l, const char *what, int wait_ms, size_t *heard)
{
    struct epoll_event events[EVENTS];
    char text[READ_BYTES];
    int n = epoll_wait(l->epoll, events, EVENTS, wait_ms);
    for (int i = 0; i < n; i++) {
        size_t at = (size_t)events[i].data.u64;
        ssize_t got = read(l->sockets[at], text, sizeof text);
        if (got <= 0)
            return false;
        if (l->heard_s[at] > 0 || !memmem(text, (size_t)got, what, strlen(what)))
            continue;
        l->heard_s[at] = bench_now_s();
        ++*heard;
    }
    return true;
}

static bool hear_all(struct listening *l, const char *what, size_t *heard, size_t wanted)
{
    double until_s = bench_now_s() + ROUND_S;
    while (*heard < wanted && bench_now_s() < until_s)
        if (!hear(l, what, 100, heard))
            return false;
    return *heard >= wanted;
}

static bool open_streams(struct listening *l)
{
    size_t heard = 0;
    for (size_t i = 0; i < l->count; i++) {
        if (!open_stream(l, i))
            return false;
        if (i >= CONNECT_AHEAD && !hear_all(l, "event: hello", &heard, i - CONNECT_AHEAD))
            return false;
    }
    return hear_all(l, "event: hello", &heard, l->count);
}

/* ---- rounds ---- */

struct writing {
    struct http_client *client;
    const char *target, *headers, *body;
    double sent_s, answered_s;
    bool good;
};

static void *write_one(void *arg)
{
    struct writing *w = arg;
    struct buf answer;
    int status = 0;
    buf_init(&answer, 1 << 20);
    w->sent_s = bench_now_s();
    enum err e = http_client_call(w->client, "POST", w->target, w->headers, str_of(w->body),
                                  &status, &answer, 10000);
    w->answered_s = bench_now_s();
    w->good = !e && status == 201;
    buf_done(&answer);
    return NULL;
}

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

struct round {
    double p50_ms, p99_ms, max_ms, after_answer_ms;
};

static bool run_round(struct listening *l, struct writing *w, const char *what, struct round *out)
{
    pthread_t writer;
    size_t heard = 0, wanted = l->count;
    memset(l->heard_s, 0, l->count * sizeof *l->heard_s);
    if (pthread_create(&writer, NULL, write_one, w) != 0)
        return false;
    bool all = hear_all(l, what, &heard, wanted);
    pthread_join(writer, NULL);
    if (!all || !w->good)
        return false;
    qsort(l->heard_s, l->count, sizeof *l->heard_s, compare);
    double last_s = l->heard_s[l->count - 1];
    out->p50_ms = (l->heard_s[l->count / 2] - w->sent_s) * 1e3;
    out->p99_ms = (l->heard_s[l->count * 99 / 100] - w->sent_s) * 1e3;
    out->max_ms = (last_s - w->sent_s) * 1e3;
    out->after_answer_ms = last_s > w->answered_s ? (last_s - w->answered_s) * 1e3 : 0;
    return true;
}

static void report(struct listening *l, const char *kind, const char *name, const double *values,
                   size_t n, const char *unit)
{
    double sorted[100];
    char text[48];
    memcpy(sorted, values, n * sizeof *sorted);
    snprintf(text, sizeof text, "%s_%s", kind, name);
    bench_number(l->bench, text, bench_median(sorted, n), unit);
}

static bool measure(struct listening *l, const char *kind, struct writing *w, const char *what)
{
    double p50[100], p99[100], max[100], after[100], cpu_s = process_cpu_s(l->server.pid);
    char name[48];
    size_t rounds = (size_t)l->bench->rounds;
    struct round r;
    if (!run_round(l, w, what, &r)) /* warms up */
        return false;
    for (size_t i = 0; i < rounds; i++) {
        struct timespec pause = {.tv_nsec = 100 * 1000 * 1000};
        nanosleep(&pause, NULL);
        if (!run_round(l, w, what, &r))
            return false;
        p50[i] = r.p50_ms, p99[i] = r.p99_ms, max[i] = r.max_ms, after[i] = r.after_answer_ms;
    }
    report(l, kind, "p50_ms", p50, rounds, "ms from the write until half of them have it");
    report(l, kind, "p99_ms", p99, rounds, "ms until 99% have it");
    report(l, kind, "last_ms", max, rounds, "ms until the last has it");
    report(l, kind, "after_answer_ms", after, rounds, "ms from the answer until the last has it");
    qsort(max, rounds, sizeof *max, compare);
    snprintf(name, sizeof name, "%s_worst_ms", kind);
    bench_number(l->bench, name, max[rounds - 1], "ms until the last has it, the worst round");
    snprintf(name, sizeof name, "%s_cpu_us", kind);
    cpu_s = process_cpu_s(l->server.pid) - cpu_s;
    bench_number(l->bench, name, cpu_s * 1e6 / (double)((rounds + 1) * l->count),
                 "µs of the server's processor time a live event");
    return true;
}

static bool measure_both(struct listening *l)
{
    char headers[256], target[96];
    snprintf(headers, sizeof headers,
             "Authorization: Bearer %.*s\r\nContent-Type: application/json\r\n",
             STR_ARG(l->tokens[0]));
    snprintf(target, sizeof target, "/v1/groups/%llu/messages",
             (unsigned long long)group_id(l->world));
    struct writing message = {.client = http_client_tcp("127.0.0.1", l->server.port),
                              .target = target,
                              .headers = headers,
                              .body = "{\"body\":\"To all of you.\"}"};
    struct writing post = message;
    post.target = "/v1/posts";
    post.body = "{\"caption\":\"To all of you.\"}";
    bool good = message.client && measure(l, "group", &message, "event: group") &&
                measure(l, "feed", &post, "event: feed");
    if (message.client)
        http_client_free(message.client);
    return good;
}

static int measure_server(struct listening *l)
{
    l->epoll = epoll_create1(EPOLL_CLOEXEC);
    if (!server_start(&l->server, l->world))
        return command_fail(
            l->bench->in, "the server under test did not start within its time; see the log above");
    double start_s = bench_now_s();
    bool good = open_streams(l);
    if (good) {
        bench_number(l->bench, "streams", (double)l->count, "people connected");
        bench_number(l->bench, "connect_s", bench_now_s() - start_s, "s until all were greeted");
        bench_number(l->bench, "stream_bytes",
                     (double)process_rss(l->server.pid) / (double)l->count,
                     "bytes of the server's memory a stream, the world included");
        good = measure_both(l);
    }
    for (size_t i = 0; i < l->count; i++)
        if (l->sockets[i] > 0)
            close(l->sockets[i]);
    server_stop(&l->server, SIGTERM);
    close(l->epoll);
    return good ? EXIT_DONE
                : command_fail(l->bench->in, "some streams did not get what they should");
}

int bench_live(struct bench *b)
{
    struct world w;
    char why[300];
    struct rlimit files = {0};
    struct listening l = {.world = &w, .bench = b, .count = (size_t)b->accounts};
    (void)getrlimit(RLIMIT_NOFILE, &files);
    files.rlim_cur = files.rlim_max;
    (void)setrlimit(RLIMIT_NOFILE, &files);
    (void)setenv("FANTAIL_STREAMS_MAX", "1000000", 1);
    (void)setenv("FANTAIL_CONNECTIONS_MAX", "1000000", 1);
    if (files.rlim_cur < (rlim_t)b->accounts + 100)
        return command_fail(b->in, "%lld streams need more file descriptors than the limit of %lld",
                            (long long)b->accounts, (long long)files.rlim_cur);
    b->accounts += SPARE_ACCOUNTS;
    b->settings.celebrity_threshold = 10 * b->accounts;
    if (!world_init(&w, b))
        return command_fail(b->in, "cannot make a folder in $TMPDIR or /tmp");
    w.program = b->peer;
    arena_init(&l.arena);
    l.tokens = ARENA_ARRAY(&l.arena, struct str, l.count);
    l.sockets = ARENA_ARRAY(&l.arena, int, l.count);
    l.heard_s = ARENA_ARRAY(&l.arena, double, l.count);
    enum err e = world_write(&w, write_world, &l, why);
    if (!e)
        e = world_fill_timelines(&w, why);
    int code = e ? command_fail(b->in, "%s", why) : measure_server(&l);
    arena_done(&l.arena);
    world_done(&w);
    return code;
}
