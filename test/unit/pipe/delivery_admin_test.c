/* The delivery store for operators: re-drives, lists, groups, counts, cleaning; and the plan of
 * every statement that was run. */
#include "delivery_desk.h"

/* ---- operators ---- */

static void dead_ones_are_driven_again_at_a_rate(void **state)
{
    (void)state;
    for (uint64_t i = 0; i < 7; i++) {
        struct delivery_record b = page(10 + i, 0);
        b.state = DELIVERY_DEAD;
        b.tries = 7;
        b.reason = i == 3 ? "TIMEOUT" : "UNAVAILABLE";
        write_one(b);
    }
    struct call c = {.filter.reason = STR("UNAVAILABLE"),
                     .slice.max = 4,
                     .start = NOW + 100,
                     .rate = 4,
                     .now = NOW};
    run(run_redrive, &c);
    assert_int_equal(c.slice.changed, 4);
    assert_false(c.slice.end);
    c.before = c.slice.changed;
    run(run_redrive, &c);
    assert_int_equal(c.slice.changed, 2);
    assert_true(c.slice.end);
    assert_int_equal(state_of(13), DELIVERY_DEAD);
    assert_int_equal(ask("SELECT due_at FROM deliveries WHERE event_id = 10"), NOW + 100);
    assert_int_equal(ask("SELECT due_at FROM deliveries WHERE event_id = 12"), NOW + 100 + 500);
    assert_int_equal(ask("SELECT due_at FROM deliveries WHERE event_id = 16"), NOW + 100 + 1250);
    assert_int_equal(ask("SELECT max(tries) FROM deliveries WHERE state = 1"), 0);
}

static void of_a_key_only_the_first_is_driven_again(void **state)
{
    (void)state;
    for (uint64_t i = 0; i < 3; i++) {
        struct delivery_record b = keyed(10 + i, 1);
        b.state = DELIVERY_DEAD;
        write_one(b);
    }
    struct call c = {.filter.event = 11, .slice.max = 4, .start = NOW, .now = NOW};
    run(run_redrive, &c);
    assert_int_equal(state_of(11), DELIVERY_WAITING); /* behind a dead one */
    c.filter.event = 0;
    c.slice.after = 0;
    c.rate = 1;
    run(run_redrive, &c);
    assert_int_equal(state_of(10), DELIVERY_DELAYED);
    assert_int_equal(state_of(12), DELIVERY_WAITING);
    struct claim claimed;
    claim(&claimed, 1, EPOCH, NOW);
    write_one(ended(&claimed, RECORD_DONE));
    claim(&claimed, 1, EPOCH, NOW);
    write_one(ended(&claimed, RECORD_DONE));
    assert_int_equal(next_due(), NOW + 1000); /* the third keeps its place in the rate */
}

static void an_unknown_outcome_is_tried_once_by_order(void **state)
{
    (void)state;
    struct delivery_record b = page(10, 0);
    b.state = DELIVERY_DEAD;
    b.reason = err_name(ERR_UNKNOWN_COMMIT);
    write_one(b);
    struct call c = {.slice.max = 4, .start = NOW, .now = NOW};
    run(run_redrive, &c);
    struct claim claimed;
    assert_int_equal(claim(&claimed, 1, EPOCH, NOW), 1);
    assert_true(claimed.forced);
    run(run_reopen, &c); /* the process dies in the middle of it */
    assert_int_equal(claim(&claimed, 1, EPOCH, NOW), 1);
    assert_false(claimed.forced);
}

struct listed {
    uint64_t events[16];
    size_t n;
    uint64_t last;
};

static void visit(void *ctx, const struct delivery_row *row)
{
    struct listed *l = ctx;
    assert_true(l->n < COUNT_OF(l->events));
    assert_true(row->type.len > 0 && row->payload.len > 0 && row->opened_ms == NOW);
    l->events[l->n++] = row->event_id;
    l->last = row->delivery;
}

struct listing {
    struct delivery_filter filter;
    uint64_t below;
    size_t limit;
    struct listed out;
    uint64_t go_on_below;
};

static enum err run_list(struct tx *tx, void *arg)
{
    struct listing *l = arg;
    l->out.n = 0;
    return delivery_store_list(tx, &l->filter, l->below, l->limit, visit, &l->out, &l->go_on_below);
}

static size_t list(struct listing *l)
{
    if (l->below == 0)
        l->below = UINT64_MAX;
    if (l->limit == 0)
        l->limit = COUNT_OF(l->out.events);
    assert_int_equal(db_read(plain_db_port(store), run_list, l, NULL), OK);
    return l->out.n;
}

static void lists_are_filtered_newest_first(void **state)
{
    (void)state;
    for (uint64_t i = 0; i < 6; i++) {
        struct delivery_record b = i % 2 ? keyed(10 + i, i) : page(10 + i, 0);
        b.state = i < 4 ? DELIVERY_DEAD : DELIVERY_DELAYED;
        b.reason = i == 0 ? "TIMEOUT" : "UNAVAILABLE";
        b.consumer = i == 1 ? "mail" : "timelines";
        write_one(b);
    }
    struct listing all = {.limit = 4};
    assert_int_equal(list(&all), 4);
    assert_int_equal(all.out.events[0], 15);
    all.below = all.out.last;
    assert_int_equal(list(&all), 2);
    assert_int_equal(all.out.events[1], 10);
    struct listing dead = {.filter.state = DELIVERY_DEAD};
    assert_int_equal(list(&dead), 4);
    dead.filter.reason = STR("TIMEOUT");
    assert_int_equal(list(&dead), 1);
    assert_int_equal(dead.out.events[0], 10);
    struct listing late = {.filter = {.state = DELIVERY_DELAYED, .reason = STR("TIMEOUT")}};
    assert_int_equal(list(&late), 0);
    struct listing mail = {.filter.consumer = STR("mail")};
    assert_int_equal(list(&mail), 1);
    struct listing type = {.filter.type = STR("post.created")};
    assert_int_equal(list(&type), 3);
    struct listing event = {.filter.event = 12};
    assert_int_equal(list(&event), 1);
    struct listing one = {.filter.delivery = event.out.last};
    assert_int_equal(list(&one), 1);
    assert_int_equal(one.out.events[0], 12);
    one.filter.state = DELIVERY_DONE;
    assert_int_equal(list(&one), 0);
    struct listing actor = {.filter.key = 42};
    assert_int_equal(list(&actor), 3);
    struct listing few = {.filter.key = 42, .limit = 1};
    assert_int_equal(list(&few), 1);
    assert_int_equal(few.out.events[0], 14);
}

/* A look ends after so many rows, and says where to go on: what lies below is not passed off as
 * nothing. */
static void a_list_that_looked_at_enough_says_where_to_go_on(void **state)
{
    (void)state;
    struct delivery_record b = page(10, 0);
    b.state = DELIVERY_DEAD;
    b.consumer = "mail";
    write_one(b);
    plain_db_run(store,
                 "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 50001) "
                 "INSERT INTO deliveries (id, event_id, type, version, payload, consumer, lane, "
                 "order_key, part, active_since, started, after, until, epoch, state, tries, "
                 "due_at, opened_at, changed_at, reason) SELECT id + i, event_id + i, type, "
                 "version, payload, 'timelines', lane, 0, 0, 0, 0, 0, 0, epoch, state, tries, "
                 "due_at, opened_at, changed_at, reason FROM deliveries, n");
    struct listing mail = {.filter.consumer = STR("mail")};
    assert_int_equal(list(&mail), 0);
    assert_true(mail.go_on_below > 0);
    mail.below = mail.go_on_below;
    assert_int_equal(list(&mail), 1);
    assert_int_equal(mail.go_on_below, 0);
    struct listing few = {.filter.consumer = STR("timelines"), .limit = 3};
    assert_int_equal(list(&few), 3);
    assert_int_equal(few.go_on_below, 0);
}

static void dead_ones_are_grouped_the_largest_first(void **state)
{
    (void)state;
    for (uint64_t i = 0; i < 5; i++) {
        struct delivery_record b = page(10 + i, 0);
        b.state = DELIVERY_DEAD;
        b.reason = i < 2 ? "TIMEOUT" : "UNAVAILABLE";
        b.lane = i == 4 ? LANE_REST : LANE_SMALL;
        write_one(b);
    }
    write_one(page(20, 0));
    struct delivery_group groups[4];
    struct call c = {.groups = groups, .max = 4};
    run(run_groups, &c);
    assert_int_equal(c.n, 2);
    assert_string_equal(groups[0].reason, "UNAVAILABLE");
    assert_string_equal(groups[0].consumer, "timelines");
    assert_string_equal(groups[0].type, "post.created");
    assert_int_equal(groups[0].state, DELIVERY_DEAD);
    assert_int_equal(groups[0].count, 3);
    assert_int_equal(groups[0].oldest_event, 12);
    assert_int_equal(groups[0].newest_event, 14);
    assert_int_equal(groups[1].count, 2);
    c.max = 1;
    run(run_groups, &c);
    assert_int_equal(c.n, 1);
    struct call drive = {.slice.max = 10, .start = NOW, .now = NOW};
    run(run_redrive, &drive);
    run(run_groups, &c);
    assert_int_equal(c.n, 0);
}

static void counts_are_by_consumer_type_and_lane(void **state)
{
    (void)state;
    struct delivery_record b[4] = {page(12, 0), page(11, 0), keyed(9, 1), waiting(10, 1)};
    b[0].consumer = "mail";
    b[2].state = DELIVERY_DEAD;
    write_at(b, 4, NOW);
    struct delivery_count counts[4];
    struct call c = {.counts = counts, .max = 4};
    run(run_counts, &c);
    assert_int_equal(c.n, 3);
    assert_string_equal(counts[0].consumer, "mail");
    assert_int_equal(counts[0].states[DELIVERY_DELAYED], 1);
    assert_int_equal(counts[0].oldest_open, 12);
    assert_string_equal(counts[1].type, "follow.created");
    assert_string_equal(counts[1].lane, "graph");
    assert_int_equal(counts[1].states[DELIVERY_DEAD], 1);
    assert_int_equal(counts[1].states[DELIVERY_WAITING], 1);
    assert_int_equal(counts[1].oldest_open, 0); /* the dead one is not late … */
    assert_int_equal(counts[2].oldest_open, 11);
    c.max = 1;
    run(run_counts, &c);
    assert_int_equal(c.n, 1);
}

/* ---- cleaning ---- */

static void old_rows_go_in_slices(void **state)
{
    (void)state;
    struct delivery_record b = page(10, 0);
    b.state = DELIVERY_DROPPED;
    for (uint64_t i = 0; i < 100; i++) {
        b.event.id = 10 + i;
        write_at(&b, 1, NOW + (int64_t)i);
    }
    write_one(page(200, 0));
    struct call c = {.closed = NOW + 90, .max = 70, .now = NOW + 1000};
    run(run_clean, &c);
    assert_int_equal(c.n, 70);
    assert_int_equal(ask("SELECT min(event_id) FROM deliveries"), 80); /* the oldest first */
    run(run_clean, &c);
    assert_int_equal(c.n, 20);
    assert_int_equal(ask("SELECT count(*) FROM deliveries"), 11);
    assert_int_equal(ask("SELECT count FROM delivery_counts WHERE state = 7"), 10);
    c.closed = 0;
    run(run_clean, &c);
    assert_int_equal(c.n, 0); /* never */
}

static void a_dead_row_that_goes_lets_its_key_go_on(void **state)
{
    (void)state;
    put_in_outbox(99);
    struct delivery_record b[3] = {
        keyed(10, 1),
        waiting(11, 1),
        {.kind = RECORD_PARK, .event.id = 50, .reason = "UNKNOWN_VERSION"}};
    b[0].state = DELIVERY_DEAD;
    write_at(b, 3, NOW);
    struct call c = {.closed = NOW + 50, .dead = NOW, .max = 10, .now = NOW + 1000};
    run(run_clean, &c);
    assert_int_equal(c.n, 0);
    c.dead = NOW + 1;
    run(run_clean, &c);
    assert_int_equal(c.n, 2);
    assert_int_equal(state_of(11), DELIVERY_DELAYED);
    assert_int_equal(next_due(), NOW + 1000);
    assert_int_equal(ask("SELECT state FROM outbox"), 1); /* may be trimmed like any other */
}

/* ---- the plans ---- */

static void every_statement_is_served_by_an_index(void **state)
{
    (void)state;
    static const struct wanted_plan wanted[] = {
        {"AND lane = $3 AND state <= 2 ORDER BY event_id", "INDEX deliveries_open ("},
        {"changed_at < $1 ORDER BY changed_at", "USING INDEX deliveries_closed ("},
        {"opened_at < $1 ORDER BY opened_at", "USING INDEX deliveries_opened ("},
        {"state = $3 AND reason = $4 AND id < $1", "USING INDEX deliveries_reason ("},
        {"AND state = $3 AND id < $1", "USING INDEX deliveries_state ("},
        {"WHERE state = 1 AND id < $1", "USING INDEX deliveries_delayed ("},
    };
    check_plans(wanted, COUNT_OF(wanted));
}

#define CASE(name) cmocka_unit_test_setup(name, set_up)

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(dead_ones_are_driven_again_at_a_rate),
        CASE(of_a_key_only_the_first_is_driven_again),
        CASE(an_unknown_outcome_is_tried_once_by_order),
        CASE(lists_are_filtered_newest_first),
        CASE(a_list_that_looked_at_enough_says_where_to_go_on),
        CASE(dead_ones_are_grouped_the_largest_first),
        CASE(counts_are_by_consumer_type_and_lane),
        CASE(old_rows_go_in_slices),
        CASE(a_dead_row_that_goes_lets_its_key_go_on),
        CASE(every_statement_is_served_by_an_index),
    };
    return cmocka_run_group_tests_name("delivery_admin", tests, set_up_all, tear_down_all);
}
