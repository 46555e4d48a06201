/* Bulk writing of worlds, and servers to open them. Rows go in with plain INSERTs in transactions
 * of many thousand rows; the views are then brought up from truth by the code that every start
 * uses. */
#include "bench/world.h"

#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/check.h"
#include "base/id.h"
#include "model/post.h"
#include "net/http_client.h"

/* Everyone was here an hour ago: active, and not so recently that a walk meets them twice. */
enum { ROWS_PER_WRITE = 20000, IDS_PER_MS = 1000, SEEN_AGO_MS = 3600 * 1000 };

bool world_init(struct world *w, struct bench *b)
{
    *w = (struct world){.settings = b->settings, .accounts = b->accounts};
    const char *base = getenv("TMPDIR");
    snprintf(w->folder, sizeof w->folder, "%s/fantail-bench-XXXXXX", base ? base : "/tmp");
    if (!mkdtemp(w->folder))
        return false;
    w->settings.data = w->folder;
    w->settings.log_level = "warn";
    w->settings.audit_every_ms = INT64_C(24) * 3600 * 1000; /* views hold more than truth here */
    w->created_ms = clock_wall_ms(clock_system()) - INT64_C(40) * 24 * 3600 * 1000;
    return true;
}

void world_done(struct world *w)
{
    DIR *dir = opendir(w->folder);
    if (!dir)
        return;
    struct dirent *entry;
    char path[512];
    while ((entry = readdir(dir))) {
        snprintf(path, sizeof path, "%s/%s", w->folder, entry->d_name);
        (void)unlink(path);
    }
    closedir(dir);
    (void)rmdir(w->folder);
}

uint64_t world_account(const struct world *w, int64_t index)
{
    return id_at(w->created_ms + index / IDS_PER_MS, 0, (uint32_t)(index % IDS_PER_MS));
}

/* A write in slices of rows [from, to): `row` is called for each. */
struct bulk {
    struct world *world;
    int64_t from, to;
    enum err (*row)(struct tx *tx, struct bulk *b, int64_t index);
    void *ctx;
    world_follows follows;
    int64_t count;
    enum delivery delivery;
    int64_t now_ms;
};

static enum err bulk_tx(struct tx *tx, void *arg)
{
    struct bulk *b = arg;
    enum err e = OK;
    for (int64_t i = b->from; !e && i < b->to; i++)
        e = b->row(tx, b, i);
    return e;
}

static enum err bulk_write(struct db *db, struct bulk *b, int64_t rows_each)
{
    int64_t end = b->to, step = ROWS_PER_WRITE / (rows_each > 0 ? rows_each : 1);
    if (step < 1)
        step = 1;
    enum err e = OK;
    char detail[TX_DETAIL_MAX];
    for (int64_t at = b->from; !e && at < end; at += step) {
        b->from = at;
        b->to = at + step < end ? at + step : end;
        e = db_write(db, bulk_tx, b, detail);
        if (e)
            fprintf(stderr, "fantail bench: %s: %s\n", err_title(e), detail);
    }
    return e;
}

static enum err account_row(struct tx *tx, struct bulk *b, int64_t i)
{
    char name[32], display[48];
    int n = snprintf(name, sizeof name, "person%07lld", (long long)i);
    int d = snprintf(display, sizeof display, "Person Number %lld", (long long)i);
    return tx_exec(
        tx, "INSERT INTO accounts (id, username, display_name, seen_at) VALUES ($1, $2, $3, $4)",
        DB_ARGS(DB_I64(world_account(b->world, i)), DB_TEXT(((struct str){name, (size_t)n})),
                DB_TEXT(((struct str){display, (size_t)d})), DB_I64(b->now_ms)),
        NULL);
}

enum err world_write_accounts(struct world *w, struct db *db)
{
    struct bulk b = {.world = w,
                     .to = w->accounts,
                     .row = account_row,
                     .now_ms = clock_wall_ms(clock_system()) - SEEN_AGO_MS};
    return bulk_write(db, &b, 1);
}

static int compare_indexes(const void *a, const void *b)
{
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x > y) - (x < y);
}

static enum err follow_rows(struct tx *tx, struct bulk *b, int64_t i)
{
    int64_t followed[2048];
    size_t n = b->follows(b->ctx, i, followed, COUNT_OF(followed));
    qsort(followed, n, sizeof followed[0], compare_indexes);
    enum err e = OK;
    for (size_t k = 0; !e && k < n; k++) {
        if (followed[k] == i || (k > 0 && followed[k] == followed[k - 1]))
            continue;
        e = tx_exec(
            tx,
            "INSERT INTO follows (follower_id, followee_id, created_at) VALUES ($1, $2, $3) "
            "ON CONFLICT DO NOTHING",
            DB_ARGS(DB_I64(world_account(b->world, i)),
                    DB_I64(world_account(b->world, followed[k])), DB_I64(b->now_ms)),
            NULL);
    }
    return e;
}

enum err world_write_follows(struct world *w, struct db *db, int64_t from, int64_t to,
                             world_follows follows, void *ctx)
{
    struct bulk b = {.world = w,
                     .from = from,
                     .to = to,
                     .row = follow_rows,
                     .follows = follows,
                     .ctx = ctx,
                     .now_ms = clock_wall_ms(clock_system())};
    return bulk_write(db, &b, 20);
}

#define CAPTION                                                                                    \
    "A walk along the river this morning: herons, two kingfishers, and nobody else for an hour. "  \
    "Worth the cold."

static enum err post_row(struct tx *tx, struct bulk *b, int64_t i)
{
    struct world *w = b->world;
    const int64_t *authors = b->ctx; /* from, to */
    int64_t author = authors[0] + i % (authors[1] - authors[0]);
    uint64_t number = w->next_post + (uint64_t)i;
    uint64_t id =
        id_at(w->created_ms + INT64_C(10) * 24 * 3600 * 1000 + (int64_t)(number / 100) * 10, 1,
              (uint32_t)(number % 100));
    return tx_exec(tx,
                   "INSERT INTO posts (id, author_id, caption, delivery) VALUES ($1, $2, $3, $4)",
                   DB_ARGS(DB_I64(id), DB_I64(world_account(w, author)), DB_TEXT(STR(CAPTION)),
                           DB_I64(b->delivery)),
                   NULL);
}

enum err world_write_posts(struct world *w, struct db *db, int64_t from, int64_t to, int64_t count,
                           enum delivery delivery)
{
    int64_t authors[2] = {from, to};
    struct bulk b = {.world = w,
                     .to = (to - from) * count,
                     .row = post_row,
                     .ctx = authors,
                     .delivery = delivery};
    enum err e = bulk_write(db, &b, 1);
    w->next_post += (uint64_t)((to - from) * count);
    return e;
}

struct session_rows {
    struct arena *arena;
    struct str *tokens;
    int64_t first;
};

static enum err session_row(struct tx *tx, struct bulk *b, int64_t i)
{
    struct session_rows *s = b->ctx;
    uint8_t hash[TOKEN_HASH_BYTES];
    uint64_t id;
    token_make("fts_", s->arena, &s->tokens[i - s->first], hash);
    return session_create(tx, world_account(b->world, i), hash, STR("bench"), b->now_ms,
                          (struct session_terms){b->world->settings.session_life_ms,
                                                 b->world->settings.session_age_ms},
                          &id);
}

enum err world_write_sessions(struct world *w, struct db *db, int64_t from, int64_t to,
                              struct arena *arena, struct str *tokens)
{
    struct session_rows s = {arena, tokens, from};
    struct bulk b = {.world = w,
                     .from = from,
                     .to = to,
                     .row = session_row,
                     .ctx = &s,
                     .now_ms = clock_wall_ms(clock_system())};
    return bulk_write(db, &b, 1);
}

static enum err counters_tx(struct tx *tx, void *arg)
{
    const uint64_t *celebrities = arg;
    enum err e =
        tx_exec(tx,
                "UPDATE accounts SET "
                "follower_count = (SELECT COUNT(*) FROM follows WHERE followee_id = accounts.id), "
                "following_count = (SELECT COUNT(*) FROM follows WHERE follower_id = accounts.id), "
                "post_count = (SELECT COUNT(*) FROM posts WHERE author_id = accounts.id)",
                DB_NO_ARGS, NULL);
    if (!e)
        e = tx_exec(tx, "UPDATE accounts SET celebrity = 1 WHERE id >= $1 AND id < $2",
                    DB_ARGS(DB_I64(celebrities[0]), DB_I64(celebrities[1])), NULL);
    return e;
}

enum err world_set_counters(struct world *w, struct db *db, int64_t celebrity_from,
                            int64_t celebrity_to)
{
    uint64_t celebrities[2] = {world_account(w, celebrity_from), world_account(w, celebrity_to)};
    return db_write(db, counters_tx, celebrities, NULL);
}

static void forget_snapshot(const struct world *w)
{
    char path[256];
    snprintf(path, sizeof path, "%s/views.snapshot", w->folder);
    (void)unlink(path);
}

enum err world_write(struct world *w, world_writer write, void *ctx, char why[300])
{
    struct runtime *runtime;
    TRY(runtime_open(&w->settings, NULL, NULL, &runtime, why));
    enum err e = write(w, runtime_api(runtime)->db, ctx);
    runtime_close(runtime, 0);
    forget_snapshot(w);
    snprintf(why, 300, "%s", err_title(e));
    return e;
}

static enum err settle_tx(struct tx *tx, void *arg)
{
    const uint64_t *author = arg;
    struct arena arena;
    struct post_card card;
    arena_init(&arena);
    enum err e = post_create(tx, &(struct post_new){.author = *author, .caption = STR("First.")},
                             &arena, &card);
    if (!e)
        tx->events.items[tx->events.count - 1].card = NULL; /* it dies with this arena */
    arena_done(&arena);
    return e;
}

enum err world_settle(const struct world *w, struct runtime *runtime)
{
    uint64_t author = world_account(w, w->accounts - 1);
    struct api *api = runtime_api(runtime);
    if (!runtime_start_workers(runtime))
        return ERR_UNAVAILABLE;
    enum err e = db_write(api->db, settle_tx, &author, NULL);
    while (!e && !engine_drained(api->engine))
        usleep(1000);
    return e;
}

enum err world_fill_timelines(struct world *w, char why[300])
{
    struct runtime *runtime;
    enum err e = runtime_open(&w->settings, NULL, NULL, &runtime, why);
    if (e)
        return e;
    struct views *views = runtime_api(runtime)->views;
    for (int64_t i = 0; !e && i < w->accounts; i++) {
        uint64_t account = world_account(w, i);
        e = timelines_begin(views->timelines, account);
        if (!e)
            e = timelines_end(views->timelines, account, NULL, 0, 0);
        if (e == ERR_CONFLICT)
            e = OK;
    }
    if (!e)
        e = world_settle(w, runtime);
    snprintf(why, 300, "%s", err_title(e));
    runtime_close(runtime, 0);
    return e;
}

/* ---- servers ---- */

static bool wait_ready(struct server *s, double started_s)
{
    while (bench_now_s() - started_s < 120) {
        int status;
        if (waitpid(s->pid, &status, WNOHANG) == s->pid)
            return false;
        struct http_client *client = http_client_tcp("127.0.0.1", s->port);
        if (client) {
            struct buf body;
            int code = 0;
            buf_init(&body, 65536);
            enum err e =
                http_client_call(client, "GET", "/readyz", NULL, STR(""), &code, &body, 2000);
            buf_done(&body);
            http_client_free(client);
            if (!e && code == 200) {
                s->ready_s = bench_now_s() - started_s;
                return true;
            }
        }
        usleep(5000);
    }
    return false;
}

bool server_start(struct server *s, const struct world *w)
{
    const struct settings *set = &w->settings;
    char listen[64], threshold[32], cache[32], pages[32];
    /* Below the ports that the kernel gives to clients: a stream may have any of those. */
    s->port = (uint16_t)(20000 + (unsigned)getpid() % 12000);
    snprintf(listen, sizeof listen, "127.0.0.1:%u", s->port);
    snprintf(threshold, sizeof threshold, "%lld", (long long)set->celebrity_threshold);
    snprintf(cache, sizeof cache, "%lld", (long long)set->card_cache_bytes);
    snprintf(pages, sizeof pages, "%lld", (long long)set->page_cache_bytes);
    double started_s = bench_now_s();
    s->pid = fork();
    if (s->pid < 0)
        return false;
    if (s->pid == 0) {
        int null = open("/dev/null", O_WRONLY);
        dup2(null, STDOUT_FILENO);
        setenv("FANTAIL_CONNECTIONS_ADDRESS", "1000000", 1); /* an older build ignores it */
        execl(w->program ? w->program : "/proc/self/exe", "fantail", "serve", "--data", w->folder,
              "--listen", listen, "--celebrity-adaptive", "off", "--celebrity-threshold", threshold,
              "--card-cache", cache, "--page-cache", pages, "--log-level", "warn", "--rate-write",
              "0", "--rate-auth", "0", "--group-rate", "0", "--snapshot-every", "1h", (char *)NULL);
        _exit(127);
    }
    return wait_ready(s, started_s);
}

void server_stop(struct server *s, int signal_number)
{
    kill(s->pid, signal_number);
    int status;
    waitpid(s->pid, &status, 0);
}

double process_cpu_s(int pid)
{
    char path[64];
    unsigned long long user = 0, system = 0;
    snprintf(path, sizeof path, "/proc/%d/stat", pid);
    FILE *f = fopen(path, "r");
    if (!f)
        return 0;
    /* pid (name) and eleven more come before; our name has no blank in it */
    int n =
        fscanf(f, "%*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %llu %llu", &user, &system);
    fclose(f);
    return n == 2 ? (double)(user + system) / (double)sysconf(_SC_CLK_TCK) : 0;
}

int64_t process_rss(int pid)
{
    char path[64], line[256];
    snprintf(path, sizeof path, "/proc/%d/status", pid);
    FILE *f = fopen(path, "r");
    long long kib = 0;
    while (f && fgets(line, sizeof line, f)) {
        if (sscanf(line, "VmRSS: %lld", &kib) == 1)
            break;
    }
    if (f)
        fclose(f);
    return kib * 1024;
}
