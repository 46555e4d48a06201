/* `GET /v1/admin/status`: everything at a glance, and a lane, which another answer
 * shows, too. All of it is in memory: it never waits for truth. Only the leader's memory knows the
 * engine: other nodes ask it, and show null when it does not answer soon. */
#include "api/resource/status.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "api/edge/cluster.h"
#include "api/edge/dispatcher.h"
#include "api/edge/forward.h"
#include "api/edge/handlers.h"
#include "api/edge/schemas.h"
#include "api/render/render.h"
#include "api/resource/metrics.h"
#include "base/check.h"
#include "ops/overload_guard.h"

enum { ENGINE_ANSWER_MAX = 256 * 1024, ENGINE_WAIT_US = 2 * 1000 * 1000 };

static void write_breaker(struct json_out *j, const struct breaker_look *b)
{
    static const char *const states[] = {
        [BREAKER_CLOSED] = "running", [BREAKER_OPEN] = "stopped", [BREAKER_BY_HAND] = "by hand"};
    json_key(j, STR("breaker"));
    json_object_begin(j);
    json_put(j, "state", str, str_of(states[b->state]));
    render_put_text(j, "reason", b->state == BREAKER_OPEN ? err_name(b->reason) : NULL);
    render_put_time(j, "since", b->state == BREAKER_CLOSED ? 0 : b->since_ms);
    json_put(j, "failed", u64, b->failed);
    json_put(j, "of", u64, b->total);
    json_put(j, "opened", u64, b->opened);
    json_object_end(j);
}

void status_write_lane(struct json_out *j, const struct lane_stats *l)
{
    struct lane_numbers numbers = {.stats = *l};
    json_object_begin(j);
    json_put(j, "name", str, str_of(l->name));
    numbers_write_members(j, "lanes", &numbers);
    write_breaker(j, &l->breaker);
    json_object_end(j);
}

/* ---- the whole ---- */

static void write_engine(struct json_out *j, const struct numbers *n)
{
    json_key(j, STR("engine"));
    json_object_begin(j);
    numbers_write_members(j, "engine", n);
    numbers_write(j, "states", &n->engine.states);
    numbers_write(j, "duplicates", n);
    json_key(j, STR("lanes"));
    json_array_begin(j);
    for (size_t i = 0; i < LANE_COUNT; i++)
        status_write_lane(j, &n->engine.lanes[i]);
    json_array_end(j);
    json_object_end(j);
}

/* ---- groups ---- */

static void write_hot(struct json_out *j, const struct hot_keys_look *l)
{
    json_array_begin(j);
    for (size_t i = 0; i < l->count; i++) {
        json_object_begin(j);
        json_put(j, "group_id", id, l->top[i].key);
        json_put(j, "per_second", f64, l->top[i].per_s);
        json_put(j, "entries", u64, l->top[i].entries);
        json_put(j, "at_most", u64, l->top[i].at_most);
        json_object_end(j);
    }
    json_array_end(j);
}

/* Stage one, of this node: how fast groups' entries get their numbers. */
static void write_groups(struct json_out *j, const struct numbers *n)
{
    json_key(j, STR("groups"));
    json_object_begin(j);
    numbers_write_members(j, "groups", n);
    json_key(j, STR("hot"));
    write_hot(j, &n->groups);
    json_object_end(j);
}

static struct numbers *take_numbers(struct call *c)
{
    struct numbers *n = ARENA_NEW(&c->x->arena, struct numbers);
    numbers_take(c->api, &c->x->arena, n);
    return n;
}

enum err admin_groups_hot(struct call *c, struct tx *tx)
{
    (void)tx;
    struct json_out *j = &c->json;
    const struct numbers *n = take_numbers(c);
    json_object_begin(j);
    numbers_write_members(j, "groups", n);
    json_key(j, STR("items"));
    write_hot(j, &n->groups);
    json_object_end(j);
    return OK;
}

bool status_is_of_inboxes(const struct freshness_cell *f)
{
    return strcmp(f->consumer, "inboxes") == 0 || strcmp(f->consumer, "mentions") == 0;
}

/* Stage two, of the engine: how late inboxes are, and what could not be written, by lane. That
 * numbers are given quickly says nothing of this, and the other way round. */
static void write_delivery(struct json_out *j, const struct numbers *n)
{
    int64_t oldest_ms = 0;
    uint64_t failed = 0;
    json_key(j, STR("inboxes"));
    json_object_begin(j);
    json_key(j, STR("lanes"));
    json_array_begin(j);
    for (size_t i = 0; i < n->cell_count; i++) {
        const struct freshness_cell *f = &n->cells[i];
        if (!status_is_of_inboxes(f))
            continue;
        oldest_ms = f->oldest_age_ms > oldest_ms ? f->oldest_age_ms : oldest_ms;
        failed += f->failed;
        json_object_begin(j);
        json_put(j, "consumer", str, str_of(f->consumer));
        json_put(j, "lane", str, str_of(f->lane));
        json_put(j, "verdict", str, str_of(verdict_name(f->verdict)));
        numbers_write_members(j, "inboxes", f);
        json_put(j, "retried", u64, f->delayed + f->waiting);
        json_object_end(j);
    }
    json_array_end(j);
    json_put(j, "lag_ms", i64, oldest_ms);
    json_put(j, "failed", u64, failed);
    json_object_end(j);
}

static void write_own_engine(struct json_out *j, const struct numbers *n)
{
    render_headline(j, &n->headline);
    write_engine(j, n);
    write_delivery(j, n);
}

enum err admin_engine(struct call *c, struct tx *tx)
{
    (void)tx;
    json_object_begin(&c->json);
    write_own_engine(&c->json, take_numbers(c));
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
        [PART_UP] = "up", [PART_SUSPECT] = "suspect", [PART_AWAY] = "away"};
    return state >= PART_UP && state <= PART_AWAY ? names[state] : "away";
}

static void write_part(struct json_out *j, const char *name, const char *kind, int state)
{
    json_key(j, str_of(name));
    json_object_begin(j);
    render_put_text(j, "kind", kind);
    json_put(j, "state", str, str_of(part_state_name(state)));
    json_object_end(j);
}

static void write_cluster(struct json_out *j, struct api *api, const struct numbers *n)
{
    struct cluster *k = api->cluster;
    json_key(j, STR("cluster"));
    if (!k) {
        json_nil(j);
        return;
    }
    char address[CLUSTER_ADDRESS_MAX] = "", roles[ROLES_TEXT_MAX];
    uint32_t leader = 0;
    k->leader(k->ctx, address, &leader);
    roles_format(k->roles, roles);
    json_object_begin(j);
    json_put(j, "node", u64, k->number);
    json_put(j, "roles", str, str_of(roles));
    numbers_write_members(j, "cluster", n);
    json_put_if(address[0], j, "leader", u64, leader);
    json_key(j, STR("parts"));
    json_object_begin(j);
    write_part(j, "db", k->db_kind, atomic_load(&k->db_state));
    write_part(j, "views", k->views_kind, atomic_load(&k->views_state));
    write_part(j, "bus", k->bus_kind, atomic_load(&k->bus_state));
    json_object_end(j);
    json_object_end(j);
}

/* The sets that are objects of plain numbers. */
static const char *const sets[] = {"process",      "views", "cards", "pages",
                                   "invalidation", "db",    "http",  "streams",
                                   "live",         "auth",  "audit", "celebrity"};

void status_write_schema(struct json_out *j)
{
    static const char *const larger[] = {"cluster", "engine", "overload_guard", "groups"};
    json_object_begin(j);
    json_put(j, "type", str, STR("object"));
    json_key(j, STR("properties"));
    json_object_begin(j);
    for (size_t i = 0; i < COUNT_OF(larger) + COUNT_OF(sets); i++) {
        const char *set = i < COUNT_OF(larger) ? larger[i] : sets[i - COUNT_OF(larger)];
        json_key(j, str_of(set));
        metrics_write_schema(j, metric_rows, metric_row_count, set);
    }
    json_object_end(j);
    json_object_end(j);
}

enum err admin_status(struct call *c, struct tx *tx)
{
    (void)tx;
    struct api *api = c->api;
    const struct numbers *n = take_numbers(c);
    struct json_out *j = &c->json;
    json_object_begin(j);
    json_put(j, "version", str, STR(FANTAIL_VERSION));
    json_put(j, "ready", bool, atomic_load(&api->ready));
    json_put(j, "started_at", time, api->started_at_ms);
    json_put(j, "uptime_ms", i64, clock_wall_ms(api->clock) - api->started_at_ms);
    write_cluster(j, api, n);
    if (api->cluster && !n->node_leads)
        write_leaders_engine(c);
    else
        write_own_engine(j, n);
    render_overload_guard(j, api->overload_guard);
    write_groups(j, n);
    for (size_t i = 0; i < COUNT_OF(sets); i++)
        numbers_write(j, sets[i], n);
    json_object_end(j);
    return OK;
}
