/* The metrics, in Prometheus text.
 *
 * A node that does not lead has nothing to say about the engine, and views that are away have no
 * size: such numbers are left out, because a zero would be a lie.
 *
 * Metrics are tables: a row is a name, a type, a help text and where the number is in a snapshot
 * that is taken once per scrape. Adding one is adding a row. A scrape is answered on the event loop
 * from what is in memory. The ages of the consumers outside alone come from truth: they are kept
 * for AGES_KEPT_US, and looked up on a blocking thread when that is over and the threads have time;
 * a busy server shows the ages it has. */
#include "api/auth.h"
#include "api/cluster.h"
#include "api/edge.h"
#include "api/handlers.h"
#include "api/hints.h"
#include "api/hot_groups.h"
#include "api/nodes.h"
#include "api/page_cache.h"
#include "api/status.h"
#include "net/hub.h"
#include "ops/brake.h"

enum { AGES_KEPT_US = 5 * 1000 * 1000, AGES_POOL_DEPTH = 64 };

struct snapshot {
    struct http_stats http;
    struct db_stats db;
    struct engine_stats engine;
    struct view_stats views;
    struct card_stats cards;
    struct page_cache_stats pages;
    struct watch_stats watch;
    struct auth_stats auth;
    struct hub_stats hub;
    struct hints_stats hints;
    double start_s, card_hit_rate;
    uint64_t shed, limited, replayed, braked, group_limited;
    struct hot_groups_look groups;
    int64_t brake_level, disk_free;
    struct freshness_headline headline;
    struct freshness_cell *cells;
    size_t cell_count;
    int64_t audit_drift, audited, audited_inboxes, threshold;
    uint64_t pool_depth, slow_depth;
    bool leads;       /* or is alone */
    bool views_there; /* their numbers are */
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
    X("streams", "gauge", "Open streams.", s->hub.streams)                                         \
    X("streams_refused_total", "counter", "Streams for which there was no room.", s->hub.refused)  \
    X("streams_slow_total", "counter", "Streams cut off because their client read too slowly.",    \
      s->hub.slow)                                                                                 \
    X("stream_frames_total", "counter", "Frames that streams took.", s->hub.sent)                  \
    X("hint_looks_total", "counter", "Looks at the inbox or feed of somebody with a stream.",      \
      s->hints.looks)                                                                              \
    X("hint_looks_failed_total", "counter", "Of these, in vain: they are repeated.",               \
      s->hints.failed)                                                                             \
    X("hints_total", "counter", "What people with a stream were told.", s->hints.sent)             \
    X("hints_missed_total", "counter", "Read marks that other nodes were not told of.",            \
      s->hints.missed)                                                                             \
    X("group_limited_total", "counter",                                                            \
      "Of these, entries refused because their group writes too much.", s->group_limited)         \
    X("group_entries_per_second", "gauge",                                                         \
      "Messages, edits and deletions committed by this node, over the last minute.",               \
      s->groups.per_s)                                                                             \
    X("group_hottest_per_second", "gauge", "The same, of the busiest group alone.",                \
      s->groups.count ? s->groups.top[0].per_s : 0)                                                \
    X("http_braked_total", "counter", "Requests answered 503 because the store is at risk.",       \
      s->braked)                                                                                   \
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
    X("brake_level", "gauge", "0: off. 1: bulk work rests. 2: nothing new is taken.",              \
      s->brake_level)                                                                              \
    X("disk_free_bytes", "gauge", "Free space of the data folder's disk, as last seen.",           \
      s->disk_free)                                                                                \
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
    X("news_asked_total", "counter", "Kept pages of shared views that news were asked for.",       \
      s->watch.asked)                                                                              \
    X("news_journeys_total", "counter", "Journeys that fetched news, each for all who asked.",     \
      s->watch.journeys)                                                                           \
    X("news_changes_total", "counter", "Changes of shared views that were heard of.",              \
      s->watch.changes)                                                                            \
    X("news_lost_total", "counter", "How often all kept pages became worthless at once.",          \
      s->watch.lost)                                                                               \
    X("pool_reads_depth", "gauge", "Blocking reads waiting for a thread.", s->pool_depth)          \
    X("pool_slow_depth", "gauge", "Log-ins and operators' work waiting for a thread.",             \
      s->slow_depth)                                                                               \
    X("audit_feeds_total", "counter", "Feeds compared with truth by the background audit.",        \
      s->audited)                                                                                  \
    X("audit_inboxes_total", "counter", "Inboxes compared with truth by the background audit.",    \
      s->audited_inboxes)                                                                          \
    X("audit_drift", "gauge", "Feeds and inboxes that differed from truth; should read zero.",     \
      s->audit_drift)                                                                              \
    X("celebrity_threshold", "gauge", "Followers from which posts are pulled instead of pushed.",  \
      s->threshold)

/* The same, of the engine: only where it leads. */
#define ENGINE_METRICS(X)                                                                          \
    X("events_taken_total", "counter", "Events taken up by the engine.", s->engine.events_taken)   \
    X("events_done_total", "counter", "Events delivered to everyone.", s->engine.events_done)      \
    X("events_undone", "gauge", "Events not yet delivered to everyone.", s->engine.undone)         \
    X("events_oldest_undone_seconds", "gauge", "Age of the oldest undone event.",                  \
      (double)s->engine.oldest_undone_ms / 1000.0)                                                 \
    X("events_dropped_total", "counter",                                                           \
      "Deliveries of low priority that were given up after their tries.",                          \
      s->engine.states.dropped)                                                                    \
    X("messages_resent_total", "counter", "Messages sent again because nothing was heard of them.",\
      s->engine.resent)                                                                            \
    X("blocked_keys", "gauge", "Order keys that wait behind a delivery on the books.",             \
      s->engine.blocked_keys)                                                                      \
    X("worst_visible_lag_seconds", "gauge", "The worst lag of what people notice.",                \
      (double)s->headline.worst_ms / 1000.0)

/* The same, of the views: only while they answer. */
#define VIEW_METRICS(X)                                                                            \
    X("view_accounts", "gauge", "Accounts in the views.", s->views.accounts)                       \
    X("view_follows", "gauge", "Follow edges in the views.", s->views.follows)                     \
    X("view_timelines", "gauge", "Timelines held.", s->views.timelines)                            \
    X("view_timelines_dropped", "gauge", "Timelines dropped, to be rebuilt when read.",            \
      s->views.dropped)                                                                            \
    X("view_entries", "gauge", "Entries in all timelines.", s->views.entries)                      \
    X("view_groups", "gauge", "Groups that have a member.", s->views.groups)                       \
    X("view_memberships", "gauge", "Members of all groups.", s->views.memberships)                 \
    X("view_inboxes", "gauge", "Inboxes held.", s->views.inboxes)                                  \
    X("view_inbox_entries", "gauge", "Groups in all inboxes.", s->views.inbox_entries)             \
    X("view_pull_lists", "gauge", "Authors whose posts are pulled.", s->views.pull_lists)          \
    X("view_bytes", "gauge", "Memory held by the views.", s->views.bytes)                          \
    X("view_saved_timestamp_seconds", "gauge", "When the views were last saved.",                  \
      (double)s->views.saved_at_ms / 1000.0)                                                       \
    X("view_save_seconds", "gauge", "How long the last save took.",                                \
      (double)s->views.save_took_ms / 1000.0)                                                      \
    X("view_save_bytes", "gauge", "Size of the last save.", s->views.save_bytes)

/* name, type, help, where it is in a lane's stats: what this node's workers did. The sum over all
 * nodes is what was done. */
#define WORK_METRICS(X)                                                                            \
    X("lane_delivered_total", "counter", "Deliveries that changed something, by this node.",       \
      l->own.delivered)                                                                            \
    X("lane_repeated_total", "counter",                                                            \
      "Deliveries that were there already: harmless duplicates.", l->own.repeated)                 \
    X("lane_failed_total", "counter", "Batches that failed and were tried again.", l->own.failed)  \
    X("lane_skipped_total", "counter", "Deliveries that the consumer decided not to act on.",      \
      l->own.skipped)                                                                              \
    X("lane_stopped", "gauge", "1 while the lane is stopped, by itself or by hand.",               \
      l->breaker.state != BREAKER_CLOSED)                                                          \
    X("lane_stops_total", "counter", "Times the lane stopped by itself.", l->breaker.opened)

/* … what waits in it: only where the node leads */
#define LANE_METRICS(X)                                                                            \
    X("lane_backlog", "gauge", "Batches waiting in the lane.", l->backlog)                         \
    X("lane_in_flight", "gauge", "Batches being delivered.", l->in_flight)                         \
    X("lane_oldest_age_seconds", "gauge", "Age of the oldest event not done in the lane.",         \
      (double)l->oldest_age_ms / 1000.0)                                                           \
    X("lane_concurrency", "gauge", "Batches at a time.", l->concurrency)                           \
    X("lane_rate", "gauge", "Batches per second; 0: no limit.", l->rate)

/* name, help, where it is in a cell */
#define CELL_METRICS(X)                                                                            \
    X("freshness_age_seconds", "Age of the oldest event that is not done.",                        \
      (double)f->oldest_age_ms / 1000.0)                                                           \
    X("freshness_target_seconds", "What the age should stay under; 0: no target.",                 \
      (double)f->target_ms / 1000.0)                                                               \
    X("freshness_backlog", "Events not done.", f->backlog)                                         \
    X("freshness_in_per_second", "Events that come in.", f->in_per_s)                              \
    X("freshness_out_per_second", "Events that are done.", f->out_per_s)

/* state, where it is in the engine's states */
#define STATE_METRICS(X)                                                                           \
    X("pending", pending) X("published", published) X("expanded", expanded) X("delayed", delayed)  \
    X("waiting", waiting) X("dead", dead) X("parked", parked) X("dropped", dropped)                \
    X("discarded", discarded) X("settled", settled) X("archived", archived)
/* clang-format on */

/* name, type, help, where it is: of one node of many */
/* clang-format off */
#define CLUSTER_METRICS(X)                                                                         \
    X("node_leads", "gauge", "1 on the node that leads.", atomic_load(&k->leads))                  \
    X("node_aside", "gauge", "1 while this node refuses writes.", atomic_load(&k->aside))          \
    X("term", "gauge", "The term of the leader, as this node knows it.", atomic_load(&k->term))    \
    X("forwarded_total", "counter", "Requests passed on to the leader and answered.",              \
      atomic_load(&k->forwarded))                                                                  \
    X("forward_failed_total", "counter", "Requests for the leader that found none or no answer.",  \
      atomic_load(&k->forward_failed))                                                             \
    X("views_lost_total", "counter", "Times that the views had to be loaded anew.",                \
      atomic_load(&k->views_lost))                                                                 \
    X("db_reachable", "gauge", "1 while the store answers this node.",                             \
      atomic_load(&k->db_state) == PART_UP)                                                        \
    X("views_trusted", "gauge", "1 while this node reads from the views instead of from truth.",   \
      atomic_load(&k->views_state) == PART_UP)                                                     \
    X("bus_connected", "gauge", "1 while the bus answers this node.",                              \
      atomic_load(&k->bus_state) == PART_UP)                                                       \
    X("stale_messages_total", "counter", "Units of work and reports of other terms, passed over.", \
      g->stale)                                                                                    \
    X("unknown_rules_total", "counter", "Units of work of a newer node, left for others.",         \
      g->unknown_rules)

/* … of the one that leads */
#define LEADER_METRICS(X)                                                                          \
    X("reports_total", "counter", "Outcomes told by other nodes.", g->reports)                     \
    X("reports_unmatched_total", "counter", "Outcomes of units that were not waited for any more.",\
      g->reports_unmatched)
/* clang-format on */

static void take_snapshot(struct api *api, struct arena *arena, struct snapshot *s)
{
    *s = (struct snapshot){
        .start_s = (double)api->started_at_ms / 1000.0,
        .shed = atomic_load(&api->edge->shed),
        .limited = atomic_load(&api->edge->limited),
        .braked = atomic_load(&api->edge->braked),
        .group_limited = atomic_load(&api->edge->group_limited),
        .replayed = atomic_load(&api->edge->replayed),
        .audit_drift = atomic_load(&api->audit_drift),
        .audited = atomic_load(&api->audited),
        .audited_inboxes = atomic_load(&api->audited_inboxes),
        .threshold = celebrity_threshold(api->keeper),
        .pool_depth = pool_depth(api->pool),
        .slow_depth = pool_depth(api->slow),
    };
    s->leads = !api->cluster || atomic_load(&api->cluster->leads);
    s->views_there = !api->cluster || atomic_load(&api->cluster->views_state) != PART_AWAY;
    s->cells = ARENA_ARRAY(arena, struct freshness_cell, FRESHNESS_CELLS_MAX);
    freshness_look(engine_freshness(api->engine), s->cells, FRESHNESS_CELLS_MAX, &s->cell_count,
                   &s->headline);
    if (api->brake) {
        s->brake_level = brake_level(api->brake);
        s->disk_free = atomic_load(&api->brake->free_bytes);
    }
    if (api->http)
        http_server_stats(api->http, &s->http);
    db_stats(api->db, &s->db);
    engine_stats(api->engine, &s->engine);
    if (s->views_there)
        views_stats(api->views, &s->views);
    cards_stats(api->cards, &s->cards);
    page_cache_stats(api->pages, &s->pages);
    if (api->watch)
        watch_stats(api->watch, &s->watch);
    auth_stats(api->auth, &s->auth);
    if (api->hints) {
        hub_stats(hints_hub(api->hints), &s->hub);
        hints_stats(api->hints, &s->hints);
    }
    hot_groups_look(api->edge->groups, clock_mono_us(api->clock), &s->groups);
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
    if (s->leads) {
        ENGINE_METRICS(SCALAR)
    }
    if (s->views_there) {
        VIEW_METRICS(SCALAR)
    }
#undef SCALAR
}

static void put_cluster(struct buf *out, struct cluster *k, const struct engine_stats *g,
                        struct arena *arena)
{
    uint64_t by_state[NODE_STATES] = {0};
    size_t n;
    const struct node *nodes = nodes_list(k, arena, &n);
    for (size_t i = 0; i < n; i++)
        by_state[node_state(&nodes[i])]++;
#define OF_NODE(name, type, help, value)                                                           \
    put_head(out, name, type, help);                                                               \
    buf_printf(out, "fantail_" name " %.15g\n", (double)(value));
    CLUSTER_METRICS(OF_NODE)
    if (atomic_load(&k->leads)) {
        LEADER_METRICS(OF_NODE)
    }
#undef OF_NODE
    put_head(out, "nodes", "gauge", "Nodes that use the same store, as this one sees them.");
    for (int i = 0; i < NODE_STATES; i++)
        buf_printf(out, "fantail_nodes{state=\"%s\"} %llu\n", node_state_name((enum node_state)i),
                   (unsigned long long)by_state[i]);
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
    WORK_METRICS(PER_LANE)
    if (s->leads) {
        LANE_METRICS(PER_LANE)
    }
#undef PER_LANE
}

static void put_states(struct buf *out, const struct event_states *states)
{
    put_head(out, "event_states", "gauge",
             "Events by state; on the books (delayed, waiting, dead …) one for each delivery.");
#define PER_STATE(name, field)                                                                     \
    buf_printf(out, "fantail_event_states{state=\"" name "\"} %llu\n",                             \
               (unsigned long long)states->field);
    STATE_METRICS(PER_STATE)
#undef PER_STATE
}

static void put_duplicates(struct buf *out, const struct engine_stats *s)
{
    put_head(out, "duplicates_total", "counter",
             "Duplicates recognised: by the bus's seats, by an inbox, and claims whose outcome is "
             "unknown.");
    buf_printf(out,
               "fantail_duplicates_total{kind=\"bus\"} %llu\n"
               "fantail_duplicates_total{kind=\"inbox\"} %llu\n"
               "fantail_duplicates_total{kind=\"unknown\"} %llu\n",
               (unsigned long long)s->bus_duplicates, (unsigned long long)s->inbox_duplicates,
               (unsigned long long)s->inbox_unknown);
}

static void put_cells(struct buf *out, const struct snapshot *s)
{
#define PER_CELL(name, help, value)                                                                \
    put_head(out, name, "gauge", help);                                                            \
    for (size_t i = 0; i < s->cell_count; i++) {                                                   \
        const struct freshness_cell *f = &s->cells[i];                                             \
        buf_printf(out, "fantail_" name "{consumer=\"%s\",type=\"%s\",lane=\"%s\"} %.15g\n",       \
                   f->consumer, f->type, f->lane, (double)(value));                                \
    }
    CELL_METRICS(PER_CELL)
#undef PER_CELL
}

/* The first cell of each consumer speaks for all of its cells. */
static void put_deliveries(struct buf *out, const struct snapshot *s)
{
    put_head(out, "deliveries", "gauge", "Deliveries on the books, by consumer and state.");
    for (size_t i = 0; i < s->cell_count; i++) {
        const char *consumer = s->cells[i].consumer;
        uint64_t delayed = 0, waiting = 0, dead = 0;
        bool first = true;
        for (size_t k = 0; k < s->cell_count; k++) {
            const struct freshness_cell *f = &s->cells[k];
            if (strcmp(f->consumer, consumer) != 0)
                continue;
            first = first && k >= i;
            delayed += f->delayed;
            waiting += f->waiting;
            dead += f->dead;
        }
        if (first)
            buf_printf(out,
                       "fantail_deliveries{consumer=\"%s\",state=\"delayed\"} %llu\n"
                       "fantail_deliveries{consumer=\"%s\",state=\"waiting\"} %llu\n"
                       "fantail_deliveries{consumer=\"%s\",state=\"dead\"} %llu\n",
                       consumer, (unsigned long long)delayed, consumer, (unsigned long long)waiting,
                       consumer, (unsigned long long)dead);
    }
}

/* Stage one of group messages: what the sequencer does is this node's own. */
static void put_sequencer(struct buf *out, const struct hot_groups_look *l)
{
    put_head(out, "group_sequenced_seconds", "summary",
             "From the submission of a group's entry to its commit, by this node.");
    buf_printf(out,
               "fantail_group_sequenced_seconds{quantile=\"0.5\"} %.6f\n"
               "fantail_group_sequenced_seconds{quantile=\"0.99\"} %.6f\n"
               "fantail_group_sequenced_seconds_sum %.6f\n"
               "fantail_group_sequenced_seconds_count %llu\n",
               (double)l->all_p50 / 1e6, (double)l->all_p99 / 1e6, (double)l->all_sum_us / 1e6,
               (unsigned long long)l->all_entries);
}

/* Stage two: how late inboxes are, and what could not be written. */
static void put_inboxes(struct buf *out, const struct snapshot *s)
{
    put_head(out, "inbox_lag_seconds", "gauge",
             "Age of the oldest message that is not in every inbox it belongs to, by lane.");
    for (size_t i = 0; i < s->cell_count; i++) {
        const struct freshness_cell *f = &s->cells[i];
        if (status_is_of_inboxes(f))
            buf_printf(out, "fantail_inbox_lag_seconds{consumer=\"%s\",lane=\"%s\"} %.15g\n",
                       f->consumer, f->lane, (double)f->oldest_age_ms / 1000.0);
    }
    put_head(out, "inbox_write_failed_total", "counter",
             "Batches of inboxes that could not be written and are tried again, by lane.");
    for (size_t i = 0; i < s->cell_count; i++) {
        const struct freshness_cell *f = &s->cells[i];
        if (status_is_of_inboxes(f))
            buf_printf(out, "fantail_inbox_write_failed_total{consumer=\"%s\",lane=\"%s\"} %llu\n",
                       f->consumer, f->lane, (unsigned long long)f->failed);
    }
}

static void put_ages(struct buf *out, struct edge *edge)
{
    put_head(out, "subscriber_age_seconds", "gauge",
             "Age of the oldest event that a consumer outside has not dealt with.");
    pthread_mutex_lock(&edge->ages_lock);
    for (size_t i = 0; i < edge->ages.count; i++)
        buf_printf(out, "fantail_subscriber_age_seconds{consumer=\"%s\"} %.3f\n",
                   edge->ages.items[i].name, (double)edge->ages.items[i].age_ms / 1000.0);
    pthread_mutex_unlock(&edge->ages_lock);
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

/* True: looked up lately, or nobody may wait for it. */
static bool ages_will_do(struct call *c)
{
    struct edge *edge = c->api->edge;
    pthread_mutex_lock(&edge->ages_lock);
    int64_t at_us = edge->ages_at_us;
    pthread_mutex_unlock(&edge->ages_lock);
    bool fresh = at_us && clock_mono_us(c->api->clock) - at_us < AGES_KEPT_US;
    return fresh || (!c->blocking && pool_depth(c->api->pool) > AGES_POOL_DEPTH);
}

struct ages_reading {
    int64_t now_ms;
    struct subscriber_ages ages;
};

static enum err read_ages(struct tx *tx, void *arg)
{
    struct ages_reading *r = arg;
    return subscriber_ages(tx, r->now_ms, &r->ages);
}

static void refresh_ages(struct call *c)
{
    struct edge *edge = c->api->edge;
    struct ages_reading *r = ARENA_NEW(&c->x->arena, struct ages_reading);
    r->now_ms = clock_wall_ms(c->api->clock);
    if (db_read(c->api->db, read_ages, r, NULL) != OK)
        return; /* the ages of before are shown; that the store does not answer shows elsewhere */
    pthread_mutex_lock(&edge->ages_lock);
    edge->ages = r->ages;
    edge->ages_at_us = clock_mono_us(c->api->clock);
    pthread_mutex_unlock(&edge->ages_lock);
}

HANDLER(metrics_show)
{
    (void)tx;
    if (c->api->views->remote && !c->blocking)
        return ERR_NEEDS_TRUTH; /* their numbers are with another server */
    if (!ages_will_do(c)) {
        if (!c->blocking)
            return ERR_NEEDS_TRUTH;
        refresh_ages(c);
    }
    struct snapshot s;
    take_snapshot(c->api, &c->x->arena, &s);
    struct buf *out = &c->x->out;
    c->x->content_type = STR("text/plain; version=0.0.4; charset=utf-8");
    put_head(out, "build_info", "gauge", "The version that runs.");
    buf_printf(out, "fantail_build_info{version=\"%s\"} 1\n", FANTAIL_VERSION);
    put_scalars(out, &s);
    if (c->api->cluster)
        put_cluster(out, c->api->cluster, &s.engine, &c->x->arena);
    put_lanes(out, &s);
    if (s.leads) {
        put_states(out, &s.engine.states);
        put_duplicates(out, &s.engine);
        put_cells(out, &s);
        put_deliveries(out, &s);
        put_inboxes(out, &s);
    }
    put_sequencer(out, &s.groups);
    put_ages(out, c->api->edge);
    put_answers(out, c->api->edge);
    put_times(out, c->api->edge);
    return OK;
}
