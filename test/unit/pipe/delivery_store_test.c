/* The delivery store, transition by transition: failures, claims, order, what cannot be read; and
 * the plan of every statement that was run. */
#include "delivery_desk.h"

/* ---- failing and trying again ---- */

static void a_failure_is_tried_again_when_it_is_due(void **state)
{
    (void)state;
    struct claim c[4];
    assert_int_equal(next_due(), INT64_MAX);
    struct delivery_record b = page(10, 0);
    b.cursor.part = AUDIENCE_ACTIVE;
    b.cursor.active_since_ms = 11;
    b.cursor.started_ms = 12;
    b.until = 300;
    b.replay = 9;
    write_one(b);
    assert_int_equal(next_due(), NOW + 2000);
    assert_int_equal(claim(c, 4, EPOCH, NOW + 1999), 0);
    assert_int_equal(claim(c, 4, EPOCH, NOW + 2000), 1);
    assert_int_equal(c[0].event.id, 10);
    assert_int_equal(c[0].event.type, EVENT_POST_CREATED);
    assert_int_equal(c[0].event.actor, 42);
    assert_int_equal(c[0].event.object, 77);
    assert_string_equal(c[0].consumer, "timelines");
    assert_int_equal(c[0].lane, LANE_SMALL);
    assert_int_equal(c[0].cursor.part, AUDIENCE_ACTIVE);
    assert_int_equal(c[0].cursor.active_since_ms, 11);
    assert_int_equal(c[0].cursor.started_ms, 12);
    assert_int_equal(c[0].until, 300);
    assert_int_equal(c[0].replay, 9);
    assert_int_equal(c[0].tries, 1);
    assert_false(c[0].forced);
    assert_int_equal(claim(c + 1, 3, EPOCH, NOW + 2000), 0); /* it is under way */
    write_one(ended(c, RECORD_DONE));
    assert_int_equal(state_of(10), DELIVERY_DONE);
    assert_int_equal(ask("SELECT members FROM deliveries"), 3);
    assert_int_equal(next_due(), INT64_MAX);
}

static void a_claim_ends_by_itself(void **state)
{
    (void)state;
    struct claim c[2];
    write_one(page(10, 0));
    assert_int_equal(claim(c, 2, EPOCH, NOW + 2000), 1);
    assert_int_equal(next_due(), NOW + 2000 + LEASE_MS);
    assert_int_equal(claim(c, 2, EPOCH, NOW + 2000 + LEASE_MS), 1);
    assert_int_equal(state_of(10), DELIVERY_RETRYING);
    assert_int_equal(ask("SELECT count FROM delivery_counts WHERE state = 2"), 1);
}

static void the_longest_due_come_first(void **state)
{
    (void)state;
    struct delivery_record b[3] = {page(10, 0), page(11, 0), page(12, 0)};
    b[0].due_ms = NOW + 30;
    b[1].due_ms = NOW + 10;
    b[2].due_ms = NOW + 20;
    write_at(b, 3, NOW);
    struct claim c[3];
    assert_int_equal(claim(c, 2, EPOCH, NOW + 100), 2);
    assert_int_equal(c[0].event.id, 11);
    assert_int_equal(c[1].event.id, 12);
    assert_int_equal(claim(c, 2, EPOCH, NOW + 100), 1);
}

static void a_restart_makes_what_was_under_way_due(void **state)
{
    (void)state;
    struct claim c[2];
    write_one(page(10, 0));
    claim(c, 2, EPOCH, NOW + 2000);
    struct call again = {.now = NOW + 2001};
    run(run_reopen, &again);
    assert_int_equal(next_due(), NOW + 2001);
    assert_int_equal(claim(c, 2, EPOCH, NOW + 2001), 1);
}

static void failing_again_takes_the_new_time_and_reason(void **state)
{
    (void)state;
    struct claim c;
    write_one(page(10, 0));
    claim(&c, 1, EPOCH, NOW + 2000);
    struct delivery_record b = ended(&c, RECORD_FAIL);
    snprintf(b.detail, sizeof b.detail, "connection refused");
    write_at(&b, 1, NOW + 2100);
    assert_int_equal(next_due(), NOW + 9000);
    assert_int_equal(ask("SELECT tries FROM deliveries"), 2);
    assert_int_equal(ask("SELECT count(*) FROM deliveries WHERE reason = 'TIMEOUT' "
                         "AND detail = 'connection refused'"),
                     1);
    assert_int_equal(ask("SELECT history = '1000000 UNAVAILABLE' || char(10) || "
                         "'1002100 TIMEOUT' || char(10) FROM deliveries"),
                     1);
    b.state = DELIVERY_DEAD;
    write_one(b);
    assert_int_equal(state_of(10), DELIVERY_DEAD);
    assert_int_equal(next_due(), INT64_MAX);
}

static void the_history_keeps_the_newest_tries(void **state)
{
    (void)state;
    for (int i = 0; i < DELIVERY_HISTORY_TRIES + 3; i++) {
        struct delivery_record b = page(10, 0);
        write_at(&b, 1, NOW + i);
    }
    assert_int_equal(
        ask("SELECT length(history) - length(replace(history, char(10), '')) FROM deliveries"),
        DELIVERY_HISTORY_TRIES);
    assert_int_equal(ask("SELECT history LIKE '1000003 %' FROM deliveries"), 1);
    assert_int_equal(ask("SELECT history LIKE '%1000010 UNAVAILABLE' || char(10) FROM deliveries"),
                     1);
}

static void a_detail_that_was_cut_in_a_character_is_kept_whole(void **state)
{
    (void)state;
    struct delivery_record b = page(10, 0);
    memset(b.detail, 'x', sizeof b.detail);
    memcpy(b.detail + sizeof b.detail - 2, "\xe2\x82", 2); /* two of three bytes, no NUL */
    write_one(b);
    assert_int_equal(ask("SELECT length(detail) FROM deliveries"), DELIVERY_DETAIL_MAX - 2);
    b = page(11, 0);
    memcpy(b.detail, "\xff\xff\xff\xff\xff\xff", 7);
    write_one(b);
    assert_int_equal(ask("SELECT length(detail) FROM deliveries WHERE event_id = 11"), 0);
}

/* ---- the same page again ---- */

static void recording_a_page_again_changes_its_row(void **state)
{
    (void)state;
    struct delivery_record b = page(10, 0);
    b.tries = 3;
    write_one(b);
    int64_t due_ms = next_due();
    b.tries = 1;
    b.due_ms = due_ms - 1;
    write_one(b);
    b.due_ms = due_ms + 7000;
    write_one(b);
    assert_int_equal(ask("SELECT count(*) FROM deliveries"), 1);
    assert_int_equal(ask("SELECT tries FROM deliveries"), 3);
    assert_int_equal(next_due(), due_ms); /* its timer stands: this was no try of the row */
    write_one(page(10, 100)); /* another page, and another replay, are rows of their own */
    b.replay = 4;
    write_one(b);
    assert_int_equal(ask("SELECT count(*) FROM deliveries"), 3);
}

static void what_was_given_up_stays_given_up(void **state)
{
    (void)state;
    struct delivery_record b = page(10, 0);
    b.state = DELIVERY_DROPPED;
    write_one(b);
    write_one(page(11, 0));
    struct call c = {.filter.event = 11, .slice.max = 10, .now = NOW};
    run(run_discard, &c);
    assert_int_equal(c.slice.changed, 1);
    assert_int_equal(ask("SELECT detail = 'spam' FROM deliveries WHERE event_id = 11"), 1);
    write_one(page(10, 0));
    write_one(page(11, 0));
    assert_int_equal(state_of(10), DELIVERY_DROPPED);
    assert_int_equal(state_of(11), DELIVERY_DISCARDED);
    assert_int_equal(next_due(), INT64_MAX);
}

static void what_was_done_and_fails_again_has_a_new_row(void **state)
{
    (void)state;
    struct claim c;
    write_one(page(10, 0));
    claim(&c, 1, EPOCH, NOW + 2000);
    write_one(ended(&c, RECORD_DONE));
    struct delivery_record b = page(10, 0);
    write_at(&b, 1, NOW + 3000);
    assert_int_equal(ask("SELECT count(*) FROM deliveries"), 1);
    assert_int_equal(state_of(10), DELIVERY_DELAYED);
    assert_true((uint64_t)ask("SELECT id FROM deliveries") > c.delivery);
    assert_int_equal(ask("SELECT count FROM delivery_counts WHERE state = 5"), 0);
    assert_int_equal(ask("SELECT history LIKE '1000000 UNAVAILABLE%1003000 UNAVAILABLE%' "
                         "FROM deliveries"),
                     1);
    write_one(ended(&c, RECORD_DONE)); /* the old row's last word comes late */
    assert_int_equal(state_of(10), DELIVERY_DELAYED);
}

static void a_dead_row_stays_dead(void **state)
{
    (void)state;
    struct delivery_record b = page(10, 0);
    b.state = DELIVERY_DEAD;
    write_one(b);
    write_one(page(10, 0));
    assert_int_equal(state_of(10), DELIVERY_DEAD);
}

static void a_repetition_does_not_disturb_a_try_under_way(void **state)
{
    (void)state;
    struct claim c;
    write_one(page(10, 0));
    claim(&c, 1, EPOCH, NOW + 2000);
    struct delivery_record b = page(10, 0);
    b.state = DELIVERY_DEAD;
    b.reason = err_name(ERR_UNKNOWN_COMMIT);
    write_one(b);
    assert_int_equal(state_of(10), DELIVERY_RETRYING);
    assert_int_equal(next_due(), NOW + 2000 + LEASE_MS);
    claim(&c, 1, EPOCH, NOW + 2000 + LEASE_MS);
    assert_false(c.forced); /* no operator ordered that */
}

static void two_reaches_of_a_page_become_the_farther(void **state)
{
    (void)state;
    struct delivery_record b = page(10, 0);
    b.until = 100;
    write_one(b);
    write_one(b);
    assert_int_equal(ask("SELECT until FROM deliveries"), 100);
    b.until = 200;
    write_one(b);
    assert_int_equal(ask("SELECT until FROM deliveries"), 0);
}

/* The reach of a row grew while it was tried: the try's success is not the row's. */
static void a_try_that_knew_less_leaves_the_rest(void **state)
{
    (void)state;
    struct claim c;
    struct delivery_record b = page(10, 0);
    b.until = 100;
    write_one(b);
    claim(&c, 1, EPOCH, NOW + 2000);
    b.until = 0;
    write_one(b);
    write_one(ended(&c, RECORD_DONE));
    assert_int_equal(state_of(10), DELIVERY_DELAYED);
    assert_int_equal(ask("SELECT after FROM deliveries"), 100);
    assert_int_equal(ask("SELECT until FROM deliveries"), 0);
    assert_int_equal(claim(&c, 1, EPOCH, NOW + 2000), 1);
    write_one(ended(&c, RECORD_DONE));
    assert_int_equal(state_of(10), DELIVERY_DONE);
}

/* ---- moving on ---- */

static void progress_is_kept(void **state)
{
    (void)state;
    struct claim c;
    write_one(page(10, 0));
    claim(&c, 1, EPOCH, NOW + 2000);
    struct delivery_record b = ended(&c, RECORD_MOVE);
    b.cursor.after = 200;
    b.due_ms = NOW + 20000;
    write_one(b);
    assert_int_equal(state_of(10), DELIVERY_RETRYING);
    assert_int_equal(ask("SELECT after FROM deliveries"), 200);
    assert_int_equal(ask("SELECT members FROM deliveries"), 3);
    assert_int_equal(next_due(), NOW + 20000); /* and the claim lasts longer */
    b = ended(&c, RECORD_FAIL);
    b.cursor.after = 300;
    write_one(b);
    assert_int_equal(claim(&c, 1, EPOCH, NOW + 9000), 1);
    assert_int_equal(c.cursor.after, 300);
}

static void a_row_that_meets_another_takes_it_over(void **state)
{
    (void)state;
    struct claim c;
    write_one(page(10, 0));
    struct delivery_record other = page(10, 200);
    other.due_ms = NOW + 60000;
    write_one(other);
    assert_int_equal(claim(&c, 1, EPOCH, NOW + 2000), 1);
    struct delivery_record b = ended(&c, RECORD_FAIL);
    b.cursor.after = 200;
    write_one(b);
    assert_int_equal(ask("SELECT count(*) FROM deliveries"), 2);
    assert_int_equal(ask("SELECT state FROM deliveries WHERE after = 200"), DELIVERY_DELAYED);
    assert_int_equal(ask("SELECT id FROM deliveries WHERE after = 200"), c.delivery);
    assert_int_equal(ask("SELECT state FROM deliveries WHERE after = 0"), DELIVERY_DONE);
}

static void positions_of_another_epoch_begin_anew(void **state)
{
    (void)state;
    struct delivery_record b[4] = {page(10, 100), page(10, 200), page(10, 0), page(11, 100)};
    b[0].until = 200;
    b[1].due_ms = NOW + 60000;
    b[2].state = DELIVERY_DEAD;
    write_at(b, 4, NOW);
    struct claim c[4];
    assert_int_equal(claim(c, 4, EPOCH + 1, NOW + 2000), 2);
    assert_int_equal(c[0].event.id, 10);
    assert_int_equal(c[0].cursor.after, 0);
    assert_int_equal(c[0].until, 0);
    assert_int_equal(c[1].event.id, 11);
    assert_int_equal(c[1].cursor.after, 0);
    assert_int_equal(ask("SELECT count(*) FROM deliveries WHERE event_id = 10 AND state = 5"), 2);
    assert_int_equal(
        ask("SELECT state FROM deliveries WHERE event_id = 10 AND after = 0 AND epoch = 6"),
        DELIVERY_RETRYING);
}

/* ---- order ---- */

static void later_ones_of_a_key_wait_behind_the_first(void **state)
{
    (void)state;
    struct delivery_record b[4] = {keyed(10, 1), keyed(11, 1), waiting(12, 1), waiting(20, 2)};
    write_at(b, 4, NOW);
    assert_int_equal(state_of(10), DELIVERY_DELAYED);
    assert_int_equal(state_of(11), DELIVERY_WAITING);
    assert_int_equal(state_of(12), DELIVERY_WAITING);
    assert_int_equal(state_of(20), DELIVERY_DELAYED); /* none is ahead of it */
    struct claim c[4];
    assert_int_equal(claim(c, 4, EPOCH, NOW + 2000), 2);
    assert_int_equal(c[0].event.id, 20);
    struct delivery_record done[2] = {ended(&c[0], RECORD_DONE), ended(&c[1], RECORD_DONE)};
    write_at(done, 2, NOW + 2500);
    assert_true(done[0].key_is_free);
    assert_false(done[1].key_is_free);
    assert_int_equal(state_of(11), DELIVERY_DELAYED);
    assert_int_equal(next_due(), NOW + 2500);
}

static void a_dead_one_holds_its_key_and_no_other(void **state)
{
    (void)state;
    struct delivery_record b[3] = {keyed(10, 1), waiting(11, 1), keyed(20, 2)};
    b[0].state = DELIVERY_DEAD;
    write_at(b, 3, NOW);
    assert_int_equal(state_of(11), DELIVERY_WAITING);
    assert_int_equal(state_of(20), DELIVERY_DELAYED);
    struct call c = {.filter.event = 10, .slice.max = 1, .now = NOW};
    run(run_discard, &c);
    assert_int_equal(state_of(11), DELIVERY_DELAYED);
}

static void a_lower_event_takes_the_turn_unless_one_is_under_way(void **state)
{
    (void)state;
    write_one(keyed(11, 1));
    write_one(keyed(10, 1));
    assert_int_equal(state_of(10), DELIVERY_DELAYED);
    assert_int_equal(state_of(11), DELIVERY_WAITING);
    struct claim c;
    claim(&c, 1, EPOCH, NOW + 2000);
    assert_int_equal(c.event.id, 10);
    write_one(waiting(9, 1));
    assert_int_equal(state_of(9), DELIVERY_WAITING);
    assert_int_equal(state_of(10), DELIVERY_RETRYING);
    write_one(ended(&c, RECORD_FAIL));
    assert_int_equal(state_of(9), DELIVERY_DELAYED);
    assert_int_equal(state_of(10), DELIVERY_WAITING);
    claim(&c, 1, EPOCH, NOW + 2000);
    write_one(waiting(8, 1));
    struct call again = {.now = NOW + 3000};
    run(run_reopen, &again); /* nothing is under way any more: order as it should be */
    assert_int_equal(state_of(8), DELIVERY_DELAYED);
    assert_int_equal(state_of(9), DELIVERY_WAITING);
}

static void keys_with_open_rows_are_found_step_by_step(void **state)
{
    (void)state;
    for (uint64_t i = 0; i < 20; i++) {
        write_one(waiting(100 + i, 7));
        write_one(waiting(200 + i, 9));
    }
    struct delivery_record b = keyed(10, 8);
    b.state = DELIVERY_DROPPED;
    write_one(b);
    b = keyed(11, 3);
    b.lane = LANE_CLEANUP;
    write_one(b);
    struct open_key keys[2];
    struct call c = {.keys = keys, .max = 2};
    run(run_keys, &c);
    assert_int_equal(c.n, 2);
    assert_int_equal(keys[0].lane, LANE_GRAPH);
    assert_int_equal(keys[0].key, 7);
    assert_int_equal(keys[1].key, 9);
    c.after = keys[1];
    run(run_keys, &c);
    assert_int_equal(c.n, 1);
    assert_int_equal(keys[0].lane, LANE_CLEANUP);
    assert_int_equal(keys[0].key, 3);
}

static void events_in_the_delivery_store_are_known(void **state)
{
    (void)state;
    struct delivery_record b[5] = {page(10, 0), page(10, 100), page(11, 0), page(12, 0),
                                   page(13, 0)};
    b[2].consumer = "mail";
    b[3].replay = 4;
    write_at(b, 5, NOW);
    struct claim c[8];
    assert_int_equal(claim(c, 8, EPOCH, NOW + 2000), 5);
    for (int i = 0; i < 5; i++)
        if (c[i].event.id == 13)
            write_one(ended(&c[i], RECORD_DONE));
    struct recorded recorded[8];
    struct call all = {.first = 1, .last = 100, .recorded = recorded, .max = 8};
    run(run_recorded, &all);
    assert_int_equal(all.n, 2);
    assert_int_equal(recorded[0].event, 10);
    assert_string_equal(recorded[0].consumer, "timelines");
    assert_int_equal(recorded[1].event, 11);
    assert_string_equal(recorded[1].consumer, "mail");
}

/* ---- claims without a rule ---- */

static void a_claim_without_a_rule_is_buried(void **state)
{
    (void)state;
    struct delivery_record b[2] = {keyed(10, 1), waiting(11, 1)};
    write_at(b, 2, NOW);
    struct claim c;
    claim(&c, 1, EPOCH, NOW + 2000);
    struct call bury = {.delivery = c.delivery, .now = NOW};
    run(run_bury, &bury);
    assert_int_equal(state_of(10), DELIVERY_DEAD);
    assert_int_equal(state_of(11), DELIVERY_WAITING);
    assert_int_equal(ask("SELECT reason = 'UNKNOWN_CONSUMER' FROM deliveries WHERE event_id = 10"),
                     1);
    bury.delivery = (uint64_t)ask("SELECT id FROM deliveries WHERE event_id = 11");
    run(run_bury, &bury); /* only what was to be tried */
    assert_int_equal(state_of(11), DELIVERY_WAITING);
}

static void a_row_that_cannot_be_read_is_parked_and_comes_back(void **state)
{
    (void)state;
    struct delivery_record b[3] = {keyed(10, 1), waiting(11, 1), page(12, 0)};
    write_at(b, 3, NOW);
    plain_db_run(store, "UPDATE deliveries SET version = 99 WHERE event_id = 10");
    plain_db_run(store, "UPDATE deliveries SET lane = 'gone' WHERE event_id = 12");
    plain_db_run(store, "UPDATE delivery_counts SET lane = 'gone' WHERE lane = 'small'");
    struct claim c[4];
    assert_int_equal(claim(c, 4, EPOCH, NOW + 2000), 0);
    assert_int_equal(state_of(10), DELIVERY_PARKED);
    assert_int_equal(state_of(11), DELIVERY_DELAYED); /* an unreadable event holds up no other */
    assert_int_equal(state_of(12), DELIVERY_DEAD);
    assert_int_equal(ask("SELECT reason = 'UNKNOWN_VERSION' FROM deliveries WHERE event_id = 10"),
                     1);
    struct call r = {.slice.max = 10, .now = NOW + 3000};
    run(run_release, &r);
    assert_int_equal(r.slice.changed, 0); /* still unreadable */
    plain_db_run(store, "UPDATE deliveries SET version = 1 WHERE event_id = 10");
    r.slice.after = 0;
    run(run_release, &r);
    assert_int_equal(r.slice.changed, 1);
    assert_int_equal(state_of(10), DELIVERY_DELAYED);
    assert_int_equal(state_of(11), DELIVERY_WAITING);
    assert_int_equal(ask("SELECT count(*) FROM outbox"), 0);
}

static void an_unreadable_event_is_parked_released_and_settled(void **state)
{
    (void)state;
    put_in_outbox(99);
    struct delivery_record b = {.kind = RECORD_PARK, .event.id = 50, .reason = "UNKNOWN_VERSION"};
    write_one(b);
    write_one(b);
    assert_int_equal(ask("SELECT count(*) FROM deliveries"), 1);
    assert_int_equal(state_of(50), DELIVERY_PARKED);
    assert_int_equal(ask("SELECT state FROM outbox"), 2);
    struct call r = {.slice.max = 10, .now = NOW};
    run(run_release, &r);
    assert_int_equal(r.slice.changed, 0);
    assert_true(r.slice.end);
    plain_db_run(store, "UPDATE deliveries SET version = 1"); /* the program learns to read it */
    r.slice.after = 0;
    run(run_release, &r);
    assert_int_equal(r.slice.changed, 1);
    assert_int_equal(state_of(50), DELIVERY_RELEASED);
    assert_int_equal(ask("SELECT state FROM outbox"), 0);
    write_one(b); /* and forgets it again */
    assert_int_equal(ask("SELECT count(*) FROM deliveries"), 1);
    assert_int_equal(state_of(50), DELIVERY_PARKED);
    plain_db_run(store, "UPDATE deliveries SET version = 1");
    r.slice.after = 0;
    run(run_release, &r);
    b.kind = RECORD_SETTLE;
    write_one(b);
    write_one(b);
    assert_int_equal(ask("SELECT state FROM outbox"), 1);
    assert_int_equal(ask("SELECT count FROM event_counts WHERE type = 'post.created'"), 1);
}

static void a_parked_event_is_given_up_only_by_name(void **state)
{
    (void)state;
    put_in_outbox(99);
    write_one(
        (struct delivery_record){.kind = RECORD_PARK, .event.id = 50, .reason = "UNKNOWN_VERSION"});
    struct call d = {.slice.max = 10, .now = NOW};
    run(run_discard, &d);
    assert_int_equal(d.slice.changed, 0);
    d.slice.after = 0;
    d.filter.state = DELIVERY_PARKED;
    run(run_discard, &d);
    assert_int_equal(d.slice.changed, 1);
    assert_int_equal(ask("SELECT state FROM outbox"), 1);
}

/* ---- many at once ---- */

static void a_full_batch_of_many_keys_and_cells(void **state)
{
    (void)state;
    static struct delivery_record b[BULK];
    static const char *const consumers[] = {"a", "b", "c", "d", "e", "f", "g", "h", "i", "j"};
    for (uint64_t i = 0; i < BULK; i++) {
        b[i] = keyed(1000 + i, 1 + i % 100);
        b[i].consumer = consumers[i % COUNT_OF(consumers)];
        b[i].lane = i % 3 ? LANE_GRAPH : LANE_CLEANUP;
        b[i].state = i % 5 ? DELIVERY_DELAYED : DELIVERY_DEAD;
    }
    write_at(b, BULK, NOW);
    assert_int_equal(ask("SELECT count(*) FROM deliveries"), BULK);
    assert_int_equal(ask("SELECT sum(count) FROM delivery_counts"), BULK);
    /* each key has its one turn, or its first is dead */
    assert_int_equal(ask("SELECT max(n) FROM (SELECT count(*) AS n FROM deliveries "
                         "WHERE state IN (1, 2) GROUP BY lane, order_key)"),
                     1);
    assert_int_equal(
        ask("SELECT count(*) FROM deliveries d WHERE state = 1 AND EXISTS (SELECT 1 FROM "
            "deliveries o WHERE o.lane = d.lane AND o.order_key = d.order_key AND o.state <= 4 "
            "AND o.event_id < d.event_id)"),
        0);
    assert_int_equal(
        ask("SELECT count(*) FROM deliveries d WHERE state = 3 AND NOT EXISTS (SELECT 1 FROM "
            "deliveries o WHERE o.lane = d.lane AND o.order_key = d.order_key AND o.state <= 4 "
            "AND o.event_id < d.event_id)"),
        0);
    static struct claim c[BULK];
    size_t n = claim(c, BULK, EPOCH + 1, NOW + 5000);
    assert_int_equal(n, ask("SELECT count(*) FROM deliveries WHERE state = 2"));
    assert_true(n > 100);
}

static void states_have_names(void **state)
{
    (void)state;
    for (int i = DELIVERY_DELAYED; i < DELIVERY_STATES; i++) {
        enum delivery_state parsed;
        assert_true(
            delivery_state_parse(str_of(delivery_state_name((enum delivery_state)i)), &parsed));
        assert_int_equal(parsed, i);
    }
    enum delivery_state none;
    assert_false(delivery_state_parse(STR(""), &none));
    assert_false(delivery_state_parse(STR("undead"), &none));
}

/* ---- the plans ---- */

static void every_statement_is_served_by_an_index(void **state)
{
    (void)state;
    static const struct wanted_plan wanted[] = {
        {"due_at <= $1 ORDER BY due_at", "USING INDEX deliveries_due "},
        {"SELECT due_at FROM deliveries", "INDEX deliveries_due"},
        {"state <= 4 ORDER BY event_id, id LIMIT 1", "USING INDEX deliveries_key ("},
        {"AND state IN (1, 2) AND (state = 2 OR id <> $3)", "INDEX deliveries_turn ("},
        {"AND part = $3 AND after = $4 AND replay = $5", "USING INDEX deliveries_what ("},
        {"WHERE state = 2 ORDER BY id", "USING INDEX deliveries_retrying"},
    };
    check_plans(wanted, COUNT_OF(wanted));
}

#define CASE(name) cmocka_unit_test_setup(name, set_up)

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(a_failure_is_tried_again_when_it_is_due),
        CASE(a_claim_ends_by_itself),
        CASE(the_longest_due_come_first),
        CASE(a_restart_makes_what_was_under_way_due),
        CASE(failing_again_takes_the_new_time_and_reason),
        CASE(the_history_keeps_the_newest_tries),
        CASE(a_detail_that_was_cut_in_a_character_is_kept_whole),
        CASE(recording_a_page_again_changes_its_row),
        CASE(what_was_given_up_stays_given_up),
        CASE(what_was_done_and_fails_again_has_a_new_row),
        CASE(a_dead_row_stays_dead),
        CASE(a_repetition_does_not_disturb_a_try_under_way),
        CASE(two_reaches_of_a_page_become_the_farther),
        CASE(a_try_that_knew_less_leaves_the_rest),
        CASE(progress_is_kept),
        CASE(a_row_that_meets_another_takes_it_over),
        CASE(positions_of_another_epoch_begin_anew),
        CASE(later_ones_of_a_key_wait_behind_the_first),
        CASE(a_dead_one_holds_its_key_and_no_other),
        CASE(a_lower_event_takes_the_turn_unless_one_is_under_way),
        CASE(keys_with_open_rows_are_found_step_by_step),
        CASE(events_in_the_delivery_store_are_known),
        CASE(a_claim_without_a_rule_is_buried),
        CASE(a_row_that_cannot_be_read_is_parked_and_comes_back),
        CASE(an_unreadable_event_is_parked_released_and_settled),
        CASE(a_parked_event_is_given_up_only_by_name),
        CASE(a_full_batch_of_many_keys_and_cells),
        CASE(states_have_names),
        CASE(every_statement_is_served_by_an_index),
    };
    return cmocka_run_group_tests_name("delivery_store", tests, set_up_all, tear_down_all);
}
