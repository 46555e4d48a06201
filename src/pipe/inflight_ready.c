/* The queues of the inflight set: what is READY for each lane and how the relay takes it, what is
 * with workers and for how long, what is BLOCKED and how the recorder takes it; how a message finds
 * its work item; and what others may know: the watermark, counts, one event.
 *
 * A work item is in exactly one queue when it is READY (its lane's), QUEUED (its key's) or BLOCKED
 * and not yet given to the recorder. */
#include "pipe/inflight_lists.h"

enum {
    FOUND_EVERY = 4,   /* turns of a lane, one for what was found in the table */
    MANY_FRESH = 1024, /* work items of a lane, from which the newest have their turns, too */
    YOUNG_US = 1000 * 1000,
};

void inflight_make_ready(struct inflight *f, uint32_t item)
{
    struct work_item *u = item_at(f, item);
    bool fresh = inflight_slot(f, u->slot)->fresh;
    item_set_state(f, u, ITEM_READY);
    push_back(f, fresh ? &f->fresh[u->lane] : &f->ready[u->lane], item);
    f->fresh_count[u->lane] += fresh;
}

void inflight_block_item(struct inflight *f, uint32_t item)
{
    item_set_state(f, item_at(f, item), ITEM_BLOCKED);
    push_back(f, &f->blocked, item);
}

static void write_message(struct inflight *f, const struct work_item *u, struct bus_message *out)
{
    const struct inflight_slot *s = inflight_slot(f, u->slot);
    *out = (struct bus_message){.event = s->event,
                                .rule = u->rule,
                                .lane = u->lane,
                                .tries = s->tries,
                                .cursor = u->cursor,
                                .until = u->until,
                                .kind = s->kind,
                                .slot = (uint64_t)s->uses << 32 | u->slot,
                                .owner = s->owner,
                                .replay = s->replay,
                                .term = f->term};
}

/* The work item with that name, or INFLIGHT_NONE. */
uint32_t inflight_find_item(struct inflight *f, uint64_t slot, uint64_t event, uint16_t rule,
                            unsigned part, uint64_t after)
{
    uint32_t place = (uint32_t)slot;
    if (place >= f->slot_chunks * INFLIGHT_CHUNK)
        return INFLIGHT_NONE;
    const struct inflight_slot *s = inflight_slot(f, place);
    if (s->item_count == 0 || s->uses != slot >> 32 || s->event.id != event)
        return INFLIGHT_NONE;
    uint32_t item = s->first_item;
    while (item != INFLIGHT_NONE) {
        const struct work_item *u = item_at(f, item);
        if (u->rule == rule && (unsigned)u->cursor.part == part && u->cursor.after == after)
            break;
        item = u->sibling;
    }
    return item;
}

uint32_t inflight_find(struct inflight *f, const struct bus_message *m, uint64_t after)
{
    return inflight_find_item(f, m->slot, m->event.id, m->rule, (unsigned)m->cursor.part, after);
}

struct work_item *inflight_find_running(struct inflight *f, const struct bus_message *m,
                                        uint32_t *item)
{
    *item = inflight_find(f, m, m->cursor.after);
    struct work_item *u = *item == INFLIGHT_NONE ? NULL : item_at(f, *item);
    return u && u->state == ITEM_RUNNING ? u : NULL;
}

static bool is_young(struct inflight *f, uint32_t item, int64_t now_us)
{
    return inflight_slot(f, item_at(f, item)->slot)->started_us > now_us - YOUNG_US;
}

static uint32_t next_ready(struct inflight *f, enum lane lane, int64_t now_us)
{
    struct inflight_list *fresh = &f->fresh[lane], *found = &f->ready[lane];
    uint64_t turn = f->turn++;
    if (fresh->first == INFLIGHT_NONE ||
        (found->first != INFLIGHT_NONE && turn % FOUND_EVERY == FOUND_EVERY - 1))
        return pop_front(f, found);
    bool newest =
        f->fresh_count[lane] > MANY_FRESH && turn % 2 == 0 && is_young(f, fresh->last, now_us);
    f->fresh_count[lane]--;
    return newest ? pop_back(f, fresh) : pop_front(f, fresh);
}

static void push_ready_front(struct inflight *f, uint32_t item)
{
    struct work_item *u = item_at(f, item);
    bool fresh = inflight_slot(f, u->slot)->fresh;
    item_set_state(f, u, ITEM_READY);
    push_front(f, fresh ? &f->fresh[u->lane] : &f->ready[u->lane], item);
    f->fresh_count[u->lane] += fresh;
}

bool inflight_take_ready(struct inflight *f, enum lane lane, int64_t now_us, uint64_t at_a_time,
                         struct bus_message *out)
{
    pthread_mutex_lock(&f->lock);
    uint32_t item = next_ready(f, lane, now_us);
    if (item != INFLIGHT_NONE && f->running[lane] > 0 &&
        f->running[lane] + item_weight(f, item_at(f, item)) > at_a_time) {
        push_ready_front(f, item);
        item = INFLIGHT_NONE;
    }
    if (item != INFLIGHT_NONE) {
        struct work_item *u = item_at(f, item);
        item_set_state(f, u, ITEM_RUNNING);
        u->sent_us = now_us;
        write_message(f, u, out);
    }
    pthread_mutex_unlock(&f->lock);
    return item != INFLIGHT_NONE;
}

void inflight_give_back(struct inflight *f, const struct bus_message *m)
{
    uint32_t item;
    pthread_mutex_lock(&f->lock);
    struct work_item *u = inflight_find_running(f, m, &item);
    if (u) {
        u->in_hand = false;
        push_ready_front(f, item);
    }
    pthread_mutex_unlock(&f->lock);
}

static size_t overdue_of(struct inflight *f, uint32_t slot, int64_t before_us, int64_t now_us,
                         struct bus_message *out, size_t max)
{
    size_t n = 0;
    for (uint32_t item = inflight_slot(f, slot)->first_item; item != INFLIGHT_NONE && n < max;
         item = item_at(f, item)->sibling) {
        struct work_item *u = item_at(f, item);
        bool outside = u->rule != RULE_NONE && f->rules[u->rule].effect == EFFECT_OUTSIDE;
        int64_t patience_us = (now_us - before_us) * (outside ? f->outside_patience : 1);
        if (u->state != ITEM_RUNNING || u->in_hand || u->sent_us >= now_us - patience_us)
            continue;
        u->sent_us = now_us;
        write_message(f, u, &out[n++]);
    }
    return n;
}

size_t inflight_take_overdue(struct inflight *f, int64_t before_us, int64_t now_us,
                             struct bus_message *out, size_t max)
{
    enum { LOOK_AT = 4096 };
    size_t n = 0;
    pthread_mutex_lock(&f->lock);
    const uint32_t firsts[] = {f->out_of_band_slots.first, f->all.first, f->ahead.first};
    for (size_t list = 0; list < COUNT_OF(firsts); list++) {
        uint32_t slot = firsts[list];
        for (int looked = 0; slot != INFLIGHT_NONE && looked < LOOK_AT && n < max; looked++) {
            n += overdue_of(f, slot, before_us, now_us, out + n, max - n);
            slot = inflight_slot(f, slot)->all.next;
        }
    }
    pthread_mutex_unlock(&f->lock);
    return n;
}

bool inflight_take_up(struct inflight *f, const struct bus_message *m)
{
    uint32_t item;
    pthread_mutex_lock(&f->lock);
    struct work_item *u = inflight_find_running(f, m, &item);
    bool taken = u && !u->in_hand;
    if (taken)
        u->in_hand = true;
    pthread_mutex_unlock(&f->lock);
    return taken;
}

void inflight_put_down(struct inflight *f, const struct bus_message *m)
{
    pthread_mutex_lock(&f->lock);
    uint32_t item = inflight_find(f, m, m->cursor.after);
    if (item != INFLIGHT_NONE)
        item_at(f, item)->in_hand = false;
    pthread_mutex_unlock(&f->lock);
}

size_t inflight_take_blocked(struct inflight *f, struct bus_message *out, size_t max)
{
    size_t n = 0;
    pthread_mutex_lock(&f->lock);
    for (uint32_t item; n < max && (item = pop_front(f, &f->blocked)) != INFLIGHT_NONE; n++)
        write_message(f, item_at(f, item), &out[n]);
    pthread_mutex_unlock(&f->lock);
    return n;
}

bool inflight_has_blocked(struct inflight *f)
{
    pthread_mutex_lock(&f->lock);
    bool holds = f->blocked.first != INFLIGHT_NONE;
    pthread_mutex_unlock(&f->lock);
    return holds;
}

size_t inflight_block_ready(struct inflight *f, enum lane lane, size_t max)
{
    size_t n = 0;
    CHECK(!lane_is_ordered(lane));
    pthread_mutex_lock(&f->lock);
    for (; n < max; n++) {
        bool fresh = f->ready[lane].first == INFLIGHT_NONE;
        uint32_t item = pop_front(f, fresh ? &f->fresh[lane] : &f->ready[lane]);
        if (item == INFLIGHT_NONE)
            break;
        f->fresh_count[lane] -= fresh;
        inflight_block_item(f, item);
    }
    pthread_mutex_unlock(&f->lock);
    return n;
}

/* ---- for others to read ---- */

uint64_t inflight_running(struct inflight *f, enum lane lane)
{
    pthread_mutex_lock(&f->lock);
    uint64_t n = f->running[lane];
    pthread_mutex_unlock(&f->lock);
    return n;
}

uint64_t inflight_through(struct inflight *f)
{
    pthread_mutex_lock(&f->lock);
    uint64_t through = f->passed;
    if (f->all.first != INFLIGHT_NONE)
        through = inflight_slot(f, f->all.first)->event.id - 1;
    pthread_mutex_unlock(&f->lock);
    return through;
}

void inflight_count(struct inflight *f, struct inflight_counts *out)
{
    pthread_mutex_lock(&f->lock);
    out->passed = f->passed;
    out->ahead_after = f->ahead_after;
    out->ahead_passed = f->ahead_passed;
    out->undone = f->undone;
    out->done = f->done;
    out->expanded = f->expanded;
    out->out_of_band = f->out_of_band;
    out->blocked_keys = f->order.blocked;
    out->oldest = f->all.first == INFLIGHT_NONE ? 0 : inflight_slot(f, f->all.first)->event.id;
    out->cell_count = f->cell_count;
    for (size_t i = 0; i < f->cell_count; i++) {
        const struct inflight_cell *cell = &f->cells[i];
        out->cells[i].rule = cell->rule;
        out->cells[i].lane = cell->lane;
        out->cells[i].count = cell->count;
        out->cells[i].batches = cell->batches;
        out->cells[i].entered = cell->entered;
        out->cells[i].begun = cell->begun;
        uint32_t first = cell->items.first;
        out->cells[i].oldest =
            first == INFLIGHT_NONE ? 0 : inflight_slot(f, item_at(f, first)->slot)->event.id;
    }
    pthread_mutex_unlock(&f->lock);
}

/* The list is by rising id, and one operator asks: a walk is good enough. */
bool inflight_look(struct inflight *f, uint64_t event,
                   void (*visit)(void *ctx, const struct inflight_slot *s,
                                 const struct work_item *u),
                   void *ctx)
{
    pthread_mutex_lock(&f->lock);
    uint32_t slot = f->all.first;
    while (slot != INFLIGHT_NONE && inflight_slot(f, slot)->event.id < event)
        slot = inflight_slot(f, slot)->all.next;
    if (slot == INFLIGHT_NONE)
        slot = f->ahead.first;
    while (slot != INFLIGHT_NONE && inflight_slot(f, slot)->event.id < event)
        slot = inflight_slot(f, slot)->all.next;
    bool found = slot != INFLIGHT_NONE && inflight_slot(f, slot)->event.id == event;
    if (found) {
        const struct inflight_slot *s = inflight_slot(f, slot);
        for (uint32_t item = s->first_item; item != INFLIGHT_NONE; item = item_at(f, item)->sibling)
            visit(ctx, s, item_at(f, item));
    }
    pthread_mutex_unlock(&f->lock);
    return found;
}
