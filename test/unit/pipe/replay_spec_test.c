/* What a replay was asked for: read, written, refused; and the rule of the duplicate memory. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "base/check.h"
#include "base/id.h"
#include "pipe/replay.h"

#define NOW_MS INT64_C(1800000000000) /* 2027-01-15T08:00:00Z */
#define DAY_MS INT64_C(86400000)

static const struct rule rules[] = {
    {.consumer = "timelines", .on = EVENT_POST_CREATED, .audience = TO_FOLLOWERS},
    {.consumer = "backfill", .on = EVENT_FOLLOW_CREATED, .audience = TO_ACTOR},
    {.consumer = "letters",
     .on = EVENT_POST_CREATED,
     .audience = TO_ACTOR,
     .effect = EFFECT_OUTSIDE,
     .channel = "email",
     .dedup = DEDUP_BY_EVENT},
    {.consumer = "letters",
     .on = EVENT_FOLLOW_CREATED,
     .audience = TO_ACTOR,
     .effect = EFFECT_OUTSIDE,
     .channel = "sms"},
};

static enum err parse(const char *json, struct replay_spec *out, char why[200])
{
    return replay_spec_parse(str_of(json), rules, COUNT_OF(rules), out, why);
}

static void a_spec_is_read_and_written(void **state)
{
    (void)state;
    static const char *const texts[] = {
        "{\"consumer\":\"timelines\"}",
        "{\"consumer\":\"letters\",\"type\":\"follow.created\",\"from\":\"2026-11-15T08:00:00."
        "000Z\","
        "\"to\":\"2026-11-15T09:00:00.250Z\",\"key\":\"42\",\"dead_reason\":\"UNKNOWN_CONSUMER\","
        "\"allow\":[\"email\",\"sms\"],\"accept_duplicates\":true}",
        "{\"consumer\":\"backfill\",\"dead_reason\":\"*\"}",
    };
    for (size_t i = 0; i < COUNT_OF(texts); i++) {
        struct replay_spec spec;
        char why[200];
        assert_int_equal(parse(texts[i], &spec, why), OK);
        assert_string_equal(why, "");
        char text[JOB_SPEC_MAX];
        struct buf out = buf_over(text, sizeof text);
        replay_spec_write(&spec, &out);
        assert_false(out.failed);
        assert_int_equal(out.len, strlen(texts[i]));
        assert_memory_equal(text, texts[i], out.len);
    }
    struct replay_spec spec;
    char why[200];
    assert_int_equal(parse(texts[1], &spec, why), OK);
    assert_string_equal(spec.consumer, "letters");
    assert_string_equal(spec.type, "follow.created");
    assert_int_equal(spec.to_ms - spec.from_ms, 3600250);
    assert_int_equal(spec.key, 42);
    assert_string_equal(spec.dead_reason, "UNKNOWN_CONSUMER");
    assert_int_equal(spec.allow_count, 2);
    assert_string_equal(spec.allow[1], "sms");
    assert_true(spec.accept_duplicates);
    /* Nothing is wider than it was asked for. */
    assert_int_equal(parse("{\"consumer\":\"letters\",\"allow\":[]}", &spec, why), OK);
    assert_int_equal(spec.allow_count, 0);
    assert_false(spec.accept_duplicates);
    assert_int_equal(spec.from_ms, 0);
}

static void every_refusal_says_what_is_allowed(void **state)
{
    (void)state;
    static const struct {
        const char *json, *why;
    } cases[] = {
        {"", "the selection must be a JSON object"},
        {"[1]", "the selection must be a JSON object"},
        {"{\"consumer\":\"timelines\",\"consumer\":\"backfill\"}",
         "the selection must be a JSON object"},
        {"{\"consumer\":\"timelines\",\"form\":1}",
         "unknown field \"form\"; known: consumer, type, from, to, key, dead_reason, allow, "
         "accept_duplicates"},
        {"{}", "consumer: required; one of: timelines, backfill, letters"},
        {"{\"consumer\":7}", "consumer: must be a text"},
        {"{\"consumer\":\"\"}", "consumer: must be a text"},
        {"{\"consumer\":\"aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa\"}",
         "consumer: at most 39 bytes"},
        {"{\"consumer\":\"timeline\"}",
         "consumer: there is no \"timeline\"; one of: timelines, backfill, letters"},
        {"{\"consumer\":\"letters\",\"type\":\"post.edited\"}",
         "type: letters gets no \"post.edited\"; it gets: post.created, follow.created"},
        {"{\"consumer\":\"letters\",\"from\":\"yesterday\"}",
         "from: must be a time like \"2026-11-15T08:00:00Z\""},
        {"{\"consumer\":\"letters\",\"to\":1800000000000}",
         "to: must be a time like \"2026-11-15T08:00:00Z\""},
        {"{\"consumer\":\"letters\",\"from\":\"1969-11-15T08:00:00Z\"}",
         "from: must be a time like \"2026-11-15T08:00:00Z\""},
        {"{\"consumer\":\"letters\",\"to\":\"2026-11-15T08:00:00Z\","
         "\"from\":\"2026-11-15T08:00:01Z\"}",
         "to: lies before from"},
        {"{\"consumer\":\"letters\",\"key\":42}",
         "key: must be an account's id as a text, like \"42\""},
        {"{\"consumer\":\"letters\",\"key\":\"ann\"}",
         "key: must be an account's id as a text, like \"42\""},
        {"{\"consumer\":\"letters\",\"dead_reason\":\"no way\"}",
         "dead_reason: must be a reason like \"UNAVAILABLE\", or \"*\" for any"},
        {"{\"consumer\":\"letters\",\"allow\":\"email\"}",
         "allow: must be a list of at most 8 channels"},
        {"{\"consumer\":\"letters\",\"allow\":[\"email\",\"fax\"]}",
         "allow: letters does not use \"fax\"; it uses: email, sms"},
        {"{\"consumer\":\"timelines\",\"allow\":[\"email\"]}",
         "allow: timelines does not use \"email\"; it uses: no outside channel"},
        {"{\"consumer\":\"letters\",\"allow\":[\"email\",\"email\",\"email\",\"email\",\"email\","
         "\"email\",\"email\",\"email\",\"email\"]}",
         "allow: must be a list of at most 8 channels"},
        {"{\"consumer\":\"letters\",\"accept_duplicates\":1}",
         "accept_duplicates: must be true or false"},
    };
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        struct replay_spec spec;
        char why[200];
        assert_int_equal(parse(cases[i].json, &spec, why), ERR_INVALID);
        assert_string_equal(why, cases[i].why);
    }
    char text[JOB_SPEC_MAX + 10], why[200];
    struct replay_spec spec;
    memset(text, ' ', sizeof text);
    memcpy(text, "{\"consumer\":\"timelines\"}", 24);
    assert_int_equal(
        replay_spec_parse((struct str){text, JOB_SPEC_MAX - 1}, rules, COUNT_OF(rules), &spec, why),
        OK);
    assert_int_equal(
        replay_spec_parse((struct str){text, JOB_SPEC_MAX}, rules, COUNT_OF(rules), &spec, why),
        ERR_INVALID);
    assert_string_equal(why, "the selection is longer than 999 bytes");
}

static void many_names_end_in_an_ellipsis(void **state)
{
    (void)state;
    static char names[40][12];
    struct rule many[40] = {{0}};
    for (size_t i = 0; i < 40; i++) {
        snprintf(names[i], sizeof names[i], "consumer%02zu", i);
        many[i] = (struct rule){.consumer = names[i], .on = EVENT_POST_CREATED};
    }
    struct replay_spec spec;
    char why[200];
    assert_int_equal(replay_spec_parse(STR("{\"consumer\":\"x\"}"), many, 40, &spec, why),
                     ERR_INVALID);
    assert_true(strlen(why) < 200);
    assert_true(str_is_utf8(str_of(why)));
    assert_non_null(strstr(why, "one of: consumer00, consumer01, "));
    assert_string_equal(why + strlen(why) - strlen(" …"), " …");
}

static void times_become_ids(void **state)
{
    (void)state;
    uint64_t after, last;
    struct replay_spec spec = {.from_ms = NOW_MS, .to_ms = NOW_MS + 5};
    replay_range(&spec, NOW_MS + DAY_MS, &after, &last);
    assert_true(after < id_at(NOW_MS, 0, 0) && after >= id_at(NOW_MS - 1, 1023, 4095));
    assert_true(last >= id_at(NOW_MS + 5, 1023, 4095) && last < id_at(NOW_MS + 6, 0, 0));
    spec = (struct replay_spec){.consumer = "x"};
    replay_range(&spec, NOW_MS, &after, &last);
    assert_int_equal(after, 0);
    assert_int_equal(last, id_at(NOW_MS, 1023, 4095));
    replay_range(&spec, INT64_MAX, &after, &last);
    assert_true(last <= INT64_MAX && last > id_at(NOW_MS, 1023, 4095));
}

static void a_job_has_an_end(void **state)
{
    (void)state;
    struct replay_spec spec = {.consumer = "letters", .from_ms = NOW_MS - DAY_MS}, again;
    struct job job;
    char why[200];
    replay_job_init(&job, &spec, 250, 12, NOW_MS);
    assert_string_equal(job.kind, "replay");
    assert_int_equal(job.rate, 250);
    assert_int_equal(job.total, 12);
    assert_int_equal(job.last, id_at(NOW_MS, 1023, 4095));
    assert_int_equal(job.position, id_at(NOW_MS - DAY_MS, 0, 0) - 1);
    assert_int_equal(parse(job.spec, &again, why), OK);
    assert_int_equal(again.from_ms, spec.from_ms);
    assert_int_equal(again.to_ms, NOW_MS);
}

static void the_longest_spec_fits_into_a_job(void **state)
{
    (void)state;
    struct replay_spec spec = {.from_ms = INT64_C(253402300799000),
                               .to_ms = INT64_C(253402300799999),
                               .key = INT64_MAX,
                               .allow_count = REPLAY_CHANNELS_MAX,
                               .accept_duplicates = true};
    memset(spec.consumer, 'c', sizeof spec.consumer - 1);
    memset(spec.type, 't', sizeof spec.type - 1);
    memset(spec.dead_reason, 'R', sizeof spec.dead_reason - 1);
    for (size_t i = 0; i < REPLAY_CHANNELS_MAX; i++)
        memset(spec.allow[i], 'a', sizeof spec.allow[i] - 1);
    struct job job;
    replay_job_init(&job, &spec, 1, 1, NOW_MS);
    assert_true(strlen(job.spec) < JOB_SPEC_MAX);
}

static void a_range_beyond_the_memory_is_refused(void **state)
{
    (void)state;
    struct replay_spec spec = {.consumer = "letters", .from_ms = NOW_MS - 8 * DAY_MS};
    char why[300];
    const int64_t oldest_ms = NOW_MS - 30 * DAY_MS;
#define CHECK_SPEC(memory_days)                                                                    \
    replay_check(&spec, rules, COUNT_OF(rules), (memory_days)*DAY_MS, oldest_ms, NOW_MS, why)
    assert_int_equal(CHECK_SPEC(8), OK); /* to the millisecond */
    assert_string_equal(why, "");
    spec.from_ms--;
    assert_int_equal(CHECK_SPEC(8), ERR_CONFLICT);
    assert_string_equal(
        why, "the range begins at 2027-01-07T07:59:59.999Z, and letters remembers what it did only "
             "since 2027-01-07T08:00:00.000Z: what is older could be done twice. Begin later, or "
             "accept that (--accept-duplicates, \"accept_duplicates\": true)");
    spec.accept_duplicates = true;
    assert_int_equal(CHECK_SPEC(8), OK);
    spec = (struct replay_spec){.consumer = "letters"}; /* from the oldest kept */
    assert_int_equal(CHECK_SPEC(29), ERR_CONFLICT);
    assert_non_null(strstr(why, "the range begins at 2026-12-16T08:00:00.000Z"));
    assert_int_equal(CHECK_SPEC(30), OK);
    spec = (struct replay_spec){.consumer = "timelines"}; /* needs no memory */
    assert_int_equal(CHECK_SPEC(1), OK);
    assert_string_equal(why, "");
    spec.from_ms = oldest_ms - DAY_MS;
    assert_int_equal(CHECK_SPEC(1), OK);
    assert_string_equal(why,
                        "the range begins at 2026-12-15T08:00:00.000Z, and events are kept only "
                        "since 2026-12-16T08:00:00.000Z: what is older is gone");
    spec = (struct replay_spec){.consumer = "letters"};
    assert_int_equal(replay_check(&spec, rules, COUNT_OF(rules), 0, 0, NOW_MS, why), OK);
    assert_string_equal(why, "no events are kept at the moment");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_spec_is_read_and_written),
        cmocka_unit_test(every_refusal_says_what_is_allowed),
        cmocka_unit_test(many_names_end_in_an_ellipsis),
        cmocka_unit_test(times_become_ids),
        cmocka_unit_test(a_job_has_an_end),
        cmocka_unit_test(the_longest_spec_fits_into_a_job),
        cmocka_unit_test(a_range_beyond_the_memory_is_refused),
    };
    return cmocka_run_group_tests_name("pipe/replay_spec", tests, NULL, NULL);
}
