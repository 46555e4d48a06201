/* Bump allocation. Chunks form a list, newest first. The arena allocates from the newest alone and
 * abandons the rest of the older ones: at most a quarter of a chunk each, because a larger request
 * gets a chunk of its own, linked after the newest, which stays in use. Reset keeps one chunk of
 * the ordinary size, so that an arena that serves request after request neither calls malloc each
 * time nor keeps the largest chunk it ever had. */
#include "base/arena.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/check.h"

enum { CHUNK_SIZE = 16 * 1024, ALIGNMENT = 16 };

#define ALLOC_MAX (SIZE_MAX / 4)

struct arena_chunk {
    struct arena_chunk *older;
    size_t size; /* bytes that follow this header */
};

_Static_assert(sizeof(struct arena_chunk) % ALIGNMENT == 0, "what follows the header is aligned");

void arena_init(struct arena *a)
{
    *a = (struct arena){0};
}

static char *chunk_bytes(struct arena_chunk *chunk)
{
    return (char *)(chunk + 1);
}

static void use_chunk(struct arena *a, struct arena_chunk *chunk)
{
    a->next = chunk_bytes(chunk);
    a->end = a->next + chunk->size;
}

void arena_done(struct arena *a)
{
    arena_reset(a);
    free(a->chunks);
    *a = (struct arena){0};
}

void arena_reset(struct arena *a)
{
    struct arena_chunk *kept = NULL;
    for (struct arena_chunk *chunk = a->chunks, *older; chunk; chunk = older) {
        older = chunk->older;
        if (!kept && chunk->size == CHUNK_SIZE)
            kept = chunk;
        else
            free(chunk);
    }
    *a = (struct arena){.chunks = kept};
    if (kept) {
        kept->older = NULL;
        use_chunk(a, kept);
    }
}

static struct arena_chunk *new_chunk(size_t size)
{
    struct arena_chunk *chunk = malloc(sizeof *chunk + size);
    CHECK(chunk);
    *chunk = (struct arena_chunk){.size = size};
    return chunk;
}

/* `size` is a multiple of ALIGNMENT. The bytes are not cleared. */
static char *take(struct arena *a, size_t size)
{
    if ((size_t)(a->end - a->next) >= size && a->next) {
        char *p = a->next;
        a->next += size;
        return p;
    }
    if (size > CHUNK_SIZE / 4) {
        struct arena_chunk *own = new_chunk(size);
        if (a->chunks) {
            own->older = a->chunks->older;
            a->chunks->older = own;
        } else {
            a->chunks = own; /* full from the start: next and end stay NULL */
        }
        return chunk_bytes(own);
    }
    struct arena_chunk *chunk = new_chunk(CHUNK_SIZE);
    chunk->older = a->chunks;
    a->chunks = chunk;
    use_chunk(a, chunk);
    a->next += size;
    return chunk_bytes(chunk);
}

static char *take_unaligned(struct arena *a, size_t size)
{
    CHECK(size <= ALLOC_MAX);
    return take(a, (size + ALIGNMENT - 1) & ~(size_t)(ALIGNMENT - 1));
}

void *arena_alloc(struct arena *a, size_t size)
{
    char *p = take_unaligned(a, size ? size : 1);
    return memset(p, 0, size);
}

struct str arena_str(struct arena *a, struct str s)
{
    char *p = take_unaligned(a, s.len + 1);
    if (s.len > 0)
        memcpy(p, s.ptr, s.len);
    p[s.len] = '\0';
    return (struct str){p, s.len};
}

struct str arena_printf(struct arena *a, const char *format, ...)
{
    CHECK(format);
    va_list args;
    va_start(args, format);
    va_list again;
    va_copy(again, args);
    int n = vsnprintf(NULL, 0, format, args);
    va_end(args);
    CHECK(n >= 0);
    char *p = take_unaligned(a, (size_t)n + 1);
    vsnprintf(p, (size_t)n + 1, format, again);
    va_end(again);
    return (struct str){p, (size_t)n};
}
