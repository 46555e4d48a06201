/* What a replay was asked for: reading it from JSON, writing it, and the rule of the duplicate
 * memory.
 *
 * The text comes from operators and lies in the jobs' table for as long as the job is open, so it
 * is read strictly: an unknown field, consumer, type or channel is refused with the ones there are.
 * A misspelt selection must never be taken for a wider one. */
#include <jansson.h>
#include <stdio.h>

#include "base/check.h"
#include "base/id.h"
#include "base/json_out.h"
#include "pipe/replay.h"

enum { WHY_MAX = 200, NAMES_MAX = 120 };

struct parsing {
    const struct rule *rules;
    size_t rule_count;
    struct replay_spec *out;
    char *why;
};

static bool refuse(struct parsing *p, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

static bool refuse(struct parsing *p, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    vsnprintf(p->why, WHY_MAX, format, args);
    va_end(args);
    /* When it had to be cut, not through the middle of a character. */
    p->why[str_cut(str_of(p->why), WHY_MAX).len] = '\0';
    return false;
}

/* ---- the names there are ---- */

struct names {
    char text[NAMES_MAX];
    size_t len;
    bool cut;
};

/* Adds a name that is not there yet; one that does not fit becomes "…". */
static void add_name(struct names *names, const char *name)
{
    struct str rest = {names->text, names->len}, part;
    while (str_split(&rest, ',', &part)) {
        if (str_eq(str_trim(part), str_of(name)))
            return;
    }
    if (names->cut)
        return;
    size_t room = NAMES_MAX - names->len;
    int n = snprintf(names->text + names->len, room, "%s%s", names->len > 0 ? ", " : "", name);
    names->cut = n < 0 || (size_t)n + sizeof " …" > room;
    if (names->cut)
        snprintf(names->text + names->len, room, " …");
    else
        names->len += (size_t)n;
}

/* What the rules name: all consumers, and the types and outside channels of the chosen one. */
enum named { CONSUMERS, TYPES, CHANNELS };

/* NULL: the rule names nothing of that kind. */
static const char *name_in(const struct parsing *p, const struct rule *rule, enum named kind)
{
    if (kind == CONSUMERS)
        return rule->consumer;
    if (strcmp(rule->consumer, p->out->consumer) != 0)
        return NULL;
    if (kind == TYPES)
        return event_wire_name(rule->on);
    return rule->effect == EFFECT_OUTSIDE ? rule->channel : NULL;
}

static bool is_known(const struct parsing *p, enum named kind, const char *name)
{
    for (size_t i = 0; i < p->rule_count; i++) {
        const char *known = name_in(p, &p->rules[i], kind);
        if (known && strcmp(known, name) == 0)
            return true;
    }
    return false;
}

static struct names known_names(const struct parsing *p, enum named kind)
{
    struct names names = {.len = 0};
    for (size_t i = 0; i < p->rule_count; i++) {
        const char *known = name_in(p, &p->rules[i], kind);
        if (known)
            add_name(&names, known);
    }
    return names;
}

/* ---- fields ---- */

static bool read_text(struct parsing *p, const char *field, const json_t *value, char *out,
                      size_t size)
{
    if (!json_is_string(value) || json_string_length(value) == 0)
        return refuse(p, "%s: must be a text", field);
    if (json_string_length(value) >= size)
        return refuse(p, "%s: at most %zu bytes", field, size - 1);
    memcpy(out, json_string_value(value), json_string_length(value) + 1);
    return true;
}

static bool read_consumer(struct parsing *p, const char *field, const json_t *value)
{
    struct names known = known_names(p, CONSUMERS);
    if (!value)
        return refuse(p, "%s: required; one of: %s", field, known.text);
    return read_text(p, field, value, p->out->consumer, sizeof p->out->consumer) &&
           (is_known(p, CONSUMERS, p->out->consumer) ||
            refuse(p, "%s: there is no \"%s\"; one of: %s", field, p->out->consumer, known.text));
}

static bool read_type(struct parsing *p, const char *field, const json_t *value)
{
    return read_text(p, field, value, p->out->type, sizeof p->out->type) &&
           (is_known(p, TYPES, p->out->type) ||
            refuse(p, "%s: %s gets no \"%s\"; it gets: %s", field, p->out->consumer, p->out->type,
                   known_names(p, TYPES).text));
}

static bool read_time(struct parsing *p, const char *field, const json_t *value, int64_t *out)
{
    struct str text = {json_string_value(value), json_string_length(value)};
    if (!json_is_string(value) || !time_parse(text, out) || *out <= 0)
        return refuse(p, "%s: must be a time like \"2026-11-15T08:00:00Z\"", field);
    return true;
}

static bool read_from(struct parsing *p, const char *field, const json_t *value)
{
    return read_time(p, field, value, &p->out->from_ms);
}

static bool read_to(struct parsing *p, const char *field, const json_t *value)
{
    if (!read_time(p, field, value, &p->out->to_ms))
        return false;
    return p->out->to_ms >= p->out->from_ms || refuse(p, "%s: lies before from", field);
}

static bool read_key(struct parsing *p, const char *field, const json_t *value)
{
    struct str text = {json_string_value(value), json_string_length(value)};
    if (!json_is_string(value) || !id_parse(text, &p->out->key))
        return refuse(p, "%s: must be an account's id as a text, like \"42\"", field);
    return true;
}

static bool read_dead_reason(struct parsing *p, const char *field, const json_t *value)
{
    char *out = p->out->dead_reason;
    if (!read_text(p, field, value, out, sizeof p->out->dead_reason))
        return false;
    if (strcmp(out, "*") == 0)
        return true;
    if (out[strspn(out, "ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_")] != '\0')
        return refuse(p, "%s: must be a reason like \"UNAVAILABLE\", or \"*\" for any", field);
    return true;
}

static bool read_allow(struct parsing *p, const char *field, const json_t *value)
{
    struct replay_spec *out = p->out;
    if (!json_is_array(value) || json_array_size(value) > REPLAY_CHANNELS_MAX)
        return refuse(p, "%s: must be a list of at most %d channels", field, REPLAY_CHANNELS_MAX);
    for (size_t at = 0; at < json_array_size(value); at++) {
        char *channel = out->allow[at];
        if (!read_text(p, field, json_array_get(value, at), channel, sizeof out->allow[0]))
            return false;
        struct names names = known_names(p, CHANNELS);
        if (!is_known(p, CHANNELS, channel))
            return refuse(p, "%s: %s does not use \"%s\"; it uses: %s", field, out->consumer,
                          channel, names.len > 0 ? names.text : "no outside channel");
    }
    out->allow_count = json_array_size(value);
    return true;
}

static bool read_accept(struct parsing *p, const char *field, const json_t *value)
{
    if (!json_is_boolean(value))
        return refuse(p, "%s: must be true or false", field);
    p->out->accept_duplicates = json_is_true(value);
    return true;
}

/* In the order in which they rest on each other. */
static const struct {
    const char *name;
    bool (*read)(struct parsing *p, const char *field, const json_t *value);
} fields[] = {
    {"consumer", read_consumer}, {"type", read_type},
    {"from", read_from},         {"to", read_to},
    {"key", read_key},           {"dead_reason", read_dead_reason},
    {"allow", read_allow},       {"accept_duplicates", read_accept},
};

static bool read_fields(struct parsing *p, json_t *object)
{
    const char *name;
    json_t *value;
    json_object_foreach(object, name, value)
    {
        bool known = false;
        for (size_t i = 0; i < COUNT_OF(fields); i++)
            known = known || strcmp(name, fields[i].name) == 0;
        if (!known)
            return refuse(p,
                          "unknown field \"%.40s\"; known: consumer, type, from, to, key, "
                          "dead_reason, allow, accept_duplicates",
                          name);
    }
    for (size_t i = 0; i < COUNT_OF(fields); i++) {
        value = json_object_get(object, fields[i].name);
        if ((value || i == 0) && !fields[i].read(p, fields[i].name, value))
            return false;
    }
    return true;
}

enum err replay_spec_parse(struct str json, const struct rule *rules, size_t n,
                           struct replay_spec *out, char why[200])
{
    struct parsing p = {.rules = rules, .rule_count = n, .out = out, .why = why};
    *out = (struct replay_spec){0};
    why[0] = '\0';
    if (json.len >= JOB_SPEC_MAX) {
        refuse(&p, "the selection is longer than %d bytes", JOB_SPEC_MAX - 1);
        return ERR_INVALID;
    }
    json_error_t error;
    json_t *root = json_loadb(json.ptr ? json.ptr : "", json.len, JSON_REJECT_DUPLICATES, &error);
    bool valid = json_is_object(root) ? read_fields(&p, root)
                                      : refuse(&p, "the selection must be a JSON object");
    json_decref(root);
    return valid ? OK : ERR_INVALID;
}

void replay_spec_write(const struct replay_spec *spec, struct buf *out)
{
    struct json_out j;
    json_out_init(&j, out);
    json_object_begin(&j);
    json_put(&j, "consumer", str, str_of(spec->consumer));
    if (spec->type[0])
        json_put(&j, "type", str, str_of(spec->type));
    if (spec->from_ms)
        json_put(&j, "from", time, spec->from_ms);
    if (spec->to_ms)
        json_put(&j, "to", time, spec->to_ms);
    if (spec->key)
        json_put(&j, "key", id, spec->key);
    if (spec->dead_reason[0])
        json_put(&j, "dead_reason", str, str_of(spec->dead_reason));
    if (spec->allow_count > 0) {
        json_key(&j, STR("allow"));
        json_array_begin(&j);
        for (size_t i = 0; i < spec->allow_count; i++)
            json_str(&j, str_of(spec->allow[i]));
        json_array_end(&j);
    }
    if (spec->accept_duplicates)
        json_put(&j, "accept_duplicates", bool, true);
    json_object_end(&j);
}

/* ---- what follows from it ---- */

void replay_range(const struct replay_spec *spec, int64_t now_ms, uint64_t *after, uint64_t *last)
{
    uint64_t first = id_at(spec->from_ms, 0, 0);
    *after = first > 0 ? first - 1 : 0;
    *last = id_at(spec->to_ms > 0 ? spec->to_ms : now_ms, (1u << ID_NODE_BITS) - 1,
                  (1u << ID_COUNTER_BITS) - 1);
}

void replay_job_init(struct job *job, const struct replay_spec *spec, int64_t rate, uint64_t total,
                     int64_t now_ms)
{
    *job = (struct job){.kind = "replay", .rate = rate, .total = total};
    struct replay_spec ended = *spec;
    if (ended.to_ms == 0)
        ended.to_ms = now_ms;
    replay_range(&ended, now_ms, &job->position, &job->last);
    struct buf text = buf_over(job->spec, sizeof job->spec - 1);
    replay_spec_write(&ended, &text);
    CHECK(!text.failed);
    job->spec[text.len] = '\0';
}

enum err replay_check(const struct replay_spec *spec, const struct rule *rules, size_t n,
                      int64_t dedup_ms, int64_t oldest_kept_ms, int64_t now_ms, char why[300])
{
    enum { CHECK_WHY_MAX = 300 };
    bool remembers = false;
    why[0] = '\0';
    for (size_t i = 0; i < n; i++)
        remembers = remembers ||
                    (strcmp(rules[i].consumer, spec->consumer) == 0 && rules[i].dedup != DEDUP_OFF);
    int64_t from_ms = spec->from_ms > 0 ? spec->from_ms : oldest_kept_ms;
    int64_t memory_ms = now_ms - dedup_ms;
    bool anything = oldest_kept_ms > 0; /* of an empty outbox nothing can be doubled */
    char from[TIME_TEXT_LEN], to[TIME_TEXT_LEN];
    time_format(from_ms, from);
    if (remembers && anything && from_ms < memory_ms && !spec->accept_duplicates) {
        time_format(memory_ms, to);
        snprintf(why, CHECK_WHY_MAX,
                 "the range begins at %.*s, and %s remembers what it did only since %.*s: what is "
                 "older could be done twice. Begin later, or accept that (--accept-duplicates, "
                 "\"accept_duplicates\": true)",
                 TIME_TEXT_LEN, from, spec->consumer, TIME_TEXT_LEN, to);
        return ERR_CONFLICT;
    }
    if (!anything) {
        snprintf(why, CHECK_WHY_MAX, "no events are kept at the moment");
    } else if (spec->from_ms > 0 && spec->from_ms < oldest_kept_ms) {
        time_format(oldest_kept_ms, to);
        snprintf(why, CHECK_WHY_MAX,
                 "the range begins at %.*s, and events are kept only since %.*s: what is older is "
                 "gone",
                 TIME_TEXT_LEN, from, TIME_TEXT_LEN, to);
    }
    return OK;
}
