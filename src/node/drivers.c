/* The only place that names concrete drivers. What a URL holds beside its scheme may be a password:
 * messages name schemes and settings, and what the drivers say about a server. */
#include "node/drivers.h"

#include <stdio.h>
#include <string.h>

#include "base/check.h"
#include "bus/local.h"
#include "bus/local_first.h"
#include "db/postgres.h"
#include "db/sqlite.h"
#include "node/nodes.h"
#include "node/runtime.h"
#include "pipe/engine.h"
#include "signal/local.h"
#include "signal/redis.h"
#include "view/memory/memory.h"
#include "view/redis/redis.h"

enum {
    PATH_TEXT_MAX = 4096,
    CONTROL_RETRY_MS = 1000,
    CONTROL_STATEMENT_MS = 2000,
    LOCAL_ROOM = 256, /* work items of a small lane that the leader keeps to itself */
};

/* ---- which ---- */

static const char *scheme_of(const char *url, const char *const *schemes)
{
    for (; *schemes; schemes++) {
        size_t n = strlen(*schemes);
        if (strncmp(url, *schemes, n) == 0 && strncmp(url + n, "://", 3) == 0)
            return *schemes;
    }
    return NULL;
}

static const struct {
    const char *setting, *wanted;
    const char *const *schemes;
} kinds[] = {
    {"db", "postgresql://user@host/database",
     (const char *const[]){"postgresql", "postgres", NULL}},
    {"views", "redis://host:port or redis-cluster://host:port,…",
     (const char *const[]){"redis", "redis-cluster", NULL}},
    {"bus", "amqp://user:password@host:port/vhost", (const char *const[]){"amqp", NULL}},
};

enum err drivers_check(const struct settings *s, char why[DRIVERS_WHY_MAX])
{
    const char *urls[] = {s->db, s->views, s->bus};
    int given = 0;
    unsigned roles;
    bool retired;
    for (size_t i = 0; i < COUNT_OF(urls); i++)
        given += urls[i][0] != '\0';
    for (size_t i = 0; i < COUNT_OF(urls); i++) {
        if (given > 0 && urls[i][0] == '\0') {
            snprintf(why, DRIVERS_WHY_MAX,
                     "db, views and bus belong together: %s is missing (%s); without all three the "
                     "server runs alone",
                     kinds[i].setting, kinds[i].wanted);
            return ERR_INVALID;
        }
        if (given > 0 && !scheme_of(urls[i], kinds[i].schemes)) {
            snprintf(why, DRIVERS_WHY_MAX, "%s wants a URL like %s", kinds[i].setting,
                     kinds[i].wanted);
            return ERR_INVALID;
        }
    }
    if (!roles_parse(str_of(s->role), &roles, &retired)) {
        snprintf(why, DRIVERS_WHY_MAX, "role is a list of api, relay and worker, not '%.60s'",
                 s->role);
        return ERR_INVALID;
    }
    if (given == 0 && roles != ROLE_ALL) {
        snprintf(why, DRIVERS_WHY_MAX,
                 "a server that runs alone does everything: role wants db, views and bus");
        return ERR_INVALID;
    }
    return OK;
}

const char *drivers_kind(const char *url)
{
    const char *scheme = NULL;
    for (size_t i = 0; !scheme && i < COUNT_OF(kinds); i++)
        scheme = scheme_of(url, kinds[i].schemes);
    return scheme;
}

/* ---- the store ---- */

static enum err open_postgres(const struct postgres_config *config, struct id_gen *ids,
                              struct clock *clock, struct db **out, char *why)
{
    char detail[TX_DETAIL_MAX] = "";
    enum err e = db_postgres_open(config, ids, clock, out, detail);
    if (e)
        snprintf(why, DRIVERS_WHY_MAX, "cannot open the store at PostgreSQL: %s",
                 detail[0] ? detail : err_title(e));
    return e;
}

static enum err open_sqlite(const struct settings *s, int readers, struct id_gen *ids,
                            struct clock *clock, struct db **out, char *why)
{
    char path[PATH_TEXT_MAX], detail[TX_DETAIL_MAX] = "";
    struct sqlite_config config;
    sqlite_config_default(&config);
    snprintf(path, sizeof path, "%s/" STORE_FILE, s->data);
    config.path = path;
    config.readers = readers;
    enum err e = db_sqlite_open(&config, ids, clock, out, detail);
    if (e)
        snprintf(why, DRIVERS_WHY_MAX, "cannot open the store in %.100s: %s", s->data,
                 detail[0] ? detail : err_title(e));
    return e;
}

enum err drivers_open_store(const struct settings *s, int readers, struct id_gen *ids,
                            struct clock *clock, struct db **out, char why[DRIVERS_WHY_MAX])
{
    if (!drivers_are_shared(s))
        return open_sqlite(s, readers, ids, clock, out, why);
    struct postgres_config config;
    postgres_config_default(&config);
    config.url = s->db;
    config.readers = readers;
    return open_postgres(&config, ids, clock, out, why);
}

enum err drivers_open_control(const struct settings *s, struct id_gen *ids, struct clock *clock,
                              struct db **out, char why[DRIVERS_WHY_MAX])
{
    struct postgres_config config;
    postgres_config_default(&config);
    config.url = s->db;
    config.writers = 1;
    config.readers = 2;
    config.statement_timeout_ms = CONTROL_STATEMENT_MS;
    config.retry_ms = CONTROL_RETRY_MS;
    return open_postgres(&config, ids, clock, out, why);
}

/* ---- the views ---- */

static enum err open_redis(const struct settings *s, const char *store_id, struct clock *clock,
                           struct views **views, struct cards **cards,
                           struct invalidation **invalidation, struct page_source **page_source,
                           struct signal **signal, char *why)
{
    struct redis_config config = {.url = s->views,
                                  .store = store_id,
                                  .timeline_cap = (size_t)s->timeline_cap,
                                  .pull_cap = (size_t)s->timeline_cap,
                                  .clock = clock};
    enum err e = invalidation_redis_open(&config, invalidation);
    config.invalidation = e ? NULL : *invalidation;
    if (!e)
        e = views_redis_open(&config, views);
    if (!e)
        e = cards_redis_open(&config, cards);
    if (!e)
        *page_source = page_source_redis_new(*views, *cards);
    if (!e)
        e = signal_redis_open(&config, signal);
    if (e == ERR_CONFLICT)
        snprintf(why, DRIVERS_WHY_MAX,
                 "the Redis of the setting views holds the views of another store");
    else if (e)
        snprintf(why, DRIVERS_WHY_MAX, "cannot open the views at Redis: %s", err_title(e));
    return e;
}

enum err drivers_open_views(const struct settings *s, const char *store_id, struct clock *clock,
                            struct views **views, struct cards **cards,
                            struct invalidation **invalidation, struct page_source **page_source,
                            struct signal **signal, char why[DRIVERS_WHY_MAX])
{
    if (drivers_are_shared(s))
        return open_redis(s, store_id, clock, views, cards, invalidation, page_source, signal, why);
    char path[PATH_TEXT_MAX];
    snprintf(path, sizeof path, "%s/" SNAPSHOT_FILE, s->data);
    struct memory_views_config config = {
        .snapshot_path = path,
        .timeline_cap = (size_t)s->timeline_cap,
        .pull_cap = (size_t)s->timeline_cap,
        .clock = clock,
    };
    TRY(views_memory_open(&config, views));
    *cards = cards_memory_new((size_t)s->card_cache_bytes, clock);
    *signal = signal_local_new();
    return OK;
}

/* ---- the bus ---- */

enum { REPORTS_LIMIT = 65536 };

enum err drivers_open_bus(const struct settings *s, const char *store_id, const char *node,
                          unsigned roles, drivers_ready ready, void *ctx, struct bus **out,
                          char why[DRIVERS_WHY_MAX])
{
    char prefix[64]; /* so that several stores can use one broker */
    size_t lane_limits[LANE_COUNT + 1] = {[ENGINE_REPORTS] = REPORTS_LIMIT};
    const char *lane_names[LANE_COUNT + 1] = {[ENGINE_REPORTS] = "reports"};
    unsigned local_lanes = 0;
    for (int lane = 0; lane < LANE_COUNT; lane++) {
        lane_limits[lane] = lane_rows[lane].limit;
        lane_names[lane] = lane_rows[lane].name;
        local_lanes |= (unsigned)lane_rows[lane].local << lane;
    }
    if (!drivers_are_shared(s)) {
        *out = bus_local_new(LANE_COUNT, lane_limits);
        return OK;
    }
    snprintf(prefix, sizeof prefix, "fantail-%.40s", store_id);
    struct rabbitmq_config config = {.url = s->bus,
                                     .prefix = prefix,
                                     .node = node,
                                     .lanes = LANE_COUNT + 1,
                                     .lane_names = lane_names,
                                     .lane_limits = lane_limits,
                                     .quiet = 1U << ENGINE_REPORTS,
                                     .transient = 1U << ENGINE_REPORTS,
                                     .publish_only = !(roles & ROLE_WORKER),
                                     .on_ready = ready,
                                     .context = ctx};
    char detail[RABBITMQ_DETAIL_SIZE] = "";
    struct bus *remote;
    enum err e = bus_rabbitmq_open(&config, &remote, detail);
    if (e) {
        snprintf(why, DRIVERS_WHY_MAX, "cannot open the bus at RabbitMQ: %.240s",
                 detail[0] ? detail : err_title(e));
        return e;
    }
    struct bus *local = bus_local_new(LANE_COUNT + 1, lane_limits);
    *out = bus_local_first_new(local, remote, local_lanes, LOCAL_ROOM);
    return OK;
}
