/* Spans are rounded down to the largest unit that says enough: an operator compares, nobody adds
 * up. */
#include "cmd/show.h"

#include <stdio.h>

#include "base/clock.h"
#include "cmd/link.h"
#include "ops/progress.h"

const char *show_count(uint64_t n, char out[SHOWN_MAX])
{
    progress_print_count(n, out);
    return out;
}

const char *show_number(uint64_t n, const char *one, const char *many, char out[SHOWN_MAX])
{
    char count[SHOWN_MAX];
    progress_print_count(n, count);
    snprintf(out, SHOWN_MAX, "%.13s %.17s", count, n == 1 ? one : many);
    return out;
}

const char *show_span(int64_t ms, char out[SHOWN_MAX])
{
    int64_t s = ms / 1000;
    if (ms <= 0)
        snprintf(out, SHOWN_MAX, "-");
    else if (ms < 1000)
        snprintf(out, SHOWN_MAX, "%lld ms", (long long)ms);
    else if (s < 120)
        snprintf(out, SHOWN_MAX, "%lld s", (long long)s);
    else if (s < 7200)
        snprintf(out, SHOWN_MAX, "%lld min", (long long)(s / 60));
    else if (s < 172800)
        snprintf(out, SHOWN_MAX, "%lld h", (long long)(s / 3600));
    else
        snprintf(out, SHOWN_MAX, "%lld days", (long long)(s / 86400));
    return out;
}

const char *show_when(const char *time, int64_t now_ms, char out[SHOWN_MAX])
{
    int64_t ms;
    char span[SHOWN_MAX];
    if (!time_parse(str_of(time), &ms))
        snprintf(out, SHOWN_MAX, "-");
    else if (ms > now_ms)
        snprintf(out, SHOWN_MAX, "in %.20s", show_span(ms - now_ms, span));
    else if (now_ms - ms < 1)
        snprintf(out, SHOWN_MAX, "now");
    else
        snprintf(out, SHOWN_MAX, "%.20s ago", show_span(now_ms - ms, span));
    return out;
}

const char *show_since(const char *time, int64_t now_ms, char out[SHOWN_MAX])
{
    int64_t ms;
    return show_span(time_parse(str_of(time), &ms) ? now_ms - ms : 0, out);
}

void show_json(const json_t *value)
{
    json_dumpf(value, stdout, JSON_INDENT(2));
    printf("\n");
}

int64_t show_now_ms(void)
{
    return clock_wall_ms(clock_system());
}

/* "2h" → ms; false: it is no such thing. */
static bool parse_ago(struct str text, int64_t *ms)
{
    static const struct {
        char unit;
        int64_t ms;
    } units[] = {{'s', 1000}, {'m', 60 * 1000}, {'h', 3600 * 1000}, {'d', 86400 * 1000}};
    int64_t n;
    if (text.len < 2 || !str_parse_i64((struct str){text.ptr, text.len - 1}, &n) || n < 0)
        return false;
    for (size_t i = 0; i < sizeof units / sizeof *units; i++) {
        if (text.ptr[text.len - 1] == units[i].unit && n <= INT64_MAX / 2 / units[i].ms) {
            *ms = n * units[i].ms;
            return true;
        }
    }
    return false;
}

bool show_parse_moment(const struct invocation *in, const char *option, char out[SHOWN_MAX])
{
    const char *text = invocation_value(in, option);
    int64_t ms, ago;
    out[0] = '\0';
    if (!text)
        return true;
    if (parse_ago(str_of(text), &ago)) {
        ms = show_now_ms() - ago;
    } else if (!time_parse(str_of(text), &ms) && !str_parse_i64(str_of(text), &ms)) {
        command_usage(in,
                      "--%s: '%.60s' is no moment: write 2026-11-15T08:00:00Z, or 2h for two hours "
                      "ago (s, m, h, d)",
                      option, text);
        return false;
    }
    time_format(ms > 0 ? ms : 0, out);
    out[TIME_TEXT_LEN] = '\0';
    return true;
}
