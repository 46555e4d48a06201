/* Columns: see the header for what they promise.
 *
 * Memory is handed out in chunks of COLUMN_CHUNK elements by lifting the protection of the next
 * part of the reservation. The first chunk stays on ordinary pages, so that a small installation
 * pays a few pages and not a huge page per column; from the second chunk on the kernel is asked for
 * huge pages, because a fan-out to hundreds of thousands touches columns all over and would spend
 * its time on TLB misses. */
#include "view/memory/column.h"

#include <stdint.h>
#include <sys/mman.h>

#include "base/check.h"

enum { COLUMN_CHUNK = 1 << 16, HUGE_PAGE_BYTES = 2 << 20, PAGE_BYTES = 4096 };

static size_t round_up(size_t n, size_t unit)
{
    return (n + unit - 1) / unit * unit;
}

bool column_init(struct column *c, size_t width, size_t max)
{
    CHECK(width > 0 && max > 0 && max < SIZE_MAX / width / 2);
    *c = (struct column){.width = width, .max = max};
    c->reserved = round_up(width * max, HUGE_PAGE_BYTES);
    void *base =
        mmap(NULL, c->reserved, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (base == MAP_FAILED) {
        *c = (struct column){0};
        return false;
    }
    c->base = base;
    return true;
}

void column_done(struct column *c)
{
    if (c->base)
        munmap(c->base, c->reserved);
    *c = (struct column){0};
}

bool column_extend(struct column *c, size_t count)
{
    if (count <= c->usable)
        return true;
    if (count > c->max)
        return false;
    size_t usable = round_up(count, COLUMN_CHUNK);
    if (usable > c->max)
        usable = c->max;
    size_t from = round_up(c->usable * c->width, PAGE_BYTES);
    size_t to = round_up(usable * c->width, PAGE_BYTES);
    if (to > from) {
        char *at = (char *)c->base + from;
        if (mprotect(at, to - from, PROT_READ | PROT_WRITE) != 0)
            return false;
        if (from > 0) /* a wish: without huge pages everything works, only slower */
            (void)madvise(at, to - from, MADV_HUGEPAGE);
    }
    c->usable = usable;
    return true;
}
