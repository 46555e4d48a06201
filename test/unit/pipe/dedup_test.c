/* The duplicate memory over a real store: answers, how long entries stay, against a model,
 * forgetting in slices, transactions that are rolled back, retentions that change, plans of its
 * statements. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/check.h"
#include "base/rand.h"
#include "pipe/dedup.h"
#include "plain_db.h"

#define HOUR INT64_C(3600000)
#define DAY  (24 * HOUR)

static struct manual_clock manual;
static struct id_gen ids;
static struct plain_db *store;
static struct db *db;
static struct dedup dedup;
static int64_t now_ms;

static int set_up_store(void **state)
{
    (void)state;
    manual_clock_init(&manual, ID_EPOCH_MS);
    id_gen_init(&ids, &manual.clock, 1);
    store = plain_db_new(&manual.clock, &ids);
    db = plain_db_port(store);
    return 0;
}

static int tear_down_store(void **state)
{
    (void)state;
    plain_db_free(store);
    return 0;
}

static int set_up(void **state)
{
    (void)state;
    plain_db_clear(store);
    now_ms = ID_EPOCH_MS + 1000 * DAY;
    dedup_init(&dedup, 6 * DAY);
    return 0;
}

/* ---- one act, one transaction ---- */

enum verb { CLAIM, CLAIM_BY_ORDER, LOOK, CONFIRM, GIVE_BACK, FORGET, BEGIN };

struct call {
    enum verb verb;
    struct dedup *dedup;
    const char *consumer;
    struct dedup_key key;
    uint64_t order;
    size_t max;
    bool fails; /* it does its work and is rolled back */
    enum dedup_answer answer;
    bool more;
};

static enum err run_act(struct tx *tx, void *arg)
{
    struct call *a = arg;
    enum err e = OK;
    switch (a->verb) {
    case CLAIM:
        e = dedup_begin(tx, a->dedup, now_ms);
        if (!e)
            e = dedup_claim(tx, a->dedup, a->consumer, &a->key, now_ms, &a->answer);
        break;
    case CLAIM_BY_ORDER:
        e = dedup_claim_by_order(tx, a->consumer, &a->key, a->order, &a->answer);
        break;
    case LOOK:
        e = dedup_look(tx, a->consumer, &a->key, &a->answer);
        break;
    case CONFIRM:
        e = dedup_confirm(tx, a->consumer, &a->key);
        break;
    case GIVE_BACK:
        e = dedup_give_back(tx, a->consumer, &a->key);
        break;
    case FORGET:
        e = dedup_forget(tx, now_ms, a->max, &a->more);
        break;
    case BEGIN:
        e = dedup_begin(tx, a->dedup, now_ms);
        break;
    }
    return !e && a->fails ? ERR_CONFLICT : e;
}

static struct call act_of(enum verb verb, const char *consumer, const char *key)
{
    struct call a = {.verb = verb, .dedup = &dedup, .consumer = consumer};
    a.key.len = (size_t)snprintf(a.key.text, sizeof a.key.text, "%s", key);
    return a;
}

static enum err try_act(enum verb verb, const char *consumer, const char *key)
{
    struct call a = act_of(verb, consumer, key);
    return db_write(db, run_act, &a, NULL);
}

static void do_act(enum verb verb, const char *consumer, const char *key)
{
    assert_int_equal(try_act(verb, consumer, key), OK);
}

static enum dedup_answer claim(const char *consumer, const char *key)
{
    struct call a = act_of(CLAIM, consumer, key);
    assert_int_equal(db_write(db, run_act, &a, NULL), OK);
    return a.answer;
}

static enum dedup_answer look(const char *consumer, const char *key)
{
    struct call a = act_of(LOOK, consumer, key);
    assert_int_equal(db_read(db, run_act, &a, NULL), OK);
    return a.answer;
}

static enum dedup_answer claim_by_order(const char *consumer, const char *key, uint64_t order)
{
    struct call a = act_of(CLAIM_BY_ORDER, consumer, key);
    a.order = order;
    assert_int_equal(db_write(db, run_act, &a, NULL), OK);
    return a.answer;
}

/* Returns how many calls it took. */
static int forget(size_t max)
{
    struct call a = act_of(FORGET, "", "");
    a.max = max;
    int calls = 0;
    do {
        assert_int_equal(db_write(db, run_act, &a, NULL), OK);
        calls++;
    } while (a.more);
    return calls;
}

static int64_t entries(void)
{
    return plain_db_ask(store, "SELECT count(*) FROM dedup");
}

static void assert_counts(const char *consumer, int64_t done, int64_t unknown)
{
    char sql[120];
    snprintf(sql, sizeof sql, "SELECT count(*) FROM dedup WHERE consumer = '%s' AND state = 1",
             consumer);
    assert_int_equal(plain_db_ask(store, sql), done);
    sql[strlen(sql) - 1] = '0';
    assert_int_equal(plain_db_ask(store, sql), unknown);
}

/* ---- answers ---- */

static void a_claim_is_new_once(void **state)
{
    (void)state;
    assert_int_equal(look("email", "1:2"), DEDUP_NEW);
    assert_int_equal(claim("email", "1:2"), DEDUP_NEW);
    assert_int_equal(look("email", "1:2"), DEDUP_UNKNOWN);
    assert_int_equal(claim("email", "1:2"), DEDUP_UNKNOWN);
    do_act(CONFIRM, "email", "1:2");
    assert_int_equal(claim("email", "1:2"), DEDUP_DONE);
    assert_int_equal(look("email", "1:2"), DEDUP_DONE);
    do_act(CONFIRM, "email", "1:2"); /* again: no change */
    assert_int_equal(claim("email", "1:3"), DEDUP_NEW);
    assert_int_equal(claim("sms", "1:2"), DEDUP_NEW); /* a memory of its own */
    assert_counts("email", 1, 1);
    assert_counts("sms", 0, 1);
}

/* A bus may bring the message of a re-drive twice. */
static void an_order_claims_an_unknown_outcome_once(void **state)
{
    const uint64_t first = UINT64_C(7) << 60 | 12345, second = first + 4;
    (void)state;
    assert_int_equal(claim("email", "1:2"), DEDUP_NEW);
    assert_int_equal(claim_by_order("email", "1:2", first), DEDUP_NEW);
    assert_int_equal(claim_by_order("email", "1:2", first), DEDUP_UNKNOWN);
    assert_int_equal(claim("email", "1:2"), DEDUP_UNKNOWN);
    assert_int_equal(claim_by_order("email", "1:2", second), DEDUP_NEW);
    do_act(GIVE_BACK, "email", "1:2");
    assert_int_equal(claim("email", "1:2"), DEDUP_NEW);
    do_act(CONFIRM, "email", "1:2");
    assert_int_equal(claim_by_order("email", "1:2", first), DEDUP_UNKNOWN); /* and stays done */
    assert_int_equal(look("email", "1:2"), DEDUP_DONE);
}

static void a_claim_can_be_given_back_until_it_is_confirmed(void **state)
{
    (void)state;
    assert_int_equal(claim("email", "1:2"), DEDUP_NEW);
    do_act(GIVE_BACK, "email", "1:2");
    assert_counts("email", 0, 0);
    assert_int_equal(claim("email", "1:2"), DEDUP_NEW);
    do_act(CONFIRM, "email", "1:2");
    assert_int_equal(try_act(GIVE_BACK, "email", "1:2"), ERR_CONFLICT);
    assert_int_equal(look("email", "1:2"), DEDUP_DONE);
    do_act(GIVE_BACK, "email", "9:9"); /* nothing is there, nothing happened */
    assert_int_equal(try_act(CONFIRM, "email", "9:9"), ERR_NOT_FOUND);
    assert_counts("email", 1, 0);
}

static enum err run_in_truth(struct tx *tx, void *arg)
{
    enum err fails = *(enum err *)arg;
    struct dedup_key key = {.text = "5:6", .len = 3};
    enum dedup_answer answer;
    enum err e = dedup_begin(tx, &dedup, now_ms);
    if (!e)
        e = dedup_claim(tx, &dedup, "ledger", &key, now_ms, &answer);
    CHECK(e || answer == DEDUP_NEW);
    if (!e)
        e = dedup_confirm(tx, "ledger", &key);
    return e ? e : fails;
}

static void an_act_in_truth_is_never_unknown(void **state)
{
    (void)state;
    enum err result = ERR_UNAVAILABLE;
    assert_int_equal(db_write(db, run_in_truth, &result, NULL), ERR_UNAVAILABLE);
    assert_int_equal(look("ledger", "5:6"), DEDUP_NEW);
    result = OK;
    assert_int_equal(db_write(db, run_in_truth, &result, NULL), OK);
    assert_int_equal(look("ledger", "5:6"), DEDUP_DONE);
}

static void write_digest_key(const struct event *e, uint64_t member, struct buf *out)
{
    buf_printf(out, "digest:%llu:%llu", (unsigned long long)member,
               (unsigned long long)(uint64_t)e->value);
}

static void write_longest_key(const struct event *e, uint64_t member, struct buf *out)
{
    (void)e, (void)member;
    for (int i = 0; i < DEDUP_KEY_MAX; i++)
        buf_append(out, "k", 1);
}

static void keys_are_by_event_or_by_business(void **state)
{
    (void)state;
    struct rule by_event = {.dedup = DEDUP_BY_EVENT};
    struct rule by_key = {.dedup = DEDUP_BY_KEY, .business_key = write_digest_key};
    struct event e = {.id = UINT64_C(9223372036854775807), .value = 42};
    struct dedup_key key;
    dedup_key_of(&by_event, &e, 7, &key);
    assert_string_equal(key.text, "9223372036854775807:7");
    assert_int_equal(key.len, strlen(key.text));
    dedup_key_of(&by_key, &e, 7, &key);
    assert_string_equal(key.text, "digest:7:42");
    by_key.business_key = write_longest_key;
    dedup_key_of(&by_key, &e, 7, &key);
    assert_int_equal(key.len, DEDUP_KEY_MAX);
    assert_int_equal(strlen(key.text), DEDUP_KEY_MAX);
    assert_int_equal(claim("email", key.text), DEDUP_NEW);
    assert_int_equal(claim("email", key.text), DEDUP_UNKNOWN);
}

/* ---- time ---- */

static void an_entry_stays_for_its_retention(void **state)
{
    (void)state;
    int64_t start_ms = now_ms;
    assert_int_equal(claim("email", "first"), DEDUP_NEW);
    do_act(CONFIRM, "email", "first");
    now_ms = start_ms + DAY;
    assert_int_equal(claim("email", "second"), DEDUP_NEW);
    now_ms = start_ms + 6 * DAY - 1;
    forget(10);
    assert_int_equal(claim("email", "first"), DEDUP_DONE);
    now_ms = start_ms + 6 * DAY;
    assert_int_equal(look("email", "first"), DEDUP_DONE); /* until it is forgotten */
    forget(10);
    assert_int_equal(look("email", "first"), DEDUP_NEW);
    now_ms = start_ms + 7 * DAY - 1;
    forget(10);
    assert_int_equal(look("email", "second"), DEDUP_UNKNOWN);
    now_ms = start_ms + 7 * DAY;
    forget(10);
    assert_int_equal(entries(), 0);
}

static void old_entries_go_in_slices(void **state)
{
    (void)state;
    char key[32];
    for (int i = 0; i < 100; i++) {
        snprintf(key, sizeof key, "%d:1", i);
        claim(i % 3 ? "email" : "sms", key);
    }
    now_ms += 3 * DAY;
    claim("email", "later");
    now_ms += 4 * DAY;
    struct call a = act_of(FORGET, "", "");
    a.max = 30;
    for (int64_t left = 71; left > 1; left -= 30) {
        assert_int_equal(db_write(db, run_act, &a, NULL), OK);
        assert_true(a.more);
        assert_int_equal(entries(), left);
        assert_int_equal(look("email", "later"), DEDUP_UNKNOWN);
    }
    assert_int_equal(db_write(db, run_act, &a, NULL), OK);
    assert_false(a.more);
    assert_int_equal(entries(), 1);
    assert_int_equal(db_write(db, run_act, &a, NULL), OK); /* nothing is left to do */
    assert_false(a.more);
    assert_counts("email", 0, 1);
}

static void an_entry_stays_until_it_is_forgotten(void **state)
{
    (void)state;
    char key[32];
    for (int day = 0; day < 30; day++) {
        snprintf(key, sizeof key, "%d", day);
        assert_int_equal(claim("email", key), DEDUP_NEW);
        now_ms += DAY;
    }
    for (int day = 0; day < 30; day++) {
        snprintf(key, sizeof key, "%d", day);
        assert_int_equal(claim("email", key), DEDUP_UNKNOWN);
    }
    forget(3);
    assert_int_equal(entries(), 5);
    for (int day = 30 - 6 + 1; day < 30; day++) {
        snprintf(key, sizeof key, "%d", day);
        assert_int_equal(claim("email", key), DEDUP_UNKNOWN);
    }
    now_ms += 8 * DAY;
    forget(3);
    assert_int_equal(entries(), 0);
    assert_int_equal(claim("email", "0"), DEDUP_NEW);
}

/* What the process knows went on, the tables did not. */
static void a_claim_that_is_rolled_back_does_no_harm(void **state)
{
    (void)state;
    claim("email", "before");
    now_ms += DAY;
    struct call a = act_of(CLAIM, "email", "lost");
    a.fails = true;
    assert_int_equal(db_write(db, run_act, &a, NULL), ERR_CONFLICT);
    int64_t start_ms = now_ms += HOUR;
    assert_int_equal(claim("email", "lost"), DEDUP_NEW);
    do_act(CONFIRM, "email", "lost");
    dedup_init(&dedup, 6 * DAY); /* a restart */
    assert_int_equal(claim("email", "lost"), DEDUP_DONE);
    for (now_ms += DAY; now_ms < start_ms + 6 * DAY; now_ms += DAY / 4) {
        do_act(BEGIN, "", "");
        forget(100);
        assert_int_equal(claim("email", "lost"), DEDUP_DONE);
    }
    now_ms += DAY;
    forget(100);
    assert_int_equal(look("email", "lost"), DEDUP_NEW);
}

static enum err run_claim_only(struct tx *tx, void *arg)
{
    struct call *a = arg;
    return dedup_claim(tx, a->dedup, a->consumer, &a->key, now_ms, &a->answer);
}

static void a_process_that_knows_nothing_claims_all_the_same(void **state)
{
    (void)state;
    struct dedup fresh, stale;
    dedup_init(&fresh, 6 * DAY);
    struct call a = act_of(CLAIM, "email", "a");
    a.dedup = &fresh;
    assert_int_equal(db_write(db, run_claim_only, &a, NULL), OK);
    assert_int_equal(a.answer, DEDUP_NEW);
    assert_int_equal(db_write(db, run_claim_only, &a, NULL), OK);
    assert_int_equal(a.answer, DEDUP_UNKNOWN);

    /* One with a longer retention than another has noted meanwhile. */
    dedup_init(&stale, 8 * DAY);
    a.verb = BEGIN;
    a.dedup = &stale;
    assert_int_equal(db_write(db, run_act, &a, NULL), OK);
    dedup_init(&dedup, DAY);
    do_act(BEGIN, "", "");
    now_ms += 10 * DAY;
    a = act_of(CLAIM, "email", "b");
    a.dedup = &stale;
    assert_int_equal(db_write(db, run_claim_only, &a, NULL), OK);
    assert_int_equal(a.answer, DEDUP_NEW);
    now_ms += 8 * DAY - 1;
    forget(10);
    assert_int_equal(look("email", "b"), DEDUP_UNKNOWN);
    assert_int_equal(look("email", "a"), DEDUP_NEW);
}

static void a_clock_that_goes_back_forgets_nothing(void **state)
{
    (void)state;
    claim("email", "a");
    now_ms += DAY + HOUR;
    claim("email", "b");
    now_ms -= 30 * DAY;
    assert_int_equal(claim("email", "a"), DEDUP_UNKNOWN);
    assert_int_equal(claim("email", "c"), DEDUP_NEW);
    dedup_init(&dedup, 6 * DAY);
    assert_int_equal(claim("email", "d"), DEDUP_NEW);
    forget(10);
    now_ms += 30 * DAY; /* put right */
    int64_t right_ms = now_ms;
    assert_int_equal(claim("email", "b"), DEDUP_UNKNOWN);
    assert_int_equal(claim("email", "c"), DEDUP_UNKNOWN);
    for (; now_ms < right_ms + 6 * DAY - HOUR; now_ms += 6 * HOUR) {
        assert_int_equal(claim("email", "b"), DEDUP_UNKNOWN);
        forget(10);
    }
}

static void what_is_claimed_while_the_clock_is_back_is_kept_as_long(void **state)
{
    (void)state;
    int64_t right_ms = now_ms;
    assert_int_equal(claim("email", "a"), DEDUP_NEW);
    now_ms -= 30 * DAY;
    assert_int_equal(claim("email", "b"), DEDUP_NEW);
    dedup_init(&dedup, 6 * DAY);
    assert_int_equal(claim("email", "c"), DEDUP_NEW);
    now_ms = right_ms + 6 * DAY - 1;
    forget(10);
    assert_int_equal(look("email", "a"), DEDUP_UNKNOWN);
    assert_int_equal(look("email", "b"), DEDUP_UNKNOWN);
    assert_int_equal(look("email", "c"), DEDUP_UNKNOWN);
}

static void a_longer_retention_holds_for_what_is_remembered(void **state)
{
    (void)state;
    int64_t start_ms = now_ms;
    claim("email", "a");
    now_ms += 5 * DAY;
    claim("email", "b");
    dedup_init(&dedup, 30 * DAY);
    for (; now_ms < start_ms + 30 * DAY; now_ms += DAY) {
        forget(10);
        assert_int_equal(claim("email", "a"), DEDUP_UNKNOWN);
        assert_int_equal(claim("email", "b"), DEDUP_UNKNOWN);
    }
    now_ms = start_ms + 31 * DAY;
    forget(10);
    assert_int_equal(look("email", "a"), DEDUP_NEW);
    assert_int_equal(look("email", "b"), DEDUP_UNKNOWN);
}

static void a_retention_in_force_for_a_moment_holds_for_what_was_there(void **state)
{
    (void)state;
    int64_t start_ms = now_ms;
    claim("email", "a");
    dedup_init(&dedup, 30 * DAY);
    do_act(BEGIN, "", "");
    dedup_init(&dedup, 6 * DAY);
    do_act(BEGIN, "", "");
    now_ms = start_ms + 30 * DAY - 1;
    forget(10);
    assert_int_equal(look("email", "a"), DEDUP_UNKNOWN);
    now_ms += 1;
    forget(10);
    assert_int_equal(look("email", "a"), DEDUP_NEW);
}

static void a_change_of_retention_that_is_rolled_back_is_made_up_for(void **state)
{
    (void)state;
    claim("email", "a");
    dedup_init(&dedup, 30 * DAY);
    struct call a = act_of(BEGIN, "", "");
    a.fails = true;
    assert_int_equal(db_write(db, run_act, &a, NULL), ERR_CONFLICT);
    assert_int_equal(claim("email", "b"), DEDUP_NEW); /* under the longer one */
    dedup_init(&dedup, 6 * DAY);
    now_ms += 29 * DAY;
    forget(10);
    assert_int_equal(look("email", "b"), DEDUP_UNKNOWN);
}

static void a_shorter_retention_does_not_forget_sooner(void **state)
{
    (void)state;
    int64_t start_ms = now_ms;
    claim("email", "a");
    dedup_init(&dedup, DAY);
    now_ms += DAY + HOUR;
    claim("email", "short");
    int64_t short_ms = now_ms;
    for (; now_ms < start_ms + 6 * DAY; now_ms += 2 * HOUR) {
        forget(10);
        assert_int_equal(claim("email", "a"), DEDUP_UNKNOWN);
        if (now_ms - short_ms >= DAY + 4 * HOUR)
            assert_int_equal(look("email", "short"), DEDUP_NEW);
    }
    now_ms = start_ms + 7 * DAY;
    forget(10);
    assert_int_equal(look("email", "a"), DEDUP_NEW);
}

/* ---- against a model ---- */

enum { KEYS = 300, MODEL_STEPS = 6000 };

struct remembered {
    bool there;
    bool done;
    int64_t at_ms;
    int64_t keep_ms; /* at least */
    bool exact;      /* and no longer */
};

static struct remembered model[KEYS];

static void check_answer(struct remembered *m, enum dedup_answer answer)
{
    int64_t age_ms = now_ms - m->at_ms;
    if (m->there && age_ms < m->keep_ms)
        assert_int_equal(answer, m->done ? DEDUP_DONE : DEDUP_UNKNOWN);
    if (!m->there || (m->exact && age_ms >= m->keep_ms))
        assert_int_equal(answer, DEDUP_NEW);
}

/* `changes`: restarts with other retentions; then only the lower bound is known. */
static void run_model(uint64_t seed, bool changes)
{
    struct rand r;
    rand_seed(&r, seed);
    memset(model, 0, sizeof model);
    plain_db_clear(store);
    int64_t retention_ms = 6 * DAY;
    dedup_init(&dedup, retention_ms);
    for (int step = 0; step < MODEL_STEPS; step++) {
        now_ms += (int64_t)rand_below(&r, (uint64_t)(retention_ms / 40));
        if (rand_below(&r, 50) == 0) { /* a restart */
            if (changes)
                retention_ms = (1 + (int64_t)rand_below(&r, 12)) * DAY;
            dedup_init(&dedup, retention_ms);
            for (int i = 0; i < KEYS; i++) {
                struct remembered *m = &model[i];
                if (changes && now_ms - m->at_ms < m->keep_ms && m->keep_ms < retention_ms)
                    m->keep_ms = retention_ms;
            }
            do_act(BEGIN, "", "");
        }
        forget(1 + rand_below(&r, 20));
        struct remembered *m = &model[rand_below(&r, KEYS)];
        char key[16];
        snprintf(key, sizeof key, "%d", (int)(m - model));
        struct call a = act_of(CLAIM, "email", key);
        a.fails = rand_below(&r, 10) == 0;
        enum err e = db_write(db, run_act, &a, NULL);
        assert_int_equal(e, a.fails ? ERR_CONFLICT : OK);
        check_answer(m, a.answer);
        if (a.fails || a.answer != DEDUP_NEW) {
            if (!a.fails && m->there && !m->done && rand_below(&r, 4) == 0) {
                do_act(CONFIRM, "email", key);
                m->done = true;
            }
            continue;
        }
        *m = (struct remembered){
            .there = true, .at_ms = now_ms, .keep_ms = retention_ms, .exact = !changes};
        uint64_t then = rand_below(&r, 4);
        if (then == 0) {
            do_act(GIVE_BACK, "email", key);
            m->there = false;
        } else if (then < 3) {
            do_act(CONFIRM, "email", key);
            m->done = true;
        }
    }
}

static void random_histories_agree_with_a_model(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 3; seed++)
        run_model(seed, false); /* more than ten retentions each */
}

static void random_histories_with_changing_retentions_forget_nothing_early(void **state)
{
    (void)state;
    for (uint64_t seed = 11; seed <= 13; seed++)
        run_model(seed, true);
}

/* ---- may the system start? ---- */

static void a_memory_that_is_too_short_is_refused_with_the_numbers(void **state)
{
    (void)state;
    const struct rule without[] = {{.consumer = "timelines"}};
    const struct rule with[] = {{.consumer = "timelines"},
                                {.consumer = "email", .dedup = DEDUP_BY_EVENT}};
    char why[300];
    assert_int_equal(dedup_check_retention(with, 2, 35 * DAY, 30 * DAY, 7 * DAY, why), OK);
    assert_string_equal(why, "");
    assert_int_equal(dedup_check_retention(with, 2, 30 * DAY, 30 * DAY, 30 * DAY, why), OK);
    assert_int_equal(dedup_check_retention(with, 2, 3 * DAY, 3 * DAY, 14 * DAY, why), ERR_INVALID);
    assert_string_equal(
        why, "the duplicate memory of consumer 'email' (dedup-retention 3 days) is shorter than "
             "the replay window (retain-events 14 days): a replay could repeat what was "
             "forgotten; set dedup-retention to at least 14 days");
    assert_int_equal(
        dedup_check_retention(with, 2, 36 * HOUR, DAY + 90 * 60000 + 12 * HOUR, DAY, why),
        ERR_INVALID);
    assert_string_equal(
        why, "the duplicate memory of consumer 'email' (dedup-retention 36 hours) is shorter than "
             "dead letters are kept (retain-dead 2250 minutes): re-driving one could repeat what "
             "was forgotten; set dedup-retention to at least 2250 minutes");
    assert_int_equal(dedup_check_retention(without, 1, DAY, 30 * DAY, 7 * DAY, why), ERR_INVALID);
    assert_string_equal(
        why, "the duplicate memory (dedup-retention 1 day) is shorter than dead letters are kept "
             "(retain-dead 30 days): re-driving one could repeat what was forgotten; "
             "set dedup-retention to at least 30 days");
    assert_int_equal(dedup_check_retention(with, 2, 29999, 0, 30000, why), ERR_INVALID);
    assert_non_null(strstr(why, "dedup-retention 29999 milliseconds"));
    assert_non_null(strstr(why, "retain-events 30 seconds"));
}

static void dead_letters_for_ever_want_a_memory_for_ever(void **state)
{
    (void)state;
    const struct rule without[] = {{.consumer = "timelines"}};
    const struct rule with[] = {{.consumer = "email", .dedup = DEDUP_BY_KEY}};
    char why[300];
    assert_int_equal(dedup_check_retention(without, 1, 35 * DAY, 0, 7 * DAY, why), ERR_INVALID);
    assert_int_equal(dedup_check_retention(without, 1, DEDUP_FOR_EVER_MS, 0, 7 * DAY, why), OK);
    assert_int_equal(dedup_check_retention(with, 1, DEDUP_FOR_EVER_MS, 0, 7 * DAY, why), OK);
    assert_int_equal(dedup_check_retention(with, 1, 35 * DAY, 0, 7 * DAY, why), ERR_INVALID);
    assert_string_equal(
        why,
        "the duplicate memory of consumer 'email' (dedup-retention 35 days) is shorter than "
        "dead letters are kept (retain-dead 0: for ever): re-driving one could repeat what was "
        "forgotten; set retain-dead to at most 35 days, or dedup-retention to 0");
}

/* ---- plans: every statement that was run goes by a primary key ---- */

enum { TEXTS_MAX = 128 };

static const char *texts[TEXTS_MAX];
static size_t text_count;
static const struct db_ops *real_ops;

static void keep_text(const char *sql)
{
    for (size_t i = 0; i < text_count; i++) {
        if (texts[i] == sql)
            return;
    }
    assert_true(text_count < TEXTS_MAX);
    texts[text_count++] = sql;
}

static enum err noting_exec(struct tx *tx, const char *sql, const struct db_value *args, size_t n,
                            int64_t *changed)
{
    keep_text(sql);
    return real_ops->exec(tx, sql, args, n, changed);
}

static enum err noting_query(struct tx *tx, const char *sql, const struct db_value *args, size_t n,
                             struct db_rows *rows)
{
    keep_text(sql);
    return real_ops->query(tx, sql, args, n, rows);
}

static enum err run_explain(struct tx *tx, void *arg)
{
    const char *sql = arg;
    const char *text = strstr(sql, " PLAN ") + 6;
    size_t parameters = 0;
    for (size_t n = 1; n <= 4; n++) {
        char name[4];
        snprintf(name, sizeof name, "$%zu", n);
        parameters += strstr(text, name) != NULL;
    }
    const struct db_value none[4] = {{0}};
    struct db_rows rows;
    enum err e = tx_query(tx, sql, none, parameters, &rows);
    while (!e && db_next(&rows)) {
        struct str step = db_text(&rows, 3);
        char line[200];
        snprintf(line, sizeof line, "%.*s", STR_ARG(step));
        bool bounded = strstr(line, "CONSTANT ROW");
        if (strstr(line, "SCAN") && !bounded)
            fail_msg("%s: %s", text, line);
        if (strstr(line, "TEMP B-TREE"))
            fail_msg("%s: %s", text, line);
    }
    return e ? e : db_rows_done(&rows);
}

static void every_statement_goes_by_a_key(void **state)
{
    (void)state;
    struct db_ops noting = *db->ops;
    noting.exec = noting_exec;
    noting.query = noting_query;
    real_ops = db->ops;
    db->ops = &noting;
    char key[32];
    for (int day = 0; day < 24; day++) {
        for (int i = 0; i < 10; i++) {
            snprintf(key, sizeof key, "%d:%d", day, i);
            assert_int_equal(claim("email", key), DEDUP_NEW);
        }
        do_act(CONFIRM, "email", key);
        assert_int_equal(claim("email", key), DEDUP_DONE);
        snprintf(key, sizeof key, "%d:0", day);
        do_act(GIVE_BACK, "email", key);
        now_ms += DAY;
        forget(4);
    }
    db->ops = real_ops;
    assert_true(text_count >= 8);

    static char plans[TEXTS_MAX][1200]; /* statements are known by their address */
    for (size_t i = 0; i < text_count; i++) {
        snprintf(plans[i], sizeof plans[i], "EXPLAIN QUERY PLAN %s", texts[i]);
        assert_int_equal(db_read(db, run_explain, plans[i], NULL), OK);
    }
}

#define TEST(name) cmocka_unit_test_setup(name, set_up)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(a_claim_is_new_once),
        TEST(an_order_claims_an_unknown_outcome_once),
        TEST(a_claim_can_be_given_back_until_it_is_confirmed),
        TEST(an_act_in_truth_is_never_unknown),
        TEST(keys_are_by_event_or_by_business),
        TEST(an_entry_stays_for_its_retention),
        TEST(old_entries_go_in_slices),
        TEST(an_entry_stays_until_it_is_forgotten),
        TEST(a_claim_that_is_rolled_back_does_no_harm),
        TEST(a_process_that_knows_nothing_claims_all_the_same),
        TEST(a_clock_that_goes_back_forgets_nothing),
        TEST(what_is_claimed_while_the_clock_is_back_is_kept_as_long),
        TEST(a_longer_retention_holds_for_what_is_remembered),
        TEST(a_retention_in_force_for_a_moment_holds_for_what_was_there),
        TEST(a_change_of_retention_that_is_rolled_back_is_made_up_for),
        TEST(a_shorter_retention_does_not_forget_sooner),
        TEST(random_histories_agree_with_a_model),
        TEST(random_histories_with_changing_retentions_forget_nothing_early),
        TEST(a_memory_that_is_too_short_is_refused_with_the_numbers),
        TEST(dead_letters_for_ever_want_a_memory_for_ever),
        TEST(every_statement_goes_by_a_key),
    };
    return cmocka_run_group_tests(tests, set_up_store, tear_down_store);
}
