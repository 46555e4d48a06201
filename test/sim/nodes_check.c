/* What must hold, whichever node leads: a settled event is delivered, durably, or in the delivery
 * store; of an order key events are first delivered in the order of their ids; the views know of an
 * event before it is delivered; what acts once acts once; the delivery store's counts are those of
 * their rows; no two nodes have one number; no node answers from views that lack a change. */
#include <inttypes.h>
#include <stdio.h>

#include "model/views_state.h"
#include "nodes_sim.h"

struct asking {
    uint64_t event;
    const char *consumer;
    int64_t n;
};

static enum err ask_open(struct tx *tx, void *arg)
{
    struct asking *a = arg;
    return tx_get_i64(tx,
                      "SELECT count(*) FROM deliveries WHERE event_id = $1 AND consumer = $2 "
                      "AND state IN (1, 2, 3, 4)",
                      DB_ARGS(DB_I64(a->event), DB_TEXT(str_of(a->consumer))), &a->n);
}

static bool is_recorded(struct sim *s, const struct sim_event *e, size_t rule)
{
    struct asking a = {.event = e->id, .consumer = s->rules[rule].consumer};
    HOLDS(s, plain_db_look(s->store, ask_open, &a) == OK, "the delivery store cannot be read");
    return a.n > 0;
}

static enum err ask_row(struct tx *tx, void *arg)
{
    struct asking *a = arg;
    return tx_get_i64(tx, "SELECT count(*) FROM nodes_sim_rows WHERE event_id = $1",
                      DB_ARGS(DB_I64(a->event)), &a->n);
}

static int64_t rows_of(struct sim *s, const struct sim_event *e)
{
    struct asking a = {.event = e->id};
    HOLDS(s, plain_db_look(s->store, ask_row, &a) == OK, "the rows cannot be read");
    return a.n;
}

/* When an event of a key is first delivered, the earlier ones are delivered. A row of the delivery
 * store blocks its key. The archive's rows are asked for only outside of transactions. */
static void check_order(struct sim *s, const struct sim_event *e, size_t rule)
{
    for (const struct sim_event *o = s->events; o < s->events + s->event_count; o++) {
        if (o->actor != e->actor || o->id >= e->id || o->id == 0)
            continue;
        HOLDS(s, (sim_expected(s, o, RULE_BACKFILL) & ~o->ever[RULE_BACKFILL]) == 0,
              "%s got event %" PRIu64 " of actor %" PRIu64 " before event %" PRIu64,
              s->rules[rule].consumer, e->id, e->actor, o->id);
        HOLDS(s, rule == RULE_ARCHIVE || o->type != EVENT_ACCOUNT_SUSPENDED || rows_of(s, o) == 1,
              "%s got event %" PRIu64 " of actor %" PRIu64 " before event %" PRIu64 " was archived",
              s->rules[rule].consumer, e->id, e->actor, o->id);
    }
}

void check_delivery(struct sim *s, const struct sim_event *e, size_t rule, uint64_t accounts)
{
    HOLDS(s, (accounts & ~sim_expected(s, e, rule)) == 0, "%s got event %" PRIu64 " for others",
          s->rules[rule].consumer, e->id);
    HOLDS(s, e->applied, "%s got event %" PRIu64 ", which the views do not know",
          s->rules[rule].consumer, e->id);
    if (lane_is_ordered(s->rules[rule].lane))
        check_order(s, e, rule);
}

/* ---- the views ---- */

struct state_of_views {
    uint64_t lost, loaded;
};

static enum err read_state(struct tx *tx, void *arg)
{
    struct state_of_views *v = arg;
    return views_state_read(tx, &v->lost, &v->loaded);
}

static struct state_of_views state_now(struct sim *s)
{
    struct state_of_views v;
    HOLDS(s, plain_db_look(s->store, read_state, &v) == OK, "the views' state cannot be read");
    return v;
}

/* Does the leader count this call? A message that the bus brings twice has ended with the report on
 * its first copy, or on a copy that finds the claim of the other; the call of a second copy runs on
 * besides. */
static bool is_counted(struct sim *s, const struct sim_call *c, uint64_t term)
{
    return c->term == term && s->events[c->call->event->object - 1].takes <= 1;
}

void check_calls(struct sim *s, uint64_t term)
{
    size_t open = 0;
    for (int i = 0; i < s->node_count; i++)
        for (size_t k = 0; k < s->nodes[i].call_count; k++)
            open += is_counted(s, &s->nodes[i].calls[k], term);
    HOLDS(s, open <= s->config.lane_concurrency[LANE_OUTSIDE],
          "%zu mails of term %" PRIu64 " are under way", open, term);
}

uint64_t check_losses(struct sim *s)
{
    return state_now(s).lost;
}

bool check_views_are_loaded(struct sim *s)
{
    struct state_of_views v = state_now(s);
    return s->complete && v.lost == v.loaded;
}

/* A node that is stopped answers no request; one that continues needs a moment to see how late it
 * is. */
void check_no_node_trusts(struct sim *s, uint64_t losses_before)
{
    enum { NOTICED_US = 300 * 1000 };
    if (state_now(s).loaded > losses_before)
        return; /* the change is in the views by now */
    for (int i = 0; i < s->node_count; i++) {
        const struct sim_node *n = &s->nodes[i];
        bool away = n->dead || n->stalled || s->clock.mono_us < n->paused_until_us + NOTICED_US;
        HOLDS(s, away || n->suspect, "node %d answers from views that lack a change", i);
    }
}

static void check_numbers(struct sim *s)
{
    for (int i = 0; i < s->node_count; i++)
        for (int k = 0; k < i; k++)
            HOLDS(s, s->nodes[i].cluster.number != s->nodes[k].cluster.number,
                  "nodes %d and %d have the same number", k, i);
}

/* ---- at any moment ---- */

static bool is_delivered(struct sim *s, const struct sim_event *e, size_t rule, bool safely)
{
    if (rule == RULE_ARCHIVE)
        return rows_of(s, e) == 1;
    uint64_t met = safely && rule != RULE_MAILER ? e->saved[rule] : e->met[rule];
    return (sim_expected(s, e, rule) & ~met) == 0;
}

static void check_settled(struct sim *s)
{
    bool loaded = check_views_are_loaded(s); /* else reads go to truth */
    uint64_t watermark = (uint64_t)plain_db_ask_often(
        s->store, "SELECT CAST(value AS INTEGER) FROM meta WHERE name = 'done_through'");
    HOLDS(s, watermark >= s->watermark, "the watermark went back");
    s->watermark = watermark;
    for (const struct sim_event *e = s->events; e < s->events + s->event_count; e++) {
        for (size_t rule = 0; rule < RULE_COUNT && e->id <= watermark; rule++) {
            if (s->rules[rule].on == e->type && (loaded || rule > RULE_BACKFILL))
                HOLDS(s, is_delivered(s, e, rule, true) || is_recorded(s, e, rule),
                      "settled through %" PRIu64 ", but event %" PRIu64
                      " is not safely delivered by %s",
                      watermark, e->id, s->rules[rule].consumer);
        }
    }
}

static void expect_none(struct sim *s, const char *sql, const char *what)
{
    int64_t n = plain_db_ask_often(s->store, sql);
    HOLDS(s, n == 0, "%" PRId64 " %s", n, what);
}

static void check_deliveries(struct sim *s)
{
    expect_none(s,
                "SELECT count(*) FROM deliveries d WHERE order_key <> 0 AND state IN (1, 2) AND "
                "EXISTS (SELECT 1 FROM deliveries o WHERE o.lane = d.lane AND "
                "o.order_key = d.order_key AND o.state <= 4 AND o.id <> d.id AND "
                "((d.state = 1 AND o.event_id < d.event_id) OR o.state IN (1, 2)))",
                "rows are tried out of their key's order");
    expect_none(s,
                "SELECT count(*) FROM (SELECT consumer, type, lane, state, count(*) "
                "FROM deliveries GROUP BY 1, 2, 3, 4 EXCEPT "
                "SELECT consumer, type, lane, state, sum(count) FROM delivery_counts "
                "GROUP BY 1, 2, 3, 4)",
                "groups of deliveries are counted wrongly");
    expect_none(s,
                "SELECT count(*) FROM (SELECT event_id FROM nodes_sim_rows GROUP BY event_id "
                "HAVING count(*) > 1)",
                "events were archived twice");
}

void check_now(struct sim *s)
{
    check_settled(s);
    check_deliveries(s);
    check_numbers(s);
}

/* ---- at the end ---- */

/* Every node has all it needs, and knows the leader. */
static void check_members(struct sim *s)
{
    HOLDS(s, check_views_are_loaded(s), "the views are not loaded");
    for (int i = 0; i < s->node_count; i++) {
        struct cluster *c = &s->nodes[i].cluster;
        char address[CLUSTER_ADDRESS_MAX];
        uint32_t leader;
        c->leader(c->ctx, address, &leader);
        HOLDS(s, !s->nodes[i].suspect && atomic_load(&c->views_state) == PART_UP,
              "node %d does not trust the views", i);
        HOLDS(s, !atomic_load(&c->quarantined), "node %d is quarantined", i);
        for (int k = 0; k < s->node_count; k++)
            HOLDS(s, engine_leads(s->nodes[k].engine) == (s->nodes[k].cluster.number == leader),
                  "node %d takes number %u for the leader", i, (unsigned)leader);
    }
}

void check_at_rest(struct sim *s)
{
    check_now(s);
    for (const struct sim_event *e = s->events; e < s->events + s->event_count; e++) {
        for (size_t rule = 0; rule < RULE_COUNT; rule++) {
            if (s->rules[rule].on == e->type)
                HOLDS(s, is_delivered(s, e, rule, false), "event %" PRIu64 " never reached %s",
                      e->id, s->rules[rule].consumer);
        }
    }
    expect_none(s, "SELECT count(*) FROM outbox WHERE state <> 1", "events are not settled");
    expect_none(s, "SELECT count(*) FROM deliveries WHERE state IN (1, 2, 3, 4, 8)",
                "deliveries are open");
    int leaders = 0;
    for (int i = 0; i < s->node_count; i++) {
        struct engine_stats stats;
        engine_stats(s->nodes[i].engine, &stats);
        leaders += engine_leads(s->nodes[i].engine);
        HOLDS(s, stats.undone == 0, "%" PRIu64 " undone at node %d", stats.undone, i);
        HOLDS(s, stats.blocked_keys == 0, "%" PRIu64 " keys wait", stats.blocked_keys);
    }
    HOLDS(s, leaders == 1, "%d nodes lead", leaders);
    check_members(s);
}
