/* The gate before the JSON parser. Size, depth and encoding are checked on the raw bytes first, so
 * that what the parser can be made to allocate or recurse into is bounded before it starts. */
#include "api/edge/body.h"

#include <stdio.h>

static bool type_is(struct str content_type, struct str wanted)
{
    const char *semicolon = memchr(content_type.ptr, ';', content_type.len);
    if (semicolon)
        content_type.len = (size_t)(semicolon - content_type.ptr);
    return str_eq_nocase(str_trim(content_type), wanted);
}

bool body_type_is_json(struct str content_type)
{
    return content_type.len == 0 || type_is(content_type, STR("application/json"));
}

bool body_type_is_ndjson(struct str content_type)
{
    return content_type.len == 0 || type_is(content_type, STR("application/x-ndjson")) ||
           type_is(content_type, STR("application/ndjson"));
}

unsigned body_depth(struct str raw)
{
    unsigned depth = 0, deepest = 0;
    bool in_string = false;
    for (size_t i = 0; i < raw.len; i++) {
        char c = raw.ptr[i];
        if (in_string) {
            if (c == '\\')
                i++; /* whatever is escaped cannot end the string */
            else if (c == '"')
                in_string = false;
            continue;
        }
        if (c == '"') {
            in_string = true;
        } else if (c == '{' || c == '[') {
            if (++depth > deepest)
                deepest = depth;
        } else if ((c == '}' || c == ']') && depth > 0) {
            depth--;
        }
    }
    return deepest;
}

enum err body_parse(struct str raw, json_t **out, char *detail, size_t detail_size)
{
    if (raw.len > BODY_JSON_MAX) {
        snprintf(detail, detail_size, "the body is larger than %d bytes", BODY_JSON_MAX);
        return ERR_TOO_LARGE;
    }
    if (raw.len == 0) {
        snprintf(detail, detail_size, "a JSON object is needed as the body");
        return ERR_BAD_INPUT;
    }
    if (!str_is_utf8(raw)) {
        snprintf(detail, detail_size, "the body is not valid UTF-8");
        return ERR_BAD_INPUT;
    }
    if (body_depth(raw) > BODY_DEPTH_MAX) {
        snprintf(detail, detail_size, "the body is nested deeper than %d levels", BODY_DEPTH_MAX);
        return ERR_BAD_INPUT;
    }
    json_error_t error;
    json_t *value = json_loadb(raw.ptr, raw.len, JSON_REJECT_DUPLICATES, &error);
    if (!value) {
        bool twice = json_error_code(&error) == json_error_duplicate_key;
        snprintf(detail, detail_size, "the body is not JSON: %s at line %d, column %d",
                 twice ? "a key appears twice" : "syntax error", error.line, error.column);
        return ERR_BAD_INPUT;
    }
    if (!json_is_object(value)) {
        json_decref(value);
        snprintf(detail, detail_size, "the body must be a JSON object");
        return ERR_BAD_INPUT;
    }
    *out = value;
    return OK;
}

const char *body_unknown_field(json_t *body, const json_t *fields)
{
    const char *name;
    json_t *value;
    if (!fields)
        return NULL;
    json_object_foreach(body, name, value)
    {
        if (!json_object_get(fields, name))
            return name;
    }
    return NULL;
}
