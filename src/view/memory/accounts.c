/* Accounts and groups: slots and the columns behind them. A slot's columns are made usable and
 * filled before the slot is counted and the id enters the directory, so a thread that has a slot
 * may use it. */
#include <stdlib.h>

#include "base/check.h"
#include "view/memory/driver.h"

enum { COLUMN_STRIPED_FROM = 6 };

enum err accounts_init(struct memory_views *m)
{
    static const size_t widths[COUNT_OF(m->columns)] = {
        sizeof *m->ids,       sizeof *m->seen,    sizeof *m->timelines,   sizeof *m->people,
        sizeof *m->changes,   sizeof *m->inboxes, sizeof *m->latches,     sizeof *m->awake,
        sizeof *m->hidden,    sizeof *m->pulled,  sizeof *m->inbox_awake, sizeof *m->grouped,
        sizeof *m->listening,
    };
    for (size_t i = 0; i < COUNT_OF(m->columns); i++) {
        size_t max = i < COLUMN_STRIPED_FROM ? ACCOUNTS_MAX : ACCOUNTS_MAX / STRIPE_SLOTS;
        if (!column_init(&m->columns[i], widths[i], max))
            return ERR_NO_MEMORY;
    }
    m->ids = m->columns[0].base;
    m->seen = m->columns[1].base;
    m->timelines = m->columns[2].base;
    m->people = m->columns[3].base;
    m->changes = m->columns[4].base;
    m->inboxes = m->columns[5].base;
    m->latches = m->columns[6].base;
    m->awake = m->columns[7].base;
    m->hidden = m->columns[8].base;
    m->pulled = m->columns[9].base;
    m->inbox_awake = m->columns[10].base;
    m->grouped = m->columns[11].base;
    m->listening = m->columns[12].base;
    block_pool_init(&m->pool);
    return directory_init(&m->directory, 0) ? OK : ERR_NO_MEMORY;
}

static void forget_edges(struct memory_views *m, uint32_t slot, int64_t *bytes)
{
    struct person *p = &m->people[slot];
    slot_list_done(&p->following, bytes);
    follower_set_done(&p->followers, bytes);
    if (p->mutes) {
        slot_list_done(p->mutes, bytes);
        *bytes -= (int64_t)sizeof *p->mutes;
    }
    free(p->mutes);
    p->mutes = NULL;
}

/* Lists are read without a latch: they stay, empty. */
static void empty_pull_list(struct memory_views *m, uint32_t slot)
{
    uint64_t id, floor;
    struct pull_list *l = pull_of(m, slot);
    while (l && pull_list_read(l, UINT64_MAX, 0, &id, 1, &floor) == 1)
        pull_list_remove(l, id);
}

/* A change that is applied meanwhile may reach one side of an edge only: after a clear everything
 * is loaded again. */
void accounts_clear(struct memory_views *m)
{
    uint32_t count = atomic_load_explicit(&m->accounts, memory_order_acquire);
    struct tally t = {.follows = -total_of(m, follows),
                      .groups = -total_of(m, groups),
                      .memberships = -total_of(m, memberships)};
    for (uint32_t slot = 0; slot < count; slot++) {
        struct timeline_env env = timeline_env_of(m, slot);
        person_lock(m, slot);
        forget_edges(m, slot, &t.bytes);
        timeline_drop(&m->timelines[slot], &env);
        inbox_drop(&m->inboxes[slot], &t.inboxes);
        inbox_note_state(m, slot);
        empty_pull_list(m, slot);
        flag_set(m->awake, slot, false);
        flag_set(m->hidden, slot, false);
        m->changes[slot]++;
        person_unlock(m, slot);
        t.entries += env.entries;
    }
    tally_add(m, &t);
}

void accounts_done(struct memory_views *m)
{
    int64_t bytes = 0;
    struct inbox_env inboxes = {0};
    uint32_t count = atomic_load(&m->accounts);
    for (uint32_t slot = 0; slot < count; slot++) {
        forget_edges(m, slot, &bytes);
        pull_list_free(pull_of(m, slot));
        inbox_done(&m->inboxes[slot], &inboxes);
    }
    for (size_t i = 0; i < COUNT_OF(m->columns); i++)
        column_done(&m->columns[i]);
    directory_done(&m->directory);
    block_pool_done(&m->pool);
}

bool accounts_extend(struct memory_views *m, uint32_t count)
{
    for (size_t i = 0; i < COUNT_OF(m->columns); i++) {
        size_t need = i < COLUMN_STRIPED_FROM ? count : (size_t)stripe_of(count - 1) + 1;
        if (!column_extend(&m->columns[i], need))
            return false;
    }
    return true;
}

uint32_t account_find(struct memory_views *m, uint64_t id)
{
    uint32_t slot = directory_find(&m->directory, id);
    return slot != DIRECTORY_NONE && flag_get(m->grouped, slot) ? DIRECTORY_NONE : slot;
}

static void prepare(struct memory_views *m, uint32_t slot, uint64_t id, enum slot_use use)
{
    bool empty = use == SLOT_EMPTY;
    m->ids[slot] = id;
    m->timelines[slot].state = empty ? TIMELINE_READY : TIMELINE_DROPPED;
    m->inboxes[slot].state = empty ? INBOX_READY : INBOX_DROPPED;
    flag_set(m->awake, slot, empty);
    flag_set(m->inbox_awake, slot, empty);
    flag_set(m->grouped, slot, use == SLOT_GROUP);
}

/* `create` is held. DIRECTORY_NONE: no memory. */
static uint32_t create(struct memory_views *m, uint64_t id, enum slot_use use)
{
    uint32_t next = atomic_load_explicit(&m->accounts, memory_order_relaxed);
    if (next == ACCOUNTS_MAX || !accounts_extend(m, next + 1))
        return DIRECTORY_NONE;
    prepare(m, next, id, use);
    if (!directory_insert(&m->directory, id, next))
        return DIRECTORY_NONE;
    atomic_store_explicit(&m->accounts, next + 1, memory_order_release);
    return next;
}

enum err account_slot(struct memory_views *m, uint64_t id, enum slot_use use, uint32_t *slot)
{
    *slot = directory_find(&m->directory, id);
    if (*slot == DIRECTORY_NONE && id != 0) {
        pthread_mutex_lock(&m->create);
        *slot = directory_find(&m->directory, id);
        if (*slot == DIRECTORY_NONE)
            *slot = create(m, id, use);
        pthread_mutex_unlock(&m->create);
    }
    if (*slot == DIRECTORY_NONE)
        return id == 0 ? ERR_BAD_INPUT : ERR_NO_MEMORY;
    return flag_get(m->grouped, *slot) == (use == SLOT_GROUP) ? OK : ERR_BAD_INPUT;
}

/* A visit is never before the start of a walk that is under way, whatever the clock says: the clock
 * may have been set back, and both halves of the walk would pass over an account that seems to have
 * come between its two moments. Noted first and checked again after: a walk that begins in between
 * either meets the new time or is seen here. */
void account_seen(struct memory_views *m, uint32_t slot, int64_t seen_ms)
{
    uint32_t seconds = seen_seconds(seen_ms);
    uint32_t walked = atomic_load(&m->walked_at);
    do {
        seconds = walked > seconds ? walked : seconds;
        uint32_t before = atomic_load(&m->seen[slot]);
        while (before < seconds &&
               !atomic_compare_exchange_weak(&m->seen[slot], &before, seconds)) {
        }
        walked = atomic_load(&m->walked_at);
    } while (walked > seconds);
}

void check_handles(struct memory_views *m, const uint64_t *members, size_t n)
{
    uint64_t all = atomic_load_explicit(&m->accounts, memory_order_acquire);
    uint64_t greatest = 0;
    for (size_t i = 0; i < n; i++)
        greatest = members[i] > greatest ? members[i] : greatest;
    CHECK(n == 0 || greatest < all);
}
