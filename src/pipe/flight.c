/* Seats and units in chunks that never move, so that a worker may keep an
 * index; lists through them.
 *
 * Live seats are linked by rising id, and the live units of each cell (rule ×
 * lane) as well: the oldest are the heads, so the mark and every cell's age are
 * read in O(1). Beginning appends and leaving unlinks, both O(1), in any order.
 * Memory follows what is undone, not how far the oldest undone event lies back.
 * Ids rise in the order in which the relay takes events; a large fan-out that
 * enters further lanes is put in its place from the tail, past the few that
 * overtook it. What sits aside is counted in its cells and not linked there:
 * its ids are old, and its age is known from the books.
 *
 * Invariants, under the lock: a seat is linked while it has units; a unit is in
 * exactly one queue when it is OWED (its lane's), QUEUED (its key's) or HELD
 * and not yet given to the books; of one order key at most one unit is OWED or
 * OUT; while a key is blocked that one is a retry's. */
#include "pipe/flight.h"

#include <stdlib.h>

#include "base/check.h"
#include "pipe/flight_lists.h"
#include "pipe/lock.h"

enum {
    ASIDE_MAX = 8192,
    AHEAD_MAX = 65536,
    UNITS_PER_SEAT = 20, /* one for each rule of an event, and one more for each walk that is split
                            or handed on */
    FOUND_EVERY = 4,     /* turns of a lane, one for what was found in the table */
    MANY_FRESH = 1024,   /* units of a lane, from which the newest have their turns, too */
    YOUNG_US = 1000 * 1000,
};

struct flight_seat *flight_seat(struct flight *f, uint32_t seat)
{
    return &f->seats[seat / FLIGHT_CHUNK][seat % FLIGHT_CHUNK];
}

/* ---- cells ---- */

static void add_cell(struct flight *f, uint16_t rule, enum lane lane)
{
    CHECK(f->cell_count < FLIGHT_CELLS_MAX);
    f->cell_of[rule][lane] = (int16_t)f->cell_count;
    f->cells[f->cell_count++] =
        (struct flight_cell){.rule = rule, .lane = lane, .units = {FLIGHT_NONE, FLIGHT_NONE}};
}

static void make_cells(struct flight *f, size_t rule_count)
{
    f->cell_of = calloc(rule_count ? rule_count : 1, sizeof *f->cell_of);
    CHECK(f->cell_of);
    for (size_t i = 0; i < rule_count; i++) {
        for (int lane = 0; lane < LANE_COUNT; lane++)
            f->cell_of[i][lane] = -1;
        uint16_t rule = (uint16_t)i;
        add_cell(f, rule, f->rules[i].lane);
        if (f->rules[i].lane == LANE_SMALL && rule_walks(&f->rules[i])) {
            add_cell(f, rule, LANE_ACTIVE);
            add_cell(f, rule, LANE_REST);
        }
        if (f->rules[i].lane != LANE_REPLAY)
            add_cell(f, rule, LANE_REPLAY);
    }
}

void flight_init(struct flight *f, const struct rule *rules, size_t rule_count, size_t max)
{
    CHECK(max > 0 && max < FLIGHT_NONE / UNITS_PER_SEAT - ASIDE_MAX);
    *f = (struct flight){.rules = rules,
                         .rule_count = rule_count,
                         .max = max,
                         .outside_patience = 1,
                         .free_seat = FLIGHT_NONE,
                         .free_unit = FLIGHT_NONE};
    f->all = f->ahead = f->aside_seats = f->held = f->later =
        (struct flight_list){FLIGHT_NONE, FLIGHT_NONE};
    for (int i = 0; i < LANE_COUNT; i++)
        f->owed[i] = f->fresh[i] = (struct flight_list){FLIGHT_NONE, FLIGHT_NONE};
    f->seat_chunks_max = (max + ASIDE_MAX + AHEAD_MAX) / FLIGHT_CHUNK + 1;
    f->unit_chunks_max = f->seat_chunks_max * UNITS_PER_SEAT;
    f->seats = calloc(f->seat_chunks_max, sizeof(struct flight_seat *));
    f->units = calloc(f->unit_chunks_max, sizeof(struct flight_unit *));
    CHECK(f->seats && f->units);
    make_cells(f, rule_count);
    order_init(&f->order);
    lock_init(&f->lock);
}

void flight_done(struct flight *f)
{
    for (size_t i = 0; i < f->seat_chunks; i++)
        free(f->seats[i]);
    for (size_t i = 0; i < f->unit_chunks; i++)
        free(f->units[i]);
    free(f->seats);
    free(f->units);
    free(f->cell_of);
    order_done(&f->order);
    pthread_mutex_destroy(&f->lock);
}

void flight_reset(struct flight *f, uint64_t through)
{
    pthread_mutex_lock(&f->lock);
    CHECK(f->undone == 0);
    f->passed = through;
    pthread_mutex_unlock(&f->lock);
}

/* ---- queues of units, under the lock ---- */

static void owe(struct flight *f, uint32_t unit)
{
    struct flight_unit *u = unit_at(f, unit);
    u->state = UNIT_OWED;
    if (flight_seat(f, u->seat)->fresh) {
        push_back(f, &f->fresh[u->lane], unit);
        f->fresh_count[u->lane]++;
    } else {
        push_back(f, &f->owed[u->lane], unit);
    }
}

static void hold(struct flight *f, uint32_t unit)
{
    unit_at(f, unit)->state = UNIT_HELD;
    push_back(f, &f->held, unit);
}

/* ---- order, under the lock ---- */

/* The lane whose order the unit keeps is its rule's own, also in a replay. */
static bool is_ordered(const struct flight *f, const struct flight_unit *u)
{
    return u->rule != RULE_NONE && lane_is_ordered(f->rules[u->rule].lane);
}

static struct order_key *key_of(struct flight *f, const struct flight_unit *u)
{
    return order_get(&f->order, (uint8_t)f->rules[u->rule].lane,
                     flight_seat(f, u->seat)->event.actor);
}

/* Decides what a new unit may do. A retry is the delivery that its key waits
 * for. */
static void admit(struct flight *f, uint32_t unit)
{
    struct flight_unit *u = unit_at(f, unit);
    if (u->rule == RULE_NONE) {
        hold(f, unit);
        return;
    }
    if (!is_ordered(f, u)) {
        owe(f, unit);
        return;
    }
    if (flight_seat(f, u->seat)->ahead) {
        u->state = UNIT_QUEUED;
        push_back(f, &f->later, unit);
        return;
    }
    struct order_key *key = key_of(f, u);
    uint8_t kind = flight_seat(f, u->seat)->kind;
    if (kind == SEAT_RETRY || kind == SEAT_FORCED) {
        CHECK(key->at_work == ORDER_NONE);
        order_block(&f->order, key, true);
        key->at_work = unit;
        owe(f, unit);
    } else if (key->blocked) {
        key->held++;
        hold(f, unit);
    } else if (key->at_work != ORDER_NONE) {
        u->state = UNIT_QUEUED;
        struct flight_list queue = {key->first, key->last};
        push_back(f, &queue, unit);
        key->first = queue.first;
        key->last = queue.last;
    } else {
        key->at_work = unit;
        owe(f, unit);
    }
}

static void hold_queue(struct flight *f, struct order_key *key)
{
    struct flight_list queue = {key->first, key->last};
    for (uint32_t unit; (unit = pop_front(f, &queue)) != FLIGHT_NONE; key->held++)
        hold(f, unit);
    key->first = key->last = ORDER_NONE;
}

/* A unit leaves: what its key does next. True: another unit is owed now. */
static bool pass_on(struct flight *f, uint32_t unit, enum exit_how how)
{
    struct flight_unit *u = unit_at(f, unit);
    if (!is_ordered(f, u))
        return false;
    struct order_key *key = key_of(f, u);
    if (u->state == UNIT_HELD) {
        CHECK(key->held > 0);
        key->held--;
        return false;
    }
    CHECK(key->at_work == unit);
    key->at_work = ORDER_NONE;
    if (how == EXIT_BOOKED)
        order_block(&f->order, key, true);
    if (key->blocked) {
        hold_queue(f, key);
        return false;
    }
    struct flight_list queue = {key->first, key->last};
    uint32_t next = pop_front(f, &queue);
    if (next == FLIGHT_NONE) {
        order_drop(&f->order, key);
        return false;
    }
    key->first = queue.first;
    key->last = queue.last;
    key->at_work = next;
    owe(f, next);
    return true;
}

/* ---- beginning ---- */

static bool is_live(const struct flight_seat *s)
{
    return s->kind == SEAT_LIVE;
}

uint32_t flight_add_unit(struct flight *f, uint32_t seat, uint16_t rule, enum lane lane,
                         const struct audience_cursor *cursor, uint64_t until)
{
    uint32_t unit = get_unit(f);
    struct flight_unit *u = unit_at(f, unit);
    struct flight_seat *s = flight_seat(f, seat);
    *u = (struct flight_unit){.cursor = *cursor,
                              .until = until,
                              .seat = seat,
                              .sibling = s->first_unit,
                              .rule = rule,
                              .lane = (uint8_t)lane};
    u->cursor.end = false;
    s->first_unit = unit;
    s->unit_count++;
    if (rule == RULE_NONE)
        return unit;
    int16_t cell = f->cell_of[rule][lane];
    CHECK(cell >= 0);
    u->cell = (uint16_t)cell;
    f->cells[cell].count++;
    f->cells[cell].entered++;
    atomic_fetch_add(&f->lane_units[lane], 1);
    if (is_live(s) && !s->ahead)
        link_in_cell(f, unit);
    return unit;
}

/* One unit for each rule in the mask. */
static void add_units(struct flight *f, uint32_t seat, uint32_t mask, const uint16_t *rules)
{
    static const struct audience_cursor start = {.part = AUDIENCE_ALL};
    struct flight_seat *s = flight_seat(f, seat);
    for (uint32_t left = mask; left; left &= left - 1) {
        uint16_t rule = rules[__builtin_ctz(left)];
        enum lane lane = s->kind == SEAT_REPLAY ? LANE_REPLAY : f->rules[rule].lane;
        s->walks = (uint16_t)(s->walks + rule_walks(&f->rules[rule]));
        admit(f, flight_add_unit(f, seat, rule, lane, &start, 0));
    }
}

static void begin_one(struct flight *f, struct flight_start *start, bool ahead)
{
    static const struct audience_cursor nowhere = {0};
    start->seat = get_seat(f);
    struct flight_seat *s = flight_seat(f, start->seat);
    *s = (struct flight_seat){.event = start->event,
                              .uses = s->uses,
                              .started_us = start->started_us,
                              .first_unit = FLIGHT_NONE,
                              .kind = SEAT_LIVE,
                              .fresh = start->fresh,
                              .ahead = ahead};
    struct flight_list *list = ahead ? &f->ahead : &f->all;
    CHECK(list->last == FLIGHT_NONE || flight_seat(f, list->last)->event.id < s->event.id);
    append_seat(f, list, start->seat);
    if (start->unreadable)
        admit(f, flight_add_unit(f, start->seat, RULE_NONE, LANE_GRAPH, &nowhere, 0));
    else
        add_units(f, start->seat, start->owed, start->rules);
    CHECK(s->unit_count > 0);
    f->undone++;
    f->expanded += s->walks == 0;
}

/* Those that were ahead may be more than fit, after they have joined. */
static size_t room(const struct flight *f)
{
    size_t taken = (size_t)(f->undone - f->ahead_count);
    return taken < f->max ? f->max - taken : 0;
}

size_t flight_room(struct flight *f)
{
    pthread_mutex_lock(&f->lock);
    size_t n = room(f);
    pthread_mutex_unlock(&f->lock);
    return n;
}

void flight_begin(struct flight *f, struct flight_start *starts, size_t n, uint64_t passed)
{
    pthread_mutex_lock(&f->lock);
    CHECK(n <= room(f));
    for (size_t i = 0; i < n; i++)
        begin_one(f, &starts[i], false);
    CHECK(passed >= f->passed);
    f->passed = passed;
    pthread_mutex_unlock(&f->lock);
}

/* Also seats of earlier ones ahead that have joined and are not done yet. */
static size_t room_ahead(const struct flight *f)
{
    size_t most = f->max + AHEAD_MAX - (size_t)f->undone;
    size_t left = AHEAD_MAX - (size_t)f->ahead_count;
    return left < most ? left : most;
}

size_t flight_room_ahead(struct flight *f)
{
    pthread_mutex_lock(&f->lock);
    size_t n = f->done == f->done_seen ? 0 : room_ahead(f);
    f->done_seen = f->done;
    pthread_mutex_unlock(&f->lock);
    return n;
}

void flight_begin_ahead(struct flight *f, struct flight_start *starts, size_t n, uint64_t after,
                        uint64_t passed)
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

void flight_join(struct flight *f)
{
    pthread_mutex_lock(&f->lock);
    for (uint32_t seat; (seat = f->ahead.first) != FLIGHT_NONE;) {
        struct flight_seat *s = flight_seat(f, seat);
        unlink_seat(f, &f->ahead, seat);
        append_seat(f, &f->all, seat);
        s->ahead = false;
        for (uint32_t unit = s->first_unit; unit != FLIGHT_NONE; unit = unit_at(f, unit)->sibling)
            link_in_cell(f, unit);
    }
    f->ahead_count = f->ahead_after = 0;
    if (f->ahead_passed)
        f->passed = f->ahead_passed;
    f->ahead_passed = 0;
    for (uint32_t unit; (unit = pop_front(f, &f->later)) != FLIGHT_NONE;)
        admit(f, unit);
    pthread_mutex_unlock(&f->lock);
}

enum lane flight_lane_of(const struct rule *rule, enum audience_part part, uint64_t replay)
{
    if (replay)
        return LANE_REPLAY;
    if (rule->lane == LANE_SMALL && part == AUDIENCE_ACTIVE)
        return LANE_ACTIVE;
    if (rule->lane == LANE_SMALL && part == AUDIENCE_REST)
        return LANE_REST;
    return rule->lane;
}

enum lane flight_lane_of_retry(const struct flight *f, const struct flight_aside *a)
{
    return flight_lane_of(&f->rules[a->rule], a->cursor.part, a->replay);
}

static bool key_is_busy(struct flight *f, const struct flight_aside *a)
{
    if (a->kind != SEAT_RETRY && a->kind != SEAT_FORCED)
        return false;
    const struct rule *rule = &f->rules[a->rule];
    const struct order_key *key = lane_is_ordered(rule->lane)
                                      ? order_find(&f->order, (uint8_t)rule->lane, a->event.actor)
                                      : NULL;
    return key && key->at_work != ORDER_NONE;
}

static void begin_aside(struct flight *f, const struct flight_aside *a)
{
    uint32_t seat = get_seat(f);
    struct flight_seat *s = flight_seat(f, seat);
    *s = (struct flight_seat){.event = a->event,
                              .uses = s->uses,
                              .started_us = FLIGHT_UNTIMED,
                              .owner = a->owner,
                              .replay = a->replay,
                              .tries = a->tries,
                              .first_unit = FLIGHT_NONE,
                              .kind = (uint8_t)a->kind};
    append_seat(f, &f->aside_seats, seat);
    f->aside++;
    if (a->kind == SEAT_RETRY || a->kind == SEAT_FORCED)
        admit(f,
              flight_add_unit(f, seat, a->rule, flight_lane_of_retry(f, a), &a->cursor, a->until));
    else
        add_units(f, seat, a->owed, a->rules);
    CHECK(s->unit_count > 0);
}

enum aside_result flight_begin_aside(struct flight *f, const struct flight_aside *a)
{
    enum aside_result result = ASIDE_BEGUN;
    pthread_mutex_lock(&f->lock);
    if (f->aside >= ASIDE_MAX)
        result = ASIDE_FULL;
    else if (key_is_busy(f, a))
        result = ASIDE_BUSY;
    else
        begin_aside(f, a);
    pthread_mutex_unlock(&f->lock);
    return result;
}

/* ---- messages ---- */

static void write_message(struct flight *f, const struct flight_unit *u, struct bus_message *out)
{
    const struct flight_seat *s = flight_seat(f, u->seat);
    *out = (struct bus_message){.event = s->event,
                                .rule = u->rule,
                                .lane = u->lane,
                                .tries = s->tries,
                                .cursor = u->cursor,
                                .until = u->until,
                                .kind = s->kind,
                                .seat = (uint64_t)s->uses << 32 | u->seat,
                                .owner = s->owner,
                                .replay = s->replay,
                                .term = f->term};
}

/* The unit with that name, or FLIGHT_NONE. */
static uint32_t find(struct flight *f, uint64_t seat, uint64_t event, uint16_t rule, unsigned part,
                     uint64_t after)
{
    uint32_t place = (uint32_t)seat;
    if (place >= f->seat_chunks * FLIGHT_CHUNK)
        return FLIGHT_NONE;
    const struct flight_seat *s = flight_seat(f, place);
    if (s->unit_count == 0 || s->uses != seat >> 32 || s->event.id != event)
        return FLIGHT_NONE;
    uint32_t unit = s->first_unit;
    while (unit != FLIGHT_NONE) {
        const struct flight_unit *u = unit_at(f, unit);
        if (u->rule == rule && (unsigned)u->cursor.part == part && u->cursor.after == after)
            break;
        unit = u->sibling;
    }
    return unit;
}

uint32_t flight_find(struct flight *f, const struct bus_message *m, uint64_t after)
{
    return find(f, m->seat, m->event.id, m->rule, (unsigned)m->cursor.part, after);
}

static uint32_t find_message(struct flight *f, const struct bus_message *m)
{
    return flight_find(f, m, m->cursor.after);
}

static bool is_young(struct flight *f, uint32_t unit, int64_t now_us)
{
    return flight_seat(f, unit_at(f, unit)->seat)->started_us > now_us - YOUNG_US;
}

static uint32_t next_owed(struct flight *f, enum lane lane, int64_t now_us)
{
    struct flight_list *fresh = &f->fresh[lane], *found = &f->owed[lane];
    uint64_t turn = f->turn++;
    if (fresh->first == FLIGHT_NONE ||
        (found->first != FLIGHT_NONE && turn % FOUND_EVERY == FOUND_EVERY - 1))
        return pop_front(f, found);
    bool newest =
        f->fresh_count[lane] > MANY_FRESH && turn % 2 == 0 && is_young(f, fresh->last, now_us);
    f->fresh_count[lane]--;
    return newest ? pop_back(f, fresh) : pop_front(f, fresh);
}

bool flight_take_owed(struct flight *f, enum lane lane, int64_t now_us, struct bus_message *out)
{
    pthread_mutex_lock(&f->lock);
    uint32_t unit = next_owed(f, lane, now_us);
    if (unit != FLIGHT_NONE) {
        struct flight_unit *u = unit_at(f, unit);
        u->state = UNIT_OUT;
        u->sent_us = now_us;
        write_message(f, u, out);
    }
    pthread_mutex_unlock(&f->lock);
    return unit != FLIGHT_NONE;
}

void flight_give_back(struct flight *f, const struct bus_message *m)
{
    pthread_mutex_lock(&f->lock);
    uint32_t unit = find_message(f, m);
    if (unit != FLIGHT_NONE && unit_at(f, unit)->state == UNIT_OUT) {
        uint8_t lane = unit_at(f, unit)->lane;
        unit_at(f, unit)->state = UNIT_OWED;
        unit_at(f, unit)->in_hand = false;
        if (flight_seat(f, unit_at(f, unit)->seat)->fresh) {
            push_front(f, &f->fresh[lane], unit);
            f->fresh_count[lane]++;
        } else {
            push_front(f, &f->owed[lane], unit);
        }
    }
    pthread_mutex_unlock(&f->lock);
}

static size_t overdue_of(struct flight *f, uint32_t seat, int64_t before_us, int64_t now_us,
                         struct bus_message *out, size_t max)
{
    size_t n = 0;
    for (uint32_t unit = flight_seat(f, seat)->first_unit; unit != FLIGHT_NONE && n < max;
         unit = unit_at(f, unit)->sibling) {
        struct flight_unit *u = unit_at(f, unit);
        bool outside = u->rule != RULE_NONE && f->rules[u->rule].effect == EFFECT_OUTSIDE;
        int64_t patience_us = (now_us - before_us) * (outside ? f->outside_patience : 1);
        if (u->state != UNIT_OUT || u->in_hand || u->sent_us >= now_us - patience_us)
            continue;
        u->sent_us = now_us;
        write_message(f, u, &out[n++]);
    }
    return n;
}

size_t flight_take_overdue(struct flight *f, int64_t before_us, int64_t now_us,
                           struct bus_message *out, size_t max)
{
    enum { LOOK_AT = 4096 };
    size_t n = 0;
    pthread_mutex_lock(&f->lock);
    const uint32_t firsts[] = {f->aside_seats.first, f->all.first, f->ahead.first};
    for (size_t list = 0; list < COUNT_OF(firsts); list++) {
        uint32_t seat = firsts[list];
        for (int looked = 0; seat != FLIGHT_NONE && looked < LOOK_AT && n < max; looked++) {
            n += overdue_of(f, seat, before_us, now_us, out + n, max - n);
            seat = flight_seat(f, seat)->all.next;
        }
    }
    pthread_mutex_unlock(&f->lock);
    return n;
}

bool flight_take_up(struct flight *f, const struct bus_message *m)
{
    pthread_mutex_lock(&f->lock);
    uint32_t unit = find_message(f, m);
    bool out =
        unit != FLIGHT_NONE && unit_at(f, unit)->state == UNIT_OUT && !unit_at(f, unit)->in_hand;
    if (out)
        unit_at(f, unit)->in_hand = true;
    pthread_mutex_unlock(&f->lock);
    return out;
}

void flight_put_down(struct flight *f, const struct bus_message *m)
{
    pthread_mutex_lock(&f->lock);
    uint32_t unit = find_message(f, m);
    if (unit != FLIGHT_NONE)
        unit_at(f, unit)->in_hand = false;
    pthread_mutex_unlock(&f->lock);
}

bool flight_add(struct flight *f, const struct bus_message *m, const struct audience_cursor *cursor,
                int64_t now_us)
{
    pthread_mutex_lock(&f->lock);
    bool add = find_message(f, m) != FLIGHT_NONE &&
               find(f, m->seat, m->event.id, m->rule, (unsigned)cursor->part, cursor->after) ==
                   FLIGHT_NONE;
    if (add) {
        uint32_t unit =
            flight_add_unit(f, (uint32_t)m->seat, m->rule, (enum lane)m->lane, cursor, m->until);
        CHECK(!is_ordered(f, unit_at(f, unit)));
        unit_at(f, unit)->state = UNIT_OUT;
        unit_at(f, unit)->sent_us = now_us;
    }
    pthread_mutex_unlock(&f->lock);
    return add;
}

static void add_totals(struct flight_totals *to, const struct flight_totals *add)
{
    to->members += add->members;
    to->delivered += add->delivered;
    to->repeated += add->repeated;
    to->skipped += add->skipped;
    to->duplicates += add->duplicates;
    to->suppressed += add->suppressed;
}

static void feel_well(struct flight_seat *s)
{
    if (atomic_load_explicit(&s->unwell, memory_order_relaxed))
        atomic_store(&s->unwell, false);
}

void flight_move_unit(struct flight *f, uint32_t unit, const struct audience_cursor *cursor,
                      const struct flight_totals *add, int64_t now_us)
{
    struct flight_unit *u = unit_at(f, unit);
    bool further = u->cursor.after != cursor->after;
    u->cursor = *cursor;
    u->cursor.end = false;
    u->sent_us = now_us;
    u->in_hand = u->handed_on = false;
    struct flight_seat *s = flight_seat(f, u->seat);
    add_totals(&s->totals, add);
    feel_well(s);
    if (further && s->tries) /* a retry has one unit: nobody else looks at it now */
        s->tries = 0;
}

bool flight_move(struct flight *f, const struct bus_message *m,
                 const struct audience_cursor *cursor, const struct flight_totals *add,
                 int64_t now_us)
{
    pthread_mutex_lock(&f->lock);
    uint32_t unit = find_message(f, m);
    bool out = unit != FLIGHT_NONE && unit_at(f, unit)->state == UNIT_OUT;
    if (out)
        flight_move_unit(f, unit, cursor, add, now_us);
    pthread_mutex_unlock(&f->lock);
    return out;
}

/* ---- leaving ---- */

static void drop_unit(struct flight *f, uint32_t unit)
{
    struct flight_unit *u = unit_at(f, unit);
    struct flight_seat *s = flight_seat(f, u->seat);
    if (u->rule != RULE_NONE) {
        if (is_live(s) && !s->ahead)
            unlink_in_cell(f, unit);
        f->cells[u->cell].count--;
        atomic_fetch_sub(&f->lane_units[u->lane], 1);
    }
    uint32_t *link = &s->first_unit;
    while (*link != unit)
        link = &unit_at(f, *link)->sibling;
    *link = u->sibling;
    s->unit_count--;
    u->sibling = f->free_unit;
    f->free_unit = unit;
}

void flight_split(struct flight *f, const struct bus_message *m, int64_t active_since_ms,
                  int64_t started_ms)
{
    pthread_mutex_lock(&f->lock);
    uint32_t unit = find_message(f, m);
    if (unit != FLIGHT_NONE && unit_at(f, unit)->state == UNIT_OUT) {
        uint32_t seat = unit_at(f, unit)->seat;
        struct flight_seat *s = flight_seat(f, seat);
        struct audience_cursor part = {
            .part = AUDIENCE_ACTIVE, .active_since_ms = active_since_ms, .started_ms = started_ms};
        bool replay = s->kind == SEAT_REPLAY;
        owe(f, flight_add_unit(f, seat, m->rule, replay ? LANE_REPLAY : LANE_ACTIVE, &part, 0));
        part.part = AUDIENCE_REST;
        owe(f, flight_add_unit(f, seat, m->rule, replay ? LANE_REPLAY : LANE_REST, &part, 0));
        s->walks++;
        drop_unit(f, unit);
    }
    pthread_mutex_unlock(&f->lock);
}

static void finish(struct flight *f, uint32_t seat, struct flight_exit *x)
{
    struct flight_seat *s = flight_seat(f, seat);
    x->finished = true;
    x->event = s->event;
    x->totals = s->totals;
    x->started_us = s->started_us;
    x->owner = s->owner;
    x->kind = s->kind;
    x->tries = s->tries;
    unlink_seat(f, s->ahead ? &f->ahead : is_live(s) ? &f->all : &f->aside_seats, seat);
    s->all.next = f->free_seat;
    f->free_seat = seat;
    if (!is_live(s)) {
        f->aside--;
        return;
    }
    f->ahead_count -= s->ahead;
    f->undone--;
    f->done++;
    f->expanded -= s->walks == 0;
}

/* True: a unit is owed because this one left. */
static bool leave_one(struct flight *f, struct flight_exit *x)
{
    x->found = x->finished = false;
    uint32_t unit = find(f, x->seat, x->event_id, x->rule, x->part, x->after);
    if (unit == FLIGHT_NONE || (x->if_out && unit_at(f, unit)->state != UNIT_OUT))
        return false;
    x->found = true;
    x->until = unit_at(f, unit)->until;
    struct flight_seat *s = flight_seat(f, (uint32_t)x->seat);
    add_totals(&s->totals, &x->add);
    s->totals.booked += x->how != EXIT_DONE;
    if (x->how == EXIT_DONE)
        feel_well(s);
    if (x->at_end && s->walks > 0 && --s->walks == 0 && is_live(s))
        f->expanded++;
    bool owed = pass_on(f, unit, x->how);
    drop_unit(f, unit);
    if (s->unit_count == 0)
        finish(f, (uint32_t)x->seat, x);
    return owed;
}

bool flight_leave(struct flight *f, struct flight_exit *exits, size_t n)
{
    bool owed = false;
    pthread_mutex_lock(&f->lock);
    bool was_full = room(f) == 0 || room_ahead(f) == 0;
    for (size_t i = 0; i < n; i++)
        owed |= leave_one(f, &exits[i]);
    bool freed = was_full && room(f) > 0 && room_ahead(f) > 0;
    pthread_mutex_unlock(&f->lock);
    return owed || freed;
}

/* ---- the books' side ---- */

size_t flight_take_held(struct flight *f, struct bus_message *out, size_t max)
{
    size_t n = 0;
    pthread_mutex_lock(&f->lock);
    for (uint32_t unit; n < max && (unit = pop_front(f, &f->held)) != FLIGHT_NONE; n++)
        write_message(f, unit_at(f, unit), &out[n]);
    pthread_mutex_unlock(&f->lock);
    return n;
}

bool flight_holds(struct flight *f)
{
    pthread_mutex_lock(&f->lock);
    bool holds = f->held.first != FLIGHT_NONE;
    pthread_mutex_unlock(&f->lock);
    return holds;
}

size_t flight_hold_owed(struct flight *f, enum lane lane, size_t max)
{
    size_t n = 0;
    CHECK(!lane_is_ordered(lane));
    pthread_mutex_lock(&f->lock);
    for (; n < max; n++) {
        bool fresh = f->owed[lane].first == FLIGHT_NONE;
        uint32_t unit = pop_front(f, fresh ? &f->fresh[lane] : &f->owed[lane]);
        if (unit == FLIGHT_NONE)
            break;
        f->fresh_count[lane] -= fresh;
        hold(f, unit);
    }
    pthread_mutex_unlock(&f->lock);
    return n;
}
