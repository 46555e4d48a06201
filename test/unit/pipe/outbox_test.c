/* The engine's SQL of the outbox: rows written by transactions, claimed by their state, settled,
 * trimmed; what a start finds. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "base/check.h"
#include "pipe/outbox.h"
#include "world.h"

static struct world w;
static struct outbox_slice slice;

static enum err write_plainly(void *db, tx_fn run, void *arg)
{
    return db_write(db, run, arg, NULL);
}

static int set_up(void **state)
{
    (void)state;
    world_init(&w);
    w.followers[1] = 3;
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    world_done(&w);
    return 0;
}

static void commit_many(size_t n)
{
    for (size_t i = 0; i < n; i++)
        world_commit(&w, EVENT_POST_CREATED, 1, i);
}

static size_t pending(void)
{
    return (size_t)world_ask(&w, "SELECT COUNT(*) FROM outbox WHERE state = 0");
}

static void rows_come_back_as_the_events_they_were(void **state)
{
    (void)state;
    uint64_t first = world_commit_value(&w, EVENT_FOLLOW_CREATED, 5, 77, -3);
    uint64_t second = world_commit(&w, EVENT_POST_CREATED, 6, 1);
    world_commit(&w, EVENT_POST_LIKED, 6, 0); /* passing: leaves no row */
    assert_int_equal(outbox_read(&w.db, OUTBOX_READ_PENDING, 0, INT64_MAX, 5, &slice), OK);
    assert_int_equal(slice.count, 2);
    assert_int_equal(slice.events[0].id, first);
    assert_int_equal(slice.events[0].type, EVENT_FOLLOW_CREATED);
    assert_int_equal(slice.events[0].actor, 5);
    assert_int_equal(slice.events[0].object, 77);
    assert_int_equal(slice.events[0].value, -3);
    assert_int_equal(slice.states[0], OUTBOX_PENDING);
    assert_int_equal(slice.events[1].id, second);
    assert_int_equal(outbox_read(&w.db, OUTBOX_READ_PENDING, first, second - 1, 5, &slice), OK);
    assert_int_equal(slice.count, 0); /* above `after`, up to `through` */
    assert_int_equal(outbox_read(&w.db, OUTBOX_READ_PENDING, first - 1, second, 1, &slice), OK);
    assert_int_equal(slice.count, 1);
    assert_int_equal(slice.events[0].id, first);
}

static enum err emit_with_data(struct tx *tx, void *arg)
{
    struct event *events = arg;
    return outbox_emit_all(tx, events, 2);
}

/* The views are brought up to date by the first one's data; the other's is for its sinks. */
static void data_comes_back_where_the_views_need_it(void **state)
{
    (void)state;
    struct event events[] = {
        {.type = EVENT_FOLLOWS_IMPORTED, .actor = 5, .data = STR("{\"followees\":[\"7\"]}")},
        {.type = EVENT_POST_MENTIONS, .actor = 5, .data = STR("{\"to\":[\"7\"]}")}};
    assert_int_equal(db_write(&w.db, emit_with_data, events, NULL), OK);
    assert_int_equal(outbox_read(&w.db, OUTBOX_READ_PENDING, 0, INT64_MAX, 5, &slice), OK);
    assert_int_equal(slice.count, 2);
    assert_true(str_eq(slice.events[0].data, STR("{\"followees\":[\"7\"]}")));
    assert_int_equal(slice.events[1].data.len, 0);
}

static void a_slice_has_a_limit(void **state)
{
    (void)state;
    commit_many(OUTBOX_READ_MAX + 10);
    assert_int_equal(outbox_read(&w.db, OUTBOX_READ_PENDING, 0, INT64_MAX, 100000, &slice), OK);
    assert_int_equal(slice.count, OUTBOX_READ_MAX);
    assert_int_equal(outbox_read(&w.db, OUTBOX_READ_AGAIN, 0, INT64_MAX, 100000, &slice), OK);
    assert_int_equal(slice.count, OUTBOX_READ_MAX);
}

static void strange_rows_are_told_apart(void **state)
{
    (void)state;
    world_do(&w, "INSERT INTO outbox (id, type, version, payload) VALUES "
                 "(1, 'future.thing', 1, '{}'), (2, 'post.created', 99, '{}'), "
                 "(3, 'post.created', 1, 'x'), "
                 "(4, 'follows.imported', 1, '{\"actor\":\"5\",\"object\":\"0\",\"value\":2}')");
    assert_int_equal(outbox_read(&w.db, OUTBOX_READ_PENDING, 0, INT64_MAX, 5, &slice), OK);
    assert_int_equal(slice.count, 4);
    const int64_t why[] = {EVENT_UNKNOWN_TYPE, EVENT_UNKNOWN_VERSION, EVENT_DAMAGED, EVENT_DAMAGED};
    for (size_t i = 0; i < 4; i++) {
        assert_int_equal(slice.events[i].id, i + 1);
        assert_int_equal(slice.events[i].type, OUTBOX_UNREADABLE);
        assert_int_equal(slice.events[i].value, why[i]);
    }
}

static void claims_are_by_state_whatever_the_id(void **state)
{
    (void)state;
    commit_many(4);
    world_do(&w, "UPDATE outbox SET state = 1 WHERE id IN "
                 "(SELECT id FROM outbox ORDER BY id LIMIT 2 OFFSET 1)");
    world_do(&w, "UPDATE outbox SET state = 2 WHERE id = (SELECT MAX(id) FROM outbox)");
    assert_int_equal(outbox_read(&w.db, OUTBOX_READ_PENDING, 0, INT64_MAX, 9, &slice), OK);
    assert_int_equal(slice.count, 1);
    assert_int_equal(slice.events[0].id, w.committed[0]);
    assert_int_equal(outbox_read(&w.db, OUTBOX_READ_AGAIN, 0, INT64_MAX, 9, &slice), OK);
    assert_int_equal(slice.count, 3); /* settled ones, too; parked ones never */
    assert_int_equal(slice.states[1], OUTBOX_SETTLED);
}

static enum err record_one(struct tx *tx, void *arg)
{
    const uint64_t *event = arg;
    struct delivery_record b = {.kind = RECORD_FAIL,
                                .state = DELIVERY_DELAYED,
                                .event = {.id = *event, .type = EVENT_POST_CREATED, .version = 1},
                                .consumer = "timelines",
                                .lane = LANE_SMALL,
                                .tries = 1,
                                .due_ms = 5,
                                .reason = "TIMEOUT"};
    return delivery_store_write(tx, &b, 1, 1, 1);
}

static void reading_again_tells_what_the_delivery_store_has(void **state)
{
    (void)state;
    commit_many(3);
    assert_int_equal(db_write(&w.db, record_one, &w.committed[1], NULL), OK);
    assert_int_equal(outbox_read(&w.db, OUTBOX_READ_AGAIN, 0, INT64_MAX, 9, &slice), OK);
    assert_int_equal(slice.recorded_count, 1);
    assert_int_equal(slice.recorded[0].event, w.committed[1]);
    assert_string_equal(slice.recorded[0].consumer, "timelines");
    assert_int_equal(outbox_read(&w.db, OUTBOX_READ_AGAIN, w.committed[1], INT64_MAX, 9, &slice),
                     OK);
    assert_int_equal(slice.recorded_count, 0);
}

static void a_read_that_fails_gives_nothing(void **state)
{
    (void)state;
    commit_many(3);
    w.faults->reads_fail = true;
    slice.count = 77;
    assert_int_equal(outbox_read(&w.db, OUTBOX_READ_PENDING, 0, INT64_MAX, 9, &slice),
                     ERR_UNAVAILABLE);
    assert_int_equal(slice.count, 0);
    struct outbox_found found;
    assert_int_equal(outbox_look(&w.db, 0, &found), ERR_UNAVAILABLE);
}

static void a_start_finds_the_watermark_and_what_lies_above(void **state)
{
    (void)state;
    struct outbox_found found;
    assert_int_equal(outbox_look(&w.db, 0, &found), OK);
    assert_int_equal(found.watermark, 0);
    assert_int_equal(found.first, 0);
    assert_int_equal(found.last, 0);
    commit_many(5);
    world_commit(&w, EVENT_FOLLOW_CREATED, 1, 1);
    uint64_t settled;
    assert_int_equal(outbox_settle(write_plainly, &w.db, 0, w.committed[1], 100, &settled), OK);
    assert_int_equal(outbox_look(&w.db, 0, &found), OK);
    assert_int_equal(found.watermark, w.committed[1]);
    assert_int_equal(found.first, w.committed[2]);
    assert_int_equal(found.last, w.committed[5]);
    assert_int_equal(found.above[EVENT_POST_CREATED], 3);
    assert_int_equal(found.above[EVENT_FOLLOW_CREATED], 1);
    assert_int_equal(outbox_look(&w.db, w.committed[0], &found), OK); /* the views know less */
    assert_int_equal(found.watermark, w.committed[1]);
    assert_int_equal(found.first, w.committed[1]);
    assert_int_equal(found.above[EVENT_POST_CREATED], 4);
}

static void a_damaged_watermark_begins_at_the_beginning(void **state)
{
    (void)state;
    commit_many(2);
    world_do(&w, "INSERT INTO meta (name, value) VALUES ('done_through', 'soon')");
    struct outbox_found found;
    assert_int_equal(outbox_look(&w.db, 0, &found), OK);
    assert_int_equal(found.watermark, 0);
    assert_int_equal(found.first, w.committed[0]);
}

static void settling_goes_in_slices_and_counts(void **state)
{
    (void)state;
    commit_many(20);
    manual_clock_advance(&w.manual, 1000); /* a gap in the ids */
    commit_many(5);
    uint64_t settled = 0;
    assert_int_equal(outbox_settle(write_plainly, &w.db, 0, w.committed[19], 10, &settled), OK);
    assert_int_equal(settled, w.committed[9]);
    assert_int_equal(pending(), 15);
    assert_int_equal(world_watermark(&w), settled);
    assert_int_equal(outbox_settle(write_plainly, &w.db, settled, w.committed[19], 10, &settled),
                     OK);
    assert_int_equal(settled, w.committed[19]);
    assert_int_equal(pending(), 5);
    assert_int_equal(
        outbox_settle(write_plainly, &w.db, settled, w.committed[19] + 1, 10, &settled), OK);
    assert_int_equal(settled, w.committed[19] + 1); /* nothing was there: the watermark goes on */
    assert_int_equal(pending(), 5);
    assert_int_equal(world_ask(&w, "SELECT count FROM event_counts WHERE state = 'settled'"), 20);
}

static void a_settling_whose_reply_is_lost_counts_once(void **state)
{
    (void)state;
    commit_many(5);
    uint64_t settled = 0;
    w.faults->lose_replies = 1;
    assert_int_equal(outbox_settle(write_plainly, &w.db, 0, w.committed[4], 10, &settled),
                     ERR_UNKNOWN_COMMIT);
    assert_int_equal(settled, 0);
    assert_int_equal(outbox_settle(write_plainly, &w.db, 0, w.committed[4], 10, &settled), OK);
    assert_int_equal(settled, w.committed[4]);
    assert_int_equal(world_ask(&w, "SELECT count FROM event_counts WHERE state = 'settled'"), 5);
}

static void trimming_takes_the_oldest_settled_rows_up_to_the_bound(void **state)
{
    (void)state;
    commit_many(30);
    world_do(&w, "UPDATE outbox SET state = 2 WHERE id = (SELECT MIN(id) FROM outbox)");
    uint64_t settled;
    assert_int_equal(outbox_settle(write_plainly, &w.db, 0, w.committed[27], 100, &settled), OK);
    size_t removed;
    uint64_t after = 0;
    assert_int_equal(outbox_trim(write_plainly, &w.db, &after, w.committed[24], 10, &removed), OK);
    assert_int_equal(removed, 10);
    assert_int_equal(after, w.committed[10]);
    assert_int_equal(world_ask(&w, "SELECT MIN(id) FROM outbox"), w.committed[0]); /* parked */
    assert_int_equal(outbox_trim(write_plainly, &w.db, &after, w.committed[24], 100, &removed), OK);
    assert_int_equal(removed, 14);
    assert_int_equal(after, w.committed[24]);
    assert_int_equal(outbox_trim(write_plainly, &w.db, &after, INT64_MAX, 100, &removed), OK);
    assert_int_equal(removed, 3);
    assert_int_equal(outbox_trim(write_plainly, &w.db, &after, INT64_MAX, 100, &removed), OK);
    assert_int_equal(removed, 0);
    assert_int_equal(world_outbox_count(&w), 3); /* parked, and two pending */
    assert_int_equal(world_ask(&w, "SELECT count FROM event_counts WHERE state = 'archived'"), 27);
    world_do(&w, "UPDATE outbox SET state = 1 WHERE state = 2");
    assert_int_equal(outbox_trim(write_plainly, &w.db, &after, INT64_MAX, 100, &removed), OK);
    assert_int_equal(removed, 0); /* what lies below is not looked at again … */
    after = 0;
    assert_int_equal(outbox_trim(write_plainly, &w.db, &after, INT64_MAX, 100, &removed), OK);
    assert_int_equal(removed, 1); /* … until a call says that it changed */
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(rows_come_back_as_the_events_they_were),
        TEST(data_comes_back_where_the_views_need_it),
        TEST(a_slice_has_a_limit),
        TEST(strange_rows_are_told_apart),
        TEST(claims_are_by_state_whatever_the_id),
        TEST(reading_again_tells_what_the_delivery_store_has),
        TEST(a_read_that_fails_gives_nothing),
        TEST(a_start_finds_the_watermark_and_what_lies_above),
        TEST(a_damaged_watermark_begins_at_the_beginning),
        TEST(settling_goes_in_slices_and_counts),
        TEST(a_settling_whose_reply_is_lost_counts_once),
        TEST(trimming_takes_the_oldest_settled_rows_up_to_the_bound),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
