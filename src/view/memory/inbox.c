/* Inboxes.
 *
 * The invariant: **every group whose activity was raised in this inbox since it began, and every
 * one that a rebuild found in truth, is stored with the greatest activity it ever had, or was
 * left.** One that began empty (a new account) or was rebuilt is therefore complete. What cannot be
 * stored makes the inbox dropped.
 *
 * Two arrays in the order of activity, not a tree and not a table by group: groups that speak are
 * those that spoke just now, so they are found within a few steps from the end, and moving one to
 * the end moves little. An entry takes twelve bytes, a page is a copy of the end. A group that
 * wakes up after a year costs its members one look through all their groups, a few microseconds for
 * thousands.
 *
 * While it is built an inbox collects from an empty start. A rebuild that read truth before must
 * not bring back a group that the member left meanwhile: so the group is kept with activity 0,
 * below all others, until the end.
 *
 * Drops and rebuilds. An inbox is dropped instead of being pushed to, so a rebuild that has read
 * truth before must not make it ready: it is spoiled. While one of the spoiled rebuilds is under
 * way, the end of one looks like the end of another, so all of them have no result. */
#include "view/memory/inbox.h"

#include <stdlib.h>
#include <string.h>

#include "base/check.h"

enum { ENTRY_BYTES = sizeof(uint64_t) + sizeof(uint32_t), FIRST_BYTES = 48 };

_Static_assert(INBOX_MAX < UINT16_MAX, "counts have 16 bits");

/* The size classes of the allocator, four to a doubling, filled as well as twelve bytes can. */
static uint32_t capacity_for_entries(uint32_t n)
{
    uint32_t bytes = n * ENTRY_BYTES;
    if (bytes <= 2 * FIRST_BYTES)
        return (bytes <= FIRST_BYTES ? FIRST_BYTES : 2 * FIRST_BYTES) / ENTRY_BYTES;
    uint32_t step = (UINT32_C(1) << (31 - __builtin_clz(bytes - 1))) / 4;
    return (bytes + step - 1) / step * step / ENTRY_BYTES;
}

static void forget_all(struct inbox *b, struct inbox_env *env)
{
    env->entries -= inbox_get(b, count);
    env->bytes -= (int64_t)inbox_get(b, capacity) * ENTRY_BYTES;
    free(inbox_get(b, activities));
    inbox_set(b, activities, NULL);
    inbox_set(b, count, 0);
    inbox_set(b, capacity, 0);
}

void inbox_done(struct inbox *b, struct inbox_env *env)
{
    forget_all(b, env);
    *b = (struct inbox){.state = INBOX_DROPPED};
}

void inbox_drop(struct inbox *b, struct inbox_env *env)
{
    forget_all(b, env);
    b->spoiled = b->builders > 0;
    b->state = b->spoiled ? INBOX_BUILDING : INBOX_DROPPED;
}

static bool grow(struct inbox *b, struct inbox_env *env, uint32_t n)
{
    uint32_t capacity = capacity_for_entries(n), count = inbox_get(b, count);
    uint64_t *activities = malloc((size_t)capacity * ENTRY_BYTES), *old = inbox_get(b, activities);
    if (!activities)
        return false;
    if (count > 0) {
        memcpy(activities, old, count * sizeof *activities);
        memcpy(activities + capacity, inbox_groups(b), count * sizeof(uint32_t));
    }
    env->bytes += ((int64_t)capacity - inbox_get(b, capacity)) * ENTRY_BYTES;
    inbox_set(b, activities, activities);
    inbox_set(b, capacity, (uint16_t)capacity);
    free(old);
    return true;
}

bool inbox_fill(struct inbox *b, struct inbox_env *env, uint32_t n)
{
    if (n == 0)
        return true;
    CHECK(n <= INBOX_MAX && inbox_get(b, count) == 0);
    if (inbox_get(b, capacity) < n && !grow(b, env, n))
        return false;
    inbox_set(b, count, (uint16_t)n);
    env->entries += n;
    return true;
}

/* Index of the group, from the latest end; -1: it is not there. Whole runs are compared at once,
 * the compiler makes vectors of them. */
static int find(const struct inbox *b, uint32_t group)
{
    enum { RUN = 16 };
    int left = inbox_get(b, count);
    const uint32_t *groups = left > 0 ? inbox_groups(b) : NULL;
    while (left >= RUN) {
        uint32_t hits = 0;
        for (int i = 1; i <= RUN; i++)
            hits |= groups[left - i] == group;
        if (hits)
            break;
        left -= RUN;
    }
    while (left > 0 && groups[left - 1] != group)
        left--;
    return left - 1;
}

static void close_gap(struct inbox *b, int at, int to)
{
    uint64_t *activities = inbox_get(b, activities);
    uint32_t *groups = inbox_groups(b);
    memmove(activities + at, activities + at + 1, (size_t)(to - at) * sizeof *activities);
    memmove(groups + at, groups + at + 1, (size_t)(to - at) * sizeof *groups);
}

static void put(struct inbox *b, int at, uint32_t group, uint64_t activity)
{
    inbox_get(b, activities)[at] = activity;
    inbox_groups(b)[at] = group;
}

static bool insert(struct inbox *b, struct inbox_env *env, uint32_t group, uint64_t activity)
{
    int count = inbox_get(b, count), at = count;
    if (count == INBOX_MAX ||
        (count == inbox_get(b, capacity) && !grow(b, env, (uint32_t)count + 1))) {
        inbox_drop(b, env);
        return false;
    }
    uint64_t *activities = inbox_get(b, activities);
    uint32_t *groups = inbox_groups(b);
    while (at > 0 && activities[at - 1] > activity)
        at--;
    memmove(activities + at + 1, activities + at, (size_t)(count - at) * sizeof *activities);
    memmove(groups + at + 1, groups + at, (size_t)(count - at) * sizeof *groups);
    put(b, at, group, activity);
    inbox_set(b, count, (uint16_t)(count + 1));
    env->entries++;
    return true;
}

bool inbox_raise_slow(struct inbox *b, struct inbox_env *env, uint32_t group, uint64_t activity)
{
    if (b->state == INBOX_DROPPED)
        return false;
    int at = find(b, group);
    if (at < 0)
        return insert(b, env, group, activity);
    const uint64_t *activities = inbox_get(b, activities);
    if (activities[at] >= activity)
        return false;
    int to = inbox_get(b, count) - 1;
    while (to > at && activities[to] > activity)
        to--;
    close_gap(b, at, to);
    put(b, to, group, activity);
    return true;
}

static bool take_out(struct inbox *b, struct inbox_env *env, uint32_t group)
{
    int at = find(b, group);
    if (at < 0)
        return false;
    int last = inbox_get(b, count) - 1;
    close_gap(b, at, last);
    inbox_set(b, count, (uint16_t)last);
    env->entries--;
    return true;
}

bool inbox_leave(struct inbox *b, struct inbox_env *env, uint32_t group)
{
    bool was_there = take_out(b, env, group);
    if (b->state == INBOX_BUILDING)
        insert(b, env, group, 0);
    return was_there;
}

static void count_builder(struct inbox *b)
{
    if (b->builders < INBOX_BUILDERS_MAX)
        b->builders++;
}

bool inbox_begin(struct inbox *b)
{
    if (b->state == INBOX_READY)
        return false;
    b->state = INBOX_BUILDING;
    count_builder(b);
    return true;
}

bool inbox_begin_anew(struct inbox *b, struct inbox_env *env)
{
    if (b->state != INBOX_READY || b->builders > 0)
        return false;
    inbox_drop(b, env);
    return inbox_begin(b);
}

/* One rebuild less is under way. When it was the last and none had a result, nothing is left. */
static void end_builder(struct inbox *b, struct inbox_env *env)
{
    if (b->builders > 0 && b->builders < INBOX_BUILDERS_MAX)
        b->builders--;
    if (b->builders == 0 && b->state == INBOX_BUILDING)
        inbox_drop(b, env);
}

/* Puts the collected entries on top of those read from truth. */
static void install(struct inbox *b, struct inbox_env *env, struct inbox *fresh)
{
    uint16_t collected = inbox_get(b, count);
    const uint64_t *activities = inbox_get(b, activities);
    const uint32_t *groups = collected > 0 ? inbox_groups(b) : NULL;
    fresh->state = INBOX_READY;
    fresh->builders = b->builders;
    for (int i = 0; i < collected && fresh->state == INBOX_READY; i++) {
        if (activities[i] > 0)
            inbox_raise(fresh, env, groups[i], activities[i]);
        else
            take_out(fresh, env, groups[i]);
    }
    forget_all(b, env);
    inbox_set(b, activities, inbox_get(fresh, activities));
    inbox_set(b, count, inbox_get(fresh, count));
    inbox_set(b, capacity, inbox_get(fresh, capacity));
    b->state = fresh->state; /* more than fit: dropped */
    b->spoiled = fresh->spoiled;
    *fresh = (struct inbox){.state = INBOX_DROPPED};
}

bool inbox_end(struct inbox *b, struct inbox_env *env, struct inbox *fresh)
{
    bool counts = b->state == INBOX_READY;
    if (b->state == INBOX_BUILDING && !b->spoiled) {
        install(b, env, fresh);
        counts = b->state == INBOX_READY;
    }
    inbox_done(fresh, env);
    end_builder(b, env);
    return counts;
}

bool inbox_give_up(struct inbox *b, struct inbox_env *env)
{
    if (b->state == INBOX_DROPPED)
        return false;
    end_builder(b, env);
    return true;
}

size_t inbox_read(const struct inbox *b, uint64_t below, struct inbox_entry *out, size_t max)
{
    size_t low = 0, high = inbox_get(b, count), n = 0;
    const uint64_t *activities = inbox_get(b, activities);
    if (high == 0)
        return 0;
    const uint32_t *groups = inbox_groups(b);
    if (activities[high - 1] < below)
        low = high;
    while (low < high) {
        size_t middle = (low + high) / 2;
        if (activities[middle] < below)
            low = middle + 1;
        else
            high = middle;
    }
    for (; low > 0 && n < max; low--)
        out[n++] = (struct inbox_entry){groups[low - 1], activities[low - 1]};
    return n;
}
