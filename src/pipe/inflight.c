/* Slots and work items in chunks that never move, so that a worker may keep an
 * index; lists through them.
 *
 * Live slots are linked by rising id, and the live work items of each cell (rule ×
 * lane) as well: the oldest are the heads, so the watermark and every cell's age are
 * read in O(1). Beginning appends and leaving unlinks, both O(1), in any order.
 * Memory follows what is undone, not how far the oldest undone event lies back.
 * Ids rise in the order in which the relay takes events; a large fan-out that
 * enters further lanes is put in its place from the tail, past the few that
 * overtook it. What is out of band is counted in its cells and not linked there:
 * its ids are old, and its age is known from the delivery store.
 *
 * Invariants, under the lock: a slot is linked while it has work items; a work item is in
 * exactly one queue when it is READY (its lane's), QUEUED (its key's) or BLOCKED
 * and not yet given to the delivery store; of one order key at most one work item is READY or
 * RUNNING; while a key is blocked that one is a retry's. */
#include "pipe/inflight.h"

#include <stdlib.h>

#include "base/check.h"
#include "base/sync.h"
#include "pipe/inflight_lists.h"

enum {
    OUT_OF_BAND_MAX = 8192,
    AHEAD_MAX = 65536,
    ITEMS_PER_SLOT = 20, /* one for each rule of an event, and one more for each walk that is split
                            or handed on */
};

/* ---- cells ---- */

static void add_cell(struct inflight *f, uint16_t rule, enum lane lane)
{
    CHECK(f->cell_count < INFLIGHT_CELLS_MAX);
    f->cell_of[rule][lane] = (int16_t)f->cell_count;
    f->cells[f->cell_count++] =
        (struct inflight_cell){.rule = rule, .lane = lane, .items = {INFLIGHT_NONE, INFLIGHT_NONE}};
}

static void make_cells(struct inflight *f, size_t rule_count)
{
    f->cell_of = calloc(rule_count ? rule_count : 1, sizeof *f->cell_of);
    CHECK(f->cell_of);
    for (size_t i = 0; i < rule_count; i++) {
        for (int lane = 0; lane < LANE_COUNT; lane++)
            f->cell_of[i][lane] = -1;
        uint16_t rule = (uint16_t)i;
        add_cell(f, rule, f->rules[i].lane);
        if (rule_splits(&f->rules[i])) {
            add_cell(f, rule, lane_rows[f->rules[i].lane].active);
            add_cell(f, rule, lane_rows[f->rules[i].lane].rest);
        }
        add_cell(f, rule, lane_for_replays(f->rules[i].lane));
    }
}

void inflight_init(struct inflight *f, const struct rule *rules, size_t rule_count, size_t max)
{
    CHECK(max > 0 && max < INFLIGHT_NONE / ITEMS_PER_SLOT - OUT_OF_BAND_MAX);
    *f = (struct inflight){.rules = rules,
                           .rule_count = rule_count,
                           .max = max,
                           .outside_patience = 1,
                           .free_slot = INFLIGHT_NONE,
                           .free_item = INFLIGHT_NONE};
    f->all = f->ahead = f->out_of_band_slots = f->blocked = f->later =
        (struct inflight_list){INFLIGHT_NONE, INFLIGHT_NONE};
    for (int i = 0; i < LANE_COUNT; i++)
        f->ready[i] = f->fresh[i] = (struct inflight_list){INFLIGHT_NONE, INFLIGHT_NONE};
    f->slot_chunks_max = (max + OUT_OF_BAND_MAX + AHEAD_MAX) / INFLIGHT_CHUNK + 1;
    f->item_chunks_max = f->slot_chunks_max * ITEMS_PER_SLOT;
    f->slots = calloc(f->slot_chunks_max, sizeof(struct inflight_slot *));
    f->items = calloc(f->item_chunks_max, sizeof(struct work_item *));
    CHECK(f->slots && f->items);
    make_cells(f, rule_count);
    order_init(&f->order);
    lock_init_spinning(&f->lock);
}

void inflight_done(struct inflight *f)
{
    for (size_t i = 0; i < f->slot_chunks; i++)
        free(f->slots[i]);
    for (size_t i = 0; i < f->item_chunks; i++)
        free(f->items[i]);
    free(f->slots);
    free(f->items);
    free(f->cell_of);
    order_done(&f->order);
    pthread_mutex_destroy(&f->lock);
}

void inflight_reset(struct inflight *f, uint64_t through)
{
    pthread_mutex_lock(&f->lock);
    CHECK(f->undone == 0);
    f->passed = through;
    pthread_mutex_unlock(&f->lock);
}

/* ---- beginning ---- */

static bool is_live(const struct inflight_slot *s)
{
    return s->kind == SLOT_LIVE;
}

uint32_t inflight_add_item(struct inflight *f, uint32_t slot, uint16_t rule, enum lane lane,
                           const struct audience_cursor *cursor, uint64_t until)
{
    uint32_t item = get_item(f);
    struct work_item *u = item_at(f, item);
    struct inflight_slot *s = inflight_slot(f, slot);
    *u = (struct work_item){.cursor = *cursor,
                            .until = until,
                            .slot = slot,
                            .sibling = s->first_item,
                            .rule = rule,
                            .lane = (uint8_t)lane};
    u->cursor.end = false;
    s->first_item = item;
    s->item_count++;
    if (rule == RULE_NONE)
        return item;
    int16_t cell = f->cell_of[rule][lane];
    CHECK(cell >= 0);
    u->cell = (uint16_t)cell;
    f->cells[cell].count++;
    f->cells[cell].batches++;
    f->cells[cell].entered++;
    f->cells[cell].begun++;
    atomic_fetch_add(&f->lane_items[lane], 1);
    if (is_live(s) && !s->ahead)
        link_in_cell(f, item);
    return item;
}

/* One work item for each rule in the mask. */
static void add_items(struct inflight *f, uint32_t slot, uint32_t mask, const uint16_t *rules)
{
    static const struct audience_cursor start = {.part = AUDIENCE_ALL};
    struct inflight_slot *s = inflight_slot(f, slot);
    for (uint32_t left = mask; left; left &= left - 1) {
        uint16_t rule = rules[__builtin_ctz(left)];
        enum lane lane = f->rules[rule].lane;
        lane = s->kind == SLOT_REPLAY ? lane_for_replays(lane) : lane;
        s->walks = (uint16_t)(s->walks + rule_walks(&f->rules[rule]));
        inflight_admit(f, inflight_add_item(f, slot, rule, lane, &start, 0));
    }
}

static void begin_one(struct inflight *f, struct inflight_start *start, bool ahead)
{
    static const struct audience_cursor nowhere = {0};
    start->slot = get_slot(f);
    struct inflight_slot *s = inflight_slot(f, start->slot);
    *s = (struct inflight_slot){.event = start->event,
                                .uses = s->uses,
                                .started_us = start->started_us,
                                .first_item = INFLIGHT_NONE,
                                .kind = SLOT_LIVE,
                                .fresh = start->fresh,
                                .ahead = ahead};
    struct inflight_list *list = ahead ? &f->ahead : &f->all;
    CHECK(list->last == INFLIGHT_NONE || inflight_slot(f, list->last)->event.id < s->event.id);
    append_slot(f, list, start->slot);
    if (start->unreadable)
        inflight_admit(f, inflight_add_item(f, start->slot, RULE_NONE, (enum lane)0, &nowhere, 0));
    else
        add_items(f, start->slot, start->wanted, start->rules);
    CHECK(s->item_count > 0);
    f->undone++;
    f->expanded += s->walks == 0;
}

/* Those that were ahead may be more than fit, after they have joined. */
static size_t room(const struct inflight *f)
{
    size_t taken = (size_t)(f->undone - f->ahead_count);
    return taken < f->max ? f->max - taken : 0;
}

size_t inflight_room(struct inflight *f)
{
    pthread_mutex_lock(&f->lock);
    size_t n = room(f);
    pthread_mutex_unlock(&f->lock);
    return n;
}

void inflight_begin(struct inflight *f, struct inflight_start *starts, size_t n, uint64_t passed)
{
    pthread_mutex_lock(&f->lock);
    CHECK(n <= room(f));
    for (size_t i = 0; i < n; i++)
        begin_one(f, &starts[i], false);
    CHECK(passed >= f->passed);
    f->passed = passed;
    pthread_mutex_unlock(&f->lock);
}

/* Also slots of earlier ones ahead that have joined and are not done yet. */
static size_t room_ahead(const struct inflight *f)
{
    size_t most = f->max + AHEAD_MAX - (size_t)f->undone;
    size_t left = AHEAD_MAX - (size_t)f->ahead_count;
    return left < most ? left : most;
}

size_t inflight_room_ahead(struct inflight *f)
{
    pthread_mutex_lock(&f->lock);
    size_t n = f->done == f->done_seen ? 0 : room_ahead(f);
    f->done_seen = f->done;
    pthread_mutex_unlock(&f->lock);
    return n;
}

void inflight_begin_ahead(struct inflight *f, struct inflight_start *starts, size_t n,
                          uint64_t after, uint64_t passed)
{
    pthread_mutex_lock(&f->lock);
    CHECK(n <= room_ahead(f));
    for (size_t i = 0; i < n; i++)
        begin_one(f, &starts[i], true);
    f->ahead_count += n;
    CHECK(after >= f->passed && passed > after && passed >= f->ahead_passed);
    f->ahead_after = after;
    f->ahead_passed = passed;
    pthread_mutex_unlock(&f->lock);
}

void inflight_join(struct inflight *f)
{
    pthread_mutex_lock(&f->lock);
    for (uint32_t slot; (slot = f->ahead.first) != INFLIGHT_NONE;) {
        struct inflight_slot *s = inflight_slot(f, slot);
        take_out(f, BY_SLOT, &f->ahead, slot);
        append_slot(f, &f->all, slot);
        s->ahead = false;
        for (uint32_t item = s->first_item; item != INFLIGHT_NONE; item = item_at(f, item)->sibling)
            link_in_cell(f, item);
    }
    f->ahead_count = f->ahead_after = 0;
    if (f->ahead_passed)
        f->passed = f->ahead_passed;
    f->ahead_passed = 0;
    for (uint32_t item; (item = pop_front(f, &f->later)) != INFLIGHT_NONE;)
        inflight_admit(f, item);
    pthread_mutex_unlock(&f->lock);
}

enum lane inflight_lane_of(const struct rule *rule, enum audience_part part, uint64_t replay)
{
    if (replay)
        return lane_for_replays(rule->lane);
    if (part != AUDIENCE_ALL && rule_splits(rule))
        return part == AUDIENCE_ACTIVE ? lane_rows[rule->lane].active : lane_rows[rule->lane].rest;
    return rule->lane;
}

enum lane inflight_lane_of_retry(const struct inflight *f, const struct out_of_band_event *a)
{
    return inflight_lane_of(&f->rules[a->rule], a->cursor.part, a->replay);
}

static void begin_out_of_band(struct inflight *f, const struct out_of_band_event *a)
{
    uint32_t slot = get_slot(f);
    struct inflight_slot *s = inflight_slot(f, slot);
    *s = (struct inflight_slot){.event = a->event,
                                .uses = s->uses,
                                .started_us = INFLIGHT_UNTIMED,
                                .owner = a->owner,
                                .replay = a->replay,
                                .tries = a->tries,
                                .first_item = INFLIGHT_NONE,
                                .kind = (uint8_t)a->kind};
    append_slot(f, &f->out_of_band_slots, slot);
    f->out_of_band++;
    if (a->kind == SLOT_RETRY || a->kind == SLOT_FORCED)
        inflight_admit(f, inflight_add_item(f, slot, a->rule, inflight_lane_of_retry(f, a),
                                            &a->cursor, a->until));
    else
        add_items(f, slot, a->wanted, a->rules);
    CHECK(s->item_count > 0);
}

enum out_of_band_result inflight_begin_out_of_band(struct inflight *f,
                                                   const struct out_of_band_event *a)
{
    enum out_of_band_result result = OUT_OF_BAND_BEGUN;
    pthread_mutex_lock(&f->lock);
    if (f->out_of_band >= OUT_OF_BAND_MAX)
        result = OUT_OF_BAND_FULL;
    else if (inflight_key_is_busy(f, a))
        result = OUT_OF_BAND_BUSY;
    else
        begin_out_of_band(f, a);
    pthread_mutex_unlock(&f->lock);
    return result;
}

static void add_totals(struct inflight_totals *to, const struct inflight_totals *add)
{
    to->members += add->members;
    to->delivered += add->delivered;
    to->repeated += add->repeated;
    to->skipped += add->skipped;
    to->duplicates += add->duplicates;
    to->suppressed += add->suppressed;
}

static void note_recovered(struct inflight_slot *s)
{
    if (atomic_load_explicit(&s->failing, memory_order_relaxed))
        atomic_store(&s->failing, false);
}

/* Its batch is done and another one begins: one of those that were expected, or one more. */
static void next_batch(struct inflight *f, struct work_item *u)
{
    struct inflight_cell *cell = &f->cells[u->cell];
    if (u->expected) {
        u->expected--;
        cell->batches--;
    } else {
        cell->entered++;
    }
}

static void expect(struct inflight *f, struct work_item *u, uint64_t members)
{
    uint64_t batch = f->rules[u->rule].batch;
    uint64_t more = members > batch ? (members - 1) / batch : 0;
    u->expected = more < UINT32_MAX ? (uint32_t)more : UINT32_MAX;
    f->cells[u->cell].batches += u->expected;
    f->cells[u->cell].entered += u->expected;
}

void inflight_expect(struct inflight *f, const struct bus_message *m, uint64_t members)
{
    uint32_t item;
    pthread_mutex_lock(&f->lock);
    struct work_item *u = inflight_find_running(f, m, &item);
    if (u && u->expected == 0 && !u->handed_on)
        expect(f, u, members);
    pthread_mutex_unlock(&f->lock);
}

void inflight_move_item(struct inflight *f, uint32_t item, const struct audience_cursor *cursor,
                        const struct inflight_totals *add, int64_t now_us)
{
    struct work_item *u = item_at(f, item);
    bool further = u->cursor.after != cursor->after;
    u->cursor = *cursor;
    u->cursor.end = false;
    u->sent_us = now_us;
    u->in_hand = u->handed_on = false;
    struct inflight_slot *s = inflight_slot(f, u->slot);
    add_totals(&s->totals, add);
    note_recovered(s);
    if (further)
        next_batch(f, u);
    if (further && s->tries) /* a retry has one work item: no other thread looks at it now */
        s->tries = 0;
}

bool inflight_move(struct inflight *f, const struct bus_message *m,
                   const struct audience_cursor *cursor, const struct inflight_totals *add,
                   int64_t now_us)
{
    pthread_mutex_lock(&f->lock);
    uint32_t item;
    bool running = inflight_find_running(f, m, &item) != NULL;
    if (running)
        inflight_move_item(f, item, cursor, add, now_us);
    pthread_mutex_unlock(&f->lock);
    return running;
}

/* ---- leaving ---- */

static void drop_item(struct inflight *f, uint32_t item)
{
    struct work_item *u = item_at(f, item);
    struct inflight_slot *s = inflight_slot(f, u->slot);
    item_set_state(f, u, ITEM_READY); /* it runs no more */
    if (u->rule != RULE_NONE) {
        if (is_live(s) && !s->ahead)
            unlink_in_cell(f, item);
        f->cells[u->cell].count--;
        f->cells[u->cell].batches -= 1 + (uint64_t)u->expected;
        atomic_fetch_sub(&f->lane_items[u->lane], 1);
    }
    uint32_t *link = &s->first_item;
    while (*link != item)
        link = &item_at(f, *link)->sibling;
    *link = u->sibling;
    s->item_count--;
    u->sibling = f->free_item;
    f->free_item = item;
}

void inflight_split(struct inflight *f, const struct bus_message *m,
                    const struct inflight_parts *parts)
{
    pthread_mutex_lock(&f->lock);
    uint32_t item;
    const struct work_item *u = inflight_find_running(f, m, &item);
    if (u) {
        uint32_t slot = u->slot;
        struct inflight_slot *s = inflight_slot(f, slot);
        s->audience += parts->audience;
        struct audience_cursor cursor = {.active_since_ms = parts->active_since_ms,
                                         .started_ms = parts->started_ms};
        for (int part = AUDIENCE_ACTIVE; part <= AUDIENCE_REST; part++) {
            cursor.part = (enum audience_part)part;
            enum lane lane = inflight_lane_of(&f->rules[m->rule], cursor.part, s->replay);
            uint32_t walk = inflight_add_item(f, slot, m->rule, lane, &cursor, 0);
            expect(f, item_at(f, walk), part == AUDIENCE_ACTIVE ? parts->active : parts->rest);
            inflight_make_ready(f, walk);
        }
        s->walks++;
        drop_item(f, item);
    }
    pthread_mutex_unlock(&f->lock);
}

static void finish(struct inflight *f, uint32_t slot, struct inflight_exit *x)
{
    struct inflight_slot *s = inflight_slot(f, slot);
    x->finished = true;
    x->event = s->event;
    x->totals = s->totals;
    x->audience = s->audience;
    x->started_us = s->started_us;
    x->owner = s->owner;
    x->kind = s->kind;
    x->tries = s->tries;
    take_out(f, BY_SLOT, s->ahead ? &f->ahead : is_live(s) ? &f->all : &f->out_of_band_slots, slot);
    s->all.next = f->free_slot;
    f->free_slot = slot;
    if (!is_live(s)) {
        f->out_of_band--;
        return;
    }
    f->ahead_count -= s->ahead;
    f->undone--;
    f->done++;
    f->expanded -= s->walks == 0;
}

/* True: a work item is ready because this one left. */
static bool leave_one(struct inflight *f, struct inflight_exit *x)
{
    x->found = x->finished = false;
    uint32_t item = inflight_find_item(f, x->slot, x->event_id, x->rule, x->part, x->after);
    if (item == INFLIGHT_NONE || (x->if_running && item_at(f, item)->state != ITEM_RUNNING))
        return false;
    x->found = true;
    x->until = item_at(f, item)->until;
    struct inflight_slot *s = inflight_slot(f, (uint32_t)x->slot);
    add_totals(&s->totals, &x->add);
    s->totals.recorded += x->how != EXIT_DONE;
    if (x->how == EXIT_DONE)
        note_recovered(s);
    if (x->at_end && s->walks > 0 && --s->walks == 0 && is_live(s))
        f->expanded++;
    bool ready = inflight_pass_on(f, item, x->how);
    drop_item(f, item);
    if (s->item_count == 0)
        finish(f, (uint32_t)x->slot, x);
    return ready;
}

bool inflight_leave(struct inflight *f, struct inflight_exit *exits, size_t n)
{
    bool ready = false;
    pthread_mutex_lock(&f->lock);
    bool was_full = room(f) == 0 || room_ahead(f) == 0;
    for (size_t i = 0; i < n; i++)
        ready |= leave_one(f, &exits[i]);
    bool freed = was_full && room(f) > 0 && room_ahead(f) > 0;
    pthread_mutex_unlock(&f->lock);
    return ready || freed;
}
