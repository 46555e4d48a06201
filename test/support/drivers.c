/* The drivers of a test: see drivers.h. The wiring is the server's (src/node/drivers.c, runtime.c);
 * what differs is that one thread calls every step, so the test's own process leads, and always
 * does: each start takes the lease in a new term, as a node that restarts. */
#include "drivers.h"

#include <hiredis/hiredis.h>
#include <libpq-fe.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "bus/local.h"
#include "bus/local_first.h"
#include "bus/rabbitmq.h"
#include "db/postgres.h"
#include "db/sqlite.h"
#include "model/truth.h"
#include "node/lease.h"
#include "signal/local.h"
#include "signal/redis.h"
#include "view/memory/memory.h"
#include "view/redis/redis.h"
#include "view/redis/url.h"
#include "world.h"

enum {
    CARD_BYTES = 8 << 20,
    LANE_LIMIT = 10000,
    REDIS_DATABASES = 512, /* as script/servers starts it */
    LOCAL_ROOM = 256,
    BROKER_TRIES = 12,
    SELF = 1, /* in the lease: the only node */
};

static const char *need(const char *name)
{
    const char *value = getenv(name);
    if (!value)
        printf("# %s is not set: start the servers with script/servers\n", name);
    EXPECT(value);
    return value;
}

enum test_drivers_kind test_drivers_wanted(void)
{
    const char *wanted = getenv("FANTAIL_TEST_DRIVERS");
    return wanted && strcmp(wanted, "cluster") == 0 ? TEST_CLUSTER : TEST_EMBEDDED;
}

static void path_in(const struct test_drivers *t, const char *name, char out[128])
{
    snprintf(out, 128, "%s/%s", t->folder, name);
}

/* ---- places of our own at the servers ---- */

static void run_sql(const char *format, const char *name)
{
    char sql[128];
    PGconn *c = PQconnectdb(need("FANTAIL_TEST_POSTGRES"));
    EXPECT(PQstatus(c) == CONNECTION_OK);
    snprintf(sql, sizeof sql, format, name);
    PGresult *r = PQexec(c, sql);
    if (PQresultStatus(r) != PGRES_COMMAND_OK)
        printf("# %s: %s\n", sql, PQerrorMessage(c));
    EXPECT(PQresultStatus(r) == PGRES_COMMAND_OK);
    PQclear(r);
    PQfinish(c);
}

static void make_database(struct test_drivers *t)
{
    static _Atomic int number;
    const char *url = need("FANTAIL_TEST_POSTGRES"), *slash = strrchr(url, '/');
    EXPECT(slash);
    snprintf(t->database, sizeof t->database, "w%ld_%d", (long)getpid(), ++number);
    snprintf(t->db_url, sizeof t->db_url, "%.*s/%s", (int)(slash - url), url, t->database);
    run_sql("CREATE DATABASE %s", t->database);
}

/* Which one is ours is counted at the server: tests run side by side, scripts (place.py) too. */
static void take_redis_database(struct test_drivers *t)
{
    struct redis_url url;
    const char *why, *base = need("FANTAIL_TEST_REDIS");
    EXPECT(redis_url_parse(str_of(base), &url, &why) == OK);
    redisContext *c = redisConnect(url.hosts[0].host, url.hosts[0].port);
    EXPECT(c && !c->err);
    redisReply *r = redisCommand(c, "INCR fantail-test-places");
    EXPECT(r && r->type == REDIS_REPLY_INTEGER);
    int number = (int)(r->integer % (REDIS_DATABASES - 1)) + 1;
    freeReplyObject(r);
    r = redisCommand(c, "SELECT %d", number);
    EXPECT(r && r->type == REDIS_REPLY_STATUS);
    freeReplyObject(r);
    r = redisCommand(c, "FLUSHDB");
    EXPECT(r && r->type == REDIS_REPLY_STATUS);
    freeReplyObject(r);
    redisFree(c);
    snprintf(t->views_url, sizeof t->views_url, "%s/%d", base, number);
}

void test_drivers_init(struct test_drivers *t, enum test_drivers_kind kind, const char *folder)
{
    *t = (struct test_drivers){.kind = kind};
    snprintf(t->folder, sizeof t->folder, "%s", folder);
    if (kind == TEST_EMBEDDED)
        return;
    pthread_mutex_init(&t->lock, NULL);
    pthread_cond_init(&t->ready, NULL);
    make_database(t);
    take_redis_database(t);
}

void test_drivers_done(struct test_drivers *t)
{
    if (t->kind == TEST_EMBEDDED)
        return;
    run_sql("DROP DATABASE %s WITH (FORCE)", t->database);
    pthread_cond_destroy(&t->ready);
    pthread_mutex_destroy(&t->lock);
}

/* ---- truth ---- */

struct clock *test_drivers_id_clock(const struct test_drivers *t, struct clock *clock)
{
    return t->kind == TEST_CLUSTER ? clock_system() : clock;
}

static enum err open_sqlite(const struct test_drivers *t, struct id_gen *ids, struct clock *clock,
                            struct db **db, char *detail)
{
    struct sqlite_config config;
    char path[128];
    sqlite_config_default(&config);
    path_in(t, "world.db", path);
    config.path = path;
    config.readers = 2;
    return db_sqlite_open(&config, ids, clock, db, detail);
}

static enum err open_postgres(const struct test_drivers *t, struct id_gen *ids, struct clock *clock,
                              struct db **db, char *detail)
{
    struct postgres_config config;
    postgres_config_default(&config);
    config.url = t->db_url;
    config.readers = 2;
    return db_postgres_open(&config, ids, clock, db, detail);
}

struct db *test_drivers_open_db(struct test_drivers *t, struct id_gen *ids, struct clock *clock)
{
    char detail[TX_DETAIL_MAX] = "";
    struct db *db = NULL;
    enum err e = t->kind == TEST_CLUSTER ? open_postgres(t, ids, clock, &db, detail)
                                         : open_sqlite(t, ids, clock, &db, detail);
    if (e)
        printf("# %s\n", detail);
    EXPECT(e == OK);
    if (t->kind == TEST_CLUSTER)
        EXPECT(store_id_read(db, t->store) == OK);
    return db;
}

/* ---- views ---- */

static void open_memory(struct test_drivers *t, struct db *db, struct clock *clock, size_t cap,
                        struct views **views, struct cards **cards)
{
    char path[128];
    path_in(t, "views.snapshot", path);
    struct memory_views_config config = {
        .snapshot_path = path, .timeline_cap = cap, .pull_cap = cap, .clock = clock};
    EXPECT(views_memory_open(&config, views) == OK);
    *cards = cards_memory_new(CARD_BYTES, clock);
    EXPECT(*cards);
    if ((*views)->loaded_position == 0)
        EXPECT(truth_load_views(db, *views, NULL, NULL) == OK);
    EXPECT(truth_catch_up(db, *views, *cards, (*views)->loaded_position) == OK);
}

static void open_redis(struct test_drivers *t, struct db *db, struct clock *clock, size_t cap,
                       struct views **views, struct cards **cards,
                       struct invalidation **invalidation, struct signal **signal)
{
    bool complete = false;
    struct redis_config config = {.url = t->views_url,
                                  .store = t->store,
                                  .timeline_cap = cap,
                                  .pull_cap = cap,
                                  .clock = clock};
    EXPECT(invalidation_redis_open(&config, invalidation) == OK);
    config.invalidation = *invalidation;
    EXPECT(views_redis_open(&config, views) == OK);
    EXPECT(cards_redis_open(&config, cards) == OK);
    EXPECT(signal_redis_open(&config, signal) == OK);
    EXPECT(views_is_complete(*views, &complete) == OK);
    if (complete && !t->views_lost)
        return;
    EXPECT(views_clear(*views) == OK);
    EXPECT(truth_load_views(db, *views, NULL, NULL) == OK);
    EXPECT(views_loaded(*views) == OK);
    t->views_lost = false;
}

void test_drivers_open_views(struct test_drivers *t, struct db *db, struct clock *clock, size_t cap,
                             struct views **views, struct cards **cards,
                             struct invalidation **invalidation, struct signal **signal)
{
    *invalidation = NULL;
    if (t->kind == TEST_CLUSTER)
        open_redis(t, db, clock, cap, views, cards, invalidation, signal);
    else
        open_memory(t, db, clock, cap, views, cards);
    if (t->kind != TEST_CLUSTER)
        *signal = signal_local_new();
}

struct page_source *test_drivers_page_source(const struct test_drivers *t, struct views *views,
                                             struct cards *cards)
{
    return t->kind == TEST_CLUSTER ? page_source_redis_new(views, cards) : NULL;
}

void test_drivers_lose_views(struct test_drivers *t)
{
    char path[128];
    path_in(t, "views.snapshot", path);
    unlink(path);
    t->views_lost = true;
}

/* ---- the bus ---- */

static void work_is_there(void *ctx, uint16_t lane)
{
    struct test_drivers *t = ctx;
    (void)lane;
    pthread_mutex_lock(&t->lock);
    t->is_ready = true;
    pthread_cond_signal(&t->ready);
    pthread_mutex_unlock(&t->lock);
}

void test_drivers_await_work(struct test_drivers *t, int most_ms)
{
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_nsec += most_ms * 1000000L;
    until.tv_sec += until.tv_nsec / 1000000000L;
    until.tv_nsec %= 1000000000L;
    pthread_mutex_lock(&t->lock);
    int late = 0;
    while (!t->is_ready && !late)
        late = pthread_cond_timedwait(&t->ready, &t->lock, &until);
    t->is_ready = false;
    pthread_mutex_unlock(&t->lock);
}

/* Of two starts one keeps small work in the process, as a leader does; at the other all of it
 * travels. */
static struct bus *open_rabbitmq(struct test_drivers *t, struct clock *clock, const size_t *limits)
{
    char prefix[64], detail[RABBITMQ_DETAIL_SIZE] = "";
    snprintf(prefix, sizeof prefix, "fantail-%s", t->store);
    const char *lane_names[LANE_COUNT + 1] = {[ENGINE_REPORTS] = "reports"};
    for (int lane = 0; lane < LANE_COUNT; lane++)
        lane_names[lane] = lane_rows[lane].name;
    struct rabbitmq_config config = {.url = need("FANTAIL_TEST_RABBITMQ"),
                                     .prefix = prefix,
                                     .lanes = LANE_COUNT + 1,
                                     .lane_names = lane_names,
                                     .lane_limits = limits,
                                     .quiet = 1U << ENGINE_REPORTS,
                                     .transient = 1U << ENGINE_REPORTS,
                                     .clock = clock,
                                     .on_ready = work_is_there,
                                     .context = t};
    struct bus *remote = NULL;
    enum err e = ERR_UNAVAILABLE;
    for (int i = 0; e == ERR_UNAVAILABLE && i < BROKER_TRIES; i++) /* each waits for seconds */
        e = bus_rabbitmq_open(&config, &remote, detail);
    if (e)
        printf("# %s\n", detail);
    EXPECT(e == OK);
    struct bus *bus =
        bus_local_first_new(bus_local_new(LANE_COUNT + 1, limits), remote,
                            1U << LANE_SMALL | 1U << LANE_GRAPH | 1U << LANE_MENTIONS, LOCAL_ROOM);
    bus_local_first_hold(bus, t->bus_opened++ % 2 == 0);
    return bus;
}

struct bus *test_drivers_open_bus(struct test_drivers *t, struct clock *clock)
{
    size_t limits[LANE_COUNT + 1];
    for (int lane = 0; lane <= LANE_COUNT; lane++)
        limits[lane] = LANE_LIMIT;
    return t->kind == TEST_CLUSTER ? open_rabbitmq(t, clock, limits)
                                   : bus_local_new(LANE_COUNT, limits);
}

/* ---- leading ---- */

void test_drivers_lead(const struct test_drivers *t, struct engine *engine, struct db *db,
                       struct clock *clock)
{
    if (t->kind == TEST_EMBEDDED) {
        EXPECT(engine_recover(engine) == OK);
        return;
    }
    struct lease lease;
    lease_init(&lease, LEASE_ENGINE, SELF, clock);
    EXPECT(lease_look(&lease, db, clock_mono_us(clock)) == OK);
    EXPECT(lease_take(&lease, db, clock_mono_us(clock)) == OK);
    EXPECT(engine_lead(engine, lease.term) == OK);
}
