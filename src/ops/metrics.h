/* The registry of metrics: a row per number says where it is, what it is called in /metrics and in
 * the admin API, and what it means. Text, JSON and schema follow from the rows.
 *
 * A row belongs to a set. A set has items: one for plain numbers, or one per lane, route, consumer
 * … each with its labels and the struct that its rows look into. A set that has no items now (this
 * node does not lead, the views do not answer) is left out: a zero would be a lie. */
#pragma once

#include <stddef.h>

#include "base/buf.h"
#include "base/json_out.h"

enum metric_type { METRIC_GAUGE, METRIC_COUNTER, METRIC_SUMMARY, METRIC_HISTOGRAM };

enum metric_kind {
    METRIC_U64,
    METRIC_I64,
    METRIC_U32,
    METRIC_F64,
    METRIC_BOOL,
    METRIC_MS,      /* int64_t: JSON has milliseconds, the text seconds */
    METRIC_TIME,    /* int64_t, ms since 1970: JSON has a time or null, the text seconds */
    METRIC_ID,      /* uint64_t: JSON only */
    METRIC_SUMMED,  /* struct metric_summary: text only */
    METRIC_BUCKETS, /* struct metric_histogram: text only */
    METRIC_NONZERO, /* uint64_t: left out of the text while it is 0 */
};

struct metric_summary {
    double p50_s, p95_s, p99_s; /* negative: not measured */
    double sum_s;
    uint64_t count;
};

enum { METRIC_BOUNDS = 10 };
extern const double metric_bounds_s[METRIC_BOUNDS]; /* rising */
struct metric_histogram {
    uint64_t at_most[METRIC_BOUNDS]; /* how many took no longer than that bound */
    double sum_s;
    uint64_t count;
};

struct metric {
    const char *set;
    const char *member; /* of the set's object in JSON; NULL: not there */
    const char *name; /* in the text, without "fantail_"; may end with {label="…"}; NULL: not there.
                         Rows of one name stand together. */
    enum metric_type type;
    enum metric_kind kind;
    size_t offset; /* in the struct that an item points at */
    const char *help;
};

/* Kind and offset of a row from a field of a struct. */
#define METRIC_AT(of, field)                                                                       \
    _Generic(((const struct of *)0)->field, uint64_t                                               \
             : METRIC_U64, int64_t                                                                 \
             : METRIC_I64, uint32_t                                                                \
             : METRIC_U32, double                                                                  \
             : METRIC_F64, bool                                                                    \
             : METRIC_BOOL, struct metric_summary                                                  \
             : METRIC_SUMMED, struct metric_histogram                                              \
             : METRIC_BUCKETS),                                                                    \
        offsetof(struct of, field)

struct metric_item {
    const char *labels; /* lane="small"; "": none */
    const void *base;
};
struct metric_set {
    const char *name;
    const struct metric_item *items;
    size_t count;
};

/* Prometheus text of every row whose set is given. */
void metrics_write_text(struct buf *out, const struct metric *rows, size_t row_count,
                        const struct metric_set *sets, size_t set_count);
/* The set's members, into an object that is open. */
void metrics_write_members(struct json_out *j, const struct metric *rows, size_t row_count,
                           const char *set, const void *base);
/* JSON Schema of the same members: {"type":["object","null"],"properties":{…}}. */
void metrics_write_schema(struct json_out *j, const struct metric *rows, size_t row_count,
                          const char *set);
