/* Inboxes: delivers a message to those of a group's members; rebuilds and reads one.
 *
 * A membership is known to the group, as a follower is to an author; the member's side of it is the
 * inbox, which may be dropped. So a message goes from the group to its members, and nothing else
 * asks who is in which group: readers look in truth.
 *
 * A push is bound by memory as that of a post is (timelines.c): one line of the inboxes column,
 * which is nearly sequential, and the ends of two arrays somewhere on the heap; all are asked for
 * some members ahead. */
#include "base/check.h"
#include "view/memory/driver.h"

enum { HEADER_AHEAD = 32, TAIL_AHEAD = 14 };

/* ---- delivery ---- */

static bool push_one(struct memory_views *m, uint32_t slot, uint32_t group, uint64_t activity,
                     struct inbox_env *env)
{
    struct inbox *inbox = &m->inboxes[slot];
    bool rose = inbox_raise(inbox, env, group, activity);
    if (!rose && inbox->state == INBOX_DROPPED) /* perhaps just now */
        inbox_note_state(m, slot);
    return rose;
}

static enum err push_message(struct memory_views *m, struct inbox_push *p)
{
    const uint64_t *members = p->members;
    struct inbox *inboxes = m->inboxes;
    struct inbox_env env = {0};
    uint32_t group_slot;
    size_t n = p->n;
    p->changed = 0;
    if (p->activity == 0)
        return ERR_BAD_INPUT;
    enum err e = account_slot(m, p->group, SLOT_GROUP, &group_slot);
    if (e != OK)
        return e;
    check_handles(m, members, n);
    for (size_t i = 0; i < n && i < HEADER_AHEAD; i++)
        __builtin_prefetch(&inboxes[members[i]], 1);
    for (size_t i = 0; i < n && i < TAIL_AHEAD; i++)
        inbox_prefetch(&inboxes[members[i]]);
    for (size_t i = 0; i < n;) {
        uint64_t stripe = members[i] >> STRIPE_BITS;
        latch_lock(&m->latches[stripe]);
        do {
            if (i + HEADER_AHEAD < n)
                __builtin_prefetch(&inboxes[members[i + HEADER_AHEAD]], 1);
            if (i + TAIL_AHEAD < n)
                inbox_prefetch(&inboxes[members[i + TAIL_AHEAD]]);
            uint32_t slot = (uint32_t)members[i];
            p->changed += push_one(m, slot, group_slot, p->activity, &env);
            i++;
        } while (i < n && members[i] >> STRIPE_BITS == stripe);
        latch_unlock(&m->latches[stripe]);
    }
    tally_add(m, &(struct tally){.inboxes = env});
    return OK;
}

static enum err push(struct inboxes *base, struct inbox_push *pushes, size_t n)
{
    enum err e = OK;
    for (size_t i = 0; i < n && e == OK; i++)
        e = push_message(CONTAINER_OF(base, struct memory_views, inboxes_port), &pushes[i]);
    return e;
}

static enum err drop(struct inboxes *base, const uint64_t *members, size_t n)
{
    struct memory_views *m = CONTAINER_OF(base, struct memory_views, inboxes_port);
    struct inbox_env env = {0};
    check_handles(m, members, n);
    for (size_t i = 0; i < n; i++) {
        uint32_t slot = (uint32_t)members[i];
        if (i + HEADER_AHEAD < n)
            __builtin_prefetch(&m->inboxes[members[i + HEADER_AHEAD]], 1);
        person_lock(m, slot);
        inbox_drop(&m->inboxes[slot], &env);
        inbox_note_state(m, slot);
        person_unlock(m, slot);
    }
    tally_add(m, &(struct tally){.inboxes = env});
    return OK;
}

/* A sweep may skip any inbox, so it leaves out one whose drop would spoil a rebuild. */
void drop_inbox_if_unseen(struct memory_views *m, uint32_t slot, uint32_t before, struct tally *t)
{
    if (!flag_get(m->inbox_awake, slot) || atomic_load(&m->seen[slot]) >= before)
        return;
    struct inbox *inbox = &m->inboxes[slot];
    person_lock(m, slot);
    if (inbox->state == INBOX_READY && inbox->builders == 0 && atomic_load(&m->seen[slot]) < before)
        inbox_drop(inbox, &t->inboxes);
    inbox_note_state(m, slot);
    person_unlock(m, slot);
}

/* ---- rebuilding and reading ---- */

/* Truth has them falling, an inbox rising. */
static enum err read_entries(struct memory_views *m, const struct inbox_entry *entries, size_t n,
                             struct inbox *fresh, struct inbox_env *env)
{
    if (n > INBOX_MAX)
        return ERR_CONFLICT;
    if (!inbox_fill(fresh, env, (uint32_t)n))
        return ERR_NO_MEMORY;
    for (size_t i = 0; i < n; i++) {
        CHECK(entries[i].activity > 0 &&
              (i == 0 || entries[i].activity <= entries[i - 1].activity));
        uint32_t slot;
        enum err e = account_slot(m, entries[i].group, SLOT_GROUP, &slot);
        if (e != OK)
            return e;
        atomic_load(&fresh->activities)[n - 1 - i] = entries[i].activity;
        inbox_groups(fresh)[n - 1 - i] = slot;
    }
    return OK;
}

static enum err rebuild(struct inboxes *base, uint64_t account, enum view_rebuild step,
                        const struct inbox_entry *entries, size_t n)
{
    struct memory_views *m = CONTAINER_OF(base, struct memory_views, inboxes_port);
    uint32_t slot = account_find(m, account);
    if (is_lost(m) && (step == VIEW_REBUILD_BEGIN || step == VIEW_REBUILD_ANEW))
        return ERR_CONFLICT;
    if (slot == DIRECTORY_NONE)
        return ERR_NOT_FOUND;
    struct inbox *inbox = &m->inboxes[slot], fresh = {.state = INBOX_DROPPED};
    struct inbox_env env = {0};
    enum err e = OK;
    if (step == VIEW_REBUILD_END) { /* not under the latch: it may make groups known */
        e = is_lost(m) ? ERR_CONFLICT : read_entries(m, entries, n, &fresh, &env);
        if (e != OK)
            step = VIEW_REBUILD_GIVE_UP;
    }
    bool good = true;
    person_lock(m, slot);
    switch (step) {
    case VIEW_REBUILD_BEGIN:
        good = inbox_begin(inbox);
        break;
    case VIEW_REBUILD_ANEW:
        good = inbox_begin_anew(inbox, &env);
        break;
    case VIEW_REBUILD_END:
        good = inbox_end(inbox, &env, &fresh);
        break;
    case VIEW_REBUILD_GIVE_UP:
        good = inbox_give_up(inbox, &env);
        break;
    }
    inbox_note_state(m, slot);
    person_unlock(m, slot);
    inbox_done(&fresh, &env);
    tally_add(m, &(struct tally){.inboxes = env});
    return e != OK ? e : good ? OK : ERR_CONFLICT;
}

static enum err read_page(struct inboxes *base, uint64_t account, uint64_t below,
                          struct inbox_entry *out, size_t max, size_t *n)
{
    struct memory_views *m = CONTAINER_OF(base, struct memory_views, inboxes_port);
    uint32_t slot = account_find(m, account);
    *n = 0;
    if (is_lost(m))
        return ERR_NEEDS_TRUTH;
    if (slot == DIRECTORY_NONE)
        return ERR_NOT_FOUND;
    person_lock(m, slot);
    bool ready = m->inboxes[slot].state == INBOX_READY;
    if (ready)
        *n = inbox_read(&m->inboxes[slot], below, out, max);
    person_unlock(m, slot);
    for (size_t i = 0; i < *n; i++)
        out[i].group = m->ids[out[i].group];
    return ready ? OK : ERR_NEEDS_TRUTH;
}

const struct inboxes_ops memory_inboxes_ops = {
    .push = push, .drop = drop, .rebuild = rebuild, .read = read_page};
