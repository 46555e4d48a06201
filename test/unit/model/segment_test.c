/* The audience "segment", on either set of drivers: whom a walk meets, page by page and through the
 * engine. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdio.h>
#include <string.h>

#include "base/check.h"
#include "base/rand.h"
#include "model/sinks.h"
#include "world.h"

enum { PEOPLE = 60, MET_MAX = 4096 };

static struct world w;
static uint64_t people[PEOPLE];
static uint64_t met[MET_MAX];
static size_t met_count;

static enum err note_met(struct sink_env *env, const struct event *e, const uint64_t *members,
                         size_t n, struct sink_result *result)
{
    (void)env;
    (void)e;
    for (size_t i = 0; i < n && met_count < MET_MAX; i++)
        met[met_count++] = members[i];
    result->delivered = n;
    return OK;
}

static const struct rule announcement = {.consumer = "announcement",
                                         .on = EVENT_ACCOUNT_UPDATED,
                                         .audience = &audience_segment,
                                         .reads_data = true,
                                         .sink = note_met,
                                         .lane = LANE_SMALL,
                                         .batch = 7,
                                         .priority = PRIORITY_LOW,
                                         .effect = EFFECT_VIEWS,
                                         .late_means = ""};

static int open_world(void **state)
{
    (void)state;
    world_open_on(&w, 1000, test_drivers_wanted());
    w.more_rules = &announcement;
    w.more_rule_count = 1;
    for (int i = 0; i < PEOPLE; i++) {
        char name[16];
        snprintf(name, sizeof name, "person%d", i);
        people[i] = world_account(&w, name);
        manual_clock_advance(&w.clock, 1000);
    }
    return 0;
}

static int close_world(void **state)
{
    (void)state;
    world_close(&w);
    return 0;
}

/* One page after the other, as the engine asks for them. */
static enum err walk(uint64_t event, const char *data, size_t max, uint64_t *out, size_t *n)
{
    struct sink_env env = {.db = w.db, .clock = &w.clock.clock};
    struct event e = {.id = event, .type = EVENT_ACCOUNT_UPDATED, .data = str_of(data)};
    const struct event *events = &e;
    struct audience_cursor cursor = {0};
    uint64_t members[PEOPLE * 2];
    *n = 0;
    for (int pages = 0; !cursor.end; pages++) {
        struct audience_page page = {.cursor = cursor, .members = members, .max = max};
        audience_segment.pages(&env, &events, &page, 1);
        if (page.error)
            return page.error;
        assert_true(page.n <= max && pages <= 3 * PEOPLE);
        assert_true(page.cursor.end || page.cursor.after > cursor.after);
        for (size_t i = 0; i < page.n; i++)
            out[(*n)++] = members[i];
        cursor = page.cursor;
    }
    return OK;
}

static void expect(const char *data, size_t from, size_t to)
{
    static const size_t sizes[] = {1, 7, PEOPLE, PEOPLE + 1};
    for (size_t k = 0; k < COUNT_OF(sizes); k++) {
        uint64_t out[PEOPLE * 2];
        size_t n;
        assert_int_equal(walk(id_next(&w.ids), data, sizes[k], out, &n), OK);
        assert_int_equal(n, to - from);
        assert_memory_equal(out, people + from, n * sizeof *out);
    }
}

/* How many were made in an earlier millisecond: ids of a shared store follow real time, so two
 * people may be of one. */
static size_t born_before(uint64_t person)
{
    size_t n = 0;
    while (id_time_ms(people[n]) < id_time_ms(person))
        n++;
    return n;
}

static void a_segment_is_whom_its_data_name(void **state)
{
    (void)state;
    char data[200];
    expect("{\"segment\":{}}", 0, PEOPLE);
    snprintf(data, sizeof data, "{\"segment\":{\"above\":\"%llu\",\"through\":\"%llu\"}}",
             (unsigned long long)people[9], (unsigned long long)people[29]);
    expect(data, 10, 30);
    snprintf(data, sizeof data, "{\"segment\":{\"created_from\":%lld,\"created_before\":%lld}}",
             (long long)id_time_ms(people[20]), (long long)id_time_ms(people[40]));
    expect(data, born_before(people[20]), born_before(people[40]));
    snprintf(data, sizeof data, "{\"segment\":{\"created_before\":%lld}}",
             (long long)id_time_ms(people[0]));
    expect(data, 0, 0);
    expect("{\"segment\":{\"created_before\":0}}", 0, 0);
    expect("{\"segment\":{\"seen_from\":9223372036854775807}}", 0, 0);
}

static void what_is_not_understood_reaches_nobody(void **state)
{
    (void)state;
    static const char *const bad[] = {"",
                                      "{}",
                                      "{\"segment\":7}",
                                      "{\"segment\":{\"everyone\":true}}",
                                      "{\"segment\":{\"above\":12}}",
                                      "{\"segment\":{\"above\":\"x\"}}",
                                      "{\"segment\":{\"created_from\":-1}}"};
    for (size_t i = 0; i < COUNT_OF(bad); i++) {
        uint64_t out[PEOPLE * 2];
        size_t n;
        assert_int_equal(walk(id_next(&w.ids), bad[i], 7, out, &n), ERR_INVALID);
    }
}

static void those_who_join_later_or_are_gone_are_not_met(void **state)
{
    (void)state;
    uint64_t out[PEOPLE * 2], event = id_next(&w.ids);
    size_t n;
    uint64_t late = world_account(&w, "late");
    world_act(&w, ACT_SUSPEND, 0, people[5]);
    assert_int_equal(walk(event, "{\"segment\":{}}", 4, out, &n), OK);
    assert_int_equal(n, PEOPLE - 1);
    for (size_t i = 0; i < n; i++)
        assert_true(out[i] != late && out[i] != people[5]);
    world_act(&w, ACT_RESTORE, 0, people[5]);
    world_act(&w, ACT_DELETE_ACCOUNT, 0, late);
    assert_int_equal(walk(id_next(&w.ids), "{\"segment\":{}}", 4, out, &n), OK);
    assert_int_equal(n, PEOPLE);
}

static enum err announce(struct tx *tx, void *arg)
{
    return outbox_emit(
        tx, (struct event){.type = EVENT_ACCOUNT_UPDATED, .actor = people[0], .data = str_of(arg)});
}

/* Everybody once or more, nobody else; also when the process ends in the middle. */
static void the_engine_walks_it_to_its_end(void **state)
{
    (void)state;
    world_start(&w, 50);
    char data[] = "{\"segment\":{}}";
    assert_int_equal(db_write(w.db, announce, data, NULL), OK);
    for (int i = 0; i < 500 && met_count < 10; i++)
        world_step(&w);
    world_stop(&w);
    world_start(&w, 50);
    world_drain(&w);
    for (int i = 0; i < PEOPLE; i++) {
        size_t times = 0;
        for (size_t k = 0; k < met_count; k++)
            times += met[k] == people[i];
        assert_in_range(times, 1, 2);
    }
    for (size_t k = 0; k < met_count; k++) {
        size_t i = 0;
        while (i < PEOPLE && people[i] != met[k])
            i++;
        assert_true(i < PEOPLE);
    }
    world_stop(&w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_segment_is_whom_its_data_name),
        cmocka_unit_test(what_is_not_understood_reaches_nobody),
        cmocka_unit_test(those_who_join_later_or_are_gone_are_not_met),
        cmocka_unit_test(the_engine_walks_it_to_its_end),
    };
    return cmocka_run_group_tests(tests, open_world, close_world);
}
