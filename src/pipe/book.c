/* The book step: writes down what the workers could not deliver, claims what is
 * due again.
 *
 * One transaction does both, so a step costs one commit however much there is.
 * Only when it is durable do the messages end: acknowledged on the bus, their
 * units out of the flight. If it fails the same bookings are written again
 * later; writing them twice changes nothing (book_store.h).
 *
 * Deliveries that were claimed are under way in this process until they are
 * booked again (done, failed, moved on). The set of them is kept here, so that
 * a claim which ends in truth while its message still waits in a stopped lane
 * does not send a second one. */
#include "pipe/book.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/check.h"
#include "base/fault.h"
#include "base/hash.h"
#include "base/log.h"
#include "pipe/lock.h"
#include "pipe/state.h"

enum {
    RETRYING_PLACES = RETRIES_MAX * 4,
    WRITE_AGAIN_US = 100 * 1000,
    LOOK_EVERY_US = 1000 * 1000, /* at the due times, in case the wall clock was set */
    KEYS_A_READ = 1024,
    STOPPED_LANE_MS = 60 * 1000, /* until what was put aside for a stopped lane is due again */
    LOOK_FIRST = 0, /* a due time: long ago, so what the books hold is looked up at once */
};

/* ---- the queue ---- */

void book_init(struct book *b)
{
    *b = (struct book){.capacity = 64, .next_due_ms = LOOK_FIRST};
    b->write_after_us = b->log_after_us = b->look_after_us = INT64_MIN;
    b->others_after_us = b->save_after_us = INT64_MIN;
    b->entries = calloc(b->capacity, sizeof *b->entries);
    b->retrying = calloc(RETRYING_PLACES, sizeof *b->retrying);
    CHECK(b->entries && b->retrying);
    lock_init(&b->lock);
}

void book_done(struct book *b)
{
    free(b->entries);
    free(b->retrying);
    pthread_mutex_destroy(&b->lock);
}

static void grow(struct book *b)
{
    struct book_entry *grown = calloc(b->capacity * 2, sizeof *grown);
    CHECK(grown);
    for (size_t i = 0; i < b->count; i++)
        grown[i] = b->entries[(b->first + i) % b->capacity];
    free(b->entries);
    b->entries = grown;
    b->first = 0;
    b->capacity *= 2;
}

void book_forget(struct engine *g)
{
    struct book *b = &g->book;
    for (size_t i = 0; i < b->batch_count; i++) {
        if (b->batch[i].on_bus)
            bus_ack(g->bus, &b->batch[i].message);
    }
    for (size_t i = 0; i < b->count; i++) {
        const struct book_entry *entry = &b->entries[(b->first + i) % b->capacity];
        if (entry->on_bus)
            bus_ack(g->bus, &entry->message);
    }
    book_done(b);
    book_init(b);
}

bool book_add(struct book *b, const struct book_entry *entry, bool force)
{
    pthread_mutex_lock(&b->lock);
    bool room = force || b->count < BOOK_QUEUE_MAX;
    if (room) {
        if (b->count == b->capacity)
            grow(b);
        b->entries[(b->first + b->count++) % b->capacity] = *entry;
        atomic_fetch_add(&b->waiting, 1);
    }
    pthread_mutex_unlock(&b->lock);
    return room;
}

static struct book_entry *pop(struct book *b)
{
    struct book_entry *entry = &b->entries[b->first];
    b->first = (b->first + 1) % b->capacity;
    b->count--;
    return entry;
}

static void take_entries(struct book *b)
{
    pthread_mutex_lock(&b->lock);
    while (b->batch_count < BOOK_BATCH && b->count > 0)
        b->batch[b->batch_count++] = *pop(b);
    pthread_mutex_unlock(&b->lock);
}

/* While the views cannot be saved: those that need not wait for it. The others stay, in order. */
static void take_safe_entries(struct book *b)
{
    pthread_mutex_lock(&b->lock);
    for (size_t n = b->count; n > 0; n--) {
        struct book_entry entry = *pop(b);
        if (!entry.in_views && b->batch_count < BOOK_BATCH)
            b->batch[b->batch_count++] = entry;
        else
            b->entries[(b->first + b->count++) % b->capacity] = entry;
    }
    pthread_mutex_unlock(&b->lock);
}

/* ---- deliveries under way ---- */

static size_t place_of(const struct book *b, uint64_t delivery)
{
    size_t at = (size_t)hash_u64(delivery) & (RETRYING_PLACES - 1);
    while (b->retrying[at].delivery && b->retrying[at].delivery != delivery)
        at = (at + 1) & (RETRYING_PLACES - 1);
    return at;
}

static void forget_retry(struct book *b, uint64_t delivery)
{
    size_t hole = place_of(b, delivery);
    if (delivery == 0 || !b->retrying[hole].delivery)
        return;
    b->retrying_in[b->retrying[hole].lane]--;
    size_t mask = RETRYING_PLACES - 1;
    for (size_t at = (hole + 1) & mask; b->retrying[at].delivery; at = (at + 1) & mask) {
        size_t home = (size_t)hash_u64(b->retrying[at].delivery) & mask;
        if (((at - home) & mask) >= ((at - hole) & mask)) {
            b->retrying[hole] = b->retrying[at];
            hole = at;
        }
    }
    b->retrying[hole] = (struct book_retry){0};
    b->retrying_count--;
}

/* ---- what is held in the flight ---- */

static void book_held(struct engine *g, const struct bus_message *m)
{
    struct book_entry *entry = &g->book.batch[g->book.batch_count++];
    *entry = (struct book_entry){.message = *m, .leaves = true};
    struct booking *b = &entry->booking;
    b->event = m->event;
    if (m->rule == RULE_NONE) {
        b->kind = BOOK_PARK;
        b->reason = event_unread_name((enum event_unread)m->event.value);
        return;
    }
    const struct rule *rule = &g->rules[m->rule];
    b->consumer = rule->consumer;
    b->lane = rule->lane;
    b->cursor = m->cursor;
    b->until = m->until;
    b->replay = m->replay;
    if (lane_is_ordered(rule->lane)) {
        b->kind = BOOK_WAIT;
        b->order_key = m->event.actor;
        b->reason = "BEHIND_ITS_KEY";
        return;
    }
    b->kind = BOOK_FAIL;
    b->delivery = is_retry(m->kind) ? m->owner : 0;
    b->state = DELIVERY_DELAYED;
    b->tries = m->tries;
    b->due_ms = clock_wall_ms(g->env.clock) + STOPPED_LANE_MS;
    b->reason = "LANE_STOPPED";
}

static void take_held(struct engine *g)
{
    struct book *b = &g->book;
    struct bus_message held[BOOK_BATCH];
    size_t n = flight_take_held(&g->flight, held, BOOK_BATCH - b->batch_count);
    for (size_t i = 0; i < n; i++)
        book_held(g, &held[i]);
    atomic_fetch_add(&b->waiting, n);
}

/* ---- the transaction ---- */

struct writing {
    struct engine *g;
    size_t claims_max;
    int64_t now_ms;
    uint64_t epoch;
};

static enum err run_write(struct tx *tx, void *arg)
{
    struct writing *w = arg;
    struct book *b = &w->g->book;
    enum err e = OK;
    for (size_t i = 0; i < b->batch_count; i++)
        b->bookings[i] = b->batch[i].booking;
    if (b->batch_count)
        e = book_write(tx, b->bookings, b->batch_count, w->epoch, w->now_ms);
    if (w->claims_max)
        b->claim_count = b->claim_next = 0;
    if (!e && w->claims_max)
        e = book_claim(tx, w->epoch, w->now_ms, w->g->config.lease_ms, b->claims, w->claims_max,
                       &b->claim_count);
    if (!e)
        e = book_next_due(tx, &b->next_due_ms);
    return e;
}

/* ---- after it ---- */

static enum trace_kind trace_of(const struct booking *b)
{
    switch (b->kind) {
    case BOOK_PARK:
        return TRACE_PARKED;
    case BOOK_WAIT:
        return TRACE_WAITING;
    default:
        return b->state == DELIVERY_DEAD      ? TRACE_DEAD
               : b->state == DELIVERY_DROPPED ? TRACE_DROPPED
                                              : TRACE_DELAYED;
    }
}

static void trace_booking(struct engine *g, const struct book_entry *entry, int64_t now_ms)
{
    const struct booking *b = &entry->booking;
    if (b->kind == BOOK_DONE || b->kind == BOOK_MOVE || b->kind == BOOK_SETTLE)
        return;
    struct trace_record record = {.event = b->event.id,
                                  .at_ms = now_ms,
                                  .n = b->state == DELIVERY_DELAYED && b->due_ms > now_ms
                                           ? (uint64_t)(b->due_ms - now_ms)
                                           : b->tries,
                                  .why = b->reason,
                                  .rule = entry->message.rule,
                                  .kind = (uint8_t)trace_of(b),
                                  .lane = (uint8_t)entry->message.lane};
    trace_add(&g->trace, &record, 1);
}

static void end_entry(struct engine *g, size_t i, int64_t now_us, int64_t now_ms)
{
    const struct book_entry *entry = &g->book.batch[i];
    const struct booking *b = &g->book.bookings[i];
    if (b->kind != BOOK_MOVE)
        forget_retry(&g->book, b->delivery);
    trace_booking(g, entry, now_ms);
    if (entry->on_bus)
        bus_ack(g->bus, &entry->message);
    if (entry->leaves) {
        bool dropped = b->kind == BOOK_FAIL && b->state == DELIVERY_DROPPED;
        struct flight_exit x = exit_of(&entry->message, dropped ? EXIT_DROPPED : EXIT_BOOKED);
        x.at_end = b->until == 0; /* what is left of the walk is on the books, or another goes on */
        if (flight_leave(&g->flight, &x, 1))
            engine_wake_up(g, ENGINE_RELAY);
        if (x.finished)
            engine_finished(g, &x, now_us);
    }
    if (b->order_key && b->key_is_free)
        flight_unblock(&g->flight, b->lane, b->order_key);
    if (entry->released) {
        atomic_store(&g->mark.trim_again, true);
        atomic_fetch_sub(&g->released, 1);
    }
}

/* ---- claims ---- */

static bool find_rule(struct engine *g, const struct claim *c, uint16_t *rule)
{
    for (uint16_t i = 0; i < g->rules_on_count[c->event.type]; i++) {
        *rule = g->rules_on[c->event.type][i];
        if (strcmp(g->rules[*rule].consumer, c->consumer) == 0)
            return true;
    }
    return false;
}

struct burying {
    uint64_t delivery;
    int64_t now_ms;
};

static enum err run_bury(struct tx *tx, void *arg)
{
    const struct burying *b = arg;
    return book_bury(tx, b->delivery, "UNKNOWN_CONSUMER", b->now_ms);
}

static bool stands_still(struct engine *g, enum lane lane)
{
    return engine_lane_is_stopped(g, lane) || engine_lane_is_braked(g, lane);
}

/* True: it is under way, or needs nothing. False: there is no room now. */
static bool begin_retry(struct engine *g, const struct claim *c, int64_t now_ms)
{
    struct book *b = &g->book;
    size_t place = place_of(b, c->delivery);
    if (b->retrying[place].delivery)
        return true; /* its message still waits somewhere */
    struct flight_aside aside = {.kind = c->forced ? SEAT_FORCED : SEAT_RETRY,
                                 .owner = c->delivery,
                                 .event = c->event,
                                 .tries = c->tries,
                                 .cursor = c->cursor,
                                 .until = c->until,
                                 .replay = c->replay};
    if (!find_rule(g, c, &aside.rule)) {
        struct burying burying = {c->delivery, now_ms};
        return engine_write(g, run_bury, &burying) == OK;
    }
    enum lane lane = flight_lane_of_retry(&g->flight, &aside);
    if (b->retrying_in[lane] >= LANE_RETRIES_MAX && stands_still(g, lane))
        return true; /* later, when its claim has ended: the other lanes' retries need the room */
    FAULT(retry_before_publish);
    enum aside_result begun = flight_begin_aside(&g->flight, &aside);
    if (begun == ASIDE_BEGUN) {
        b->retrying[place] = (struct book_retry){c->delivery, lane};
        b->retrying_count++;
        b->retrying_in[lane]++;
    }
    return begun != ASIDE_FULL; /* a busy one: its claim ends by itself */
}

/* ---- keys that others freed ---- */

struct open_keys {
    struct open_key *keys;
    size_t count, capacity;
};

static enum err read_open_keys(struct tx *tx, void *arg)
{
    struct open_keys *o = arg;
    struct open_key after = {0};
    o->count = 0;
    for (;;) {
        if (o->capacity - o->count < KEYS_A_READ) {
            o->capacity = o->capacity * 2 + KEYS_A_READ;
            o->keys = realloc(o->keys, o->capacity * sizeof *o->keys);
            CHECK(o->keys);
        }
        size_t n;
        enum err e = book_open_keys(tx, after, o->keys + o->count, KEYS_A_READ, &n);
        if (e)
            return e;
        o->count += n;
        if (n < KEYS_A_READ)
            return OK;
        after = o->keys[o->count - 1];
    }
}

static int compare_keys(const void *a, const void *b)
{
    const struct open_key *x = a, *y = b;
    if (x->lane != y->lane)
        return x->lane < y->lane ? -1 : 1;
    return x->key < y->key ? -1 : x->key > y->key;
}

static bool is_open(void *ctx, enum lane lane, uint64_t key)
{
    const struct open_keys *o = ctx;
    struct open_key wanted = {lane, key};
    return bsearch(&wanted, o->keys, o->count, sizeof wanted, compare_keys) != NULL;
}

static enum err check_blocked_keys(struct engine *g)
{
    struct open_keys o = {0};
    enum err e = db_read(g->env.db, read_open_keys, &o, NULL);
    if (!e) {
        qsort(o.keys, o.count, sizeof *o.keys, compare_keys);
        flight_recheck(&g->flight, is_open, &o);
    }
    free(o.keys);
    return e;
}

enum err book_recover(struct engine *g)
{
    struct open_keys o = {0};
    enum err e = db_read(g->env.db, read_open_keys, &o, NULL);
    for (size_t i = 0; !e && i < o.count; i++)
        flight_block(&g->flight, o.keys[i].lane, o.keys[i].key);
    free(o.keys);
    return e;
}

/* ---- the step ---- */

static size_t claims_wanted(struct engine *g, int64_t now_ms, int64_t now_us)
{
    struct book *b = &g->book;
    if (b->claim_next < b->claim_count || b->retrying_count >= RETRIES_MAX)
        return 0; /* those claimed first */
    bool look = now_us >= b->look_after_us && b->next_due_ms != INT64_MAX;
    if (!look && b->next_due_ms > now_ms)
        return 0;
    size_t room = RETRIES_MAX - b->retrying_count;
    return room < BOOK_CLAIMS ? room : BOOK_CLAIMS;
}

static void begin_claims(struct engine *g, int64_t now_ms)
{
    struct book *b = &g->book;
    size_t before = b->claim_next;
    while (b->claim_next < b->claim_count && begin_retry(g, &b->claims[b->claim_next], now_ms))
        b->claim_next++;
    if (b->claim_next != before)
        engine_wake_up(g, ENGINE_RELAY);
}

/* What somebody told us is still to be looked at, and what is told meanwhile as well. */
static void store_failed(struct book *b, bool changed, int64_t now_us, const char *message,
                         enum err e)
{
    if (changed)
        atomic_store(&b->changed, true);
    b->write_after_us = now_us + WRITE_AGAIN_US;
    if (now_us < b->log_after_us)
        return;
    b->log_after_us = now_us + LOG_AGAIN_US;
    log_error(message, LOG_CSTR("error", err_name(e)));
}

/* ---- shared ---- */

/* Entries that rest on what was done to the views wait until those are safe; the others do not wait
 * for them. Their order among themselves stays. */
static void set_unsafe_aside(struct book *b)
{
    struct book_entry kept[BOOK_BATCH];
    size_t n = 0, aside = 0;
    for (size_t i = 0; i < b->batch_count; i++) {
        if (!b->batch[i].in_views)
            b->batch[n++] = b->batch[i];
        else
            kept[aside++] = b->batch[i];
    }
    b->batch_count = n;
    pthread_mutex_lock(&b->lock);
    while (b->capacity - b->count < aside)
        grow(b);
    while (aside > 0) { /* before what came meanwhile */
        b->first = (b->first + b->capacity - 1) % b->capacity;
        b->entries[b->first] = kept[--aside];
        b->count++;
    }
    pthread_mutex_unlock(&b->lock);
}

/* The views are saved before anything is written that rests on them. */
static void make_safe(struct engine *g, int64_t now_us)
{
    struct book *b = &g->book;
    bool in_views = false;
    for (size_t i = 0; i < b->batch_count; i++)
        in_views |= b->batch[i].in_views;
    if (!in_views || !g->config.shared)
        return;
    if (engine_save_views(g) == OK)
        return;
    b->save_after_us = now_us + WRITE_AGAIN_US;
    set_unsafe_aside(b);
}

static enum err read_next_due(struct tx *tx, void *arg)
{
    return book_next_due(tx, arg);
}

/* Operators of other nodes change the books, too, and cannot tell us. */
static void look_for_others(struct engine *g, int64_t now_us)
{
    struct book *b = &g->book;
    if (!g->config.shared || now_us < b->others_after_us)
        return;
    b->others_after_us = now_us + LOOK_EVERY_US;
    int64_t due_ms;
    if (db_read(g->env.db, read_next_due, &due_ms, NULL) == OK && due_ms < b->next_due_ms) {
        b->next_due_ms = due_ms;
        atomic_store(&b->nothing_due, false);
    }
    struct flight_counts counts;
    flight_count(&g->flight, &counts);
    if (counts.blocked_keys)
        (void)check_blocked_keys(g); /* if it fails: in a second */
}

/* Writes what there is; true when it did anything. */
static bool work(struct engine *g, int64_t now_us)
{
    struct book *b = &g->book;
    if (now_us < b->write_after_us)
        return false;
    int64_t now_ms = clock_wall_ms(g->env.clock);
    look_for_others(g, now_us);
    if (b->batch_count == 0) /* a unit that waits to be booked leaves before its retry begins */
        begin_claims(g, now_ms);
    if (now_us < b->save_after_us)
        take_safe_entries(b);
    else
        take_entries(b);
    take_held(g);
    make_safe(g, now_us);
    struct writing w = {.g = g,
                        .claims_max = claims_wanted(g, now_ms, now_us),
                        .now_ms = now_ms,
                        .epoch = g->env.views->epoch};
    bool changed = atomic_load(&b->changed);
    if (changed) { /* in this order: at no moment do the two say that nothing is due */
        atomic_store(&b->nothing_due, false);
        atomic_store(&b->changed, false);
    }
    if (b->batch_count == 0 && w.claims_max == 0 && !changed)
        return false;
    FAULT(book_before_commit);
    enum err e = engine_write(g, run_write, &w);
    if (e) {
        store_failed(b, changed, now_us, "the books cannot be written", e);
        /* Claims that failed end by themselves. If nobody knows, they are begun: at worst without a
         * claim in truth, and then the next one finds them under way. */
        if (e != ERR_UNKNOWN_COMMIT && w.claims_max)
            b->claim_count = b->claim_next = 0;
        b->next_due_ms = LOOK_FIRST; /* what it read is not what is there */
        return false;
    }
    FAULT(book_after_commit);
    e = changed ? check_blocked_keys(g) : OK;
    if (e)
        store_failed(b, changed, now_us, "the keys on the books cannot be read", e);
    b->look_after_us = now_us + LOOK_EVERY_US;
    atomic_store(&b->nothing_due, b->next_due_ms == INT64_MAX);
    size_t written = b->batch_count;
    for (size_t i = 0; i < written; i++)
        end_entry(g, i, now_us, now_ms);
    b->batch_count = 0;
    atomic_fetch_sub(&b->waiting, written);
    begin_claims(g, now_ms);
    return written > 0 || (w.claims_max && b->claim_count > 0);
}

static int64_t next_look_us(struct engine *g, int64_t now_us)
{
    struct book *b = &g->book;
    int64_t now_ms = clock_wall_ms(g->env.clock);
    int64_t until_ms = b->next_due_ms == INT64_MAX ? LOOK_EVERY_US / 1000 : b->next_due_ms - now_ms;
    bool full = b->claim_next < b->claim_count || b->retrying_count >= RETRIES_MAX;
    if (until_ms > LOOK_EVERY_US / 1000 || full) /* full: those under way wake us when they end */
        until_ms = LOOK_EVERY_US / 1000;
    int64_t due_us = now_us + (until_ms > 1 ? until_ms : 1) * 1000;
    if (b->save_after_us > now_us && b->save_after_us < due_us)
        due_us = b->save_after_us;
    return b->write_after_us > due_us ? b->write_after_us : due_us;
}

static int64_t step(struct engine *g)
{
    int64_t now_us = clock_mono_us(g->env.clock);
    if (work(g, now_us))
        return now_us;
    atomic_store(&g->asleep[ENGINE_BOOKS], true);
    return work(g, now_us) ? now_us : next_look_us(g, now_us);
}

int64_t engine_book_step(struct engine *g)
{
    int64_t due_us;
    if (!engine_enter_leading(g, &due_us)) {
        atomic_store(&g->asleep[ENGINE_BOOKS], true);
        return due_us;
    }
    due_us = step(g);
    engine_exit(g);
    return due_us;
}

void engine_stir_books(struct engine *g)
{
    atomic_store(&g->book.changed, true);
    atomic_store(&g->mark.trim_again, true); /* a parked event that was given up is settled */
    engine_wake_up(g, ENGINE_BOOKS);
    engine_wake_up(g, ENGINE_RELAY);
}
