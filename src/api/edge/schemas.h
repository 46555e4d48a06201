/* The shapes of bodies, as JSON Schema, by name; the route table refers to them. */
#pragma once

#include <stddef.h>

#include "base/buf.h"
#include "base/json_out.h"

struct schema {
    const char *name;
    const char *json;    /* written with ' for ", which no schema needs otherwise */
    const char *example; /* of request bodies, written alike; NULL: none */
};

extern const struct schema schemas[];
extern const size_t schema_count;

const struct schema *schema_find(const char *name); /* NULL: none */
/* Appends `text` with every ' as ". */
void schema_write(struct buf *out, const char *text);
/* The numbers of the admin status, from the registry of metrics (resource/status.c). */
void status_write_schema(struct json_out *j);
