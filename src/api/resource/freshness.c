/* Which consumers are late, by how much, whether they catch up, and what people notice.
 *
 * `freshness` is the table of cells as the engine keeps it. `health` reads the same table and the
 * delivery store and answers in sentences, each with the next step for an operator. It always
 * answers 200: it reports on deliveries, not on whether the server is up. */
#include <stdio.h>

#include "api/edge/handlers.h"
#include "api/render/render.h"
#include "api/resource/metrics.h"
#include "api/resource/status.h"
#include "ops/overload_guard.h"

enum { SENTENCE_MAX = 400 };

/* ---- the table ---- */

static void write_cell(struct json_out *j, const struct freshness_cell *f)
{
    json_object_begin(j);
    json_put(j, "consumer", str, str_of(f->consumer));
    json_put(j, "type", str, str_of(f->type));
    json_put(j, "lane", str, str_of(f->lane));
    json_put(j, "verdict", str, str_of(verdict_name(f->verdict)));
    json_put(j, "oldest_age_ms", i64, f->oldest_age_ms);
    json_put(j, "target_ms", i64, f->target_ms);
    json_put(j, "backlog", u64, f->backlog);
    json_put(j, "delayed", u64, f->delayed);
    json_put(j, "waiting", u64, f->waiting);
    json_put(j, "dead", u64, f->dead);
    json_put(j, "failed", u64, f->failed);
    json_put(j, "in_per_second", f64, f->in_per_s);
    json_put(j, "out_per_second", f64, f->out_per_s);
    json_put(j, "net_per_second", f64, f->net_per_s);
    json_put_if(f->catch_up_ms >= 0, j, "catch_up_ms", i64, f->catch_up_ms);
    json_put(j, "visible", bool, f->visible);
    render_put_text(j, "late_means", f->late_means);
    json_object_end(j);
}

static struct freshness_cell *look(struct call *c, size_t *n, struct freshness_headline *headline)
{
    struct freshness_cell *cells =
        ARENA_ARRAY(&c->x->arena, struct freshness_cell, FRESHNESS_CELLS_MAX);
    freshness_look(engine_freshness(c->api->engine), cells, FRESHNESS_CELLS_MAX, n, headline);
    return cells;
}

enum err admin_freshness(struct call *c, struct tx *tx)
{
    (void)tx;
    struct freshness_headline headline;
    size_t n = 0;
    const struct freshness_cell *cells = look(c, &n, &headline);
    json_object_begin(&c->json);
    render_headline(&c->json, &headline);
    json_key(&c->json, STR("cells"));
    json_array_begin(&c->json);
    for (size_t i = 0; i < n; i++)
        write_cell(&c->json, &cells[i]);
    json_array_end(&c->json);
    json_object_end(&c->json);
    return OK;
}

/* ---- in words ---- */

static void write_stale(struct json_out *j, const char *says, const char *verdict,
                        const struct freshness_cell *f, uint64_t count)
{
    json_object_begin(j);
    json_put(j, "says", str, str_of(says));
    json_put(j, "verdict", str, str_of(verdict));
    render_put_text(j, "consumer", f ? f->consumer : NULL);
    render_put_text(j, "type", f ? f->type : NULL);
    render_put_text(j, "lane", f ? f->lane : NULL);
    json_put(j, "count", u64, count);
    json_put(j, "age_ms", i64, f ? f->oldest_age_ms : 0);
    json_put(j, "target_ms", i64, f ? f->target_ms : 0);
    json_object_end(j);
}

static void tell_cell(struct json_out *j, const struct freshness_cell *f)
{
    char text[SENTENCE_MAX], age[32], target[32], catch_up[32];
    char outlook[120] = "it does not catch up at this rate";
    uint64_t undone = f->backlog + f->delayed + f->waiting;
    render_span_text(f->oldest_age_ms, age);
    render_span_text(f->target_ms, target);
    if (f->verdict == FRESH_STOPPED) {
        snprintf(outlook, sizeof outlook, "its lane is stopped");
    } else if (f->backlog == 0 && f->delayed == 0 && f->waiting > 0) {
        snprintf(outlook, sizeof outlook,
                 "it waits behind a dead letter: see 'fantail dead list --state waiting'");
    } else if (f->backlog == 0) {
        snprintf(outlook, sizeof outlook,
                 "deliveries failed and are tried again later: see 'fantail dead list --state "
                 "delayed'");
    } else if (f->catch_up_ms >= 0) {
        render_span_text(f->catch_up_ms, catch_up);
        snprintf(outlook, sizeof outlook, "it catches up in about %s", catch_up);
    }
    snprintf(text, sizeof text,
             "%s of %s in lane %s: the oldest of %llu is %s old, target %s; %s; %s", f->consumer,
             f->type, f->lane, (unsigned long long)undone, age, target, outlook,
             f->late_means ? f->late_means : "no one notices");
    write_stale(j, text, verdict_name(f->verdict), f, undone);
}

static void tell_deliveries(struct json_out *j, const struct event_states *s)
{
    char text[SENTENCE_MAX];
    if (s->dead) {
        snprintf(text, sizeof text,
                 "%llu dead letter%s for a decision: see 'fantail dead groups', then redrive or "
                 "discard",
                 (unsigned long long)s->dead, s->dead == 1 ? " waits" : "s wait");
        write_stale(j, text, "dead", NULL, s->dead);
    }
    if (s->parked) {
        snprintf(text, sizeof text,
                 "%llu event%s parked, as this version cannot read %s: after an upgrade, "
                 "'fantail dead release --all'",
                 (unsigned long long)s->parked, s->parked == 1 ? " is" : "s are",
                 s->parked == 1 ? "it" : "them");
        write_stale(j, text, "parked", NULL, s->parked);
    }
}

static void tell_audit(struct json_out *j, int64_t drift)
{
    char text[SENTENCE_MAX];
    if (drift == 0)
        return;
    snprintf(text, sizeof text, "%lld feed%s or inbox%s from truth: run 'fantail check --repair'",
             (long long)drift, drift == 1 ? "" : "s", drift == 1 ? " differs" : "es differ");
    write_stale(j, text, "drift", NULL, (uint64_t)drift);
}

static void write_stopped_lanes(struct json_out *j, const struct engine_stats *s, int64_t now_ms)
{
    json_key(j, STR("stopped_lanes"));
    json_array_begin(j);
    for (size_t i = 0; i < LANE_COUNT; i++) {
        const struct breaker_look *b = &s->lanes[i].breaker;
        if (b->state == BREAKER_CLOSED)
            continue;
        char text[SENTENCE_MAX], since[32];
        const char *lane = lane_name((enum lane)i);
        render_span_text(now_ms - b->since_ms, since);
        if (b->state == BREAKER_BY_HAND)
            snprintf(text, sizeof text, "lane %s was stopped by hand %s ago", lane, since);
        else
            snprintf(
                text, sizeof text,
                "lane %s stopped by itself %s ago: %u of %u deliveries failed with %s; it tries "
                "one now and then and goes on by itself when that succeeds",
                lane, since, b->failed, b->total, err_name(b->reason));
        json_object_begin(j);
        json_put(j, "lane", str, str_of(lane));
        json_put(j, "says", str, str_of(text));
        json_put(j, "by_hand", bool, b->state == BREAKER_BY_HAND);
        render_put_text(j, "reason", b->state == BREAKER_OPEN ? err_name(b->reason) : NULL);
        render_put_time(j, "since", b->since_ms);
        json_object_end(j);
    }
    json_array_end(j);
}

static bool any_stopped(const struct engine_stats *s)
{
    bool any = false;
    for (size_t i = 0; i < LANE_COUNT; i++)
        any = any || s->lanes[i].breaker.state != BREAKER_CLOSED;
    return any;
}

/* The worst that there is. Dead and parked deliveries are late, and nothing but a decision helps.
 */
static const char *overall(const struct freshness_headline *h, const struct engine_stats *s,
                           int guard_level)
{
    if (guard_level > 0)
        return "at risk";
    if (h->stopped || any_stopped(s))
        return verdict_name(FRESH_STOPPED);
    if (h->behind || s->states.dead || s->states.parked)
        return verdict_name(FRESH_BEHIND);
    return verdict_name(h->late ? FRESH_LATE : FRESH_GREEN);
}

enum err admin_health(struct call *c, struct tx *tx)
{
    (void)tx;
    struct api *api = c->api;
    struct json_out *j = &c->json;
    struct freshness_headline headline;
    struct engine_stats s;
    size_t n = 0;
    const struct freshness_cell *cells = look(c, &n, &headline);
    int64_t drift = atomic_load(&api->audit_drift);
    engine_stats(api->engine, &s);
    json_object_begin(j);
    json_put(j, "verdict", str,
             str_of(overall(&headline, &s,
                            api->overload_guard ? overload_guard_level(api->overload_guard) : 0)));
    render_headline(j, &headline);
    json_key(j, STR("stale"));
    json_array_begin(j);
    for (size_t i = 0; i < n; i++) {
        if (cells[i].verdict != FRESH_GREEN)
            tell_cell(j, &cells[i]);
    }
    tell_deliveries(j, &s.states);
    tell_audit(j, drift);
    json_array_end(j);
    write_stopped_lanes(j, &s, clock_wall_ms(api->clock));
    render_overload_guard(j, api->overload_guard);
    numbers_write(j, "states", &s.states);
    json_put(j, "blocked_keys", u64, s.blocked_keys);
    json_put(j, "dead", u64, s.states.dead);
    json_put(j, "parked", u64, s.states.parked);
    json_put(j, "audit_drift", i64, drift);
    json_object_end(j);
    return OK;
}
