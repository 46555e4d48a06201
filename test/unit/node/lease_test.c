/* The lease: taking, keeping and losing it, and what the fence lets through. Time is moved by hand;
 * nodes are two structs over one store. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "node/lease.h"
#include "plain_db.h"

enum { SLACK_MS = 500 }; /* reading takes real time, which counts as the holder's */

struct fixture {
    struct manual_clock clock;
    struct id_gen ids;
    struct plain_db *plain;
    struct db *db;
    struct lease a, b;
};

static int set_up(void **state)
{
    struct fixture *f = calloc(1, sizeof *f);
    manual_clock_init(&f->clock, INT64_C(1800000000000));
    id_gen_init(&f->ids, &f->clock.clock, 1);
    f->plain = plain_db_new(&f->clock.clock, &f->ids);
    f->db = plain_db_port(f->plain);
    /* more than a signed column holds */
    lease_init(&f->a, "engine", UINT64_C(0xf000000000000001), &f->clock.clock);
    lease_init(&f->b, "engine", 2, &f->clock.clock);
    *state = f;
    return 0;
}

static int tear_down(void **state)
{
    struct fixture *f = *state;
    plain_db_free(f->plain);
    free(f);
    return 0;
}

static int64_t now(const struct fixture *f)
{
    return f->clock.mono_us;
}

static void pass(struct fixture *f, int64_t ms)
{
    manual_clock_advance(&f->clock, ms);
}

static void look(struct fixture *f, struct lease *l)
{
    assert_int_equal(lease_look(l, f->db, now(f)), OK);
}

static void take(struct fixture *f, struct lease *l)
{
    look(f, l);
    assert_true(lease_is_free(l, now(f)));
    assert_int_equal(lease_take(l, f->db, now(f)), OK);
    assert_true(lease_is_held(l, now(f)));
}

static void the_first_to_come_takes_it(void **state)
{
    struct fixture *f = *state;
    look(f, &f->a);
    assert_true(lease_is_free(&f->a, now(f)));
    assert_false(lease_is_held(&f->a, now(f)));
    assert_int_equal(lease_take(&f->a, f->db, now(f)), OK);
    assert_int_equal(f->a.term, 1);
    assert_true(lease_is_held(&f->a, now(f)));
    assert_false(lease_is_free(&f->a, now(f)));
    look(f, &f->b);
    assert_true(f->b.holder == f->a.self);
    assert_false(lease_is_free(&f->b, now(f)));
    assert_false(lease_is_held(&f->b, now(f)));
}

static void a_holder_that_renews_keeps_it(void **state)
{
    struct fixture *f = *state;
    take(f, &f->a);
    for (int i = 0; i < 20; i++) {
        pass(f, LEASE_BEAT_MS);
        assert_int_equal(lease_renew(&f->a, f->db, "leader=http://a", now(f)), OK);
        look(f, &f->b);
        assert_false(lease_is_free(&f->b, now(f)));
    }
    assert_int_equal(f->a.term, 1);
    assert_int_equal(f->b.beat, f->a.beat);
    assert_string_equal(f->b.body, "leader=http://a");
    assert_true(lease_is_held(&f->a, now(f)));
}

static void a_silent_holder_gives_up_before_another_takes_it(void **state)
{
    struct fixture *f = *state;
    take(f, &f->a);
    look(f, &f->b);
    pass(f, LEASE_GIVE_UP_MS - 1);
    assert_true(lease_is_held(&f->a, now(f)));
    pass(f, 1);
    assert_false(lease_is_held(&f->a, now(f)));
    assert_int_equal(lease_renew(&f->a, f->db, "", now(f)), ERR_CONFLICT);
    look(f, &f->b);
    assert_false(lease_is_free(&f->b, now(f)));
    pass(f, LEASE_SILENCE_MS - LEASE_GIVE_UP_MS);
    assert_int_equal(lease_take(&f->b, f->db, now(f)), OK);
    assert_int_equal(f->b.term, 2);
    assert_true(lease_is_held(&f->b, now(f)));
    look(f, &f->a);
    assert_false(lease_is_held(&f->a, now(f)));
    assert_false(lease_is_free(&f->a, now(f)));
}

static void silence_counts_from_the_last_movement_seen(void **state)
{
    struct fixture *f = *state;
    take(f, &f->a);
    pass(f, 10 * LEASE_SILENCE_MS); /* b was not watching */
    look(f, &f->b);
    assert_false(lease_is_free(&f->b, now(f)));
    pass(f, LEASE_SILENCE_MS - 1);
    look(f, &f->b);
    assert_false(lease_is_free(&f->b, now(f)));
    pass(f, SLACK_MS);
    look(f, &f->b);
    assert_true(lease_is_free(&f->b, now(f)));
}

static void of_two_watchers_one_wins(void **state)
{
    struct fixture *f = *state;
    struct lease old;
    lease_init(&old, "engine", 3, &f->clock.clock);
    take(f, &old);
    look(f, &f->a);
    look(f, &f->b);
    pass(f, LEASE_SILENCE_MS + SLACK_MS);
    assert_true(lease_is_free(&f->a, now(f)) && lease_is_free(&f->b, now(f)));
    assert_int_equal(lease_take(&f->b, f->db, now(f)), OK);
    assert_int_equal(lease_take(&f->a, f->db, now(f)), ERR_CONFLICT);
    assert_false(lease_is_held(&f->a, now(f)));
    look(f, &f->a);
    assert_int_equal(f->a.term, 2);
    assert_int_equal(f->a.holder, f->b.self);
    assert_false(lease_is_free(&f->a, now(f)));
}

/* … also when it was never held. */
static void of_two_first_comers_one_wins(void **state)
{
    struct fixture *f = *state;
    look(f, &f->a);
    look(f, &f->b);
    assert_int_equal(lease_take(&f->a, f->db, now(f)), OK);
    assert_int_equal(lease_take(&f->b, f->db, now(f)), ERR_CONFLICT);
    assert_int_equal(plain_db_ask(f->plain, "SELECT count(*) FROM leases"), 1);
}

/* The holder spoke after the watcher looked: the watcher's take must fail. */
static void a_beat_in_between_saves_the_holder(void **state)
{
    struct fixture *f = *state;
    take(f, &f->a);
    look(f, &f->b);
    for (int i = 0; i < 3; i++) {
        pass(f, LEASE_SILENCE_MS / 3 + SLACK_MS);
        assert_int_equal(lease_renew(&f->a, f->db, "", now(f)), OK);
    }
    assert_true(lease_is_free(&f->b, now(f))); /* as far as it knows */
    assert_int_equal(lease_take(&f->b, f->db, now(f)), ERR_CONFLICT);
    assert_true(lease_is_held(&f->a, now(f)));
}

static void given_back_it_is_free_at_once(void **state)
{
    struct fixture *f = *state;
    take(f, &f->a);
    assert_int_equal(lease_give_back(&f->a, f->db), OK);
    assert_false(lease_is_held(&f->a, now(f)));
    take(f, &f->b);
    assert_int_equal(f->b.term, 2);
    assert_int_equal(lease_give_back(&f->a, f->db), ERR_CONFLICT); /* it has nothing to give */
    look(f, &f->a);
    assert_int_equal(f->a.holder, f->b.self);
}

static void a_store_that_is_away_changes_nothing(void **state)
{
    struct fixture *f = *state;
    take(f, &f->a);
    plain_db_faults(f->plain)->writes_fail = ERR_UNAVAILABLE;
    plain_db_faults(f->plain)->reads_fail = true;
    pass(f, LEASE_BEAT_MS);
    assert_int_equal(lease_renew(&f->a, f->db, "", now(f)), ERR_UNAVAILABLE);
    assert_int_equal(lease_look(&f->a, f->db, now(f)), ERR_UNAVAILABLE);
    assert_true(lease_is_held(&f->a, now(f)));
    pass(f, LEASE_GIVE_UP_MS - LEASE_BEAT_MS);
    assert_false(lease_is_held(&f->a, now(f)));
}

/* A take whose answer was lost has happened: the next look finds it, and a new term begins. */
static void a_lost_answer_costs_a_term(void **state)
{
    struct fixture *f = *state;
    look(f, &f->a);
    plain_db_faults(f->plain)->lose_replies = 1;
    assert_int_equal(lease_take(&f->a, f->db, now(f)), ERR_UNKNOWN_COMMIT);
    assert_false(lease_is_held(&f->a, now(f)));
    look(f, &f->a);
    assert_true(f->a.holder == f->a.self);
    assert_false(lease_is_held(&f->a, now(f)));
    take(f, &f->a);
    assert_int_equal(f->a.term, 2);
    plain_db_faults(f->plain)->lose_replies = 1;
    pass(f, LEASE_BEAT_MS);
    assert_int_equal(lease_renew(&f->a, f->db, "", now(f)), ERR_UNKNOWN_COMMIT);
    assert_true(lease_is_held(&f->a, now(f)));
    assert_int_equal(lease_renew(&f->a, f->db, "x", now(f)), OK);
    assert_int_equal(f->a.term, 2);
}

/* ---- the fence ---- */

struct fenced {
    uint64_t term;
};

static enum err write_fenced(struct tx *tx, void *arg)
{
    struct fenced *w = arg;
    enum err e = lease_fence(tx, "engine", w->term);
    if (e)
        return e;
    return tx_exec(tx,
                   "INSERT INTO meta (name, value) VALUES ('written', '1') "
                   "ON CONFLICT (name) DO UPDATE SET value = CAST(CAST(meta.value AS INTEGER) + 1 "
                   "AS TEXT)",
                   DB_NO_ARGS, NULL);
}

static int64_t written(struct fixture *f)
{
    return plain_db_ask(f->plain, "SELECT value FROM meta WHERE name = 'written'");
}

static enum err try_fenced(struct fixture *f, uint64_t term)
{
    return db_write(f->db, write_fenced, &(struct fenced){term}, NULL);
}

static void the_fence_lets_the_present_term_pass(void **state)
{
    struct fixture *f = *state;
    assert_int_equal(try_fenced(f, 1), ERR_NO_LEADER); /* it was never held */
    take(f, &f->a);
    assert_int_equal(try_fenced(f, 1), OK);
    assert_int_equal(try_fenced(f, 2), ERR_NO_LEADER);
    assert_int_equal(try_fenced(f, 0), ERR_NO_LEADER);
    assert_int_equal(written(f), 1);
}

static void the_fence_stops_a_leader_of_before(void **state)
{
    struct fixture *f = *state;
    take(f, &f->a);
    look(f, &f->b);
    pass(f, LEASE_SILENCE_MS + SLACK_MS);
    take(f, &f->b);
    assert_int_equal(try_fenced(f, f->a.term), ERR_NO_LEADER);
    assert_int_equal(written(f), 0);
    assert_int_equal(try_fenced(f, f->b.term), OK);
    assert_int_equal(lease_give_back(&f->b, f->db), OK);
    assert_int_equal(try_fenced(f, f->b.term), ERR_NO_LEADER);
    assert_int_equal(written(f), 1);
}

static void leases_of_other_names_are_others(void **state)
{
    struct fixture *f = *state;
    struct lease other;
    lease_init(&other, "other", 7, &f->clock.clock);
    take(f, &f->a);
    take(f, &other);
    pass(f, 1);
    assert_int_equal(lease_renew(&f->a, f->db, "", now(f)), OK);
    assert_int_equal(lease_give_back(&other, f->db), OK);
    assert_int_equal(try_fenced(f, 1), OK);
}

static void a_long_body_is_cut_between_characters(void **state)
{
    struct fixture *f = *state;
    char body[LEASE_BODY_MAX + 100];
    memset(body, 'x', sizeof body);
    memcpy(body + LEASE_BODY_MAX - 2, "ü", 2);
    body[sizeof body - 1] = '\0';
    take(f, &f->a);
    assert_int_equal(lease_renew(&f->a, f->db, body, now(f)), OK);
    look(f, &f->b);
    assert_int_equal(strlen(f->b.body), LEASE_BODY_MAX - 2);
    assert_string_equal(f->a.body, f->b.body);
}

#define CASE(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(the_first_to_come_takes_it),
        CASE(a_holder_that_renews_keeps_it),
        CASE(a_silent_holder_gives_up_before_another_takes_it),
        CASE(silence_counts_from_the_last_movement_seen),
        CASE(of_two_watchers_one_wins),
        CASE(of_two_first_comers_one_wins),
        CASE(a_beat_in_between_saves_the_holder),
        CASE(given_back_it_is_free_at_once),
        CASE(a_store_that_is_away_changes_nothing),
        CASE(a_lost_answer_costs_a_term),
        CASE(the_fence_lets_the_present_term_pass),
        CASE(the_fence_stops_a_leader_of_before),
        CASE(leases_of_other_names_are_others),
        CASE(a_long_body_is_cut_between_characters),
    };
    return cmocka_run_group_tests_name("node/lease", tests, NULL, NULL);
}
