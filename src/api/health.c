/* What monitors ask: alive, ready, and the metrics.
 *
 * Metrics are tables: a row is a name, a type, a help text and where the number is in a snapshot
 * that is taken once per scrape. Adding one is adding a row. */
#include "api/auth.h"
#include "api/edge.h"
#include "api/handlers.h"
#include "api/page_cache.h"

HANDLER(health_live)
{
    (void)tx;
    json_object_begin(&c->json);
    json_put(&c->json, "status", str, STR("ok"));
    json_object_end(&c->json);
    return OK;
}

HANDLER(health_ready)
{
    (void)tx;
    bool ready = atomic_load(&c->api->ready);
    c->status = ready ? 200 : 503;
    json_object_begin(&c->json);
    json_put(&c->json, "status", str, ready ? STR("ready") : STR("starting"));
    json_object_end(&c->json);
    return OK;
}

/* ---- metrics ---- */

struct snapshot {
    struct http_stats http;
    struct db_stats db;
    struct engine_stats engine;
    struct view_stats views;
    struct card_stats cards;
    struct page_cache_stats pages;
    struct auth_stats auth;
    double start_s, card_hit_rate;
    uint64_t shed, limited, replayed;
    int64_t audit_drift, audited, threshold;
    uint64_t pool_depth, slow_depth;
};

/* name, type, help, where it is in the snapshot */
/* clang-format off */
#define METRICS(X)                                                                                 \
    X("start_time_seconds", "gauge", "When the process began, in seconds since 1970.",             \
      s->start_s)                                                                                  \
    X("http_connections", "gauge", "Open connections.", s->http.connections)                       \
    X("http_accepted_total", "counter", "Connections accepted.", s->http.accepted)                 \
    X("http_refused_total", "counter", "Connections refused because there were too many.",         \
      s->http.refused)                                                                             \
    X("http_requests_total", "counter", "Requests read.", s->http.requests)                        \
    X("http_bad_requests_total", "counter", "Requests that could not be read.",                    \
      s->http.bad_requests)                                                                        \
    X("http_timeouts_total", "counter", "Connections closed for being too slow.",                  \
      s->http.timeouts)                                                                            \
    X("http_received_bytes_total", "counter", "Bytes read.", s->http.bytes_in)                     \
    X("http_sent_bytes_total", "counter", "Bytes sent.", s->http.bytes_out)                        \
    X("http_shed_total", "counter", "Requests answered 503 because a queue was full.", s->shed)    \
    X("http_limited_total", "counter", "Requests answered 429.", s->limited)                       \
    X("http_replayed_total", "counter", "Answers repeated for an Idempotency-Key.", s->replayed)   \
    X("auth_hits_total", "counter", "Callers known without asking the database.", s->auth.hits)    \
    X("auth_misses_total", "counter", "Callers that the database was asked for.", s->auth.misses)  \
    X("auth_refused_total", "counter", "Tokens refused.", s->auth.refused)                         \
    X("db_commits_total", "counter", "COMMITs, each of one or more transactions.", s->db.commits)  \
    X("db_transactions_total", "counter", "Transactions committed.", s->db.transactions)           \
    X("db_failures_total", "counter", "COMMITs that failed.", s->db.failures)                      \
    X("db_queue_depth", "gauge", "Writes waiting for their commit.", s->db.queue_depth)            \
    X("db_queue_limit", "gauge", "Writes that may wait.", s->db.queue_limit)                       \
    X("db_wal_bytes", "gauge", "Size of the write-ahead log.", s->db.wal_bytes)                    \
    X("db_file_bytes", "gauge", "Size of the store.", s->db.file_bytes)                            \
    X("db_full", "gauge", "1 when the last commit failed for want of space.", s->db.full)          \
    X("events_taken_total", "counter", "Events taken up by the engine.", s->engine.events_taken)   \
    X("events_done_total", "counter", "Events delivered to everyone.", s->engine.events_done)      \
    X("events_undone", "gauge", "Events not yet delivered to everyone.", s->engine.undone)         \
    X("events_oldest_undone_seconds", "gauge", "Age of the oldest undone event.",                  \
      (double)s->engine.oldest_undone_ms / 1000.0)                                                 \
    X("view_accounts", "gauge", "Accounts in the views.", s->views.accounts)                       \
    X("view_follows", "gauge", "Follow edges in the views.", s->views.follows)                     \
    X("view_timelines", "gauge", "Timelines held.", s->views.timelines)                            \
    X("view_timelines_dropped", "gauge", "Timelines dropped, to be rebuilt when read.",            \
      s->views.dropped)                                                                            \
    X("view_entries", "gauge", "Entries in all timelines.", s->views.entries)                      \
    X("view_pull_lists", "gauge", "Authors whose posts are pulled.", s->views.pull_lists)          \
    X("view_bytes", "gauge", "Memory held by the views.", s->views.bytes)                          \
    X("view_saved_timestamp_seconds", "gauge", "When the views were last saved.",                  \
      (double)s->views.saved_at_ms / 1000.0)                                                       \
    X("view_save_seconds", "gauge", "How long the last save took.",                                \
      (double)s->views.save_took_ms / 1000.0)                                                      \
    X("view_save_bytes", "gauge", "Size of the last save.", s->views.save_bytes)                   \
    X("card_hits_total", "counter", "Posts found in the cache.", s->cards.post_hits)               \
    X("card_misses_total", "counter", "Posts not found in the cache.", s->cards.post_misses)       \
    X("card_hit_rate", "gauge", "Share of posts found in the cache since the start.",              \
      s->card_hit_rate)                                                                            \
    X("card_posts", "gauge", "Posts in the cache.", s->cards.posts)                                \
    X("card_accounts", "gauge", "Authors in the cache.", s->cards.accounts)                        \
    X("card_like_sets", "gauge", "People whose likes are in the cache.", s->cards.like_sets)       \
    X("card_tombstones", "gauge", "Deleted posts remembered.", s->cards.tombstones)                \
    X("card_bytes", "gauge", "Memory held by the cache.", s->cards.bytes)                          \
    X("card_bytes_limit", "gauge", "Memory that the cache may hold.", s->cards.bytes_max)          \
    X("page_hits_total", "counter", "First pages answered as they were kept.", s->pages.hits)      \
    X("page_misses_total", "counter", "First pages that had to be drawn.", s->pages.misses)        \
    X("page_bytes", "gauge", "Memory held by kept pages.", s->pages.bytes)                         \
    X("pool_reads_depth", "gauge", "Blocking reads waiting for a thread.", s->pool_depth)          \
    X("pool_slow_depth", "gauge", "Log-ins and operators' work waiting for a thread.",             \
      s->slow_depth)                                                                               \
    X("audit_feeds_total", "counter", "Feeds compared with truth by the background audit.",        \
      s->audited)                                                                                  \
    X("audit_drift", "gauge", "Feeds that differed from truth; should read zero.",                 \
      s->audit_drift)                                                                              \
    X("celebrity_threshold", "gauge", "Followers from which posts are pulled instead of pushed.",  \
      s->threshold)

/* name, type, help, where it is in a lane's stats */
#define LANE_METRICS(X)                                                                            \
    X("lane_backlog", "gauge", "Batches waiting in the lane.", l->backlog)                         \
    X("lane_in_flight", "gauge", "Batches being delivered.", l->in_flight)                         \
    X("lane_delivered_total", "counter", "Deliveries that changed something.", l->delivered)       \
    X("lane_repeated_total", "counter",                                                            \
      "Deliveries that were there already: harmless duplicates.", l->repeated)                     \
    X("lane_failed_total", "counter", "Batches that failed and were tried again.", l->failed)      \
    X("lane_oldest_age_seconds", "gauge", "Age of the oldest event not done in the lane.",         \
      (double)l->oldest_age_ms / 1000.0)                                                           \
    X("lane_concurrency", "gauge", "Batches at a time.", l->concurrency)                           \
    X("lane_rate", "gauge", "Batches per second; 0: no limit.", l->rate)
/* clang-format on */

static void take_snapshot(struct api *api, struct snapshot *s)
{
    *s = (struct snapshot){
        .start_s = (double)api->started_at_ms / 1000.0,
        .shed = atomic_load(&api->edge->shed),
        .limited = atomic_load(&api->edge->limited),
        .replayed = atomic_load(&api->edge->replayed),
        .audit_drift = atomic_load(&api->audit_drift),
        .audited = atomic_load(&api->audited),
        .threshold = celebrity_threshold(api->keeper),
        .pool_depth = pool_depth(api->pool),
        .slow_depth = pool_depth(api->slow),
    };
    if (api->http)
        http_server_stats(api->http, &s->http);
    db_stats(api->db, &s->db);
    engine_stats(api->engine, &s->engine);
    views_stats(api->views, &s->views);
    cards_stats(api->cards, &s->cards);
    page_cache_stats(api->pages, &s->pages);
    auth_stats(api->auth, &s->auth);
    uint64_t asked = s->cards.post_hits + s->cards.post_misses;
    s->card_hit_rate = asked ? (double)s->cards.post_hits / (double)asked : 0;
}

static void put_head(struct buf *out, const char *name, const char *type, const char *help)
{
    buf_printf(out, "# HELP fantail_%s %s\n# TYPE fantail_%s %s\n", name, help, name, type);
}

static void put_scalars(struct buf *out, const struct snapshot *s)
{
#define SCALAR(name, type, help, value)                                                            \
    put_head(out, name, type, help);                                                               \
    buf_printf(out, "fantail_" name " %.15g\n", (double)(value));
    METRICS(SCALAR)
#undef SCALAR
}

static void put_lanes(struct buf *out, const struct snapshot *s)
{
#define PER_LANE(name, type, help, value)                                                          \
    put_head(out, name, type, help);                                                               \
    for (size_t i = 0; i < LANE_COUNT; i++) {                                                      \
        const struct lane_stats *l = &s->engine.lanes[i];                                          \
        buf_printf(out, "fantail_" name "{lane=\"%s\"} %.15g\n", lane_name((enum lane)i),          \
                   (double)(value));                                                               \
    }
    LANE_METRICS(PER_LANE)
#undef PER_LANE
}

static const char *route_label(size_t i)
{
    return i < route_count ? routes[i].name : "none";
}

static void put_answers(struct buf *out, const struct edge *edge)
{
    put_head(out, "http_answers_total", "counter", "Answers by route and class of status.");
    for (size_t i = 0; i <= route_count; i++) {
        for (int class = 1; class <= 5; class ++) {
            uint64_t n = atomic_load(&edge->routes[i].by_class[class]);
            if (n)
                buf_printf(out, "fantail_http_answers_total{route=\"%s\",class=\"%dxx\"} %llu\n",
                           route_label(i), class, (unsigned long long)n);
        }
    }
}

static void put_times(struct buf *out, const struct edge *edge)
{
    static const double quantiles[] = {0.5, 0.95, 0.99};
    put_head(out, "http_request_seconds", "summary",
             "From the whole request to its answer, by route.");
    for (size_t i = 0; i <= route_count; i++) {
        const struct hist *h = &edge->routes[i].took_us;
        uint64_t n = hist_count(h);
        if (!n)
            continue;
        for (size_t q = 0; q < sizeof quantiles / sizeof *quantiles; q++)
            buf_printf(out, "fantail_http_request_seconds{route=\"%s\",quantile=\"%g\"} %.6f\n",
                       route_label(i), quantiles[q], (double)hist_quantile(h, quantiles[q]) / 1e6);
        buf_printf(out,
                   "fantail_http_request_seconds_sum{route=\"%s\"} %.6f\n"
                   "fantail_http_request_seconds_count{route=\"%s\"} %llu\n",
                   route_label(i), (double)atomic_load(&h->sum) / 1e6, route_label(i),
                   (unsigned long long)n);
    }
}

HANDLER(metrics_show)
{
    (void)tx;
    struct snapshot s;
    take_snapshot(c->api, &s);
    struct buf *out = &c->x->out;
    c->x->content_type = STR("text/plain; version=0.0.4; charset=utf-8");
    put_head(out, "build_info", "gauge", "The version that runs.");
    buf_printf(out, "fantail_build_info{version=\"%s\"} 1\n", FANTAIL_VERSION);
    put_scalars(out, &s);
    put_lanes(out, &s);
    put_answers(out, c->api->edge);
    put_times(out, c->api->edge);
    return OK;
}
