/* The limits of a lane hold for all nodes together: calls under way, work in truth, what begins in
 * a second; also when they are changed, when a node dies, and when another one leads. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "crew.h"
#include "pipe/lane.h"

enum { CALLS_MAX = 256, AT_A_TIME = 3 };

static struct crew c;
static struct {
    struct outside_call *call;
    int node;
} calls[CALLS_MAX];
static size_t open_calls, begun;

static void begin_call(struct sink_env *env, struct outside_call *call)
{
    const struct crew_node *node = env->user;
    assert_true(open_calls < CALLS_MAX);
    calls[open_calls].call = call;
    calls[open_calls++].node = node->number;
    begun++;
}

static enum err note(struct sink_env *env, const struct event *e, const uint64_t *members, size_t n,
                     struct sink_result *result)
{
    struct crew_node *node = env->user;
    (void)members;
    (void)n;
    result->delivered = 1;
    c.log[c.log_count++] = (struct crew_delivery){.event = e->id, .n = 1, .node = node->number};
    return OK;
}

static const struct rule limited_rules[] = {
    {.consumer = "walk",
     .on = EVENT_POST_DELETED,
     .audience = TO_FOLLOWERS,
     .sink = note,
     .lane = LANE_CLEANUP,
     .batch = 4,
     .priority = PRIORITY_NORMAL,
     .effect = EFFECT_VIEWS,
     .late_means = ""},
    {.consumer = "hook",
     .on = EVENT_FOLLOW_CREATED,
     .audience = TO_ACTOR,
     .outside = begin_call,
     .lane = LANE_OUTSIDE,
     .batch = 1,
     .priority = PRIORITY_NORMAL,
     .effect = EFFECT_OUTSIDE,
     .channel = "hook",
     .dedup = DEDUP_BY_EVENT,
     .late_means = ""},
    {.consumer = "graph",
     .on = EVENT_MUTE_CREATED,
     .audience = TO_ACTOR,
     .sink = note,
     .lane = LANE_GRAPH,
     .batch = 1,
     .priority = PRIORITY_NORMAL,
     .effect = EFFECT_VIEWS,
     .late_means = ""},
};

static int set_up(void **state)
{
    (void)state;
    open_calls = begun = 0;
    crew_init(&c, NULL);
    c.rules = limited_rules;
    c.rule_count = sizeof limited_rules / sizeof limited_rules[0];
    c.config.lane_concurrency[LANE_OUTSIDE] = AT_A_TIME;
    for (int i = 0; i < CREW_MAX; i++)
        crew_add(&c, i);
    assert_int_equal(crew_lead(&c, 0), OK);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    crew_done(&c);
    return 0;
}

static void end_call(size_t i)
{
    struct outside_call *call = calls[i].call;
    calls[i] = calls[--open_calls];
    call->result.delivered = 1;
    outside_end(call, OK);
}

/* All nodes, in another order each time. */
static void run(int64_t ms)
{
    for (int64_t i = 0; i < ms; i++) {
        crew_run(&c, 7, 0);
        for (int k = 0; k < CREW_MAX; k++)
            if (c.nodes[(k + i) % CREW_MAX].engine)
                engine_outside_step(c.nodes[(k + i) % CREW_MAX].engine);
    }
}

static void commit_follows(uint64_t n)
{
    for (uint64_t actor = 1; actor <= n; actor++)
        crew_commit(&c, EVENT_FOLLOW_CREATED, actor);
}

static void all_nodes_together_have_so_many_calls_under_way(void **state)
{
    (void)state;
    commit_follows(40);
    run(50);
    assert_int_equal(open_calls, AT_A_TIME);
    for (size_t ended = 0; ended < 37; ended++) {
        end_call(ended % AT_A_TIME);
        run(30);
        assert_int_equal(open_calls, AT_A_TIME); /* as many, and no more */
    }
    while (open_calls > 0)
        end_call(0);
    run(50);
    assert_int_equal(begun, 40);
    assert_true(engine_quiet(c.nodes[0].engine));
}

static void a_limit_changes_while_it_runs(void **state)
{
    (void)state;
    commit_follows(40);
    run(50);
    engine_set_lane(c.nodes[0].engine, LANE_OUTSIDE, 9, 0);
    for (int i = 1; i < CREW_MAX; i++) /* they learn it from the leader's notice */
        engine_set_lane(c.nodes[i].engine, LANE_OUTSIDE, 9, 0);
    run(50);
    assert_int_equal(open_calls, 9);
    for (int i = 0; i < CREW_MAX; i++)
        engine_set_lane(c.nodes[i].engine, LANE_OUTSIDE, 2, 0);
    for (int i = 0; i < 7; i++) {
        end_call(0);
        run(30);
        assert_int_equal(open_calls, 8 - i); /* none takes its place */
    }
    end_call(0);
    run(30);
    assert_int_equal(open_calls, 2);
    while (open_calls > 0) {
        end_call(0);
        run(30);
    }
    assert_int_equal(begun, 40);
}

static void what_a_dead_node_had_counts_until_it_is_known_to_be_over(void **state)
{
    (void)state;
    commit_follows(40);
    run(50);
    assert_int_equal(open_calls, AT_A_TIME);
    int dead = calls[0].node ? calls[0].node : calls[1].node ? calls[1].node : calls[2].node;
    size_t with_it = 0;
    for (size_t i = open_calls; i-- > 0;) {
        if (calls[i].node == dead) {
            calls[i] = calls[--open_calls];
            with_it++;
        }
    }
    if (dead == 0) /* the leader took all of them */
        return;
    crew_kill(&c, dead);
    run(50);
    assert_int_equal(open_calls, AT_A_TIME - with_it); /* its places wait for an answer … */
    for (int64_t waited = 0; open_calls < AT_A_TIME && waited < 600; waited++) {
        manual_clock_advance(&c.clock, 1000);
        run(3);
    }
    assert_int_equal(open_calls, AT_A_TIME); /* … and are given to others when none comes */
    assert_true(crew_ask(&c, "SELECT count(*) FROM deliveries WHERE state = 4") >= 1);
}

/* Calls of a former leader's term run on. Each node counts them as its own. */
static void a_new_leader_keeps_to_the_limit_in_its_term(void **state)
{
    (void)state;
    commit_follows(40);
    run(50);
    size_t before = begun;
    engine_resign(c.nodes[0].engine);
    assert_int_equal(crew_lead(&c, 1), OK);
    run(50);
    assert_true(begun - before <= AT_A_TIME);
    while (open_calls > 0) {
        end_call(0);
        run(30);
        assert_true(open_calls <= 2 * AT_A_TIME);
    }
    /* Those of the former leader are not made again: nobody told the new one how they ended. */
    assert_int_equal(begun, 40);
    assert_int_equal(crew_ask(&c, "SELECT count(*) FROM deliveries WHERE state = 4"), AT_A_TIME);
}

/* Another system that never answers. */
static void calls_that_do_not_end_delay_neither_views_nor_a_resignation(void **state)
{
    (void)state;
    commit_follows(40);
    run(50);
    for (uint64_t actor = 1; actor <= 20; actor++)
        crew_commit(&c, EVENT_MUTE_CREATED, actor);
    run(20);
    assert_int_equal(c.log_count, 20);
    assert_int_equal(open_calls, AT_A_TIME);
    engine_resign(c.nodes[0].engine); /* returns */
    assert_false(engine_leads(c.nodes[0].engine));
    assert_int_equal(crew_lead(&c, 1), OK);
    for (uint64_t actor = 1; actor <= 20; actor++)
        crew_commit(&c, EVENT_MUTE_CREATED, actor);
    run(50);
    assert_true(c.log_count >= 40);
}

static void all_nodes_together_begin_so_many_a_second(void **state)
{
    (void)state;
    enum { RATE = 40 };
    for (int i = 0; i < CREW_MAX; i++)
        engine_set_lane(c.nodes[i].engine, LANE_GRAPH, 0, RATE);
    for (uint64_t actor = 1; actor <= 200; actor++)
        crew_commit(&c, EVENT_MUTE_CREATED, actor);
    run(50); /* the bucket begins empty */
    size_t before = c.log_count;
    run(2000);
    size_t in_two_s = c.log_count - before;
    assert_in_range(in_two_s, 2 * RATE - 4, 2 * RATE + 4);
    int by[CREW_MAX] = {0};
    for (size_t i = 0; i < c.log_count; i++)
        by[c.log[i].node]++;
    assert_true(by[0] > 0);
    for (int i = 0; i < CREW_MAX; i++)
        engine_set_lane(c.nodes[i].engine, LANE_GRAPH, 0, 0);
    run(100);
    assert_int_equal(c.log_count, 200);
}

/* Each page of a walk counts, wherever it is worked on. */
static void a_walk_keeps_to_the_rate(void **state)
{
    (void)state;
    enum { RATE = 20, PAGES = 11 };
    c.followers[1] = 4 * PAGES - 1;
    for (int i = 0; i < CREW_MAX; i++)
        engine_set_lane(c.nodes[i].engine, LANE_CLEANUP, 0, RATE);
    crew_commit(&c, EVENT_POST_DELETED, 1);
    run(300);
    assert_in_range(c.log_count, 4, 8);
    run(500);
    assert_int_equal(c.log_count, PAGES);
    assert_true(engine_quiet(c.nodes[0].engine));
}

static void places_of_views_are_divided(void **state)
{
    (void)state;
    static const struct {
        uint32_t all, nodes, places[CREW_MAX];
    } cases[] = {{10, 1, {10}}, {10, 3, {4, 3, 3}}, {3, 3, {1, 1, 1}}, {2, 3, {1, 1, 1}}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        for (uint32_t rank = 0; rank < cases[i].nodes; rank++) {
            struct lane_gate gate;
            int64_t due = INT64_MAX;
            uint32_t entered = 0, concurrency, rate, busy;
            lane_gate_init(&gate, LANE_SMALL, cases[i].all, 0, 0);
            lane_gate_share(&gate, LANE_SMALL, rank, cases[i].nodes);
            while (lane_gate_enter(&gate, 0, 1, &due))
                entered++;
            assert_int_equal(entered, cases[i].places[rank]);
            lane_gate_look(&gate, &concurrency, &rate, &busy);
            assert_int_equal(concurrency, cases[i].all); /* what an operator set */
            lane_gate_share(&gate, LANE_OUTSIDE, rank, cases[i].nodes);
            assert_int_equal(gate.places, cases[i].all);
            lane_gate_done(&gate);
        }
    }
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(all_nodes_together_have_so_many_calls_under_way),
        TEST(a_limit_changes_while_it_runs),
        TEST(what_a_dead_node_had_counts_until_it_is_known_to_be_over),
        TEST(a_new_leader_keeps_to_the_limit_in_its_term),
        TEST(calls_that_do_not_end_delay_neither_views_nor_a_resignation),
        TEST(all_nodes_together_begin_so_many_a_second),
        TEST(a_walk_keeps_to_the_rate),
        TEST(places_of_views_are_divided),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
