/* Accounts: slots and the columns behind them. A slot's columns are made usable and filled before
 * the slot is counted and the id enters the directory, so whoever can name a slot may touch it. */
#include <stdlib.h>

#include "base/check.h"
#include "view/memory/engine.h"

enum { COLUMN_STRIPED_FROM = 5 };

enum err accounts_init(struct memory_views *m)
{
    static const size_t widths[COUNT_OF(m->columns)] = {
        sizeof *m->ids,    sizeof *m->seen,    sizeof *m->timelines,
        sizeof *m->people, sizeof *m->changes, sizeof *m->latches,
        sizeof *m->awake,  sizeof *m->hidden,  sizeof *m->pulled,
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
    m->latches = m->columns[5].base;
    m->awake = m->columns[6].base;
    m->hidden = m->columns[7].base;
    m->pulled = m->columns[8].base;
    block_pool_init(&m->pool);
    return directory_init(&m->directory, 0) ? OK : ERR_NO_MEMORY;
}

void accounts_done(struct memory_views *m)
{
    int64_t bytes = 0;
    uint32_t count = atomic_load(&m->accounts);
    for (uint32_t slot = 0; slot < count; slot++) {
        struct person *p = &m->people[slot];
        slot_list_done(&p->following, &bytes);
        follower_set_done(&p->followers, &bytes);
        if (p->mutes)
            slot_list_done(p->mutes, &bytes);
        free(p->mutes);
        pull_list_free(pull_of(m, slot));
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

enum err account_slot(struct memory_views *m, uint64_t id, enum timeline_state state,
                      uint32_t *slot)
{
    *slot = directory_find(&m->directory, id);
    if (*slot != DIRECTORY_NONE)
        return OK;
    if (id == 0)
        return ERR_BAD_INPUT;
    enum err e = OK;
    pthread_mutex_lock(&m->create);
    *slot = directory_find(&m->directory, id);
    if (*slot == DIRECTORY_NONE) {
        uint32_t next = atomic_load_explicit(&m->accounts, memory_order_relaxed);
        if (next == ACCOUNTS_MAX || !accounts_extend(m, next + 1)) {
            e = ERR_NO_MEMORY;
        } else {
            m->ids[next] = id;
            m->timelines[next].state = (uint8_t)state;
            flag_set(m->awake, next, state != TIMELINE_DROPPED);
            if (directory_insert(&m->directory, id, next)) {
                atomic_store_explicit(&m->accounts, next + 1, memory_order_release);
                *slot = next;
            } else {
                e = ERR_NO_MEMORY;
            }
        }
    }
    pthread_mutex_unlock(&m->create);
    return e;
}

uint32_t seen_seconds(int64_t ms)
{
    int64_t seconds = ms / 1000;
    return seconds < 0 ? 0 : seconds > UINT32_MAX ? UINT32_MAX : (uint32_t)seconds;
}

/* A visit is never before the start of a walk that is under way, whatever the clock says: it may
 * have been set back, and whoever then seems to have come between the walk's two moments would be
 * passed over by both halves of it. Noted first and checked again after: a walk that begins in
 * between either meets the new time or is seen here. */
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
