/* Walks that continue on other nodes, and work items whose delivery failed.
 *
 * Workers of other nodes send reports, which come late, in another order, twice or never, and a
 * work item without a report for too long is with two workers at a time. So a work item knows
 * whether, and where, its walk was handed on. When its page is delivered and the walk was not
 * handed on at that very spot (the report was lost, was overtaken, or another worker's page ended
 * elsewhere), the work item itself goes on there: at worst a few members are met twice, never is
 * one left out.
 *
 * A work item that is not RUNNING any more has a report from another worker; later ones are
 * ignored. */
#include "pipe/inflight_lists.h"

void inflight_clear(struct inflight *f)
{
    uint32_t uses = f->uses_from;
    for (size_t i = 0; i < f->slot_chunks * INFLIGHT_CHUNK; i++) {
        uint32_t of_slot = inflight_slot(f, (uint32_t)i)->uses;
        uses = of_slot > uses ? of_slot : uses;
    }
    const struct rule *rules = f->rules;
    size_t rule_count = f->rule_count, max = f->max;
    int64_t patience = f->outside_patience;
    inflight_done(f);
    inflight_init(f, rules, rule_count, max);
    f->outside_patience = patience;
    f->uses_from = uses;
}

bool inflight_is_running(struct inflight *f, const struct bus_message *m)
{
    uint32_t item;
    pthread_mutex_lock(&f->lock);
    bool out = inflight_find_running(f, m, &item) != NULL;
    pthread_mutex_unlock(&f->lock);
    return out;
}

/* Where order matters one work item is at work at a time; a retry is one delivery in the delivery
 * store.
 */
static bool may_be_handed_on(struct inflight *f, const struct work_item *u)
{
    const struct inflight_slot *s = inflight_slot(f, u->slot);
    return !u->handed_on && u->until == 0 && s->kind != SLOT_RETRY && s->kind != SLOT_FORCED &&
           !lane_is_ordered(f->rules[u->rule].lane) && !atomic_load(&s->failing);
}

/* The rest of a walk is a work item of its own: it brings no work that was not expected of `u`. */
static void continue_in(struct inflight *f, struct work_item *u, struct work_item *rest)
{
    struct inflight_cell *cell = &f->cells[u->cell];
    cell->begun--;
    if (u->expected == 0)
        return;
    cell->batches--;
    cell->entered--;
    rest->expected = u->expected - 1;
    u->expected = 0;
}

bool inflight_hand_on(struct inflight *f, const struct bus_message *m,
                      const struct audience_cursor *cursor, int64_t now_us)
{
    uint32_t item;
    bool added = false;
    pthread_mutex_lock(&f->lock);
    struct work_item *u = inflight_find_running(f, m, &item);
    if (u && may_be_handed_on(f, u)) {
        u->handed_on = true;
        u->next = cursor->after;
        added = inflight_find(f, m, cursor->after) == INFLIGHT_NONE;
    }
    if (added) {
        uint32_t rest = inflight_add_item(f, u->slot, u->rule, (enum lane)u->lane, cursor, 0);
        continue_in(f, u, item_at(f, rest));
        item_set_state(f, item_at(f, rest), ITEM_RUNNING);
        item_at(f, rest)->sent_us = now_us;
    }
    pthread_mutex_unlock(&f->lock);
    return added;
}

bool inflight_go_on(struct inflight *f, const struct bus_message *m,
                    const struct audience_cursor *cursor, const struct inflight_totals *add,
                    int64_t now_us)
{
    uint32_t item;
    pthread_mutex_lock(&f->lock);
    struct work_item *u = inflight_find_running(f, m, &item);
    bool goes_on = u && !(u->handed_on && u->next == cursor->after);
    if (goes_on) {
        if (u->handed_on && u->until == 0)
            u->until = u->next;
        inflight_move_item(f, item, cursor, add, now_us);
    }
    pthread_mutex_unlock(&f->lock);
    return goes_on;
}

static uint64_t until_of(const struct work_item *u)
{
    return u->handed_on ? u->next : u->until;
}

uint64_t inflight_until(struct inflight *f, const struct bus_message *m)
{
    pthread_mutex_lock(&f->lock);
    uint32_t item = inflight_find(f, m, m->cursor.after);
    uint64_t until = item == INFLIGHT_NONE ? m->until : until_of(item_at(f, item));
    pthread_mutex_unlock(&f->lock);
    return until;
}

/* ---- failing ---- */

bool inflight_fail(struct inflight *f, const struct bus_message *m, struct inflight_failure *out)
{
    uint32_t item;
    pthread_mutex_lock(&f->lock);
    struct work_item *u = inflight_find_running(f, m, &item);
    if (u) {
        struct inflight_slot *s = inflight_slot(f, u->slot);
        const struct inflight_totals *t = &s->totals;
        item_set_state(f, u, ITEM_FAILED);
        atomic_store(&s->failing, true);
        *out = (struct inflight_failure){.tries = s->tries,
                                         .until = until_of(u),
                                         .moved = t->members || t->delivered || t->repeated ||
                                                  t->skipped};
    }
    pthread_mutex_unlock(&f->lock);
    return u != NULL;
}

void inflight_unfail(struct inflight *f, const struct bus_message *m)
{
    pthread_mutex_lock(&f->lock);
    uint32_t item = inflight_find(f, m, m->cursor.after);
    if (item != INFLIGHT_NONE && item_at(f, item)->state == ITEM_FAILED) {
        item_set_state(f, item_at(f, item), ITEM_RUNNING);
        item_at(f, item)->in_hand = false;
    }
    pthread_mutex_unlock(&f->lock);
}
