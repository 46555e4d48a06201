/* The map of pending invalidations. It is empty nearly always, and then costs one load of a
 * counter; while Redis cannot be reached it fills, up to a limit. */
#include "view/redis/pending_invalidations.h"

#include "base/clock.h"
#include "base/log.h"

enum { PENDING_MAX = 1 << 15, PAY_EVERY_MS = 50 };

struct entry {
    uint64_t id, kind; /* the key */
    bool gone;
};

void pending_init(struct pending *d, int64_t life_ms)
{
    *d = (struct pending){.life_ms = life_ms};
    pthread_mutex_init(&d->lock, NULL);
    map_init(&d->entries, sizeof(struct entry), 2 * sizeof(uint64_t));
}

void pending_done(struct pending *d)
{
    map_done(&d->entries);
    pthread_mutex_destroy(&d->lock);
}

/* The lock is held. */
static struct entry *find(const struct pending *d, char kind, uint64_t id)
{
    return map_find(&d->entries, (const uint64_t[]){id, (uint8_t)kind});
}

static void go_blind(struct pending *d)
{
    if (atomic_load(&d->blind_until_ms) == 0)
        log_error("too many changes of cards could not be written to Redis: cards are not read",
                  LOG_INT("for_ms", d->life_ms));
    atomic_store(&d->blind_until_ms, clock_mono_ms(clock_system()) + d->life_ms);
}

void pending_add(struct pending *d, char kind, uint64_t id, bool gone)
{
    pthread_mutex_lock(&d->lock);
    struct entry *e = find(d, kind, id);
    if (!e && d->entries.count < PENDING_MAX)
        e = map_put(&d->entries, (const uint64_t[]){id, (uint8_t)kind}, NULL);
    if (e)
        e->gone |= gone;
    else
        go_blind(d);
    atomic_store(&d->count, d->entries.count);
    pthread_mutex_unlock(&d->lock);
}

enum pending_kind pending_state(struct pending *d, char kind, uint64_t id)
{
    int64_t blind_until_ms = atomic_load(&d->blind_until_ms);
    bool blind = blind_until_ms != 0 && clock_mono_ms(clock_system()) < blind_until_ms;
    if (atomic_load(&d->count) == 0)
        return blind ? PENDING_FORGET : PENDING_NONE;
    pthread_mutex_lock(&d->lock);
    const struct entry *e = find(d, kind, id);
    enum pending_kind state = !e ? PENDING_NONE : e->gone ? PENDING_GONE : PENDING_FORGET;
    pthread_mutex_unlock(&d->lock);
    return blind && state == PENDING_NONE ? PENDING_FORGET : state;
}

size_t pending_due(struct pending *d, struct pending_invalidation *out, size_t max)
{
    size_t n = 0;
    if (atomic_load(&d->count) == 0)
        return 0;
    int64_t now_ms = clock_mono_ms(clock_system());
    pthread_mutex_lock(&d->lock);
    bool mine = now_ms >= d->pay_at_ms;
    if (mine)
        d->pay_at_ms = now_ms + PAY_EVERY_MS;
    const struct entry *e = mine ? map_next(&d->entries, NULL) : NULL;
    for (; e && n < max; e = map_next(&d->entries, e))
        out[n++] = (struct pending_invalidation){e->id, (char)e->kind, e->gone};
    pthread_mutex_unlock(&d->lock);
    return n;
}

void pending_remove(struct pending *d, const struct pending_invalidation *paid, size_t n)
{
    pthread_mutex_lock(&d->lock);
    for (size_t i = 0; i < n; i++) {
        struct entry *e = find(d, paid[i].kind, paid[i].id);
        if (e && e->gone == paid[i].gone) /* else more is owed by now */
            map_remove(&d->entries, e);
    }
    atomic_store(&d->count, d->entries.count);
    pthread_mutex_unlock(&d->lock);
}
