/* A graph under test that answers page by page: audiences() of such a one. */
#pragma once

#include "port/graph.h"

typedef enum err (*audience_reader)(void *ctx, uint64_t author, struct audience_cursor *cursor,
                                    uint64_t *members, size_t max, size_t *n);

/* extent() of one that cannot say. */
static inline enum err audience_extent_unknown(struct graph *g, uint64_t author, uint64_t after,
                                               uint64_t *passed, uint64_t *all)
{
    (void)g, (void)author, (void)after;
    *passed = *all = 0;
    return OK;
}

static inline void audience_pages(struct audience_page *pages, size_t n, audience_reader read,
                                  void *ctx)
{
    for (size_t i = 0; i < n; i++) {
        struct audience_page *p = &pages[i];
        struct audience_cursor cursor = p->cursor;
        p->n = 0;
        p->error = read(ctx, p->author, &cursor, p->members, p->max, &p->n);
        if (!p->error)
            p->cursor = cursor;
    }
}
