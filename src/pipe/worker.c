/* The workers: take messages, read a page of the audience, deliver it through
 * the rule's sink.
 *
 * Lanes are served in the order of their table, each behind its breaker and its
 * gate. A message is either acknowledged, with everything it stood for
 * delivered or handed on, or goes to the delivery store; so no work item of an event is ever
 * lost, and the event is done when its last work item is.
 *
 * Spreading one large fan-out: the continuation goes on the bus before the page
 * is delivered, and another worker takes it at once. That is the hopeful way.
 * Where it could do harm the page is delivered first and the work item itself moves
 * on (the careful way, one message at a time):
 *  - where order matters;
 *  - while the event's deliveries fail: hopeful continuations would put as many
 * deliveries in the delivery store as the fan-out has pages; carefully, the first that
 * fails takes all the rest with it;
 *  - for a retry: it is one delivery in the delivery store and knows how far it got.
 *
 * Where the views are behind a network a small fan-out is two trips and hardly any work. So what a
 * step takes from the small lane goes together: one trip for all audiences, one delivery to all of
 * those that were read as a whole. Whatever does not fit that, or fails, is worked on by itself. */
#include "pipe/worker.h"
#include "base/fault.h"
#include "base/log.h"

enum {
    MESSAGE_WEIGHT = 16,            /* what a message costs at least, in members */
    TOGETHER_MEMBERS = 32,          /* of an audience that is delivered to together with others */
    REPORT_AGAIN_US = 100 * 1000,   /* until a work item whose outcome could not be reported is
                                       tried again */
    UNKNOWN_AGAIN_US = 5000 * 1000, /* until a work item that only newer programs know */
};

/* ---- telling ---- */

/* Is the work item of our own inflight? */
static bool is_ours(struct engine *g, const struct bus_message *m)
{
    return !g->config.shared || (atomic_load(&g->leads) &&
                                 m->term == atomic_load_explicit(&g->term, memory_order_relaxed));
}

/* To the node that leads. */
static bool report(struct engine *g, const struct bus_message *m, const struct bus_report *r)
{
    struct bus_message told = *m;
    told.lane = ENGINE_REPORTS;
    told.report = *r;
    told.report.node = g->config.node;
    return bus_publish(g->bus, &told) == OK;
}

/* Of another node's work item: the work was ours. */
static void count_work(struct outcomes *o, const struct bus_report *r)
{
    o->delivered += r->delivered;
    o->repeated += r->repeated + r->duplicates;
    o->skipped += r->skipped;
    o->failed += r->kind == REPORT_FAILED;
}

/* The work item ends here. When the leader cannot be reached, the item comes again soon: doing it
 * twice is harmless, and the leader would send it again anyway. */
static void tell_outcome(struct engine *g, struct tally *t, const struct bus_message *m,
                         const struct bus_report *r, const char *why)
{
    if (!is_ours(g, m)) {
        count_work(&t->o, r);
        if (report(g, m, r))
            bus_ack(g->bus, m);
        else
            bus_retry(g->bus, m, t->o.now_us + REPORT_AGAIN_US);
        return;
    }
    switch (outcome_apply(g, &t->o, m, r, why, true)) {
    case OUTCOME_TOLD:
        bus_ack(g->bus, m);
        break;
    case OUTCOME_RECORDED:
        break;
    case OUTCOME_NO_ROOM: {
        struct bus_message again = *m;
        if (r->ahead) /* what follows is handed on */
            again.until = inflight_until(&g->inflight, m);
        inflight_put_down(&g->inflight, m);
        bus_retry(g->bus, &again, t->o.now_us + OUTCOME_AGAIN_US);
        break;
    }
    }
}

/* The optimistic way: another worker may continue after this page at once. False: the leader could
 * not be reached. */
static bool go_ahead(struct engine *g, struct tally *t, const struct bus_message *m,
                     const struct audience_cursor *cursor, uint32_t expected)
{
    const struct bus_report r = {.kind = REPORT_AHEAD, .next = cursor->after, .members = expected};
    if (!is_ours(g, m))
        return report(g, m, &r);
    outcome_apply(g, &t->o, m, &r, NULL, true);
    return true;
}

void worker_fail(struct engine *g, struct tally *t, const struct bus_message *m,
                 struct bus_report *r, enum err e)
{
    t->failed_keys[t->failed++] = m->event.actor;
    t->error = e;
    r->kind = REPORT_FAILED;
    r->error = (uint8_t)e;
    if (engine_may_log(&g->lanes[m->lane].log_after_us, t->o.now_us))
        log_warn("a delivery failed", LOG_CSTR("lane", lane_name((enum lane)m->lane)),
                 LOG_CSTR("consumer", g->rules[m->rule].consumer), LOG_ID("event", m->event.id),
                 LOG_INT("tries", m->tries + 1), LOG_CSTR("error", err_name(e)),
                 LOG_CSTR("cause", err_cause()[0] ? err_cause() : err_title(e)));
    tell_outcome(g, t, m, r, err_cause());
}

/* ---- one message ---- */

/* Other nodes' work items: while their event is failing the leader does not hand on what they tell.
 */
static bool must_be_careful(struct engine *g, const struct bus_message *m)
{
    return lane_is_ordered(g->rules[m->rule].lane) || is_retry(m->kind) || m->until ||
           lane_rows[m->lane].pool != POOL_VIEWS || /* so many at a time, and no more */
           (is_ours(g, m) &&
            atomic_load_explicit(&inflight_slot(&g->inflight, (uint32_t)m->slot)->failing,
                                 memory_order_relaxed));
}

/* A page of `n` members was delivered. */
void worker_succeed(struct engine *g, struct tally *t, const struct bus_message *m,
                    struct bus_report *r, size_t n, const struct delivered *a)
{
    bool walks = rule_walks(&g->rules[m->rule]);
    t->succeeded++;
    r->members = walks ? (uint32_t)n : 0;
    r->delivered = (uint32_t)a->result.delivered;
    r->repeated = (uint32_t)a->result.repeated;
    r->skipped = (uint32_t)a->result.skipped;
    r->duplicates = (uint32_t)a->duplicates;
    if (!walks && a->result.again)
        r->kind = REPORT_AGAIN;
    else
        r->kind = !r->at_end && !r->ahead ? REPORT_MOVED : REPORT_DONE;
    tell_outcome(g, t, m, r, a->result.skipped_as);
}

static void deliver_page(struct engine *g, struct tally *t, const struct bus_message *m,
                         const struct event *event, const struct audience_cursor *cursor,
                         const uint64_t *members, size_t n)
{
    bool walks = rule_walks(&g->rules[m->rule]);
    t->weight += walks ? n : WORKER_MEMBERS;
    bool last = audience_is_last(m, cursor);
    bool ahead = !last && !must_be_careful(g, m);
    struct audience_estimate whole = {0};
    if (ahead && m->cursor.part == AUDIENCE_ALL) /* of a part it was made when it was split */
        whole = audience_estimate(g, m, event, cursor, members, n);
    ahead = ahead && go_ahead(g, t, m, cursor, whole.members);
    struct bus_report r = {.next = cursor->after, .ahead = ahead, .at_end = last};
    struct delivered a;
    err_cause_clear();
    enum err e = deliver_once(g, m, event, members, n, &a);
    if (!e)
        e = announce_page(g, m, event, members, n, &a.result);
    if (e) {
        r.asked_ms = a.result.retry_after_ms;
        r.at_end = false;
        worker_fail(g, t, m, &r, e);
        return;
    }
    worker_succeed(g, t, m, &r, n, &a);
}

/* Work items of former leaders are void, and what this program does not know is left to programs
 * that do. */
static bool is_passed_over(struct engine *g, struct tally *t, const struct bus_message *m)
{
    if (!engine_knows_term(g, m->term)) {
        atomic_fetch_add(&g->stale, 1);
        bus_ack(g->bus, m);
        return true;
    }
    if (m->rule >= g->rule_count || g->rules[m->rule].on != m->event.type) {
        atomic_fetch_add(&g->unknown_rules, 1);
        bus_retry(g->bus, m, t->o.now_us + UNKNOWN_AGAIN_US);
        return true;
    }
    return false;
}

/* Before a work item of our own inflight is worked on. */
static bool take_up(struct engine *g, struct tally *t, const struct bus_message *m)
{
    if (engine_may_repeat(g) && !inflight_take_up(&g->inflight, m)) {
        atomic_fetch_add(&g->bus_duplicates, 1);
        outcome_note(&t->o, m, TRACE_DUPLICATE, 1, 0, "the bus brought it twice");
        bus_ack(g->bus, m);
        return false;
    }
    if (!outcome_allows(g, m)) {
        const struct bus_report r = {.kind = REPORT_DONE, .at_end = true, .suppressed = 1};
        outcome_note(&t->o, m, TRACE_SUPPRESSED, 1, 0, "the replay may not use this channel");
        tell_outcome(g, t, m, &r, NULL);
        return false;
    }
    return true;
}

/* False: there is nothing to be done. */
bool worker_begin_message(struct engine *g, struct tally *t, const struct bus_message *m)
{
    t->weight += MESSAGE_WEIGHT;
    return !(g->config.shared && is_passed_over(g, t, m)) && (!is_ours(g, m) || take_up(g, t, m));
}

static void work_message(struct engine *g, struct tally *t, const struct bus_message *m)
{
    uint64_t members[ENGINE_BATCH_MAX];
    char memory[EVENT_PAYLOAD_MAX];
    struct event event;
    struct audience_cursor cursor;
    struct bus_report r = {0};
    size_t n;
    err_cause_clear();
    enum err e = audience_event(g, m, memory, &event);
    if (!e)
        e = audience_page(g, m, &event, &cursor, members, &n);
    if (e) {
        worker_fail(g, t, m, &r, e);
    } else if (audience_is_large(g, m, &cursor)) {
        struct audience_estimate whole = audience_estimate(g, m, &event, &cursor, members, n);
        r.kind = REPORT_SPLIT;
        r.members = whole.members;
        r.delivered = whole.active;
        r.skipped = whole.audience;
        tell_outcome(g, t, m, &r, NULL);
    } else {
        deliver_page(g, t, m, &event, &cursor, members, n);
    }
}

/* ---- several messages ---- */

/* What a step has taken; only what is left of it is worked on together. */
struct crowd {
    size_t count;
    struct bus_message messages[WORKER_MESSAGES];
    struct audience_page pages[WORKER_MESSAGES];
    struct sink_call calls[WORKER_MESSAGES];
    uint64_t members[WORKER_MESSAGES][TOGETHER_MEMBERS];
};

static bool may_go_together(struct engine *g, const struct bus_message *m)
{
    const struct rule *rule = &g->rules[m->rule];
    return rule->sinks && rule->dedup == DEDUP_OFF && rule_walks(rule) && !rule->reads_data &&
           !is_retry(m->kind) && m->until == 0;
}

/* Keeps those whose audience was read as a whole; the others are worked on by themselves. */
static void read_audiences(struct engine *g, struct tally *t, struct crowd *c)
{
    const struct rule *rule = &g->rules[c->messages[0].rule];
    const struct event *events[WORKER_MESSAGES];
    size_t kept = 0;
    for (size_t i = 0; i < c->count; i++) {
        events[i] = &c->messages[i].event;
        c->pages[i] = (struct audience_page){
            .cursor = c->messages[i].cursor,
            .members = c->members[i],
            .max = rule->batch < TOGETHER_MEMBERS ? rule->batch : TOGETHER_MEMBERS};
    }
    rule->audience->pages(&g->env, events, c->pages, c->count);
    for (size_t i = 0; i < c->count; i++) {
        struct audience_page *p = &c->pages[i];
        const struct bus_message *m = &c->messages[i];
        enum err e = p->error;
        if (!e && p->cursor.end)
            e = FAULT_ASKED(g->rules[m->rule].consumer, m->event.actor);
        if (e || !p->cursor.end) {
            work_message(g, t, m);
            continue;
        }
        c->messages[kept] = *m;
        c->pages[kept++] = *p; /* its members stay where they are */
    }
    c->count = kept;
}

/* All of one rule: a step is of one lane, and a crowd of one rule. */
static void deliver_together(struct engine *g, struct tally *t, struct crowd *c)
{
    for (size_t i = 0; i < c->count; i++)
        c->calls[i] = (struct sink_call){
            .event = &c->messages[i].event, .members = c->pages[i].members, .n = c->pages[i].n};
    FAULT(batch_before_sink);
    enum err e = g->rules[c->messages[0].rule].sinks(&g->env, c->calls, c->count);
    FAULT(batch_after_sink);
    if (!e)
        e = announce_pages(g, c->messages[0].rule, c->calls, c->count);
    for (size_t i = 0; i < c->count; i++) {
        const struct bus_message *m = &c->messages[i];
        if (e) {
            deliver_page(g, t, m, &m->event, &c->pages[i].cursor, c->pages[i].members,
                         c->pages[i].n);
            continue;
        }
        struct bus_report r = {.next = c->pages[i].cursor.after, .at_end = true};
        t->weight += c->pages[i].n;
        worker_succeed(g, t, m, &r, c->pages[i].n,
                       &(struct delivered){.result = c->calls[i].result});
    }
}

/* Apart: its crowd is no burden on the stack of a step that has none. */
__attribute__((noinline)) static uint32_t work_together(struct engine *g, struct tally *t,
                                                        uint32_t granted)
{
    struct crowd c;
    struct bus_message m;
    uint32_t used = 0;
    c.count = 0;
    while (used < granted && t->weight < WORKER_MEMBERS &&
           bus_take(g->bus, (uint16_t)t->o.lane, t->o.now_us, &m)) {
        used++;
        if (!worker_begin_message(g, t, &m))
            continue;
        if (may_go_together(g, &m) && (c.count == 0 || c.messages[0].rule == m.rule))
            c.messages[c.count++] = m;
        else
            work_message(g, t, &m);
    }
    if (c.count == 1) {
        work_message(g, t, &c.messages[0]);
    } else if (c.count > 1) {
        read_audiences(g, t, &c);
        if (c.count > 0)
            deliver_together(g, t, &c);
    }
    return used;
}

static uint32_t work_one_by_one(struct engine *g, struct tally *t, uint32_t granted)
{
    struct bus_message m;
    uint32_t used = 0;
    while (used < granted && t->weight < WORKER_MEMBERS &&
           bus_take(g->bus, (uint16_t)t->o.lane, t->o.now_us, &m)) {
        used++;
        if (worker_begin_message(g, t, &m))
            work_message(g, t, &m);
    }
    return used;
}

/* ---- the end of a step ---- */

static void count_for_breaker(struct engine *g, struct tally *t)
{
    enum lane lane = t->o.lane;
    struct breaker *b = &g->lanes[lane].breaker;
    bool changed = false;
    if (t->succeeded)
        changed |= breaker_count(b, OK, t->succeeded, t->o.now_us, t->o.now_ms);
    for (uint32_t i = 0; i < t->failed; i++)
        changed |= breaker_fail(b, t->error, t->failed_keys[i], t->o.now_us, t->o.now_ms);
    if (!changed)
        return;
    struct breaker_look look;
    breaker_look(b, &look);
    if (look.state == BREAKER_OPEN)
        log_error("most deliveries of a lane fail for one reason; the lane is stopped",
                  LOG_CSTR("lane", lane_name(lane)), LOG_CSTR("reason", err_name(look.reason)),
                  LOG_INT("failed", look.failed), LOG_INT("of", look.total));
    else
        log_info("a stopped lane goes on", LOG_CSTR("lane", lane_name(lane)));
    engine_wake_lane(g, lane);
}

void worker_begin(struct engine *g, struct tally *t, enum lane lane, int64_t now_us)
{
    outcomes_begin(&t->o, lane, now_us, clock_wall_ms(g->env.clock));
    t->weight = 0;
    t->failed = t->succeeded = 0;
    t->error = OK;
}

void worker_end(struct engine *g, struct tally *t)
{
    count_for_breaker(g, t);
    outcomes_end(g, &t->o);
}

/* ---- the step ---- */

/* Works on the lane's next few messages; false when it has none that may be
 * worked on now. */
static bool work_lane(struct engine *g, enum lane lane, int64_t now_us, int64_t *due_us)
{
    /* A network may bring what is done already: it must be taken, or it fills the lane. */
    if (!engine_may_repeat(g) && atomic_load(&g->inflight.lane_items[lane]) == 0)
        return false;
    struct lane_gate *gate = &g->lanes[lane].gate;
    struct breaker *breaker = &g->lanes[lane].breaker;
    bool probe = false;
    if (!breaker_admits(breaker, now_us, &probe, due_us))
        return false;
    uint32_t granted = lane_gate_enter(gate, now_us, probe ? 1 : WORKER_MESSAGES, due_us);
    struct tally t;
    worker_begin(g, &t, lane, now_us);
    uint32_t used = lane_rows[lane].splits && g->env.views->remote
                        ? work_together(g, &t, granted)
                        : work_one_by_one(g, &t, granted);
    if (used)
        worker_end(g, &t);
    if (probe && t.failed + t.succeeded == 0)
        breaker_unused(breaker);
    bool was_full = granted && lane_gate_leave(gate, granted - used);
    if (used) {
        if (was_full) /* another worker may have been turned away at the gate */
            engine_wake_lane(g, lane);
        return true;
    }
    due_by(due_us, bus_next_due_us(g->bus, (uint16_t)lane));
    return false;
}

/* The pool's lanes, in its order. */
static bool work(struct engine *g, enum worker_pool pool, int64_t now_us, int64_t *due_us)
{
    size_t n;
    const enum lane *lanes = lanes_of_pool(pool, &n);
    *due_us = g->config.shared ? now_us + ENGINE_LOOK_US : INT64_MAX;
    for (size_t i = 0; i < n && !atomic_load(&g->paused); i++)
        if (!engine_lane_is_guarded(g, lanes[i]) && work_lane(g, lanes[i], now_us, due_us))
            return true;
    return false;
}

static bool work_on_views(struct engine *g, int64_t now_us, int64_t *due_us)
{
    return work(g, POOL_VIEWS, now_us, due_us);
}

static bool work_on_truth(struct engine *g, int64_t now_us, int64_t *due_us)
{
    return work(g, POOL_TRUTH, now_us, due_us);
}

static int64_t step(struct engine *g, enum engine_sleeper who,
                    bool (*pool)(struct engine *g, int64_t now_us, int64_t *due_us))
{
    engine_enter(g);
    int64_t due_us = engine_work_step(g, who, pool);
    engine_exit(g);
    return due_us;
}

int64_t engine_views_step(struct engine *g)
{
    return step(g, ENGINE_VIEWS, work_on_views);
}

int64_t engine_truth_step(struct engine *g)
{
    return step(g, ENGINE_TRUTH, work_on_truth);
}

int64_t engine_worker_step(struct engine *g)
{
    int64_t views_us = engine_views_step(g), truth_us = engine_truth_step(g);
    return views_us < truth_us ? views_us : truth_us;
}
