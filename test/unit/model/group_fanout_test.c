/* What a message does to the inboxes of its group: at once, by the engine, and when it fails. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdio.h>

#include "model/group.h"
#include "model/inbox.h"
#include "model/sinks.h"
#include "pipe/delivery_store.h"
#include "world.h"

enum { PEOPLE = 9, STEPS = 400 };

static const int64_t day_ms = INT64_C(24) * 3600 * 1000;
static struct world w;
static uint64_t people[PEOPLE], group, other;
static struct inboxes_ops ops;
static const struct inboxes_ops *real;
static uint64_t failing; /* the handle whose page fails; 0: none */
static uint64_t pushes;  /* pages so far */

static enum err push(struct inboxes *b, struct inbox_push *some, size_t count)
{
    for (size_t k = 0; k < count; k++) {
        pushes++;
        for (size_t i = 0; i < some[k].n; i++)
            if (some[k].members[i] + 1 == failing)
                return ERR_UNAVAILABLE;
        enum err e = real->push(b, &some[k], 1);
        if (e)
            return e;
    }
    return OK;
}

struct making {
    uint64_t owner, made;
    size_t others;
};

static enum err make(struct tx *tx, void *arg)
{
    struct making *m = arg;
    struct group_new in = {
        .owner = m->owner, .name = STR("g"), .members = people + 1, .member_count = m->others};
    struct group out;
    struct arena arena;
    arena_init(&arena);
    enum err e = group_create(tx, &in, &arena, &out);
    m->made = e ? 0 : out.id;
    arena_done(&arena);
    return e;
}

static uint64_t make_group(size_t others)
{
    struct making m = {.owner = people[0], .others = others};
    EXPECT(db_write(w.db, make, &m, NULL) == OK);
    return m.made;
}

static enum err send(struct tx *tx, void *arg)
{
    struct group_entry out;
    struct arena arena;
    bool repeated;
    arena_init(&arena);
    enum err e = message_send(tx, arg, &arena, &out, &repeated);
    arena_done(&arena);
    return e;
}

/* The activity that it has. */
static uint64_t message(uint64_t to, size_t author, uint64_t named)
{
    struct message_new in = {.group = to,
                             .author = people[author],
                             .body = STR("hello"),
                             .mentions = &named,
                             .mention_count = named ? 1 : 0};
    EXPECT(db_write(w.db, send, &in, NULL) == OK);
    return (uint64_t)world_i64(&w, "SELECT last_id FROM groups WHERE id = $1", DB_ARGS(DB_I64(to)));
}

/* 0: the group is not there; UINT64_MAX: the inbox is dropped. */
static uint64_t activity_of(size_t person, uint64_t of)
{
    struct inbox_entry entries[8];
    size_t n;
    enum err e = inboxes_read(w.views->inboxes, people[person], UINT64_MAX, entries, 8, &n);
    if (e == ERR_NEEDS_TRUTH)
        return UINT64_MAX;
    EXPECT(e == OK);
    for (size_t i = 0; i < n; i++)
        if (entries[i].group == of)
            return entries[i].activity;
    return 0;
}

static void start(uint16_t batch, int64_t threshold)
{
    world_stop(&w);
    world_clear(&w);
    w.batch_max = batch;
    w.group_pull_threshold = threshold;
    w.active_within_ms = day_ms;
    world_start(&w, 10);
    failing = pushes = 0;
    real = w.views->inboxes->ops;
    ops = *real;
    ops.push = push;
    w.views->inboxes->ops = &ops;
    for (size_t i = 0; i < PEOPLE; i++) {
        char name[24];
        snprintf(name, sizeof name, "person%zu", i);
        people[i] = world_account(&w, name);
    }
    group = make_group(PEOPLE - 1);
    other = make_group(2);
    world_drain(&w);
}

static void work(void)
{
    for (int i = 0; i < STEPS; i++)
        world_step(&w);
}

static void seen(size_t person)
{
    EXPECT(world_apply(&w, (struct view_change){.kind = VIEW_LAST_SEEN,
                                                .account = people[person],
                                                .value = clock_wall_ms(&w.clock.clock)}) == OK);
}

static enum err leave(struct tx *tx, void *arg)
{
    return group_member_remove(tx, group, *(uint64_t *)arg, *(uint64_t *)arg);
}

static uint64_t handle_of(size_t person)
{
    uint64_t handles[PEOPLE], ids[PEOPLE];
    struct audience_cursor all = {0};
    size_t n, known;
    EXPECT(graph_audience(w.views->graph, group, &all, handles, PEOPLE, &n) == OK);
    EXPECT(graph_neighbours(w.views->graph, group, true, 0, ids, PEOPLE, &known) == OK &&
           known == n);
    for (size_t i = 0; i < n; i++) /* both rise with the age of the account */
        if (ids[i] == people[person])
            return handles[i];
    return UINT64_MAX;
}

/* ---- cases ---- */

static void the_own_message_is_there_before_anything_is_delivered(void **state)
{
    (void)state;
    start(0, 0);
    uint64_t at = message(group, 3, 0);
    assert_int_equal(activity_of(3, group), at);
    assert_true(activity_of(4, group) > 0 && activity_of(4, group) < at);
    world_drain(&w);
    for (size_t i = 0; i < PEOPLE; i++)
        assert_int_equal(activity_of(i, group), at);
}

static void who_left_is_out_at_once_and_stays_out(void **state)
{
    (void)state;
    start(0, 0);
    EXPECT(db_write(w.db, leave, &people[5], NULL) == OK);
    assert_int_equal(activity_of(5, group), 0);
    uint64_t at = message(group, 0, 0);
    world_drain(&w);
    assert_int_equal(activity_of(5, group), 0);
    assert_int_equal(activity_of(6, group), at);
}

static void mentions_go_first_and_do_not_run_ahead(void **state)
{
    (void)state;
    start(0, 0);
    engine_stop_lane(w.engine, LANE_SMALL, true);
    uint64_t before = activity_of(7, group), at = message(group, 0, people[7]);
    work();
    uint64_t named = activity_of(7, group);
    assert_true(named > before && named < at);
    assert_true(activity_of(6, group) <= before);
    engine_stop_lane(w.engine, LANE_SMALL, false);
    world_drain(&w);
    assert_int_equal(activity_of(7, group), at);
    assert_int_equal(activity_of(6, group), at);
    struct engine_stats stats;
    engine_stats(w.engine, &stats);
    assert_int_equal(stats.lanes[LANE_MENTIONS].delivered, 1);
}

static void a_message_without_mentions_costs_their_lane_nothing(void **state)
{
    (void)state;
    start(0, 0);
    message(group, 0, 0);
    world_drain(&w);
    assert_int_equal(w.events[EVENT_GROUP_MENTIONS], 0);
}

/* Pages of two: one of five fails. Neither the other pages of the message wait for it, nor the next
 * message, nor another group. */
static void one_failing_page_holds_up_no_other(void **state)
{
    (void)state;
    start(2, 0);
    failing = handle_of(5) + 1;
    uint64_t before = activity_of(5, group), first = message(group, 0, 0);
    work();
    assert_int_equal(activity_of(5, group), before);
    size_t without = 0;
    for (size_t i = 1; i < PEOPLE; i++)
        without += activity_of(i, group) != first;
    assert_true(without >= 1 && without <= 2); /* the page, and no other */
    uint64_t second = message(group, 0, 0), third = message(other, 0, 0);
    work();
    without = 0;
    for (size_t i = 1; i < PEOPLE; i++)
        without += activity_of(i, group) != second;
    assert_true(without >= 1 && without <= 2);
    assert_int_equal(activity_of(1, other), third);
    failing = 0;
    world_drain(&w);
    for (size_t i = 0; i < PEOPLE; i++)
        assert_int_equal(activity_of(i, group), second);
}

/* What a step takes from the small lane: two messages of one group to the same people, one to fewer
 * of them, one of another group. Each is accounted for, the last of the same is pushed alone. */
static void several_messages_together_leave_the_latest(void **state)
{
    (void)state;
    start(0, 0);
    uint64_t handles[] = {handle_of(1), handle_of(2), handle_of(3)};
    struct event events[] = {{.id = UINT64_C(1) << 61, .actor = group},
                             {.id = (UINT64_C(1) << 61) + 1, .actor = group},
                             {.id = (UINT64_C(1) << 61) + 2, .actor = group},
                             {.id = (UINT64_C(1) << 61) + 3, .actor = other}};
    struct sink_call calls[] = {{.event = &events[0], .members = handles, .n = 3},
                                {.event = &events[1], .members = handles, .n = 3},
                                {.event = &events[2], .members = handles, .n = 1},
                                {.event = &events[3], .members = handles, .n = 2}};
    struct sink_env env = {.db = w.db, .views = w.views, .clock = &w.clock.clock};
    pushes = 0;
    assert_int_equal(sink_inboxes(&env, calls, 4), OK);
    assert_int_equal(pushes, 3);
    assert_true(calls[0].result.delivered == 0 && calls[0].result.repeated == 3);
    assert_true(calls[1].result.delivered == 3 && calls[1].result.repeated == 0);
    assert_true(calls[2].result.delivered == 1 && calls[3].result.delivered == 2);
    assert_int_equal(activity_of(1, group), events[2].id);
    assert_int_equal(activity_of(3, group), events[1].id);
    assert_int_equal(activity_of(2, other), events[3].id);
    failing = handles[1] + 1;
    assert_int_equal(sink_inboxes(&env, calls, 4), ERR_UNAVAILABLE);
}

/* The active and the rest are two walks, and a new account is in both. */
static void a_page_that_never_works_is_a_dead_letter_of_each_walk(void **state)
{
    (void)state;
    start(2, 0);
    static const char dead[] = "SELECT COUNT(*) FROM deliveries WHERE consumer = 'inboxes' "
                               "AND state = $1";
    int64_t before = world_i64(&w, dead, DB_ARGS(DB_I64(DELIVERY_DEAD)));
    failing = handle_of(5) + 1;
    uint64_t at = message(group, 0, 0);
    for (int i = 0; i < 100; i++) {
        manual_clock_advance(&w.clock, 60 * 1000);
        work();
    }
    assert_int_equal(world_i64(&w, dead, DB_ARGS(DB_I64(DELIVERY_DEAD))) - before, 2);
    size_t without = 0;
    for (size_t i = 0; i < PEOPLE; i++)
        without += activity_of(i, group) != at;
    assert_true(without >= 1 && without <= 2);
}

/* Half of them were here today, and two just now. */
static void speak_to_the_cold(int64_t threshold)
{
    start(2, threshold);
    manual_clock_advance(&w.clock, 3 * day_ms);
    for (size_t i = 0; i < 4; i++)
        seen(i);
    manual_clock_advance(&w.clock, day_ms / 2);
    seen(0);
    seen(1);
    for (int i = 0; i < 3; i++) {
        message(group, 0, 0);
        world_drain(&w);
    }
}

static enum err read_whole(struct tx *tx, void *arg)
{
    struct inbox_entry *out = arg;
    uint64_t groups[2], activities[2];
    size_t n;
    enum err e = inbox_from_truth(tx, out->group, UINT64_MAX, false, 2, groups, activities, &n);
    EXPECT(e || n >= 1);
    for (size_t i = 0; i < n; i++)
        out[1 + i] = (struct inbox_entry){groups[i], activities[i]};
    out[0].activity = n;
    return e;
}

/* As a returning reader does. */
static void come_back(size_t person)
{
    struct inbox_entry whole[3] = {{.group = people[person]}};
    EXPECT(inboxes_begin(w.views->inboxes, people[person]) == OK);
    EXPECT(db_read(w.db, read_whole, whole, NULL) == OK);
    EXPECT(inboxes_end(w.views->inboxes, people[person], whole + 1, whole[0].activity) == OK);
}

static void the_cold_of_a_large_group_pull_and_see_no_difference(void **state)
{
    (void)state;
    for (int64_t threshold = 0; threshold <= 2 * PEOPLE; threshold += PEOPLE) {
        bool large = threshold == PEOPLE;
        speak_to_the_cold(threshold);
        uint64_t at = (uint64_t)world_i64(&w, "SELECT last_id FROM groups WHERE id = $1",
                                          DB_ARGS(DB_I64(group)));
        for (size_t i = 0; i < 4; i++) /* active members were pushed to, in each case */
            assert_int_equal(activity_of(i, group), at);
        for (size_t i = 4; i < PEOPLE; i++) {
            assert_int_equal(activity_of(i, group), large ? UINT64_MAX : at);
            if (large)
                come_back(i);
            assert_int_equal(activity_of(i, group), at);
        }
        at = message(group, 0, 0); /* they are not seen: dropped again, or pushed to */
        world_drain(&w);
        assert_int_equal(activity_of(8, group), large ? UINT64_MAX : at);
    }
}

/* A page of pulled members is dropped once: the next message does not even meet them. */
static void pulling_is_no_work_any_more(void **state)
{
    (void)state;
    speak_to_the_cold(PEOPLE);
    pushes = 0;
    uint64_t at = message(group, 0, 0);
    world_drain(&w);
    struct engine_stats stats;
    engine_stats(w.engine, &stats);
    assert_true(pushes <= 4); /* four members in pages of two, two of them met by both walks */
    assert_int_equal(stats.lanes[LANE_REST].skipped, PEOPLE - 4);
    assert_int_equal(activity_of(3, group), at);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_own_message_is_there_before_anything_is_delivered),
        cmocka_unit_test(who_left_is_out_at_once_and_stays_out),
        cmocka_unit_test(mentions_go_first_and_do_not_run_ahead),
        cmocka_unit_test(a_message_without_mentions_costs_their_lane_nothing),
        cmocka_unit_test(one_failing_page_holds_up_no_other),
        cmocka_unit_test(several_messages_together_leave_the_latest),
        cmocka_unit_test(a_page_that_never_works_is_a_dead_letter_of_each_walk),
        cmocka_unit_test(the_cold_of_a_large_group_pull_and_see_no_difference),
        cmocka_unit_test(pulling_is_no_work_any_more),
    };
    world_open(&w, 3);
    int failures = cmocka_run_group_tests_name("model/group_fanout", tests, NULL, NULL);
    world_close(&w);
    return failures;
}
