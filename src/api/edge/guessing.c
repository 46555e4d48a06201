/* Tries are counted before they are checked and taken back when they were right: otherwise as many
 * as fit side by side would go through before the first of them is known to be wrong.
 *
 * Tries are forgotten one by one, so that a busy address with a wrong password now and then is
 * never closed. The table is bounded; an entry that was tried last longest ago gives way. One lock:
 * what follows each call takes 17 ms. */
#include "api/edge/guessing.h"

#include <pthread.h>
#include <stdlib.h>

#include "base/cache.h"
#include "base/check.h"
#include "base/hash.h"

enum {
    ENTRIES_MAX = 1 << 16,
    FIRST_WAIT_MS = 1000,
    DOUBLINGS_MAX = 20,
};

enum subject { PAIR, ADDRESS, ACCOUNT, SUBJECTS };

static const struct {
    int64_t free; /* times the setting */
    int64_t wait_max_ms;
    int64_t forget_ms; /* after so long, one try less */
} rules[SUBJECTS] = {
    [PAIR] = {1, 15 * 60 * 1000, 15 * 60 * 1000},
    [ADDRESS] = {5, 60 * 1000, 10 * 1000},
    [ACCOUNT] = {10, 60 * 1000, 60 * 1000},
};

struct entry {
    uint64_t subject, key; /* the subject plus one: never 0 */
    int64_t tried_ms, forgot_ms, closed_until_ms;
    int64_t wrong;
    bool known; /* of a PAIR: the right password came from there */
};

struct guessing {
    struct clock *clock;
    int64_t tries;
    pthread_mutex_t lock;
    struct cache entries;
};

static int64_t tried_last(const void *slot)
{
    return ((const struct entry *)slot)->tried_ms;
}

static const struct cache_policy policy = {
    .slot_bytes = sizeof(struct entry), .key_bytes = 2 * sizeof(uint64_t), .worth = tried_last};

struct guessing *guessing_new(struct clock *clock, int64_t tries)
{
    struct guessing *g = calloc(1, sizeof *g);
    CHECK(g);
    g->clock = clock;
    g->tries = tries;
    pthread_mutex_init(&g->lock, NULL);
    CHECK(cache_init(&g->entries, &policy, ENTRIES_MAX, 0));
    return g;
}

void guessing_free(struct guessing *g)
{
    if (!g)
        return;
    cache_done(&g->entries);
    pthread_mutex_destroy(&g->lock);
    free(g);
}

static uint64_t key_of(enum subject subject, uint64_t account, uint64_t address)
{
    return subject == ADDRESS   ? address
           : subject == ACCOUNT ? account
                                : hash_u64(account ^ hash_u64(address));
}

/* A copy: claiming a slot for one subject may take another's. All zero: never tried. */
static struct entry look(struct guessing *g, enum subject subject, uint64_t key, int64_t now_ms)
{
    uint64_t words[2] = {(uint64_t)subject + 1, key};
    const struct entry *found = cache_find(&g->entries, hash_u64(key ^ words[0]), words);
    struct entry e = found ? *found : (struct entry){.subject = words[0], .key = key};
    int64_t forgotten = (now_ms - e.forgot_ms) / rules[subject].forget_ms;
    e.forgot_ms += forgotten * rules[subject].forget_ms;
    e.wrong -= forgotten < e.wrong ? forgotten : e.wrong;
    if (e.wrong == 0)
        e.forgot_ms = now_ms;
    return e;
}

static void keep(struct guessing *g, const struct entry *e)
{
    uint64_t words[2] = {e->subject, e->key};
    struct entry *slot = cache_claim(&g->entries, hash_u64(e->key ^ words[0]), words, 0);
    *slot = *e;
}

static void count_try(struct guessing *g, struct entry *e, enum subject subject, int64_t now_ms)
{
    e->tried_ms = now_ms;
    e->wrong++;
    int64_t over = e->wrong - rules[subject].free * g->tries;
    e->closed_until_ms = 0;
    if (over >= 0) {
        int64_t wait_ms = (int64_t)FIRST_WAIT_MS << (over < DOUBLINGS_MAX ? over : DOUBLINGS_MAX);
        e->closed_until_ms =
            now_ms + (wait_ms < rules[subject].wait_max_ms ? wait_ms : rules[subject].wait_max_ms);
    }
    keep(g, e);
}

int64_t guessing_begin(struct guessing *g, uint64_t account, uint64_t address)
{
    if (g->tries == 0)
        return 0;
    struct entry entries[SUBJECTS];
    int64_t now_ms = clock_mono_ms(g->clock), wait_ms = 0;
    pthread_mutex_lock(&g->lock);
    entries[PAIR] = look(g, PAIR, key_of(PAIR, account, address), now_ms);
    int held_to = entries[PAIR].known ? 1 : SUBJECTS;
    for (int s = 0; s < held_to; s++) {
        entries[s] = look(g, (enum subject)s, key_of((enum subject)s, account, address), now_ms);
        int64_t left_ms = entries[s].closed_until_ms - now_ms;
        wait_ms = left_ms > wait_ms ? left_ms : wait_ms;
    }
    for (int s = 0; s < held_to && wait_ms == 0; s++)
        count_try(g, &entries[s], (enum subject)s, now_ms);
    pthread_mutex_unlock(&g->lock);
    return (wait_ms + 999) / 1000;
}

/* One that is closed for earlier tries stays so: accounts of one's own buy no guesses. */
static void take_back(struct guessing *g, enum subject subject, uint64_t key, int64_t now_ms)
{
    struct entry e = look(g, subject, key, now_ms);
    if (e.wrong > 0)
        e.wrong--;
    if (e.wrong < rules[subject].free * g->tries)
        e.closed_until_ms = 0;
    keep(g, &e);
}

void guessing_right(struct guessing *g, uint64_t account, uint64_t address)
{
    if (g->tries == 0)
        return;
    int64_t now_ms = clock_mono_ms(g->clock);
    pthread_mutex_lock(&g->lock);
    struct entry pair = look(g, PAIR, key_of(PAIR, account, address), now_ms);
    if (!pair.known) {
        take_back(g, ADDRESS, address, now_ms);
        take_back(g, ACCOUNT, account, now_ms);
    }
    pair.wrong = pair.closed_until_ms = 0;
    pair.known = true;
    pair.tried_ms = now_ms;
    keep(g, &pair);
    pthread_mutex_unlock(&g->lock);
}
