/* The inside of the in-memory views engine, shared by its files.
 *
 * Accounts get dense slots in the order of their appearance and keep them. What is known of an
 * account lies in columns indexed by slot (column.h); nothing moves, so a slot is a valid handle
 * until the engine closes. A group has a slot, too, and of all that only an id and followers, who
 * are its members; the bit `grouped` tells them apart.
 *
 * Locks. 64 neighbouring slots form a stripe with one latch. The latch guards, for each account of
 * the stripe: whom it follows, its mutes, its timeline and its inbox (as a viewer); its followers
 * and changes of its pull list (as an author or a group). So "is it followed?" and "change the
 * timeline" are one atomic act for a viewer, and a sorted batch of members takes one latch for a
 * run of neighbours. Two latches are taken only for an edge, the lower stripe first. No latch is
 * held over I/O. `seen`, `awake`, `hidden` and the like are atomic and need no latch, the directory
 * and the pull lists are read without one. */
#pragma once

#include <pthread.h>
#include <stdatomic.h>

#include "base/clock.h"
#include "port/views.h"
#include "view/memory/column.h"
#include "view/memory/directory.h"
#include "view/memory/inbox.h"
#include "view/memory/latch.h"
#include "view/memory/pull_list.h"
#include "view/memory/slot_set.h"
#include "view/memory/timeline.h"

enum { STRIPE_BITS = 6, STRIPE_SLOTS = 1 << STRIPE_BITS };

#define ACCOUNTS_MAX (UINT32_C(1) << 26)

struct person {
    struct slot_list following;
    struct follower_set followers;
    struct slot_list *mutes; /* mostly NULL */
    _Atomic(struct pull_list *) pull;
};

/* What an operation changed; added to the engine's totals once, at its end. */
struct tally {
    int64_t entries; /* of timelines */
    int64_t follows;
    int64_t groups, memberships;
    struct inbox_env inboxes;
    int64_t bytes; /* of the graph and the pull lists; the pool counts its own */
};

struct memory_views {
    struct views views;
    struct clock *clock;
    char *snapshot_path; /* NULL: none */
    size_t pull_cap;

    struct directory directory;
    pthread_mutex_t create; /* one new account at a time */
    _Atomic uint32_t accounts;

    uint64_t *ids;          /* account id */
    _Atomic uint32_t *seen; /* when last seen, in seconds; never falls */
    struct timeline *timelines;
    struct person *people;
    struct inbox *inboxes;
    uint64_t *changes; /* of what the latch guards for a viewer, new ids in the timeline left out */
    struct latch *latches;   /* from here on by stripe: bit = slot % 64 */
    _Atomic uint64_t *awake; /* the timeline is not dropped */
    _Atomic uint64_t *hidden;
    _Atomic uint64_t *pulled;      /* has a pull list */
    _Atomic uint64_t *inbox_awake; /* the inbox is not dropped */
    _Atomic uint64_t *grouped;     /* is a group; never changes */
    _Atomic uint64_t *listening;   /* somebody wants to be told; changes under the latch */
    struct column columns[13];
    struct block_pool pool; /* the timelines' blocks */

    _Atomic uint64_t hides; /* changes of `hidden`, counted after each */
    _Atomic uint64_t pulls; /* changes of any pull list, counted before and after each */
    _Atomic uint32_t
        walked_at; /* the latest start of a walk over a part of the followers, seconds */
    _Atomic uint32_t sweep_at;
    _Atomic int64_t entries, bytes, follows;
    _Atomic int64_t groups, memberships, inbox_entries, inbox_bytes;

    pthread_mutex_t saving; /* one save at a time */
    _Atomic uint64_t saved_position;
    _Atomic int64_t saved_at_ms, save_took_ms, save_bytes;
};

static inline struct memory_views *memory_of(struct views *v)
{
    return (struct memory_views *)v;
}

static inline uint32_t stripe_of(uint32_t slot)
{
    return slot >> STRIPE_BITS;
}
static inline uint64_t stripe_bit(uint32_t slot)
{
    return UINT64_C(1) << (slot % STRIPE_SLOTS);
}

static inline void person_lock(struct memory_views *m, uint32_t slot)
{
    latch_lock(&m->latches[stripe_of(slot)]);
}

static inline void person_unlock(struct memory_views *m, uint32_t slot)
{
    latch_unlock(&m->latches[stripe_of(slot)]);
}

static inline bool flag_get(_Atomic uint64_t *flags, uint32_t slot)
{
    return atomic_load_explicit(&flags[stripe_of(slot)], memory_order_acquire) & stripe_bit(slot);
}

static inline void flag_set(_Atomic uint64_t *flags, uint32_t slot, bool on)
{
    if (on)
        atomic_fetch_or(&flags[stripe_of(slot)], stripe_bit(slot));
    else
        atomic_fetch_and(&flags[stripe_of(slot)], ~stripe_bit(slot));
}

static inline struct timeline_env timeline_env_of(struct memory_views *m, uint32_t slot)
{
    return (struct timeline_env){&m->pool, stripe_of(slot), (uint32_t)m->views.cap,
                                 0,        m->changes,      m->timelines};
}

static inline struct pull_list *pull_of(struct memory_views *m, uint32_t slot)
{
    return atomic_load_explicit(&m->people[slot].pull, memory_order_acquire);
}

/* Two people's latches, the lower stripe first. */
static inline void lock_both(struct memory_views *m, uint32_t a, uint32_t b)
{
    uint32_t low = stripe_of(a < b ? a : b), high = stripe_of(a < b ? b : a);
    latch_lock(&m->latches[low]);
    if (high != low)
        latch_lock(&m->latches[high]);
}

static inline void unlock_both(struct memory_views *m, uint32_t a, uint32_t b)
{
    person_unlock(m, a);
    if (stripe_of(a) != stripe_of(b))
        person_unlock(m, b);
}

void tally_add(struct memory_views *m, const struct tally *t);

/* Tells of changes: `told` has a bit for each account of the stripe. No latch is held. */
void tell(struct memory_views *m, uint64_t stripe, uint64_t told, enum view_part what);

/* Those of the stripe who are listened to; its latch is held. Mostly nobody. */
static inline uint64_t ears_of(struct memory_views *m, uint64_t stripe)
{
    return atomic_load_explicit(&m->listening[stripe], memory_order_relaxed);
}

/* accounts.c */
enum err accounts_init(struct memory_views *m);
void accounts_done(struct memory_views *m);
bool accounts_extend(struct memory_views *m,
                     uint32_t count); /* `create` is held, or nobody else is there */
/* What a slot is made for. */
enum slot_use {
    SLOT_EMPTY,   /* an account, whose timeline and inbox are empty and complete */
    SLOT_DROPPED, /* an account, about which nothing is known */
    SLOT_GROUP
};
/* The slot of `id`, created when unknown. ERR_BAD_INPUT: it is a group, or is none. */
enum err account_slot(struct memory_views *m, uint64_t id, enum slot_use use, uint32_t *slot);
/* DIRECTORY_NONE: there is no such account. */
uint32_t account_find(struct memory_views *m, uint64_t id);
void account_seen(struct memory_views *m, uint32_t slot, int64_t seen_ms);
uint32_t seen_seconds(int64_t ms);

/* apply.c */
enum err memory_apply(struct views *v, const struct view_change *changes, size_t n);
enum err memory_edge(struct views *v, uint64_t viewer, uint64_t author, bool backfill,
                     const uint64_t *ids, size_t n, uint64_t floor);
enum err memory_rebuild(struct views *v, uint64_t viewer, enum view_rebuild step,
                        const uint64_t *ids, size_t n, uint64_t floor);
enum err memory_sweep(struct views *v, int64_t seen_before_ms, size_t max_accounts, size_t *dropped,
                      bool *wrapped);

/* groups.c */
enum err apply_member(struct memory_views *m, uint32_t slot, uint32_t group,
                      const struct view_change *c, struct tally *t);
enum err apply_message(struct memory_views *m, uint32_t slot, uint32_t group,
                       const struct view_change *c, struct tally *t);
void drop_inbox_if_unseen(struct memory_views *m, uint32_t slot, uint32_t before, struct tally *t);
enum err memory_inbox_push(struct views *v, uint64_t group, uint64_t activity,
                           const uint64_t *members, size_t n, size_t *changed);
enum err memory_seen(struct views *v, const uint64_t *members, size_t n, int64_t since_ms,
                     bool *out);
enum err memory_inbox_drop(struct views *v, const uint64_t *members, size_t n);
enum err memory_inbox_rebuild(struct views *v, uint64_t account, enum view_rebuild step,
                              const struct inbox_entry *entries, size_t n);
enum err memory_inbox(struct views *v, uint64_t account, uint64_t below, struct inbox_entry *out,
                      size_t max, size_t *n);
enum err memory_listen(struct views *v, uint64_t account, bool on);

/* deliver.c */
void check_handles(struct memory_views *m, const uint64_t *members, size_t n);
enum err memory_audience(struct views *v, uint64_t author, struct audience_cursor *cursor,
                         uint64_t *members, size_t max, size_t *n);
enum err memory_push(struct views *v, uint64_t post, const uint64_t *members, size_t n,
                     size_t *added);
enum err memory_retract(struct views *v, uint64_t post, const uint64_t *members, size_t n,
                        size_t *removed);

/* read.c */
enum err memory_home(struct views *v, uint64_t viewer, uint64_t below, uint64_t *ids, size_t max,
                     size_t *n, uint64_t *floor);
enum err memory_visible(struct views *v, uint64_t viewer, const uint64_t *authors, size_t n,
                        bool *out);
enum err memory_stamp(struct views *v, uint64_t viewer, struct view_stamp *stamp, bool *same);
enum err memory_neighbours(struct views *v, uint64_t account, bool followers, uint64_t after,
                           uint64_t *ids, size_t max, size_t *n);

/* save.c, load.c */
enum err memory_save(struct views *v, uint64_t position);
enum err memory_load(struct memory_views *m); /* sets loaded_position; OK when there is none */
