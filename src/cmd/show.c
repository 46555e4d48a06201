/* Renders templates. An omitted section is rendered first and cut off again: that finds its end
 * without a second parser. Templates are our own literals, so a malformed one is a bug and ends in
 * a CHECK; values come from the server and may be anything.
 *
 * Spans are rounded down to the largest unit that says enough: an operator compares spans and does
 * not add them up. */
#include "cmd/show.h"

#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/check.h"
#include "base/clock.h"
#include "ops/progress.h"

struct render {
    struct buf *out;
    const json_t *root;
    int64_t now_ms;
};

/* Where in the answer a piece of the template stands. */
struct place {
    const json_t *here;
    size_t round;
    const char *name; /* of the member that a loop is at; NULL: it is an item */
};

/* ---- values ---- */

static const json_t *find(const struct render *r, const struct place *at, struct str path)
{
    const json_t *value = at->here;
    struct str part;
    if (str_eq(path, STR(".")))
        return value;
    if (str_starts(path, STR("/"))) {
        value = r->root;
        path = (struct str){path.ptr + 1, path.len - 1};
    }
    while (str_split(&path, '.', &part))
        value = json_object_getn(value, part.ptr, part.len);
    return value;
}

static double number_of(const json_t *value)
{
    int64_t parsed;
    if (json_is_string(value))
        return str_parse_i64(str_of(json_string_value(value)), &parsed) ? (double)parsed : 0;
    if (json_is_array(value))
        return (double)json_array_size(value);
    return json_is_true(value) ? 1 : json_number_value(value);
}

static double number_at(const struct render *r, const struct place *at, struct str path)
{
    double sum = 0;
    struct str part;
    if (str_eq(path, STR("#")))
        return (double)at->round;
    while (str_split(&path, '+', &part))
        sum += number_of(find(r, at, part));
    return sum;
}

static bool is_there(const json_t *value)
{
    if (json_is_string(value))
        return json_string_length(value) > 0;
    return json_is_object(value) ? json_object_size(value) > 0 : number_of(value) != 0;
}

static void put_plain(struct buf *out, const json_t *value)
{
    size_t i;
    const char *key;
    json_t *item;
    if (json_is_string(value)) {
        buf_printf(out, "%s", json_string_value(value));
    } else if (json_is_array(value)) {
        json_array_foreach(value, i, item)
        {
            buf_printf(out, "%s", i ? "," : "");
            put_plain(out, item);
        }
    } else if (json_is_object(value)) {
        const char *separator = "";
        json_object_foreach((json_t *)(uintptr_t)value, key, item)
        {
            buf_printf(out, "%s%s ", separator, key);
            put_plain(out, item);
            separator = ", ";
        }
    } else if (value) {
        char *text = json_dumps(value, JSON_ENCODE_ANY | JSON_COMPACT);
        buf_printf(out, "%s", text ? text : "");
        free(text);
    }
}

/* The members that count something. */
static void put_sums(struct buf *out, const json_t *object, const char *otherwise)
{
    const char *separator = "", *key;
    char count[SHOWN_MAX];
    json_t *item;
    json_object_foreach((json_t *)(uintptr_t)object, key, item)
    {
        if (json_integer_value(item) <= 0)
            continue;
        progress_print_count((uint64_t)json_integer_value(item), count);
        buf_printf(out, "%s%s %s", separator, count, key);
        separator = ", ";
    }
    if (!separator[0])
        buf_printf(out, "%s", otherwise);
}

/* ---- formats ---- */

const char *show_span(int64_t ms, char out[SHOWN_MAX])
{
    static const struct {
        int64_t below_ms, unit_ms;
        const char *name;
    } units[] = {{1000, 1, "ms"},
                 {120 * 1000, 1000, "s"},
                 {7200 * 1000, 60 * 1000, "min"},
                 {172800 * 1000, 3600 * 1000, "h"},
                 {INT64_MAX, 86400 * 1000, "days"}};
    size_t i = 0;
    while (ms >= units[i].below_ms)
        i++;
    if (ms <= 0)
        snprintf(out, SHOWN_MAX, "-");
    else
        snprintf(out, SHOWN_MAX, "%lld %s", (long long)(ms / units[i].unit_ms), units[i].name);
    return out;
}

/* An RFC 3339 text as "3 min ago" or "in 3 min", or, when `bare`, as "3 min"; none: "-". */
static void put_moment(struct buf *out, const char *time, int64_t now_ms, bool bare)
{
    int64_t ms;
    char span[SHOWN_MAX];
    if (!time || !time_parse(str_of(time), &ms))
        buf_printf(out, "-");
    else if (bare)
        buf_printf(out, "%s", show_span(now_ms - ms, span));
    else if (ms > now_ms)
        buf_printf(out, "in %s", show_span(ms - now_ms, span));
    else if (ms == now_ms)
        buf_printf(out, "now");
    else
        buf_printf(out, "%s ago", show_span(now_ms - ms, span));
}

/* kind: as in show.h, or "one|many" */
static void put_kind(struct render *r, const json_t *value, double number, const char *kind,
                     const char *otherwise)
{
    struct buf *out = r->out;
    uint64_t whole = number > 0 ? (uint64_t)number : 0;
    char text[SHOWN_MAX];
    const char *bar = strchr(kind, '|');
    progress_print_count(whole, text);
    if (strcmp(kind, "n") == 0) {
        buf_printf(out, "%s", text);
    } else if (bar) {
        buf_printf(out, "%s %.*s", text, (int)(whole == 1 ? bar - kind : (long)strlen(bar + 1)),
                   whole == 1 ? kind : bar + 1);
    } else if (strcmp(kind, "ms") == 0) {
        buf_printf(out, "%s", show_span((int64_t)number, text));
    } else if (strcmp(kind, "bytes") == 0) {
        progress_print_bytes(whole, text);
        buf_printf(out, "%s", text);
    } else if (strcmp(kind, "%") == 0) {
        buf_printf(out, "%.1f%%", 100 * number);
    } else if (kind[0] == '.') {
        buf_printf(out, "%.*f", kind[1] - '0', number);
    } else if (strcmp(kind, "sums") == 0) {
        put_sums(out, value, otherwise);
    } else {
        CHECK(strcmp(kind, "ago") == 0 || strcmp(kind, "since") == 0);
        put_moment(out, json_string_value(value), r->now_ms, kind[0] == 's');
    }
}

static void pad(struct buf *out, size_t from, size_t width, bool left)
{
    size_t len = out->len - from;
    if (out->failed || len >= width)
        return;
    buf_printf(out, "%*s", (int)(width - len), "");
    if (left || out->failed)
        return;
    memmove(out->ptr + from + width - len, out->ptr + from, len);
    memset(out->ptr + from, ' ', width - len);
}

/* After the '{'. False in *there: it has no value. */
static const char *put_field(struct render *r, const struct place *at, const char *t, bool *there)
{
    const char *end = strchr(t, '}');
    CHECK(end);
    char text[100], *otherwise, *format;
    size_t len = (size_t)(end - t), from = r->out->len;
    CHECK(len < sizeof text);
    memcpy(text, t, len);
    text[len] = '\0';
    if ((format = strchr(text, ':')))
        *format++ = '\0';
    if ((otherwise = strchr(text, '?')))
        *otherwise++ = '\0';
    bool left = format && *format == '-';
    char *kind = format ? format + left : NULL;
    size_t width = kind ? strtoul(kind, &kind, 10) : 0;
    struct str path = str_of(text);
    const json_t *value = find(r, at, path);
    double number = number_at(r, at, path);
    bool counted = text[0] == '#' || strchr(text, '+');
    *there = counted ? number != 0 : is_there(value);
    if (kind && *kind)
        put_kind(r, value, number, kind, otherwise ? otherwise : "");
    else if (otherwise && !*there)
        buf_printf(r->out, "%s", otherwise);
    else if (text[0] == '#' && at->name)
        buf_printf(r->out, "%s", at->name);
    else if (counted)
        buf_printf(r->out, "%.0f", number);
    else if (!json_is_null(value))
        put_plain(r->out, value);
    pad(r->out, from, width, left);
    return end + 1;
}

/* ---- sections ---- */

struct test {
    struct str path, word;
    char op; /* '?', '!', '=', '#' (differs), '>', '<' */
};

static struct test parse_test(struct str text)
{
    struct test t = {.path = text, .op = '?'};
    if (str_starts(text, STR("!"))) {
        t = (struct test){.path = {text.ptr + 1, text.len - 1}, .op = '!'};
        return t;
    }
    for (size_t i = 0; i < text.len; i++) {
        if (!strchr("=<>!", text.ptr[i]))
            continue;
        size_t word = i + (text.ptr[i] == '!' ? 2 : 1);
        t.op = (char)(text.ptr[i] == '!' ? '#' : text.ptr[i]);
        t.path.len = i;
        t.word = (struct str){text.ptr + word, text.len - word};
        break;
    }
    return t;
}

static bool value_passes(const json_t *value, double number, bool counted, const struct test *t)
{
    int64_t bound = 0;
    char said[200];
    struct buf text = buf_over(said, sizeof said);
    switch (t->op) {
    case '?':
        return counted ? number != 0 : is_there(value);
    case '!':
        return counted ? number == 0 : !is_there(value);
    case '=':
    case '#':
        put_plain(&text, value);
        return str_eq(buf_view(&text), t->word) == (t->op == '=');
    default:
        str_parse_i64(t->word, &bound);
        return t->op == '>' ? number > (double)bound : number < (double)bound;
    }
}

/* Through an array: does any item pass? */
static bool passes(const struct render *r, const struct place *at, const struct test *t)
{
    struct str rest = t->path, first;
    bool counted = str_eq(t->path, STR("#")) || memchr(t->path.ptr, '+', t->path.len);
    if (!counted && str_split(&rest, '.', &first) && rest.len > 0) {
        const json_t *inner = find(r, at, first);
        struct test further = {rest, t->word, t->op};
        size_t i;
        json_t *item;
        json_array_foreach(inner, i, item)
        {
            if (passes(r, &(struct place){.here = item}, &further))
                return true;
        }
        return !json_is_array(inner) && passes(r, &(struct place){.here = inner}, &further);
    }
    return value_passes(find(r, at, t->path), number_at(r, at, t->path), counted, t);
}

/* After the "[?". */
static const char *put_test(const struct render *r, const struct place *at, const char *t,
                            bool *holds)
{
    const char *end = strchr(t, ' ');
    CHECK(end);
    struct str ways = {t, (size_t)(end - t)}, way, one;
    *holds = false;
    while (!*holds && str_split(&ways, '|', &way)) {
        *holds = true;
        while (*holds && str_split(&way, '&', &one)) {
            struct test test = parse_test(one);
            *holds = passes(r, at, &test);
        }
    }
    return end + 1;
}

static const char *put_body(struct render *r, const struct place *at, const char *t, char end,
                            bool *complete);

static const char *put_section(struct render *r, const struct place *at, const char *t)
{
    bool asked = *t == '?', holds = true, complete = true;
    size_t before = r->out->len;
    if (asked)
        t = put_test(r, at, t + 1, &holds);
    t = put_body(r, at, t, ']', &complete);
    if (!holds || (!asked && !complete))
        r->out->len = before;
    return t;
}

static const char *put_loop(struct render *r, const struct place *at, const char *t)
{
    const char *space = strchr(t, ' '), *end = NULL, *name;
    CHECK(space);
    const json_t *list = find(r, at, (struct str){t, (size_t)(space - t)});
    struct place round = {NULL, 0, NULL};
    size_t before = r->out->len;
    bool complete = true;
    json_t *item;
    json_array_foreach(list, round.round, item)
    {
        round.here = item;
        end = put_body(r, &round, space + 1, '>', &complete);
    }
    json_object_foreach((json_t *)(uintptr_t)list, name, item)
    {
        round.here = item;
        round.name = name;
        end = put_body(r, &round, space + 1, '>', &complete);
        round.round++;
    }
    if (end)
        return end;
    end = put_body(r, &round, space + 1, '>', &complete);
    r->out->len = before;
    return end;
}

static const char *put_body(struct render *r, const struct place *at, const char *t, char end,
                            bool *complete)
{
    while (*t && *t != end) {
        size_t plain = strcspn(t, "{[<]>");
        bool there = true;
        if (plain > 0) {
            buf_append(r->out, t, plain);
            t += plain;
        } else if (*t == '{') {
            t = put_field(r, at, t + 1, &there);
        } else {
            CHECK(*t == '[' || *t == '<');
            t = *t == '[' ? put_section(r, at, t + 1) : put_loop(r, at, t + 1);
        }
        *complete = *complete && there;
    }
    CHECK(*t == end);
    return end ? t + 1 : t;
}

void show_text(FILE *out, const char *template, const json_t *value)
{
    struct buf text;
    bool complete = true;
    buf_init(&text, 0);
    struct render r = {&text, value, show_now_ms()};
    put_body(&r, &(struct place){.here = value}, template, '\0', &complete);
    fwrite(text.ptr, 1, text.len, out);
    buf_done(&text);
}

void show_json(const json_t *value)
{
    json_dumpf(value, stdout, JSON_INDENT(2));
    printf("\n");
}

/* ---- moments ---- */

int64_t show_now_ms(void)
{
    return clock_wall_ms(clock_system());
}

bool show_parse_moment(const char *text, char out[SHOWN_MAX])
{
    int64_t ms, ago_ms;
    if (!time_parse(str_of(text), &ms) && !str_parse_i64(str_of(text), &ms)) {
        if (!settings_parse_span(text, &ago_ms))
            return false;
        ms = show_now_ms() - ago_ms;
    }
    time_format(ms > 0 ? ms : 0, out);
    out[TIME_TEXT_LEN] = '\0';
    return true;
}
