/* Freshness and numbers as the engine samples them: per consumer, type and lane, from counters and
 * heads of lists. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

#include "base/check.h"
#include "pipe/state.h"
#include "world.h"

static struct world w;
static bool failing;

static enum err fail_if_told(struct world *world, const struct event *e, const uint64_t *members,
                             size_t n)
{
    (void)world, (void)e, (void)members, (void)n;
    return failing ? ERR_UNAVAILABLE : OK;
}

static int set_up(void **state)
{
    (void)state;
    failing = false;
    world_init(&w);
    w.before_sink = fail_if_told;
    w.followers[1] = 2;
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    world_done(&w);
    return 0;
}

static struct freshness_cell cell(const char *consumer, const char *lane)
{
    struct freshness_cell cells[FRESHNESS_CELLS_MAX];
    size_t n;
    engine_sample_step(w.engine);
    freshness_look(engine_freshness(w.engine), cells, FRESHNESS_CELLS_MAX, &n, NULL);
    for (size_t i = 0; i < n; i++) {
        if (strcmp(cells[i].consumer, consumer) == 0 && strcmp(cells[i].lane, lane) == 0)
            return cells[i];
    }
    fail_msg("no cell %s in %s", consumer, lane);
    abort();
}

static struct engine_stats stats_now(void)
{
    struct engine_stats stats;
    engine_sample_step(w.engine);
    engine_stats(w.engine, &stats);
    return stats;
}

/* ---- freshness ---- */

static void every_rule_has_its_cells(void **state)
{
    (void)state;
    world_engine(&w);
    assert_int_equal(cell("timelines", "small").verdict, FRESH_GREEN);
    assert_int_equal(cell("timelines", "active").target_ms, 5000);
    assert_int_equal(cell("timelines", "rest").target_ms, 30000);
    assert_int_equal(cell("timelines", "replay").target_ms, 0);
    assert_int_equal(cell("cleanup", "cleanup").target_ms, 600000);
    assert_string_equal(cell("timelines", "small").type, "post.created");
    assert_string_equal(cell("timelines", "small").late_means, "new posts are missing");
    assert_true(cell("timelines", "small").visible);
}

/* The same number whether the event waits in the queue, in the table, on the bus or in the delivery
 * store.
 */
static void an_event_ages_wherever_it_waits(void **state)
{
    (void)state;
    world_engine(&w);
    world_run(&w);
    world_commit(&w, EVENT_POST_CREATED, 1, 1);
    manual_clock_advance(&w.manual, 1000);
    assert_int_equal(cell("timelines", "small").oldest_age_ms, 1000); /* not yet taken */
    assert_int_equal(cell("timelines", "small").backlog, 1);
    world_run_relay(&w);
    manual_clock_advance(&w.manual, 1000);
    assert_int_equal(cell("timelines", "small").oldest_age_ms, 2000); /* on the bus */
    assert_int_equal(cell("timelines", "small").backlog, 1);
    failing = true;
    world_run(&w);
    struct freshness_cell c = cell("timelines", "small");
    assert_int_equal(c.oldest_age_ms, 2000); /* in the delivery store */
    assert_int_equal(c.delayed, 1);
    assert_int_equal(c.backlog, 0);
    failing = false;
    world_drain(&w, 10 * 1000);
    c = cell("timelines", "small");
    assert_int_equal(c.oldest_age_ms, 0);
    assert_int_equal(c.delayed, 0);
    assert_int_equal(c.verdict, FRESH_GREEN);
}

static void what_was_found_at_the_start_ages_too(void **state)
{
    (void)state;
    for (uint64_t i = 0; i < 300; i++)
        world_commit_unseen(&w, EVENT_POST_CREATED, 1, i);
    manual_clock_advance(&w.manual, 60 * 1000);
    world_engine(&w);
    struct freshness_cell c = cell("timelines", "small");
    assert_int_equal(c.backlog, 300);
    assert_int_equal(c.oldest_age_ms, 60 * 1000);
    assert_true(c.verdict != FRESH_GREEN);
    assert_true(freshness_is_late(engine_freshness(w.engine)));
    world_run(&w);
    assert_int_equal(cell("timelines", "small").backlog, 0);
    assert_false(freshness_is_late(engine_freshness(w.engine)));
}

static void what_overflowed_ages_too(void **state)
{
    (void)state;
    w.config.commit_queue_max = 4;
    world_engine(&w);
    for (uint64_t i = 0; i < 300; i++)
        world_commit(&w, EVENT_POST_CREATED, 1, i);
    manual_clock_advance(&w.manual, 5000);
    struct freshness_cell c = cell("timelines", "small");
    assert_int_equal(c.backlog, 300);
    assert_true(c.oldest_age_ms >= 5000);
    world_run(&w);
    c = cell("timelines", "small");
    assert_int_equal(c.backlog, 0);
    assert_int_equal(c.oldest_age_ms, 0);
}

static void a_large_fan_out_ages_in_its_own_lanes(void **state)
{
    (void)state;
    w.followers[2] = 3000;
    world_engine(&w);
    world_commit(&w, EVENT_POST_CREATED, 2, 1);
    world_run_relay(&w);
    engine_worker_step(w.engine);
    manual_clock_advance(&w.manual, 700);
    assert_int_equal(cell("timelines", "small").backlog, 0);
    /* Batches of 500: a quarter of the people were here lately. */
    assert_int_equal(cell("timelines", "active").backlog, 2);
    assert_int_equal(cell("timelines", "rest").backlog, 5);
    assert_int_equal(cell("timelines", "active").oldest_age_ms, 700);
    assert_int_equal(cell("timelines", "rest").oldest_age_ms, 700);
}

static void rates_say_when_it_will_have_caught_up(void **state)
{
    (void)state;
    world_engine(&w);
    engine_set_lane(w.engine, LANE_SMALL, 1, 10); /* ten a second */
    for (uint64_t i = 0; i < 200; i++)
        world_commit(&w, EVENT_POST_CREATED, 1, i);
    engine_sample_step(w.engine);
    for (int second = 0; second < 10; second++) {
        world_pass(&w, 1000);
        engine_sample_step(w.engine);
    }
    struct freshness_cell c = cell("timelines", "small");
    assert_in_range((int)(c.out_per_s + 0.5), 9, 12);
    assert_int_equal(c.verdict, FRESH_LATE);
    assert_in_range(c.catch_up_ms, 8000, 12000);
    struct freshness_headline headline;
    freshness_look(engine_freshness(w.engine), NULL, 0, NULL, &headline);
    assert_string_equal(headline.consumer, "timelines");
    assert_true(headline.worst_ms >= 10000);
}

/* Seconds until nothing waits in the cell. */
static double drain_time_s(const char *consumer, const char *lane)
{
    int64_t began_us = clock_mono_us(w.clock);
    while (cell(consumer, lane).backlog > 0)
        world_pass(&w, 100);
    return (double)(clock_mono_us(w.clock) - began_us) / 1e6;
}

static void assert_near(double told_s, double took_s)
{
    if (told_s < took_s * 0.8 || told_s > took_s * 1.2)
        fail_msg("the estimate was %.1f s, and it took %.1f s", told_s, took_s);
}

/* One fan-out of forty batches at two batches a second: all that it has ahead is counted, in the
 * same unit as what it gets done. */
static void one_large_fan_out_says_when_it_will_be_done(enum lane lane, uint64_t active_every)
{
    w.followers[2] = 20000;
    w.active_every = active_every;
    world_engine(&w);
    engine_set_lane(w.engine, lane, 1, 2);
    engine_sample_step(w.engine);
    world_commit(&w, EVENT_POST_CREATED, 2, 1);
    for (int second = 0; second < 8; second++) {
        world_pass(&w, 1000);
        engine_sample_step(w.engine);
    }
    struct freshness_cell c = cell("timelines", lane_name(lane));
    assert_in_range(c.backlog, 20, 30);
    assert_true(c.verdict != FRESH_BEHIND);
    assert_true(c.catch_up_ms > 0);
    assert_near((double)c.catch_up_ms / 1000, drain_time_s("timelines", lane_name(lane)));
}

static void a_large_fan_out_to_active_people_says_when_it_will_be_done(void **state)
{
    (void)state;
    one_large_fan_out_says_when_it_will_be_done(LANE_ACTIVE, 1);
}

static void a_large_fan_out_to_the_rest_says_when_it_will_be_done(void **state)
{
    (void)state;
    one_large_fan_out_says_when_it_will_be_done(LANE_REST, 0);
}

/* A lane that does not split. */
static void a_large_clean_up_says_when_it_will_be_done(void **state)
{
    (void)state;
    w.followers[2] = 20000;
    world_engine(&w);
    engine_set_lane(w.engine, LANE_CLEANUP, 1, 2);
    engine_sample_step(w.engine);
    world_commit(&w, EVENT_POST_DELETED, 2, 1);
    for (int second = 0; second < 8; second++) {
        world_pass(&w, 1000);
        engine_sample_step(w.engine);
    }
    struct freshness_cell c = cell("cleanup", "cleanup");
    assert_near((double)c.catch_up_ms / 1000, drain_time_s("cleanup", "cleanup"));
    assert_int_equal(cell("cleanup", "cleanup").backlog, 0);
}

static void a_stopped_lane_says_so(void **state)
{
    (void)state;
    world_engine(&w);
    engine_stop_lane(w.engine, LANE_SMALL, true);
    assert_int_equal(cell("timelines", "small").verdict, FRESH_GREEN); /* nothing waits */
    world_commit(&w, EVENT_POST_CREATED, 1, 1);
    world_run(&w);
    assert_int_equal(cell("timelines", "small").verdict, FRESH_STOPPED);
    engine_stop_lane(w.engine, LANE_SMALL, false);
    engine_pause(w.engine, true);
    assert_int_equal(cell("timelines", "small").verdict, FRESH_STOPPED);
    engine_pause(w.engine, false);
    world_run(&w);
    assert_int_equal(cell("timelines", "small").verdict, FRESH_GREEN);
}

static void what_waits_behind_the_dead_ages_and_the_dead_do_not(void **state)
{
    (void)state;
    failing = true;
    world_engine(&w);
    world_commit(&w, EVENT_FOLLOW_CREATED, 1, 1);
    world_pass(&w, 1200 * 1000);
    struct freshness_cell c = cell("backfill", "graph");
    assert_int_equal(c.dead, 1);
    assert_int_equal(c.oldest_age_ms, 0);
    world_commit(&w, EVENT_FOLLOW_CREATED, 1, 1); /* waits behind it, for the same decision */
    world_run(&w);
    manual_clock_advance(&w.manual, 5000);
    c = cell("backfill", "graph");
    assert_int_equal(c.waiting, 1);
    assert_int_equal(c.oldest_age_ms, 5000);
    assert_int_equal(c.verdict, FRESH_BEHIND);
    struct freshness_headline headline;
    freshness_look(engine_freshness(w.engine), NULL, 0, NULL, &headline);
    assert_int_equal(headline.behind, 1);
    assert_false(freshness_is_late(engine_freshness(w.engine))); /* replays may help */
}

static int64_t now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return t.tv_sec * INT64_C(1000000000) + t.tv_nsec;
}

/* The best of many: the cost of the work undisturbed. */
static int64_t sample_cost_ns(void)
{
    int64_t best = INT64_MAX;
    for (int i = 0; i < 200; i++) {
        int64_t began = now_ns();
        engine_sample_step(w.engine);
        int64_t took = now_ns() - began;
        best = took < best ? took : best;
    }
    return best;
}

static void a_sample_costs_the_same_whatever_waits(void **state)
{
    (void)state;
    world_engine(&w);
    engine_pause(w.engine, true);
    world_commit(&w, EVENT_POST_CREATED, 1, 1);
    world_run(&w);
    int64_t one_ns = sample_cost_ns();
    for (uint64_t i = 0; i < 20000; i++)
        world_commit(&w, EVENT_POST_CREATED, 1, i);
    world_run(&w);
    world_do(&w, "INSERT INTO deliveries SELECT id + 1, id + 1, 'post.created', 1, payload, "
                 "'timelines', 'small', 0, 0, 0, 0, 0, 0, 1, 1, 1, 9e15, 1, 1, 0, 0, 'TIMEOUT', "
                 "'', '' FROM outbox");
    int64_t many_ns = sample_cost_ns();
    assert_int_equal(cell("timelines", "small").backlog, 20001);
    assert_true(many_ns < one_ns * 3 + 50 * 1000);
}

/* ---- states ---- */

static void events_are_counted_by_state(void **state)
{
    (void)state;
    w.followers[2] = 3000;
    w.config.retain_settled_ms = 0;
    world_commit_strange(&w, "future.thing", 1);
    world_engine(&w);
    world_run(&w);
    assert_int_equal(stats_now().states.parked, 1);
    world_commit(&w, EVENT_POST_CREATED, 1, 1);
    assert_int_equal(stats_now().states.pending, 1);
    world_run_relay(&w);
    assert_int_equal(stats_now().states.pending, 0);
    assert_int_equal(stats_now().states.published, 1);
    world_run(&w);
    world_commit(&w, EVENT_FOLLOW_CREATED, 1, 2);
    world_run_relay(&w);
    assert_int_equal(stats_now().states.expanded, 1); /* one person: known at once */
    failing = true;
    world_run(&w);
    assert_int_equal(stats_now().states.delayed, 1);
    world_commit(&w, EVENT_FOLLOW_REMOVED, 1, 2);
    world_run(&w);
    assert_int_equal(stats_now().states.waiting, 1);
    world_pass(&w, 1200 * 1000);
    struct event_states s = stats_now().states;
    assert_int_equal(s.dead, 1);
    assert_int_equal(s.waiting, 1);
    assert_int_equal(s.delayed, 0);
    engine_watermark_step(w.engine);
    assert_int_equal(stats_now().states.settled, 3);
    w.saved_position = w.last_committed;
    manual_clock_advance(&w.manual, 1000);
    engine_watermark_step(w.engine);
    s = stats_now().states;
    assert_int_equal(s.settled, 0);
    assert_int_equal(s.archived, 3);
    failing = false;
    world_discard(&w, &(struct delivery_filter){.state = DELIVERY_DEAD});
    world_drain(&w, 10 * 1000);
    s = stats_now().states;
    assert_int_equal(s.discarded, 1);
    assert_int_equal(s.waiting, 0);
}

static void a_store_that_cannot_be_read_leaves_the_last_numbers(void **state)
{
    (void)state;
    failing = true;
    world_engine(&w);
    world_commit(&w, EVENT_FOLLOW_CREATED, 1, 1);
    world_run(&w);
    assert_int_equal(stats_now().states.delayed, 1);
    w.faults->reads_fail = true;
    assert_int_equal(stats_now().states.delayed, 1);
    assert_int_equal(cell("backfill", "graph").delayed, 1);
}

static void one_event_can_be_looked_at(void **state)
{
    (void)state;
    w.followers[2] = 3000;
    w.active_every = 0;
    world_engine(&w);
    struct event_look look;
    engine_look(w.engine, 12345, &look);
    assert_int_equal(look.stage, STAGE_UNKNOWN);
    uint64_t id = world_commit(&w, EVENT_POST_CREATED, 2, 1);
    engine_look(w.engine, id, &look);
    assert_int_equal(look.stage, STAGE_PENDING);
    world_run_relay(&w);
    engine_look(w.engine, id, &look);
    assert_int_equal(look.stage, STAGE_PUBLISHED);
    assert_int_equal(look.item_count, 1);
    assert_string_equal(look.items[0].consumer, "timelines");
    assert_string_equal(look.items[0].lane, "small");
    assert_true(look.items[0].out);
    engine_worker_step(w.engine);
    world_run_relay(&w);
    engine_worker_step(w.engine); /* no member is active */
    engine_worker_step(w.engine); /* a page of the rest */
    engine_look(w.engine, id, &look);
    assert_int_equal(look.stage, STAGE_PUBLISHED);
    assert_int_equal(look.delivered, 500);
    world_run(&w);
    engine_look(w.engine, id, &look);
    assert_int_equal(look.stage, STAGE_UNKNOWN); /* done: the tables know */
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(every_rule_has_its_cells),
        TEST(an_event_ages_wherever_it_waits),
        TEST(what_was_found_at_the_start_ages_too),
        TEST(what_overflowed_ages_too),
        TEST(a_large_fan_out_ages_in_its_own_lanes),
        TEST(rates_say_when_it_will_have_caught_up),
        TEST(a_large_fan_out_to_active_people_says_when_it_will_be_done),
        TEST(a_large_fan_out_to_the_rest_says_when_it_will_be_done),
        TEST(a_large_clean_up_says_when_it_will_be_done),
        TEST(a_stopped_lane_says_so),
        TEST(what_waits_behind_the_dead_ages_and_the_dead_do_not),
        TEST(a_sample_costs_the_same_whatever_waits),
        TEST(events_are_counted_by_state),
        TEST(a_store_that_cannot_be_read_leaves_the_last_numbers),
        TEST(one_event_can_be_looked_at),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
