/* The recorder step: writes down what the workers could not deliver, claims what is
 * due again.
 *
 * One transaction does both, so a step costs one commit however much there is.
 * Only when it is durable do the messages end: acknowledged on the bus, their
 * work items out of the inflight set. If it fails the same records are written again
 * later; writing them twice changes nothing (delivery_store.h).
 *
 * Deliveries that were claimed are under way in this process until they are
 * recorded again (done, failed, moved on). The set of them is kept here, so that
 * a claim which ends in truth while its message still waits in a stopped lane
 * does not send a second one. */
#include "pipe/recorder.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/check.h"
#include "base/fault.h"
#include "base/log.h"
#include "base/sync.h"
#include "pipe/state.h"

enum {
    WRITE_AGAIN_US = 100 * 1000,
    LOOK_EVERY_US = 1000 * 1000, /* at the due times, in case the wall clock was set */
    KEYS_A_READ = 1024,
    STOPPED_LANE_MS = 60 * 1000, /* until what was put off for a stopped lane is due again */
    LOOK_FIRST =
        0, /* a due time: long ago, so what the delivery store holds is looked up at once */
};

/* ---- the queue ---- */

void recorder_init(struct recorder *b)
{
    *b = (struct recorder){.capacity = 64, .next_due_ms = LOOK_FIRST};
    b->write_after_us = b->log_after_us = b->look_after_us = INT64_MIN;
    b->others_after_us = b->save_after_us = INT64_MIN;
    b->entries = calloc(b->capacity, sizeof *b->entries);
    map_init(&b->retrying, sizeof(struct recorder_retry), sizeof(uint64_t));
    CHECK(b->entries && map_reserve(&b->retrying, RETRIES_MAX));
    lock_init_spinning(&b->lock);
}

void recorder_done(struct recorder *b)
{
    free(b->entries);
    map_done(&b->retrying);
    pthread_mutex_destroy(&b->lock);
}

static void grow(struct recorder *b)
{
    struct recorder_entry *grown = calloc(b->capacity * 2, sizeof *grown);
    CHECK(grown);
    for (size_t i = 0; i < b->count; i++)
        grown[i] = b->entries[(b->first + i) % b->capacity];
    free(b->entries);
    b->entries = grown;
    b->first = 0;
    b->capacity *= 2;
}

void recorder_forget(struct engine *g)
{
    struct recorder *b = &g->recorder;
    for (size_t i = 0; i < b->batch_count; i++) {
        if (b->batch[i].on_bus)
            bus_ack(g->bus, &b->batch[i].message);
    }
    for (size_t i = 0; i < b->count; i++) {
        const struct recorder_entry *entry = &b->entries[(b->first + i) % b->capacity];
        if (entry->on_bus)
            bus_ack(g->bus, &entry->message);
    }
    recorder_done(b);
    recorder_init(b);
}

bool recorder_add(struct recorder *b, const struct recorder_entry *entry, bool force)
{
    pthread_mutex_lock(&b->lock);
    bool room = force || b->count < RECORDER_QUEUE_MAX;
    if (room) {
        if (b->count == b->capacity)
            grow(b);
        b->entries[(b->first + b->count++) % b->capacity] = *entry;
        atomic_fetch_add(&b->waiting, 1);
    }
    pthread_mutex_unlock(&b->lock);
    return room;
}

static struct recorder_entry *pop(struct recorder *b)
{
    struct recorder_entry *entry = &b->entries[b->first];
    b->first = (b->first + 1) % b->capacity;
    b->count--;
    return entry;
}

/* While the views cannot be saved only those that need not wait for it are taken; the others stay,
 * in order. */
static void take_entries(struct recorder *b, bool safe_only)
{
    pthread_mutex_lock(&b->lock);
    for (size_t n = b->count; n > 0 && (safe_only || b->batch_count < RECORDER_BATCH); n--) {
        struct recorder_entry *entry = pop(b);
        if (b->batch_count < RECORDER_BATCH && !(safe_only && entry->in_views)) {
            b->batch[b->batch_count++] = *entry;
            continue;
        }
        struct recorder_entry kept = *entry; /* its place may be the last one's */
        b->entries[(b->first + b->count++) % b->capacity] = kept;
    }
    pthread_mutex_unlock(&b->lock);
}

/* ---- deliveries under way ---- */

static void forget_retry(struct recorder *b, uint64_t delivery)
{
    struct recorder_retry *r = map_find(&b->retrying, &delivery);
    if (!r)
        return;
    b->retrying_in[r->lane]--;
    map_remove(&b->retrying, r);
}

/* ---- what is blocked in the inflight set ---- */

static void record_blocked(struct engine *g, const struct bus_message *m)
{
    struct recorder_entry *entry = &g->recorder.batch[g->recorder.batch_count++];
    *entry = (struct recorder_entry){.message = *m, .leaves = true};
    struct delivery_record *b = &entry->delivery_record;
    if (m->rule == RULE_NONE) {
        b->kind = RECORD_PARK;
        b->event = m->event;
        b->reason = event_unread_name((enum event_unread)m->event.value);
        return;
    }
    if (lane_is_ordered(g->rules[m->rule].lane)) {
        *b = record_of(g, m, RECORD_WAIT);
        b->delivery = 0;
        b->reason = "BEHIND_ITS_KEY";
        return;
    }
    *b = record_of(g, m, RECORD_FAIL);
    b->state = DELIVERY_DELAYED;
    b->tries = m->tries;
    b->due_ms = clock_wall_ms(g->env.clock) + STOPPED_LANE_MS;
    b->reason = "LANE_STOPPED";
}

static void take_blocked(struct engine *g)
{
    struct recorder *b = &g->recorder;
    struct bus_message blocked[RECORDER_BATCH];
    size_t n = inflight_take_blocked(&g->inflight, blocked, RECORDER_BATCH - b->batch_count);
    for (size_t i = 0; i < n; i++)
        record_blocked(g, &blocked[i]);
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
    struct recorder *b = &w->g->recorder;
    enum err e = OK;
    for (size_t i = 0; i < b->batch_count; i++)
        b->records[i] = b->batch[i].delivery_record;
    if (b->batch_count)
        e = delivery_store_write(tx, b->records, b->batch_count, w->epoch, w->now_ms);
    if (w->claims_max)
        b->claim_count = b->claim_next = 0;
    if (!e && w->claims_max)
        e = delivery_store_claim(tx, w->epoch, w->now_ms, w->g->config.lease_ms, b->claims,
                                 w->claims_max, &b->claim_count);
    if (!e)
        e = delivery_store_next_due(tx, &b->next_due_ms);
    return e;
}

/* ---- after it ---- */

static enum trace_kind trace_of(const struct delivery_record *b)
{
    switch (b->kind) {
    case RECORD_PARK:
        return TRACE_PARKED;
    case RECORD_WAIT:
        return TRACE_WAITING;
    default:
        return b->state == DELIVERY_DEAD      ? TRACE_DEAD
               : b->state == DELIVERY_DROPPED ? TRACE_DROPPED
                                              : TRACE_DELAYED;
    }
}

static void trace_recorded(struct engine *g, const struct recorder_entry *entry, int64_t now_ms)
{
    const struct delivery_record *b = &entry->delivery_record;
    if (b->kind == RECORD_DONE || b->kind == RECORD_MOVE || b->kind == RECORD_SETTLE)
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
    const struct recorder_entry *entry = &g->recorder.batch[i];
    const struct delivery_record *b = &g->recorder.records[i];
    if (b->kind != RECORD_MOVE)
        forget_retry(&g->recorder, b->delivery);
    trace_recorded(g, entry, now_ms);
    if (entry->on_bus)
        bus_ack(g->bus, &entry->message);
    if (entry->leaves) {
        bool dropped = b->kind == RECORD_FAIL && b->state == DELIVERY_DROPPED;
        struct inflight_exit x = exit_of(&entry->message, dropped ? EXIT_DROPPED : EXIT_RECORDED);
        x.at_end = b->until == 0; /* the rest of the walk is in the delivery store, or another item
                                     continues it */
        if (inflight_leave(&g->inflight, &x, 1))
            engine_wake_up(g, ENGINE_RELAY);
        if (x.finished)
            engine_finished(g, &x, now_us);
    }
    if (b->order_key && b->key_is_free)
        inflight_unblock_key(&g->inflight, b->lane, b->order_key);
    if (entry->released) {
        atomic_store(&g->watermark.trim_again, true);
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
    return delivery_store_bury(tx, b->delivery, "UNKNOWN_CONSUMER", b->now_ms);
}

static bool stands_still(struct engine *g, enum lane lane)
{
    return engine_lane_is_stopped(g, lane) || engine_lane_is_guarded(g, lane);
}

/* True: it is under way, or needs nothing. False: there is no room now. */
static bool begin_retry(struct engine *g, const struct claim *c, int64_t now_ms)
{
    struct recorder *b = &g->recorder;
    if (map_find(&b->retrying, &c->delivery))
        return true; /* its message still waits somewhere */
    struct out_of_band_event out_of_band = {.kind = c->forced ? SLOT_FORCED : SLOT_RETRY,
                                            .owner = c->delivery,
                                            .event = c->event,
                                            .tries = c->tries,
                                            .cursor = c->cursor,
                                            .until = c->until,
                                            .replay = c->replay};
    if (!find_rule(g, c, &out_of_band.rule)) {
        struct burying burying = {c->delivery, now_ms};
        return engine_write(g, run_bury, &burying) == OK;
    }
    enum lane lane = inflight_lane_of_retry(&g->inflight, &out_of_band);
    if (b->retrying_in[lane] >= LANE_RETRIES_MAX && stands_still(g, lane))
        return true; /* later, when its claim has ended: the other lanes' retries need the room */
    FAULT(retry_before_publish);
    enum out_of_band_result begun = inflight_begin_out_of_band(&g->inflight, &out_of_band);
    if (begun == OUT_OF_BAND_BEGUN) {
        struct recorder_retry *r = map_put(&b->retrying, &c->delivery, NULL);
        CHECK(r);
        r->lane = lane;
        b->retrying_in[lane]++;
    }
    return begun != OUT_OF_BAND_FULL; /* a busy one: its claim ends by itself */
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
        TRY(delivery_store_open_keys(tx, after, o->keys + o->count, KEYS_A_READ, &n));
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
        inflight_recheck_keys(&g->inflight, is_open, &o);
    }
    free(o.keys);
    return e;
}

enum err recorder_recover(struct engine *g)
{
    struct open_keys o = {0};
    enum err e = db_read(g->env.db, read_open_keys, &o, NULL);
    for (size_t i = 0; !e && i < o.count; i++)
        inflight_block_key(&g->inflight, o.keys[i].lane, o.keys[i].key);
    free(o.keys);
    return e;
}

/* ---- the step ---- */

static size_t claims_wanted(struct engine *g, int64_t now_ms, int64_t now_us)
{
    struct recorder *b = &g->recorder;
    if (b->claim_next < b->claim_count || b->retrying.count >= RETRIES_MAX)
        return 0; /* those claimed first */
    bool look = now_us >= b->look_after_us && b->next_due_ms != INT64_MAX;
    if (!look && b->next_due_ms > now_ms)
        return 0;
    size_t room = RETRIES_MAX - b->retrying.count;
    return room < RECORDER_CLAIMS ? room : RECORDER_CLAIMS;
}

static void begin_claims(struct engine *g, int64_t now_ms)
{
    struct recorder *b = &g->recorder;
    size_t before = b->claim_next;
    while (b->claim_next < b->claim_count && begin_retry(g, &b->claims[b->claim_next], now_ms))
        b->claim_next++;
    if (b->claim_next != before)
        engine_wake_up(g, ENGINE_RELAY);
}

/* Changes that were signalled are still to be read, and so are those signalled meanwhile. */
static void store_failed(struct recorder *b, bool changed, int64_t now_us, const char *message,
                         enum err e)
{
    if (changed)
        atomic_store(&b->changed, true);
    b->write_after_us = now_us + WRITE_AGAIN_US;
    engine_complain(&b->log_after_us, now_us, message, LOG_CSTR("error", err_name(e)));
}

/* ---- shared ---- */

/* Entries that rest on what was done to the views wait until those are safe; the others do not wait
 * for them. Their order among themselves stays. */
static void postpone_unsafe(struct recorder *b)
{
    struct recorder_entry kept[RECORDER_BATCH];
    size_t n = 0, postponed = 0;
    for (size_t i = 0; i < b->batch_count; i++) {
        if (!b->batch[i].in_views)
            b->batch[n++] = b->batch[i];
        else
            kept[postponed++] = b->batch[i];
    }
    b->batch_count = n;
    pthread_mutex_lock(&b->lock);
    while (b->capacity - b->count < postponed)
        grow(b);
    while (postponed > 0) { /* before what came meanwhile */
        b->first = (b->first + b->capacity - 1) % b->capacity;
        b->entries[b->first] = kept[--postponed];
        b->count++;
    }
    pthread_mutex_unlock(&b->lock);
}

/* The views are saved before anything is written that rests on them. */
static void make_safe(struct engine *g, int64_t now_us)
{
    struct recorder *b = &g->recorder;
    bool in_views = false;
    for (size_t i = 0; i < b->batch_count; i++)
        in_views |= b->batch[i].in_views;
    if (!in_views || !g->config.shared)
        return;
    if (engine_save_views(g) == OK)
        return;
    b->save_after_us = now_us + WRITE_AGAIN_US;
    postpone_unsafe(b);
}

static enum err read_next_due(struct tx *tx, void *arg)
{
    return delivery_store_next_due(tx, arg);
}

/* Operators of other nodes change the delivery store, too, without a signal to this one. */
static void look_for_others(struct engine *g, int64_t now_us)
{
    struct recorder *b = &g->recorder;
    if (!g->config.shared || now_us < b->others_after_us)
        return;
    b->others_after_us = now_us + LOOK_EVERY_US;
    int64_t due_ms;
    if (db_read(g->env.db, read_next_due, &due_ms, NULL) == OK && due_ms < b->next_due_ms) {
        b->next_due_ms = due_ms;
        atomic_store(&b->nothing_due, false);
    }
    struct inflight_counts counts;
    inflight_count(&g->inflight, &counts);
    if (counts.blocked_keys)
        (void)check_blocked_keys(g); /* if it fails: in a second */
}

static bool write_batch(struct engine *g, int64_t now_us)
{
    struct recorder *b = &g->recorder;
    int64_t now_ms = clock_wall_ms(g->env.clock);
    look_for_others(g, now_us);
    if (b->batch_count ==
        0) /* a work item that waits to be recorded leaves before its retry begins */
        begin_claims(g, now_ms);
    take_entries(b, now_us < b->save_after_us);
    take_blocked(g);
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
    FAULT(record_before_commit);
    enum err e = engine_write(g, run_write, &w);
    if (e) {
        store_failed(b, changed, now_us, "the delivery store cannot be written", e);
        /* Claims that failed end by themselves. If the outcome is unknown, they are begun: at worst
         * without a claim in truth, and then the next one finds them under way. */
        if (e != ERR_UNKNOWN_COMMIT && w.claims_max)
            b->claim_count = b->claim_next = 0;
        b->next_due_ms = LOOK_FIRST; /* what it read is not what is there */
        return false;
    }
    FAULT(record_after_commit);
    e = changed ? check_blocked_keys(g) : OK;
    if (e)
        store_failed(b, changed, now_us, "the keys in the delivery store cannot be read", e);
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
    struct recorder *b = &g->recorder;
    int64_t now_ms = clock_wall_ms(g->env.clock);
    int64_t until_ms = b->next_due_ms == INT64_MAX ? LOOK_EVERY_US / 1000 : b->next_due_ms - now_ms;
    bool full = b->claim_next < b->claim_count || b->retrying.count >= RETRIES_MAX;
    if (until_ms > LOOK_EVERY_US / 1000 || full) /* full: those under way wake us when they end */
        until_ms = LOOK_EVERY_US / 1000;
    int64_t due_us = now_us + (until_ms > 1 ? until_ms : 1) * 1000;
    if (b->save_after_us > now_us && b->save_after_us < due_us)
        due_us = b->save_after_us;
    return b->write_after_us > due_us ? b->write_after_us : due_us;
}

/* Writes what there is; true when it did anything. */
static bool work(struct engine *g, int64_t now_us, int64_t *due_us)
{
    bool worked = now_us >= g->recorder.write_after_us && write_batch(g, now_us);
    *due_us = next_look_us(g, now_us);
    return worked;
}

static int64_t step(struct engine *g)
{
    return engine_work_step(g, ENGINE_RECORDER, work);
}

int64_t engine_recorder_step(struct engine *g)
{
    return engine_lead_step(g, &g->asleep[ENGINE_RECORDER], step);
}

void engine_stir_recorder(struct engine *g)
{
    atomic_store(&g->recorder.changed, true);
    atomic_store(&g->watermark.trim_again, true); /* a parked event that was given up is settled */
    engine_wake_up(g, ENGINE_RECORDER);
    engine_wake_up(g, ENGINE_RELAY);
}
