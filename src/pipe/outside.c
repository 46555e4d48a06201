/* The outside pool: requests to other servers, which take their time. Many are under way, none
 * holds a thread or a lock, and one transaction writes the claims or outcomes of many.
 *
 *     taken from the bus ─ claimed in one transaction ─ begun ─ ended ─ confirmed in another ─ done
 *
 * A claim is durable before its call begins, and a call is confirmed after it ended. A process that
 * dies in between leaves claims of calls whose outcome is unknown: the next try finds that, and the
 * delivery becomes a dead letter for an operator to decide (deliver_once.c says the same of one
 * call at a time). A call that certainly did not happen gives its claim back.
 *
 * A message is a page of members, each a call. Its outcome is reported when all of its calls have
 * ended; if any failed it is tried again as a whole, and the duplicate memory knows which were
 * done.
 *
 * Only the step touches items, except that a call that ends counts down its item's calls and hands
 * the item back when it was the last. */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/check.h"
#include "base/fault.h"
#include "pipe/worker.h"

enum {
    PAGE_MAX = 64,      /* calls of a message */
    CALLS_A_STEP = 512, /* begun, or settled, at most … */
    WAIT_MS = 20,       /* how often a drain looks */
};

struct outside_item;

struct item_call {
    struct outside_call call;
    struct outside_item *item;
    struct dedup_key key;
    enum dedup_answer answer;
};

struct outside_item {
    struct outside_item *next;
    struct outside_item *newer, *older; /* of all; the step's own */
    struct engine *g;
    struct bus_message m;
    struct event event; /* for its sink: with data, when the rule reads it */
    char memory[EVENT_PAYLOAD_MAX];
    struct audience_cursor cursor;
    enum err error; /* before any call began */
    _Atomic size_t open;
    size_t places; /* of its lane, until its outcome is reported */
    size_t count;
    struct item_call calls[];
};

static const struct rule *rule_of(const struct outside_item *item)
{
    return &item->g->rules[item->m.rule];
}

/* ---- ending ---- */

static void hand_back(struct outside_item *item)
{
    struct outside *o = &item->g->outside;
    pthread_mutex_lock(&o->lock);
    *o->last = item;
    o->last = &item->next;
    pthread_mutex_unlock(&o->lock);
    engine_wake_up(item->g, ENGINE_OUTSIDE);
}

static void call_ended(struct outside_call *call)
{
    struct item_call *c = CONTAINER_OF(call, struct item_call, call);
    if (atomic_fetch_sub(&c->item->open, 1) == 1)
        hand_back(c->item);
}

static struct outside_item *take_ended(struct outside *o)
{
    pthread_mutex_lock(&o->lock);
    struct outside_item *list = o->first;
    o->first = NULL;
    o->last = &o->first;
    pthread_mutex_unlock(&o->lock);
    return list;
}

/* Writes what is known of a call: it happened, or it did not. */
static enum err settle_call(struct tx *tx, const struct item_call *c)
{
    const struct rule *rule = rule_of(c->item);
    if (c->answer != DEDUP_NEW || rule->dedup == DEDUP_OFF ||
        err_class(c->call.error) == ERR_CLASS_RECONCILE)
        return OK;
    return c->call.error ? dedup_give_back(tx, rule->consumer, &c->key)
                         : dedup_confirm(tx, rule->consumer, &c->key);
}

static enum err run_settle(struct tx *tx, void *arg)
{
    enum err e = OK;
    for (struct outside_item *item = arg; item && !e; item = item->next)
        for (size_t i = 0; i < item->count && !e; i++)
            e = settle_call(tx, &item->calls[i]);
    return e;
}

static void tell(struct engine *g, struct tally *t, struct outside_item *item)
{
    struct delivered done = {0};
    struct bus_report r = {.next = item->cursor.after,
                           .at_end = audience_is_last(&item->m, &item->cursor)};
    enum err e = item->error;
    err_cause_clear(); /* of another item */
    for (size_t i = 0; i < item->count; i++) {
        struct item_call *c = &item->calls[i];
        enum err error = c->call.error;
        if (err_class(error) == ERR_CLASS_RECONCILE) {
            atomic_fetch_add(&g->dedup_unknown, 1);
            e = ERR_UNKNOWN_COMMIT;
        }
        e = e ? e : error;
        done.duplicates += c->answer == DEDUP_DONE;
        sink_result_add(&done.result, &c->call.result);
    }
    atomic_fetch_add(&g->dedup_duplicates, done.duplicates);
    if (e) {
        r.at_end = false;
        r.asked_ms = done.result.retry_after_ms;
        worker_fail(g, t, &item->m, &r, e);
    } else {
        worker_succeed(g, t, &item->m, &r, item->count, &done);
    }
}

static void item_free(struct outside_item *item)
{
    struct outside *o = &item->g->outside;
    *(item->newer ? &item->newer->older : &o->newest) = item->older;
    if (item->older)
        item->older->newer = item->newer;
    free(item);
}

/* All of one lane come together: a tally is of one. */
static void tell_all(struct engine *g, struct outside_item *list, int64_t now_us)
{
    while (list) {
        enum lane lane = (enum lane)list->m.lane;
        struct tally t;
        size_t told = 0;
        worker_begin(g, &t, lane, now_us);
        for (struct outside_item **at = &list; *at && told < WORKER_MESSAGES;) {
            struct outside_item *item = *at;
            if (item->m.lane != lane) {
                at = &item->next;
                continue;
            }
            *at = item->next;
            tell(g, &t, item);
            g->outside.lanes[lane] -= item->places;
            g->outside.calls -= item->places;
            item_free(item);
            told++;
        }
        worker_end(g, &t);
    }
}

/* A confirmation that fails changes nothing for this delivery: the act has happened. Only a
 * repeated one would ask, and find an unknown outcome. */
static bool settle(struct engine *g, int64_t now_us)
{
    struct outside_item *list = take_ended(&g->outside);
    if (!list)
        return false;
    FAULT(dedup_before_confirm);
    (void)db_write(g->env.db, run_settle, list, NULL);
    FAULT(batch_after_sink);
    tell_all(g, list, now_us);
    return true;
}

/* ---- beginning ---- */

static struct outside_item *item_new(struct engine *g, const struct bus_message *m)
{
    const struct rule *rule = &g->rules[m->rule];
    uint64_t members[PAGE_MAX];
    struct event event;
    struct outside_item *item = NULL;
    struct audience_cursor cursor = m->cursor;
    char memory[EVENT_PAYLOAD_MAX];
    size_t n = 0;
    enum err e = audience_event(g, m, memory, &event);
    if (!e)
        e = audience_page(g, m, &event, &cursor, members, &n);
    item = calloc(1, sizeof *item + n * sizeof *item->calls);
    CHECK(item);
    *item = (struct outside_item){.g = g, .m = *m, .event = event, .cursor = cursor, .error = e};
    item->count = item->places = e ? 0 : n;
    item->older = g->outside.newest;
    if (item->older)
        item->older->newer = item;
    g->outside.newest = item;
    if (event.data.len > 0) {
        memcpy(item->memory, event.data.ptr, event.data.len);
        item->event.data.ptr = item->memory;
    }
    for (size_t i = 0; i < item->count; i++) {
        struct item_call *c = &item->calls[i];
        c->item = item;
        c->answer = DEDUP_NEW;
        c->call =
            (struct outside_call){.event = &item->event, .member = members[i], .ended = call_ended};
        if (rule->dedup != DEDUP_OFF)
            dedup_key_of(rule, &item->event, members[i], &c->key);
    }
    return item;
}

struct claiming {
    struct engine *g;
    struct outside_item *list;
    struct dedup dedup;
    int64_t now_ms;
};

static enum err run_claims(struct tx *tx, void *arg)
{
    struct claiming *k = arg;
    k->dedup = engine_dedup(k->g);
    enum err e = dedup_begin(tx, &k->dedup, k->now_ms);
    for (struct outside_item *item = k->list; item && !e; item = item->next) {
        const struct rule *rule = rule_of(item);
        for (size_t i = 0; i < item->count && !e && rule->dedup != DEDUP_OFF; i++)
            e = claim_once(tx, &k->dedup, &item->m, rule->consumer, &item->calls[i].key, k->now_ms,
                           &item->calls[i].answer);
    }
    return e;
}

static void claim_all(struct engine *g, struct outside_item *list)
{
    struct claiming k = {.g = g, .list = list, .now_ms = clock_wall_ms(g->env.clock)};
    enum err e = db_write(g->env.db, run_claims, &k, NULL);
    if (!e) {
        engine_keep_dedup(g, &k.dedup);
        return;
    }
    /* A lost reply of our own store: trying again finds out. */
    for (struct outside_item *item = list; item; item = item->next) {
        item->error = e == ERR_UNKNOWN_COMMIT ? ERR_UNAVAILABLE : e;
        item->count = 0; /* nothing is begun, nothing is to be settled */
    }
}

/* The item may be gone when this returns. */
static void begin_calls(struct outside_item *item)
{
    struct engine *g = item->g;
    const struct rule *rule = rule_of(item);
    size_t n = item->count;
    atomic_store(&item->open, n + 1); /* one is ours: it stays until all have begun */
    for (size_t i = 0; i < n; i++) {
        struct item_call *c = &item->calls[i];
        enum err e = c->answer == DEDUP_NEW ? FAULT_ASKED(rule->consumer, item->event.actor) : OK;
        if (c->answer == DEDUP_UNKNOWN)
            e = ERR_UNKNOWN_COMMIT;
        if (e || c->answer == DEDUP_DONE)
            outside_end(&c->call, e);
        else
            rule->outside(&g->env, &c->call);
    }
    if (atomic_fetch_sub(&item->open, 1) == 1)
        hand_back(item);
}

/* Up to `max` messages of the lane; their calls are added to *calls. */
static uint32_t take_messages(struct engine *g, enum lane lane, uint32_t max, size_t room,
                              struct outside_item ***last, size_t *calls, int64_t now_us)
{
    struct tally t;
    struct bus_message m;
    uint32_t used = 0;
    worker_begin(g, &t, lane, now_us);
    max = max < WORKER_MESSAGES ? max : WORKER_MESSAGES;
    while (used < max && *calls < room && bus_take(g->bus, (uint16_t)lane, now_us, &m)) {
        used++;
        if (!worker_begin_message(g, &t, &m))
            continue;
        struct outside_item *item = item_new(g, &m);
        *calls += item->count;
        g->outside.lanes[lane] += item->count;
        g->outside.calls += item->count;
        **last = item;
        *last = &item->next;
    }
    worker_end(g, &t);
    return used;
}

/* The lane's concurrency counts calls. */
static bool take_lane(struct engine *g, enum lane lane, struct outside_item ***last, size_t *calls,
                      int64_t now_us, int64_t *due_us)
{
    struct lane_gate *gate = &g->lanes[lane].gate;
    uint32_t concurrency, rate, busy;
    bool probe = false;
    lane_gate_look(gate, &concurrency, &rate, &busy);
    size_t under_way = g->outside.lanes[lane];
    if (under_way >= concurrency ||
        !breaker_admits(&g->lanes[lane].breaker, now_us, &probe, due_us))
        return false;
    size_t room = *calls + (concurrency - under_way);
    room = room < CALLS_A_STEP ? room : CALLS_A_STEP;
    struct outside_item **before = *last;
    uint32_t granted = lane_gate_enter(gate, now_us, probe ? 1 : WORKER_MESSAGES, due_us);
    uint32_t used = granted ? take_messages(g, lane, granted, room, last, calls, now_us) : 0;
    if (granted)
        (void)lane_gate_leave(gate, granted - used);
    if (probe &&
        *last == before) /* a message without a call, such as a duplicate, proves nothing */
        breaker_unused(&g->lanes[lane].breaker);
    int64_t delayed_us = bus_next_due_us(g->bus, (uint16_t)lane);
    *due_us = used == 0 && delayed_us < *due_us ? delayed_us : *due_us;
    return used > 0;
}

static bool begin(struct engine *g, int64_t now_us, int64_t *due_us)
{
    struct outside_item *list = NULL, **last = &list, *next;
    size_t n, calls = 0;
    bool took = false;
    if (atomic_load(&g->paused) || atomic_load(&g->outside.draining))
        return false;
    const enum lane *lanes = lanes_of_pool(POOL_OUTSIDE, &n);
    for (size_t i = 0; i < n; i++)
        while (calls < CALLS_A_STEP && take_lane(g, lanes[i], &last, &calls, now_us, due_us))
            took = true;
    if (!list)
        return took;
    if (calls > 0) {
        claim_all(g, list);
        FAULT(dedup_after_claim);
    }
    for (struct outside_item *item = list; item; item = next) {
        next = item->next;
        item->next = NULL;
        begin_calls(item);
    }
    return true;
}

/* ---- the step ---- */

static bool work(struct engine *g, int64_t now_us, int64_t *due_us)
{
    *due_us = g->config.shared ? now_us + ENGINE_LOOK_US : INT64_MAX;
    bool settled = settle(g, now_us);
    return begin(g, now_us, due_us) || settled;
}

int64_t engine_outside_step(struct engine *g)
{
    engine_enter(g);
    int64_t due_us = engine_work_step(g, ENGINE_OUTSIDE, work);
    engine_exit(g);
    return due_us;
}

bool engine_outside_drain(struct engine *g, int64_t within_ms)
{
    int64_t until_us = clock_mono_us(g->env.clock) + within_ms * 1000;
    atomic_store(&g->outside.draining, true);
    for (;;) {
        engine_outside_step(g);
        if (g->outside.calls == 0)
            return true;
        if (clock_mono_us(g->env.clock) >= until_us)
            return false;
        usleep(WAIT_MS * 1000);
    }
}

void outside_init(struct outside *o)
{
    pthread_mutex_init(&o->lock, NULL);
    o->last = &o->first;
}

void outside_done(struct outside *o)
{
    /* Calls under way end without a report. */
    for (struct outside_item *item = o->newest, *older; item; item = older) {
        older = item->older;
        free(item);
    }
    pthread_mutex_destroy(&o->lock);
}
