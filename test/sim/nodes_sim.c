/* Many nodes under a seeded simulator: one thread, one seed. An agenda of (virtual time, seeded
 * tie-break, step) drives the engines, the leadership and the membership of two to four nodes
 * (nodes_sim.h), while events are committed everywhere, and nodes die, come back with another data
 * folder, pause, stall in the middle of a delivery, lose the store, the bus or the views; leaders
 * are replaced without being told; messages and reports are lost, doubled, late; writes stay open
 * for long; the views lose what has no second copy, or everything, or miss a change. At the end the
 * faults are gone, an operator drives again what is dead, and all must come to rest.
 *
 *     nodes_sim 300            the regressions, then seeds 1 … 300; TAP
 *     nodes_sim seed 42        one seed, told in detail
 *     nodes_sim from 5 to 9    these seeds */
#include "nodes_sim.h"
#include "lossy_bus.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/check.h"
#include "base/log.h"

enum {
    SPAN_MIN_MS = 10 * 1000, /* of commits and faults */
    SPAN_MAX_MS = 60 * 1000,
    REST_MS = 3600 * 1000, /* to come to rest, at most */
    STEPS_MAX = 400 * 1000,
    CHAOS_PER_SPAN = 40,
    ROUNDS_MAX = 12,
    CALL_EVERY_US = 1000 * 1000, /* a call of a node ends about so often */
};

/* Seeds that once found something. They run first, each time. */
static const uint64_t regressions[] = {6, 169, 985, 1260, 1723, 2839, 4056, 5260, 5566};

enum step {
    STEP_BEAT,
    STEP_LEAD,
    STEP_VIEWS,
    STEP_RELAY,
    STEP_RECORDER,
    STEP_WATERMARK,
    STEP_OUTSIDE,
    STEP_CALLS, /* one of those under way ends */
    STEP_WORKER,
    STEPS = STEP_WORKER + WORKERS
};
enum { WRITE = NODES_MAX * STEPS, CHAOS, AGENDA };

struct agenda {
    struct sim s;
    int64_t due_us[AGENDA];
    uint64_t tie[AGENDA];
    int64_t span_us;
    size_t events_left;
    bool stalling;
};

static struct agenda *agenda_of(struct sim *s)
{
    return CONTAINER_OF(s, struct agenda, s);
}

static void soon(struct agenda *a, int slot)
{
    int64_t soon_us = a->s.clock.mono_us + (int64_t)rand_below(&a->s.rand, 60);
    if (a->due_us[slot] > soon_us)
        a->due_us[slot] = soon_us;
}

static void wake(void *ctx, enum engine_sleeper who)
{
    struct sim_node *n = ctx;
    struct agenda *a = agenda_of(n->sim);
    if (who == ENGINE_RELAY)
        soon(a, n->number * STEPS + STEP_RELAY);
    else if (who == ENGINE_RECORDER)
        soon(a, n->number * STEPS + STEP_RECORDER);
    else if (who == ENGINE_OUTSIDE)
        soon(a, n->number * STEPS + STEP_OUTSIDE);
    bool works = who == ENGINE_VIEWS || who == ENGINE_TRUTH;
    for (int i = 0; works && i < WORKERS; i++)
        soon(a, n->number * STEPS + STEP_WORKER + i);
}

static void all_awake(struct agenda *a, struct sim_node *n)
{
    for (int i = 0; i < STEPS; i++)
        a->due_us[n->number * STEPS + i] =
            a->s.clock.mono_us + (int64_t)rand_below(&a->s.rand, 1000);
}

/* ---- leading ---- */

/* The server's own: only the threads that call it are missing. */
static int64_t lead_step(struct sim *s, struct sim_node *n)
{
    bool led = engine_leads(n->engine);
    int64_t again_us = leadership_step(&n->membership.leadership);
    bool leads = engine_leads(n->engine);
    membership_decide_trust(&n->membership);
    if (leads && !led) {
        s->totals.terms++;
        sim_say(s, "node %d leads in term %" PRIu64, n->number,
                leadership_term(&n->membership.leadership));
    } else if (led && !leads) {
        sim_say(s, "node %d resigns", n->number);
    }
    return again_us;
}

/* ---- what goes wrong ---- */

static struct sim_node *any_node(struct sim *s)
{
    return &s->nodes[rand_below(&s->rand, (uint64_t)s->node_count)];
}

static void crash(struct agenda *a, struct sim_node *n)
{
    if (n->stalled || n->waits)
        return;
    if (n->engine)
        sim_kill(&a->s, n);
    sim_start(&a->s, n);
    all_awake(a, n);
    /* It takes a while to come back. */
    n->paused_until_us = a->s.clock.mono_us + (int64_t)rand_below(&a->s.rand, 6 * 1000 * 1000);
}

/* A write that got its id now and is committed later; the horizon waits for it. */
static void slow_write(struct sim *s)
{
    struct plain_db_faults *f = plain_db_faults(s->store);
    if (!s->slow_open) {
        s->slow_open = true;
        s->slow_clock.wall_ms = s->clock.wall_ms;
        f->horizon_held = id_at(s->clock.wall_ms, 0, 0) - 1;
        return;
    }
    s->slow_open = false;
    s->totals.slow++;
    sim_commit(s, any_node(s), &s->slow_ids);
    f->horizon_held = 0;
}

static void trouble(struct sim *s)
{
    struct rand *r = &s->rand;
    switch (rand_below(r, 7)) {
    case 0:
        s->fail_one_in = s->fail_one_in ? 0 : 2 + (uint32_t)rand_below(r, 10);
        break;
    case 1:
        s->save_fails_one_in = s->save_fails_one_in ? 0 : 1 + (uint32_t)rand_below(r, 3);
        break;
    case 2:
        s->apply_fails_one_in = s->apply_fails_one_in ? 0 : 1 + (uint32_t)rand_below(r, 3);
        break;
    case 3:
        s->mail_unknown_one_in = s->mail_unknown_one_in ? 0 : 1 + (uint32_t)rand_below(r, 6);
        break;
    case 4:
        s->die_one_in = s->die_one_in ? 0 : 10 + (uint32_t)rand_below(r, 100);
        break;
    case 5:
        s->stall_one_in = s->stall_one_in ? 0 : 5 + (uint32_t)rand_below(r, 50);
        break;
    default:
        plain_db_faults(s->store)->lose_replies = 1 + (uint32_t)rand_below(r, 3);
        break;
    }
}

static void chaos(struct agenda *a)
{
    struct sim *s = &a->s;
    struct sim_node *n = any_node(s);
    switch (rand_below(&s->rand, 13)) {
    case 12:
        n->views_cut = !n->views_cut;
        break;
    case 0:
        crash(a, n);
        break;
    case 1:
    case 2:
        n->paused_until_us = s->clock.mono_us + (int64_t)rand_below(&s->rand, 9 * 1000 * 1000);
        break;
    case 3:
        n->store_cut = !n->store_cut;
        break;
    case 4:
        n->bus_cut = !n->bus_cut;
        if (n->bus_cut) /* the broker gives to others what it held */
            lossy_bus_drop_takers(s->bus);
        break;
    case 5:
        sim_lose_views(s);
        break;
    case 6:
    case 7:
        slow_write(s);
        break;
    default:
        trouble(s);
        break;
    }
}

/* ---- the agenda ---- */

static int64_t write_step(struct agenda *a)
{
    struct rand *r = &a->s.rand;
    size_t burst = rand_below(r, 6) ? 1 : 1 + rand_below(r, 8);
    for (; burst > 0 && a->events_left > 0; burst--, a->events_left--) {
        struct sim_node *n = any_node(&a->s);
        if (!n->dead && !n->stalled)
            sim_commit(&a->s, n, &n->ids);
    }
    return a->events_left ? a->s.clock.mono_us + (int64_t)rand_below(r, (uint64_t)a->span_us / 20)
                          : INT64_MAX;
}

static int64_t run_step(struct agenda *a, int slot)
{
    struct sim *s = &a->s;
    if (slot == WRITE)
        return write_step(a);
    if (slot == CHAOS) {
        chaos(a);
        return s->clock.mono_us +
               (int64_t)rand_below(&s->rand, 2 * (uint64_t)a->span_us / CHAOS_PER_SPAN);
    }
    struct sim_node *n = &s->nodes[slot / STEPS];
    switch (slot % STEPS) {
    case STEP_BEAT:
        return membership_beat_step(&n->membership);
    case STEP_LEAD:
        return lead_step(s, n);
    case STEP_VIEWS:
        return membership_views_step(&n->membership);
    case STEP_RELAY:
        return engine_relay_step(n->engine);
    case STEP_RECORDER:
        return engine_recorder_step(n->engine);
    case STEP_WATERMARK:
        return engine_watermark_step(n->engine);
    case STEP_OUTSIDE:
        return engine_outside_step(n->engine);
    case STEP_CALLS:
        sim_end_call(n);
        return s->clock.mono_us + (int64_t)rand_below(&s->rand, CALL_EVERY_US);
    default:
        return engine_worker_step(n->engine);
    }
}

/* When the slot's turn is; a node that is away has none. */
static int64_t turn_of(const struct agenda *a, int slot)
{
    if (slot >= WRITE)
        return a->due_us[slot];
    const struct sim_node *n = &a->s.nodes[slot / STEPS];
    if (slot / STEPS >= a->s.node_count || n->stalled)
        return INT64_MAX;
    return a->due_us[slot] > n->paused_until_us ? a->due_us[slot] : n->paused_until_us;
}

static int next_slot(const struct agenda *a)
{
    int best = 0;
    int64_t best_us = turn_of(a, 0);
    for (int i = 1; i < AGENDA; i++) {
        int64_t turn_us = turn_of(a, i);
        if (turn_us < best_us || (turn_us == best_us && a->tie[i] < a->tie[best])) {
            best = i;
            best_us = turn_us;
        }
    }
    return best;
}

static void set_time(struct manual_clock *c, int64_t mono_us)
{
    if (mono_us <= c->mono_us)
        return;
    c->wall_ms += mono_us / 1000 - c->mono_us / 1000;
    c->mono_us = mono_us;
}

static void take_step(struct agenda *a, int slot)
{
    struct sim *s = &a->s;
    set_time(&s->clock, turn_of(a, slot));
    HOLDS(s, s->totals.steps++ < STEPS_MAX, "step %d never rests", slot % STEPS);
    a->due_us[slot] = INT64_MAX; /* a wake-up during the step counts */
    int64_t again_us = run_step(a, slot);
    int64_t soonest_us = s->clock.mono_us + 1 + (int64_t)rand_below(&s->rand, 80);
    again_us = again_us < soonest_us ? soonest_us : again_us;
    if (again_us < a->due_us[slot])
        a->due_us[slot] = again_us;
    a->tie[slot] = rand_u64(&s->rand);
    sim_trace(s, (uint64_t)slot, (uint64_t)a->due_us[slot]);
    if (slot < WRITE && s->nodes[slot / STEPS].dead)
        crash(a, &s->nodes[slot / STEPS]);
    if ((slot < WRITE && slot % STEPS == STEP_WATERMARK && sim_chance(s, 6)) || sim_chance(s, 100))
        check_now(s);
}

static bool run_until(struct agenda *a, int64_t end_us, bool (*enough)(struct agenda *a))
{
    for (uint64_t n = 0;; n++) {
        if (enough && n % 32 == 0 && enough(a))
            return true;
        int slot = next_slot(a);
        if (turn_of(a, slot) > end_us)
            break;
        take_step(a, slot);
    }
    set_time(&a->s.clock, end_us);
    return enough && enough(a);
}

/* In the middle of a delivery the others go on without this node. */
static void stall(struct sim *s, struct sim_node *n)
{
    struct agenda *a = agenda_of(s);
    if (a->stalling)
        return;
    a->stalling = n->stalled = true;
    s->totals.stalls++;
    int64_t span_us = (int64_t)rand_below(&s->rand, 10 * 1000 * 1000);
    sim_say(s, "node %d stalls for %.3f s", n->number, (double)span_us / 1e6);
    run_until(a, s->clock.mono_us + span_us, NULL);
    a->stalling = n->stalled = false;
}

static bool may_wait(struct sim *s)
{
    return !agenda_of(s)->stalling;
}

/* All go on, this node too: only its caller waits. */
static void pause_caller(void *ctx, int64_t ms)
{
    struct sim *s = ((struct sim_node *)ctx)->sim;
    struct agenda *a = agenda_of(s);
    bool before = a->stalling;
    a->stalling = true;
    run_until(a, s->clock.mono_us + ms * 1000, NULL);
    a->stalling = before;
}

/* ---- a whole run ---- */

static void heal(struct agenda *a)
{
    struct sim *s = &a->s;
    s->healed = true;
    s->fail_one_in = s->save_fails_one_in = s->apply_fails_one_in = s->mail_unknown_one_in = 0;
    s->die_one_in = s->stall_one_in = 0;
    if (s->slow_open)
        slow_write(s);
    plain_db_faults(s->store)->lose_replies = 0;
    lossy_bus_calm(s->bus);
    for (int i = 0; i < s->node_count; i++) {
        s->nodes[i].store_cut = s->nodes[i].bus_cut = s->nodes[i].views_cut = false;
        s->nodes[i].paused_until_us = 0;
    }
    a->due_us[WRITE] = a->due_us[CHAOS] = INT64_MAX;
}

static bool is_at_rest(struct agenda *a)
{
    bool drained = false;
    for (int i = 0; i < a->s.node_count; i++)
        drained |= engine_drained(a->s.nodes[i].engine);
    return drained && check_views_are_loaded(&a->s) &&
           plain_db_ask_often(a->s.store,
                              "SELECT (SELECT count(*) FROM outbox WHERE state = 0) + "
                              "(SELECT count(*) FROM deliveries d WHERE state IN (1, 2, 3) AND "
                              "NOT EXISTS (SELECT 1 FROM deliveries o WHERE o.lane = d.lane "
                              "AND o.order_key = d.order_key AND o.order_key <> 0 "
                              "AND o.state = 4))") == 0;
}

static enum err run_redrive(struct tx *tx, void *arg)
{
    struct sim *s = arg;
    struct delivery_slice slice = {.max = 10000};
    struct delivery_filter filter = {0};
    int64_t now_ms = s->clock.wall_ms;
    return delivery_store_redrive(tx, &filter, &slice, now_ms, 0, 0, now_ms);
}

/* An operator at any of the nodes; the leader has to notice. */
static bool decide(struct sim *s)
{
    if (plain_db_ask(s->store, "SELECT count(*) FROM deliveries WHERE state = 4") == 0)
        return false;
    for (size_t i = 0; i < s->event_count; i++) {
        char sql[140];
        snprintf(sql, sizeof sql,
                 "SELECT count(*) FROM deliveries WHERE state = 4 AND consumer = 'mailer' "
                 "AND event_id = %" PRIu64,
                 s->events[i].id);
        s->events[i].granted += (uint32_t)plain_db_ask(s->store, sql);
    }
    HOLDS(s, db_write(&any_node(s)->db, run_redrive, s, NULL) == OK, "no re-drive");
    return true;
}

static void come_to_rest(struct agenda *a)
{
    struct sim *s = &a->s;
    for (int round = 0;; round++) {
        HOLDS(s, round < ROUNDS_MAX, "dead letters come back for ever");
        bool rests = run_until(a, s->clock.mono_us + REST_MS * INT64_C(1000), is_at_rest);
        HOLDS(s, rests, "it never comes to rest: %" PRId64 " pending, %" PRId64 " open",
              plain_db_ask(s->store, "SELECT count(*) FROM outbox WHERE state = 0"),
              plain_db_ask(s->store, "SELECT count(*) FROM deliveries WHERE state <= 3"));
        if (!decide(s))
            break;
        run_until(a, s->clock.mono_us + 2 * INT64_C(1000000), NULL); /* it is noticed */
    }
    /* A former leader that was away learns that it is one. */
    run_until(a, s->clock.mono_us + 5 * INT64_C(1000000), NULL);
    check_at_rest(s);
}

static uint64_t run_seed(uint64_t seed, struct plain_db *store, bool tell)
{
    struct agenda *a = calloc(1, sizeof *a);
    CHECK(a);
    struct sim *s = &a->s;
    s->tell = tell;
    s->wake = wake;
    s->stall = stall;
    s->may_wait = may_wait;
    s->pause = pause_caller;
    sim_open(s, seed, store);
    a->span_us = 1000 * (SPAN_MIN_MS + (int64_t)rand_below(&s->rand, SPAN_MAX_MS - SPAN_MIN_MS));
    a->events_left = 10 + rand_below(&s->rand, 50);
    for (int i = 0; i < s->node_count; i++)
        all_awake(a, &s->nodes[i]);
    a->due_us[WRITE] = a->due_us[CHAOS] = s->clock.mono_us;
    run_until(a, s->clock.mono_us + a->span_us, NULL);
    heal(a);
    come_to_rest(a);
    uint64_t result = s->trace;
    if (tell)
        printf("# seed %" PRIu64 ": %d nodes, %zu events, %" PRIu64 " steps, %" PRIu64
               " crashes, %" PRIu64 " terms, %" PRIu64 " deliveries, %" PRIu64 " repeats, %" PRIu64
               " failures, %" PRIu64 " stalls, %" PRIu64 " losses, %" PRIu64
               " slow writes, %" PRIu64 " loads, %" PRIu64 " waits, trace %016" PRIx64 "\n",
               seed, s->node_count, s->event_count, s->totals.steps, s->totals.crashes,
               s->totals.terms, s->totals.deliveries, s->totals.repeats, s->totals.failures,
               s->totals.stalls, s->totals.losses, s->totals.slow, s->totals.loads, s->totals.waits,
               result);
    sim_close(s);
    free(a);
    return result;
}

/* Each tenth one twice: the same seed is the same history. */
static bool run_seeds(struct plain_db *store, uint64_t from, uint64_t to)
{
    for (uint64_t seed = from; seed <= to; seed++) {
        uint64_t first = run_seed(seed, store, false);
        if (seed % 10 == 0 && run_seed(seed, store, false) != first) {
            printf("# seed %" PRIu64 ": two runs differ\n", seed);
            return false;
        }
    }
    return true;
}

static struct plain_db *open_store(void)
{
    static struct manual_clock clock;
    static struct id_gen ids;
    manual_clock_init(&clock, 0);
    id_gen_init(&ids, &clock.clock, 1);
    struct plain_db *store = plain_db_new(&clock.clock, &ids);
    plain_db_run(store, "CREATE TABLE nodes_sim_rows (event_id INTEGER NOT NULL)");
    return store;
}

int main(int argc, char **argv)
{
    log_set_level(LOG_ERROR + 1);
    struct plain_db *store = open_store();
    if (argc == 3 && strcmp(argv[1], "seed") == 0) {
        run_seed(strtoull(argv[2], NULL, 10), store, true);
        plain_db_free(store);
        return 0;
    }
    uint64_t from = 1, to = argc > 1 ? strtoull(argv[1], NULL, 10) : 100;
    size_t known = COUNT_OF(regressions);
    if (argc == 5 && strcmp(argv[1], "from") == 0 && strcmp(argv[3], "to") == 0) {
        from = strtoull(argv[2], NULL, 10);
        to = strtoull(argv[4], NULL, 10);
        known = 0;
    }
    printf("1..2\n");
    bool good = true;
    for (size_t i = 0; i < known && good; i++)
        good = run_seeds(store, regressions[i], regressions[i]);
    printf("%s 1 - what once went wrong goes right, over %zu histories\n", good ? "ok" : "not ok",
           known);
    good = good && run_seeds(store, from, to);
    printf("%s 2 - whoever leads, everything is delivered and nothing settled before, over "
           "histories %" PRIu64 " to %" PRIu64 "\n",
           good ? "ok" : "not ok", from, to);
    plain_db_free(store);
    return good ? 0 : 1;
}
