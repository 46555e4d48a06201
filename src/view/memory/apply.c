/* Changes: applies a commit at once to the graph, in the author's own timeline and in inboxes.
 * Everything here is idempotent: it is applied again from the last saved position after a crash.
 * inboxes.c explains how a membership is kept. */
#include <stdlib.h>

#include "port/event.h"
#include "view/memory/driver.h"

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

/* Counted before and after: a reader that finds the lists' versions unchanged in between must not
 * take that as final; see timelines.c, stamp. */
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
    if (c->on)
        timeline_add(&m->timelines[author], &env, c->other);
    else
        timeline_remove(&m->timelines[author], &env, c->other);
    if (c->on ? c->value == DELIVERY_PULL : pull_of(m, author) != NULL)
        e = change_pull_list(m, author, c->other, c->on, t);
    person_unlock(m, author);
    t->entries += env.entries;
    return e;
}

/* Both sides change under both latches, as those of a follow do. */
static enum err apply_member(struct memory_views *m, uint32_t slot, uint32_t group,
                             const struct view_change *c, struct tally *t)
{
    struct follower_set *members = &m->people[group].followers;
    struct inbox *inbox = &m->inboxes[slot];
    bool changed = false;
    enum err e = OK;
    lock_both(m, slot, group);
    uint32_t before = members->count;
    if (!c->on) {
        changed = follower_set_remove(members, slot, &t->bytes);
        inbox_leave(inbox, &t->inboxes, group);
    } else {
        e = follower_set_add(members, slot, &changed, &t->bytes);
        if (e == OK)
            inbox_raise(inbox, &t->inboxes, group, change_activity(c));
    }
    inbox_note_state(m, slot);
    t->memberships += changed ? (c->on ? 1 : -1) : 0;
    t->groups += (members->count > 0) - (before > 0);
    unlock_both(m, slot, group);
    return e;
}

static enum err apply_message(struct memory_views *m, uint32_t slot, uint32_t group,
                              const struct view_change *c, struct tally *t)
{
    struct inbox *inbox = &m->inboxes[slot];
    person_lock(m, slot);
    inbox_raise(inbox, &t->inboxes, group, change_activity(c));
    inbox_note_state(m, slot);
    person_unlock(m, slot);
    return OK;
}

static enum err apply_one(struct memory_views *m, const struct view_change *c, struct tally *t)
{
    bool names_two = c->kind == VIEW_FOLLOW || c->kind == VIEW_MUTE;
    bool names_group = c->kind == VIEW_MEMBER || c->kind == VIEW_MESSAGE;
    bool dropped = is_lost(m) || (c->kind == VIEW_ACCOUNT && !c->on);
    enum slot_use use = dropped ? SLOT_DROPPED : SLOT_EMPTY;
    uint32_t slot, other = 0;
    enum err e = account_slot(m, c->account, use, &slot);
    if (e == OK && (names_two || names_group))
        e = account_slot(m, c->other,
                         names_group  ? SLOT_GROUP
                         : is_lost(m) ? SLOT_DROPPED
                                      : SLOT_EMPTY,
                         &other);
    if (e != OK)
        return e;
    switch (c->kind) {
    case VIEW_ACCOUNT:
    case VIEW_LAST_SEEN:
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
    struct memory_views *m = CONTAINER_OF(v, struct memory_views, views);
    struct tally t = {0};
    enum err e = OK;
    for (size_t i = 0; i < n && e == OK; i++) {
        look_ahead(m, changes, n, i);
        e = apply_one(m, &changes[i], &t);
    }
    tally_add(m, &t);
    return e;
}
