/* Positions of other systems that follow our events: forward, back only when asked, never past what
 * exists and never silently past what was removed. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "model/subscriber.h"
#include "plain_db.h"

static struct manual_clock clock_;
static struct id_gen ids;
static struct plain_db *store;

static int open_store(void **state)
{
    (void)state;
    manual_clock_init(&clock_, INT64_C(1763200000000));
    id_gen_init(&ids, &clock_.clock, 0);
    store = plain_db_new(&clock_.clock, &ids);
    return 0;
}

static int close_store(void **state)
{
    (void)state;
    plain_db_free(store);
    return 0;
}

static enum err emit(struct tx *tx, void *arg)
{
    return outbox_emit(
        tx,
        (struct event){.type = EVENT_FOLLOW_CREATED, .actor = *(const uint64_t *)arg, .object = 2});
}

/* Emits one and returns its id. */
static uint64_t event_by(uint64_t actor)
{
    assert_int_equal(db_write(plain_db_port(store), emit, &actor, NULL), OK);
    return (uint64_t)plain_db_ask(store, "SELECT MAX(id) FROM outbox");
}

struct saving {
    const char *name;
    uint64_t position;
    bool rewind;
    struct subscriber out;
};

static enum err run_save(struct tx *tx, void *arg)
{
    struct saving *s = arg;
    return subscriber_save(tx, str_of(s->name), s->position, s->rewind,
                           clock_wall_ms(&clock_.clock), &s->out);
}

static enum err save(const char *name, uint64_t position, bool rewind)
{
    struct saving s = {.name = name, .position = position, .rewind = rewind};
    enum err e = db_write(plain_db_port(store), run_save, &s, NULL);
    if (!e)
        assert_int_equal(s.out.position, position);
    return e;
}

struct look {
    uint64_t position;
    struct subscriber_lag lag;
    struct subscriber_ages ages;
    uint64_t removed, oldest;
    uint64_t seen[16];
    size_t count;
    size_t limit;
};

static void visit(void *ctx, const struct stored_event *e)
{
    struct look *l = ctx;
    assert_string_equal("follow.created", e->type.ptr);
    l->seen[l->count++] = e->id;
}

static enum err run_look(struct tx *tx, void *arg)
{
    struct look *l = arg;
    enum err e = subscriber_lag(tx, l->position, &l->lag);
    if (!e)
        e = subscriber_ages(tx, clock_wall_ms(&clock_.clock), &l->ages);
    if (!e)
        e = stored_events_bounds(tx, &l->removed, &l->oldest);
    l->count = 0;
    if (!e)
        e = stored_events_after(tx, l->position, l->limit, visit, l);
    return e;
}

static struct look look(uint64_t position, size_t limit)
{
    struct look l = {.position = position, .limit = limit};
    assert_int_equal(db_read(plain_db_port(store), run_look, &l, NULL), OK);
    return l;
}

static void test_events_come_in_order_and_page_by_page(void **state)
{
    (void)state;
    uint64_t made[5];
    for (size_t i = 0; i < 5; i++)
        made[i] = event_by(10 + i);
    struct look l = look(0, 3);
    assert_int_equal(l.count, 3);
    assert_memory_equal(l.seen, made, 3 * sizeof *made);
    l = look(made[2], 3);
    assert_int_equal(l.count, 2);
    assert_memory_equal(l.seen, made + 3, 2 * sizeof *made);
    assert_int_equal(look(made[4], 3).count, 0);
    assert_int_equal(l.oldest, made[0]);
    assert_int_equal(l.removed, 0);
}

static void test_a_position_goes_forward_and_back_only_when_asked(void **state)
{
    (void)state;
    uint64_t first = event_by(1), second = event_by(1);
    assert_int_equal(save("crm", second, false), OK);
    assert_int_equal(save("crm", second, false), OK); /* twice is once */
    assert_int_equal(save("crm", first, false), ERR_CONFLICT);
    assert_int_equal(plain_db_ask(store, "SELECT position FROM subscribers"), (int64_t)second);
    assert_int_equal(save("crm", first, true), OK);
    assert_int_equal(save("crm", 0, true), OK);
    assert_int_equal(plain_db_ask(store, "SELECT COUNT(*) FROM subscribers"), 1);
}

static void test_a_position_beyond_the_newest_event_would_skip_some(void **state)
{
    (void)state;
    assert_int_equal(save("crm", 0, false), OK);
    assert_int_equal(save("crm", 1, false), ERR_INVALID);
    uint64_t only = event_by(1);
    assert_int_equal(save("crm", only + 1, false), ERR_INVALID);
    assert_int_equal(save("crm", only, false), OK);
}

static void test_what_was_removed_is_said_and_never_passed_over(void **state)
{
    (void)state;
    uint64_t first = event_by(1), second = event_by(1), third = event_by(1);
    assert_int_equal(save("slow", first, false), OK);
    assert_int_equal(save("there", second, false), OK);
    char sql[160];
    snprintf(sql, sizeof sql, "DELETE FROM outbox WHERE id <= %llu", (unsigned long long)second);
    plain_db_run(store, sql);
    snprintf(sql, sizeof sql, "INSERT INTO meta (name, value) VALUES ('archived_through', '%llu')",
             (unsigned long long)second);
    plain_db_run(store, sql);
    struct look l = look(second, 9);
    assert_int_equal(l.removed, second);
    assert_int_equal(l.oldest, third);
    /* a consumer that had processed the last removed one has missed nothing */
    assert_int_equal(save("there", second, false), OK);
    assert_int_equal(save("slow", first, false), ERR_GONE);
    assert_int_equal(save("new", 0, false), ERR_GONE);
    assert_int_equal(save("slow", second, false), OK); /* what the message says to do */
    /* also when nothing is left at all */
    plain_db_run(store, "DELETE FROM outbox");
    assert_int_equal(save("there", first, true), ERR_GONE);
    assert_int_equal(save("there", second, false), OK);
}

static void test_how_far_behind_is_counted_up_to_a_limit(void **state)
{
    (void)state;
    uint64_t first = event_by(1);
    manual_clock_advance(&clock_, 5000);
    uint64_t second = event_by(1);
    assert_int_equal(save("crm", first, false), OK);
    assert_int_equal(save("done", second, false), OK);
    manual_clock_advance(&clock_, 2000);
    struct look l = look(first, 1);
    assert_int_equal(l.lag.oldest_unread, second);
    assert_int_equal(l.lag.unread, 1);
    assert_int_equal(l.ages.count, 2);
    assert_string_equal(l.ages.items[0].name, "crm");
    assert_int_equal(l.ages.items[0].age_ms, 2000);
    assert_int_equal(l.ages.items[1].age_ms, 0);
    l = look(second, 1);
    assert_int_equal(l.lag.oldest_unread, 0);
    assert_int_equal(l.lag.unread, 0);
    plain_db_run(store, "INSERT INTO outbox (id, type, version, payload) "
                        "WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n "
                        "WHERE i < 10050) SELECT 5000000000000000000 + i, 'x', 1, '{}' FROM n");
    struct look many = {.position = second, .limit = 0};
    assert_int_equal(db_read(plain_db_port(store), run_look, &many, NULL), OK);
    assert_int_equal(many.lag.unread, SUBSCRIBER_COUNTED_MAX);
}

static enum err run_delete(struct tx *tx, void *arg)
{
    return subscriber_delete(tx, str_of(arg));
}

static void test_there_are_so_many_and_no_more(void **state)
{
    (void)state;
    char name[SUBSCRIBER_NAME_MAX + 1], seventh[] = "consumer-7";
    for (int i = 0; i < SUBSCRIBERS_MAX; i++) {
        snprintf(name, sizeof name, "consumer-%d", i);
        assert_int_equal(save(name, 0, false), OK);
    }
    assert_int_equal(save("one-too-many", 0, false), ERR_CONFLICT);
    assert_int_equal(save("consumer-7", 0, false), OK);
    assert_int_equal(db_write(plain_db_port(store), run_delete, seventh, NULL), OK);
    assert_int_equal(db_write(plain_db_port(store), run_delete, seventh, NULL), ERR_NOT_FOUND);
    assert_int_equal(save("one-too-many", 0, false), OK);
    assert_int_equal(look(0, 1).ages.count, SUBSCRIBERS_MAX);
}

int main(void)
{
#define ON_A_STORE(f) cmocka_unit_test_setup_teardown(f, open_store, close_store)
    const struct CMUnitTest tests[] = {
        ON_A_STORE(test_events_come_in_order_and_page_by_page),
        ON_A_STORE(test_a_position_goes_forward_and_back_only_when_asked),
        ON_A_STORE(test_a_position_beyond_the_newest_event_would_skip_some),
        ON_A_STORE(test_what_was_removed_is_said_and_never_passed_over),
        ON_A_STORE(test_how_far_behind_is_counted_up_to_a_limit),
        ON_A_STORE(test_there_are_so_many_and_no_more),
    };
    return cmocka_run_group_tests_name("model/subscriber", tests, NULL, NULL);
}
