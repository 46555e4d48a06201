/* The inside of the in-memory views driver, shared by its files.
 *
 * Accounts get dense slots in the order of their appearance and keep them. What is known of an
 * account lies in columns indexed by slot (column.h); nothing moves, so a slot is a valid handle
 * until the driver closes. A group has a slot, too, and of all that only an id and followers, who
 * are its members; the bit `grouped` tells them apart.
 *
 * Locks. 64 neighbouring slots form a stripe with one latch. The latch guards, for each account of
 * the stripe: its followees, its mutes, its timeline and its inbox (as a viewer); its followers and
 * changes of its pull list (as an author or a group). So "is it followed?" and "change the
 * timeline" are one atomic act for a viewer, and a sorted batch of members takes one latch for a
 * run of neighbours. Two latches are taken only for an edge, the lower stripe first. No latch is
 * held over I/O. `seen`, `awake`, `hidden` and the like are atomic and need no latch, the directory
 * and the pull lists are read without one. */
#pragma once

#include <pthread.h>
#include <stdatomic.h>

#include "base/check.h"
#include "base/clock.h"
#include "port/views.h"
#include "view/memory/column.h"
#include "view/memory/directory.h"
#include "view/memory/inbox.h"
#include "view/memory/latch.h"
#include "view/memory/pull_list.h"
#include "view/memory/slot_set.h"
#include "view/memory/timeline.h"
#include "view/semantics.h"

enum { STRIPE_BITS = 6, STRIPE_SLOTS = 1 << STRIPE_BITS };

#define ACCOUNTS_MAX (UINT32_C(1) << 26)

struct person {
    struct slot_list following;
    struct follower_set followers;
    struct slot_list *mutes; /* mostly NULL */
    _Atomic(struct pull_list *) pull;
};

/* What an operation changed; added to the driver's totals once, at its end. */
struct tally {
    int64_t entries; /* of timelines */
    int64_t follows;
    int64_t groups, memberships;
    struct inbox_env inboxes;
    int64_t bytes; /* of the graph and the pull lists; the pool counts its own */
};

enum { TALLY_PARTS = sizeof(struct tally) / sizeof(int64_t) };

struct memory_views {
    struct views views;
    struct graph graph;
    struct timelines timelines_port;
    struct inboxes inboxes_port;
    _Atomic bool lost;    /* cleared, and not loaded since */
    _Atomic bool suspect; /* readers must not believe it */
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
    _Atomic uint64_t *listening;   /* has an open stream; changes under the latch */
    struct column columns[13];
    struct block_pool pool; /* the timelines' blocks */

    _Atomic int64_t listeners; /* how many bits of `listening` are set */
    _Atomic uint64_t hides;    /* changes of `hidden`, counted after each */
    _Atomic uint64_t pulls;    /* changes of any pull list, counted before and after each */
    _Atomic uint32_t
        walked_at; /* the latest start of a walk over a part of the followers, seconds */
    _Atomic uint32_t sweep_at;
    _Atomic int64_t totals[TALLY_PARTS]; /* see total_of */

    pthread_mutex_t saving; /* one save at a time */
    _Atomic uint64_t saved_position;
    _Atomic int64_t saved_at_ms, save_took_ms, save_bytes;
};

/* Must readers be sent to truth? */
static inline bool is_lost(struct memory_views *m)
{
    return atomic_load_explicit(&m->lost, memory_order_acquire) ||
           atomic_load_explicit(&m->suspect, memory_order_acquire);
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
/* The driver's total of a part of struct tally. */
#define total_of(m, part) atomic_load(&(m)->totals[offsetof(struct tally, part) / sizeof(int64_t)])

/* After a change of the inbox, under the latch. */
static inline void inbox_note_state(struct memory_views *m, uint32_t slot)
{
    bool awake = m->inboxes[slot].state != INBOX_DROPPED;
    if (flag_get(m->inbox_awake, slot) != awake)
        flag_set(m->inbox_awake, slot, awake);
}

/* accounts.c */
enum err accounts_init(struct memory_views *m);
void accounts_done(struct memory_views *m);
/* Forgets all that is known of the accounts; they keep their slots. */
void accounts_clear(struct memory_views *m);
bool accounts_extend(struct memory_views *m,
                     uint32_t count); /* `create` is held, or no other thread is there */
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
/* Members are handles: slots that exist. */
void check_handles(struct memory_views *m, const uint64_t *members, size_t n);

extern const struct graph_ops memory_graph_ops;
extern const struct timelines_ops memory_timelines_ops;
extern const struct inboxes_ops memory_inboxes_ops;

enum err memory_apply(struct views *v, const struct view_change *changes, size_t n);
void drop_inbox_if_unseen(struct memory_views *m, uint32_t slot, uint32_t before, struct tally *t);

/* save.c, load.c */
enum err memory_save(struct views *v, uint64_t position);
enum err memory_load(struct memory_views *m); /* sets loaded_position; OK when there is none */
