/* Changes to one account's part of the views: what a commit makes true at once, and the slower
 * repairs of a single timeline (backfill, removal, rebuild, drop). Everything here is idempotent:
 * it is applied again from the last saved position after a crash. */
#include <stdlib.h>

#include "port/event.h"
#include "view/memory/engine.h"

enum { FAR_AHEAD = 24, NEAR_AHEAD = 12 };

/* Both directions of an edge change under both latches: two threads that apply opposite changes of
 * the same pair can then never leave the directions disagreeing. */
static enum err apply_follow(struct memory_views *m, uint32_t viewer, uint32_t author, bool on,
                             struct tally *t)
{
    if (viewer == author)
        return OK;
    struct slot_list *following = &m->people[viewer].following;
    struct follower_set *followers = &m->people[author].followers;
    bool changed = false;
    enum err e = OK;
    lock_both(m, viewer, author);
    m->changes[viewer]++;
    if (on) {
        bool added;
        e = slot_list_add(following, author, &added, &t->bytes);
        if (e == OK) {
            e = follower_set_add(followers, viewer, &changed, &t->bytes);
            if (e != OK && added)
                slot_list_remove(following, author);
        }
    } else {
        slot_list_remove(following, author);
        changed = follower_set_remove(followers, viewer, &t->bytes);
    }
    unlock_both(m, viewer, author);
    if (changed)
        t->follows += on ? 1 : -1;
    return e;
}

static enum err apply_mute(struct memory_views *m, uint32_t viewer, uint32_t author, bool on,
                           struct tally *t)
{
    struct person *p = &m->people[viewer];
    enum err e = OK;
    person_lock(m, viewer);
    m->changes[viewer]++;
    if (on && !p->mutes) {
        p->mutes = calloc(1, sizeof *p->mutes);
        if (!p->mutes)
            e = ERR_NO_MEMORY;
        else
            t->bytes += (int64_t)sizeof *p->mutes;
    }
    if (e == OK && on) {
        bool added;
        e = slot_list_add(p->mutes, author, &added, &t->bytes);
    } else if (p->mutes && !on) {
        slot_list_remove(p->mutes, author);
        if (p->mutes->count == 0) {
            slot_list_done(p->mutes, &t->bytes);
            free(p->mutes);
            p->mutes = NULL;
            t->bytes -= (int64_t)sizeof *p->mutes;
        }
    }
    person_unlock(m, viewer);
    return e;
}

static enum err add_to_pull_list(struct memory_views *m, uint32_t author, uint64_t post,
                                 struct tally *t)
{
    struct pull_list *l = pull_of(m, author);
    if (!l) {
        l = pull_list_new(&t->bytes);
        if (!l)
            return ERR_NO_MEMORY;
        atomic_store_explicit(&m->people[author].pull, l, memory_order_release);
        flag_set(m->pulled, author, true);
    }
    return pull_list_add(l, post, m->pull_cap, &t->bytes) ? OK : ERR_NO_MEMORY;
}

/* Counted before and after: whoever reads the lists' versions in between and finds them unchanged
 * must not take that for the last word; see memory_stamp. */
static enum err change_pull_list(struct memory_views *m, uint32_t author, uint64_t post, bool on,
                                 struct tally *t)
{
    enum err e = OK;
    struct pull_list *l = pull_of(m, author);
    atomic_fetch_add(&m->pulls, 1);
    if (on)
        e = add_to_pull_list(m, author, post, t);
    else if (l)
        pull_list_remove(l, post);
    atomic_fetch_add(&m->pulls, 1);
    return e;
}

static enum err apply_post(struct memory_views *m, uint32_t author, const struct view_change *c,
                           struct tally *t)
{
    struct timeline_env env = timeline_env_of(m, author);
    enum err e = OK;
    person_lock(m, author);
    uint64_t told = c->on ? ears_of(m, stripe_of(author)) & stripe_bit(author) : 0;
    if (c->on)
        timeline_add(&m->timelines[author], &env, c->other);
    else
        timeline_remove(&m->timelines[author], &env, c->other);
    if (c->on ? c->value == DELIVERY_PULL : pull_of(m, author) != NULL)
        e = change_pull_list(m, author, c->other, c->on, t);
    person_unlock(m, author);
    tell(m, stripe_of(author), told, VIEW_PART_TIMELINE);
    t->entries += env.entries;
    return e;
}

static enum err apply_one(struct memory_views *m, const struct view_change *c, struct tally *t)
{
    bool names_two = c->kind == VIEW_FOLLOW || c->kind == VIEW_MUTE;
    bool names_group = c->kind == VIEW_MEMBER || c->kind == VIEW_MESSAGE;
    enum slot_use use = c->kind == VIEW_ACCOUNT && !c->on ? SLOT_DROPPED : SLOT_EMPTY;
    uint32_t slot, other = 0;
    enum err e = account_slot(m, c->account, use, &slot);
    if (e == OK && (names_two || names_group))
        e = account_slot(m, c->other, names_group ? SLOT_GROUP : SLOT_EMPTY, &other);
    if (e != OK)
        return e;
    switch (c->kind) {
    case VIEW_ACCOUNT:
    case VIEW_SEEN:
        account_seen(m, slot, c->value);
        return OK;
    case VIEW_HIDE:
        flag_set(m->hidden, slot, c->on);
        atomic_fetch_add(&m->hides, 1);
        return OK;
    case VIEW_FOLLOW:
        return apply_follow(m, slot, other, c->on, t);
    case VIEW_MUTE:
        return apply_mute(m, slot, other, c->on, t);
    case VIEW_POST:
        return apply_post(m, slot, c, t);
    case VIEW_MEMBER:
        return apply_member(m, slot, other, c, t);
    case VIEW_MESSAGE:
        return apply_message(m, slot, other, c, t);
    }
    return ERR_BAD_INPUT;
}

/* A start from truth applies millions of edges in large batches; each touches an author somewhere
 * else. */
static void look_ahead(struct memory_views *m, const struct view_change *changes, size_t n,
                       size_t i)
{
    if (i + FAR_AHEAD < n) { /* members come by group, followers by follower */
        const struct view_change *c = &changes[i + FAR_AHEAD];
        directory_prefetch(&m->directory, c->kind == VIEW_MEMBER ? c->account : c->other);
    }
    if (i + NEAR_AHEAD < n && changes[i + NEAR_AHEAD].kind == VIEW_FOLLOW) {
        uint32_t slot = directory_find(&m->directory, changes[i + NEAR_AHEAD].other);
        if (slot != DIRECTORY_NONE)
            __builtin_prefetch(&m->people[slot].followers, 1);
    }
}

enum err memory_apply(struct views *v, const struct view_change *changes, size_t n)
{
    struct memory_views *m = memory_of(v);
    struct tally t = {0};
    enum err e = OK;
    for (size_t i = 0; i < n && e == OK; i++) {
        look_ahead(m, changes, n, i);
        e = apply_one(m, &changes[i], &t);
    }
    tally_add(m, &t);
    return e;
}

/* Backfill works in a timeline that is being rebuilt, too: the rebuild may have read truth before
 * the follow. A dropped one needs nothing: its rebuild will read truth after it. */
enum err memory_edge(struct views *v, uint64_t viewer, uint64_t author, bool backfill,
                     const uint64_t *ids, size_t n, uint64_t floor)
{
    struct memory_views *m = memory_of(v);
    uint32_t slot = account_find(m, viewer), other = account_find(m, author);
    if (slot == DIRECTORY_NONE || other == DIRECTORY_NONE)
        return ERR_NOT_FOUND;
    struct timeline *t = &m->timelines[slot];
    struct timeline_env env = timeline_env_of(m, slot);
    person_lock(m, slot);
    bool follows = slot_list_has(&m->people[slot].following, other);
    if (t->state != TIMELINE_DROPPED && follows == backfill) {
        if (backfill)
            timeline_merge(t, &env, ids, n, floor);
        else
            timeline_remove_all(t, &env, ids, n);
    }
    person_unlock(m, slot);
    tally_add(m, &(struct tally){.entries = env.entries});
    return OK;
}

static void begin_building(struct memory_views *m, uint32_t slot)
{
    struct timeline *t = &m->timelines[slot];
    m->changes[slot]++;
    if (t->state == TIMELINE_DROPPED)
        t->state = TIMELINE_BUILDING;
    if (t->builders < TIMELINE_BUILDERS_MAX)
        t->builders++;
    flag_set(m->awake, slot, true);
}

static void drop_timeline(struct memory_views *m, uint32_t slot, struct timeline_env *env)
{
    timeline_drop(&m->timelines[slot], env);
    flag_set(m->awake, slot, false);
}

/* Two readers may rebuild the same timeline at once: both collect into the same ring, the first to
 * end makes it ready, the second finds it complete and changes nothing. `builders` counts those
 * under way, so that nobody drops the timeline, or begins it anew, between the two ends: the second
 * would then bring back a state from before pushes that nobody collected. A rebuild that is neither
 * ended nor given up is never counted down; the price is one timeline that is not dropped until the
 * next start. */
enum err memory_rebuild(struct views *v, uint64_t viewer, enum view_rebuild step,
                        const uint64_t *ids, size_t n, uint64_t floor)
{
    struct memory_views *m = memory_of(v);
    uint32_t slot = account_find(m, viewer);
    if (slot == DIRECTORY_NONE)
        return ERR_NOT_FOUND;
    struct timeline *t = &m->timelines[slot];
    struct timeline_env env = timeline_env_of(m, slot);
    enum err e = OK;
    person_lock(m, slot);
    if (step == VIEW_REBUILD_BEGIN) {
        if (t->state == TIMELINE_READY)
            e = ERR_CONFLICT;
        else
            begin_building(m, slot);
    } else if (step == VIEW_REBUILD_ANEW) {
        if (t->state != TIMELINE_READY || t->builders > 0) {
            e = ERR_CONFLICT;
        } else {
            timeline_drop(t, &env);
            begin_building(m, slot);
        }
    } else {
        if (t->builders > 0 && t->builders < TIMELINE_BUILDERS_MAX)
            t->builders--;
        if (t->state == TIMELINE_BUILDING && step == VIEW_REBUILD_END) {
            t->state = TIMELINE_READY;
            timeline_merge(t, &env, ids, n, floor);
        } else if (t->state == TIMELINE_BUILDING && t->builders == 0) {
            drop_timeline(m, slot, &env);
        } else if (t->state == TIMELINE_DROPPED) {
            e = ERR_CONFLICT; /* nobody began: what was pushed meanwhile is not known */
        }
    }
    person_unlock(m, slot);
    tally_add(m, &(struct tally){.entries = env.entries});
    return e;
}

/* The audience leaves out people whose timeline is dropped. That loses nothing: a rebuild begins
 * before it reads truth, so it either finds a post there or is awake when that post's audience is
 * walked. */
static bool drop_if_unseen(struct memory_views *m, uint32_t slot, uint32_t before,
                           struct tally *total)
{
    if (!flag_get(m->awake, slot) || atomic_load(&m->seen[slot]) >= before)
        return false;
    struct timeline *t = &m->timelines[slot];
    struct timeline_env env = timeline_env_of(m, slot);
    person_lock(m, slot);
    bool drop =
        t->state == TIMELINE_READY && t->builders == 0 && atomic_load(&m->seen[slot]) < before;
    if (drop)
        drop_timeline(m, slot, &env);
    person_unlock(m, slot);
    total->entries += env.entries;
    return drop;
}

enum err memory_sweep(struct views *v, int64_t seen_before_ms, size_t max_accounts, size_t *dropped,
                      bool *wrapped)
{
    struct memory_views *m = memory_of(v);
    uint32_t accounts = atomic_load_explicit(&m->accounts, memory_order_acquire);
    uint32_t before = seen_seconds(seen_before_ms);
    uint32_t at = atomic_load(&m->sweep_at);
    struct tally t = {0};
    *dropped = 0;
    for (size_t i = 0; i < max_accounts && at < accounts; i++, at++) {
        *dropped += drop_if_unseen(m, at, before, &t);
        drop_inbox_if_unseen(m, at, before, &t);
    }
    *wrapped = at >= accounts;
    atomic_store(&m->sweep_at, *wrapped ? 0 : at);
    tally_add(m, &t);
    return OK;
}
