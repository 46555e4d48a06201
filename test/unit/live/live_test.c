/* Live events of what is in a group's log alone: who is told, up to which number, and what it
 * costs. */
#include "test.h"

#include "live/live_state.h"
#include "model/group.h"
#include "net/hub.h"
#include "net/stream_state.h"
#include "world.h"

enum { MANY_PEOPLE = 600, MANY_GROUPS = TOPICS_OF_LISTENER_MAX + 10, STEPS_MAX = 1000 };

#define LATELY_MS INT64_C(60000)

static struct world w;
static struct live *live;
static uint64_t people[MANY_PEOPLE];
static struct stream *streams[MANY_PEOPLE];
static const struct db_ops *real_db;
static struct db_ops db_ops;
static size_t reads;
static bool is_away;

/* ---- the store, counted ---- */

static enum err counted_read(struct db *db, tx_fn fn, void *arg, char *detail)
{
    reads++;
    return is_away ? ERR_UNAVAILABLE : real_db->read(db, fn, arg, detail);
}

/* ---- groups ---- */

struct making {
    size_t owner, members;
    uint64_t made;
};

static enum err make(struct tx *tx, void *arg)
{
    struct making *m = arg;
    struct group_new in = {.owner = people[m->owner],
                           .name = STR("birds"),
                           .members = people,
                           .member_count = m->members};
    struct group out;
    struct arena arena;
    arena_init(&arena);
    enum err e = group_create(tx, &in, &arena, &out);
    m->made = e ? 0 : out.id;
    arena_done(&arena);
    return e;
}

/* Of the first so many people; the first of them owns it. */
static uint64_t make_group(size_t members)
{
    struct making m = {.owner = 0, .members = members};
    EXPECT(db_write(w.db, make, &m, NULL) == OK);
    return m.made;
}

static enum err rename_it(struct tx *tx, void *arg)
{
    static unsigned count;
    char name[24];
    snprintf(name, sizeof name, "birds %u", ++count);
    struct group_change change = {.name = str_of(name)};
    struct group out;
    struct arena arena;
    arena_init(&arena);
    enum err e = group_update(tx, *(uint64_t *)arg, people[0], &change, &arena, &out);
    arena_done(&arena);
    return e;
}

static int64_t seq_of(uint64_t group)
{
    return world_i64(&w, "SELECT seq FROM groups WHERE id = $1", DB_ARGS(DB_I64(group)));
}

static int64_t committed(uint64_t group, enum event_type type)
{
    int64_t seq = seq_of(group);
    live_committed(live, &(struct event){.type = type, .actor = group, .value = seq}, 1);
    return seq;
}

/* The number of the entry. */
static int64_t change(uint64_t group)
{
    EXPECT(db_write(w.db, rename_it, &group, NULL) == OK);
    return committed(group, EVENT_GROUP_ENTRY);
}

struct removal {
    uint64_t group, account;
};

static enum err remove_them(struct tx *tx, void *arg)
{
    struct removal *r = arg;
    return group_member_remove(tx, r->group, people[0], r->account);
}

static int64_t remove_member(uint64_t group, size_t who)
{
    struct removal r = {group, people[who]};
    EXPECT(db_write(w.db, remove_them, &r, NULL) == OK);
    return committed(group, EVENT_GROUP_LEFT);
}

/* ---- streams ---- */

static void run(void)
{
    for (int i = 0; i < STEPS_MAX; i++)
        if (live_step(live) > clock_mono_us(&w.clock.clock))
            return;
    fail_msg("the step finds no end");
}

static void listen(size_t who)
{
    streams[who] = stream_new(0, 0);
    EXPECT(live_join(live, people[who], 0, streams[who]) == OK);
}

/* What waits to be sent about the group, the newest alone: its number. 0: nothing. */
static int64_t told(size_t who, uint64_t group)
{
    struct stream *s = streams[who];
    for (uint32_t i = s->first; i < s->end; i++) {
        const struct frame *f = s->queue[i].frame;
        if (!f || f->key != group)
            continue;
        char text[256];
        snprintf(text, sizeof text, "%.*s", (int)f->len, f->bytes);
        const char *at = strstr(text, "\"seq\":");
        EXPECT(strstr(text, "event: group") && at);
        return strtoll(at + 6, NULL, 10);
    }
    return 0;
}

static uint64_t sent(void)
{
    struct live_stats stats;
    live_stats(live, &stats);
    return stats.sent;
}

static void wake(void *ctx)
{
    (void)ctx;
}

static void begin(size_t count)
{
    world_open_on(&w, 0, test_drivers_wanted());
    world_start(&w, 10);
    for (size_t i = 0; i < count; i++) {
        char name[24];
        snprintf(name, sizeof name, "person%zu", i);
        people[i] = world_account(&w, name);
        streams[i] = NULL;
    }
    real_db = w.db->ops;
    db_ops = *real_db;
    db_ops.read = counted_read;
    w.db->ops = &db_ops;
    reads = 0;
    is_away = false;
    live = live_new(&(struct live_config){.db = w.db,
                                          .views = w.views,
                                          .cards = w.cards,
                                          .invalidation = w.invalidation,
                                          .signal = w.signal,
                                          .active_within_ms = LATELY_MS,
                                          .clock = &w.clock.clock,
                                          .streams_max = 10000,
                                          .person_max = 4,
                                          .wake = wake});
}

static void end(size_t count)
{
    for (size_t i = 0; i < count; i++) {
        if (!streams[i])
            continue;
        hub_leave(live_hub(live), streams[i]);
        stream_unref(streams[i]);
    }
    run();
    assert_int_equal(live->topics.count, 0); /* whoever goes takes their places along */
    live_free(live);
    w.db->ops = real_db;
    world_close(&w);
}

/* ---- cases ---- */

static void members_who_listen_are_told_and_nobody_else(void **state)
{
    (void)state;
    begin(4);
    uint64_t group = make_group(3), other = make_group(2);
    world_drain(&w);
    listen(1);
    listen(2);
    listen(3);
    run();
    uint64_t before = sent();
    int64_t seq = change(group);
    run();
    assert_int_equal(told(1, group), seq);
    assert_int_equal(told(2, group), seq);
    assert_int_equal(told(3, group), 0);
    assert_int_equal(told(1, other), 0);
    assert_int_equal(sent() - before, 2);
    reads = 0;
    live_committed(live, &(struct event){EVENT_GROUP_ENTRY, .actor = group, .value = seq}, 1);
    run(); /* once more, as with news of other nodes */
    assert_int_equal(reads, 0);
    assert_int_equal(sent() - before, 2);
    end(4);
}

static void what_nobody_listens_for_costs_nothing(void **state)
{
    (void)state;
    begin(3);
    uint64_t group = make_group(2);
    (void)change(group);
    assert_false(live_has_entries(live)); /* nobody listens at all */
    listen(2);
    run();
    reads = 0;
    for (int i = 0; i < 100; i++)
        (void)change(group);
    reads = 0;
    run();
    assert_int_equal(reads, 0);
    end(3);
}

static void many_listeners_are_asked_about_by_the_hundreds(void **state)
{
    (void)state;
    begin(MANY_PEOPLE);
    uint64_t group = make_group(MANY_PEOPLE);
    world_drain(&w);
    for (size_t i = 0; i < MANY_PEOPLE; i++)
        listen(i);
    run();
    uint64_t before = sent();
    int64_t seq = 0;
    for (int i = 0; i < 50; i++)
        seq = change(group);
    reads = 0;
    run();
    assert_int_equal(reads, (MANY_PEOPLE + 255) / 256);
    assert_int_equal(sent() - before, MANY_PEOPLE);
    for (size_t i = 0; i < MANY_PEOPLE; i++)
        assert_int_equal(told(i, group), seq);
    end(MANY_PEOPLE);
}

static void who_was_removed_is_told_that_and_no_more(void **state)
{
    (void)state;
    begin(3);
    uint64_t group = make_group(3);
    world_drain(&w);
    listen(1);
    listen(2);
    run();
    int64_t gone = remove_member(group, 1), seq = change(group);
    run();
    assert_int_equal(told(1, group), gone);
    assert_int_equal(told(2, group), seq);
    uint64_t before = sent();
    seq = change(group);
    run();
    assert_int_equal(told(1, group), gone);
    assert_int_equal(told(2, group), seq);
    assert_int_equal(sent() - before, 1);
    end(3);
}

static void whose_leaving_was_not_heard_of_is_told_nothing_of_what_came_after(void **state)
{
    (void)state;
    begin(2);
    uint64_t group = make_group(2);
    world_drain(&w);
    listen(1);
    run();
    struct removal r = {group, people[1]};
    EXPECT(db_write(w.db, remove_them, &r, NULL) == OK);
    uint64_t before = sent();
    (void)change(group);
    run();
    assert_int_equal(told(1, group), 0);
    assert_int_equal(sent() - before, 0);
    assert_int_equal(live->topics.count, 0);
    end(2);
}

static void of_very_many_groups_the_latest_are_followed(void **state)
{
    (void)state;
    static uint64_t groups[MANY_GROUPS];
    begin(2);
    for (size_t i = 0; i < MANY_GROUPS; i++)
        groups[i] = make_group(2);
    world_drain(&w);
    listen(1);
    run();
    assert_int_equal(live->topics.count, TOPICS_OF_LISTENER_MAX);
    (void)change(groups[9]);
    int64_t seq = change(groups[10]);
    run();
    assert_int_equal(told(1, groups[9]), 0);
    assert_int_equal(told(1, groups[10]), seq);
    uint64_t later = make_group(2);
    world_drain(&w);
    run();
    (void)change(groups[10]);
    int64_t latest = change(later);
    run();
    assert_int_equal(told(1, groups[10]), seq); /* it had to give way */
    assert_int_equal(told(1, later), latest);
    assert_int_equal(live->topics.count, TOPICS_OF_LISTENER_MAX);
    end(2);
}

static void more_news_than_fit_are_found_by_looking_at_everybody(void **state)
{
    (void)state;
    begin(2);
    uint64_t group = make_group(2);
    world_drain(&w);
    listen(1);
    run();
    for (uint64_t i = 1; i <= RANGES_MAX; i++)
        live_committed(live, &(struct event){EVENT_GROUP_ENTRY, .actor = 7 * i, .value = 1}, 1);
    int64_t seq = change(group);
    run();
    assert_int_equal(told(1, group), seq);
    end(2);
}

static void while_truth_is_away_nothing_is_forgotten(void **state)
{
    (void)state;
    begin(2);
    uint64_t group = make_group(2);
    world_drain(&w);
    listen(1);
    run();
    int64_t seq = change(group);
    is_away = true;
    for (int i = 0; i < 3; i++)
        assert_true(live_step(live) > clock_mono_us(&w.clock.clock));
    assert_int_equal(told(1, group), 0);
    is_away = false;
    run();
    assert_int_equal(told(1, group), seq);
    end(2);
}

/* Has the person been here since? Asked as large fan-outs do. */
static bool is_here(uint64_t group, size_t who)
{
    uint64_t handles[8], ids[8];
    bool here[8];
    struct audience_cursor all = {.part = AUDIENCE_ALL};
    size_t n, known;
    EXPECT(graph_audience(w.views->graph, group, &all, handles, 8, &n) == OK);
    EXPECT(graph_neighbours(w.views->graph, group, true, 0, ids, 8, &known) == OK && known == n);
    EXPECT(graph_seen_since(w.views->graph, handles, n, clock_wall_ms(&w.clock.clock) - LATELY_MS,
                            here) == OK);
    for (size_t i = 0; i < n; i++) /* both rise with the age of the account */
        if (ids[i] == people[who])
            return here[i];
    fail_msg("not in the group");
    return false;
}

static void who_listens_is_here_for_as_long_as_they_do(void **state)
{
    (void)state;
    begin(3);
    uint64_t group = make_group(3);
    world_drain(&w);
    manual_clock_advance(&w.clock, 10 * LATELY_MS);
    assert_false(is_here(group, 1));
    listen(1);
    run();
    assert_true(is_here(group, 1));
    assert_false(is_here(group, 2));
    for (int i = 0; i < 10; i++) {
        manual_clock_advance(&w.clock, LATELY_MS / 2);
        run();
        assert_true(is_here(group, 1));
    }
    hub_leave(live_hub(live), streams[1]);
    run();
    manual_clock_advance(&w.clock, LATELY_MS + 1000);
    run();
    assert_false(is_here(group, 1));
    end(3);
}

static void many_are_here_together(void **state)
{
    (void)state;
    begin(MANY_PEOPLE);
    uint64_t group = make_group(8);
    world_drain(&w);
    for (size_t i = 0; i < MANY_PEOPLE; i++)
        listen(i);
    run();
    manual_clock_advance(&w.clock, 2 * LATELY_MS);
    size_t steps = 0;
    do
        steps++;
    while (live_step(live) <= clock_mono_us(&w.clock.clock));
    assert_true(steps >= MANY_PEOPLE / 256 && steps <= MANY_PEOPLE / 100); /* some at a time */
    for (size_t i = 0; i < 8; i++)
        assert_true(is_here(group, i));
    end(MANY_PEOPLE);
}

int main(void)
{
    const struct CMUnitTest shared[] = {
        /* the rest looks at what each step does, which servers elsewhere do not let it */
        cmocka_unit_test(who_listens_is_here_for_as_long_as_they_do),
    };
    if (test_drivers_wanted() == TEST_CLUSTER)
        return cmocka_run_group_tests_name("live, shared views", shared, NULL, NULL);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(who_listens_is_here_for_as_long_as_they_do),
        cmocka_unit_test(many_are_here_together),
        cmocka_unit_test(members_who_listen_are_told_and_nobody_else),
        cmocka_unit_test(what_nobody_listens_for_costs_nothing),
        cmocka_unit_test(many_listeners_are_asked_about_by_the_hundreds),
        cmocka_unit_test(who_was_removed_is_told_that_and_no_more),
        cmocka_unit_test(whose_leaving_was_not_heard_of_is_told_nothing_of_what_came_after),
        cmocka_unit_test(of_very_many_groups_the_latest_are_followed),
        cmocka_unit_test(more_news_than_fit_are_found_by_looking_at_everybody),
        cmocka_unit_test(while_truth_is_away_nothing_is_forgotten),
    };
    return cmocka_run_group_tests_name("live", tests, NULL, NULL);
}
