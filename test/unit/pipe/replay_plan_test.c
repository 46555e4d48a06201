/* Which events a replay means, by the dry run and by the replay itself: the two must agree. */
#include "replay_world.h"

static void add_dead(struct fixture *f, uint64_t event, const char *consumer, int state,
                     const char *reason)
{
    char sql[600];
    snprintf(sql, sizeof sql,
             "INSERT INTO deliveries (event_id, type, version, payload, consumer, lane, order_key, "
             "part, active_since, started, after, until, epoch, state, tries, due_at, opened_at, "
             "changed_at, reason) VALUES (%llu, 'post.created', 1, '', '%s', 'small', 0, 0, 0, 0, "
             "0, 0, 0, %d, 1, 0, 0, 0, '%s')",
             (unsigned long long)event, consumer, state, reason);
    plain_db_run(f->plain, sql);
}
/* ---- plans ---- */

struct planning {
    const struct replay_spec *spec;
    size_t max_rows;
    struct replay_plan plan;
};

static enum err run_plan(struct tx *tx, void *arg)
{
    struct planning *p = arg;
    return replay_plan_slice(tx, p->spec, rules, RULE_COUNT, p->max_rows, &p->plan);
}

static struct replay_plan plan_in(struct fixture *f, const struct replay_spec *spec,
                                  size_t max_rows)
{
    struct planning p = {.spec = spec, .max_rows = max_rows};
    for (int i = 0; i < STEPS_MAX && !p.plan.end; i++)
        assert_int_equal(db_read(f->db, run_plan, &p, NULL), OK);
    assert_true(p.plan.end);
    return p.plan;
}

static struct replay_plan plan(struct fixture *f, const struct replay_spec *spec)
{
    return plan_in(f, spec, 1000);
}

/* Plans, starts, and holds the two against each other. */
static void replay(struct fixture *f, struct replay_spec spec)
{
    spec.to_ms = spec.to_ms ? spec.to_ms : NOW_MS;
    struct replay_plan p = plan(f, &spec);
    f->begun_count = 0;
    uint64_t job = create(f, &spec, 0);
    step(f);
    assert_int_equal(look(f, job).state, JOB_DONE);
    assert_int_equal(look(f, job).counts.seen, p.events + p.unreadable);
    assert_int_equal(look(f, job).counts.failed, p.unreadable);
    assert_int_equal(f->begun_count, p.events);
    assert_int_equal(p.first, f->begun_count > 0 ? f->begun[0].event : 0);
    assert_int_equal(p.last, f->begun_count > 0 ? f->begun[f->begun_count - 1].event : 0);
}

/* ---- which events ---- */

static void each_selection_means_its_events(void **state)
{
    struct fixture *f = *state;
    const struct adding follow = {.type = EVENT_FOLLOW_CREATED, .actor = BOB, .state = SETTLED};
    const struct adding pulled = {
        .type = EVENT_POST_CREATED, .actor = ANN, .value = DELIVERY_PULL, .state = SETTLED};
    const struct adding deleted = {.type = EVENT_POST_DELETED, .actor = ANN, .state = SETTLED};
    uint64_t a = add_post(f, ANN);
    uint64_t b = add(f, follow);
    manual_clock_advance(&f->clock, 1000);
    uint64_t c = add_post(f, BOB);
    uint64_t d = add(f, pulled); /* beta's e-mail alone wants it */
    add(f, deleted);             /* no rule here does */
    manual_clock_advance(&f->clock, 1000);
    uint64_t e = add_post(f, ANN);

    replay(f, (struct replay_spec){.consumer = "alpha"});
    BEGUN_ARE(f, a, b, c, e);
    assert_int_equal(f->begun[0].mask, 1);
    assert_int_equal(f->begun[1].mask, 1);
    replay(f, (struct replay_spec){.consumer = "beta"});
    BEGUN_ARE(f, a, b, c, d, e);
    assert_int_equal(f->begun[0].mask, 6);
    assert_int_equal(f->begun[1].mask, 2);
    assert_int_equal(f->begun[3].mask, 2);
    replay(f, (struct replay_spec){.consumer = "alpha", .type = "follow.created"});
    BEGUN_ARE(f, b);
    replay(f, (struct replay_spec){.consumer = "beta", .key = BOB});
    BEGUN_ARE(f, b, c);
    replay(f, (struct replay_spec){.consumer = "beta", .type = "post.created", .key = ANN});
    BEGUN_ARE(f, a, d, e);
    replay(f, (struct replay_spec){.consumer = "alpha", .from_ms = BEGAN_MS + 1000});
    BEGUN_ARE(f, c, e);
    replay(f, (struct replay_spec){.consumer = "alpha", .to_ms = BEGAN_MS + 1000});
    BEGUN_ARE(f, a, b, c);
    replay(f, (struct replay_spec){
                  .consumer = "beta", .from_ms = BEGAN_MS + 1, .to_ms = BEGAN_MS + 1999});
    BEGUN_ARE(f, c, d);
    replay(f, (struct replay_spec){.consumer = "alpha", .key = 777});
    assert_int_equal(f->begun_count, 0);
}

static void dead_letters_can_be_asked_for(void **state)
{
    struct fixture *f = *state;
    uint64_t a = add_post(f, ANN), b = add_post(f, ANN), c = add_post(f, ANN), d = add_post(f, BOB);
    add_dead(f, a, "alpha", 4, "TIMEOUT");
    add_dead(f, b, "beta", 4, "TIMEOUT");  /* another consumer's */
    add_dead(f, c, "alpha", 5, "TIMEOUT"); /* done since */
    add_dead(f, d, "alpha", 4, "UNAVAILABLE");
    replay(f, (struct replay_spec){.consumer = "alpha", .dead_reason = "*"});
    BEGUN_ARE(f, a, d);
    replay(f, (struct replay_spec){.consumer = "alpha", .dead_reason = "TIMEOUT"});
    BEGUN_ARE(f, a);
    replay(f, (struct replay_spec){.consumer = "alpha", .dead_reason = "*", .key = BOB});
    BEGUN_ARE(f, d);
    replay(f, (struct replay_spec){.consumer = "alpha", .dead_reason = "NO_MEMORY"});
    assert_int_equal(f->begun_count, 0);
}

static void what_is_not_settled_is_left_to_the_live_engine(void **state)
{
    struct fixture *f = *state;
    const struct adding pending = {.type = EVENT_POST_CREATED, .actor = ANN, .state = PENDING};
    const struct adding parked = {.type = EVENT_POST_CREATED, .actor = ANN, .state = PARKED};
    const struct adding unread = {
        .type = EVENT_POST_CREATED, .actor = ANN, .state = PARKED, .version = 99};
    uint64_t a = add_post(f, ANN);
    add(f, pending);
    add(f, parked); /* can be read, and will be delivered when it is released */
    add(f, unread);
    uint64_t b = add_post(f, ANN);
    replay(f, all_of_alpha);
    BEGUN_ARE(f, a, b);
    assert_int_equal(plan(f, &all_of_alpha).undone, 2);
    assert_int_equal(plan(f, &all_of_alpha).unreadable, 0);
}

static void what_cannot_be_read_is_passed_over_and_told(void **state)
{
    struct fixture *f = *state;
    const struct adding damaged = {
        .type = EVENT_POST_CREATED, .actor = ANN, .state = SETTLED, .payload = "{"};
    const struct adding newer = {
        .type = EVENT_POST_CREATED, .actor = ANN, .state = SETTLED, .version = 99};
    uint64_t a = add_post(f, ANN);
    add(f, damaged);
    uint64_t b = add(f, newer);
    uint64_t c = add_post(f, ANN);
    replay(f, all_of_alpha);
    BEGUN_ARE(f, a, c);
    uint64_t job = create(f, &all_of_alpha, 0);
    step(f);
    struct job done = look(f, job);
    assert_int_equal(done.counts.seen, 4);
    assert_int_equal(done.counts.failed, 2);
    assert_int_equal(done.counts.acted, 4);
    char note[JOB_NOTE_MAX];
    snprintf(note, sizeof note, "event %llu cannot be read: UNKNOWN_VERSION",
             (unsigned long long)b);
    assert_string_equal(done.note, note);
    replay(f, (struct replay_spec){.consumer = "alpha", .type = "follow.created"});
    assert_int_equal(f->begun_count, 0); /* of another type: none of its business */
}

static enum err run_remember(struct tx *tx, void *arg)
{
    const uint64_t *events = arg; /* done, unknown, given back */
    struct dedup dedup;
    dedup_init(&dedup, 7 * INT64_C(86400000));
    enum err e = dedup_begin(tx, &dedup, NOW_MS);
    for (int i = 0; !e && i < 3; i++) {
        struct event event = {.id = events[i], .type = EVENT_POST_CREATED, .actor = ANN};
        struct dedup_key key;
        enum dedup_answer answer;
        dedup_key_of(&rules[1], &event, ANN, &key);
        e = dedup_claim(tx, &dedup, "beta", &key, NOW_MS, &answer);
        if (!e && i == 0)
            e = dedup_confirm(tx, "beta", &key);
        if (!e && i == 2)
            e = dedup_give_back(tx, "beta", &key);
    }
    return e;
}

static void a_plan_counts_what_would_happen(void **state)
{
    struct fixture *f = *state;
    uint64_t posts[4];
    for (size_t i = 0; i < 4; i++)
        posts[i] = add_post(f, ANN);
    add(f, (struct adding){.type = EVENT_FOLLOW_CREATED, .actor = BOB, .state = SETTLED});
    assert_int_equal(db_write(f->db, run_remember, posts, NULL), OK);

    struct replay_spec spec = {.consumer = "beta"};
    struct replay_plan p = plan(f, &spec);
    assert_int_equal(p.events, 5);
    assert_int_equal(p.suppressed, 8); /* four e-mails and four text messages */
    assert_int_equal(p.would_act, 1);
    assert_int_equal(p.remembered, 0);
    assert_int_equal(p.channel_count, 3);

    spec = (struct replay_spec){.consumer = "beta", .allow = {"email"}, .allow_count = 1};
    p = plan(f, &spec);
    assert_int_equal(p.events, 5);
    assert_int_equal(p.remembered, 1);
    assert_int_equal(p.unknown, 1);
    assert_int_equal(p.suppressed, 4);
    assert_int_equal(p.would_act, 3);
    assert_int_equal(p.members, 3);
    assert_int_equal(p.channel_count, 3);
    assert_string_equal(p.channels[0].channel, "email");
    assert_int_equal(p.channels[0].would_act, 2);
    assert_int_equal(p.channels[0].suppressed, 0);
    assert_string_equal(p.channels[1].channel, "truth");
    assert_int_equal(p.channels[1].would_act, 1);
    assert_string_equal(p.channels[2].channel, "sms");
    assert_int_equal(p.channels[2].suppressed, 4);

    p = plan(f, &all_of_alpha);
    assert_int_equal(p.would_act, 5);
    assert_int_equal(p.members, 1); /* how many followers there are is not counted */
    assert_string_equal(p.channels[0].channel, "views");
    assert_int_equal(p.channels[0].would_act, 5);
}

static void a_plan_in_slices_is_the_same(void **state)
{
    struct fixture *f = *state;
    for (int i = 0; i < 300; i++)
        add(f, (struct adding){.type = i % 3 ? EVENT_POST_CREATED : EVENT_POST_DELETED,
                               .actor = i % 5 ? ANN : BOB,
                               .state = i % 7 ? SETTLED : PENDING});
    const struct replay_spec spec = {.consumer = "alpha", .key = ANN};
    struct replay_plan whole = plan(f, &spec);
    assert_true(whole.events > 100 && whole.undone > 10);
    for (size_t max_rows = 1; max_rows < 400; max_rows = max_rows * 3 + 1) {
        struct replay_plan slices = plan_in(f, &spec, max_rows);
        assert_memory_equal(&slices, &whole, sizeof whole);
    }
    struct planning one = {.spec = &spec, .max_rows = 10};
    assert_int_equal(db_read(f->db, run_plan, &one, NULL), OK);
    assert_false(one.plan.end);
    assert_int_equal(plain_db_ask(f->plain, "SELECT id FROM outbox ORDER BY id LIMIT 1 OFFSET 9"),
                     one.plan.position);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        TEST(each_selection_means_its_events),
        TEST(dead_letters_can_be_asked_for),
        TEST(what_is_not_settled_is_left_to_the_live_engine),
        TEST(what_cannot_be_read_is_passed_over_and_told),
        TEST(a_plan_counts_what_would_happen),
        TEST(a_plan_in_slices_is_the_same),
    };
    return cmocka_run_group_tests_name("pipe/replay_plan", tests, NULL, NULL);
}
