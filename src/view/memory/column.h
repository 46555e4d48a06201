/* A dense array that grows in place: address space for the greatest count is reserved once, memory
 * is made usable chunk by chunk. Elements never move, so readers need no lock to reach them. New
 * elements are zero. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

struct column {
    void *base;
    size_t width;    /* bytes of an element */
    size_t max;      /* elements reserved */
    size_t usable;   /* elements that may be touched */
    size_t reserved; /* bytes mapped, for the unmapping */
};

bool column_init(struct column *c, size_t width, size_t max); /* false: no address space */
void column_done(struct column *c);

/* Makes at least `count` elements usable; false: no memory. One caller at a time. */
bool column_extend(struct column *c, size_t count);
