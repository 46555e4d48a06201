/* Leadership: two or three nodes with real engines over one store, a clock that is moved by hand,
 * and steps that the test calls. At no moment do two of them lead. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "crew.h"
#include "node/leadership.h"

enum { NODES = 2, TICK_MS = 100 };

struct place {
    struct crew crew;
    struct cluster clusters[NODES];
    struct leadership nodes[NODES];
    int64_t beat_us[NODES]; /* when it is due */
    bool hangs[NODES];      /* its beat does */
};

static void start(struct place *p, int i)
{
    crew_add(&p->crew, i);
    p->beat_us[i] = 0;
    leadership_init(&p->nodes[i], &(struct leadership_config){.engine = p->crew.nodes[i].engine,
                                                              .store = p->crew.db,
                                                              .clock = &p->crew.clock.clock,
                                                              .cluster = &p->clusters[i],
                                                              .token = 100 + (uint64_t)i,
                                                              .number = (uint32_t)i + 1});
    leadership_set_willing(&p->nodes[i], true);
}

static void end(struct place *p, int i)
{
    leadership_done(&p->nodes[i]);
    crew_kill(&p->crew, i);
}

static int set_up(void **state)
{
    struct place *p = calloc(1, sizeof *p);
    crew_init(&p->crew, NULL);
    for (int i = 0; i < NODES; i++)
        start(p, i);
    *state = p;
    return 0;
}

static int tear_down(void **state)
{
    struct place *p = *state;
    for (int i = 0; i < NODES; i++)
        end(p, i);
    crew_done(&p->crew);
    free(p);
    return 0;
}

static bool leads(struct place *p, int i)
{
    return engine_leads(p->crew.nodes[i].engine);
}

static enum err beat(struct place *p, int i)
{
    char address[32];
    snprintf(address, sizeof address, "http://node:%d", i);
    return leadership_beat(&p->nodes[i], address);
}

static void step(struct place *p, int i)
{
    (void)leadership_step(&p->nodes[i]);
    assert_int_equal(atomic_load(&p->clusters[i].leads), leads(p, i));
    assert_false(leads(p, 0) && leads(p, 1));
}

/* Both nodes as their threads would, for so long. */
static void pass(struct place *p, int64_t ms)
{
    for (int64_t until_us = p->crew.clock.mono_us + ms * 1000; p->crew.clock.mono_us < until_us;) {
        for (int i = 0; i < NODES; i++) {
            if (!p->hangs[i] && p->crew.clock.mono_us >= p->beat_us[i]) {
                p->beat_us[i] = p->crew.clock.mono_us + LEASE_BEAT_MS * INT64_C(1000);
                (void)beat(p, i);
            }
            step(p, i);
        }
        manual_clock_advance(&p->crew.clock, TICK_MS);
    }
}

static uint64_t term_in_truth(struct place *p)
{
    return (uint64_t)crew_ask(&p->crew, "SELECT term FROM leases");
}

static enum err run_fence(struct tx *tx, void *term)
{
    return lease_fence_engine(tx, *(uint64_t *)term);
}

/* ---- cases ---- */

static void one_leads_and_all_know_where_it_is(void **state)
{
    struct place *p = *state;
    pass(p, 1000);
    assert_true(leads(p, 0));
    for (int i = 0; i < NODES; i++) {
        char address[CLUSTER_ADDRESS_MAX];
        uint32_t number;
        leadership_leader(&p->nodes[i], address, &number);
        assert_string_equal(address, "http://node:0");
        assert_int_equal(number, 1);
        assert_int_equal(atomic_load(&p->clusters[i].term), 1);
    }
    assert_int_equal(leadership_term(&p->nodes[0]), 1);
    assert_int_equal(leadership_term(&p->nodes[1]), 0);
}

static void a_leader_whose_beat_hangs_resigns_before_another_leads(void **state)
{
    struct place *p = *state;
    pass(p, 1000);
    p->hangs[0] = true;
    pass(p, LEASE_GIVE_UP_MS + TICK_MS);
    assert_false(leads(p, 0)); /* by time alone */
    assert_false(leads(p, 1)); /* no node could know yet */
    pass(p, LEASE_SILENCE_MS);
    assert_true(leads(p, 1));
    assert_int_equal(leadership_term(&p->nodes[1]), 2);
    uint64_t old = 1, now = 2;
    assert_int_equal(db_write(p->crew.db, run_fence, &old, NULL), ERR_NO_LEADER);
    assert_int_equal(db_write(p->crew.db, run_fence, &now, NULL), OK);
    p->hangs[0] = false; /* it comes back, and follows */
    pass(p, 5000);
    assert_true(leads(p, 1));
    assert_int_equal(term_in_truth(p), 2);
    assert_int_equal(atomic_load(&p->clusters[0].term), 2);
}

static void a_clock_that_jumps_ends_the_lease(void **state)
{
    struct place *p = *state;
    pass(p, 1000);
    /* The machine slept. Whatever runs first, the step sees it without the store. */
    manual_clock_advance(&p->crew.clock, 60 * 1000);
    plain_db_faults(p->crew.store)->reads_fail = true;
    plain_db_faults(p->crew.store)->writes_fail = ERR_UNAVAILABLE;
    assert_true(engine_leads(p->crew.nodes[0].engine));
    step(p, 0);
    assert_false(leads(p, 0));
    assert_int_equal(beat(p, 0), ERR_UNAVAILABLE);
    step(p, 0);
    assert_false(leads(p, 0));
    plain_db_faults(p->crew.store)->reads_fail = false;
    plain_db_faults(p->crew.store)->writes_fail = OK;
    pass(p, 1000);
    assert_true(leads(p, 0)); /* the row names it: it need not wait for its own silence … */
    assert_int_equal(leadership_term(&p->nodes[0]), 2); /* … and begins a new term */
}

/* It was stopped for as long as its lease lasts. Its relay may run before its next beat does. */
static void a_leader_that_was_stopped_sends_nothing_until_it_has_its_lease_again(void **state)
{
    struct place *p = *state;
    p->crew.followers[1] = 3;
    pass(p, 1000);
    manual_clock_advance(&p->crew.clock, LEASE_GIVE_UP_MS);
    uint64_t post = crew_commit(&p->crew, EVENT_POST_CREATED, 1);
    crew_run(&p->crew, 1, 50);
    assert_true(leads(p, 0)); /* it does not know yet */
    assert_int_equal(crew_deliveries_of(&p->crew, post), 0);
    pass(p, 1000);
    crew_run(&p->crew, 1, 50);
    assert_int_equal(crew_deliveries_of(&p->crew, post), 3);
}

static void a_spent_term_is_not_led_again(void **state)
{
    struct place *p = *state;
    pass(p, 1000);
    p->crew.save_error = ERR_CONFLICT; /* the views lost what was not saved */
    uint64_t event = crew_commit(&p->crew, EVENT_POST_CREATED, 1);
    assert_true(event > 0);
    for (int i = 0; i < 50 && !engine_must_resign(p->crew.nodes[0].engine); i++) {
        crew_run(&p->crew, 1, 100);
        (void)beat(p, 0);
    }
    assert_true(engine_must_resign(p->crew.nodes[0].engine));
    p->crew.save_error = OK;
    step(p, 0);
    assert_false(leads(p, 0));
    step(p, 0);
    assert_false(leads(p, 0)); /* the lease is ours, and its term is over */
    assert_int_equal(beat(p, 0), OK);
    step(p, 0);
    assert_true(leads(p, 0));
    assert_int_equal(leadership_term(&p->nodes[0]), 2);
}

static void who_may_not_lead_gives_the_lease_back(void **state)
{
    struct place *p = *state;
    pass(p, 1000);
    leadership_set_willing(&p->nodes[0], false);
    pass(p, 2 * LEASE_BEAT_MS + 2 * TICK_MS); /* sooner than silence would allow */
    assert_false(leads(p, 0));
    assert_true(leads(p, 1));
    leadership_set_willing(&p->nodes[0], true);
    pass(p, 5000);
    assert_true(leads(p, 1)); /* it is not taken from a holder */
}

static void a_restart_leads_again_in_a_new_term(void **state)
{
    struct place *p = *state;
    pass(p, 1000);
    end(p, 0);
    start(p, 0);
    assert_int_equal(beat(p, 0), OK);
    step(p, 0);
    assert_true(leads(p, 0));
    assert_int_equal(leadership_term(&p->nodes[0]), 2);
}

static void an_end_leaves_the_lease_to_others(void **state)
{
    struct place *p = *state;
    pass(p, 1000);
    assert_int_equal(leadership_end(&p->nodes[0]), OK);
    assert_false(leads(p, 0));
    assert_int_equal(crew_ask(&p->crew, "SELECT holder FROM leases"), 0);
    p->hangs[0] = true;
    pass(p, LEASE_BEAT_MS + TICK_MS);
    assert_true(leads(p, 1));
}

static void a_lost_reply_is_no_lease(void **state)
{
    struct place *p = *state;
    p->crew.faults->lose_replies = 1;
    assert_int_equal(beat(p, 0), ERR_UNKNOWN_COMMIT);
    step(p, 0);
    assert_false(leads(p, 0)); /* truth names it; it does not know */
    assert_int_equal(term_in_truth(p), 1);
    assert_int_equal(beat(p, 0), OK);
    step(p, 0);
    assert_true(leads(p, 0));
    assert_int_equal(leadership_term(&p->nodes[0]), 2);
}

static bool is_stopped(struct place *p, int i, enum lane lane)
{
    struct engine_stats stats;
    engine_stats(p->crew.nodes[i].engine, &stats);
    return stats.lanes[lane].breaker.state == BREAKER_BY_HAND;
}

static void all_follow_the_leaders_lanes(void **state)
{
    struct place *p = *state;
    pass(p, 1000);
    engine_stop_lane(p->crew.nodes[0].engine, LANE_CLEANUP, true);
    engine_set_lane(p->crew.nodes[0].engine, LANE_SMALL, 3, 7);
    pass(p, 1000);
    struct engine_stats stats;
    engine_stats(p->crew.nodes[1].engine, &stats);
    assert_true(is_stopped(p, 1, LANE_CLEANUP));
    assert_int_equal(stats.lanes[LANE_SMALL].concurrency, 3);
    assert_int_equal(stats.lanes[LANE_SMALL].rate, 7);
    p->hangs[0] = true; /* the next leader continues with them */
    pass(p, 6000);
    assert_true(leads(p, 1) && is_stopped(p, 1, LANE_CLEANUP));
}

static void other_versions_are_understood_or_name_no_leader(void **state)
{
    struct place *p = *state;
    char address[CLUSTER_ADDRESS_MAX];
    uint32_t number;
    pass(p, 1000);
    p->hangs[0] = true;
    plain_db_run(p->crew.store, "UPDATE leases SET beat = beat + 1, body = "
                                "'node=9 address=http://old:1 lanes=graph:5:0:stopped'");
    assert_int_equal(beat(p, 1), OK);
    leadership_leader(&p->nodes[1], address, &number);
    assert_string_equal(address, "http://old:1");
    assert_true(is_stopped(p, 1, LANE_GRAPH));
    plain_db_run(p->crew.store,
                 "UPDATE leases SET beat = beat + 1, body = 'node=9 address=http://new:1 v=2'");
    assert_int_equal(beat(p, 1), OK);
    leadership_leader(&p->nodes[1], address, &number);
    assert_string_equal(address, "");
    assert_int_equal(number, 0);
    assert_true(is_stopped(p, 1, LANE_GRAPH)); /* nothing was said: nothing changes */
}

#define CASE(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(one_leads_and_all_know_where_it_is),
        CASE(a_leader_whose_beat_hangs_resigns_before_another_leads),
        CASE(a_clock_that_jumps_ends_the_lease),
        CASE(a_leader_that_was_stopped_sends_nothing_until_it_has_its_lease_again),
        CASE(a_spent_term_is_not_led_again),
        CASE(who_may_not_lead_gives_the_lease_back),
        CASE(a_restart_leads_again_in_a_new_term),
        CASE(an_end_leaves_the_lease_to_others),
        CASE(a_lost_reply_is_no_lease),
        CASE(all_follow_the_leaders_lanes),
        CASE(other_versions_are_understood_or_name_no_leader),
    };
    return cmocka_run_group_tests_name("node/leadership", tests, NULL, NULL);
}
