/* Reads a shape, in the notation of schemas.h, as JSON Schema. Shapes are ours, not a caller's: a
 * shape that cannot be read is a bug and CHECKed; a test reads them all. */
#include "api/edge/schemas.h"
#include "base/check.h"

struct shape {
    const char *at; /* the unread rest */
};

static const struct {
    const char *name, *json, *or_null; /* or_null: with a ?; NULL: there is no such type */
    const char *least, *most;          /* what its range sets */
} words[] = {
    {"id", "{'type':'string','pattern':'^[1-9][0-9]*$'}", "{'type':['string','null']}"},
    {"text", "{'type':'string'}", "{'type':['string','null']}", "minLength", "maxLength"},
    {"time", "{'type':'string','format':'date-time'}",
     "{'type':['string','null'],'format':'date-time'}"},
    {"count", "{'type':'integer','minimum':0}"},
    {"number", "{'type':'integer'}", "{'type':['integer','null']}", "minimum", "maximum"},
    {"real", "{'type':'number'}"},
    {"flag", "{'type':'boolean'}"},
    {"object", "{'type':'object'}"},
    {"null", "{'type':'null'}"},
};

static json_t *read_value(struct shape *s, bool described);

/* The JSON value that `text` begins with, written with ' for ". */
static json_t *read_json(const char *text, size_t *len)
{
    struct buf json;
    json_error_t end;
    buf_init(&json, 0);
    schema_write(&json, text);
    json_t *value = json_loadb(json.ptr, json.len, JSON_DISABLE_EOF_CHECK, &end);
    CHECK(value);
    buf_done(&json);
    *len = (size_t)end.position;
    return value;
}

static bool take(struct shape *s, const char *mark)
{
    bool there = strncmp(s->at, mark, strlen(mark)) == 0;
    s->at += there ? strlen(mark) : 0;
    return there;
}

/* What stands before the first of `ends`. */
static struct str take_until(struct shape *s, const char *ends)
{
    struct str text = {s->at, strcspn(s->at, ends)};
    s->at += text.len;
    return text;
}

static void set_text(json_t *object, const char *name, struct str text)
{
    json_object_set_new(object, name, json_stringn(text.ptr, text.len));
}

/* [1..100], [..100] or [1..] sets these two members. */
static void read_range(struct shape *s, json_t *object, const char *least, const char *most)
{
    uint64_t n;
    if (!take(s, "["))
        return;
    if (str_parse_u64(take_until(s, "."), &n))
        json_object_set_new(object, least, json_integer((json_int_t)n));
    CHECK(take(s, ".."));
    if (str_parse_u64(take_until(s, "]"), &n))
        json_object_set_new(object, most, json_integer((json_int_t)n));
    CHECK(take(s, "]"));
}

/* name:type name!:type …}; the names with ! go into `required`. */
static json_t *read_fields(struct shape *s, json_t *required)
{
    json_t *fields = json_object();
    while (!take(s, "}")) {
        (void)take(s, " ");
        struct str name = take_until(s, "!:");
        if (take(s, "!"))
            json_array_append_new(required, json_stringn(name.ptr, name.len));
        CHECK(take(s, ":"));
        json_object_setn_new(fields, name.ptr, name.len, read_value(s, true));
    }
    return fields;
}

static json_t *read_object(struct shape *s)
{
    json_t *required = json_array(), *fields = read_fields(s, required);
    json_t *object = json_pack("{s:s, s:o}", "type", "object", "properties", fields);
    if (json_array_size(required) > 0)
        json_object_set(object, "required", required);
    json_decref(required);
    return object;
}

static json_t *read_one_of(struct shape *s)
{
    json_t *all = json_array();
    do {
        struct str one = take_until(s, "|)");
        json_array_append_new(all, json_stringn(one.ptr, one.len));
    } while (take(s, "|"));
    CHECK(take(s, ")"));
    return json_pack("{s:o}", "enum", all);
}

static json_t *read_array(struct shape *s)
{
    json_t *array = json_pack("{s:s}", "type", "array");
    read_range(s, array, "minItems", "maxItems");
    json_object_set_new(array, "items", read_value(s, false));
    return array;
}

static json_t *read_word(struct shape *s)
{
    struct str word = take_until(s, " ?[/{}'");
    bool or_null = take(s, "?");
    size_t i = 0, ignored;
    if (word.len > 0 && word.ptr[0] >= 'A' && word.ptr[0] <= 'Z') {
        json_t *of =
            json_pack("{s:o}", "$ref", json_sprintf("#/components/schemas/%.*s", STR_ARG(word)));
        return or_null ? json_pack("{s:[o, {s:s}]}", "anyOf", of, "type", "null") : of;
    }
    while (i < COUNT_OF(words) && !str_eq(word, str_of(words[i].name)))
        i++;
    CHECK(i < COUNT_OF(words) && (words[i].or_null || !or_null));
    json_t *value = read_json(or_null ? words[i].or_null : words[i].json, &ignored);
    if (words[i].least)
        read_range(s, value, words[i].least, words[i].most);
    if (take(s, "/")) {
        set_text(value, "pattern", take_until(s, "/"));
        s->at++;
    }
    return value;
}

/* `described`: what stands in quotes after it, or after a +, belongs to it. */
static json_t *read_value(struct shape *s, bool described)
{
    size_t len = 0;
    json_t *value = take(s, "{")   ? read_object(s)
                    : take(s, "(") ? read_one_of(s)
                    : take(s, "*") ? read_array(s)
                    : take(s, "=") ? read_json(s->at, &len)
                                   : read_word(s);
    s->at += len;
    if (described && take(s, " '")) {
        set_text(value, "description", take_until(s, "'"));
        s->at++;
    }
    if (described && take(s, " +")) {
        struct str name = take_until(s, "{");
        json_t *ignored = json_array();
        s->at++;
        json_object_setn_new(value, name.ptr, name.len, read_fields(s, ignored));
        json_decref(ignored);
    }
    return value;
}

json_t *schema_read(const char *shape)
{
    struct shape s = {shape};
    json_t *schema = read_value(&s, true);
    CHECK(!*s.at);
    return schema;
}
