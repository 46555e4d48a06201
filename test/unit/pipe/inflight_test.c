/* Work items, the watermark and the order of keys: random histories of publishing, delivering,
 * failing, delivery_record and retrying against a naive model, and the names of work items one by
 * one. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "base/check.h"
#include "base/rand.h"
#include "pipe/inflight.h"

enum { POST, FOLLOW, ECHO, DELETE, RULES };

static const struct rule rules[RULES] = {
    [POST] = {.consumer = "timelines",
              .on = EVENT_POST_CREATED,
              .audience = TO_FOLLOWERS,
              .lane = LANE_SMALL},
    [FOLLOW] = {.consumer = "backfill",
                .on = EVENT_FOLLOW_CREATED,
                .audience = TO_ACTOR,
                .lane = LANE_GRAPH},
    [ECHO] = {.consumer = "echo",
              .on = EVENT_FOLLOW_CREATED,
              .audience = TO_ACTOR,
              .lane = LANE_GRAPH},
    [DELETE] = {.consumer = "cleanup",
                .on = EVENT_POST_DELETED,
                .audience = TO_FOLLOWERS,
                .lane = LANE_CLEANUP},
};

static const uint16_t on_post[] = {POST}, on_follow[] = {FOLLOW, ECHO}, on_delete[] = {DELETE};

static struct inflight_start start_of(uint64_t id, enum event_type type, uint64_t actor)
{
    struct inflight_start s = {.event = {.id = id, .type = type, .actor = actor}, .wanted = 1};
    s.rules = type == EVENT_POST_CREATED     ? on_post
              : type == EVENT_FOLLOW_CREATED ? on_follow
                                             : on_delete;
    return s;
}

static struct inflight_exit exit_by(const struct bus_message *m, enum exit_how how)
{
    return (struct inflight_exit){.slot = m->slot,
                                  .event_id = m->event.id,
                                  .after = m->cursor.after,
                                  .rule = m->rule,
                                  .part = (uint8_t)m->cursor.part,
                                  .how = how,
                                  .at_end = true};
}

static bool leave(struct inflight *f, const struct bus_message *m, enum exit_how how)
{
    struct inflight_exit x = exit_by(m, how);
    inflight_leave(f, &x, 1);
    return x.found;
}

static struct inflight_counts counts_of(struct inflight *f)
{
    static struct inflight_counts counts;
    inflight_count(f, &counts);
    return counts;
}

/* ---- random histories ---- */

enum { EVENTS = 150, INFLIGHT_MAX = 40, ACTORS = 6, OUT_MAX = 400 };

struct row { /* in the delivery store */
    uint64_t event, actor;
    uint16_t rule;
    bool retrying;
};

struct model {
    struct rand r;
    uint64_t ids[EVENTS], actor[EVENTS];
    int items[EVENTS]; /* not delivered and not in the delivery store */
    size_t count;
    uint64_t passed, next_id;
    struct bus_message out[OUT_MAX];
    size_t out_count;
    struct row rows[EVENTS * 2]; /* by event, then rule: as the delivery store orders them */
    size_t row_count;
    uint64_t delivered[ACTORS]; /* the last event of the ordered lane, with its rule */
    size_t deliveries, dropped;
};

static size_t undone(const struct model *m)
{
    size_t n = 0;
    for (size_t i = 0; i < m->count; i++)
        n += m->items[i] > 0;
    return n;
}

static size_t index_of(const struct model *m, uint64_t id)
{
    for (size_t i = 0; i < m->count; i++) {
        if (m->ids[i] == id)
            return i;
    }
    abort();
}

static bool is_ordered(uint16_t rule)
{
    return rule != RULE_NONE && lane_is_ordered(rules[rule].lane);
}

static bool has_rows(const struct model *m, uint64_t actor)
{
    for (size_t i = 0; i < m->row_count; i++) {
        if (is_ordered(m->rows[i].rule) && m->rows[i].actor == actor)
            return true;
    }
    return false;
}

static void add_row(struct model *m, const struct bus_message *msg)
{
    size_t at = m->row_count++;
    while (at > 0 && (m->rows[at - 1].event > msg->event.id ||
                      (m->rows[at - 1].event == msg->event.id && m->rows[at - 1].rule > msg->rule)))
        at--;
    for (size_t i = m->row_count - 1; i > at; i--)
        m->rows[i] = m->rows[i - 1];
    m->rows[at] = (struct row){msg->event.id, msg->event.actor, msg->rule, false};
}

static void remove_row(struct inflight *f, struct model *m, uint64_t event, uint16_t rule)
{
    size_t at = 0;
    while (m->rows[at].event != event || m->rows[at].rule != rule)
        at++;
    uint64_t actor = m->rows[at].actor;
    for (size_t i = at + 1; i < m->row_count; i++)
        m->rows[i - 1] = m->rows[i];
    m->row_count--;
    if (is_ordered(rule) && !has_rows(m, actor))
        inflight_unblock_key(f, rules[rule].lane, actor);
}

static void compare(struct inflight *f, const struct model *m)
{
    uint64_t through = m->passed;
    for (size_t i = m->count; i-- > 0;) {
        if (m->items[i])
            through = m->ids[i] - 1;
    }
    struct inflight_counts counts = counts_of(f);
    assert_int_equal(inflight_through(f), through);
    assert_int_equal(counts.undone, undone(m));
    assert_int_equal(counts.done, m->count - undone(m));
    assert_int_equal(inflight_room(f), INFLIGHT_MAX - undone(m));
    uint64_t oldest = 0, items = 0;
    for (size_t i = 0; i < counts.cell_count; i++) {
        items += counts.cells[i].count;
        if (counts.cells[i].oldest && (!oldest || counts.cells[i].oldest < oldest))
            oldest = counts.cells[i].oldest;
    }
    uint64_t lanes = 0;
    for (int lane = 0; lane < LANE_COUNT; lane++)
        lanes += f->lane_items[lane];
    assert_int_equal(items, lanes);
    for (uint64_t actor = 0; actor < ACTORS; actor++) {
        int busy = 0;
        for (size_t i = 0; i < m->out_count; i++)
            busy += is_ordered(m->out[i].rule) && m->out[i].event.actor == actor;
        assert_true(busy <= 1); /* of one key one at a time */
    }
}

static void begin_some(struct inflight *f, struct model *m)
{
    struct inflight_start starts[8];
    size_t room = inflight_room(f), n = (size_t)rand_below(&m->r, COUNT_OF(starts) + 1);
    n = n < room ? n : room;
    n = n < EVENTS - m->count ? n : EVENTS - m->count;
    for (size_t i = 0; i < n; i++) {
        m->next_id += 1 + rand_below(&m->r, 3);
        static const enum event_type types[] = {EVENT_POST_CREATED, EVENT_FOLLOW_CREATED,
                                                EVENT_FOLLOW_CREATED, EVENT_POST_DELETED};
        enum event_type type = types[rand_below(&m->r, 4)];
        uint64_t actor = rand_below(&m->r, ACTORS);
        starts[i] = start_of(m->next_id, type, actor);
        if (type == EVENT_FOLLOW_CREATED)
            starts[i].wanted = 1 + (uint32_t)rand_below(&m->r, 3);
        if (rand_below(&m->r, 40) == 0)
            starts[i] = (struct inflight_start){.event = {.id = m->next_id, .actor = actor},
                                                .unreadable = true};
        m->ids[m->count] = m->next_id;
        m->actor[m->count] = actor;
        m->items[m->count++] = starts[i].unreadable ? 1 : __builtin_popcount(starts[i].wanted);
    }
    m->next_id += rand_below(&m->r, 2); /* an event that no rule wants may come last */
    inflight_begin(f, starts, n, m->next_id);
    m->passed = m->next_id;
}

static void publish_some(struct inflight *f, struct model *m)
{
    enum lane lane = (enum lane)rand_below(&m->r, LANE_COUNT);
    struct bus_message msg;
    if (m->out_count == OUT_MAX || !inflight_take_ready(f, lane, 0, UINT64_MAX, &msg))
        return;
    if (rand_below(&m->r, 5) == 0) { /* the lane was full: it comes first the next time */
        inflight_give_back(f, &msg);
        struct bus_message again;
        assert_true(inflight_take_ready(f, lane, 0, UINT64_MAX, &again));
        assert_int_equal(again.event.id, msg.event.id);
        assert_int_equal(again.rule, msg.rule);
    }
    m->out[m->out_count++] = msg;
}

static void note_delivered(struct model *m, const struct bus_message *msg)
{
    m->deliveries++;
    if (!is_ordered(msg->rule))
        return;
    uint64_t now = msg->event.id * RULES + msg->rule;
    assert_true(now > m->delivered[msg->event.actor]); /* each once, in order */
    m->delivered[msg->event.actor] = now;
}

static void end_one(struct inflight *f, struct model *m, bool healthy)
{
    if (m->out_count == 0)
        return;
    size_t at = (size_t)rand_below(&m->r, m->out_count);
    struct bus_message msg = m->out[at];
    m->out[at] = m->out[--m->out_count];
    bool retry = msg.kind == SLOT_RETRY;
    uint64_t fate = healthy ? 9 : rand_below(&m->r, 10);
    if (fate == 0 && !retry) { /* fails: in the delivery store */
        add_row(m, &msg);
        assert_true(leave(f, &msg, EXIT_RECORDED));
    } else if (fate == 0) { /* fails again */
        for (size_t i = 0; i < m->row_count; i++) {
            if (m->rows[i].event == msg.event.id && m->rows[i].rule == msg.rule)
                m->rows[i].retrying = false;
        }
        assert_true(leave(f, &msg, EXIT_RECORDED));
    } else if (fate == 1) { /* given up */
        assert_true(leave(f, &msg, EXIT_DROPPED));
        m->dropped++;
        if (retry)
            remove_row(f, m, msg.event.id, msg.rule);
    } else {
        note_delivered(m, &msg);
        assert_true(leave(f, &msg, EXIT_DONE));
        if (retry)
            remove_row(f, m, msg.event.id, msg.rule);
    }
    assert_false(leave(f, &msg, EXIT_DONE)); /* it left */
    if (!retry)
        m->items[index_of(m, msg.event.id)]--;
}

static void record_blocked(struct inflight *f, struct model *m)
{
    struct bus_message held[16];
    size_t n = inflight_take_blocked(f, held, 1 + (size_t)rand_below(&m->r, COUNT_OF(held)));
    for (size_t i = 0; i < n; i++) {
        if (held[i].rule != RULE_NONE)
            add_row(m, &held[i]);
        else
            m->deliveries++; /* parked */
        assert_true(leave(f, &held[i], EXIT_RECORDED));
        m->items[index_of(m, held[i].event.id)]--;
    }
}

/* The delivery store claims the first open row of a key. */
static void retry_one(struct inflight *f, struct model *m)
{
    if (m->row_count == 0)
        return;
    size_t at = (size_t)rand_below(&m->r, m->row_count);
    for (size_t i = 0; is_ordered(m->rows[at].rule) && i < m->row_count; i++) {
        if (is_ordered(m->rows[i].rule) && m->rows[i].actor == m->rows[at].actor) {
            at = i;
            break;
        }
    }
    struct row *row = &m->rows[at];
    struct out_of_band_event out_of_band = {
        .kind = SLOT_RETRY,
        .owner = row->event * RULES + row->rule,
        .event = {.id = row->event, .type = rules[row->rule].on, .actor = row->actor},
        .tries = 1,
        .rule = row->rule};
    if (row->retrying)
        return;
    assert_int_equal(inflight_begin_out_of_band(f, &out_of_band), OUT_OF_BAND_BEGUN);
    row->retrying = true;
}

static void histories_keep_the_watermark_and_every_keys_order(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 500; seed++) {
        static struct model m;
        m = (struct model){.passed = 5, .next_id = 5};
        rand_seed(&m.r, seed);
        struct inflight f;
        inflight_init(&f, rules, RULES, INFLIGHT_MAX);
        inflight_reset(&f, 5);
        compare(&f, &m);
        for (int round = 0; round < 1500; round++) {
            switch (rand_below(&m.r, 12)) {
            case 0:
                begin_some(&f, &m);
                break;
            case 1:
                record_blocked(&f, &m);
                break;
            case 2:
                retry_one(&f, &m);
                break;
            case 3:
            case 4:
            case 5:
                end_one(&f, &m, false);
                break;
            default:
                publish_some(&f, &m);
            }
            if (round % 10 == 0)
                compare(&f, &m);
        }
        for (int round = 0; round < 40000 && (undone(&m) || m.row_count); round++) {
            publish_some(&f, &m);
            end_one(&f, &m, true);
            record_blocked(&f, &m);
            retry_one(&f, &m);
        }
        compare(&f, &m);
        assert_int_equal(undone(&m), 0);
        assert_int_equal(m.row_count, 0);
        struct inflight_counts counts = counts_of(&f);
        assert_int_equal(counts.out_of_band, 0);
        assert_int_equal(counts.blocked_keys, 0);
        assert_int_equal(f.order.keys.count, 0); /* no key is left behind */
        for (size_t i = 0; i < counts.cell_count; i++)
            assert_int_equal(counts.cells[i].count, 0);
        inflight_done(&f);
    }
}

/* ---- one by one ---- */

static struct inflight f;

static bool nothing_is_ready(void)
{
    struct bus_message m;
    for (int lane = 0; lane < LANE_COUNT; lane++)
        if (inflight_take_ready(&f, (enum lane)lane, 0, UINT64_MAX, &m))
            return false;
    return true;
}

static int set_up(void **state)
{
    (void)state;
    inflight_init(&f, rules, RULES, 2 * INFLIGHT_CHUNK);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    inflight_done(&f);
    return 0;
}

static struct bus_message begin_out(uint64_t id, enum event_type type, uint64_t actor)
{
    struct inflight_start s = start_of(id, type, actor);
    struct bus_message m;
    inflight_begin(&f, &s, 1, id);
    assert_true(inflight_take_ready(&f, rules[s.rules[0]].lane, 100, UINT64_MAX, &m));
    return m;
}

static void totals_and_time_are_told_when_the_last_work_item_is_done(void **state)
{
    (void)state;
    struct inflight_start s = start_of(7, EVENT_POST_CREATED, 3);
    s.started_us = 99;
    inflight_begin(&f, &s, 1, 7);
    struct bus_message m, active, rest;
    assert_true(inflight_take_ready(&f, LANE_SMALL, 0, UINT64_MAX, &m));
    inflight_split(&f, &m, &(struct inflight_parts){.active_since_ms = 10, .started_ms = 20});
    assert_true(inflight_take_ready(&f, LANE_ACTIVE, 0, UINT64_MAX, &active));
    assert_true(inflight_take_ready(&f, LANE_REST, 0, UINT64_MAX, &rest));
    assert_int_equal(active.cursor.active_since_ms, 10);
    assert_int_equal(rest.cursor.started_ms, 20);
    assert_false(leave(&f, &m, EXIT_DONE)); /* the first one is gone */
    assert_int_equal(counts_of(&f).expanded, 0);
    struct inflight_exit x[2] = {exit_by(&active, EXIT_DONE), exit_by(&rest, EXIT_DONE)};
    x[0].add = (struct inflight_totals){.members = 500, .delivered = 499, .repeated = 1};
    x[1].add = (struct inflight_totals){.members = 20, .skipped = 20};
    inflight_leave(&f, x, 1);
    assert_false(x[0].finished);
    assert_int_equal(counts_of(&f).expanded, 0); /* one walk of two is at its end */
    inflight_leave(&f, x + 1, 1);
    assert_true(x[1].finished);
    assert_int_equal(x[1].totals.members, 520);
    assert_int_equal(x[1].totals.delivered, 499);
    assert_int_equal(x[1].totals.skipped, 20);
    assert_int_equal(x[1].event.actor, 3);
    assert_int_equal(x[1].started_us, 99);
    assert_int_equal(x[1].kind, SLOT_LIVE);
}

/* One event that never gets done costs one slot, however far the others go. */
static void an_old_undone_event_does_not_pin_memory(void **state)
{
    (void)state;
    begin_out(1, EVENT_POST_DELETED, 1);
    for (uint64_t id = 2; id < 100000; id++) {
        struct bus_message m = begin_out(id, EVENT_POST_DELETED, 1);
        leave(&f, &m, EXIT_DONE);
    }
    assert_int_equal(f.slot_chunks, 1);
    assert_int_equal(f.item_chunks, 1);
    assert_int_equal(inflight_through(&f), 0);
}

static void a_full_inflight_set_says_when_a_seat_is_free(void **state)
{
    (void)state;
    f.max = 2;
    struct bus_message a = begin_out(1, EVENT_POST_CREATED, 1);
    struct bus_message b = begin_out(2, EVENT_POST_CREATED, 1);
    assert_int_equal(inflight_room(&f), 0);
    struct inflight_exit x = exit_by(&b, EXIT_DONE);
    assert_true(inflight_leave(&f, &x, 1));
    x = exit_by(&a, EXIT_DONE);
    assert_false(inflight_leave(&f, &x, 1)); /* there was room */
}

static void an_unreadable_event_is_held_at_once(void **state)
{
    (void)state;
    struct inflight_start s = {.event = {.id = 1, .type = EVENT_TYPE_COUNT, .value = 2},
                               .unreadable = true};
    inflight_begin(&f, &s, 1, 1);
    assert_true(inflight_has_blocked(&f));
    assert_true(nothing_is_ready());
    struct bus_message m;
    assert_int_equal(inflight_take_blocked(&f, &m, 1), 1);
    assert_int_equal(m.rule, RULE_NONE);
    assert_int_equal(m.event.value, 2);
    assert_int_equal(inflight_through(&f), 0);
    assert_false(inflight_has_blocked(&f));
    assert_true(leave(&f, &m, EXIT_RECORDED));
    assert_int_equal(inflight_through(&f), 1);
}

/* ---- names ---- */

static void a_message_is_worked_on_by_one_at_a_time(void **state)
{
    (void)state;
    struct bus_message m = begin_out(1, EVENT_FOLLOW_CREATED, 1);
    struct inflight_failure failure;
    assert_true(inflight_take_up(&f, &m));
    assert_false(inflight_take_up(&f, &m)); /* its copy */
    inflight_put_down(&f, &m);
    assert_true(inflight_take_up(&f, &m));
    assert_true(inflight_fail(&f, &m, &failure));
    assert_false(inflight_take_up(&f, &m)); /* it waits for the delivery store */
    assert_true(leave(&f, &m, EXIT_RECORDED));
    assert_false(inflight_take_up(&f, &m));
}

static void a_ready_item_has_no_worker(void **state)
{
    (void)state;
    struct bus_message m = begin_out(1, EVENT_FOLLOW_CREATED, 1);
    assert_true(inflight_take_up(&f, &m));
    inflight_give_back(&f, &m);
    assert_false(inflight_take_up(&f, &m));
    struct bus_message again;
    assert_true(inflight_take_ready(&f, LANE_GRAPH, 0, UINT64_MAX, &again));
    assert_true(inflight_take_up(&f, &again));
}

/* The copy of a message may come when its slot has another owner, even of the same event. */
static void a_slot_that_was_used_again_is_another(void **state)
{
    (void)state;
    struct bus_message live = begin_out(1, EVENT_FOLLOW_CREATED, 1), retry;
    assert_true(leave(&f, &live, EXIT_RECORDED));
    struct out_of_band_event out_of_band = {
        .kind = SLOT_RETRY, .owner = 77, .event = live.event, .tries = 1, .rule = FOLLOW};
    assert_int_equal(inflight_begin_out_of_band(&f, &out_of_band), OUT_OF_BAND_BEGUN);
    assert_true(inflight_take_ready(&f, LANE_GRAPH, 0, UINT64_MAX, &retry));
    assert_int_equal((uint32_t)retry.slot, (uint32_t)live.slot);
    assert_false(inflight_take_up(&f, &live));
    assert_false(leave(&f, &live, EXIT_DONE));
    assert_true(inflight_take_up(&f, &retry));
    assert_int_equal(retry.owner, 77);
    assert_int_equal(retry.tries, 1);
}

static void a_work_item_that_moved_has_another_name(void **state)
{
    (void)state;
    struct bus_message m = begin_out(1, EVENT_POST_DELETED, 1);
    assert_true(inflight_take_up(&f, &m));
    struct audience_cursor next = {.after = 500};
    struct inflight_totals add = {.members = 500, .delivered = 400};
    assert_true(inflight_move(&f, &m, &next, &add, 0));
    assert_false(inflight_take_up(&f, &m));
    assert_false(inflight_move(&f, &m, &next, &add, 0));
    struct bus_message moved = m;
    moved.cursor = next;
    assert_true(inflight_take_up(&f, &moved));
    struct inflight_exit x = exit_by(&moved, EXIT_DONE);
    x.add.members = 3;
    inflight_leave(&f, &x, 1);
    assert_true(x.finished);
    assert_int_equal(x.totals.members, 503);
    assert_int_equal(x.totals.delivered, 400);
}

/* What failed further up counts no more; asking to be called again is not getting further. */
static void tries_count_anew_from_a_new_page(void **state)
{
    (void)state;
    struct out_of_band_event out_of_band = {
        .kind = SLOT_RETRY,
        .owner = 5,
        .event = {.id = 1, .type = EVENT_POST_DELETED, .actor = 1},
        .tries = 3,
        .rule = DELETE};
    assert_int_equal(inflight_begin_out_of_band(&f, &out_of_band), OUT_OF_BAND_BEGUN);
    struct bus_message m;
    assert_true(inflight_take_ready(&f, LANE_CLEANUP, 0, UINT64_MAX, &m));
    struct inflight_totals none = {0};
    assert_true(inflight_move(&f, &m, &m.cursor, &none, 0));
    assert_int_equal(inflight_slot(&f, (uint32_t)m.slot)->tries, 3);
    struct audience_cursor next = {.after = 4};
    assert_true(inflight_move(&f, &m, &next, &none, 0));
    assert_int_equal(inflight_slot(&f, (uint32_t)m.slot)->tries, 0);
}

static void a_continuation_is_added_once(void **state)
{
    (void)state;
    struct bus_message m = begin_out(1, EVENT_POST_DELETED, 1);
    struct audience_cursor next = {.after = 500};
    assert_true(inflight_hand_on(&f, &m, &next, 0));
    assert_false(inflight_hand_on(&f, &m, &next, 0)); /* the copy of the message came here, too */
    assert_true(leave(&f, &m, EXIT_DONE));
    assert_false(inflight_hand_on(&f, &m, &next, 0));
    assert_int_equal(inflight_through(&f), 0);
    struct bus_message rest = m;
    rest.cursor = next;
    assert_true(leave(&f, &rest, EXIT_DONE));
    assert_int_equal(inflight_through(&f), 1);
}

static void what_was_not_heard_of_is_sent_again(void **state)
{
    (void)state;
    struct bus_message lost = begin_out(1, EVENT_POST_CREATED, 1), out[4];
    struct bus_message held = begin_out(2, EVENT_POST_CREATED, 1);
    struct bus_message failed = begin_out(3, EVENT_POST_CREATED, 1);
    struct inflight_failure failure;
    assert_true(inflight_take_up(&f, &held));
    assert_true(inflight_take_up(&f, &failed));
    assert_true(inflight_fail(&f, &failed, &failure));
    assert_int_equal(inflight_take_overdue(&f, 100, 500, out, 4), 0); /* sent at 100 */
    assert_int_equal(inflight_take_overdue(&f, 101, 500, out, 4), 1);
    assert_int_equal(out[0].event.id, lost.event.id);
    assert_int_equal(out[0].slot, lost.slot);
    assert_int_equal(inflight_take_overdue(&f, 101, 500, out, 4), 0); /* until 500 is long ago */
    assert_int_equal(inflight_take_overdue(&f, 501, 900, out, 4), 1);
}

/* ---- keys ---- */

static enum out_of_band_result begin_retry(uint64_t id, uint64_t actor)
{
    struct out_of_band_event out_of_band = {
        .kind = SLOT_RETRY,
        .owner = id,
        .event = {.id = id, .type = EVENT_FOLLOW_CREATED, .actor = actor},
        .rule = FOLLOW};
    return inflight_begin_out_of_band(&f, &out_of_band);
}

static size_t held_count(void)
{
    struct bus_message held[16];
    return inflight_take_blocked(&f, held, 16);
}

static void a_retry_waits_for_what_is_at_work(void **state)
{
    (void)state;
    struct bus_message m = begin_out(9, EVENT_FOLLOW_CREATED, 1);
    assert_int_equal(begin_retry(2, 1), OUT_OF_BAND_BUSY);
    assert_int_equal(begin_retry(2, 2), OUT_OF_BAND_BEGUN); /* another key */
    leave(&f, &m, EXIT_DONE);
    assert_int_equal(begin_retry(2, 1), OUT_OF_BAND_BEGUN);
    struct inflight_start s = start_of(10, EVENT_FOLLOW_CREATED, 1);
    inflight_begin(&f, &s, 1, 10);
    assert_int_equal(held_count(), 1); /* a retry blocks its key */
}

static void a_blocked_key_holds_what_comes(void **state)
{
    (void)state;
    inflight_block_key(&f, LANE_GRAPH, 1);
    struct inflight_start s = start_of(1, EVENT_FOLLOW_CREATED, 1);
    inflight_begin(&f, &s, 1, 1);
    assert_true(nothing_is_ready());
    struct bus_message held;
    assert_int_equal(inflight_take_blocked(&f, &held, 1), 1);
    inflight_unblock_key(&f, LANE_GRAPH, 1);
    assert_int_equal(counts_of(&f).blocked_keys,
                     1); /* what is blocked goes to the delivery store first */
    assert_true(leave(&f, &held, EXIT_RECORDED));
    inflight_unblock_key(&f, LANE_GRAPH, 1);
    assert_int_equal(counts_of(&f).blocked_keys, 0);
    assert_int_equal(f.order.keys.count, 0);
}

/* Replays and released events keep their places among the live ones. */
static void a_replayed_event_waits_its_turn(void **state)
{
    (void)state;
    struct bus_message live = begin_out(9, EVENT_FOLLOW_CREATED, 1), m;
    struct out_of_band_event replay = {.kind = SLOT_REPLAY,
                                       .owner = 5,
                                       .event = {.id = 2, .type = EVENT_FOLLOW_CREATED, .actor = 1},
                                       .wanted = 1,
                                       .rules = on_follow};
    assert_int_equal(inflight_begin_out_of_band(&f, &replay), OUT_OF_BAND_BEGUN);
    assert_false(inflight_take_ready(&f, LANE_REPLAY, 0, UINT64_MAX, &m));
    struct inflight_start later = start_of(10, EVENT_FOLLOW_CREATED, 1);
    inflight_begin(&f, &later, 1, 10);
    leave(&f, &live, EXIT_DONE);
    assert_true(inflight_take_ready(&f, LANE_REPLAY, 0, UINT64_MAX,
                                    &m)); /* in its own lane, in the key's order */
    assert_false(inflight_take_ready(&f, LANE_GRAPH, 0, UINT64_MAX, &live));
    leave(&f, &m, EXIT_DONE);
    assert_true(inflight_take_ready(&f, LANE_GRAPH, 0, UINT64_MAX, &live));
    assert_int_equal(live.event.id, 10);
    assert_int_equal(inflight_through(&f), 9); /* a replay has no say in the watermark */
}

static bool only_two(void *ctx, enum lane lane, uint64_t key)
{
    (void)ctx;
    return lane == LANE_GRAPH && key == 2;
}

static void keys_that_others_freed_are_found(void **state)
{
    (void)state;
    for (uint64_t key = 1; key <= 300; key++)
        inflight_block_key(&f, LANE_GRAPH, key);
    assert_int_equal(begin_retry(5, 3), OUT_OF_BAND_BEGUN);
    inflight_recheck_keys(&f, only_two, NULL);
    assert_int_equal(counts_of(&f).blocked_keys, 2); /* the second, and the third is at work */
}

static void out_of_band_events_have_a_limit(void **state)
{
    (void)state;
    uint64_t begun = 0;
    while (begin_retry(begun + 1, begun + 1) == OUT_OF_BAND_BEGUN)
        begun++;
    assert_in_range(begun, 4096, 10000);
    assert_int_equal(begin_retry(begun + 1, begun + 1), OUT_OF_BAND_FULL);
    struct bus_message m;
    assert_true(inflight_take_ready(&f, LANE_GRAPH, 0, UINT64_MAX, &m));
    leave(&f, &m, EXIT_DONE);
    assert_int_equal(begin_retry(begun + 1, begun + 1), OUT_OF_BAND_BEGUN);
}

/* ---- looking ---- */

static void each_cell_knows_its_oldest(void **state)
{
    (void)state;
    struct bus_message old = begin_out(1, EVENT_POST_CREATED, 1);
    begin_out(2, EVENT_POST_CREATED, 1);
    begin_out(3, EVENT_POST_DELETED, 1);
    inflight_split(&f, &old, &(struct inflight_parts){0});
    struct inflight_counts counts = counts_of(&f);
    for (size_t i = 0; i < counts.cell_count; i++) {
        uint64_t expected = counts.cells[i].rule == DELETE && counts.cells[i].lane == LANE_CLEANUP
                                ? 3
                            : counts.cells[i].rule != POST        ? 0
                            : counts.cells[i].lane == LANE_SMALL  ? 2
                            : counts.cells[i].lane == LANE_ACTIVE ? 1
                            : counts.cells[i].lane == LANE_REST   ? 1
                                                                  : 0;
        assert_int_equal(counts.cells[i].oldest, expected);
    }
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(histories_keep_the_watermark_and_every_keys_order),
        TEST(totals_and_time_are_told_when_the_last_work_item_is_done),
        TEST(an_old_undone_event_does_not_pin_memory),
        TEST(a_full_inflight_set_says_when_a_seat_is_free),
        TEST(an_unreadable_event_is_held_at_once),
        TEST(a_message_is_worked_on_by_one_at_a_time),
        TEST(a_ready_item_has_no_worker),
        TEST(a_slot_that_was_used_again_is_another),
        TEST(a_work_item_that_moved_has_another_name),
        TEST(tries_count_anew_from_a_new_page),
        TEST(a_continuation_is_added_once),
        TEST(what_was_not_heard_of_is_sent_again),
        TEST(a_retry_waits_for_what_is_at_work),
        TEST(a_blocked_key_holds_what_comes),
        TEST(a_replayed_event_waits_its_turn),
        TEST(keys_that_others_freed_are_found),
        TEST(out_of_band_events_have_a_limit),
        TEST(each_cell_knows_its_oldest),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
