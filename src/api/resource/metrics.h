/* The numbers of this node, as one picture that /metrics and the admin API show, and the registry's
 * rows that name them (metrics_rows.c). */
#pragma once

#include "api/edge/api.h"
#include "api/edge/auth.h"
#include "api/edge/page_cache.h"
#include "api/resource/nodes.h"
#include "live/live.h"
#include "net/hub.h"
#include "ops/hot_keys.h"
#include "ops/metrics.h"

enum { NUMBER_SETS_MAX = 32 };

struct numbers {
    struct http_stats http;
    struct db_stats db;
    struct engine_stats engine;
    struct view_stats views;
    struct card_stats cards;
    struct page_cache_stats pages;
    struct invalidation_stats invalidation;
    struct auth_stats auth;
    struct hub_stats hub;
    struct live_stats live;
    struct freshness_headline headline;
    struct freshness_cell *cells;
    size_t cell_count;
    bool built; /* true, of build_info */
    int64_t started_ms;
    bool drained;
    double card_hit_rate, page_hit_rate;
    uint64_t shed, limited, repeated, guarded, reads_waiting, slow_waiting;
    struct hot_keys_look groups;
    struct metric_summary sequenced, db_write, db_checkpoint_write;
    double group_p50_ms, group_p99_ms, group_hottest;
    int64_t group_limit;
    int64_t guard_level, disk_free;
    int64_t audit_drift, audited, audited_inboxes, threshold;
    bool adaptive;
    bool node_leads, node_quarantined, db_reachable, views_trusted, bus_connected;
    uint64_t term, forwarded, forward_failed, views_lost;
    uint64_t nodes_by_state[NODE_STATES];

    struct metric_item self, states;
    struct metric_set sets[NUMBER_SETS_MAX];
    size_t set_count;
};

/* What a lane, a consumer, a route count. */
struct lane_numbers {
    struct lane_stats stats;
    bool stopped;
};
struct consumer_numbers {
    uint64_t delayed, waiting, dead;
};
struct route_numbers {
    uint64_t by_class[6];
    struct metric_summary took;
};
struct fan_out_numbers {
    struct metric_histogram took;
};
struct age_numbers {
    int64_t age_ms;
};

extern const struct metric metric_rows[];
extern const size_t metric_row_count;

/* From memory alone, but for the numbers of shared views. Parts that do not answer are zero. */
void numbers_take(struct api *api, struct arena *arena, struct numbers *out);

/* "set":{…}, and its members alone. `base`: the numbers, or what an item of the set points at. */
void numbers_write(struct json_out *j, const char *set, const void *base);
void numbers_write_members(struct json_out *j, const char *set, const void *base);
