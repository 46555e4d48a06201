/* The inflight set's pools and lists: slots and work items in chunks that never move, linked by
 * index. All of it is used under the inflight set's lock, by the files of the inflight set alone.
 */
#pragma once

#include <stdlib.h>

#include "base/check.h"
#include "pipe/inflight.h"

static inline struct work_item *item_at(struct inflight *f, uint32_t item)
{
    return &f->items[item / INFLIGHT_CHUNK][item % INFLIGHT_CHUNK];
}

/* Every change of a state goes through here: what runs in a lane is counted by it. */
static inline uint64_t item_weight(const struct inflight *f, const struct work_item *u)
{
    const struct rule *rule = u->rule == RULE_NONE ? NULL : &f->rules[u->rule];
    return rule && lane_rows[u->lane].pool == POOL_OUTSIDE && rule_walks(rule) ? rule->batch : 1;
}

static inline void item_set_state(struct inflight *f, struct work_item *u, enum item_state state)
{
    if (u->state == ITEM_RUNNING)
        f->running[u->lane] -= item_weight(f, u);
    if (state == ITEM_RUNNING)
        f->running[u->lane] += item_weight(f, u);
    u->state = (uint8_t)state;
}

/* ---- getting and freeing, under the lock ---- */

static inline uint32_t get_slot(struct inflight *f)
{
    if (f->free_slot == INFLIGHT_NONE) {
        CHECK(f->slot_chunks < f->slot_chunks_max);
        uint32_t first = (uint32_t)(f->slot_chunks * INFLIGHT_CHUNK);
        struct inflight_slot *chunk = calloc(INFLIGHT_CHUNK, sizeof *chunk);
        CHECK(chunk);
        f->slots[f->slot_chunks++] = chunk;
        for (uint32_t i = INFLIGHT_CHUNK; i-- > 0;) {
            chunk[i].all.next = f->free_slot;
            chunk[i].uses = f->uses_from;
            f->free_slot = first + i;
        }
    }
    uint32_t slot = f->free_slot;
    f->free_slot = inflight_slot(f, slot)->all.next;
    inflight_slot(f, slot)->uses++;
    return slot;
}

static inline uint32_t get_item(struct inflight *f)
{
    if (f->free_item == INFLIGHT_NONE) {
        CHECK(f->item_chunks < f->item_chunks_max);
        uint32_t first = (uint32_t)(f->item_chunks * INFLIGHT_CHUNK);
        struct work_item *chunk = calloc(INFLIGHT_CHUNK, sizeof *chunk);
        CHECK(chunk);
        f->items[f->item_chunks++] = chunk;
        for (uint32_t i = INFLIGHT_CHUNK; i-- > 0;) {
            chunk[i].sibling = f->free_item;
            f->free_item = first + i;
        }
    }
    uint32_t item = f->free_item;
    f->free_item = item_at(f, item)->sibling;
    return item;
}

/* ---- lists, under the lock ---- */

/* Through which links a list goes. Constant in every call, so the choice costs nothing. */
enum chain { BY_SLOT, BY_CELL, BY_QUEUE };

static inline struct inflight_links *links_at(struct inflight *f, enum chain chain, uint32_t at)
{
    if (chain == BY_SLOT)
        return &inflight_slot(f, at)->all;
    return chain == BY_CELL ? &item_at(f, at)->in_cell : &item_at(f, at)->queue;
}

/* Behind `previous`; INFLIGHT_NONE: first. */
static inline void insert_after(struct inflight *f, enum chain chain, struct inflight_list *list,
                                uint32_t previous, uint32_t at)
{
    uint32_t next = previous == INFLIGHT_NONE ? list->first : links_at(f, chain, previous)->next;
    *links_at(f, chain, at) = (struct inflight_links){next, previous};
    *(previous == INFLIGHT_NONE ? &list->first : &links_at(f, chain, previous)->next) = at;
    *(next == INFLIGHT_NONE ? &list->last : &links_at(f, chain, next)->previous) = at;
}

/* Returns what it was given; INFLIGHT_NONE: the list is empty. */
static inline uint32_t take_out(struct inflight *f, enum chain chain, struct inflight_list *list,
                                uint32_t at)
{
    if (at == INFLIGHT_NONE)
        return at;
    struct inflight_links l = *links_at(f, chain, at);
    *(l.previous == INFLIGHT_NONE ? &list->first : &links_at(f, chain, l.previous)->next) = l.next;
    *(l.next == INFLIGHT_NONE ? &list->last : &links_at(f, chain, l.next)->previous) = l.previous;
    return at;
}

static inline void append_slot(struct inflight *f, struct inflight_list *list, uint32_t slot)
{
    insert_after(f, BY_SLOT, list, list->last, slot);
}

static inline uint64_t id_of(struct inflight *f, uint32_t item)
{
    return inflight_slot(f, item_at(f, item)->slot)->event.id;
}

/* By rising id; from the tail, where a new one almost always belongs. */
static inline void link_in_cell(struct inflight *f, uint32_t item)
{
    struct inflight_list *list = &f->cells[item_at(f, item)->cell].items;
    uint32_t previous = list->last;
    while (previous != INFLIGHT_NONE && id_of(f, previous) > id_of(f, item))
        previous = item_at(f, previous)->in_cell.previous;
    insert_after(f, BY_CELL, list, previous, item);
}

static inline void unlink_in_cell(struct inflight *f, uint32_t item)
{
    take_out(f, BY_CELL, &f->cells[item_at(f, item)->cell].items, item);
}

static inline void push_back(struct inflight *f, struct inflight_list *queue, uint32_t item)
{
    insert_after(f, BY_QUEUE, queue, queue->last, item);
}

static inline void push_front(struct inflight *f, struct inflight_list *queue, uint32_t item)
{
    insert_after(f, BY_QUEUE, queue, INFLIGHT_NONE, item);
}

static inline uint32_t pop_front(struct inflight *f, struct inflight_list *queue)
{
    return take_out(f, BY_QUEUE, queue, queue->first);
}

static inline uint32_t pop_back(struct inflight *f, struct inflight_list *queue)
{
    return take_out(f, BY_QUEUE, queue, queue->last);
}

/* ---- of one file for the others, under the lock ---- */

/* inflight.c */
uint32_t inflight_add_item(struct inflight *f, uint32_t slot, uint16_t rule, enum lane lane,
                           const struct audience_cursor *cursor, uint64_t until);
void inflight_move_item(struct inflight *f, uint32_t item, const struct audience_cursor *cursor,
                        const struct inflight_totals *add, int64_t now_us);

/* inflight_ready.c */
void inflight_make_ready(struct inflight *f, uint32_t item);
void inflight_block_item(struct inflight *f, uint32_t item);
/* The work item with that name, or INFLIGHT_NONE. */
uint32_t inflight_find_item(struct inflight *f, uint64_t slot, uint64_t event, uint16_t rule,
                            unsigned part, uint64_t after);
/* The one that a message stands for; also by any other place in its walk. */
uint32_t inflight_find(struct inflight *f, const struct bus_message *m, uint64_t after);
/* The one that a message stands for, if it is RUNNING, or NULL. */
struct work_item *inflight_find_running(struct inflight *f, const struct bus_message *m,
                                        uint32_t *item);

/* inflight_keys.c */
bool inflight_is_ordered(const struct inflight *f, const struct work_item *u);
/* Decides what a new work item may do. */
void inflight_admit(struct inflight *f, uint32_t item);
/* A work item leaves: what its key does next. True: another one is ready now. */
bool inflight_pass_on(struct inflight *f, uint32_t item, enum exit_how how);
/* Is another work item of the retry's key at work? */
bool inflight_key_is_busy(struct inflight *f, const struct out_of_band_event *a);
