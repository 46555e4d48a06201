/* The registry of metrics: from rows to text, JSON and schema. */
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

#include "base/check.h"
#include "ops/metrics.h"

struct lane {
    uint64_t backlog, dead;
    int64_t age_ms, saved_ms;
    double share;
    bool stopped;
    struct metric_summary took;
};

#define AT(field) METRIC_AT(lane, field)

static const struct metric rows[] = {
    {"lanes", "backlog", "lane_backlog", METRIC_GAUGE, AT(backlog), "Work that waits."},
    {"lanes", "dead", "states{state=\"dead\"}", METRIC_COUNTER, METRIC_NONZERO,
     offsetof(struct lane, dead), "By state."},
    {"lanes", NULL, "states{state=\"other\"}", METRIC_COUNTER, AT(backlog), "By state."},
    {"lanes", "age_ms", "lane_age_seconds", METRIC_GAUGE, METRIC_MS, offsetof(struct lane, age_ms),
     "Age."},
    {"lanes", "saved_at", NULL, METRIC_GAUGE, METRIC_TIME, offsetof(struct lane, saved_ms),
     "Time."},
    {"lanes", "share", NULL, METRIC_GAUGE, AT(share), "Share."},
    {"lanes", "stopped", NULL, METRIC_GAUGE, AT(stopped), "Flag."},
    {"lanes", NULL, "lane_seconds", METRIC_SUMMARY, AT(took), "Time."},
    {"other", "backlog", "other_backlog", METRIC_GAUGE, AT(backlog), "Of a set that is not there."},
};

static const struct lane small = {
    .backlog = 3, .dead = 1, .age_ms = 1500, .took = {0.25, -1, 0.5, 2, 7}};
static const struct lane rest = {.backlog = 4, .share = 0.5, .stopped = true};

static void expect(struct buf *out, const char *text)
{
    buf_append(out, "", 1);
    assert_string_equal(out->ptr, text);
    buf_done(out);
}

static void text_has_every_item_of_every_row_whose_set_is_there(void **state)
{
    (void)state;
    const struct metric_item items[] = {{"lane=\"small\"", &small}, {"", &rest}};
    const struct metric_set sets[] = {{"lanes", items, COUNT_OF(items)}};
    struct buf out;
    buf_init(&out, 0);
    metrics_write_text(&out, rows, COUNT_OF(rows), sets, COUNT_OF(sets));
    expect(&out, "# HELP fantail_lane_backlog Work that waits.\n"
                 "# TYPE fantail_lane_backlog gauge\n"
                 "fantail_lane_backlog{lane=\"small\"} 3\n"
                 "fantail_lane_backlog 4\n"
                 "# HELP fantail_states By state.\n"
                 "# TYPE fantail_states counter\n"
                 "fantail_states{lane=\"small\",state=\"dead\"} 1\n"
                 "fantail_states{lane=\"small\",state=\"other\"} 3\n"
                 "fantail_states{state=\"other\"} 4\n"
                 "# HELP fantail_lane_age_seconds Age.\n"
                 "# TYPE fantail_lane_age_seconds gauge\n"
                 "fantail_lane_age_seconds{lane=\"small\"} 1.5\n"
                 "fantail_lane_age_seconds 0\n"
                 "# HELP fantail_lane_seconds Time.\n"
                 "# TYPE fantail_lane_seconds summary\n"
                 "fantail_lane_seconds{lane=\"small\",quantile=\"0.5\"} 0.250000\n"
                 "fantail_lane_seconds{lane=\"small\",quantile=\"0.99\"} 0.500000\n"
                 "fantail_lane_seconds_sum{lane=\"small\"} 2.000000\n"
                 "fantail_lane_seconds_count{lane=\"small\"} 7\n"
                 "fantail_lane_seconds{quantile=\"0.5\"} 0.000000\n"
                 "fantail_lane_seconds{quantile=\"0.95\"} 0.000000\n"
                 "fantail_lane_seconds{quantile=\"0.99\"} 0.000000\n"
                 "fantail_lane_seconds_sum 0.000000\n"
                 "fantail_lane_seconds_count 0\n");
}

static void json_has_the_members_of_one_set(void **state)
{
    (void)state;
    struct json_out j;
    struct buf out;
    buf_init(&out, 0);
    json_out_init(&j, &out);
    json_object_begin(&j);
    metrics_write_members(&j, rows, COUNT_OF(rows), "lanes", &rest);
    json_object_end(&j);
    expect(&out, "{\"backlog\":4,\"dead\":0,\"age_ms\":0,\"saved_at\":null,\"share\":0.5,"
                 "\"stopped\":true}");
}

static void the_schema_names_what_the_json_has(void **state)
{
    (void)state;
    struct json_out j;
    struct buf out;
    buf_init(&out, 0);
    json_out_init(&j, &out);
    metrics_write_schema(&j, rows, COUNT_OF(rows), "other");
    expect(&out, "{\"type\":[\"object\",\"null\"],\"properties\":{\"backlog\":{\"type\":"
                 "\"integer\",\"description\":\"Of a set that is not there.\"}}}");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(text_has_every_item_of_every_row_whose_set_is_there),
        cmocka_unit_test(json_has_the_members_of_one_set),
        cmocka_unit_test(the_schema_names_what_the_json_has),
    };
    return cmocka_run_group_tests_name("ops/metrics", tests, NULL, NULL);
}
