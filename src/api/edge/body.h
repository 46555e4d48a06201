/* Request bodies: what is let through to the handlers. */
#pragma once

#include <jansson.h>

#include "base/err.h"
#include "base/str.h"

enum { BODY_JSON_MAX = 64 * 1024, BODY_DEPTH_MAX = 32 };

/* Is this Content-Type JSON (missing counts)? Parameters such as charset=utf-8 are fine. */
bool body_type_is_json(struct str content_type);
/* application/x-ndjson, application/ndjson, or missing. */
bool body_type_is_ndjson(struct str content_type);

/* Parses a JSON object: valid UTF-8, at most BODY_JSON_MAX bytes and BODY_DEPTH_MAX levels, no
 * duplicate keys, nothing after it. On failure *out is untouched and `detail` (200 bytes) says what
 * is wrong. */
enum err body_parse(struct str raw, json_t **out, char *detail, size_t detail_size);

/* The first field of a body that `fields` does not name; NULL: there is none, or `fields` is
 * NULL: any will do. */
const char *body_unknown_field(json_t *body, const json_t *fields);

/* How deep brackets and braces outside of strings are nested. Cheaper than parsing, and never
 * recursive. */
unsigned body_depth(struct str raw);
