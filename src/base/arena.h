/* Memory that dies with the request: bump allocation from chunks, freed all at once. Allocation
 * never returns NULL: a process that cannot get a few kilobytes cannot go on. Bound what a peer can
 * make you allocate before you get here. */
#pragma once

#include "base/str.h"

struct arena_chunk;

struct arena {
    struct arena_chunk *chunks;
    char *next;
    char *end;
};

void arena_init(struct arena *a);
void arena_done(struct arena *a);
void arena_reset(struct arena *a); /* forgets everything, keeps one chunk */

void *arena_alloc(struct arena *a, size_t size);     /* zeroed, 16-byte aligned */
struct str arena_str(struct arena *a, struct str s); /* a NUL-terminated copy */
/* The same; {NULL, 0} stays {NULL, 0}. */
static inline struct str arena_str_or_null(struct arena *a, struct str s)
{
    return s.ptr ? arena_str(a, s) : s;
}
struct str arena_printf(struct arena *a, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

#define ARENA_NEW(arena, type) ((type *)arena_alloc((arena), sizeof(type)))
#define ARENA_ARRAY(arena, type, count)                                                            \
    ((type *)arena_alloc((arena), sizeof(type) * (size_t)(count)))
