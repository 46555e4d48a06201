/* What the simulated nodes stand on.
 *
 * Each node reaches the store and the bus by a port of its own, which can be cut, and which does
 * nothing any more once its process is dead. Ids come from the node's own clock, which is up to ten
 * milliseconds off; so the order in which events appear is not that of their ids, and the store's
 * horizon lies thirty milliseconds back.
 *
 * The views are one state for all. A save makes what was done so far safe; when their master is
 * lost, everything safe stays and any part of the rest goes, and the next save of each process says
 * so, once. Sometimes all is lost: then they are not complete until a leader has loaded them.
 * Loading from truth brings the effects of all events at once. */
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include "audience_pages.h"
#include "base/check.h"
#include "base/hash.h"
#include "nodes_sim.h"

#define START_MS INT64_C(1800000000000)

enum { HORIZON_LAG_MS = 30, CLOCK_OFF_MS = 10 };

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

void sim_broken(struct sim *s, const char *condition, const char *format, ...)
{
    va_list args;
    printf("# seed %" PRIu64 " at %.3f s: ", s->seed, (double)s->clock.mono_us / 1e6);
    va_start(args, format);
    vprintf(format, args);
    va_end(args);
    printf(" (%s)\nnot ok - seed %" PRIu64 "\n", condition, s->seed);
    fflush(stdout);
    exit(1);
}

/* ---- a node's clock, store and bus ---- */

static int64_t node_wall_ms(struct clock *c)
{
    struct sim_node *n = CONTAINER_OF(c, struct sim_node, clock);
    return n->sim->clock.wall_ms + n->off_ms;
}

static int64_t node_mono_us(struct clock *c)
{
    return CONTAINER_OF(c, struct sim_node, clock)->sim->clock.mono_us;
}

static struct sim_node *node_of_db(struct db *db)
{
    return CONTAINER_OF(db, struct sim_node, db);
}

static enum err reach_store(const struct sim_node *n)
{
    return n->dead ? ERR_STOPPING : n->store_cut ? ERR_UNAVAILABLE : OK;
}

static enum err node_submit(struct db *db, struct db_job *job)
{
    struct sim_node *n = node_of_db(db);
    struct db *port = plain_db_port(n->sim->store);
    enum err e = reach_store(n);
    if (e)
        return e;
    port->ids = db->ids;
    return port->ops->submit(port, job);
}

static enum err node_read(struct db *db, tx_fn run, void *arg, char *detail)
{
    struct sim_node *n = node_of_db(db);
    struct db *port = plain_db_port(n->sim->store);
    enum err e = reach_store(n);
    return e ? e : port->ops->read(port, run, arg, detail);
}

static enum err node_horizon(struct db *db, uint64_t *id)
{
    struct sim_node *n = node_of_db(db);
    struct db *port = plain_db_port(n->sim->store);
    enum err e = reach_store(n);
    return e ? e : port->ops->horizon(port, id);
}

static const struct db_ops db_table = {
    .submit = node_submit, .read = node_read, .horizon = node_horizon};

static struct sim_node *node_of_bus(struct bus *b)
{
    return CONTAINER_OF(b, struct sim_node, bus);
}

static bool is_off_bus(const struct sim_node *n)
{
    return n->dead || n->bus_cut;
}

static enum err node_publish(struct bus *b, const struct bus_message *m, bool force)
{
    struct sim_node *n = node_of_bus(b);
    struct bus *bus = n->sim->bus;
    return is_off_bus(n) ? ERR_UNAVAILABLE : bus->ops->publish(bus, m, force);
}

static void note_take(struct sim_event *e, uint64_t term)
{
    if (e->taken_term != term)
        e->takes = 0;
    e->taken_term = term;
    e->takes++;
}

static bool node_take(struct bus *b, uint16_t lane, int64_t now_us, struct bus_message *out)
{
    struct sim_node *n = node_of_bus(b);
    if (is_off_bus(n) || !bus_take(n->sim->bus, lane, now_us, out))
        return false;
    if (lane == LANE_OUTSIDE && out->event.object >= 1 && out->event.object <= n->sim->event_count)
        note_take(&n->sim->events[out->event.object - 1], out->term);
    return true;
}

static void node_ack(struct bus *b, const struct bus_message *m)
{
    struct sim_node *n = node_of_bus(b);
    if (!is_off_bus(n))
        bus_ack(n->sim->bus, m);
}

static void node_retry(struct bus *b, const struct bus_message *m, int64_t not_before_us)
{
    struct sim_node *n = node_of_bus(b);
    if (!is_off_bus(n))
        bus_retry(n->sim->bus, m, not_before_us);
}

static int64_t node_next_due_us(struct bus *b, uint16_t lane)
{
    struct sim_node *n = node_of_bus(b);
    return is_off_bus(n) ? INT64_MAX : bus_next_due_us(n->sim->bus, lane);
}

static void node_lane_stats(struct bus *b, uint16_t lane, struct bus_lane_stats *out)
{
    bus_lane_stats(node_of_bus(b)->sim->bus, lane, out);
}

static bool node_is_connected(struct bus *b)
{
    return !is_off_bus(node_of_bus(b));
}

static void node_listen(struct bus *b, uint16_t lane, bool on)
{
    bus_listen(node_of_bus(b)->sim->bus, lane, on);
}

static const struct bus_ops bus_table = {.listen = node_listen,
                                         .is_connected = node_is_connected,
                                         .publish = node_publish,
                                         .take = node_take,
                                         .ack = node_ack,
                                         .retry = node_retry,
                                         .next_due_us = node_next_due_us,
                                         .lane_stats = node_lane_stats};

/* ---- the views ---- */

static struct sim_node *node_of_views(struct views *v)
{
    return CONTAINER_OF(v, struct sim_node, views);
}

static bool is_off_views(const struct sim_node *n)
{
    return n->dead || n->views_cut;
}

static bool meets(const struct sim *s, uint64_t author, enum audience_part part, uint64_t account)
{
    bool active = s->active >> account & 1;
    return (s->followers[author] >> account & 1) &&
           (part == AUDIENCE_ALL || active == (part == AUDIENCE_ACTIVE));
}

static enum err audience(void *ctx, uint64_t author, struct audience_cursor *cursor,
                         uint64_t *members, size_t max, size_t *n)
{
    struct sim_node *node = ctx;
    struct sim *s = node->sim;
    if (is_off_views(node) || sim_chance(s, s->fail_one_in * 3))
        return ERR_UNAVAILABLE;
    uint64_t handle = cursor->after + 1;
    for (*n = 0; handle <= ACCOUNTS && *n < max; handle++) {
        if (meets(s, author, cursor->part, handle))
            members[(*n)++] = handle;
    }
    while (handle <= ACCOUNTS && !meets(s, author, cursor->part, handle))
        handle++;
    cursor->after = handle - 1;
    cursor->end = handle > ACCOUNTS;
    return OK;
}

static void audiences(struct graph *g, struct audience_page *pages, size_t n)
{
    audience_pages(pages, n, audience, CONTAINER_OF(g, struct sim_node, graph));
}

static enum err save(struct views *v, uint64_t position)
{
    struct sim_node *n = node_of_views(v);
    struct sim *s = n->sim;
    (void)position;
    if (is_off_views(n) || sim_chance(s, s->save_fails_one_in))
        return ERR_UNAVAILABLE;
    bool replaced = (n->master ? n->master : s->witness) != s->master;
    n->master = s->witness = s->master;
    for (size_t i = 0; i < s->event_count; i++)
        memcpy(s->events[i].saved, s->events[i].met, sizeof s->events[i].met);
    return replaced ? ERR_CONFLICT : OK;
}

/* What the views hold of the events, and have a second copy of: all, or nothing. */
static void set_views(struct sim *s, bool all)
{
    for (struct sim_event *e = s->events; e < s->events + s->event_count; e++) {
        for (size_t rule = RULE_TIMELINES; rule <= RULE_BACKFILL; rule++) {
            e->met[rule] = e->saved[rule] = all ? sim_expected(s, e, rule) : 0;
            e->ever[rule] |= e->met[rule];
        }
        e->applied |= all;
    }
    s->complete = all;
}

static enum err is_complete(struct views *v, bool *complete)
{
    struct sim_node *n = node_of_views(v);
    *complete = n->sim->complete;
    return is_off_views(n) ? ERR_UNAVAILABLE : OK;
}

static enum err clear(struct views *v)
{
    struct sim_node *n = node_of_views(v);
    if (is_off_views(n))
        return ERR_UNAVAILABLE;
    set_views(n->sim, false);
    return OK;
}

static enum err loaded(struct views *v)
{
    struct sim_node *n = node_of_views(v);
    if (is_off_views(n))
        return ERR_UNAVAILABLE;
    set_views(n->sim, true);
    n->sim->totals.loads++;
    sim_say(n->sim, "node %d has loaded the views", n->number);
    return OK;
}

static void suspect(struct views *v, bool on)
{
    node_of_views(v)->suspect = on;
}

static void suspect_cards(struct cards *c, bool on)
{
    struct sim_node *n = CONTAINER_OF(c, struct sim_node, cards);
    HOLDS(n->sim, n->suspect == on, "node %d trusts the views and not the cards", n->number);
}

static void suspect_pages(struct invalidation *i, bool on)
{
    struct sim_node *n = CONTAINER_OF(i, struct sim_node, invalidation);
    HOLDS(n->sim, n->suspect == on, "node %d trusts the views and not its pages", n->number);
}

void sim_lose_views(struct sim *s)
{
    s->master++;
    s->totals.losses++;
    if (sim_chance(s, 4)) {
        set_views(s, false);
        sim_say(s, "the views are lost");
        return;
    }
    uint64_t survives = sim_chance(s, 2) ? 0 : rand_u64(&s->rand);
    for (size_t i = 0; i < s->event_count; i++) {
        struct sim_event *e = &s->events[i];
        for (size_t rule = RULE_TIMELINES; rule <= RULE_BACKFILL; rule++)
            e->met[rule] = e->saved[rule] | (e->met[rule] & survives);
    }
    sim_say(s, "the views' master is lost");
}

static void numbers(struct views *v, struct view_stats *out)
{
    (void)v;
    *out = (struct view_stats){.saved_position = VIEWS_LASTING};
}

static const struct views_ops views_table = {.save = save,
                                             .clear = clear,
                                             .loaded = loaded,
                                             .is_complete = is_complete,
                                             .suspect = suspect,
                                             .stats = numbers};
static const struct cards_ops cards_table = {.suspect = suspect_cards};
static const struct invalidation_ops invalidation_table = {.suspect = suspect_pages};
static const struct graph_ops graph_table = {.audiences = audiences,
                                             .extent = audience_extent_unknown};

static enum err apply(void *ctx, const struct event *events, size_t n)
{
    struct sim_node *node = ctx;
    struct sim *s = node->sim;
    if (is_off_views(node) || sim_chance(s, s->apply_fails_one_in))
        return ERR_UNAVAILABLE;
    for (size_t i = 0; i < n; i++)
        s->events[events[i].object - 1].applied = true;
    return OK;
}

/* ---- the sinks ---- */

uint64_t sim_expected(const struct sim *s, const struct sim_event *e, size_t rule)
{
    if (s->rules[rule].on != e->type)
        return 0;
    return rule == RULE_TIMELINES ? s->followers[e->actor] : UINT64_C(1) << e->actor;
}

/* Begins every delivery. ERR_STOPPING: the process is dead, nothing happens any more. */
static enum err begin(struct sim_node *n, const struct event *e, size_t rule,
                      const uint64_t *members, size_t count, struct sim_event **event,
                      uint64_t *accounts)
{
    struct sim *s = n->sim;
    if (n->dead)
        return ERR_STOPPING;
    *accounts = 0;
    for (size_t i = 0; i < count; i++)
        *accounts |= UINT64_C(1) << members[i];
    HOLDS(s, e->object >= 1 && e->object <= s->event_count, "no such event");
    *event = &s->events[e->object - 1];
    s->totals.deliveries++;
    sim_say(s, "node %d delivers event %" PRIu64 " to %" PRIx64 " by %s", n->number, e->id,
            *accounts, s->rules[rule].consumer);
    sim_trace(s, e->id, *accounts * 16 + rule);
    check_delivery(s, *event, rule, *accounts);
    if (sim_chance(s, s->stall_one_in))
        s->stall(s, n);
    if (sim_chance(s, s->die_one_in) && !n->waits)
        n->dead = true;
    if (n->dead)
        return ERR_STOPPING;
    if (sim_chance(s, s->fail_one_in) || (n->views_cut && rule <= RULE_BACKFILL)) {
        s->totals.failures++;
        return ERR_UNAVAILABLE;
    }
    return OK;
}

static enum err to_views(struct sink_env *env, const struct event *e, const uint64_t *members,
                         size_t count, struct sink_result *result, size_t rule)
{
    struct sim_node *n = env->user;
    struct sim_event *event;
    uint64_t accounts;
    enum err error = begin(n, e, rule, members, count, &event, &accounts);
    if (error)
        return error;
    if (rule == RULE_BACKFILL && event->again < hash_u64(e->id) % 3) {
        event->again++;
        result->again = true;
        return OK;
    }
    uint64_t fresh = accounts & ~event->met[rule];
    result->delivered = (size_t)__builtin_popcountll(fresh);
    result->repeated = count - result->delivered;
    n->sim->totals.repeats += result->repeated;
    event->met[rule] |= accounts;
    event->ever[rule] |= accounts;
    if (sim_chance(n->sim, n->sim->die_one_in) && !n->waits) {
        n->dead = true;
        return ERR_STOPPING;
    }
    return OK;
}

static enum err sink_timelines(struct sink_env *env, const struct event *e, const uint64_t *members,
                               size_t n, struct sink_result *result)
{
    return to_views(env, e, members, n, result, RULE_TIMELINES);
}

static enum err sink_backfill(struct sink_env *env, const struct event *e, const uint64_t *members,
                              size_t n, struct sink_result *result)
{
    return to_views(env, e, members, n, result, RULE_BACKFILL);
}

static enum err send_mail(struct sim_node *node, struct outside_call *call)
{
    struct sim *s = node->sim;
    struct sim_event *event;
    uint64_t accounts;
    enum err error = begin(node, call->event, RULE_MAILER, &call->member, 1, &event, &accounts);
    if (error)
        return error;
    bool unknown = sim_chance(s, s->mail_unknown_one_in);
    if (!unknown || sim_chance(s, 2)) {
        event->sent++;
        event->met[RULE_MAILER] |= accounts;
        HOLDS(s, event->sent <= 1 + event->granted, "event %" PRIu64 " was mailed %u times",
              call->event->id, event->sent);
    }
    call->result.delivered = 1;
    return unknown ? ERR_UNKNOWN_COMMIT : OK;
}

static void call_mailer(struct sink_env *env, struct outside_call *call)
{
    struct sim_node *n = env->user;
    struct sim *s = n->sim;
    uint64_t term = s->events[call->event->object - 1].taken_term;
    HOLDS(s, n->call_count < CALLS_MAX, "node %d has too many calls", n->number);
    n->calls[n->call_count++] = (struct sim_call){call, term};
    s->totals.calls++;
    check_calls(s, term);
}

bool sim_end_call(struct sim_node *n)
{
    if (n->call_count == 0)
        return false;
    size_t i = rand_below(&n->sim->rand, n->call_count);
    struct sim_call ending = n->calls[i];
    n->calls[i] = n->calls[--n->call_count];
    enum err error = send_mail(n, ending.call);
    if (!n->dead) /* else nobody is left to hear of it */
        outside_end(ending.call, error);
    return n->call_count > 0;
}

static enum err sink_archive(struct tx *tx, struct sink_env *env, const struct event *e,
                             uint64_t member, struct sink_result *result)
{
    struct sim_node *n = env->user;
    struct sim *s = n->sim;
    if (n->dead)
        return ERR_STOPPING;
    check_delivery(s, &s->events[e->object - 1], RULE_ARCHIVE, UINT64_C(1) << member);
    if (sim_chance(s, s->fail_one_in))
        return ERR_UNAVAILABLE;
    result->delivered = 1;
    return tx_exec(tx, "INSERT INTO nodes_sim_rows (event_id) VALUES ($1)", DB_ARGS(DB_I64(e->id)),
                   NULL);
}

static const struct rule rule_table[RULE_COUNT] = {
    [RULE_TIMELINES] = {.consumer = "timelines",
                        .on = EVENT_POST_CREATED,
                        .audience = TO_FOLLOWERS,
                        .sink = sink_timelines,
                        .lane = LANE_SMALL,
                        .batch = 4,
                        .priority = PRIORITY_NORMAL,
                        .effect = EFFECT_VIEWS,
                        .late_means = "posts come late"},
    [RULE_BACKFILL] = {.consumer = "backfill",
                       .on = EVENT_FOLLOW_CREATED,
                       .audience = TO_ACTOR,
                       .sink = sink_backfill,
                       .lane = LANE_GRAPH,
                       .batch = 1,
                       .priority = PRIORITY_CRITICAL,
                       .effect = EFFECT_VIEWS,
                       .late_means = "earlier posts come late"},
    [RULE_MAILER] = {.consumer = "mailer",
                     .on = EVENT_FOLLOW_CREATED,
                     .audience = TO_ACTOR,
                     .outside = call_mailer,
                     .lane = LANE_OUTSIDE,
                     .batch = 1,
                     .priority = PRIORITY_CRITICAL,
                     .effect = EFFECT_OUTSIDE,
                     .channel = "email",
                     .dedup = DEDUP_BY_EVENT,
                     .late_means = "mail comes late"},
    [RULE_ARCHIVE] = {.consumer = "archive",
                      .on = EVENT_ACCOUNT_SUSPENDED,
                      .audience = TO_ACTOR,
                      .tx_sink = sink_archive,
                      .lane = LANE_GRAPH,
                      .batch = 1,
                      .priority = PRIORITY_NORMAL,
                      .effect = EFFECT_TRUTH,
                      .dedup = DEDUP_BY_EVENT,
                      .late_means = "the archive is late"},
};

/* ---- committing ---- */

struct emission {
    struct event event;
    uint64_t id;
};

static enum err emit(struct tx *tx, void *arg)
{
    struct emission *m = arg;
    enum err e = outbox_emit(tx, m->event);
    if (!e)
        m->id = tx->events.items[tx->events.count - 1].id;
    return e;
}

/* As the commit hook does it: the caller is answered when no node trusts the views any more. */
static void lose_change(struct sim *s, struct sim_node *n)
{
    uint64_t losses = check_losses(s);
    n->waits = true;
    s->totals.waits++;
    membership_views_lost(&n->membership);
    n->waits = false;
    check_no_node_trusts(s, losses);
}

void sim_commit(struct sim *s, struct sim_node *n, struct id_gen *ids)
{
    static const enum event_type types[] = {EVENT_POST_CREATED, EVENT_POST_CREATED,
                                            EVENT_FOLLOW_CREATED, EVENT_FOLLOW_CREATED,
                                            EVENT_ACCOUNT_SUSPENDED};
    if (s->event_count == EVENTS_MAX)
        return;
    struct sim_event *event = &s->events[s->event_count++];
    *event = (struct sim_event){.type = types[rand_below(&s->rand, COUNT_OF(types))],
                                .actor = 1 + rand_below(&s->rand, ACTORS)};
    struct emission m = {
        .event = {.type = event->type, .actor = event->actor, .object = s->event_count}};
    struct id_gen *own = n->db.ids;
    n->db.ids = ids;
    enum err e = db_write(&n->db, emit, &m, NULL);
    n->db.ids = own;
    if (e && e != ERR_UNKNOWN_COMMIT) {
        s->event_count--;
        return;
    }
    event->id = m.id;
    bool fails = n->views_cut || sim_chance(s, 40);
    event->applied =
        e == OK && !fails && !sim_chance(s, 4); /* else its node died before it could */
    sim_say(s, "event %" PRIu64 " of actor %" PRIu64 " at node %d", m.id, event->actor, n->number);
    if (e == OK && fails && !s->healed && s->may_wait(s))
        lose_change(s, n);
}

/* ---- start and end ---- */

/* Its number comes from truth, as a server's does. The store answers a process that starts. */
static void join(struct sim *s, struct sim_node *n)
{
    struct plain_db_faults *f = plain_db_faults(s->store);
    uint32_t lose_replies = f->lose_replies;
    char why[300] = "", address[32];
    snprintf(address, sizeof address, "http://node:%d", n->number);
    f->lose_replies = 0;
    enum err e = membership_join(&n->membership,
                                 &(struct membership_config){.control = &n->db,
                                                             .clock = &n->clock,
                                                             .cluster = &n->cluster,
                                                             .token = n->token,
                                                             .roles = ROLE_ALL,
                                                             .address = address},
                                 why);
    f->lose_replies = lose_replies;
    HOLDS(s, e == OK, "node %d cannot join: %s", n->number, why);
    n->ids.node = n->cluster.number;
}

void sim_start(struct sim *s, struct sim_node *n)
{
    n->dead = n->store_cut = n->bus_cut = n->views_cut = false;
    n->suspect = true;
    n->paused_until_us = 0;
    n->master = 0;
    n->cluster = (struct cluster){0};
    if (n->token == 0 || sim_chance(s, 4)) /* another data folder */
        n->token = 1000 + s->tokens++;
    join(s, n);
    s->config.node = (uint16_t)n->cluster.number;
    struct sink_env env = {.db = &n->db, .views = &n->views, .clock = &n->clock, .user = n};
    n->engine = engine_new(&s->config, s->rules, RULE_COUNT, env, &n->bus);
    engine_on_apply(n->engine, apply, n);
    engine_on_wake(n->engine, s->wake, n);
    membership_attach(&n->membership, &(struct membership_parts){.db = &n->db,
                                                                 .views = &n->views,
                                                                 .cards = &n->cards,
                                                                 .invalidation = &n->invalidation,
                                                                 .bus = &n->bus,
                                                                 .engine = n->engine,
                                                                 .pause = s->pause,
                                                                 .pause_ctx = n});
}

static void end_process(struct sim_node *n)
{
    n->call_count = 0;
    membership_done(&n->membership);
    engine_free(n->engine);
    n->engine = NULL;
}

void sim_kill(struct sim *s, struct sim_node *n)
{
    n->dead = true;
    s->totals.crashes++;
    end_process(n);
    lossy_bus_drop_takers(s->bus);
    sim_say(s, "node %d dies", n->number);
}

static void choose_sizes(struct sim *s)
{
    struct rand *r = &s->rand;
    struct engine_config *c = &s->config;
    engine_config_default(c);
    c->shared = true;
    c->fence = lease_fence_engine;
    c->commit_queue_max = 1;
    c->watermark_every_ms = 300 + (int64_t)rand_below(r, 3000);
    c->trim_slice = 1 + rand_below(r, 30);
    c->retain_settled_ms = 3600 * 1000;
    c->lease_ms = 2000 + (int64_t)rand_below(r, 30 * 1000);
    c->resend_after_ms = 500 + (int64_t)rand_below(r, 5000);
    c->poll_every_ms = 300 + (int64_t)rand_below(r, 1000);
    c->horizon_every_ms = 50 + (int64_t)rand_below(r, 400);
    c->trace_records = 256;
    c->lane_concurrency[LANE_OUTSIDE] = 1 + (uint32_t)rand_below(r, 4);
    for (int lane = 0; lane <= LANE_COUNT; lane++)
        s->lane_limits[lane] = 2 + rand_below(r, 30);
    for (uint64_t author = 1; author <= ACTORS; author++) {
        uint64_t members = rand_below(r, 3) ? rand_below(r, 6) : rand_below(r, 30);
        for (; members > 0; members--)
            s->followers[author] |= UINT64_C(1) << (1 + rand_below(r, ACCOUNTS));
    }
    s->active = rand_u64(r) & (rand_below(r, 3) ? rand_u64(r) : 0);
}

static struct bus *new_bus(struct sim *s)
{
    struct rand *r = &s->rand;
    bool calm = sim_chance(s, 4);
    struct lossy_config c = {
        .seed = rand_u64(r),
        .lose = calm ? 0 : (uint32_t)rand_below(r, 100),
        .lose_ack = calm ? 0 : (uint32_t)rand_below(r, 100),
        .lose_retry = calm ? 0 : (uint32_t)rand_below(r, 50),
        .double_up = calm ? 0 : (uint32_t)rand_below(r, 200),
        .delay = (uint32_t)rand_below(r, 300),
        .break_off = calm ? 0 : (uint32_t)rand_below(r, 50),
        .window = sim_chance(s, 3) ? LOSSY_WINDOW_MAX : (uint32_t)rand_below(r, 8),
        .delay_us = 1000 * (int64_t)rand_below(r, 3000),
        .redeliver_us = 1000 * (1 + (int64_t)rand_below(r, 10000)),
    };
    return lossy_bus_new(LANE_COUNT + 1, s->lane_limits, &s->clock.clock, &c);
}

void sim_open(struct sim *s, uint64_t seed, struct plain_db *store)
{
    s->seed = seed;
    rand_seed(&s->rand, seed);
    manual_clock_init(&s->clock, START_MS);
    s->clock.mono_us = INT64_C(100000000);
    manual_clock_init(&s->slow_clock, START_MS);
    id_gen_init(&s->slow_ids, &s->slow_clock.clock, NODE_MAX); /* no node gets that far */
    s->store = store;
    plain_db_clear(store);
    plain_db_run(store, "DELETE FROM nodes_sim_rows");
    plain_db_set_clock(store, &s->clock.clock);
    plain_db_faults(store)->horizon_lag_ms = HORIZON_LAG_MS;
    memcpy(s->rules, rule_table, sizeof rule_table);
    s->master = s->witness = 1;
    s->complete = true;
    choose_sizes(s);
    s->bus = new_bus(s);
    s->node_count = 2 + (int)rand_below(&s->rand, NODES_MAX - 1);
    for (int i = 0; i < s->node_count; i++) {
        struct sim_node *n = &s->nodes[i];
        *n = (struct sim_node){.sim = s, .number = i};
        n->clock = (struct clock){.wall_ms = node_wall_ms, .mono_us = node_mono_us};
        n->off_ms = (int64_t)rand_below(&s->rand, 2 * CLOCK_OFF_MS + 1) - CLOCK_OFF_MS;
        id_gen_init(&n->ids, &n->clock, (uint32_t)i + 1);
        n->db = (struct db){.ops = &db_table, .ids = &n->ids};
        n->bus = (struct bus){.ops = &bus_table};
        n->graph.ops = &graph_table;
        n->cards.ops = &cards_table;
        n->invalidation.ops = &invalidation_table;
        n->views = (struct views){.ops = &views_table,
                                  .graph = &n->graph,
                                  .epoch = 1,
                                  .remote = true,
                                  .loaded_position = VIEWS_LASTING};
        sim_start(s, n);
    }
}

void sim_close(struct sim *s)
{
    for (int i = 0; i < s->node_count; i++)
        end_process(&s->nodes[i]);
    bus_free(s->bus);
}
