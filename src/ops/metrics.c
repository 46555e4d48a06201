/* Writes rows of the registry. Nothing is kept between two calls. */
#include "ops/metrics.h"

#include <stdio.h>
#include <string.h>

#include "base/check.h"

/* Of a whole number its value, of a METRIC_F64 its bits. */
static uint64_t read_word(const struct metric *m, const void *base)
{
    const char *at = (const char *)base + m->offset;
    uint64_t u64;
    uint32_t u32;
    bool flag;
    if (m->kind == METRIC_U32) {
        memcpy(&u32, at, sizeof u32);
        return u32;
    }
    if (m->kind == METRIC_BOOL) {
        memcpy(&flag, at, sizeof flag);
        return flag;
    }
    memcpy(&u64, at, sizeof u64);
    return u64;
}

static double read_number(const struct metric *m, const void *base)
{
    uint64_t word = read_word(m, base);
    double f64;
    memcpy(&f64, &word, sizeof f64);
    bool is_signed = m->kind == METRIC_I64 || m->kind == METRIC_MS || m->kind == METRIC_TIME;
    return m->kind == METRIC_F64 ? f64 : is_signed ? (double)(int64_t)word : (double)word;
}

/* ---- text ---- */

static struct str name_of(const struct metric *m)
{
    return (struct str){m->name, strcspn(m->name, "{")};
}

static void put_head(struct buf *out, const struct metric *m)
{
    static const char *const types[] = {"gauge", "counter", "summary", "histogram"};
    struct str name = name_of(m);
    buf_printf(out, "# HELP fantail_%.*s %s\n# TYPE fantail_%.*s %s\n", STR_ARG(name), m->help,
               STR_ARG(name), types[m->type]);
}

/* name suffix {labels of the item, of the row, more} */
static void put_name(struct buf *out, const struct metric *m, const char *suffix,
                     const char *labels, const char *more)
{
    struct str name = name_of(m);
    const char *own = m->name + name.len;
    struct str parts[] = {str_of(labels), own[0] ? (struct str){own + 1, strlen(own) - 2} : STR(""),
                          str_of(more)};
    const char *separator = "{";
    buf_printf(out, "fantail_%.*s%s", STR_ARG(name), suffix);
    for (size_t i = 0; i < COUNT_OF(parts); i++) {
        if (parts[i].len == 0)
            continue;
        buf_printf(out, "%s%.*s", separator, STR_ARG(parts[i]));
        separator = ",";
    }
    buf_printf(out, "%s", separator[0] == ',' ? "} " : " ");
}

static void put_summary(struct buf *out, const struct metric *m, const struct metric_item *item)
{
    struct metric_summary s;
    memcpy(&s, (const char *)item->base + m->offset, sizeof s);
    const struct {
        const char *label;
        double value;
    } quantiles[] = {{"quantile=\"0.5\"", s.p50_s},
                     {"quantile=\"0.95\"", s.p95_s},
                     {"quantile=\"0.99\"", s.p99_s}};
    for (size_t i = 0; i < COUNT_OF(quantiles); i++) {
        if (quantiles[i].value < 0)
            continue;
        put_name(out, m, "", item->labels, quantiles[i].label);
        buf_printf(out, "%.6f\n", quantiles[i].value);
    }
    put_name(out, m, "_sum", item->labels, "");
    buf_printf(out, "%.6f\n", s.sum_s);
    put_name(out, m, "_count", item->labels, "");
    buf_printf(out, "%llu\n", (unsigned long long)s.count);
}

const double metric_bounds_s[METRIC_BOUNDS] = {0.001, 0.005, 0.025, 0.1, 0.5, 1, 5, 30, 120, 600};

static void put_histogram(struct buf *out, const struct metric *m, const struct metric_item *item)
{
    struct metric_histogram h;
    char bound[32];
    memcpy(&h, (const char *)item->base + m->offset, sizeof h);
    for (size_t i = 0; i < METRIC_BOUNDS; i++) {
        snprintf(bound, sizeof bound, "le=\"%g\"", metric_bounds_s[i]);
        put_name(out, m, "_bucket", item->labels, bound);
        buf_printf(out, "%llu\n", (unsigned long long)h.at_most[i]);
    }
    put_name(out, m, "_bucket", item->labels, "le=\"+Inf\"");
    buf_printf(out, "%llu\n", (unsigned long long)h.count);
    put_name(out, m, "_sum", item->labels, "");
    buf_printf(out, "%.6f\n", h.sum_s);
    put_name(out, m, "_count", item->labels, "");
    buf_printf(out, "%llu\n", (unsigned long long)h.count);
}

static void put_value(struct buf *out, const struct metric *m, const struct metric_item *item)
{
    double value = read_number(m, item->base);
    if (m->kind == METRIC_NONZERO && value == 0)
        return;
    put_name(out, m, "", item->labels, "");
    buf_printf(out, "%.15g\n",
               m->kind == METRIC_MS || m->kind == METRIC_TIME ? value / 1000.0 : value);
}

static const struct metric_set *find_set(const struct metric_set *sets, size_t n, const char *name)
{
    for (size_t i = 0; i < n; i++)
        if (strcmp(sets[i].name, name) == 0)
            return &sets[i];
    return NULL;
}

void metrics_write_text(struct buf *out, const struct metric *rows, size_t row_count,
                        const struct metric_set *sets, size_t set_count)
{
    const struct metric *before = NULL;
    for (const struct metric *m = rows; m < rows + row_count; m++) {
        const struct metric_set *set = m->name ? find_set(sets, set_count, m->set) : NULL;
        if (!set)
            continue;
        if (!before || !str_eq(name_of(before), name_of(m)))
            put_head(out, m);
        before = m;
        for (size_t i = 0; i < set->count; i++) {
            if (m->kind == METRIC_SUMMED)
                put_summary(out, m, &set->items[i]);
            else if (m->kind == METRIC_BUCKETS)
                put_histogram(out, m, &set->items[i]);
            else
                put_value(out, m, &set->items[i]);
        }
    }
}

/* ---- JSON ---- */

static void put_member(struct json_out *j, const struct metric *m, const void *base)
{
    uint64_t word = read_word(m, base);
    json_key(j, str_of(m->member));
    switch (m->kind) {
    case METRIC_F64:
        json_f64(j, read_number(m, base));
        return;
    case METRIC_BOOL:
        json_bool(j, word != 0);
        return;
    case METRIC_ID:
        json_id(j, word);
        return;
    case METRIC_I64:
    case METRIC_MS:
        json_i64(j, (int64_t)word);
        return;
    case METRIC_TIME:
        word ? json_time(j, (int64_t)word) : json_nil(j);
        return;
    default:
        json_u64(j, word);
    }
}

void metrics_write_members(struct json_out *j, const struct metric *rows, size_t row_count,
                           const char *set, const void *base)
{
    for (const struct metric *m = rows; m < rows + row_count; m++)
        if (m->member && strcmp(m->set, set) == 0)
            put_member(j, m, base);
}

void metrics_write_schema(struct json_out *j, const struct metric *rows, size_t row_count,
                          const char *set)
{
    json_object_begin(j);
    json_put(j, "type", raw, STR("[\"object\",\"null\"]"));
    json_key(j, STR("properties"));
    json_object_begin(j);
    for (const struct metric *m = rows; m < rows + row_count; m++) {
        if (!m->member || strcmp(m->set, set) != 0)
            continue;
        json_key(j, str_of(m->member));
        json_object_begin(j);
        if (m->kind != METRIC_TIME)
            json_put(j, "type", str,
                     m->kind == METRIC_BOOL  ? STR("boolean")
                     : m->kind == METRIC_F64 ? STR("number")
                     : m->kind == METRIC_ID  ? STR("string")
                                             : STR("integer"));
        json_put(j, "description", str, str_of(m->help));
        json_object_end(j);
    }
    json_object_end(j);
    json_object_end(j);
}
