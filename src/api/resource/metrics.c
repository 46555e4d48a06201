/* `GET /metrics`, and the picture of this node's numbers that the admin API shows, too.
 *
 * A node that does not lead has nothing to say about the engine, and views that are away have no
 * size: such sets of the registry have no items. The picture is taken once per request, on the
 * event loop, from what is in memory. The ages of the consumers outside alone come from truth: they
 * are kept for AGES_KEPT_US, and looked up on a blocking thread when that is over and the threads
 * have time; a busy server shows the ages it has. */
#include "api/resource/metrics.h"

#include "api/edge/cluster.h"
#include "api/edge/dispatcher.h"
#include "api/edge/handlers.h"
#include "api/resource/status.h"
#include "base/check.h"
#include "ops/fan_out_times.h"
#include "ops/overload_guard.h"

enum { AGES_KEPT_US = 5 * 1000 * 1000, AGES_POOL_DEPTH = 64 };

/* ---- the picture ---- */

static void add_set(struct numbers *n, const char *name, const struct metric_item *items,
                    size_t count)
{
    CHECK(n->set_count < NUMBER_SETS_MAX);
    n->sets[n->set_count++] = (struct metric_set){name, items, count};
}

static double share(uint64_t part, uint64_t rest)
{
    return part + rest ? (double)part / (double)(part + rest) : 0;
}

static struct metric_summary summary_of(const struct hist *h)
{
    return (struct metric_summary){
        .p50_s = (double)hist_quantile(h, 0.5) / 1e6,
        .p95_s = (double)hist_quantile(h, 0.95) / 1e6,
        .p99_s = (double)hist_quantile(h, 0.99) / 1e6,
        .sum_s = (double)atomic_load(&h->sum) / 1e6,
        .count = hist_count(h),
    };
}

static void take_groups(struct api *api, struct numbers *n)
{
    hot_keys_look(api->hot_groups, clock_mono_us(api->clock), &n->groups);
    n->group_p50_ms = (double)n->groups.p50_us / 1e3;
    n->group_p99_ms = (double)n->groups.p99_us / 1e3;
    n->group_hottest = n->groups.count ? n->groups.top[0].per_s : 0;
    n->group_limit = api->settings->group_rate;
    n->sequenced = (struct metric_summary){
        .p50_s = (double)n->groups.all_p50 / 1e6,
        .p95_s = -1,
        .p99_s = (double)n->groups.all_p99 / 1e6,
        .sum_s = (double)n->groups.all_sum_us / 1e6,
        .count = n->groups.all_entries,
    };
}

static void take_cluster(const struct cluster *k, struct numbers *n)
{
    n->node_leads = atomic_load(&k->leads);
    n->node_quarantined = atomic_load(&k->quarantined);
    n->term = atomic_load(&k->term);
    n->forwarded = atomic_load(&k->forwarded);
    n->forward_failed = atomic_load(&k->forward_failed);
    n->views_lost = atomic_load(&k->views_lost);
    n->db_reachable = atomic_load(&k->db_state) == PART_UP;
    n->views_trusted = atomic_load(&k->views_state) == PART_UP;
    n->bus_connected = atomic_load(&k->bus_state) == PART_UP;
}

static void add_plain_sets(struct numbers *n, bool leads, bool views_there, bool cluster)
{
    static const struct {
        const char *name;
        bool engine, views, cluster; /* only where the node leads, they answer, there are others */
    } plain[] = {
        {"process"},
        {"http"},
        {"streams"},
        {"live"},
        {"groups"},
        {"auth"},
        {"db"},
        {"overload_guard"},
        {"cards"},
        {"pages"},
        {"invalidation"},
        {"audit"},
        {"celebrity"},
        {"engine", .engine = true},
        {"duplicates", .engine = true},
        {"views", .views = true},
        {"cluster", .cluster = true},
        {"nodes", .cluster = true},
        {"leader", .engine = true, .cluster = true},
    };
    n->self = (struct metric_item){"", n};
    n->states = (struct metric_item){"", &n->engine.states};
    if (leads)
        add_set(n, "states", &n->states, 1);
    for (size_t i = 0; i < COUNT_OF(plain); i++)
        if ((leads || !plain[i].engine) && (views_there || !plain[i].views) &&
            (cluster || !plain[i].cluster))
            add_set(n, plain[i].name, &n->self, 1);
}

void numbers_take(struct api *api, struct arena *arena, struct numbers *n)
{
    *n = (struct numbers){
        .built = true,
        .started_ms = api->started_at_ms,
        .drained = engine_drained(api->engine),
        .shed = atomic_load(&api->dispatcher->shed),
        .limited = atomic_load(&api->dispatcher->limited),
        .guarded = atomic_load(&api->dispatcher->guarded),
        .repeated = atomic_load(&api->dispatcher->repeated),
        .audit_drift = atomic_load(&api->audit_drift),
        .audited = atomic_load(&api->audited),
        .audited_inboxes = atomic_load(&api->audited_inboxes),
        .threshold = celebrity_threshold(api->keeper),
        .adaptive = api->settings->celebrity_adaptive,
        .reads_waiting = pool_depth(api->pool),
    };
    for (size_t i = 0; i < SLOW_POOLS; i++)
        n->slow_waiting += pool_depth(api->slow[i]);
    bool views_there = !api->cluster || atomic_load(&api->cluster->views_state) != PART_AWAY;
    n->cells = ARENA_ARRAY(arena, struct freshness_cell, FRESHNESS_CELLS_MAX);
    freshness_look(engine_freshness(api->engine), n->cells, FRESHNESS_CELLS_MAX, &n->cell_count,
                   &n->headline);
    if (api->overload_guard) {
        n->guard_level = overload_guard_level(api->overload_guard);
        n->disk_free = atomic_load(&api->overload_guard->free_bytes);
    }
    if (api->http)
        http_server_stats(api->http, &n->http);
    db_stats(api->db, &n->db);
    if (n->db.write_us) {
        n->db_write = summary_of(n->db.write_us);
        n->db_checkpoint_write = summary_of(n->db.checkpoint_write_us);
    }
    engine_stats(api->engine, &n->engine);
    if (views_there)
        views_stats(api->views, &n->views);
    cards_stats(api->cards, &n->cards);
    n->card_hit_rate = share(n->cards.post_hits, n->cards.post_misses);
    page_cache_stats(api->pages, &n->pages);
    n->page_hit_rate = share(n->pages.hits, n->pages.misses);
    if (api->invalidation)
        invalidation_stats(api->invalidation, &n->invalidation);
    auth_stats(api->auth, &n->auth);
    if (api->live) {
        hub_stats(live_hub(api->live), &n->hub);
        live_stats(api->live, &n->live);
    }
    take_groups(api, n);
    if (api->cluster)
        take_cluster(api->cluster, n);
    add_plain_sets(n, !api->cluster || n->node_leads, views_there, api->cluster != NULL);
}

/* ---- as JSON ---- */

void numbers_write_members(struct json_out *j, const char *set, const void *base)
{
    metrics_write_members(j, metric_rows, metric_row_count, set, base);
}

void numbers_write(struct json_out *j, const char *set, const void *base)
{
    json_key(j, str_of(set));
    json_object_begin(j);
    numbers_write_members(j, set, base);
    json_object_end(j);
}

/* ---- sets with labels ---- */

static void add_nodes(struct numbers *n, struct cluster *k, struct arena *arena)
{
    size_t count;
    const struct cluster_node *nodes = nodes_list(k, arena, &count);
    for (size_t i = 0; i < count; i++)
        n->nodes_by_state[node_state(&nodes[i])]++;
}

static void add_lanes(struct numbers *n, struct arena *arena, bool leads)
{
    struct metric_item *items = ARENA_ARRAY(arena, struct metric_item, LANE_COUNT);
    struct lane_numbers *lanes = ARENA_ARRAY(arena, struct lane_numbers, LANE_COUNT);
    for (size_t i = 0; i < LANE_COUNT; i++) {
        lanes[i].stats = n->engine.lanes[i];
        lanes[i].stopped = lanes[i].stats.breaker.state != BREAKER_CLOSED;
        items[i].labels = arena_printf(arena, "lane=\"%s\"", lane_name((enum lane)i)).ptr;
        items[i].base = &lanes[i];
    }
    add_set(n, "work", items, LANE_COUNT);
    if (leads)
        add_set(n, "lanes", items, LANE_COUNT);
}

static void add_cells(struct numbers *n, struct arena *arena)
{
    struct metric_item *all = ARENA_ARRAY(arena, struct metric_item, n->cell_count);
    struct metric_item *inboxes = ARENA_ARRAY(arena, struct metric_item, n->cell_count);
    size_t of_inboxes = 0;
    for (size_t i = 0; i < n->cell_count; i++) {
        const struct freshness_cell *f = &n->cells[i];
        all[i].base = f;
        all[i].labels = arena_printf(arena, "consumer=\"%s\",type=\"%s\",lane=\"%s\"", f->consumer,
                                     f->type, f->lane)
                            .ptr;
        if (!status_is_of_inboxes(f))
            continue;
        inboxes[of_inboxes].base = f;
        inboxes[of_inboxes++].labels =
            arena_printf(arena, "consumer=\"%s\",lane=\"%s\"", f->consumer, f->lane).ptr;
    }
    add_set(n, "freshness", all, n->cell_count);
    add_set(n, "inboxes", inboxes, of_inboxes);
}

/* Sums the cells of each consumer. */
static void add_consumers(struct numbers *n, struct arena *arena)
{
    struct metric_item *items = ARENA_ARRAY(arena, struct metric_item, n->cell_count);
    struct consumer_numbers *sums = ARENA_ARRAY(arena, struct consumer_numbers, n->cell_count);
    size_t count = 0;
    for (size_t i = 0; i < n->cell_count; i++) {
        const struct freshness_cell *f = &n->cells[i];
        const char *label = arena_printf(arena, "consumer=\"%s\"", f->consumer).ptr;
        size_t k = 0;
        while (k < count && strcmp(items[k].labels, label) != 0)
            k++;
        if (k == count)
            items[count++] = (struct metric_item){label, &sums[k]};
        sums[k].delayed += f->delayed;
        sums[k].waiting += f->waiting;
        sums[k].dead += f->dead;
    }
    add_set(n, "consumers", items, count);
}

static void add_fan_outs(struct numbers *n, const struct fan_out_times *times, struct arena *arena)
{
    struct metric_item *items = ARENA_ARRAY(arena, struct metric_item, FAN_OUT_SIZES);
    struct fan_out_numbers *of = ARENA_ARRAY(arena, struct fan_out_numbers, FAN_OUT_SIZES);
    for (size_t i = 0; i < FAN_OUT_SIZES; i++) {
        const struct hist *h = fan_out_times_of(times, i);
        for (size_t k = 0; k < METRIC_BOUNDS; k++)
            of[i].took.at_most[k] = hist_count_at_most(h, (uint64_t)(metric_bounds_s[k] * 1e6));
        of[i].took.sum_s = (double)atomic_load(&h->sum) / 1e6;
        of[i].took.count = hist_count(h);
        items[i].labels = arena_printf(arena, "followers=\"%s\"", fan_out_size_name(i)).ptr;
        items[i].base = &of[i];
    }
    add_set(n, "fan_outs", items, FAN_OUT_SIZES);
}

static void add_ages(struct numbers *n, struct dispatcher *dispatcher, struct arena *arena)
{
    pthread_mutex_lock(&dispatcher->ages_lock);
    size_t count = dispatcher->ages.count;
    struct metric_item *items = ARENA_ARRAY(arena, struct metric_item, count);
    struct age_numbers *ages = ARENA_ARRAY(arena, struct age_numbers, count);
    for (size_t i = 0; i < count; i++) {
        ages[i].age_ms = dispatcher->ages.items[i].age_ms;
        items[i].labels =
            arena_printf(arena, "consumer=\"%s\"", dispatcher->ages.items[i].name).ptr;
        items[i].base = &ages[i];
    }
    pthread_mutex_unlock(&dispatcher->ages_lock);
    add_set(n, "subscribers", items, count);
}

static void add_routes(struct numbers *n, const struct dispatcher *dispatcher, struct arena *arena)
{
    size_t count = route_count + 1, timed_count = 0; /* the last one: no route */
    struct metric_item *items = ARENA_ARRAY(arena, struct metric_item, count);
    struct metric_item *timed = ARENA_ARRAY(arena, struct metric_item, count);
    struct route_numbers *of = ARENA_ARRAY(arena, struct route_numbers, count);
    for (size_t i = 0; i < count; i++) {
        for (int class = 1; class <= 5; class ++)
            of[i].by_class[class] = atomic_load(&dispatcher->routes[i].by_class[class]);
        items[i].labels =
            arena_printf(arena, "route=\"%s\"", i < route_count ? routes[i].name : "none").ptr;
        items[i].base = &of[i];
        of[i].took = summary_of(&dispatcher->routes[i].took_us);
        if (of[i].took.count > 0)
            timed[timed_count++] = items[i];
    }
    add_set(n, "routes", items, count);
    add_set(n, "timed_routes", timed, timed_count);
}

/* ---- ages of the consumers outside ---- */

/* True: they are recent, or the threads are too busy to look them up. */
static bool ages_will_do(struct call *c)
{
    struct dispatcher *dispatcher = c->api->dispatcher;
    pthread_mutex_lock(&dispatcher->ages_lock);
    int64_t at_us = dispatcher->ages_at_us;
    pthread_mutex_unlock(&dispatcher->ages_lock);
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
    struct dispatcher *dispatcher = c->api->dispatcher;
    struct ages_reading *r = ARENA_NEW(&c->x->arena, struct ages_reading);
    r->now_ms = clock_wall_ms(c->api->clock);
    if (db_read(c->api->db, read_ages, r, NULL) != OK)
        return; /* the ages of before are shown; that the store does not answer shows elsewhere */
    pthread_mutex_lock(&dispatcher->ages_lock);
    dispatcher->ages = r->ages;
    dispatcher->ages_at_us = clock_mono_us(c->api->clock);
    pthread_mutex_unlock(&dispatcher->ages_lock);
}

enum err metrics_show(struct call *c, struct tx *tx)
{
    (void)tx;
    struct api *api = c->api;
    struct arena *arena = &c->x->arena;
    if (api->views->remote && !c->blocking)
        return ERR_NEEDS_TRUTH; /* their numbers are with another server */
    if (!ages_will_do(c)) {
        if (!c->blocking)
            return ERR_NEEDS_TRUTH;
        refresh_ages(c);
    }
    struct numbers *n = ARENA_NEW(arena, struct numbers);
    bool leads = !api->cluster || atomic_load(&api->cluster->leads);
    numbers_take(api, arena, n);
    if (api->cluster)
        add_nodes(n, api->cluster, arena);
    add_lanes(n, arena, leads);
    if (leads) {
        add_cells(n, arena);
        add_consumers(n, arena);
        if (api->fan_outs)
            add_fan_outs(n, api->fan_outs, arena);
    }
    add_ages(n, api->dispatcher, arena);
    add_routes(n, api->dispatcher, arena);
    c->x->content_type = STR("text/plain; version=0.0.4; charset=utf-8");
    metrics_write_text(&c->x->out, metric_rows, metric_row_count, n->sets, n->set_count);
    return OK;
}
