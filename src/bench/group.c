/* Groups: how many messages get their number and are durable in a second, in one group and in many;
 * how long one message takes into all inboxes of a large group, and whether the next one of that
 * group waits for it; and what an inbox costs that holds many groups, beside the same people's feed
 * at the same offered load.
 *
 * The first, second and last are measured over HTTP against a server process. The way into all
 * inboxes is measured in this process, as fan-outs are (bench_fanout.c). "Quiet" is a message sent
 * when nothing is under way; "busy" is the next one, sent as soon as the first is answered, while
 * that is on its way into all inboxes. */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/check.h"
#include "base/id.h"
#include "bench/events.h"
#include "bench/requests.h"
#include "bench/world.h"
#include "model/group.h"
#include "net/http_client.h"

enum {
    SENDERS = 1000, /* accounts 0 … 999 have sessions */
    HOT_MEMBERS = 64,
    MANY_GROUPS = 10000,
    MANY_MEMBERS = 5,
    READERS = 64, /* accounts 1000 … are in … */
    READER_FIRST = 1000,
    READ_GROUPS = 1000,  /* … all of these, … */
    AUTHOR_FIRST = 2000, /* … and follow all of these */
    AUTHORS = 60,
    POSTS_EACH = 4,
    LARGE = 0, /* numbers of groups */
    HOT = 1,
    MANY_FIRST = 10,
    READ_FIRST = MANY_FIRST + MANY_GROUPS,
    ELSEWHERE = 1000000,
    INBOX_GROUPS = 20,
    ROUNDS_MAX = 32,
    PAIRS = 100, /* quiet and busy messages a round */
    ROWS_A_WRITE = 20000,
    DRAIN_POLL_US = 200,
};

struct groups {
    struct world *world;
    struct bench *bench;
    struct arena arena;
    struct str tokens[SENDERS];
    struct str readers[READERS];
};

static uint64_t group_id(const struct world *w, int64_t number)
{
    return id_at(w->created_ms + INT64_C(20) * 24 * 3600 * 1000 + number, 2, 0);
}

/* ---- the world ---- */

struct rows {
    const struct world *world;
    int64_t group, first, count; /* members first … first + count − 1 (account numbers) */
    int64_t from;                /* of them, this transaction begins here */
};

static enum err group_tx(struct tx *tx, void *arg)
{
    const struct rows *r = arg;
    uint64_t id = group_id(r->world, r->group);
    enum err e = OK;
    if (r->from == 0)
        e = tx_exec(
            tx,
            "INSERT INTO groups (id, kind, name, created_by, member_count) "
            "VALUES ($1, 0, 'birds', $2, $3)",
            DB_ARGS(DB_I64(id), DB_I64(world_account(r->world, r->first)), DB_I64(r->count)), NULL);
    for (int64_t i = r->from; !e && i < r->count && i < r->from + ROWS_A_WRITE; i++)
        e = tx_exec(tx,
                    "INSERT INTO group_members (group_id, account_id, role, joined_seq, joined_id, "
                    "read_seq, read_count) VALUES ($1, $2, $3, 0, $4, 0, 0)",
                    DB_ARGS(DB_I64(id), DB_I64(world_account(r->world, r->first + i)),
                            DB_I64(i == 0 ? GROUP_OWNER : GROUP_MEMBER), DB_I64(id)),
                    NULL);
    return e;
}

static enum err write_group(struct groups *g, struct db *db, int64_t number, int64_t first,
                            int64_t count)
{
    struct rows r = {.world = g->world, .group = number, .first = first, .count = count};
    enum err e = OK;
    for (; !e && r.from < count; r.from += ROWS_A_WRITE)
        e = db_write(db, group_tx, &r, NULL);
    return e;
}

struct small_rows {
    struct groups *groups;
    int64_t from, to;
};

/* A message in a group that readers see, or their pages would show nothing. */
static enum err first_message(struct tx *tx, const struct world *w, int64_t number)
{
    uint64_t group = group_id(w, number), author = world_account(w, READER_FIRST);
    TRY(tx_exec(tx,
                "UPDATE groups SET seq = 1, messages = 1, last_seq = 1, last_id = $2 WHERE id = $1",
                DB_ARGS(DB_I64(group), DB_I64(group + 1)), NULL));
    return tx_exec(tx,
                   "INSERT INTO group_log (group_id, seq, kind, author_id, body, messages, "
                   "created_at) VALUES ($1, 1, 0, $2, 'Shall we meet at the lake on Sunday? I "
                   "bring the cake, and somebody brings a blanket.', 1, $3)",
                   DB_ARGS(DB_I64(group), DB_I64(author), DB_I64(id_time_ms(group))), NULL);
}

/* Many small groups in one transaction: group n is of sender n and the accounts behind it. */
static enum err small_tx(struct tx *tx, void *arg)
{
    struct small_rows *s = arg;
    enum err e = OK;
    for (int64_t n = s->from; !e && n < s->to; n++) {
        bool read = n >= READ_FIRST;
        struct rows r = {.world = s->groups->world,
                         .group = n,
                         .first = read ? READER_FIRST : (n - MANY_FIRST) % (SENDERS - MANY_MEMBERS),
                         .count = read ? READERS : MANY_MEMBERS};
        e = group_tx(tx, &r);
        if (!e && read)
            e = first_message(tx, s->groups->world, n);
    }
    return e;
}

static size_t all_authors(void *ctx, int64_t follower, int64_t *out, size_t max)
{
    (void)ctx;
    (void)follower;
    size_t n = 0;
    while (n < AUTHORS && n < max) {
        out[n] = AUTHOR_FIRST + (int64_t)n;
        n++;
    }
    return n;
}

static enum err write_feeds(struct world *w, struct db *db)
{
    TRY(world_write_follows(w, db, READER_FIRST, READER_FIRST + READERS, all_authors, NULL));
    return world_write_posts(w, db, AUTHOR_FIRST, AUTHOR_FIRST + AUTHORS, POSTS_EACH,
                             DELIVERY_PUSH);
}

static enum err write_world(struct world *w, struct db *db, void *ctx)
{
    struct groups *g = ctx;
    enum err e = world_write_accounts(w, db);
    if (!e)
        e = world_write_sessions(w, db, 0, SENDERS, &g->arena, g->tokens);
    if (!e)
        e = world_write_sessions(w, db, READER_FIRST, READER_FIRST + READERS, &g->arena,
                                 g->readers);
    if (!e)
        e = write_feeds(w, db);
    if (!e)
        e = write_group(g, db, LARGE, 0, g->bench->followers);
    if (!e)
        e = write_group(g, db, HOT, 0, HOT_MEMBERS);
    struct small_rows s = {.groups = g};
    for (s.from = MANY_FIRST; !e && s.from < READ_FIRST + READ_GROUPS; s.from = s.to) {
        s.to = s.from + 200 < READ_FIRST + READ_GROUPS ? s.from + 200 : READ_FIRST + READ_GROUPS;
        e = db_write(db, small_tx, &s, NULL);
    }
    return e;
}

/* Gives every member of the large group an inbox of INBOX_GROUPS groups, the large one at the
 * bottom, as reads would do one by one. Truth does not have the other groups; an inbox does not
 * need it. */
static enum err fill_inboxes(struct groups *g, struct views *views)
{
    struct inbox_entry entries[INBOX_GROUPS];
    enum err e = OK;
    for (int64_t i = 0; i < INBOX_GROUPS; i++) {
        uint64_t id = group_id(g->world, i == INBOX_GROUPS - 1 ? LARGE : ELSEWHERE - i);
        entries[i] = (struct inbox_entry){id, id};
    }
    for (int64_t i = 0; !e && i < g->bench->followers; i++) {
        uint64_t account = world_account(g->world, i);
        e = inboxes_begin(views->inboxes, account);
        if (e == ERR_CONFLICT)
            e = inboxes_anew(views->inboxes, account);
        if (!e)
            e = inboxes_end(views->inboxes, account, entries, INBOX_GROUPS);
    }
    return e;
}

/* ---- a message into all inboxes ---- */

struct timed_message {
    struct db_job job;
    uint64_t group, author;
    _Atomic bool done;
};

static enum err message_run(struct tx *tx, struct db_job *job)
{
    struct timed_message *m = CONTAINER_OF(job, struct timed_message, job);
    struct arena arena;
    struct group_entry entry;
    bool repeated;
    arena_init(&arena);
    enum err e =
        message_send(tx,
                     &(struct message_new){
                         .group = m->group, .author = m->author, .body = STR("To all of you.")},
                     &arena, &entry, &repeated);
    arena_done(&arena);
    return e;
}

static void message_done(struct db_job *job, enum err result, const char *detail)
{
    struct timed_message *m = CONTAINER_OF(job, struct timed_message, job);
    (void)detail;
    CHECK(result == OK);
    atomic_store(&m->done, true);
}

/* From its submission: the writer's thread may come to say "committed" when it is all over. */
static double one_message(struct groups *g, struct api *api, double *members)
{
    struct timed_message m = {.job = {.run = message_run, .done = message_done},
                              .group = group_id(g->world, LARGE),
                              .author = world_account(g->world, 0)};
    events_wait_delivered(api->engine);
    uint64_t before = events_deliveries(api->engine);
    double start_s = bench_now_s();
    CHECK(db_submit(api->db, &m.job) == OK);
    while (!atomic_load(&m.done))
        usleep(50);
    events_wait_delivered(api->engine);
    double end_s = bench_now_s();
    *members = (double)(events_deliveries(api->engine) - before);
    return (end_s - start_s) * 1e3;
}

/* Every inbox has the message at its top. */
static bool all_have_it(struct groups *g, struct api *api)
{
    uint64_t group = group_id(g->world, LARGE);
    for (int64_t i = 0; i < g->bench->followers; i++) {
        struct inbox_entry top;
        size_t n = 0;
        enum err e =
            inboxes_read(api->views->inboxes, world_account(g->world, i), UINT64_MAX, &top, 1, &n);
        if (e || n != 1 || top.group != group || top.activity == group)
            return false;
    }
    return true;
}

static enum err measure_inboxes(struct groups *g, char why[300])
{
    struct bench *b = g->bench;
    struct runtime *runtime;
    double times[ROUNDS_MAX], members = 0;
    size_t n = (size_t)(b->rounds * 3 < ROUNDS_MAX ? b->rounds * 3 : ROUNDS_MAX);
    TRY(runtime_open(&g->world->settings, NULL, NULL, &runtime, why));
    struct api *api = runtime_api(runtime);
    enum err e = world_settle(g->world, runtime);
    for (size_t i = 0; !e && i < n; i++) {
        e = fill_inboxes(g, api->views);
        if (!e)
            times[i] = one_message(g, api, &members);
    }
    if (!e && !all_have_it(g, api)) {
        bench_say(b, "some members lack the message");
        e = ERR_INTERNAL;
    }
    if (!e) {
        bench_number(b, "inbox_members", members, "inboxes that one message reached");
        bench_number(b, "inbox_all_ms", bench_median(times, n),
                     "ms until the last has it, the durable commit included");
    }
    snprintf(why, 300, "%s", err_title(e));
    runtime_close(runtime, 0);
    return e;
}

/* ---- over HTTP ---- */

/* Message requests of these senders into these groups, in turn. */
static struct requests message_requests(struct groups *g, int64_t first_group, size_t groups,
                                        size_t senders)
{
    static const char body[] = "{\"body\":\"A message of the length that people write when they "
                               "agree on when to meet and who brings the cake.\"}";
    size_t n = groups > senders ? groups : senders;
    struct requests r = {ARENA_ARRAY(&g->arena, struct str, n), n};
    for (size_t i = 0; i < n; i++) {
        size_t sender = groups > 1 ? i % (SENDERS - MANY_MEMBERS) : i % senders;
        r.items[i] = arena_printf(
            &g->arena,
            "POST /v1/groups/%llu/messages HTTP/1.1\r\nHost: localhost\r\n"
            "Authorization: Bearer %.*s\r\nContent-Type: application/json\r\n"
            "Content-Length: %zu\r\n\r\n%s",
            (unsigned long long)group_id(g->world, first_group + (int64_t)(i % groups)),
            STR_ARG(g->tokens[sender]), sizeof body - 1, body);
    }
    return r;
}

static bool measure_rate(struct groups *g, const struct server *server, struct requests *r,
                         const char *name, const char *unit)
{
    struct bench *b = g->bench;
    double rates[ROUNDS_MAX], costs[ROUNDS_MAX];
    struct load_result result;
    size_t n = (size_t)(b->rounds < ROUNDS_MAX ? b->rounds : ROUNDS_MAX);
    for (size_t i = 0; i < n; i++) {
        double cpu_s = process_cpu_s(server->pid), start_s = bench_now_s();
        if (!requests_run(b, server->port, r, 0, b->seconds * 1000, &result))
            return false;
        cpu_s = process_cpu_s(server->pid) - cpu_s;
        rates[i] = result.per_second;
        costs[i] = cpu_s / (result.per_second * (bench_now_s() - start_s)) * 1e6;
    }
    char other[48];
    snprintf(other, sizeof other, "%s_per_s", name);
    bench_number(b, other, bench_median(rates, n), unit);
    snprintf(other, sizeof other, "%s_p99_ms", name);
    bench_number(b, other, load_quantile_ms(&result, 0.99), "ms, p99 at that rate");
    snprintf(other, sizeof other, "%s_cpu_us", name);
    bench_number(b, other, bench_median(costs, n), "µs of the server's processor time a message");
    return true;
}

static bool measure_inbox_page(struct groups *g, uint16_t port)
{
    struct bench *b = g->bench;
    struct load_result r;
    struct requests pages = requests_get(&g->arena, "/v1/inbox", g->readers, READERS),
                    feeds = requests_get(&g->arena, "/v1/feed", g->readers, READERS);
    double rates[ROUNDS_MAX], p99[ROUNDS_MAX], p50[ROUNDS_MAX], feed[ROUNDS_MAX], ratio[ROUNDS_MAX];
    size_t n = (size_t)(b->rounds < ROUNDS_MAX ? b->rounds : ROUNDS_MAX);
    if (!requests_prime(port, &pages) || !requests_prime(port, &feeds))
        return false;
    for (size_t i = 0; i < n; i++) {
        if (!requests_run(b, port, &pages, 0, b->seconds * 1000, &r))
            return false;
        rates[i] = r.per_second;
    }
    double peak = bench_median(rates, n);
    for (size_t i = 0; i < n; i++) {
        if (!requests_run(b, port, &pages, peak * 0.3, b->seconds * 1000, &r))
            return false;
        p50[i] = load_quantile_ms(&r, 0.5);
        p99[i] = load_quantile_ms(&r, 0.99);
        if (!requests_run(b, port, &feeds, peak * 0.3, b->seconds * 1000, &r))
            return false;
        feed[i] = load_quantile_ms(&r, 0.99);
        ratio[i] = p99[i] / feed[i];
    }
    bench_number(b, "inbox_per_s", peak, "inbox pages/s of people with 1,000 groups, at the peak");
    bench_number(b, "inbox_offered_per_s", peak * 0.3, "pages/s offered for the latencies below");
    bench_number(b, "inbox_p50_ms", bench_median(p50, n), "ms");
    bench_number(b, "inbox_p99_ms", bench_median(p99, n), "ms");
    bench_number(b, "inbox_feed_p99_ms", bench_median(feed, n),
                 "ms, p99 of GET /v1/feed by the same people at the same rate");
    bench_number(b, "inbox_feed_ratio", bench_median(ratio, n), "times the feed's p99");
    return true;
}

/* ---- quiet and busy ---- */

struct sender {
    struct http_client *client;
    struct buf body;
    char headers[256], target[96];
};

static bool sender_init(struct sender *c, struct groups *g, uint16_t port)
{
    c->client = http_client_tcp("127.0.0.1", port);
    buf_init(&c->body, 1 << 20);
    snprintf(c->headers, sizeof c->headers,
             "Authorization: Bearer %.*s\r\nContent-Type: application/json\r\n",
             STR_ARG(g->tokens[0]));
    snprintf(c->target, sizeof c->target, "/v1/groups/%llu/messages",
             (unsigned long long)group_id(g->world, LARGE));
    return c->client != NULL;
}

static void sender_done(struct sender *c)
{
    if (c->client)
        http_client_free(c->client);
    buf_done(&c->body);
}

/* Sends one and records how long its answer took. */
static bool send_one(struct sender *c, struct hist *took)
{
    int status = 0;
    double start_s = bench_now_s();
    buf_clear(&c->body);
    enum err e = http_client_call(c->client, "POST", c->target, c->headers,
                                  STR("{\"body\":\"To all of you.\"}"), &status, &c->body, 10000);
    hist_record(took, (uint64_t)((bench_now_s() - start_s) * 1e6) + 1);
    return !e && status == 201;
}

/* Nothing is under way any more. */
static bool await_quiet(struct sender *c)
{
    double until_s = bench_now_s() + 30;
    while (bench_now_s() < until_s) {
        int status = 0;
        buf_clear(&c->body);
        if (http_client_call(c->client, "GET", "/metrics", NULL, STR(""), &status, &c->body, 5000))
            return false;
        struct str rest = buf_view(&c->body), line;
        while (str_split(&rest, '\n', &line)) {
            if (str_eq(line, STR("fantail_events_undone 0")))
                return true;
        }
        usleep(DRAIN_POLL_US);
    }
    return false;
}

static bool measure_pairs(struct groups *g, uint16_t port)
{
    struct bench *b = g->bench;
    double quiet[ROUNDS_MAX], busy[ROUNDS_MAX];
    size_t n = (size_t)(b->rounds < ROUNDS_MAX ? b->rounds : ROUNDS_MAX);
    struct hist *took = calloc(2, sizeof *took);
    struct sender c;
    CHECK(took);
    bool good = sender_init(&c, g, port);
    for (size_t i = 0; good && i < n; i++) {
        hist_clear(&took[0]);
        hist_clear(&took[1]);
        for (int k = 0; good && k < PAIRS; k++)
            good = await_quiet(&c) && send_one(&c, &took[0]) && send_one(&c, &took[1]);
        quiet[i] = (double)hist_quantile(&took[0], 0.99) / 1e3;
        busy[i] = (double)hist_quantile(&took[1], 0.99) / 1e3;
    }
    if (good) {
        double q = bench_median(quiet, n), p = bench_median(busy, n);
        bench_number(b, "large_quiet_p99_ms", q, "ms, p99 of a message, nothing under way");
        bench_number(b, "large_busy_p99_ms", p, "ms, p99 of the next, while that is delivered");
        bench_number(b, "large_busy_ratio", p / q, "times quiet");
    }
    sender_done(&c);
    free(took);
    return good;
}

static int measure_http(struct groups *g)
{
    struct server server;
    struct requests hot = message_requests(g, HOT, 1, HOT_MEMBERS),
                    many = message_requests(g, MANY_FIRST, MANY_GROUPS, SENDERS);
    if (!server_start(&server, g->world))
        return command_fail(
            g->bench->in, "the server under test did not start within its time; see the log above");
    bool good =
        measure_pairs(g, server.port) && measure_inbox_page(g, server.port) &&
        measure_rate(g, &server, &hot, "hot", "durable messages/s of one group at the peak") &&
        measure_rate(g, &server, &many, "many", "durable messages/s of 10,000 groups at the peak");
    server_stop(&server, SIGTERM);
    return good ? EXIT_DONE : EXIT_FAILED;
}

int bench_group(struct bench *b)
{
    struct world w;
    char why[300];
    struct groups *g = calloc(1, sizeof *g);
    CHECK(g);
    *g = (struct groups){.world = &w, .bench = b};
    b->settings.group_rate = 0;
    if (b->followers > b->accounts || b->accounts < AUTHOR_FIRST + AUTHORS) {
        free(g);
        return command_usage(b->in,
                             "group needs more accounts (--accounts) than members (--followers)");
    }
    if (!world_init(&w, b)) {
        free(g);
        return command_fail(b->in, "cannot make a folder in $TMPDIR or /tmp");
    }
    arena_init(&g->arena);
    bench_say(b, "writing %lld accounts, %d groups, one of them with %lld members",
              (long long)b->accounts, MANY_GROUPS + READ_GROUPS + 2, (long long)b->followers);
    enum err e = world_write(&w, write_world, g, why);
    if (!e)
        e = measure_inboxes(g, why);
    int code = e ? command_fail(b->in, "%s", why) : measure_http(g);
    arena_done(&g->arena);
    world_done(&w);
    free(g);
    return code;
}
