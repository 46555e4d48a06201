/* The in-memory views driver: opening, closing, and its figures. driver.h explains how it works;
 * apply.c changes, graph.c, timelines.c and inboxes.c are the three ports, save.c and load.c keep
 * snapshots. */
#include <stdlib.h>
#include <string.h>

#include "view/memory/driver.h"
#include "view/memory/memory.h"

void tally_add(struct memory_views *m, const struct tally *t)
{
    int64_t parts[TALLY_PARTS];
    memcpy(parts, t, sizeof parts);
    for (size_t i = 0; i < TALLY_PARTS; i++)
        if (parts[i] != 0)
            atomic_fetch_add_explicit(&m->totals[i], parts[i], memory_order_relaxed);
}

static uint64_t count_flags(_Atomic uint64_t *flags, uint32_t accounts)
{
    uint64_t n = 0;
    for (uint32_t i = 0; i < (accounts + STRIPE_SLOTS - 1) / STRIPE_SLOTS; i++)
        n += (uint64_t)__builtin_popcountll(atomic_load_explicit(&flags[i], memory_order_relaxed));
    return n;
}

static void memory_stats(struct views *v, struct view_stats *out)
{
    struct memory_views *m = CONTAINER_OF(v, struct memory_views, views);
    uint32_t slots = atomic_load_explicit(&m->accounts, memory_order_acquire);
    uint64_t awake = count_flags(m->awake, slots);
    uint64_t accounts = slots - count_flags(m->grouped, slots);
    uint64_t inbox_bytes = (uint64_t)total_of(m, inboxes.bytes);
    uint64_t per_slot = sizeof *m->ids + sizeof *m->seen + sizeof *m->timelines +
                        sizeof *m->people + sizeof *m->changes + sizeof *m->inboxes;
    *out = (struct view_stats){
        .accounts = accounts,
        .follows = (uint64_t)total_of(m, follows),
        .timelines = awake,
        .entries = (uint64_t)total_of(m, entries),
        .dropped = accounts > awake ? accounts - awake : 0,
        .pull_lists = count_flags(m->pulled, slots),
        .bytes = (uint64_t)total_of(m, bytes) + slots * per_slot + inbox_bytes +
                 directory_bytes(&m->directory) + block_pool_bytes(&m->pool),
        .timeline_bytes = slots * sizeof *m->timelines + block_pool_bytes(&m->pool),
        .groups = (uint64_t)total_of(m, groups),
        .memberships = (uint64_t)total_of(m, memberships),
        .inboxes = count_flags(m->inbox_awake, slots),
        .inbox_entries = (uint64_t)total_of(m, inboxes.entries),
        .inbox_bytes = inbox_bytes + slots * sizeof *m->inboxes,
        .saved_position = atomic_load(&m->saved_position),
        .saved_at_ms = atomic_load(&m->saved_at_ms),
        .save_took_ms = atomic_load(&m->save_took_ms),
        .save_bytes = atomic_load(&m->save_bytes),
    };
}

static void memory_free(struct views *v)
{
    struct memory_views *m = CONTAINER_OF(v, struct memory_views, views);
    accounts_done(m);
    pthread_mutex_destroy(&m->create);
    pthread_mutex_destroy(&m->saving);
    free(m->snapshot_path);
    free(m);
}

/* Under the latch: a walk after a later push finds the bit. */
static enum err memory_listen(struct views *v, uint64_t account, bool on)
{
    struct memory_views *m = CONTAINER_OF(v, struct memory_views, views);
    uint32_t slot = account_find(m, account);
    if (slot == DIRECTORY_NONE)
        return ERR_NOT_FOUND;
    person_lock(m, slot);
    if (flag_get(m->listening, slot) != on)
        atomic_fetch_add(&m->listeners, on ? 1 : -1);
    flag_set(m->listening, slot, on);
    person_unlock(m, slot);
    return OK;
}

/* No or few people are connected: a bit a member is all that most walks cost. */
static size_t memory_listening(struct views *v, const uint64_t *members, size_t n,
                               uint64_t *accounts)
{
    struct memory_views *m = CONTAINER_OF(v, struct memory_views, views);
    size_t count = 0;
    if (atomic_load(&m->listeners) == 0)
        return 0;
    check_handles(m, members, n);
    for (size_t i = 0; i < n; i++)
        if (flag_get(m->listening, (uint32_t)members[i]))
            accounts[count++] = m->ids[members[i]];
    return count;
}

/* ---- losing and loading: each of them changes what readers are answered, and so all stamps ----
 */

static enum err memory_clear(struct views *v)
{
    struct memory_views *m = CONTAINER_OF(v, struct memory_views, views);
    pthread_mutex_lock(&m->saving); /* no snapshot of a half */
    atomic_store(&m->lost, true);
    accounts_clear(m);
    atomic_fetch_add(&m->hides, 1);
    pthread_mutex_unlock(&m->saving);
    return OK;
}

static enum err memory_loaded(struct views *v)
{
    struct memory_views *m = CONTAINER_OF(v, struct memory_views, views);
    atomic_fetch_add(&m->hides, 1);
    atomic_store(&m->lost, false);
    return OK;
}

static enum err memory_is_complete(struct views *v, bool *complete)
{
    *complete = !atomic_load(&CONTAINER_OF(v, struct memory_views, views)->lost);
    return OK;
}

static void memory_suspect(struct views *v, bool on)
{
    struct memory_views *m = CONTAINER_OF(v, struct memory_views, views);
    atomic_fetch_add(&m->hides, 1);
    atomic_store(&m->suspect, on);
}

static const struct views_ops memory_ops = {
    .apply = memory_apply,
    .listen = memory_listen,
    .listening = memory_listening,
    .save = memory_save,
    .clear = memory_clear,
    .loaded = memory_loaded,
    .is_complete = memory_is_complete,
    .suspect = memory_suspect,
    .stats = memory_stats,
    .free = memory_free,
};

enum err views_memory_open(const struct memory_views_config *config, struct views **out)
{
    struct memory_views *m = calloc(1, sizeof *m);
    if (!m)
        return ERR_NO_MEMORY;
    m->graph.ops = &memory_graph_ops;
    m->timelines_port.ops = &memory_timelines_ops;
    m->inboxes_port.ops = &memory_inboxes_ops;
    m->views.ops = &memory_ops;
    m->views.graph = &m->graph;
    m->views.timelines = &m->timelines_port;
    m->views.inboxes = &m->inboxes_port;
    m->views.epoch = (uint64_t)clock_wall_ms(config->clock) + 1; /* handles are given anew */
    m->views.cap = clamp_cap(config->timeline_cap, TIMELINE_CAP_MAX);
    m->pull_cap = clamp_cap(config->pull_cap, TIMELINE_CAP_MAX);
    m->clock = config->clock;
    pthread_mutex_init(&m->create, NULL);
    pthread_mutex_init(&m->saving, NULL);
    enum err e = accounts_init(m);
    if (e == OK && config->snapshot_path) {
        m->snapshot_path = strdup(config->snapshot_path);
        e = m->snapshot_path ? memory_load(m) : ERR_NO_MEMORY;
    }
    if (e != OK) {
        memory_free(&m->views);
        return e;
    }
    *out = &m->views;
    return OK;
}
