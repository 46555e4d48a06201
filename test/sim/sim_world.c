/* What the engine stands on: views whose handles are shuffled anew with each epoch, a bus, and the
 * start and the end of a process.
 *
 * Where a delivery's effect lasts decides what a crash takes: views go back to what was saved (or
 * are built anew from truth, which holds everything up to the saved watermark), rows in the store
 * stay, mail cannot be called back. */
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include "audience_pages.h"
#include "base/check.h"
#include "base/hash.h"
#include "bus/local.h"
#include "lossy_bus.h"
#include "sim.h"

#define START_MS INT64_C(1800000000000)

void sim_trace(struct sim *s, uint64_t a, uint64_t b)
{
    s->trace = hash_u64(s->trace ^ hash_u64(a * 31 + b));
}

void sim_say(struct sim *s, const char *format, ...)
{
    if (!s->tell)
        return;
    va_list args;
    va_start(args, format);
    printf("# %10.3f s  ", (double)s->clock.mono_us / 1e6);
    vprintf(format, args);
    printf("\n");
    va_end(args);
}

/* ---- the views ---- */

static struct sim *sim_of_views(struct views *v)
{
    return CONTAINER_OF(v, struct sim, views.base);
}

static bool in_part(const struct sim *s, enum audience_part part, uint64_t account)
{
    bool active = s->active >> account & 1;
    return part == AUDIENCE_ALL || active == (part == AUDIENCE_ACTIVE);
}

static bool meets(const struct sim *s, uint64_t author, const struct audience_cursor *c,
                  uint64_t handle)
{
    uint64_t account = s->views.account_of[handle];
    return (s->followers[author] >> account & 1) && in_part(s, c->part, account);
}

static enum err audience(void *ctx, uint64_t author, struct audience_cursor *cursor,
                         uint64_t *members, size_t max, size_t *n)
{
    struct sim *s = ctx;
    if (s->trouble.audience_fails)
        return ERR_UNAVAILABLE;
    HOLDS(s, author >= 1 && author <= ACCOUNTS, "author %" PRIu64, author);
    uint64_t handle = cursor->after + 1;
    for (*n = 0; handle <= ACCOUNTS && *n < max; handle++) {
        if (meets(s, author, cursor, handle))
            members[(*n)++] = handle;
    }
    while (handle <= ACCOUNTS && !meets(s, author, cursor, handle))
        handle++;
    cursor->after = handle - 1;
    cursor->end = handle > ACCOUNTS;
    return OK;
}

static void audiences(struct graph *g, struct audience_page *pages, size_t n)
{
    audience_pages(pages, n, audience, CONTAINER_OF(g, struct sim, views.graph));
}

static void view_numbers(struct views *v, struct view_stats *out)
{
    struct sim_views *views = &sim_of_views(v)->views;
    *out = (struct view_stats){.saved_position = views->saved_position,
                               .saved_at_ms = views->saved_at_ms};
}

/* Everybody is connected. */
static size_t listening(struct views *v, const uint64_t *members, size_t n, uint64_t *accounts)
{
    const struct sim_views *views = CONTAINER_OF(v, struct sim_views, base);
    for (size_t i = 0; i < n; i++)
        accounts[i] = views->account_of[members[i]];
    return n;
}

static const struct views_ops views_table = {.stats = view_numbers, .listening = listening};
static const struct graph_ops graph_table = {.audiences = audiences,
                                             .extent = audience_extent_unknown};

static void shuffle_handles(struct sim *s)
{
    uint8_t *accounts = s->views.account_of;
    for (uint8_t i = 1; i <= ACCOUNTS; i++)
        accounts[i] = i;
    for (uint8_t i = ACCOUNTS; i > 1 && s->shuffles; i--) {
        uint8_t other = (uint8_t)(1 + rand_below(&s->rand, i));
        uint8_t account = accounts[i];
        accounts[i] = accounts[other];
        accounts[other] = account;
    }
}

void sim_save_views(struct sim *s)
{
    /* As the server does it: the position first, then the state. */
    uint64_t position = engine_settled_through(s->engine);
    if (position < s->views.saved_position)
        return;
    s->views.saved_position = position;
    s->views.saved_at_ms = s->clock.wall_ms;
    for (size_t i = 0; i < s->event_count; i++)
        memcpy(s->events[i].saved, s->events[i].met, sizeof s->events[i].met);
    sim_say(s, "views saved at %" PRIu64, position);
}

/* ---- events ---- */

struct sim_event *sim_event_of(struct sim *s, uint64_t id)
{
    for (size_t i = s->event_count; i-- > 0;) {
        if (s->events[i].id == id)
            return &s->events[i];
    }
    return NULL;
}

unsigned sim_slot(const struct sim *s, size_t rule)
{
    unsigned slot = 0;
    for (size_t i = 0; i < rule; i++)
        slot += s->rules[i].on == s->rules[rule].on;
    return slot;
}

struct event sim_truth_of(const struct sim *s, const struct sim_event *e)
{
    return (struct event){.id = e->id,
                          .type = e->type,
                          .version = event_version(e->type),
                          .actor = e->actor,
                          .object = (uint64_t)(e - s->events) + 1,
                          .value = e->value};
}

uint64_t sim_expected(const struct sim *s, const struct sim_event *e, size_t rule)
{
    const struct rule *r = &s->rules[rule];
    struct event event = sim_truth_of(s, e);
    if (r->on != e->type || (r->wants && !r->wants(&event)))
        return 0;
    return r->audience == TO_ACTOR ? UINT64_C(1) << e->actor : s->followers[e->actor];
}

/* ---- start and crash ---- */

static void on_commit(void *ctx, const struct event *events, size_t n)
{
    struct sim *s = ctx;
    if (s->engine)
        engine_offer(s->engine, events, n);
}

static void before_commit(void *ctx, const struct event_list *events)
{
    struct sim *s = ctx;
    (void)events;
    if (++s->commits == s->trouble.die_at_commit && !s->healed)
        *s->dead = true;
}

static struct bus *new_bus(struct sim *s)
{
    if (!s->lossy)
        return bus_local_new(LANE_COUNT, s->lane_limits);
    struct lossy_config c = {
        .seed = rand_u64(&s->rand),
        .lose = (uint32_t)rand_below(&s->rand, 100),
        .lose_ack = (uint32_t)rand_below(&s->rand, 100),
        .lose_retry = (uint32_t)rand_below(&s->rand, 50),
        .double_up = 300,
        .delay = (uint32_t)rand_below(&s->rand, 300),
        .break_off = (uint32_t)rand_below(&s->rand, 50),
        .window = sim_chance(s, 3) ? LOSSY_WINDOW_MAX : (uint32_t)rand_below(&s->rand, 8),
        .delay_us = 1000 * (int64_t)rand_below(&s->rand, 3000),
        .redeliver_us = 1000 * (1 + (int64_t)rand_below(&s->rand, 10000)),
    };
    struct bus *bus = lossy_bus_new(LANE_COUNT, s->lane_limits, &s->clock.clock, &c);
    if (s->healed)
        lossy_bus_calm(bus);
    return bus;
}

/* ERR_STOPPING: it died again while it started. */
static enum err start(struct sim *s)
{
    s->bus = new_bus(s);
    struct sink_env env = {.db = s->db,
                           .views = &s->views.base,
                           .signal = &s->signal,
                           .clock = &s->clock.clock,
                           .user = s};
    s->engine = engine_new(&s->config, s->rules, RULE_COUNT, env, s->bus);
    engine_on_wake(s->engine, s->wake, s);
    enum err e = engine_recover(s->engine);
    HOLDS(s, e == OK || *s->dead, "recovery: %s", err_name(e));
    return *s->dead ? ERR_STOPPING : OK;
}

static void stop(struct sim *s)
{
    struct engine *engine = s->engine;
    s->engine = NULL;
    engine_free(engine);
    bus_free(s->bus);
    s->call_count = 0; /* what becomes of them is never heard */
    for (size_t i = 0; i < s->event_count; i++)
        s->events[i].owed = 0; /* every stream has ended: who comes back is greeted */
}

/* What the views hold after the crash: what was saved, or what truth knows of: everything up to the
 * saved watermark. */
static void restore_views(struct sim *s)
{
    struct sim_views *v = &s->views;
    uint64_t watermark = (uint64_t)plain_db_ask(s->store, SIM_WATERMARK_SQL);
    bool saved = v->saved_position && !sim_chance(s, 4);
    for (size_t i = 0; i < s->event_count; i++) {
        struct sim_event *e = &s->events[i];
        for (size_t rule = 0; rule < RULE_COUNT; rule++) {
            if (s->rules[rule].on != e->type || s->rules[rule].effect != EFFECT_VIEWS)
                continue;
            unsigned slot = sim_slot(s, rule);
            e->ever[slot] |= e->met[slot];
            uint64_t from_truth = e->id <= watermark ? sim_expected(s, e, rule) : 0;
            e->met[slot] = saved ? e->saved[slot] : from_truth;
        }
        memset(e->again, 0, sizeof e->again);
        memset(e->failed_ms, 0, sizeof e->failed_ms);
    }
    shuffle_handles(s);
    v->base.epoch = rand_u64(&s->rand) >> 1;
    v->base.loaded_position = saved ? v->saved_position : 0;
    if (!saved)
        v->saved_position = 0, v->saved_at_ms = 0;
    sim_say(s, "crash; views come back %s, watermark %" PRIu64, saved ? "as saved" : "from truth",
            watermark);
}

/* Memory is lost; a store that does not work does not let the server start again. */
static void die(struct sim *s)
{
    s->totals.crashes++;
    *s->dead = true; /* whatever the end of the engine tries is too late */
    stop(s);
    struct plain_db_faults *f = plain_db_faults(s->store);
    f->dead = f->reads_fail = false;
    f->writes_fail = OK;
    f->lose_replies = 0;
    memset(s->busy_key, 0, sizeof s->busy_key);
    checker_catch_up(s, NULL);
    restore_views(s);
}

void sim_start(struct sim *s)
{
    while (start(s))
        die(s);
}

void sim_crash(struct sim *s)
{
    die(s);
    sim_start(s);
}

/* ---- the whole ---- */

static void choose_sizes(struct sim *s)
{
    struct rand *r = &s->rand;
    struct engine_config *c = &s->config;
    engine_config_default(c);
    c->commit_queue_max = 1 + rand_below(r, 30);
    c->watermark_every_ms = 300 + (int64_t)rand_below(r, 3000);
    c->trim_slice = 1 + rand_below(r, 30);
    c->retain_settled_ms = (int64_t)rand_below(r, 5) * 60 * 1000;
    c->retain_closed_ms = (4 + (int64_t)rand_below(r, 20)) * 3600 * 1000; /* beyond all jumps */
    c->retain_dead_ms = 0;
    c->dedup_ms = INT64_C(48) * 3600 * 1000;
    c->lease_ms = 2000 + (int64_t)rand_below(r, 60 * 1000);
    c->resend_after_ms = 500 + (int64_t)rand_below(r, 5000);
    c->poll_every_ms = 300 + (int64_t)rand_below(r, 3000);
    c->trace_records = 1024;
    for (int lane = 0; lane < LANE_COUNT; lane++)
        s->lane_limits[lane] = 1 + rand_below(r, 30);
}

static void choose_people(struct sim *s)
{
    struct rand *r = &s->rand;
    for (uint64_t author = 1; author <= AUTHORS; author++) {
        uint64_t members = rand_below(r, 3) ? rand_below(r, 6) : rand_below(r, 30);
        for (; members > 0; members--)
            s->followers[author] |= UINT64_C(1) << (1 + rand_below(r, ACCOUNTS));
    }
    s->active = rand_u64(r) & (rand_below(r, 3) ? rand_u64(r) : 0);
}

void sim_open(struct sim *s, uint64_t seed, struct plain_db *store)
{
    memset(s, 0, sizeof *s);
    s->seed = seed;
    rand_seed(&s->rand, seed);
    manual_clock_init(&s->clock, START_MS);
    id_gen_init(&s->ids, &s->clock.clock, 1);
    s->store = store;
    s->db = plain_db_port(store);
    s->db->ids = &s->ids;
    plain_db_clear(store);
    struct plain_db_faults *f = plain_db_faults(store);
    f->before_commit = before_commit;
    f->ctx = s;
    s->dead = &f->dead;
    s->db->on_commit = on_commit;
    s->db->on_commit_ctx = s;
    s->signal.ops = &sim_signal_ops;
    s->views.graph.ops = &graph_table;
    s->views.base = (struct views){.ops = &views_table, .graph = &s->views.graph, .epoch = 1};
    s->trouble.poison_rule = -1;
    s->lossy = rand_below(&s->rand, 5) >= 2;
    s->shuffles = rand_below(&s->rand, 2);
    memcpy(s->rules, sim_rule_table, sizeof sim_rule_table);
    checker_init(s);
    choose_sizes(s);
    choose_people(s);
    shuffle_handles(s);
}

void sim_close(struct sim *s)
{
    stop(s);
    s->db->on_commit = NULL;
}
