/* `GET /v1/admin/status`: everything at a glance, and the pieces of it that other answers show,
 * too. All of it is in memory: it never waits for truth. Only the leader's memory knows the engine:
 * other nodes ask it, and show null when it does not answer soon. */
#include "api/status.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "api/auth.h"
#include "api/cluster.h"
#include "api/edge.h"
#include "api/forward.h"
#include "api/handlers.h"
#include "api/hot_groups.h"
#include "api/page_cache.h"
#include "base/check.h"
#include "ops/brake.h"

enum { ENGINE_ANSWER_MAX = 256 * 1024, ENGINE_WAIT_US = 2 * 1000 * 1000 };

/* ---- pieces ---- */

void status_put_text(struct json_out *j, const char *key, const char *text_or_null)
{
    json_key(j, str_of(key));
    if (text_or_null)
        json_str(j, str_of(text_or_null));
    else
        json_nil(j);
}

void status_put_stored(struct json_out *j, const char *key, struct str bytes)
{
    json_key(j, str_of(key));
    if (bytes.ptr && str_is_utf8(bytes))
        json_str(j, bytes);
    else
        json_nil(j);
}

void status_put_time(struct json_out *j, const char *key, int64_t ms_or_0)
{
    json_key(j, str_of(key));
    if (ms_or_0)
        json_time(j, ms_or_0);
    else
        json_nil(j);
}

void status_put_id(struct json_out *j, const char *key, uint64_t id_or_0)
{
    json_key(j, str_of(key));
    if (id_or_0)
        json_id(j, id_or_0);
    else
        json_nil(j);
}

void status_span_text(int64_t ms, char out[32])
{
    int64_t s = ms / 1000;
    if (ms < 1000)
        snprintf(out, 32, "%lld ms", (long long)ms);
    else if (s < 120)
        snprintf(out, 32, "%lld s", (long long)s);
    else if (s < 7200)
        snprintf(out, 32, "%lld min", (long long)(s / 60));
    else if (s < 172800)
        snprintf(out, 32, "%lld h", (long long)(s / 3600));
    else
        snprintf(out, 32, "%lld days", (long long)(s / 86400));
}

static void write_breaker(struct json_out *j, const struct breaker_look *b)
{
    static const char *const states[] = {
        [BREAKER_CLOSED] = "running", [BREAKER_OPEN] = "stopped", [BREAKER_BY_HAND] = "by hand"};
    json_key(j, STR("breaker"));
    json_object_begin(j);
    json_put(j, "state", str, str_of(states[b->state]));
    status_put_text(j, "reason", b->state == BREAKER_OPEN ? err_name(b->reason) : NULL);
    status_put_time(j, "since", b->state == BREAKER_CLOSED ? 0 : b->since_ms);
    json_put(j, "failed", u64, b->failed);
    json_put(j, "of", u64, b->total);
    json_put(j, "opened", u64, b->opened);
    json_object_end(j);
}

void status_write_lane(struct json_out *j, const struct lane_stats *l)
{
    json_object_begin(j);
    json_put(j, "name", str, str_of(l->name));
    json_put(j, "backlog", u64, l->backlog);
    json_put(j, "in_flight", u64, l->in_flight);
    json_put(j, "delivered", u64, l->delivered);
    json_put(j, "repeated", u64, l->repeated);
    json_put(j, "failed", u64, l->failed);
    json_put(j, "skipped", u64, l->skipped);
    json_put(j, "oldest_age_ms", i64, l->oldest_age_ms);
    json_put(j, "concurrency", u64, l->concurrency);
    json_put(j, "rate", u64, l->rate);
    write_breaker(j, &l->breaker);
    json_object_end(j);
}

void status_write_states(struct json_out *j, const struct event_states *s)
{
    json_key(j, STR("states"));
    json_object_begin(j);
    json_put(j, "pending", u64, s->pending);
    json_put(j, "published", u64, s->published);
    json_put(j, "expanded", u64, s->expanded);
    json_put(j, "delayed", u64, s->delayed);
    json_put(j, "waiting", u64, s->waiting);
    json_put(j, "dead", u64, s->dead);
    json_put(j, "parked", u64, s->parked);
    json_put(j, "dropped", u64, s->dropped);
    json_put(j, "discarded", u64, s->discarded);
    json_put(j, "settled", u64, s->settled);
    json_put(j, "archived", u64, s->archived);
    json_object_end(j);
}

void status_write_brake(struct json_out *j, struct api *api)
{
    int level = api->brake ? brake_level(api->brake) : 0;
    char why[120] = "";
    if (level > 0)
        brake_why(api->brake, why);
    json_key(j, STR("brake"));
    json_object_begin(j);
    json_put(j, "level", i64, level);
    status_put_text(j, "why", level > 0 ? why : NULL);
    json_key(j, STR("free_bytes"));
    if (api->brake)
        json_i64(j, atomic_load(&api->brake->free_bytes));
    else
        json_nil(j);
    json_object_end(j);
}

void status_write_headline(struct json_out *j, const struct freshness_headline *h)
{
    json_key(j, STR("headline"));
    json_object_begin(j);
    json_put(j, "worst_ms", i64, h->worst_ms);
    status_put_text(j, "consumer", h->consumer);
    status_put_text(j, "type", h->type);
    status_put_text(j, "lane", h->lane);
    status_put_text(j, "late_means", h->late_means);
    json_put(j, "green", u64, h->green);
    json_put(j, "late", u64, h->late);
    json_put(j, "behind", u64, h->behind);
    json_put(j, "stopped", u64, h->stopped);
    json_put(j, "dead", u64, h->dead);
    json_object_end(j);
}

/* ---- the whole ---- */

static void write_engine(struct json_out *j, struct api *api)
{
    struct engine_stats s;
    engine_stats(api->engine, &s);
    json_key(j, STR("engine"));
    json_object_begin(j);
    json_put(j, "drained", bool, engine_drained(api->engine));
    json_put(j, "settled_through", id, s.settled_through);
    json_put(j, "events_taken", u64, s.events_taken);
    json_put(j, "events_done", u64, s.events_done);
    json_put(j, "undone", u64, s.undone);
    json_put(j, "oldest_undone_ms", i64, s.oldest_undone_ms);
    status_write_states(j, &s.states);
    json_put(j, "blocked_keys", u64, s.blocked_keys);
    json_key(j, STR("duplicates"));
    json_object_begin(j);
    json_put(j, "bus", u64, s.bus_duplicates);
    json_put(j, "inbox", u64, s.inbox_duplicates);
    json_put(j, "unknown", u64, s.inbox_unknown);
    json_object_end(j);
    json_put(j, "resent", u64, s.resent);
    json_key(j, STR("lanes"));
    json_array_begin(j);
    for (size_t i = 0; i < LANE_COUNT; i++)
        status_write_lane(j, &s.lanes[i]);
    json_array_end(j);
    json_object_end(j);
}

static void write_views(struct json_out *j, struct api *api)
{
    struct view_stats s;
    views_stats(api->views, &s);
    json_key(j, STR("views"));
    json_object_begin(j);
    json_put(j, "accounts", u64, s.accounts);
    json_put(j, "follows", u64, s.follows);
    json_put(j, "timelines", u64, s.timelines);
    json_put(j, "entries", u64, s.entries);
    json_put(j, "dropped", u64, s.dropped);
    json_put(j, "pull_lists", u64, s.pull_lists);
    json_put(j, "groups", u64, s.groups);
    json_put(j, "memberships", u64, s.memberships);
    json_put(j, "inboxes", u64, s.inboxes);
    json_put(j, "inbox_entries", u64, s.inbox_entries);
    json_put(j, "bytes", u64, s.bytes);
    json_put(j, "saved_position", id, s.saved_position);
    json_key(j, STR("saved_at"));
    if (s.saved_at_ms)
        json_time(j, s.saved_at_ms);
    else
        json_nil(j);
    json_put(j, "save_took_ms", i64, s.save_took_ms);
    json_put(j, "save_bytes", i64, s.save_bytes);
    json_object_end(j);
}

static void write_cards(struct json_out *j, struct api *api)
{
    struct card_stats s;
    cards_stats(api->cards, &s);
    uint64_t asked = s.post_hits + s.post_misses;
    json_key(j, STR("cards"));
    json_object_begin(j);
    json_put(j, "post_hits", u64, s.post_hits);
    json_put(j, "post_misses", u64, s.post_misses);
    json_put(j, "hit_rate", f64, asked ? (double)s.post_hits / (double)asked : 0.0);
    json_put(j, "posts", u64, s.posts);
    json_put(j, "accounts", u64, s.accounts);
    json_put(j, "like_sets", u64, s.like_sets);
    json_put(j, "tombstones", u64, s.tombstones);
    json_put(j, "bytes", u64, s.bytes);
    json_put(j, "bytes_max", u64, s.bytes_max);
    json_object_end(j);
}

static void write_pages(struct json_out *j, struct api *api)
{
    struct page_cache_stats s;
    page_cache_stats(api->pages, &s);
    uint64_t asked = s.hits + s.misses;
    json_key(j, STR("pages"));
    json_object_begin(j);
    json_put(j, "hits", u64, s.hits);
    json_put(j, "misses", u64, s.misses);
    json_put(j, "hit_rate", f64, asked ? (double)s.hits / (double)asked : 0.0);
    json_put(j, "pages", u64, s.pages);
    json_put(j, "bytes", u64, s.bytes);
    json_put(j, "bytes_max", u64, s.bytes_max);
    json_object_end(j);
}

static void write_db(struct json_out *j, struct api *api)
{
    struct db_stats s;
    db_stats(api->db, &s);
    json_key(j, STR("db"));
    json_object_begin(j);
    json_put(j, "commits", u64, s.commits);
    json_put(j, "transactions", u64, s.transactions);
    json_put(j, "failures", u64, s.failures);
    json_put(j, "queue_depth", u64, s.queue_depth);
    json_put(j, "queue_limit", u64, s.queue_limit);
    json_put(j, "wal_bytes", u64, s.wal_bytes);
    json_put(j, "file_bytes", u64, s.file_bytes);
    json_put(j, "full", bool, s.full);
    json_object_end(j);
}

static void write_http(struct json_out *j, struct api *api)
{
    struct http_stats s = {0};
    if (api->http)
        http_server_stats(api->http, &s);
    json_key(j, STR("http"));
    json_object_begin(j);
    json_put(j, "connections", u64, s.connections);
    json_put(j, "accepted", u64, s.accepted);
    json_put(j, "refused", u64, s.refused);
    json_put(j, "requests", u64, s.requests);
    json_put(j, "bad_requests", u64, s.bad_requests);
    json_put(j, "bytes_in", u64, s.bytes_in);
    json_put(j, "bytes_out", u64, s.bytes_out);
    json_put(j, "timeouts", u64, s.timeouts);
    json_put(j, "shed", u64, atomic_load(&api->edge->shed));
    json_put(j, "limited", u64, atomic_load(&api->edge->limited));
    json_put(j, "braked", u64, atomic_load(&api->edge->braked));
    json_put(j, "replayed", u64, atomic_load(&api->edge->replayed));
    json_put(j, "reads_waiting", u64, pool_depth(api->pool));
    json_put(j, "slow_waiting", u64, pool_depth(api->slow));
    json_object_end(j);
}

/* ---- groups ---- */

static void write_hot(struct json_out *j, const struct hot_groups_look *l)
{
    json_array_begin(j);
    for (size_t i = 0; i < l->count; i++) {
        json_object_begin(j);
        json_put(j, "group_id", id, l->top[i].group);
        json_put(j, "per_second", f64, l->top[i].per_s);
        json_put(j, "entries", u64, l->top[i].entries);
        json_put(j, "at_most", u64, l->top[i].at_most);
        json_object_end(j);
    }
    json_array_end(j);
}

/* Stage one, of this node: how fast groups' entries get their numbers. */
static void write_sequencer(struct json_out *j, struct api *api, const struct hot_groups_look *l)
{
    json_put(j, "window_s", f64, l->window_s);
    json_put(j, "per_second", f64, l->per_s);
    json_put(j, "entries", u64, l->entries);
    json_put(j, "lag_p50_ms", f64, (double)l->p50_us / 1e3);
    json_put(j, "lag_p99_ms", f64, (double)l->p99_us / 1e3);
    json_put(j, "limit_per_second", i64, api->settings->group_rate);
    json_put(j, "limited", u64, atomic_load(&api->edge->group_limited));
}

static void write_groups(struct json_out *j, struct api *api)
{
    struct hot_groups_look l;
    hot_groups_look(api->edge->groups, clock_mono_us(api->clock), &l);
    json_key(j, STR("groups"));
    json_object_begin(j);
    write_sequencer(j, api, &l);
    json_key(j, STR("hot"));
    write_hot(j, &l);
    json_object_end(j);
}

HANDLER(admin_groups_hot)
{
    (void)tx;
    struct json_out *j = &c->json;
    struct hot_groups_look l;
    hot_groups_look(c->api->edge->groups, clock_mono_us(c->api->clock), &l);
    json_object_begin(j);
    write_sequencer(j, c->api, &l);
    json_key(j, STR("items"));
    write_hot(j, &l);
    json_object_end(j);
    return OK;
}

bool status_is_of_inboxes(const struct freshness_cell *f)
{
    return strcmp(f->consumer, "inboxes") == 0 || strcmp(f->consumer, "mentions") == 0;
}

/* Stage two, of the engine: how late inboxes are, and what could not be written, by lane. That
 * numbers are given quickly says nothing of this, and the other way round. */
static void write_delivery(struct json_out *j, struct api *api)
{
    struct freshness_cell *cells = calloc(FRESHNESS_CELLS_MAX, sizeof *cells);
    size_t n = 0;
    int64_t oldest_ms = 0;
    uint64_t failed = 0;
    CHECK(cells);
    freshness_look(engine_freshness(api->engine), cells, FRESHNESS_CELLS_MAX, &n, NULL);
    json_key(j, STR("inboxes"));
    json_object_begin(j);
    json_key(j, STR("lanes"));
    json_array_begin(j);
    for (size_t i = 0; i < n; i++) {
        const struct freshness_cell *f = &cells[i];
        if (!status_is_of_inboxes(f))
            continue;
        oldest_ms = f->oldest_age_ms > oldest_ms ? f->oldest_age_ms : oldest_ms;
        failed += f->failed;
        json_object_begin(j);
        json_put(j, "consumer", str, str_of(f->consumer));
        json_put(j, "lane", str, str_of(f->lane));
        json_put(j, "verdict", str, str_of(verdict_name(f->verdict)));
        json_put(j, "lag_ms", i64, f->oldest_age_ms);
        json_put(j, "backlog", u64, f->backlog);
        json_put(j, "failed", u64, f->failed);
        json_put(j, "retried", u64, f->delayed + f->waiting);
        json_put(j, "dead", u64, f->dead);
        json_object_end(j);
    }
    json_array_end(j);
    json_put(j, "lag_ms", i64, oldest_ms);
    json_put(j, "failed", u64, failed);
    json_object_end(j);
    free(cells);
}

static void write_own_engine(struct json_out *j, struct api *api)
{
    size_t cells;
    struct freshness_headline headline;
    freshness_look(engine_freshness(api->engine), NULL, 0, &cells, &headline);
    status_write_headline(j, &headline);
    write_engine(j, api);
    write_delivery(j, api);
}

HANDLER(admin_engine)
{
    (void)tx;
    json_object_begin(&c->json);
    write_own_engine(&c->json, c->api);
    json_object_end(&c->json);
    return OK;
}

json_t *status_ask_engine(struct call *c)
{
    struct forward_question q = {
        .method = HTTP_M_GET,
        .target = STR("/v1/admin/engine"),
        .caller = c->caller,
        .deadline_us = clock_mono_us(c->api->clock) + ENGINE_WAIT_US,
    };
    struct forward_answer a;
    struct buf body;
    char why[DETAIL_MAX];
    json_t *answer = NULL;
    buf_init(&body, ENGINE_ANSWER_MAX);
    if (forward_ask(c->api, &q, &a, &body, why) == OK && a.status == 200)
        answer = json_loadb(body.ptr, body.len, 0, NULL);
    buf_done(&body);
    return answer;
}

static void write_leaders_engine(struct call *c)
{
    static const char *const parts[] = {"headline", "engine", "inboxes"};
    json_t *answer = status_ask_engine(c);
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
        json_t *part = json_object_get(answer, parts[i]);
        char *text = part ? json_dumps(part, JSON_COMPACT) : NULL;
        json_key(&c->json, str_of(parts[i]));
        if (text)
            json_raw(&c->json, str_of(text));
        else
            json_nil(&c->json);
        free(text);
    }
    json_decref(answer);
}

const char *part_state_name(int state)
{
    static const char *const names[] = {
        [PART_UP] = "up", [PART_DOUBTED] = "doubted", [PART_AWAY] = "away"};
    return state >= PART_UP && state <= PART_AWAY ? names[state] : "away";
}

static void write_part(struct json_out *j, const char *name, const char *kind, int state)
{
    json_key(j, str_of(name));
    json_object_begin(j);
    status_put_text(j, "kind", kind);
    json_put(j, "state", str, str_of(part_state_name(state)));
    json_object_end(j);
}

static void write_cluster(struct json_out *j, struct api *api)
{
    struct cluster *k = api->cluster;
    json_key(j, STR("cluster"));
    if (!k) {
        json_nil(j);
        return;
    }
    char address[CLUSTER_ADDRESS_MAX] = "", roles[64];
    uint32_t leader = 0;
    k->leader(k->ctx, address, &leader);
    roles_format(k->roles, roles);
    json_object_begin(j);
    json_put(j, "node", u64, k->number);
    json_put(j, "roles", str, str_of(roles));
    json_put(j, "leads", bool, atomic_load(&k->leads));
    json_put(j, "aside", bool, atomic_load(&k->aside));
    json_put(j, "term", u64, atomic_load(&k->term));
    json_key(j, STR("leader"));
    if (address[0])
        json_u64(j, leader);
    else
        json_nil(j);
    json_put(j, "forwarded", u64, atomic_load(&k->forwarded));
    json_put(j, "forward_failed", u64, atomic_load(&k->forward_failed));
    json_put(j, "views_lost", u64, atomic_load(&k->views_lost));
    json_key(j, STR("parts"));
    json_object_begin(j);
    write_part(j, "db", k->db_kind, atomic_load(&k->db_state));
    write_part(j, "views", k->views_kind, atomic_load(&k->views_state));
    write_part(j, "bus", k->bus_kind, atomic_load(&k->bus_state));
    json_object_end(j);
    json_object_end(j);
}

HANDLER(admin_status)
{
    (void)tx;
    struct api *api = c->api;
    struct json_out *j = &c->json;
    json_object_begin(j);
    json_put(j, "version", str, STR(FANTAIL_VERSION));
    json_put(j, "ready", bool, atomic_load(&api->ready));
    json_put(j, "started_at", time, api->started_at_ms);
    json_put(j, "uptime_ms", i64, clock_wall_ms(api->clock) - api->started_at_ms);
    write_cluster(j, api);
    if (api->cluster && !atomic_load(&api->cluster->leads))
        write_leaders_engine(c);
    else
        write_own_engine(j, api);
    status_write_brake(j, api);
    write_groups(j, api);
    write_views(j, api);
    write_cards(j, api);
    write_pages(j, api);
    write_db(j, api);
    write_http(j, api);
    struct auth_stats auth;
    auth_stats(api->auth, &auth);
    json_key(j, STR("auth"));
    json_object_begin(j);
    json_put(j, "hits", u64, auth.hits);
    json_put(j, "misses", u64, auth.misses);
    json_put(j, "refused", u64, auth.refused);
    json_object_end(j);
    json_key(j, STR("audit"));
    json_object_begin(j);
    json_put(j, "feeds", i64, atomic_load(&api->audited));
    json_put(j, "inboxes", i64, atomic_load(&api->audited_inboxes));
    json_put(j, "drift", i64, atomic_load(&api->audit_drift));
    json_object_end(j);
    json_key(j, STR("celebrity"));
    json_object_begin(j);
    json_put(j, "threshold", i64, celebrity_threshold(api->keeper));
    json_put(j, "adaptive", bool, api->settings->celebrity_adaptive);
    json_object_end(j);
    json_object_end(j);
    return OK;
}
