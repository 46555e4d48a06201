/* A streaming JSON writer into a buf: no tree, commas by itself, strings escaped. Misuse (a value
 * without a key in an object) is our bug and CHECKed. */
#pragma once

#include "base/buf.h"

enum { JSON_OUT_DEPTH = 16 };

struct json_out {
    struct buf *buf;
    uint8_t depth;
    bool key_given;
    bool filled[JSON_OUT_DEPTH]; /* does the level hold something already? */
    bool object[JSON_OUT_DEPTH];
};

void json_out_init(struct json_out *j, struct buf *buf);

/* (json_object, json_array and json_null belong to jansson, which many of our files include,
 * too.) */
void json_object_begin(struct json_out *j); /* { */
void json_object_end(struct json_out *j);
void json_array_begin(struct json_out *j);
void json_array_end(struct json_out *j);
void json_key(struct json_out *j, struct str key); /* keys are ours: written unescaped */

void json_str(struct json_out *j, struct str text); /* text must be valid UTF-8 */
void json_i64(struct json_out *j, int64_t value);
void json_u64(struct json_out *j, uint64_t value);
/* the shortest of %.17g that reads back; not finite: null */
void json_f64(struct json_out *j, double value);
void json_bool(struct json_out *j, bool value);
void json_nil(struct json_out *j);                   /* null */
void json_id(struct json_out *j, uint64_t id);       /* "123" */
void json_time(struct json_out *j, int64_t wall_ms); /* RFC 3339 */
void json_raw(struct json_out *j, struct str json);  /* a value that is already JSON */

/* key and value in one */
#define json_put(j, key, kind, value) (json_key((j), STR(key)), json_##kind((j), (value)))
/* The same, or "name":null when it is not `there`: then the value is not evaluated. */
#define json_put_if(there, j, name, type, value)                                                   \
    (json_key(j, STR(name)), (there) ? json_##type(j, value) : json_nil(j))

/* Appends `text` as the inside of a JSON string (escaped, without the quotes). */
void json_escape(struct buf *out, struct str text);
