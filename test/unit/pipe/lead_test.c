/* Many nodes: one leads, all work. Who may do what, and that nothing gets lost when reports,
 * leaders or the views' copies do. Whole histories of it: test/sim/nodes_sim.c. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "crew.h"
#include "lossy_bus.h"

static struct crew c;
static int failing_node; /* the node whose sinks fail; -1: none */

static int set_up(void **state)
{
    (void)state;
    failing_node = -1;
    crew_init(&c, NULL);
    for (int i = 0; i < CREW_MAX; i++)
        crew_add(&c, i);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    crew_done(&c);
    return 0;
}

static enum err fail_there(struct crew *crew, int node, const struct event *e)
{
    (void)crew;
    (void)e;
    return node == failing_node ? ERR_UNAVAILABLE : OK;
}

static struct engine *engine_of(int node)
{
    return c.nodes[node].engine;
}

static struct engine_stats stats_of(int node)
{
    struct engine_stats stats;
    engine_stats(engine_of(node), &stats);
    return stats;
}

static uint64_t members(uint64_t n)
{
    return (n >= 63 ? ~UINT64_C(0) : (UINT64_C(1) << (n + 1)) - 1) & ~UINT64_C(1);
}

static int64_t pending(void)
{
    return crew_ask(&c, "SELECT count(*) FROM outbox WHERE state = 0");
}

static uint64_t waiting_on(uint16_t lane)
{
    struct bus_lane_stats stats;
    bus_lane_stats(c.bus, lane, &stats);
    return stats.ready + stats.delayed + stats.taken;
}

/* ---- leading ---- */

static void without_a_leader_nothing_happens(void **state)
{
    (void)state;
    c.followers[1] = 3;
    uint64_t post = crew_commit(&c, EVENT_POST_CREATED, 1);
    crew_run(&c, 7, 300);
    assert_int_equal(crew_deliveries_of(&c, post), 0);
    assert_int_equal(pending(), 1);
    for (int i = 0; i < CREW_MAX; i++) {
        assert_false(engine_leads(engine_of(i)));
        assert_false(engine_quiet(engine_of(i)));
        assert_false(engine_drained(engine_of(i)));
        assert_int_equal(engine_settled_through(engine_of(i)), 0);
        struct engine_stats stats = stats_of(i);
        assert_int_equal(stats.undone + stats.events_taken + stats.settled_through, 0);
        assert_string_equal(stats.lanes[LANE_SMALL].name, "small");
        struct event_look look;
        engine_look(engine_of(i), post, &look);
        assert_int_equal(look.stage, STAGE_UNKNOWN);
        engine_deliveries_changed(engine_of(i));
        engine_jobs_changed(engine_of(i));
        engine_resign(engine_of(i));
        assert_true(engine_relay_step(engine_of(i)) > c.clock.mono_us);
        assert_true(engine_sample_step(engine_of(i)) > c.clock.mono_us);
    }
}

static void a_leader_alone_does_it_all(void **state)
{
    (void)state;
    c.followers[1] = 3;
    c.followers[2] = 22; /* a large one: split, and walked page by page */
    assert_int_equal(crew_lead(&c, 0), OK);
    uint64_t small = crew_commit(&c, EVENT_POST_CREATED, 1);
    uint64_t large = crew_commit(&c, EVENT_POST_CREATED, 2);
    uint64_t follow = crew_commit(&c, EVENT_FOLLOW_CREATED, 3);
    crew_run(&c, 1, 50);
    assert_int_equal(crew_deliveries_of(&c, small), 3);
    assert_int_equal(crew_deliveries_of(&c, large), 22);
    assert_int_equal(crew_deliveries_of(&c, follow), 1);
    assert_true(engine_quiet(engine_of(0)));
    crew_run(&c, 1, 1100);
    assert_int_equal(pending(), 0);
    assert_true(crew_watermark(&c) >= follow);
    assert_true(engine_drained(engine_of(0)));
    assert_int_equal(stats_of(0).undone, 0);
    assert_int_equal(waiting_on(ENGINE_REPORTS), 0);
    assert_int_equal(stats_of(0).reports, 0);
}

static void a_lead_that_fails_leaves_nothing_behind(void **state)
{
    (void)state;
    c.followers[1] = 3;
    uint64_t post = crew_commit(&c, EVENT_POST_CREATED, 1);
    c.faults->reads_fail = true;
    assert_int_not_equal(crew_lead(&c, 0), OK);
    assert_false(engine_leads(engine_of(0)));
    c.faults->reads_fail = false;
    c.save_error = ERR_UNAVAILABLE; /* it could not tell later what was lost */
    assert_int_equal(crew_lead(&c, 0), ERR_UNAVAILABLE);
    c.save_error = OK;
    crew_run(&c, 1, 50);
    assert_int_equal(crew_deliveries_of(&c, post), 0);
    assert_int_equal(engine_lead(engine_of(0), c.term - 1), ERR_NO_LEADER);
    assert_int_equal(crew_lead(&c, 0), OK);
    crew_run(&c, 1, 50);
    assert_int_equal(crew_deliveries_of(&c, post), 3);
}

/* ---- work elsewhere ---- */

static void followers_work_and_report(void **state)
{
    (void)state;
    c.followers[1] = 22;
    c.again = 2;
    assert_int_equal(crew_lead(&c, 0), OK);
    uint64_t post = crew_commit(&c, EVENT_POST_CREATED, 1);
    uint64_t follow = crew_commit(&c, EVENT_FOLLOW_CREATED, 3);
    for (int i = 0; i < 60; i++) {
        crew_relay(&c, 0); /* it publishes and takes reports, and works on nothing itself */
        crew_work(&c, 1 + i % 2);
        manual_clock_advance(&c.clock, 1);
    }
    assert_int_equal(crew_deliveries_of(&c, post), 22);
    assert_int_equal(crew_deliveries_of(&c, follow), 3);
    for (size_t i = 0; i < c.log_count; i++)
        assert_int_not_equal(c.log[i].node, 0);
    struct engine_stats stats = stats_of(0);
    assert_int_equal(stats.undone, 0);
    assert_int_equal(stats.lanes[LANE_REST].delivered, 22);
    assert_int_equal(stats.lanes[LANE_GRAPH].delivered, 3);
    assert_int_equal(stats.lanes[LANE_REST].own.delivered, 0);
    assert_int_equal(stats_of(1).lanes[LANE_REST].own.delivered +
                         stats_of(2).lanes[LANE_REST].own.delivered,
                     22);
    assert_true(stats.reports > 8); /* pages, each reported before and after; split; again */
    assert_int_equal(stats.reports_unmatched, 0);
    assert_true(engine_quiet(engine_of(0)));
    crew_run(&c, 1, 1100);
    assert_int_equal(pending(), 0);
}

static void what_fails_elsewhere_is_in_the_delivery_store_here(void **state)
{
    (void)state;
    c.followers[1] = 3;
    c.before_sink = fail_there;
    failing_node = 1;
    assert_int_equal(crew_lead(&c, 0), OK);
    uint64_t post = crew_commit(&c, EVENT_POST_CREATED, 1);
    uint64_t follow = crew_commit(&c, EVENT_FOLLOW_CREATED, 3);
    uint64_t next = crew_commit(&c, EVENT_FOLLOW_CREATED, 3); /* waits behind it */
    crew_relay(&c, 0);
    crew_work(&c, 1);
    crew_run(&c, 1, 20);
    assert_int_equal(crew_ask(&c, "SELECT count(*) FROM deliveries WHERE state = 1"), 2);
    assert_int_equal(crew_ask(&c, "SELECT count(*) FROM deliveries WHERE state = 3"), 1);
    assert_int_equal(crew_ask(&c, "SELECT max(tries) FROM deliveries"), 1);
    failing_node = -1;
    crew_run(&c, 7, 4000);
    assert_int_equal(crew_deliveries_of(&c, post), 3);
    assert_int_equal(crew_deliveries_of(&c, follow), 1);
    assert_int_equal(crew_deliveries_of(&c, next), 1);
    assert_int_equal(crew_ask(&c, "SELECT count(*) FROM deliveries WHERE state <> 5"), 0);
}

/* Hopeful continuations of a fan-out that fails would be as many deliveries in the delivery store
 * as it has pages. */
static void a_failing_fan_out_elsewhere_is_few_deliveries(void **state)
{
    (void)state;
    c.followers[1] = 60; /* fifteen pages */
    c.before_sink = fail_there;
    failing_node = 1;
    assert_int_equal(crew_lead(&c, 0), OK);
    uint64_t post = crew_commit(&c, EVENT_POST_CREATED, 1);
    for (int i = 0; i < 100; i++) {
        crew_relay(&c, 0);
        crew_work(&c, 1);
        engine_recorder_step(engine_of(0));
        manual_clock_advance(&c.clock, 1);
    }
    int64_t recorded = crew_ask(&c, "SELECT count(*) FROM deliveries");
    assert_true(recorded >= 1 && recorded <= 4);
    failing_node = -1;
    crew_run(&c, 7, 20000);
    assert_true(crew_reached(&c, post) == members(60));
    assert_int_equal(crew_ask(&c, "SELECT count(*) FROM deliveries WHERE state <> 5"), 0);
    assert_int_equal(pending(), 0);
}

/* ---- reports that get lost ---- */

/* Takes what was reported off the bus; returns how many there were. */
static size_t lose_reports(uint8_t kind)
{
    struct bus_message taken[64];
    size_t n = 0, lost = 0;
    while (n < 64 && bus_take(c.bus, ENGINE_REPORTS, c.clock.mono_us, &taken[n]))
        n++;
    for (size_t i = 0; i < n; i++) {
        bool lose = kind == REPORT_NONE || taken[i].report.kind == kind;
        lost += lose;
        if (!lose)
            assert_int_equal(bus_publish(c.bus, &taken[i]), OK);
        bus_ack(c.bus, &taken[i]);
    }
    return lost;
}

static void a_lost_report_is_a_unit_sent_again(void **state)
{
    (void)state;
    c.followers[1] = 3;
    assert_int_equal(crew_lead(&c, 0), OK);
    uint64_t post = crew_commit(&c, EVENT_POST_CREATED, 1);
    crew_relay(&c, 0);
    crew_work(&c, 1);
    assert_int_equal(lose_reports(REPORT_NONE), 1);
    assert_int_equal(crew_deliveries_of(&c, post), 3);
    manual_clock_advance(&c.clock, 4000);
    crew_run(&c, 1, 10);
    assert_int_equal(stats_of(0).undone, 1);
    assert_true(crew_watermark(&c) < post);
    assert_int_equal(pending(), 1);
    crew_run(&c, 7, 3000);
    assert_int_equal(crew_deliveries_of(&c, post), 6); /* twice, which sinks do not mind */
    assert_int_equal(stats_of(0).resent, 1);
    assert_int_equal(stats_of(0).undone, 0);
    assert_int_equal(pending(), 0);
}

/* The page is done, and the report that its walk should continue elsewhere was lost. */
static void a_lost_report_ahead_loses_no_member(void **state)
{
    (void)state;
    c.followers[1] = 40;
    assert_int_equal(crew_lead(&c, 0), OK);
    uint64_t post = crew_commit(&c, EVENT_POST_CREATED, 1);
    size_t lost = 0;
    for (int i = 0; i < 100; i++) {
        crew_relay(&c, 0);
        crew_work(&c, 1);
        lost += lose_reports(REPORT_AHEAD);
        manual_clock_advance(&c.clock, 1);
    }
    assert_true(lost >= 9);
    assert_true(crew_reached(&c, post) == members(40));
    assert_int_equal(crew_deliveries_of(&c, post), 40);
    assert_int_equal(stats_of(0).undone, 0);
    assert_int_equal(stats_of(0).resent, 0);
}

static void a_late_report_changes_nothing(void **state)
{
    (void)state;
    c.followers[1] = 3;
    assert_int_equal(crew_lead(&c, 0), OK);
    crew_commit(&c, EVENT_POST_CREATED, 1);
    crew_relay(&c, 0);
    crew_work(&c, 1);
    struct bus_message report;
    assert_true(bus_take(c.bus, ENGINE_REPORTS, c.clock.mono_us, &report));
    assert_int_equal(bus_publish(c.bus, &report), OK); /* it comes twice */
    assert_int_equal(bus_publish(c.bus, &report), OK);
    bus_ack(c.bus, &report);
    report.slot = UINT64_MAX; /* and one of no slot, no rule, no kind */
    assert_int_equal(bus_publish(c.bus, &report), OK);
    report.rule = 999;
    assert_int_equal(bus_publish(c.bus, &report), OK);
    report.rule = 0;
    report.report.kind = 99;
    assert_int_equal(bus_publish(c.bus, &report), OK);
    crew_run(&c, 1, 5);
    assert_int_equal(stats_of(0).reports, 1);
    assert_int_equal(stats_of(0).reports_unmatched, 4);
    assert_int_equal(stats_of(0).undone, 0);
    assert_int_equal(waiting_on(ENGINE_REPORTS), 0);
}

static void who_cannot_report_does_it_again(void **state)
{
    (void)state;
    crew_done(&c);
    size_t limits[LANE_COUNT + 1] = {[ENGINE_REPORTS] = 1};
    for (int lane = 0; lane < LANE_COUNT; lane++)
        limits[lane] = 10;
    static const struct lossy_config nothing = {.seed = 1};
    crew_init(&c, NULL);
    bus_free(c.bus);
    c.bus = lossy_bus_new(LANE_COUNT + 1, limits, &c.clock.clock, &nothing);
    crew_add(&c, 0);
    crew_add(&c, 1);
    c.followers[1] = 3;
    assert_int_equal(crew_lead(&c, 0), OK);
    struct bus_message other = {.lane = ENGINE_REPORTS}; /* the lane is full */
    assert_int_equal(bus_publish(c.bus, &other), OK);
    uint64_t post = crew_commit(&c, EVENT_POST_CREATED, 1);
    engine_relay_step(engine_of(0));
    assert_int_equal(waiting_on(ENGINE_REPORTS), 0); /* heard, and passed over */
    assert_int_equal(bus_publish(c.bus, &other), OK);
    crew_work(&c, 1);
    assert_int_equal(crew_deliveries_of(&c, post), 3);
    assert_int_equal(waiting_on(LANE_SMALL), 1); /* not acknowledged */
    crew_run(&c, 3, 200);
    assert_int_equal(crew_deliveries_of(&c, post), 6);
    assert_int_equal(stats_of(0).undone, 0);
    assert_int_equal(stats_of(0).resent, 0);
}

/* ---- other leaders ---- */

static void a_new_leader_takes_over_in_mid_flight(void **state)
{
    (void)state;
    c.followers[1] = 40;
    assert_int_equal(crew_lead(&c, 0), OK);
    uint64_t first = crew_commit(&c, EVENT_POST_CREATED, 1);
    uint64_t second = crew_commit(&c, EVENT_FOLLOW_CREATED, 2);
    crew_relay(&c, 0);
    engine_worker_step(engine_of(1));
    crew_relay(&c, 0);
    engine_worker_step(engine_of(1));
    assert_int_equal(crew_lead(&c, 2), OK); /* node 0 does not know yet, and goes on */
    uint64_t third = crew_commit(&c, EVENT_FOLLOW_CREATED, 2);
    crew_run(&c, 1, 1200);
    assert_int_equal(pending(), 3); /* it may do what it likes: nothing is settled by it */
    assert_int_equal(crew_watermark(&c), 0);
    assert_true(engine_must_resign(engine_of(0)));
    engine_resign(engine_of(0));
    assert_false(engine_must_resign(engine_of(0)));
    crew_run(&c, 7, 7000);
    assert_true(crew_reached(&c, first) == members(40));
    assert_true(crew_deliveries_of(&c, second) >= 1);
    assert_true(crew_deliveries_of(&c, third) >= 1);
    assert_int_equal(pending(), 0);
    assert_true(engine_drained(engine_of(2)));
    assert_int_equal(stats_of(2).undone, 0);
}

static void work_items_and_reports_of_former_terms_are_passed_over(void **state)
{
    (void)state;
    c.followers[1] = 3;
    assert_int_equal(crew_lead(&c, 0), OK);
    uint64_t post = crew_commit(&c, EVENT_POST_CREATED, 1);
    crew_relay(&c, 0);
    crew_work(&c, 1); /* its report is of term 1 */
    uint64_t other = crew_commit(&c, EVENT_POST_CREATED, 1);
    manual_clock_advance(&c.clock, 30);
    crew_relay(&c, 0); /* takes the report, and sends a work item that no worker takes in time */
    assert_int_equal(waiting_on(LANE_SMALL), 1);
    crew_kill(&c, 0);
    assert_int_equal(crew_lead(&c, 2), OK);
    engine_saw_term(engine_of(1), c.term);
    crew_work(&c, 1);
    assert_int_equal(stats_of(1).stale, 1);
    assert_int_equal(crew_deliveries_of(&c, other), 0);
    crew_run(&c, 6, 50);
    assert_int_equal(crew_deliveries_of(&c, other), 3);
    assert_int_equal(crew_deliveries_of(&c, post), 6); /* it was not settled */
}

static struct bus_message take_report(void)
{
    struct bus_message report;
    assert_true(bus_take(c.bus, ENGINE_REPORTS, c.clock.mono_us, &report));
    bus_ack(c.bus, &report);
    return report;
}

/* Another leader has the same event in the same slot. */
static void a_report_to_a_former_leader_is_not_the_next_ones(void **state)
{
    (void)state;
    c.followers[1] = 3;
    assert_int_equal(crew_lead(&c, 0), OK);
    uint64_t post = crew_commit(&c, EVENT_POST_CREATED, 1);
    crew_relay(&c, 0);
    crew_work(&c, 1);
    struct bus_message late = take_report();
    crew_kill(&c, 0);
    assert_int_equal(crew_lead(&c, 2), OK);
    manual_clock_advance(&c.clock, 30);
    crew_relay(&c, 2);
    assert_int_equal(waiting_on(LANE_SMALL), 1);
    assert_int_equal(bus_publish(c.bus, &late), OK);
    crew_relay(&c, 2);
    assert_int_equal(stats_of(2).stale, 1);
    assert_int_equal(stats_of(2).undone, 1);
    crew_run(&c, 6, 50);
    assert_int_equal(crew_deliveries_of(&c, post), 6);
}

/* The same node, the same term, the same slots: earlier reports must not count now. */
static void leading_again_in_the_same_term_begins_anew(void **state)
{
    (void)state;
    c.followers[1] = 3;
    assert_int_equal(crew_lead(&c, 0), OK);
    uint64_t post = crew_commit(&c, EVENT_POST_CREATED, 1);
    crew_relay(&c, 0);
    crew_work(&c, 1);
    struct bus_message late = take_report(); /* not yet heard */
    engine_resign(engine_of(0));
    assert_int_equal(engine_lead(engine_of(0), c.term), OK);
    manual_clock_advance(&c.clock, 30);
    crew_relay(&c, 0);
    assert_int_equal(waiting_on(LANE_SMALL), 1); /* it is out again */
    assert_int_equal(bus_publish(c.bus, &late), OK);
    crew_relay(&c, 0);
    assert_int_equal(stats_of(0).reports_unmatched, 1);
    assert_int_equal(stats_of(0).undone, 1);
    crew_run(&c, 7, 1100);
    assert_int_equal(crew_deliveries_of(&c, post), 6);
    assert_int_equal(pending(), 0);
}

static void a_work_item_of_a_newer_term_ends_a_leaders_time(void **state)
{
    (void)state;
    assert_int_equal(crew_lead(&c, 0), OK);
    struct bus_message item = {.lane = LANE_GRAPH,
                               .term = c.term + 1,
                               .rule = 1,
                               .event = {.id = 5, .type = EVENT_FOLLOW_CREATED, .actor = 3}};
    assert_int_equal(bus_publish(c.bus, &item), OK);
    crew_work(&c, 0);
    assert_true(engine_must_resign(engine_of(0)));
    assert_int_equal(crew_deliveries_of(&c, 5), 1); /* worked on like any other node would */
    assert_int_equal(waiting_on(ENGINE_REPORTS), 1);
}

/* It was stopped for longer than its lease lasts. What another leader put in the delivery store
 * meanwhile it does not know, and must not overtake. */
static void a_leader_whose_time_is_over_sends_nothing(void **state)
{
    (void)state;
    c.followers[1] = 3;
    assert_int_equal(crew_lead(&c, 0), OK);
    engine_lead_until(engine_of(0), c.clock.mono_us + 2000 * 1000);
    crew_run(&c, 1, 1900);
    manual_clock_advance(&c.clock, 200);
    uint64_t post = crew_commit(&c, EVENT_POST_CREATED, 1);
    crew_run(&c, 7, 300);
    assert_true(engine_leads(engine_of(0)));
    assert_int_equal(crew_deliveries_of(&c, post), 0);
    engine_lead_until(engine_of(0), c.clock.mono_us + 2000 * 1000); /* it was still its own */
    crew_run(&c, 7, 50);
    assert_int_equal(crew_deliveries_of(&c, post), 3);
}

static void what_only_newer_programs_know_is_left_to_them(void **state)
{
    (void)state;
    struct bus_message item = {.lane = LANE_GRAPH, .term = 1, .rule = 77};
    assert_int_equal(bus_publish(c.bus, &item), OK);
    item.rule = 1; /* another rule than it means there */
    item.event.type = EVENT_POST_CREATED;
    assert_int_equal(bus_publish(c.bus, &item), OK);
    crew_work(&c, 1);
    assert_int_equal(stats_of(1).unknown_rules, 2);
    assert_int_equal(waiting_on(LANE_GRAPH), 2);
    assert_int_equal(c.log_count, 0);
}

/* ---- the horizon, and the views ---- */

static void events_wait_for_the_horizon_and_come_in_order(void **state)
{
    (void)state;
    c.followers[1] = 1;
    assert_int_equal(crew_lead(&c, 0), OK);
    crew_run(&c, 1, 20);
    assert_true(engine_drained(engine_of(0)));
    uint64_t first = crew_commit(&c, EVENT_POST_CREATED, 1);
    assert_false(engine_drained(engine_of(0))); /* though no event was offered to it yet */
    c.faults->horizon_held = first - 1;         /* a write with a lower id is open */
    uint64_t second = crew_commit(&c, EVENT_POST_CREATED, 1);
    crew_run(&c, 1, 1500);
    assert_int_equal(c.log_count, 0);
    assert_false(engine_quiet(engine_of(0))); /* for a second nothing could be looked at */
    struct event_look look;
    engine_look(engine_of(0), second, &look);
    assert_int_equal(look.stage, STAGE_PENDING);
    engine_sample_step(engine_of(0));
    assert_int_equal(stats_of(0).states.pending, 2);
    assert_true(stats_of(0).oldest_undone_ms >= 1500);
    c.faults->horizon_held = first;
    crew_run(&c, 1, 30);
    assert_int_equal(crew_deliveries_of(&c, first), 1);
    assert_int_equal(crew_deliveries_of(&c, second), 0);
    c.faults->horizon_held = 0;
    crew_run(&c, 1, 30);
    assert_int_equal(crew_deliveries_of(&c, second), 1);
    engine_sample_step(engine_of(0));
    assert_int_equal(stats_of(0).states.pending, 0);
    assert_true(engine_quiet(engine_of(0)));
    assert_true(engine_drained(engine_of(0)));
}

static void events_reach_the_views_before_any_delivery(void **state)
{
    (void)state;
    c.followers[1] = 1;
    assert_int_equal(crew_lead(&c, 0), OK);
    c.apply_error = ERR_UNAVAILABLE;
    uint64_t post = crew_commit(&c, EVENT_POST_CREATED, 1);
    crew_run(&c, 7, 500);
    assert_int_equal(c.log_count, 0);
    assert_int_equal(stats_of(0).events_taken, 0);
    assert_false(engine_quiet(engine_of(0)));
    c.apply_error = OK;
    crew_run(&c, 7, 200);
    assert_int_equal(crew_deliveries_of(&c, post), 1);
    assert_int_equal(c.applied_count, 1);
    assert_int_equal(c.applied[0], post);
}

static void nothing_is_settled_before_the_views_are_saved(void **state)
{
    (void)state;
    c.followers[1] = 1;
    assert_int_equal(crew_lead(&c, 0), OK);
    c.save_error = ERR_UNAVAILABLE;
    uint64_t post = crew_commit(&c, EVENT_POST_CREATED, 1);
    crew_run(&c, 1, 3000);
    assert_int_equal(crew_deliveries_of(&c, post), 1);
    assert_int_equal(crew_watermark(&c), 0);
    assert_int_equal(pending(), 1);
    assert_false(engine_must_resign(engine_of(0)));
    c.save_error = OK;
    uint64_t saves = c.saves;
    crew_run(&c, 1, 1100);
    assert_true(crew_watermark(&c) >= post);
    assert_int_equal(pending(), 0);
    assert_int_equal(c.saves, saves + 1);
    uint64_t watermark = crew_watermark(&c);
    crew_run(&c, 1, 5000); /* nothing to settle: nothing is saved, however the horizon moves */
    assert_int_equal(c.saves, saves + 1);
    assert_int_equal(crew_watermark(&c), watermark);
}

static void what_the_views_lost_is_delivered_again(void **state)
{
    (void)state;
    c.followers[1] = 3;
    assert_int_equal(crew_lead(&c, 0), OK);
    uint64_t safe = crew_commit(&c, EVENT_POST_CREATED, 1);
    crew_run(&c, 1, 1100);
    uint64_t lost = crew_commit(&c, EVENT_POST_CREATED, 1);
    crew_run(&c, 1, 50);
    assert_int_equal(crew_deliveries_of(&c, lost), 3);
    c.save_error = ERR_CONFLICT;
    crew_run(&c, 1, 1100);
    c.save_error = OK; /* the next save would say that all is well */
    assert_true(engine_must_resign(engine_of(0)));
    crew_run(&c, 1, 1100);
    assert_int_equal(pending(), 1);
    engine_resign(engine_of(0));
    assert_int_equal(engine_lead(engine_of(0), c.term), OK);
    crew_run(&c, 1, 1100);
    assert_int_equal(crew_deliveries_of(&c, safe), 3);
    assert_int_equal(crew_deliveries_of(&c, lost), 6);
    assert_int_equal(pending(), 0);
}

/* A retry that succeeded is done in the delivery store only when the views have a second copy of
 * it; what does not rest on them is not held up. */
static void a_retry_is_done_when_the_views_are_safe(void **state)
{
    (void)state;
    c.followers[1] = 3;
    c.before_sink = fail_there;
    failing_node = 0;
    assert_int_equal(crew_lead(&c, 0), OK);
    uint64_t post = crew_commit(&c, EVENT_POST_CREATED, 1);
    crew_run(&c, 1, 50);
    assert_int_equal(crew_ask(&c, "SELECT count(*) FROM deliveries WHERE state = 1"), 1);
    failing_node = -1;
    c.save_error = ERR_UNAVAILABLE;
    crew_run(&c, 1, 4000);
    assert_int_equal(crew_deliveries_of(&c, post), 3);
    assert_int_equal(crew_ask(&c, "SELECT count(*) FROM deliveries WHERE state = 2"), 1);
    failing_node = 0;
    crew_commit(&c, EVENT_POST_CREATED, 1);
    crew_run(&c, 1, 300);
    assert_int_equal(crew_ask(&c, "SELECT count(*) FROM deliveries WHERE state = 1"), 1);
    c.save_error = OK;
    crew_run(&c, 1, 200);
    assert_int_equal(crew_ask(&c, "SELECT count(*) FROM deliveries WHERE state = 5"), 1);
}

/* ---- operators ---- */

static void changes_by_other_nodes_operators_are_noticed(void **state)
{
    (void)state;
    c.before_sink = fail_there;
    failing_node = 0;
    assert_int_equal(crew_lead(&c, 0), OK);
    uint64_t follow = crew_commit(&c, EVENT_FOLLOW_CREATED, 3);
    crew_run(&c, 1, 50);
    plain_db_run(c.store, "UPDATE deliveries SET state = 4"); /* it is dead by now */
    plain_db_run(c.store, "UPDATE delivery_counts SET state = 4");
    crew_run(&c, 1, 3000);
    failing_node = -1;
    /* An operator drives it again at another node, without a signal to this engine. */
    plain_db_run(c.store, "UPDATE deliveries SET state = 1, due_at = 0");
    plain_db_run(c.store, "UPDATE delivery_counts SET state = 1");
    crew_run(&c, 1, 1200);
    assert_int_equal(crew_deliveries_of(&c, follow), 1);
}

static void a_lane_stopped_at_the_leader_stops_everywhere(void **state)
{
    (void)state;
    c.followers[1] = 3;
    assert_int_equal(crew_lead(&c, 0), OK);
    engine_stop_lane(engine_of(0), LANE_SMALL, true);
    uint64_t post = crew_commit(&c, EVENT_POST_CREATED, 1);
    uint64_t follow = crew_commit(&c, EVENT_FOLLOW_CREATED, 3);
    crew_run(&c, 7, 100);
    assert_int_equal(crew_deliveries_of(&c, post), 0);
    assert_int_equal(crew_deliveries_of(&c, follow), 1);
    engine_stop_lane(engine_of(0), LANE_SMALL, false);
    crew_run(&c, 7, 50);
    assert_int_equal(crew_deliveries_of(&c, post), 3);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
        TEST(without_a_leader_nothing_happens),
        TEST(a_leader_alone_does_it_all),
        TEST(a_lead_that_fails_leaves_nothing_behind),
        TEST(followers_work_and_report),
        TEST(what_fails_elsewhere_is_in_the_delivery_store_here),
        TEST(a_failing_fan_out_elsewhere_is_few_deliveries),
        TEST(a_lost_report_is_a_unit_sent_again),
        TEST(a_lost_report_ahead_loses_no_member),
        TEST(a_late_report_changes_nothing),
        TEST(who_cannot_report_does_it_again),
        TEST(a_new_leader_takes_over_in_mid_flight),
        TEST(work_items_and_reports_of_former_terms_are_passed_over),
        TEST(a_report_to_a_former_leader_is_not_the_next_ones),
        TEST(leading_again_in_the_same_term_begins_anew),
        TEST(a_work_item_of_a_newer_term_ends_a_leaders_time),
        TEST(a_leader_whose_time_is_over_sends_nothing),
        TEST(what_only_newer_programs_know_is_left_to_them),
        TEST(events_wait_for_the_horizon_and_come_in_order),
        TEST(events_reach_the_views_before_any_delivery),
        TEST(nothing_is_settled_before_the_views_are_saved),
        TEST(what_the_views_lost_is_delivered_again),
        TEST(a_retry_is_done_when_the_views_are_safe),
        TEST(changes_by_other_nodes_operators_are_noticed),
        TEST(a_lane_stopped_at_the_leader_stops_everywhere),
    };
    return cmocka_run_group_tests_name("pipe/lead", tests, NULL, NULL);
}
