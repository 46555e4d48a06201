/* The shapes of bodies, by name; the route table refers to them. A shape becomes JSON Schema in the
 * OpenAPI document, and is written like this:
 *
 *   {name:type name!:type …}    an object; the fields with ! are required
 *   id text time count number real flag object null      ("number" is whole, "count" not negative)
 *   (one|other)                 one of these texts
 *   *type                       an array
 *   Name                        the shape of that name
 *   type?                       or null: of id, text, time, number and Name
 *   text[1..80] number[0..] *[..50]type     how long, how much, how many
 *   text/pattern/               a regular expression
 *   ={'type':['string','integer']}          JSON Schema as it is
 *   type 'what it means'        a description
 *   type 'what it means' +x-name{name:type …}   and an extension that holds shapes
 *
 * JSON is written with ' for ", which no shape needs otherwise. */
#pragma once

#include <jansson.h>
#include <stddef.h>

#include "base/buf.h"
#include "base/json_out.h"

struct schema {
    const char *name;
    const char *shape;
    const char *example; /* of request bodies, as JSON; NULL: none */
};

extern const struct schema schemas[];
extern const size_t schema_count;

const struct schema *schema_find(const char *name); /* NULL: none */
/* Appends `text` with every ' as ". */
void schema_write(struct buf *out, const char *text);
/* The JSON Schema of a shape; it belongs to the caller. */
json_t *schema_read(const char *shape);
/* The numbers of the admin status, from the registry of metrics (resource/status.c). */
void status_write_schema(struct json_out *j);
