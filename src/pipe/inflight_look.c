/* What the inflight set knows, for others to read: the watermark, counts, one event. */
#include "base/check.h"
#include "pipe/inflight_lists.h"

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
        out->cells[i].entered = cell->entered;
        uint32_t first = cell->items.first;
        out->cells[i].oldest =
            first == INFLIGHT_NONE ? 0 : inflight_slot(f, item_at(f, first)->slot)->event.id;
    }
    pthread_mutex_unlock(&f->lock);
}

bool inflight_has_ready(struct inflight *f)
{
    bool ready = false;
    pthread_mutex_lock(&f->lock);
    for (int lane = 0; lane < LANE_COUNT; lane++)
        ready |= f->ready[lane].first != INFLIGHT_NONE || f->fresh[lane].first != INFLIGHT_NONE;
    pthread_mutex_unlock(&f->lock);
    return ready;
}

/* The list is by rising id, and whoever asks is one operator: a walk is good
 * enough. */
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
