/* What the views lose with their memory is done once more, and nothing else is. Ids here are far
 * above any time in milliseconds, as real ones are. */
#include "delivery_desk.h"

#define CASE(name) cmocka_unit_test_setup(name, set_up)

enum { EVENT = 20000000, POSITION = 30000000 };

struct redo {
    uint64_t position;
    bool more;
};

static enum err run_redo(struct tx *tx, void *arg)
{
    struct redo *r = arg;
    return delivery_store_redo_lost(tx, r->position, NOW + 9000, &r->more);
}

static bool redo(uint64_t position)
{
    struct redo r = {.position = position};
    assert_int_equal(db_write(plain_db_port(store), run_redo, &r, NULL), OK);
    return r.more;
}

/* A delivery that failed and then succeeded when everything up to `watermark` was settled. */
static void succeed_late(struct delivery_record b, uint64_t watermark)
{
    struct claim c;
    write_one(b);
    assert_int_equal(claim(&c, 1, EPOCH, NOW + 5000), 1);
    struct delivery_record done = ended(&c, RECORD_DONE);
    done.watermark = watermark;
    write_one(done);
}

#define OPEN_ROWS "SELECT count(*) FROM deliveries WHERE state IN (1, 3)"

static void a_success_after_the_save_is_repeated(void **state)
{
    (void)state;
    succeed_late(page(EVENT, 0), POSITION);
    assert_int_equal(ask(OPEN_ROWS), 0);
    assert_false(redo(POSITION));
    assert_int_equal(ask(OPEN_ROWS), 1);
    assert_int_equal(ask("SELECT count(*) FROM deliveries"), 1);
    assert_int_equal(ask("SELECT tries FROM deliveries"), 0);
    struct claim c;
    assert_int_equal(claim(&c, 1, EPOCH + 1, NOW + 9000), 1);
    assert_int_equal(c.event.id, EVENT);
    assert_int_equal(c.cursor.after, 0);
}

static void what_the_save_holds_is_not(void **state)
{
    (void)state;
    succeed_late(page(EVENT, 0), POSITION - 1);
    redo(POSITION);
    assert_int_equal(ask(OPEN_ROWS), 0);
}

static void what_lies_above_the_position_is_the_relays(void **state)
{
    (void)state;
    succeed_late(page(POSITION + 1, 0), POSITION + 5);
    redo(POSITION);
    assert_int_equal(ask(OPEN_ROWS), 0);
}

static void what_does_not_live_in_the_views_is_not(void **state)
{
    (void)state;
    succeed_late(page(EVENT, 0), 0);
    redo(POSITION);
    assert_int_equal(ask(OPEN_ROWS), 0);
}

static void it_goes_before_later_ones_of_its_key(void **state)
{
    (void)state;
    succeed_late(keyed(EVENT, 7), POSITION);
    write_one(keyed(EVENT + 1, 7));
    redo(POSITION);
    assert_int_equal(ask("SELECT event_id FROM deliveries WHERE state = 1"), EVENT);
    assert_int_equal(ask("SELECT event_id FROM deliveries WHERE state = 3"), EVENT + 1);
}

static void a_second_crash_finds_it_open(void **state)
{
    (void)state;
    succeed_late(page(EVENT, 0), POSITION);
    redo(POSITION);
    redo(POSITION);
    assert_int_equal(ask("SELECT count(*) FROM deliveries"), 1);
    assert_int_equal(ask(OPEN_ROWS), 1);
}

static void many_come_in_slices(void **state)
{
    (void)state;
    for (uint64_t i = 0; i < 150; i++)
        succeed_late(page(EVENT + i, 0), POSITION + i);
    size_t slices = 1;
    while (redo(POSITION))
        slices++;
    assert_int_equal(slices, 3);
    assert_int_equal(ask(OPEN_ROWS), 150);
}

static void counts_follow(void **state)
{
    (void)state;
    succeed_late(page(EVENT, 0), POSITION);
    redo(POSITION);
    assert_int_equal(ask("SELECT sum(count) FROM delivery_counts WHERE state = 5"), 0);
    assert_int_equal(ask("SELECT sum(count) FROM delivery_counts WHERE state = 1"), 1);
}

/* ---- released events ---- */

static void release_and_settle(uint64_t watermark)
{
    plain_db_run(store, "INSERT INTO outbox (id, type, version, payload, state) VALUES (20000000, "
                        "'post.created', 99, '{\"actor\":\"1\",\"object\":\"2\",\"value\":0}', 0)");
    struct delivery_record park = {
        .kind = RECORD_PARK, .event.id = EVENT, .reason = "UNKNOWN_VERSION"};
    write_one(park);
    plain_db_run(store, "UPDATE deliveries SET version = 1");
    plain_db_run(store, "UPDATE outbox SET version = 1");
    struct call c = {.slice.max = 10, .now = NOW};
    run(run_release, &c);
    assert_int_equal(c.slice.changed, 1);
    struct delivery_record settle = {
        .kind = RECORD_SETTLE, .event.id = EVENT, .watermark = watermark};
    write_one(settle);
    assert_int_equal(ask("SELECT state FROM outbox"), 1);
}

static void a_released_event_is_pending_again(void **state)
{
    (void)state;
    release_and_settle(POSITION);
    redo(POSITION);
    assert_int_equal(ask("SELECT state FROM outbox"), 0);
    assert_int_equal(ask("SELECT sum(count) FROM event_counts WHERE state = 'settled'"), 0);
}

static void a_released_event_that_was_saved_is_not(void **state)
{
    (void)state;
    release_and_settle(POSITION - 1);
    redo(POSITION);
    assert_int_equal(ask("SELECT state FROM outbox"), 1);
}

static void a_released_event_comes_back_from_the_archive(void **state)
{
    (void)state;
    release_and_settle(POSITION);
    plain_db_run(store, "DELETE FROM outbox");
    plain_db_run(store, "INSERT INTO event_counts VALUES ('post.created', 'archived', 1)");
    redo(POSITION);
    assert_int_equal(ask("SELECT count(*) FROM outbox WHERE id = 20000000 AND state = 0"), 1);
    assert_int_equal(ask("SELECT sum(count) FROM event_counts"), 0);
}

static void every_statement_is_served_by_an_index(void **state)
{
    (void)state;
    static const struct wanted_plan wanted[] = {{"due_at >= $1 AND event_id + 0", "late"}};
    redo(POSITION);
    check_plans(wanted, COUNT_OF(wanted));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(a_success_after_the_save_is_repeated),
        CASE(what_the_save_holds_is_not),
        CASE(what_lies_above_the_position_is_the_relays),
        CASE(what_does_not_live_in_the_views_is_not),
        CASE(it_goes_before_later_ones_of_its_key),
        CASE(a_second_crash_finds_it_open),
        CASE(many_come_in_slices),
        CASE(counts_follow),
        CASE(a_released_event_is_pending_again),
        CASE(a_released_event_that_was_saved_is_not),
        CASE(a_released_event_comes_back_from_the_archive),
        CASE(every_statement_is_served_by_an_index),
    };
    return cmocka_run_group_tests_name("delivery_lost", tests, set_up_all, tear_down_all);
}
