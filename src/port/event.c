/* Events: the table's look-ups, the list that a transaction collects, the payload column, and the
 * lifts that bring a row of an older version to the present one.
 *
 * The payload is read by a parser of its own, because recovery reads it for every outbox row and
 * because it must be strict: the known fields, each once, in any order, with JSON's white space
 * allowed between them (a database may store JSON in a form of its own). Anything else is damage:
 * an event that is not understood is parked, never guessed.
 *
 * A version of a type is a meaning of the fields. Rows outlive programs: the outbox and the
 * delivery store may hold what an earlier release wrote. So raising a version in event.h comes with
 * a lift from the one before, one step each, and the code behind this file knows the present one
 * alone. Lifts stay for as long as any store may hold such a row; nothing is ever written back. */
#include "port/event.h"

#include <stdlib.h>

#include "base/check.h"

static const struct {
    struct str wire_name;
    uint16_t version;
    enum event_keep keep;
} types[EVENT_TYPE_COUNT] = {
#define EVENT_ROW(name, wire, version, keep)                                                       \
    [EVENT_##name] = {{wire, sizeof wire - 1}, version, EVENT_##keep},
    EVENT_TABLE(EVENT_ROW)
#undef EVENT_ROW
};

const char *event_wire_name(enum event_type type)
{
    CHECK(type < EVENT_TYPE_COUNT);
    return types[type].wire_name.ptr;
}

uint16_t event_version(enum event_type type)
{
    CHECK(type < EVENT_TYPE_COUNT);
    return types[type].version;
}

enum event_keep event_keep(enum event_type type)
{
    CHECK(type < EVENT_TYPE_COUNT);
    return types[type].keep;
}

bool event_is_applied_by_data(enum event_type type)
{
    return type == EVENT_FOLLOWS_IMPORTED;
}

bool event_type_parse(struct str wire_name, enum event_type *type)
{
    for (size_t i = 0; i < EVENT_TYPE_COUNT; i++) {
        if (str_eq(wire_name, types[i].wire_name)) {
            *type = (enum event_type)i;
            return true;
        }
    }
    return false;
}

/* ---- lists ---- */

void event_list_add(struct event_list *list, const struct event *e)
{
    if (list->count == list->capacity) {
        size_t capacity = list->capacity ? list->capacity * 2 : 4;
        struct event *items = realloc(list->items, capacity * sizeof *items);
        CHECK(items);
        list->items = items;
        list->capacity = capacity;
    }
    list->items[list->count++] = *e;
}

void event_list_clear(struct event_list *list)
{
    list->count = 0;
}

void event_list_done(struct event_list *list)
{
    free(list->items);
    *list = (struct event_list){0};
}

/* ---- the payload ---- */

static void write_id(struct buf *out, struct str name, uint64_t id)
{
    buf_str(out, name);
    buf_u64(out, id);
    buf_str(out, STR("\""));
}

void event_payload(const struct event *e, struct buf *out)
{
    CHECK(e->data.len <= EVENT_DATA_MAX);
    write_id(out, STR("{\"actor\":\""), e->actor);
    write_id(out, STR(",\"object\":\""), e->object);
    buf_str(out, STR(",\"value\":"));
    if (e->value < 0)
        buf_str(out, STR("-"));
    buf_u64(out, e->value < 0 ? 0 - (uint64_t)e->value : (uint64_t)e->value);
    if (e->subject)
        write_id(out, STR(",\"subject\":\""), e->subject);
    if (e->data.len > 0) {
        buf_str(out, STR(",\"data\":"));
        buf_str(out, e->data);
    }
    buf_str(out, STR("}"));
}

static void skip_space(struct str *s)
{
    while (s->len > 0 &&
           (s->ptr[0] == ' ' || s->ptr[0] == '\t' || s->ptr[0] == '\n' || s->ptr[0] == '\r')) {
        s->ptr++;
        s->len--;
    }
}

/* Takes white space and then exactly `c`. */
static bool take_char(struct str *s, char c)
{
    skip_space(s);
    if (s->len == 0 || s->ptr[0] != c)
        return false;
    s->ptr++;
    s->len--;
    return true;
}

/* A string without escapes: none of ours has any. */
static bool take_string(struct str *s, struct str *out)
{
    if (!take_char(s, '"') || s->len == 0)
        return false;
    const char *end = memchr(s->ptr, '"', s->len);
    if (!end)
        return false;
    *out = (struct str){s->ptr, (size_t)(end - s->ptr)};
    s->ptr += out->len + 1;
    s->len -= out->len + 1;
    return true;
}

static bool take_id(struct str *s, uint64_t *out)
{
    struct str digits;
    return take_string(s, &digits) && str_parse_u64(digits, out);
}

static bool take_integer(struct str *s, int64_t *out)
{
    skip_space(s);
    size_t n = 0;
    while (n < s->len && (s->ptr[n] == '-' || (s->ptr[n] >= '0' && s->ptr[n] <= '9')))
        n++;
    struct str digits = {s->ptr, n};
    s->ptr += n;
    s->len -= n;
    return str_parse_i64(digits, out);
}

/* An object, whatever it holds, to the brace that ends it. Its consumers read it with a parser. */
static bool take_object(struct str *s, struct str *out)
{
    skip_space(s);
    int depth = 0;
    bool in_string = false;
    for (size_t i = 0; i < s->len && i < EVENT_DATA_MAX; i++) {
        char c = s->ptr[i];
        if (in_string && c == '\\')
            i++;
        else if (c == '"')
            in_string = !in_string;
        else if (!in_string && (c == '{' || c == '['))
            depth++;
        else if (!in_string && (c == '}' || c == ']'))
            depth--;
        if (depth == 0) {
            *out = (struct str){s->ptr, i + 1};
            s->ptr += out->len;
            s->len -= out->len;
            return c == '}';
        }
    }
    return false;
}

enum payload_field { ACTOR = 1, OBJECT = 2, VALUE = 4, SUBJECT = 8, DATA = 16 };

/* Which field it was; 0: none of ours. */
static unsigned take_field(struct str *s, struct str name, struct event *e)
{
    if (str_eq(name, STR("actor")))
        return take_id(s, &e->actor) ? ACTOR : 0;
    if (str_eq(name, STR("object")))
        return take_id(s, &e->object) ? OBJECT : 0;
    if (str_eq(name, STR("value")))
        return take_integer(s, &e->value) ? VALUE : 0;
    if (str_eq(name, STR("subject")))
        return take_id(s, &e->subject) ? SUBJECT : 0;
    if (str_eq(name, STR("data")))
        return take_object(s, &e->data) ? DATA : 0;
    return 0;
}

static bool parse_payload(struct str s, struct event *e)
{
    const unsigned needed = ACTOR | OBJECT | VALUE;
    unsigned seen = 0;
    if (!take_char(&s, '{'))
        return false;
    do {
        struct str name;
        if (!take_string(&s, &name) || !take_char(&s, ':'))
            return false;
        unsigned field = take_field(&s, name, e);
        if (!field || (seen & field))
            return false;
        seen |= field;
    } while (take_char(&s, ','));
    if ((seen & needed) != needed || !take_char(&s, '}'))
        return false;
    skip_space(&s);
    return s.len == 0;
}

/* ---- versions ---- */

/* Version 1 did not say how the follow ended, and nothing else tells. */
static void lift_follow_removed_1(struct event *e)
{
    e->value = FOLLOW_ENDED_UNKNOWN;
}

/* Version 1 left it to the reader that a follow concerns the one who is followed. */
static void lift_follow_created_1(struct event *e)
{
    e->subject = e->object;
}

/* From `version` of that type to the next one. */
static const struct {
    enum event_type type;
    uint16_t version;
    void (*lift)(struct event *e);
} lifts[] = {
    {EVENT_FOLLOW_REMOVED, 1, lift_follow_removed_1},
    {EVENT_FOLLOW_CREATED, 1, lift_follow_created_1},
};

static bool lift_once(struct event *e)
{
    for (size_t i = 0; i < COUNT_OF(lifts); i++) {
        if (lifts[i].type == e->type && lifts[i].version == e->version) {
            lifts[i].lift(e);
            e->version++;
            return true;
        }
    }
    return false;
}

const char *event_unread_name(enum event_unread why)
{
    static const char *const names[] = {
        [EVENT_READ] = "READ",
        [EVENT_UNKNOWN_TYPE] = "UNKNOWN_TYPE",
        [EVENT_UNKNOWN_VERSION] = "UNKNOWN_VERSION",
        [EVENT_DAMAGED] = "DAMAGED",
    };
    CHECK((size_t)why < COUNT_OF(names));
    return names[why];
}

enum event_unread event_read_whole(uint64_t id, struct str wire_name, int64_t version,
                                   struct str payload, struct event *out)
{
    struct event e = {.id = id};
    out->id = id;
    if (!event_type_parse(wire_name, &e.type))
        return EVENT_UNKNOWN_TYPE;
    uint16_t present = types[e.type].version;
    if (version > present)
        return EVENT_UNKNOWN_VERSION;
    if (version < 1 || !parse_payload(payload, &e)) /* versions are counted from 1 */
        return EVENT_DAMAGED;
    e.version = (uint16_t)version;
    while (e.version < present) {
        if (!lift_once(&e))
            return EVENT_UNKNOWN_VERSION;
    }
    *out = e;
    return EVENT_READ;
}

enum event_unread event_read(uint64_t id, struct str wire_name, int64_t version, struct str payload,
                             struct event *out)
{
    enum event_unread why = event_read_whole(id, wire_name, version, payload, out);
    if (why == EVENT_READ)
        out->data = (struct str){0};
    return why;
}
