/* The table of debts. It is empty nearly always, and then costs one load of a counter; while Redis
 * cannot be reached it fills, up to a limit. */
#include "view/redis/debts.h"

#include <stdlib.h>

#include "base/check.h"
#include "base/clock.h"
#include "base/hash.h"
#include "base/log.h"

enum { PLACES = 1 << 16, PAY_EVERY_MS = 50 };

void debts_init(struct debts *d, int64_t life_ms)
{
    *d = (struct debts){.life_ms = life_ms};
    pthread_mutex_init(&d->lock, NULL);
}

void debts_done(struct debts *d)
{
    free(d->places);
    pthread_mutex_destroy(&d->lock);
}

/* The lock is held. Where the key is, or would be. */
static struct debt *place_of(struct debts *d, char kind, uint64_t id)
{
    size_t at = hash_u64(id ^ (uint64_t)(uint8_t)kind << 56) & (PLACES - 1);
    while (d->places[at].id != 0 && (d->places[at].id != id || d->places[at].kind != kind))
        at = (at + 1) & (PLACES - 1);
    return &d->places[at];
}

void debts_add(struct debts *d, char kind, uint64_t id, bool gone)
{
    pthread_mutex_lock(&d->lock);
    if (!d->places) {
        d->places = calloc(PLACES, sizeof *d->places);
        CHECK(d->places);
    }
    struct debt *place = place_of(d, kind, id);
    if (place->id == 0 && d->count >= PLACES / 2) {
        if (atomic_load(&d->blind_until_ms) == 0)
            log_error("too many changes of cards could not be written to Redis: cards are not read",
                      LOG_INT("for_ms", d->life_ms));
        atomic_store(&d->blind_until_ms, clock_mono_ms(clock_system()) + d->life_ms);
    } else {
        bool is_new = place->id == 0;
        *place = (struct debt){id, kind, gone || (!is_new && place->gone)};
        if (is_new)
            d->count++;
    }
    pthread_mutex_unlock(&d->lock);
}

enum debt_state debts_state(struct debts *d, char kind, uint64_t id)
{
    int64_t blind_until_ms = atomic_load(&d->blind_until_ms);
    bool blind = blind_until_ms != 0 && clock_mono_ms(clock_system()) < blind_until_ms;
    if (atomic_load(&d->count) == 0)
        return blind ? DEBT_FORGET : DEBT_NONE;
    pthread_mutex_lock(&d->lock);
    const struct debt *place = place_of(d, kind, id);
    enum debt_state state = place->id == 0 ? DEBT_NONE : place->gone ? DEBT_GONE : DEBT_FORGET;
    pthread_mutex_unlock(&d->lock);
    return blind && state == DEBT_NONE ? DEBT_FORGET : state;
}

size_t debts_due(struct debts *d, struct debt *out, size_t max)
{
    size_t n = 0;
    if (atomic_load(&d->count) == 0)
        return 0;
    int64_t now_ms = clock_mono_ms(clock_system());
    pthread_mutex_lock(&d->lock);
    bool mine = now_ms >= d->pay_at_ms;
    if (mine)
        d->pay_at_ms = now_ms + PAY_EVERY_MS;
    for (size_t i = 0; mine && i < PLACES && n < max; i++)
        if (d->places[i].id != 0)
            out[n++] = d->places[i];
    pthread_mutex_unlock(&d->lock);
    return n;
}

/* Whoever stood behind one that is taken out moves up. */
void debts_strike(struct debts *d, const struct debt *paid, size_t n)
{
    pthread_mutex_lock(&d->lock);
    for (size_t i = 0; i < n; i++) {
        struct debt *place = place_of(d, paid[i].kind, paid[i].id);
        if (place->id == 0 || place->gone != paid[i].gone)
            continue; /* more is owed by now */
        size_t at = (size_t)(place - d->places);
        place->id = 0;
        d->count--;
        for (size_t next = (at + 1) & (PLACES - 1); d->places[next].id != 0;
             next = (next + 1) & (PLACES - 1)) {
            struct debt moved = d->places[next];
            d->places[next].id = 0;
            *place_of(d, moved.kind, moved.id) = moved;
        }
    }
    pthread_mutex_unlock(&d->lock);
}
