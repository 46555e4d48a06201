/* Replays under way: in which order, how fast, when they rest, and what is left of them after a
 * crash. */
#include "replay_world.h"

#include <pthread.h>
#include <sched.h>

/* ---- how it goes on ---- */

static void events_are_begun_in_order_and_in_a_window(void **state)
{
    struct fixture *f = *state;
    f->tells = false;
    add_posts(f, 1000);
    create(f, &all_of_alpha, 0);
    step(f);
    assert_int_equal(f->begun_count, REPLAY_WINDOW);
    step(f);
    assert_int_equal(f->begun_count, REPLAY_WINDOW);
    unsigned wakes = f->wakes;
    for (size_t i = 0; i < REPLAY_WINDOW / 2 - 1; i++)
        tell(f, i);
    assert_int_equal(f->wakes, wakes); /* not for every one */
    tell(f, REPLAY_WINDOW / 2 - 1);
    assert_int_equal(f->wakes, wakes + 1);
    step(f);
    assert_int_equal(f->begun_count, REPLAY_WINDOW + REPLAY_WINDOW / 2);
    f->tells = true;
    tell_all(f);
    step(f);
    assert_int_equal(f->begun_count, 1000);
    for (size_t i = 1; i < f->begun_count; i++)
        assert_true(f->begun[i].event > f->begun[i - 1].event);
}

static void told_out_of_order_the_position_waits(void **state)
{
    struct fixture *f = *state;
    f->tells = false;
    add_posts(f, 20);
    uint64_t job = create(f, &all_of_alpha, 0);
    uint64_t began = look(f, job).position;
    step(f);
    assert_int_equal(f->begun_count, 20);
    for (size_t i = 19; i > 0; i--)
        tell(f, i);
    wait_ms(f, 1000);
    assert_true(look(f, job).position < f->begun[0].event);
    assert_true(look(f, job).position >= began);
    assert_int_equal(look(f, job).counts.seen, 0);
    assert_int_equal(look(f, job).state, JOB_RUNNING);
    tell(f, 3); /* again: it counts once */
    tell(f, 0);
    step(f);
    assert_int_equal(look(f, job).state, JOB_DONE);
    assert_int_equal(look(f, job).counts.seen, 20);
    assert_int_equal(look(f, job).counts.acted, 40);
    assert_int_equal(look(f, job).counts.repeated, 20);
    assert_int_equal(look(f, job).position, look(f, job).last);
    assert_true(step(f) == INT64_MAX);
}

static void the_rate_is_kept(void **state)
{
    struct fixture *f = *state;
    add_posts(f, 300);
    create(f, &all_of_alpha, 50);
    int64_t due_us = step(f);
    assert_int_equal(f->begun_count, 5); /* a tenth of a second's */
    assert_true(due_us == f->clock.mono_us + 20000);
    for (int i = 0; i < 100; i++)
        wait_ms(f, 10);
    assert_int_equal(f->begun_count, 55);
    wait_ms(f, 2000); /* what was not used is not saved up */
    assert_int_equal(f->begun_count, 60);
    for (int i = 0; i < 5000 && f->begun_count < 300; i++) {
        int64_t left_us = step(f) - f->clock.mono_us;
        manual_clock_advance(&f->clock, (left_us + 999) / 1000);
    }
    step(f);
    assert_int_equal(f->begun_count, 300);
}

static void it_rests_while_live_is_late(void **state)
{
    struct fixture *f = *state;
    f->tells = false;
    add_posts(f, 600);
    uint64_t job = create(f, &all_of_alpha, 100);
    step(f);
    assert_int_equal(f->begun_count, 10);
    f->late = true;
    wait_ms(f, 100);
    assert_int_equal(f->begun_count, 10);
    assert_string_equal(look(f, job).note, "live freshness is over its target");
    tell_all(f); /* what was begun goes on and counts */
    wait_ms(f, 1000);
    assert_int_equal(look(f, job).counts.seen, 10);
    assert_int_equal(f->begun_count, 10);
    f->guarded = true;
    wait_ms(f, 1000);
    assert_string_equal(look(f, job).note, "the store is at risk");
    f->late = f->guarded = false;
    wait_ms(f, 500); /* it looks once a second */
    assert_int_equal(f->begun_count, 10);
    wait_ms(f, 500);
    assert_int_equal(f->begun_count, 20);
    assert_string_equal(look(f, job).note, "");
    assert_int_equal(look(f, job).state, JOB_RUNNING);
}

static void a_rest_is_not_remembered_over_a_restart(void **state)
{
    struct fixture *f = *state;
    add_posts(f, 50);
    uint64_t job = create(f, &all_of_alpha, 10);
    f->late = true;
    step(f);
    assert_string_equal(look(f, job).note, "live freshness is over its target");
    f->late = false;
    crash(f);
    step(f);
    assert_string_equal(look(f, job).note, "");
    assert_int_equal(f->begun_count, 1);
}

static void no_room_means_later(void **state)
{
    struct fixture *f = *state;
    f->room = 7;
    add_posts(f, 20);
    uint64_t job = create(f, &all_of_alpha, 0);
    int64_t due_us = step(f);
    assert_int_equal(f->begun_count, 7);
    assert_true(due_us <= f->clock.mono_us + 100000);
    wait_ms(f, 1000);
    assert_int_equal(look(f, job).position, f->begun[6].event);
    f->room = BEGUN_MAX;
    wait_ms(f, 100);
    assert_int_equal(f->begun_count, 20);
    assert_int_equal(look(f, job).state, JOB_DONE);
    assert_int_equal(look(f, job).counts.seen, 20);
}

/* A turn in vain costs nothing of the rate. */
static void no_room_uses_no_rate_up(void **state)
{
    struct fixture *f = *state;
    f->room = 0;
    add_posts(f, 20);
    create(f, &all_of_alpha, 50);
    for (int i = 0; i < 20; i++)
        step(f);
    f->room = BEGUN_MAX;
    step(f);
    assert_int_equal(f->begun_count, 5);
}

static void a_job_ends_where_its_row_says(void **state)
{
    struct fixture *f = *state;
    uint64_t a = add_post(f, ANN), b = add_post(f, ANN);
    add_post(f, ANN);
    uint64_t job = create(f, &all_of_alpha, 0);
    char sql[100];
    snprintf(sql, sizeof sql, "UPDATE jobs SET last = %llu", (unsigned long long)b);
    plain_db_run(f->plain, sql);
    step(f);
    BEGUN_ARE(f, a, b);
    assert_int_equal(look(f, job).state, JOB_DONE);
    assert_int_equal(look(f, job).position, b);
    job = create(f, &all_of_alpha, 0);
    plain_db_run(f->plain, "UPDATE jobs SET last = 0 WHERE state = 0"); /* nothing at all */
    step(f);
    assert_int_equal(f->begun_count, 2);
    assert_int_equal(look(f, job).state, JOB_DONE);
}

static void several_share(void **state)
{
    struct fixture *f = *state;
    add_posts(f, 400);
    f->room = 300;
    uint64_t one = create(f, &all_of_alpha, 0), two = create(f, &all_of_alpha, 0);
    step(f);
    size_t of_one = 0;
    for (size_t i = 0; i < f->begun_count; i++)
        of_one += f->begun[i].job == one;
    assert_true(of_one >= 100 && of_one <= 200);
    f->room = BEGUN_MAX;
    wait_ms(f, 100);
    assert_int_equal(f->begun_count, 800);
    assert_int_equal(look(f, one).counts.seen, 400);
    assert_int_equal(look(f, two).counts.seen, 400);
}

static void as_many_as_may_be_open_run(void **state)
{
    struct fixture *f = *state;
    add_posts(f, 10);
    for (int i = 0; i < JOBS_OPEN_MAX; i++)
        create(f, &all_of_alpha, 0);
    step(f);
    assert_int_equal(f->begun_count, 10 * JOBS_OPEN_MAX);
    assert_int_equal(plain_db_ask(f->plain, "SELECT COUNT(*) FROM jobs WHERE state = 2"),
                     JOBS_OPEN_MAX);
}

/* ---- operators ---- */

static void a_paused_job_keeps_what_was_under_way(void **state)
{
    struct fixture *f = *state;
    f->tells = false;
    add_posts(f, 400);
    uint64_t job = create(f, &all_of_alpha, 0);
    step(f);
    change(f, job, JOB_PAUSED);
    tell_all(f);
    step(f);
    assert_int_equal(f->begun_count, REPLAY_WINDOW);
    assert_int_equal(look(f, job).state, JOB_PAUSED);
    assert_int_equal(look(f, job).counts.seen, REPLAY_WINDOW);
    assert_int_equal(look(f, job).position, f->begun[REPLAY_WINDOW - 1].event);
    assert_true(step(f) == INT64_MAX); /* nothing to come back for */
    crash(f);
    step(f);
    assert_int_equal(f->begun_count, 0); /* paused stays paused */
    f->tells = true;
    change(f, job, JOB_RUNNING);
    step(f);
    assert_int_equal(f->begun_count, 400 - REPLAY_WINDOW);
    assert_int_equal(look(f, job).state, JOB_DONE);
    assert_int_equal(look(f, job).counts.seen, 400);
}

static void a_paused_job_begins_nothing(void **state)
{
    struct fixture *f = *state;
    f->tells = false;
    f->room = 10;
    add_posts(f, 40);
    uint64_t job = create(f, &all_of_alpha, 0);
    step(f);
    f->room = BEGUN_MAX;
    change(f, job, JOB_PAUSED);
    wait_ms(f, 100);
    assert_int_equal(f->begun_count, 10);
    tell_all(f);
    wait_ms(f, 100);
    assert_int_equal(f->begun_count, 10);
    assert_int_equal(look(f, job).counts.seen, 10);
}

static void a_job_resumed_at_once_goes_on(void **state)
{
    struct fixture *f = *state;
    f->tells = false;
    add_posts(f, 300);
    uint64_t job = create(f, &all_of_alpha, 0);
    step(f);
    change(f, job, JOB_PAUSED);
    step(f); /* its window is still out */
    change(f, job, JOB_RUNNING);
    f->tells = true;
    tell_all(f);
    step(f);
    assert_int_equal(f->begun_count, 300); /* none twice */
    assert_int_equal(look(f, job).state, JOB_DONE);
    assert_int_equal(look(f, job).counts.seen, 300);
}

/* Paused after its last event was begun, and resumed: the end is noticed. */
static void a_job_paused_at_its_end_can_finish(void **state)
{
    struct fixture *f = *state;
    f->tells = false;
    add_posts(f, 3);
    uint64_t job = create(f, &all_of_alpha, 0);
    step(f);
    change(f, job, JOB_PAUSED);
    tell_all(f);
    step(f);
    assert_int_equal(look(f, job).state, JOB_PAUSED);
    assert_int_equal(look(f, job).counts.seen, 3);
    change(f, job, JOB_RUNNING);
    step(f);
    assert_int_equal(look(f, job).state, JOB_DONE);
    assert_int_equal(f->begun_count, 3);
}

static void a_cancelled_job_is_forgotten(void **state)
{
    struct fixture *f = *state;
    f->tells = false;
    add_posts(f, 400);
    uint64_t job = create(f, &all_of_alpha, 0);
    step(f);
    change(f, job, JOB_CANCELLED);
    step(f);
    tell_all(f); /* too late: the job is gone */
    wait_ms(f, 2000);
    assert_int_equal(f->begun_count, REPLAY_WINDOW);
    assert_int_equal(look(f, job).state, JOB_CANCELLED);
    assert_int_equal(look(f, job).counts.seen, 0);
    assert_true(step(f) == INT64_MAX);
    f->tells = true;
    uint64_t next = create(f, &all_of_alpha, 0);
    step(f);
    assert_int_equal(look(f, next).counts.seen, 400);
}

static void a_spec_of_another_time_fails_with_why(void **state)
{
    struct fixture *f = *state;
    add_posts(f, 3);
    const struct replay_spec gone = {.consumer = "gamma"};
    uint64_t job = create(f, &gone, 0);
    step(f);
    assert_int_equal(look(f, job).state, JOB_FAILED);
    assert_string_equal(look(f, job).note, "consumer: there is no \"gamma\"; one of: alpha, beta");
}

static void other_kinds_of_jobs_are_left_alone(void **state)
{
    struct fixture *f = *state;
    add_posts(f, 3);
    struct job job = {.kind = "rebuild.timelines", .spec = "{}", .last = INT64_MAX};
    assert_int_equal(db_write(f->db, run_create, &job, NULL), OK);
    replays_poke(f->replays);
    step(f);
    assert_int_equal(f->begun_count, 0);
    assert_int_equal(look(f, job.id).state, JOB_RUNNING);
}

static void only_allowed_channels_act(void **state)
{
    struct fixture *f = *state;
    f->tells = false;
    add_posts(f, 1);
    const struct replay_spec spec = {.consumer = "beta", .allow = {"email"}, .allow_count = 1};
    uint64_t job = create(f, &spec, 0);
    assert_false(replays_allow(f->replays, job, &rules[1])); /* not known yet */
    step(f);
    assert_true(replays_allow(f->replays, job, &rules[1]));
    assert_false(replays_allow(f->replays, job, &rules[4])); /* sms */
    assert_true(replays_allow(f->replays, job, &rules[3]));  /* nothing outside */
    assert_false(replays_allow(f->replays, job + 1, &rules[1]));
    assert_true(replays_allow(f->replays, job + 1, &rules[0]));
    tell_all(f);
    step(f);
    assert_int_equal(look(f, job).state, JOB_DONE);
    replays_poke(f->replays);
    step(f);
    assert_true(replays_allow(f->replays, job, &rules[1])); /* its retries may come later */
    crash(f);
    step(f);
    assert_true(replays_allow(f->replays, job, &rules[1]));
    add_posts(f, 1);
    uint64_t other = create(f, &spec, 1);
    step(f);
    assert_true(replays_allow(f->replays, other, &rules[1]));
    change(f, other, JOB_CANCELLED);
    step(f);
    assert_false(replays_allow(f->replays, other, &rules[1]));
}

/* ---- crashes ---- */

static void a_restart_repeats_at_most_a_window(void **state)
{
    struct fixture *f = *state;
    static bool done[3000];
    uint64_t first = 0;
    add_posts(f, 3000);
    memset(done, 0, sizeof done);
    uint64_t job = create(f, &all_of_alpha, 0);
    first = (uint64_t)plain_db_ask(f->plain, "SELECT MIN(id) FROM outbox");
    size_t begun = 0, crashes = 0;
    for (int round = 0; look(f, job).state == JOB_RUNNING; round++) {
        assert_true(round < 100);
        uint64_t saved = look(f, job).position;
        uint64_t seen = look(f, job).counts.seen;
        f->tells = false;
        for (int i = 0; i < 4 + round % 7; i++) {
            replays_step(f->replays);
            /* in two halves, the newer first */
            for (size_t k = f->begun_count; k-- > f->begun_count / 2;)
                if (!f->begun[k].told)
                    tell(f, k);
            if (i % 3 != 2)
                tell_all(f);
        }
        /* Everything up to the saved position has its outcome; counts and position agree. */
        struct job now = look(f, job);
        size_t within = 0;
        for (size_t k = 0; k < f->begun_count; k++) {
            if (f->begun[k].event <= now.position)
                assert_true(f->begun[k].told);
            within += f->begun[k].event <= now.position;
            if (f->begun[k].told)
                done[f->begun[k].event - first] = true;
        }
        assert_true(now.position >= saved);
        assert_int_equal(now.counts.seen, seen + within);
        begun += f->begun_count;
        if (now.state == JOB_RUNNING) {
            crash(f);
            crashes++;
        }
    }
    assert_int_equal(look(f, job).counts.seen, 3000);
    assert_true(crashes > 3);
    assert_true(begun <= 3000 + crashes * REPLAY_WINDOW);
    for (size_t i = 0; i < 3000; i++)
        assert_true(done[i]);
}

static void a_store_that_fails_is_asked_again(void **state)
{
    struct fixture *f = *state;
    add_posts(f, 30);
    uint64_t job = create(f, &all_of_alpha, 0);
    plain_db_faults(f->plain)->reads_fail = true;
    int64_t due_us = step(f);
    assert_true(due_us > f->clock.mono_us && due_us <= f->clock.mono_us + 1000000);
    plain_db_faults(f->plain)->reads_fail = false;
    plain_db_faults(f->plain)->writes_fail = ERR_STORAGE_FULL;
    wait_ms(f, 1000);
    assert_int_equal(f->begun_count, 30);
    assert_int_equal(look(f, job).state, JOB_RUNNING);
    wait_ms(f, 1000);
    assert_int_equal(f->begun_count, 30);
    plain_db_faults(f->plain)->writes_fail = OK;
    wait_ms(f, 500);
    assert_int_equal(look(f, job).state, JOB_RUNNING); /* once a second is enough */
    wait_ms(f, 500);
    assert_int_equal(look(f, job).state, JOB_DONE);
    assert_int_equal(look(f, job).counts.seen, 30);
}

/* What is not saved takes up room: as long as nothing can be saved, one window is begun. */
static void unsaved_progress_is_limited(void **state)
{
    struct fixture *f = *state;
    add_posts(f, 1000);
    uint64_t job = create(f, &all_of_alpha, 0);
    plain_db_faults(f->plain)->writes_fail = ERR_STORAGE_FULL;
    for (int i = 0; i < 5; i++)
        wait_ms(f, 1000);
    assert_int_equal(f->begun_count, REPLAY_WINDOW);
    plain_db_faults(f->plain)->writes_fail = OK;
    wait_ms(f, 1000);
    assert_int_equal(f->begun_count, 1000);
    assert_int_equal(look(f, job).counts.seen, 1000);
}

static void a_save_that_did_not_happen_is_made_again(void **state)
{
    struct fixture *f = *state;
    f->tells = false;
    add_posts(f, 100);
    uint64_t job = create(f, &all_of_alpha, 0);
    step(f);
    for (size_t i = 0; i < 40; i++)
        tell(f, i);
    plain_db_faults(f->plain)->writes_fail = ERR_UNKNOWN_COMMIT;
    wait_ms(f, 1000);
    plain_db_faults(f->plain)->writes_fail = OK;
    wait_ms(f, 1000);
    assert_int_equal(look(f, job).counts.seen, 40);
    assert_int_equal(look(f, job).position, f->begun[40].event - 1);
    tell_all(f);
    plain_db_faults(f->plain)->writes_fail = ERR_UNKNOWN_COMMIT;
    wait_ms(f, 1000);
    assert_int_equal(look(f, job).state, JOB_RUNNING);
    plain_db_faults(f->plain)->writes_fail = OK;
    wait_ms(f, 1000);
    assert_int_equal(look(f, job).state, JOB_DONE);
    assert_int_equal(look(f, job).counts.seen, 100);
}

static void a_lost_reply_counts_nothing_twice(void **state)
{
    struct fixture *f = *state;
    f->tells = false;
    add_posts(f, 600);
    uint64_t job = create(f, &all_of_alpha, 0);
    step(f);
    for (size_t i = 0; i < 100; i++)
        tell(f, i);
    plain_db_faults(f->plain)->lose_replies = 1;
    wait_ms(f, 1000); /* saved, and the answer was lost */
    for (size_t i = 100; i < 150; i++)
        tell(f, i);
    wait_ms(f, 1000);
    assert_int_equal(look(f, job).counts.seen, 150);
    f->tells = true;
    tell_all(f);
    plain_db_faults(f->plain)->lose_replies = 2;
    for (int i = 0; i < 5; i++)
        wait_ms(f, 1000);
    assert_int_equal(look(f, job).state, JOB_DONE);
    assert_int_equal(look(f, job).counts.seen, 600);
    assert_int_equal(look(f, job).counts.acted, 1200);
    assert_int_equal(f->begun_count, 600);
}

static void progress_is_saved_while_nothing_matches(void **state)
{
    struct fixture *f = *state;
    for (int i = 0; i < 1000; i++)
        add(f, (struct adding){.type = EVENT_POST_DELETED, .actor = ANN, .state = SETTLED});
    uint64_t last = add_post(f, ANN);
    f->room = 0;
    uint64_t job = create(f, &all_of_alpha, 0);
    step(f);
    wait_ms(f, 1000);
    assert_int_equal(f->begun_count, 0);
    assert_true(look(f, job).position > 0 && look(f, job).position < last);
    uint64_t position = look(f, job).position;
    assert_true(position >= (uint64_t)plain_db_ask(
                                f->plain, "SELECT id FROM outbox ORDER BY id LIMIT 1 OFFSET 700"));
}

/* ---- threads ---- */

enum { CROWD_EVENTS = 3000, CROWD_THREADS = 3 };

struct crowd {
    pthread_mutex_t lock;
    pthread_cond_t more;
    struct begun queue[CROWD_EVENTS];
    size_t in, out;
    bool over;
    struct replays *replays;
};

static bool crowd_begin(void *ctx, uint64_t job, const struct event *e, uint32_t mask)
{
    struct crowd *c = ctx;
    pthread_mutex_lock(&c->lock);
    CHECK(c->in < CROWD_EVENTS); /* each is begun once */
    c->queue[c->in++] = (struct begun){.job = job, .event = e->id, .mask = mask};
    pthread_cond_signal(&c->more);
    pthread_mutex_unlock(&c->lock);
    return true;
}

static void *crowd_tell(void *arg)
{
    struct crowd *c = arg;
    const struct job_counts what = {.acted = 1};
    pthread_mutex_lock(&c->lock);
    while (!c->over) {
        if (c->out == c->in) {
            pthread_cond_wait(&c->more, &c->lock);
            continue;
        }
        struct begun b = c->queue[c->out++];
        pthread_mutex_unlock(&c->lock);
        replays_told(c->replays, b.job, b.event, &what);
        (void)replays_allow(c->replays, b.job, &rules[1]);
        pthread_mutex_lock(&c->lock);
    }
    pthread_mutex_unlock(&c->lock);
    return NULL;
}

static bool never(void *ctx)
{
    (void)ctx;
    return false;
}

static void nothing(void *ctx)
{
    (void)ctx;
}

static void outcomes_come_from_any_thread(void **state)
{
    struct fixture *f = *state;
    struct crowd *c = calloc(1, sizeof *c);
    struct replay_host host = {
        .ctx = c, .begin = crowd_begin, .live_is_late = never, .guarded = never, .wake = nothing};
    pthread_t threads[CROWD_THREADS];
    pthread_mutex_init(&c->lock, NULL);
    pthread_cond_init(&c->more, NULL);
    add_posts(f, CROWD_EVENTS);
    uint64_t job = create(f, &all_of_alpha, 0);
    c->replays = replays_new(f->db, &f->clock.clock, rules, RULE_COUNT, host);
    for (size_t i = 0; i < CROWD_THREADS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, crowd_tell, c), 0);
    while (replays_step(c->replays) != INT64_MAX)
        sched_yield();
    pthread_mutex_lock(&c->lock);
    c->over = true;
    pthread_cond_broadcast(&c->more);
    pthread_mutex_unlock(&c->lock);
    for (size_t i = 0; i < CROWD_THREADS; i++)
        pthread_join(threads[i], NULL);
    assert_int_equal(look(f, job).state, JOB_DONE);
    assert_int_equal(look(f, job).counts.seen, CROWD_EVENTS);
    assert_int_equal(look(f, job).counts.acted, CROWD_EVENTS);
    replays_free(c->replays);
    pthread_cond_destroy(&c->more);
    pthread_mutex_destroy(&c->lock);
    free(c);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        TEST(events_are_begun_in_order_and_in_a_window),
        TEST(told_out_of_order_the_position_waits),
        TEST(the_rate_is_kept),
        TEST(it_rests_while_live_is_late),
        TEST(a_rest_is_not_remembered_over_a_restart),
        TEST(no_room_means_later),
        TEST(no_room_uses_no_rate_up),
        TEST(a_job_ends_where_its_row_says),
        TEST(several_share),
        TEST(as_many_as_may_be_open_run),
        TEST(a_paused_job_keeps_what_was_under_way),
        TEST(a_paused_job_begins_nothing),
        TEST(a_job_resumed_at_once_goes_on),
        TEST(a_job_paused_at_its_end_can_finish),
        TEST(a_cancelled_job_is_forgotten),
        TEST(a_spec_of_another_time_fails_with_why),
        TEST(other_kinds_of_jobs_are_left_alone),
        TEST(only_allowed_channels_act),
        TEST(a_restart_repeats_at_most_a_window),
        TEST(a_store_that_fails_is_asked_again),
        TEST(unsaved_progress_is_limited),
        TEST(a_save_that_did_not_happen_is_made_again),
        TEST(a_lost_reply_counts_nothing_twice),
        TEST(progress_is_saved_while_nothing_matches),
        TEST(outcomes_come_from_any_thread),
    };
    return cmocka_run_group_tests_name("pipe/replay", tests, NULL, NULL);
}
