/* The mark never passes an undone event: random histories against a naive model. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "base/check.h"
#include "base/rand.h"
#include "pipe/flight.h"

enum { EVENTS = 200, FLIGHT_MAX = 64 };

struct model {
    uint64_t ids[EVENTS];
    uint32_t seats[EVENTS];
    uint32_t units[EVENTS][LANE_COUNT];
    uint32_t parked[EVENTS];
    size_t count;
    uint64_t passed, next_id;
};

static uint32_t units_of(const struct model *m, size_t i)
{
    uint32_t units = m->parked[i];
    for (int lane = 0; lane < LANE_COUNT; lane++)
        units += m->units[i][lane];
    return units;
}

static size_t undone(const struct model *m)
{
    size_t n = 0;
    for (size_t i = 0; i < m->count; i++)
        n += units_of(m, i) > 0;
    return n;
}

static void compare(struct flight *f, const struct model *m)
{
    uint64_t through = m->passed;
    uint64_t oldest[LANE_COUNT] = {0}, units[LANE_COUNT] = {0};
    for (size_t i = m->count; i-- > 0;) {
        if (units_of(m, i))
            through = m->ids[i] - 1;
        for (int lane = 0; lane < LANE_COUNT; lane++) {
            if (m->units[i][lane])
                oldest[lane] = m->ids[i];
            units[lane] += m->units[i][lane];
        }
    }
    struct flight_counts counts;
    flight_count(f, &counts);
    assert_int_equal(flight_through(f), through);
    assert_int_equal(counts.undone, undone(m));
    assert_int_equal(counts.done, m->count - undone(m));
    assert_int_equal(flight_room(f), FLIGHT_MAX - undone(m));
    for (int lane = 0; lane < LANE_COUNT; lane++) {
        assert_int_equal(counts.lane_oldest[lane], oldest[lane]);
        assert_int_equal(counts.lane_units[lane], units[lane]);
    }
}

static void begin_some(struct flight *f, struct model *m, struct rand *r)
{
    struct flight_start starts[8];
    size_t room = flight_room(f);
    size_t n = (size_t)rand_below(r, COUNT_OF(starts) + 1);
    n = n < room ? n : room;
    n = n < EVENTS - m->count ? n : EVENTS - m->count;
    for (size_t i = 0; i < n; i++) {
        m->next_id += 1 + rand_below(r, 3);
        starts[i] = (struct flight_start){.event = {.id = m->next_id}};
        m->ids[m->count + i] = m->next_id;
        if (rand_below(r, 50) == 0)
            starts[i].parked = m->parked[m->count + i] = 1;
        for (uint64_t u = starts[i].parked ? 0 : 1 + rand_below(r, 3); u > 0; u--) {
            uint64_t lane = rand_below(r, LANE_COUNT);
            starts[i].lane_units[lane]++;
            m->units[m->count + i][lane]++;
        }
    }
    m->next_id += rand_below(r, 2); /* an event that no rule wants may come last */
    flight_begin(f, starts, n, m->next_id);
    m->passed = m->next_id;
    for (size_t i = 0; i < n; i++)
        m->seats[m->count + i] = starts[i].seat;
    m->count += n;
}

static void change_one(struct flight *f, struct model *m, struct rand *r)
{
    size_t i = (size_t)rand_below(r, m->count);
    uint32_t before = units_of(m, i);
    uint64_t lane = rand_below(r, LANE_COUNT);
    if (before == 0)
        return;
    if (rand_below(r, 4) == 0) {
        flight_enter(f, m->seats[i], (enum lane)lane);
        m->units[i][lane]++;
    } else if (m->units[i][lane]) {
        struct flight_exit x = {.seat = m->seats[i], .lane = (enum lane)lane, .members = 3};
        bool was_full = undone(m) == FLIGHT_MAX;
        bool freed = flight_leave(f, &x, 1);
        m->units[i][lane]--;
        assert_int_equal(x.finished, before == 1);
        assert_int_equal(freed, was_full && x.finished);
        if (x.finished)
            assert_int_equal(x.event.id, m->ids[i]);
    }
}

static void the_mark_never_passes_an_undone_event(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 2000; seed++) {
        struct rand r;
        rand_seed(&r, seed);
        struct flight f;
        struct model m = {.passed = 5, .next_id = 5};
        flight_init(&f, FLIGHT_MAX, 5);
        compare(&f, &m);
        for (int round = 0; round < 300; round++) {
            if (rand_below(&r, 8) == 0)
                begin_some(&f, &m, &r);
            else if (m.count)
                change_one(&f, &m, &r);
            if (round % 10 == 0)
                compare(&f, &m);
        }
        compare(&f, &m);
        flight_done(&f);
    }
}

static void members_and_time_are_told_when_the_last_unit_is_done(void **state)
{
    (void)state;
    struct flight f;
    flight_init(&f, 10, 0);
    struct flight_start start = {.event = {.id = 7, .actor = 3}, .started_us = 99};
    start.lane_units[LANE_SMALL] = 1;
    flight_begin(&f, &start, 1, 7);
    flight_enter(&f, start.seat, LANE_REST);
    struct flight_exit x[2] = {{.seat = start.seat, .lane = LANE_SMALL, .members = 500},
                               {.seat = start.seat, .lane = LANE_REST, .members = 20}};
    assert_false(flight_leave(&f, x, 2));
    assert_false(x[0].finished);
    assert_true(x[1].finished);
    assert_int_equal(x[1].event_members, 520);
    assert_int_equal(x[1].event.actor, 3);
    assert_int_equal(x[1].started_us, 99);
    flight_done(&f);
}

/* One event that never gets done costs one seat, however far the others go. */
static void an_old_undone_event_does_not_pin_memory(void **state)
{
    (void)state;
    struct flight f;
    flight_init(&f, 4 * FLIGHT_CHUNK, 0);
    struct flight_start stuck = {.event = {.id = 1}, .lane_units = {1}};
    flight_begin(&f, &stuck, 1, 1);
    for (uint64_t id = 2; id < 100000; id++) {
        struct flight_start start = {.event = {.id = id}, .lane_units = {1}};
        flight_begin(&f, &start, 1, id);
        struct flight_exit x = {.seat = start.seat, .lane = (enum lane)0};
        flight_leave(&f, &x, 1);
    }
    assert_int_equal(f.chunk_count, 1);
    assert_int_equal(flight_through(&f), 0);
    flight_done(&f);
}

static void owing_seats_are_found_in_order(void **state)
{
    (void)state;
    struct flight f;
    flight_init(&f, 10, 0);
    struct flight_start starts[4] = {0};
    for (uint64_t i = 0; i < 4; i++) {
        starts[i].event = (struct event){.id = i + 1, .type = EVENT_POST_CREATED};
        starts[i].lane_units[LANE_SMALL] = 1;
        starts[i].owed = i == 1 ? 0 : 2;
    }
    flight_begin(&f, starts, 4, 4);
    uint32_t masks[EVENT_TYPE_COUNT] = {[EVENT_POST_CREATED] = 2};
    uint32_t next = flight_next_owing(&f, LANE_SMALL, starts[0].seat, masks);
    assert_int_equal(next, starts[2].seat);
    next = flight_next_owing(&f, LANE_SMALL, next, masks);
    assert_int_equal(next, starts[3].seat);
    assert_int_equal(flight_next_owing(&f, LANE_SMALL, next, masks), FLIGHT_NONE);
    flight_done(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_mark_never_passes_an_undone_event),
        cmocka_unit_test(members_and_time_are_told_when_the_last_unit_is_done),
        cmocka_unit_test(an_old_undone_event_does_not_pin_memory),
        cmocka_unit_test(owing_seats_are_found_in_order),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
