/* The in-memory views engine: opening, closing, and what it says about itself. How it works is told
 * in engine.h; apply.c, deliver.c, groups.c, read.c, save.c and load.c do the work. */
#include <stdlib.h>
#include <string.h>

#include "view/memory/engine.h"
#include "view/memory/memory.h"

void tally_add(struct memory_views *m, const struct tally *t)
{
    if (t->entries != 0)
        atomic_fetch_add_explicit(&m->entries, t->entries, memory_order_relaxed);
    if (t->bytes != 0)
        atomic_fetch_add_explicit(&m->bytes, t->bytes, memory_order_relaxed);
    if (t->follows != 0)
        atomic_fetch_add_explicit(&m->follows, t->follows, memory_order_relaxed);
    if (t->groups != 0)
        atomic_fetch_add_explicit(&m->groups, t->groups, memory_order_relaxed);
    if (t->memberships != 0)
        atomic_fetch_add_explicit(&m->memberships, t->memberships, memory_order_relaxed);
    if (t->inboxes.entries != 0)
        atomic_fetch_add_explicit(&m->inbox_entries, t->inboxes.entries, memory_order_relaxed);
    if (t->inboxes.bytes != 0)
        atomic_fetch_add_explicit(&m->inbox_bytes, t->inboxes.bytes, memory_order_relaxed);
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
    struct memory_views *m = memory_of(v);
    uint32_t slots = atomic_load_explicit(&m->accounts, memory_order_acquire);
    uint64_t awake = count_flags(m->awake, slots);
    uint64_t accounts = slots - count_flags(m->grouped, slots);
    uint64_t inbox_bytes = (uint64_t)atomic_load(&m->inbox_bytes);
    uint64_t per_slot = sizeof *m->ids + sizeof *m->seen + sizeof *m->timelines +
                        sizeof *m->people + sizeof *m->changes + sizeof *m->inboxes;
    *out = (struct view_stats){
        .accounts = accounts,
        .follows = (uint64_t)atomic_load(&m->follows),
        .timelines = awake,
        .entries = (uint64_t)atomic_load(&m->entries),
        .dropped = accounts > awake ? accounts - awake : 0,
        .pull_lists = count_flags(m->pulled, slots),
        .bytes = (uint64_t)atomic_load(&m->bytes) + slots * per_slot + inbox_bytes +
                 directory_bytes(&m->directory) + block_pool_bytes(&m->pool),
        .timeline_bytes = slots * sizeof *m->timelines + block_pool_bytes(&m->pool),
        .groups = (uint64_t)atomic_load(&m->groups),
        .memberships = (uint64_t)atomic_load(&m->memberships),
        .inboxes = count_flags(m->inbox_awake, slots),
        .inbox_entries = (uint64_t)atomic_load(&m->inbox_entries),
        .inbox_bytes = inbox_bytes + slots * sizeof *m->inboxes,
        .saved_position = atomic_load(&m->saved_position),
        .saved_at_ms = atomic_load(&m->saved_at_ms),
        .save_took_ms = atomic_load(&m->save_took_ms),
        .save_bytes = atomic_load(&m->save_bytes),
    };
}

static void memory_free(struct views *v)
{
    struct memory_views *m = memory_of(v);
    accounts_done(m);
    pthread_mutex_destroy(&m->create);
    pthread_mutex_destroy(&m->saving);
    free(m->snapshot_path);
    free(m);
}

static const struct views_ops memory_ops = {
    .apply = memory_apply,
    .audience = memory_audience,
    .push = memory_push,
    .retract = memory_retract,
    .rebuild = memory_rebuild,
    .edge = memory_edge,
    .home = memory_home,
    .visible = memory_visible,
    .stamp = memory_stamp,
    .seen = memory_seen,
    .sweep = memory_sweep,
    .neighbours = memory_neighbours,
    .inbox_push = memory_inbox_push,
    .inbox_drop = memory_inbox_drop,
    .inbox_rebuild = memory_inbox_rebuild,
    .inbox = memory_inbox,
    .listen = memory_listen,
    .save = memory_save,
    .stats = memory_stats,
    .free = memory_free,
};

static size_t clamp(size_t n, size_t low, size_t high)
{
    return n < low ? low : n > high ? high : n;
}

enum err views_memory_open(const struct memory_views_config *config, struct views **out)
{
    struct memory_views *m = calloc(1, sizeof *m);
    if (!m)
        return ERR_NO_MEMORY;
    m->views.ops = &memory_ops;
    m->views.epoch = (uint64_t)clock_wall_ms(config->clock) + 1; /* handles are given anew */
    m->views.cap = clamp(config->timeline_cap, 1, TIMELINE_CAP_MAX);
    m->pull_cap = clamp(config->pull_cap, 1, TIMELINE_CAP_MAX);
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
