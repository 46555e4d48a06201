/* The minute is a ring of slices of ten seconds. Each slice counts by the space-saving rule: a key
 * that is not among those kept takes the slot of the one with the fewest writes, and inherits its
 * count as its possible error. So a count is never too low, and the least count of a full slice
 * bounds every error in it. A slice is forgotten as a whole; nothing has to be aged.
 *
 * The window is the six whole slices before the current one and what there is of that: between one
 * minute and ten seconds more. Rates are over the time that it really covers.
 *
 * Keys are looked for by scanning them, side by side: 256 of them are 32 cache lines, far less than
 * the commit that a write costs. */
#include "ops/hot_keys.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"

enum { SLICE_US = 10 * 1000 * 1000, SLICES = HOT_KEYS_WINDOW_S * 1000 * 1000 / SLICE_US + 1 };
enum { MERGED_MAX = SLICES * HOT_KEYS_KEPT };

struct slice {
    int64_t number; /* since the start; −1: empty */
    size_t count;
    uint64_t entries;
    uint64_t keys[HOT_KEYS_KEPT];
    uint64_t counts[HOT_KEYS_KEPT], errors[HOT_KEYS_KEPT];
};

struct hot_keys {
    pthread_mutex_t lock;
    int64_t started_us;
    struct slice slices[SLICES];
    struct hist took[SLICES]; /* beside their slices, which are copied to be looked at */
    struct hist all;
    _Atomic uint64_t refused;
};

static void clear_slice(struct hot_keys *h, size_t i, int64_t number)
{
    h->slices[i].number = number;
    h->slices[i].count = 0;
    h->slices[i].entries = 0;
    hist_clear(&h->took[i]);
}

struct hot_keys *hot_keys_new(int64_t now_us)
{
    struct hot_keys *h = calloc(1, sizeof *h);
    CHECK(h);
    pthread_mutex_init(&h->lock, NULL);
    h->started_us = now_us;
    for (size_t i = 0; i < SLICES; i++)
        clear_slice(h, i, -1);
    return h;
}

void hot_keys_free(struct hot_keys *h)
{
    if (!h)
        return;
    pthread_mutex_destroy(&h->lock);
    free(h);
}

static int64_t slice_number(const struct hot_keys *h, int64_t now_us)
{
    return now_us > h->started_us ? (now_us - h->started_us) / SLICE_US : 0;
}

/* Where the key is counted in the slice; when it is not, the place of the one with the least. */
static size_t find(struct slice *s, uint64_t key)
{
    for (size_t i = 0; i < s->count; i++) {
        if (s->keys[i] == key)
            return i;
    }
    size_t place = s->count;
    if (place < HOT_KEYS_KEPT) {
        s->count++;
        s->counts[place] = 0;
    } else {
        place = 0;
        for (size_t i = 1; i < HOT_KEYS_KEPT; i++)
            place = s->counts[i] < s->counts[place] ? i : place;
    }
    s->keys[place] = key;
    s->errors[place] = s->counts[place];
    return place;
}

void hot_keys_record(struct hot_keys *h, uint64_t key, int64_t took_us, int64_t now_us)
{
    int64_t number = slice_number(h, now_us);
    size_t i = (size_t)(number % SLICES);
    uint64_t took = took_us > 0 ? (uint64_t)took_us : 1;
    hist_record(&h->all, took);
    pthread_mutex_lock(&h->lock);
    if (h->slices[i].number < number)
        clear_slice(h, i, number);
    if (h->slices[i].number == number) { /* else a straggler of a slice that is gone */
        h->slices[i].counts[find(&h->slices[i], key)]++;
        h->slices[i].entries++;
        hist_record(&h->took[i], took);
    }
    pthread_mutex_unlock(&h->lock);
}

/* ---- looking ---- */

struct row {
    uint64_t key;
    uint64_t sure, doubtful; /* writes that are its own; that may be */
    uint64_t least;          /* of the slices that name it */
};

static int by_key(const void *a, const void *b)
{
    const struct row *x = a, *y = b;
    return (x->key > y->key) - (x->key < y->key);
}

/* By the lower bound: on an idle node the rest is error alone and says nothing. */
static int by_sure(const void *a, const void *b)
{
    const struct row *x = a, *y = b;
    if (x->sure != y->sure)
        return x->sure < y->sure ? 1 : -1;
    return by_key(a, b);
}

/* A key that a full slice does not name may have had as many entries in it as its least. */
static uint64_t least_of(const struct slice *s)
{
    if (s->count < HOT_KEYS_KEPT)
        return 0;
    uint64_t least = s->counts[0];
    for (size_t i = 1; i < s->count; i++)
        least = s->counts[i] < least ? s->counts[i] : least;
    return least;
}

/* One row for each key, the busiest first. */
static size_t merge(struct row *rows, size_t n)
{
    size_t out = 0;
    qsort(rows, n, sizeof *rows, by_key);
    for (size_t i = 0; i < n; i++) {
        if (out > 0 && rows[out - 1].key == rows[i].key) {
            rows[out - 1].sure += rows[i].sure;
            rows[out - 1].doubtful += rows[i].doubtful;
            rows[out - 1].least += rows[i].least;
        } else {
            rows[out++] = rows[i];
        }
    }
    qsort(rows, out, sizeof *rows, by_sure);
    return out;
}

static void look_at_top(const struct slice *slices, int64_t oldest, int64_t newest,
                        struct hot_keys_look *out)
{
    struct row *rows = malloc(MERGED_MAX * sizeof *rows);
    size_t n = 0;
    uint64_t hidden = 0; /* what a key named by no slice may have had */
    CHECK(rows);
    for (size_t i = 0; i < SLICES; i++) {
        const struct slice *s = &slices[i];
        if (s->number < oldest || s->number > newest)
            continue;
        uint64_t least = least_of(s);
        hidden += least;
        out->entries += s->entries;
        for (size_t k = 0; k < s->count; k++)
            rows[n++] = (struct row){.key = s->keys[k],
                                     .sure = s->counts[k] - s->errors[k],
                                     .doubtful = s->errors[k],
                                     .least = least};
    }
    n = merge(rows, n);
    out->count = n < HOT_KEYS_SHOWN ? n : HOT_KEYS_SHOWN;
    for (size_t i = 0; i < out->count; i++)
        out->top[i] =
            (struct hot_key){.key = rows[i].key,
                             .entries = rows[i].sure,
                             .at_most = rows[i].sure + rows[i].doubtful + (hidden - rows[i].least),
                             .per_s = (double)rows[i].sure / out->window_s};
    out->per_s = (double)out->entries / out->window_s;
    free(rows);
}

void hot_keys_refused(struct hot_keys *h)
{
    atomic_fetch_add_explicit(&h->refused, 1, memory_order_relaxed);
}

void hot_keys_look(struct hot_keys *h, int64_t now_us, struct hot_keys_look *out)
{
    int64_t newest = slice_number(h, now_us), oldest = newest - SLICES + 1;
    int64_t begin_us = h->started_us + (oldest > 0 ? oldest : 0) * SLICE_US;
    struct slice *copy = malloc(sizeof h->slices);
    struct hist *took = calloc(1, sizeof *took);
    CHECK(copy && took);
    *out = (struct hot_keys_look){.window_s = (double)(now_us - begin_us) / 1e6};
    if (out->window_s < 1)
        out->window_s = 1; /* a server that has just begun has no rate to speak of */
    pthread_mutex_lock(&h->lock);
    memcpy(copy, h->slices, sizeof h->slices);
    for (size_t i = 0; i < SLICES; i++) {
        if (h->slices[i].number >= oldest && h->slices[i].number <= newest)
            hist_merge(took, &h->took[i]);
    }
    pthread_mutex_unlock(&h->lock);
    look_at_top(copy, oldest, newest, out);
    out->p50_us = hist_quantile(took, 0.5);
    out->p99_us = hist_quantile(took, 0.99);
    out->all_p50 = hist_quantile(&h->all, 0.5);
    out->all_p99 = hist_quantile(&h->all, 0.99);
    out->all_entries = hist_count(&h->all);
    out->all_sum_us = atomic_load(&h->all.sum);
    out->refused = atomic_load(&h->refused);
    free(took);
    free(copy);
}
