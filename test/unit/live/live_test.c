/* Live events: who gets which, in what order, what it costs, and what happens when something fails
 * on the way. */
#include "test.h"

#include "live/live_state.h"
#include "model/group.h"
#include "net/hub.h"
#include "net/stream_state.h"
#include "world.h"

enum { MANY_PEOPLE = 600, STEPS_MAX = 10000 };

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

/* The number of the entry. */
static int64_t change(uint64_t group)
{
    EXPECT(db_write(w.db, rename_it, &group, NULL) == OK);
    return seq_of(group);
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
    return seq_of(group);
}

struct writing {
    uint64_t group, author;
    int64_t seq;
};

static enum err write_it(struct tx *tx, void *arg)
{
    struct writing *g = arg;
    struct message_new in = {.group = g->group, .author = g->author, .body = STR("hello")};
    struct group_entry out;
    bool repeated;
    struct arena arena;
    arena_init(&arena);
    enum err e = message_send(tx, &in, &arena, &out, &repeated);
    g->seq = e ? 0 : out.seq;
    arena_done(&arena);
    return e;
}

static int64_t say(uint64_t group, size_t who)
{
    struct writing g = {.group = group, .author = people[who]};
    EXPECT(db_write(w.db, write_it, &g, NULL) == OK);
    return g.seq;
}

/* ---- the signal, which may fail ---- */

static const struct signal_ops *real_signal;
static struct signal_ops signal_ops;
static unsigned failing, published; /* how many of the next ones fail */
static bool doubled;

static enum err fickle_publish(struct signal *s, const struct signal_message *messages, size_t n)
{
    published++;
    if (failing > 0) {
        failing--;
        return ERR_UNAVAILABLE;
    }
    if (doubled)
        EXPECT(real_signal->publish(s, messages, n) == OK);
    return real_signal->publish(s, messages, n);
}

/* ---- streams ---- */

static void run(void)
{
    if (w.signal->remote)
        (void)live_receive_step(live);
    for (int i = 0; i < STEPS_MAX; i++)
        if (live_step(live) > clock_mono_us(&w.clock.clock))
            return;
    fail_msg("the step finds no end");
}

/* Everything is delivered, and its time is over. */
static void settle(void)
{
    world_drain(&w);
    run();
}

static void listen(size_t who)
{
    streams[who] = stream_new(&encoding_sse, 0, 0);
    EXPECT(live_join(live, people[who], 0, streams[who]) == OK);
}

/* What waits to be sent, as text; the n-th from the first. NULL: there are not so many. */
static const char *waiting(size_t who, size_t n)
{
    static char text[256];
    struct stream *s = streams[who];
    for (uint32_t i = s->first; i < s->end; i++) {
        const struct frame *f = s->queue[i].frame;
        if (!f || n-- > 0)
            continue;
        snprintf(text, sizeof text, "%.*s", (int)f->len, f->bytes);
        return text;
    }
    return NULL;
}

static size_t count_of(size_t who, const char *what)
{
    size_t count = 0;
    for (size_t i = 0; waiting(who, i); i++)
        count += strstr(waiting(who, i), what) != NULL;
    return count;
}

/* What waits to be sent about the group, the newest alone: its number. 0: nothing. */
static int64_t number(size_t who, const char *kind, uint64_t group)
{
    char key[48];
    snprintf(key, sizeof key, "\"%llu\"", (unsigned long long)group);
    for (size_t i = 0; waiting(who, i); i++) {
        const char *text = waiting(who, i), *at = strstr(text, "\"seq\":");
        if (strstr(text, kind) && strstr(text, key) && at)
            return strtoll(at + 6, NULL, 10);
    }
    return 0;
}

static int64_t told(size_t who, uint64_t group)
{
    return number(who, "event: group", group);
}

static bool has_feed(size_t who, uint64_t post)
{
    char text[64];
    snprintf(text, sizeof text, "event: feed\ndata: {\"id\":\"%llu\"}", (unsigned long long)post);
    return count_of(who, text) > 0;
}

static void take_all(size_t who)
{
    struct stream_batch batch;
    do {
        stream_take(streams[who], &batch);
        for (unsigned i = 0; i < batch.count; i++)
            frame_unref(batch.frames[i]);
        stream_left(streams[who], batch.bytes, false);
    } while (batch.count > 0);
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

static void (*world_committed)(void *ctx, const struct event *events, size_t n);
static void *world_ctx;

static void committed(void *ctx, const struct event *events, size_t n)
{
    (void)ctx;
    world_committed(world_ctx, events, n);
    live_committed(live, events, n);
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
    real_signal = w.signal->ops;
    signal_ops = *real_signal;
    signal_ops.publish = fickle_publish;
    w.signal->ops = &signal_ops;
    reads = failing = published = 0;
    is_away = doubled = false;
    live = live_new(&(struct live_config){.db = w.db,
                                          .views = w.views,
                                          .signal = w.signal,
                                          .active_within_ms = LATELY_MS,
                                          .clock = &w.clock.clock,
                                          .streams_max = 10000,
                                          .person_max = 4,
                                          .wake = wake});
    world_committed = w.db->on_commit;
    world_ctx = w.db->on_commit_ctx;
    w.db->on_commit = committed;
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
    assert_int_equal(live->listeners.count, 0);
    w.db->on_commit = world_committed;
    live_free(live);
    w.db->ops = real_db;
    w.signal->ops = real_signal;
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
    assert_int_equal(told(1, group), 0); /* not before the engine has delivered it */
    settle();
    assert_int_equal(told(1, group), seq);
    assert_int_equal(told(2, group), seq);
    seq = say(group, 0);
    settle();
    assert_int_equal(told(1, group), seq);
    assert_int_equal(told(2, group), seq);
    assert_int_equal(told(3, group), 0);
    assert_int_equal(told(1, other), 0);
    assert_int_equal(sent() - before, 4);
    end(4);
}

static void what_nobody_listens_for_is_not_published(void **state)
{
    (void)state;
    begin(3);
    uint64_t group = make_group(2);
    world_drain(&w);
    listen(2);
    run();
    for (int i = 0; i < 20; i++)
        (void)say(group, 0), (void)change(group);
    world_drain(&w);
    assert_int_equal(published, 0);
    end(3);
}

static void nothing_is_read_for_those_who_listen(void **state)
{
    (void)state;
    begin(MANY_PEOPLE);
    uint64_t group = make_group(MANY_PEOPLE);
    world_drain(&w);
    for (size_t i = 0; i < MANY_PEOPLE; i++)
        listen(i);
    run();
    uint64_t before = sent(), checks = live->checks;
    reads = published = 0;
    int64_t seq = say(group, 0);
    settle();
    size_t of_a_message = reads;
    assert_int_equal(sent() - before, MANY_PEOPLE);
    for (size_t i = 0; i < MANY_PEOPLE; i++)
        assert_int_equal(told(i, group), seq);
    reads = published = 0;
    before = sent();
    for (int i = 0; i < 50; i++)
        seq = change(group);
    reads = 0;
    settle();
    assert_true(published < 50); /* of entries that wait together the last is announced */
    for (size_t i = 0; i < MANY_PEOPLE; i++)
        assert_int_equal(told(i, group), seq);
    assert_true(sent() - before < 50 * MANY_PEOPLE);
    assert_int_equal(live->checks, checks);
    assert_true(of_a_message < 20 && reads < 20); /* the engine's own */
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
    settle();
    assert_int_equal(told(1, group), gone);
    assert_int_equal(told(2, group), seq);
    seq = say(group, 0);
    settle();
    assert_int_equal(told(1, group), gone);
    assert_int_equal(told(2, group), seq);
    end(3);
}

static void numbers_do_not_go_back_whatever_overtakes_what(void **state)
{
    (void)state;
    begin(2);
    uint64_t group = make_group(2);
    world_drain(&w);
    listen(1);
    run();
    take_all(1);
    struct signal_message m = {SIGNAL_GROUP, group, 6, &people[1], 1};
    live_receive(live, &m, 1);
    assert_int_equal(told(1, group), 6);
    take_all(1); /* it is on its way */
    m.seq = 5;
    live_receive(live, &m, 1);
    m.seq = 6;
    live_receive(live, &m, 1);
    assert_null(waiting(1, 0));
    m.seq = 7;
    live_receive(live, &m, 1);
    m.kind = SIGNAL_READ;
    m.seq = 2;
    live_receive(live, &m, 1);
    assert_int_equal(told(1, group), 7);
    assert_int_equal(number(1, "event: read", group), 2);
    end(2);
}

static void the_newest_stands_for_older_ones_while_a_client_is_slow(void **state)
{
    (void)state;
    begin(2);
    uint64_t group = make_group(2), other = make_group(2);
    world_drain(&w);
    listen(1);
    run();
    take_all(1);
    int64_t seq = 0;
    for (int i = 0; i < 5; i++) {
        seq = say(group, 0);
        (void)say(other, 0);
        settle();
    }
    assert_int_equal(count_of(1, "event: group"), 2);
    assert_int_equal(told(1, group), seq);
    end(2);
}

static void whoever_may_have_missed_something_is_greeted(void **state)
{
    (void)state;
    begin(3);
    uint64_t group = make_group(3);
    world_drain(&w);
    listen(1);
    run();
    assert_int_equal(count_of(1, "event: hello"), 1);
    (void)say(group, 0);
    settle();
    live_greet_all(live);
    run();
    assert_non_null(strstr(waiting(1, 0), "event: hello")); /* it stands for what waited */
    assert_null(waiting(1, 1));
    take_all(1);
    struct signal_message m = {SIGNAL_GROUP, group, 1, &people[1], 1};
    live_receive(live, &m, 1); /* numbers begin anew */
    assert_int_equal(told(1, group), 1);
    m = (struct signal_message){.kind = SIGNAL_EVERYBODY};
    live_receive(live, &m, 1);
    run();
    assert_int_equal(count_of(1, "event: hello"), 1);
    end(3);
}

static void who_has_more_groups_than_a_stream_knows_is_greeted(void **state)
{
    (void)state;
    begin(2);
    listen(1);
    run();
    struct signal_message m = {SIGNAL_GROUP, 0, 1, &people[1], 1};
    for (uint64_t i = 1; i <= STREAM_NEWEST_MAX; i++) {
        m.key = 100 + i;
        live_receive(live, &m, 1);
        take_all(1);
    }
    m.key = 1;
    live_receive(live, &m, 1);
    assert_int_equal(told(1, 1), 0);
    run();
    assert_int_equal(count_of(1, "event: hello"), 1);
    live_receive(live, &m, 1);
    assert_int_equal(told(1, 1), 1);
    end(2);
}

static void nobody_is_told_anything_before_the_greeting(void **state)
{
    (void)state;
    begin(2);
    uint64_t group = make_group(2);
    world_drain(&w);
    listen(1);
    is_away = true;
    assert_true(live_step(live) > clock_mono_us(&w.clock.clock));
    struct signal_message m = {SIGNAL_GROUP, group, 9, &people[1], 1};
    live_receive(live, &m, 1);
    assert_null(waiting(1, 0));
    is_away = false;
    run();
    assert_non_null(strstr(waiting(1, 0), "event: hello"));
    m.seq = 10;
    live_receive(live, &m, 1);
    assert_int_equal(told(1, group), 10);
    end(2);
}

static void a_page_whose_signal_fails_is_delivered_again(void **state)
{
    (void)state;
    begin(3);
    uint64_t group = make_group(3);
    world_act(&w, ACT_FOLLOW, people[1], people[0]);
    world_drain(&w);
    listen(1);
    listen(2);
    run();
    failing = 2;
    int64_t seq = say(group, 0);
    settle();
    failing = 1;
    uint64_t post = world_post(&w, people[0], "hello");
    settle();
    failing = 1;
    int64_t entry = change(group);
    doubled = true;
    settle();
    assert_int_equal(failing, 0);
    assert_true(entry > seq);
    assert_int_equal(told(1, group), entry);
    assert_int_equal(told(2, group), entry);
    assert_true(has_feed(1, post));
    assert_false(has_feed(2, post));
    end(3);
}

static void posts_are_told_unless_their_author_is_muted(void **state)
{
    (void)state;
    begin(4);
    for (size_t i = 1; i <= 2; i++)
        world_act(&w, ACT_FOLLOW, people[0], people[i]);
    world_act(&w, ACT_MUTE, people[0], people[2]);
    world_drain(&w);
    listen(0);
    listen(1);
    run();
    uint64_t muted = world_post(&w, people[2], "unseen");
    settle();
    assert_false(has_feed(0, muted));
    uint64_t post = world_post(&w, people[1], "seen");
    settle();
    assert_true(has_feed(0, post));
    assert_true(has_feed(1, post)); /* one's own, on the other devices */
    world_act(&w, ACT_UNMUTE, people[0], people[2]);
    world_act(&w, ACT_MUTE, people[0], people[3]);
    world_act(&w, ACT_MUTE, people[0], people[1]);
    take_all(0);
    post = world_post(&w, people[2], "seen now");
    settle();
    assert_true(has_feed(0, post));
    (void)world_post(&w, people[1], "unseen now");
    settle();
    assert_true(has_feed(0, post));
    assert_int_equal(live->checks, 2); /* what changed was in the signals */
    end(4);
}

static void pulled_posts_are_told_to_those_who_follow(void **state)
{
    (void)state;
    begin(4);
    world_act(&w, ACT_FOLLOW, people[1], people[0]);
    world_act(&w, ACT_FOLLOW, people[2], people[0]);
    world_act(&w, ACT_MUTE, people[2], people[0]);
    world_drain(&w);
    for (size_t i = 1; i < 4; i++)
        listen(i);
    run();
    struct signal_message m = {SIGNAL_FEED_PULLED, people[0], 77, NULL, 0};
    live_receive(live, &m, 1);
    for (int64_t i = 0; i < 3 * PULLED_MAX; i++) { /* more than wait at a time */
        m = (struct signal_message){SIGNAL_FEED_PULLED, (uint64_t)(1000 + i % PULLED_MAX), i, 0, 0};
        live_receive(live, &m, 1);
    }
    m = (struct signal_message){SIGNAL_FEED_PULLED, people[0], 78, NULL, 0};
    live_receive(live, &m, 1);
    run();
    assert_true(has_feed(1, 78));
    assert_int_equal(count_of(2, "event: feed"), 0);
    assert_int_equal(count_of(3, "event: feed"), 0);
    end(4);
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
        cmocka_unit_test(what_nobody_listens_for_is_not_published),
        cmocka_unit_test(nothing_is_read_for_those_who_listen),
        cmocka_unit_test(who_was_removed_is_told_that_and_no_more),
        cmocka_unit_test(numbers_do_not_go_back_whatever_overtakes_what),
        cmocka_unit_test(the_newest_stands_for_older_ones_while_a_client_is_slow),
        cmocka_unit_test(whoever_may_have_missed_something_is_greeted),
        cmocka_unit_test(who_has_more_groups_than_a_stream_knows_is_greeted),
        cmocka_unit_test(nobody_is_told_anything_before_the_greeting),
        cmocka_unit_test(a_page_whose_signal_fails_is_delivered_again),
        cmocka_unit_test(posts_are_told_unless_their_author_is_muted),
        cmocka_unit_test(pulled_posts_are_told_to_those_who_follow),
    };
    return cmocka_run_group_tests_name("live", tests, NULL, NULL);
}
