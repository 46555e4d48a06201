/* A ring of records, written under one lock, in the order in which steps reported them.
 *
 * Whether a story is complete is not guessed from times, which a clock that was set back would make
 * lie: the ring remembers the highest event of which it ever overwrote a record. Of every later
 * event it holds all that was recorded.
 *
 * A reader walks the ring by the records' running numbers, in chunks, and gives way between them:
 * writers wait for a chunk at most. Records that are overwritten meanwhile are skipped and make the
 * story incomplete, like all that are lost. */
#include "pipe/trace.h"

#include <stdlib.h>

#include "base/check.h"
#include "base/sync.h"

enum { CHUNK = 4096 };

const char *trace_kind_name(enum trace_kind kind)
{
#define TRACE_NAME(name, text) text,
    static const char *const names[TRACE_KINDS] = {TRACE_TABLE(TRACE_NAME)};
#undef TRACE_NAME
    CHECK(kind < TRACE_KINDS);
    return names[kind];
}

void trace_init(struct trace *t, size_t capacity)
{
    CHECK(capacity <= SIZE_MAX / 2 / sizeof *t->records);
    size_t size = 1;
    while (size < capacity)
        size *= 2;
    *t = (struct trace){.capacity = size, .records = calloc(size, sizeof *t->records)};
    CHECK(t->records);
    lock_init_spinning(&t->lock);
}

void trace_done(struct trace *t)
{
    free(t->records);
    pthread_mutex_destroy(&t->lock);
}

void trace_add(struct trace *t, const struct trace_record *records, size_t n)
{
    pthread_mutex_lock(&t->lock);
    for (size_t i = 0; i < n; i++) {
        struct trace_record *place = &t->records[t->written & (t->capacity - 1)];
        /* A place that was never written has event 0. */
        if (place->event > t->lost_through)
            t->lost_through = place->event;
        *place = records[i];
        t->written++;
    }
    pthread_mutex_unlock(&t->lock);
}

/* ---- telling one event's story ---- */

struct story {
    struct trace_summary *summary;
    struct trace_record *out;
    size_t max;
    size_t first; /* places for the oldest; the newest share the rest, in turn */
    uint64_t found;
};

static uint64_t at_least_one(uint64_t n)
{
    return n ? n : 1;
}

static void tell(struct story *s, const struct trace_record *r)
{
    struct trace_summary *sum = s->summary;
    switch ((enum trace_kind)r->kind) {
    case TRACE_BATCH:
        sum->batches++;
        sum->members += r->n;
        sum->delivered += r->done;
        break;
    case TRACE_SKIPPED:
        sum->skipped += at_least_one(r->n);
        break;
    case TRACE_DUPLICATE:
        sum->duplicates += at_least_one(r->n);
        break;
    case TRACE_FAILED:
        sum->failed++;
        break;
    default:
        break;
    }
    if (s->found == 0)
        sum->first_ms = r->at_ms;
    sum->last_ms = r->at_ms;
    if (s->found < s->max)
        s->out[s->found] = *r;
    else if (s->max > s->first)
        s->out[s->first + (s->found - s->first) % (s->max - s->first)] = *r;
    s->found++;
}

static void reverse(struct trace_record *records, size_t n)
{
    for (size_t i = 0; i < n / 2; i++) {
        struct trace_record swapped = records[i];
        records[i] = records[n - 1 - i];
        records[n - 1 - i] = swapped;
    }
}

/* Turns the newest records, which were written in turn, so that the oldest of them is first. */
static void put_in_order(struct story *s)
{
    size_t n = s->max - s->first;
    if (s->found <= s->max || n == 0)
        return;
    struct trace_record *newest = s->out + s->first;
    size_t turned = (size_t)((s->found - s->first) % n);
    reverse(newest, turned);
    reverse(newest + turned, n - turned);
    reverse(newest, n);
}

void trace_find(struct trace *t, uint64_t event, struct trace_summary *summary,
                struct trace_record *out, size_t max, size_t *n, size_t *left_out)
{
    *summary = (struct trace_summary){0};
    struct story s = {.summary = summary, .out = out, .max = max, .first = max - max / 2};
    uint64_t at = 0, end = UINT64_MAX;
    do {
        pthread_mutex_lock(&t->lock);
        if (end == UINT64_MAX) /* later records are left for the next time */
            end = t->written;
        if (t->written > t->capacity && at < t->written - t->capacity)
            at = t->written - t->capacity;
        for (uint64_t stop = at + CHUNK; at < end && at < stop; at++) {
            const struct trace_record *r = &t->records[at & (t->capacity - 1)];
            if (r->event == event)
                tell(&s, r);
        }
        summary->complete = event > t->lost_through;
        pthread_mutex_unlock(&t->lock);
    } while (at < end);
    put_in_order(&s);
    *n = s.found < max ? (size_t)s.found : max;
    *left_out = (size_t)(s.found - *n);
}
