/* See checker.h. Three sources: the history (every change of a delivery's row, every row that a
 * consumer in the store made, every outbox row removed, in commit order, written by triggers and so
 * exactly as durable as the change itself); the calls of sinks; the engine's own figures.
 *
 * A member who was not reached must be explained by a row of the delivery store for the same event
 * and consumer. Rows that are cleaned away after their retention still explain: they are
 * remembered. */
#include "checker.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/check.h"
#include "sim.h"

enum history_kind { ROW_ADDED = 1, ROW_CHANGED, ROW_REMOVED, ROW_MADE, OUTBOX_REMOVED };

static const int64_t ladder_ms[] = {2000, 8000, 32000, 128000, 240000, 240000};
static const int retries_of[] = {
    [PRIORITY_CRITICAL] = 6, [PRIORITY_NORMAL] = 4, [PRIORITY_LOW] = 2};

static const char *state_name(int state)
{
    return state ? delivery_state_name((enum delivery_state)state) : "nothing";
}

_Noreturn void checker_broken(struct sim *s, const char *what, const char *file, int line,
                              const char *format, ...)
{
    const char *base = strrchr(file, '/');
    fprintf(stderr, "not ok - seed %" PRIu64 ", %s:%d, at %.3f s: ", s->seed,
            base ? base + 1 : file, line, (double)s->clock.mono_us / 1e6);
    va_list args;
    va_start(args, format);
    vfprintf(stderr, format, args);
    va_end(args);
    fprintf(stderr, " (%s)\n", what);
    fflush(stdout);
    exit(1);
}

/* ---- the history ---- */

#define HISTORY_OF(when, row, kind)                                                                \
    "CREATE TRIGGER sim_" when " AFTER " when " ON deliveries BEGIN "                              \
    "INSERT INTO sim_history (what, delivery, event_id, consumer, order_key, after, until, "       \
    "replay, state, tries, due_at, changed_at, reason) VALUES (" kind ", " row ".id, " row         \
    ".event_id, " row ".consumer, " row ".order_key, " row ".after, " row ".until, " row           \
    ".replay, " row ".state, " row ".tries, " row ".due_at, " row ".changed_at, " row              \
    ".reason); END"

void checker_install(struct plain_db *store)
{
    plain_db_run(store, "CREATE TABLE sim_rows (event_id INTEGER, rule INTEGER)");
    plain_db_run(store,
                 "CREATE TABLE sim_history (n INTEGER PRIMARY KEY, what INTEGER, "
                 "delivery INTEGER, event_id INTEGER, consumer TEXT, order_key INTEGER, "
                 "after INTEGER, until INTEGER, replay INTEGER, state INTEGER, tries INTEGER, "
                 "due_at INTEGER, changed_at INTEGER, reason TEXT)");
    plain_db_run(store, HISTORY_OF("INSERT", "NEW", "1"));
    plain_db_run(store, HISTORY_OF("UPDATE", "NEW", "2"));
    plain_db_run(store, HISTORY_OF("DELETE", "OLD", "3"));
    plain_db_run(store, "CREATE TRIGGER sim_made AFTER INSERT ON sim_rows BEGIN "
                        "INSERT INTO sim_history (what, event_id, state) "
                        "VALUES (4, NEW.event_id, NEW.rule); END");
    plain_db_run(store, "CREATE TRIGGER sim_trimmed AFTER DELETE ON outbox BEGIN "
                        "INSERT INTO sim_history (what, event_id, state) "
                        "VALUES (5, OLD.id, OLD.state); END");
}

void checker_init(struct sim *s)
{
    struct checker *c = &s->checker;
    c->row_count = 0;
    c->read = 0;
    c->by_operator = false;
    for (size_t i = 0; i < COUNT_OF(c->first); i++)
        c->first[i] = -1;
    plain_db_run(s->store, "DELETE FROM sim_rows");
    plain_db_run(s->store, "DELETE FROM sim_history");
}

static struct checker_row *find_row(struct checker *c, uint64_t delivery)
{
    for (size_t i = c->row_count; i-- > 0;) {
        if (c->rows[i].delivery == delivery)
            return &c->rows[i];
    }
    return NULL;
}

/* The rule that a row belongs to; RULE_COUNT: a parked event has none. */
static size_t rule_of(const struct sim *s, const struct sim_event *e, const char *consumer)
{
    size_t rule = 0;
    while (rule < RULE_COUNT &&
           (s->rules[rule].on != e->type || strcmp(s->rules[rule].consumer, consumer) != 0))
        rule++;
    return rule;
}

static bool is_closed(int state)
{
    return state == DELIVERY_DONE || state == DELIVERY_DISCARDED || state == DELIVERY_DROPPED ||
           state == DELIVERY_RELEASED;
}

/* May the server, without an operator, bring a row from one state to another? */
static bool may_follow(int from, int to)
{
#define BIT(state) (1u << DELIVERY_##state)
    static const unsigned allowed[DELIVERY_STATES] = {
        [0] = BIT(DELAYED) | BIT(WAITING) | BIT(DEAD) | BIT(DROPPED) | BIT(PARKED),
        [DELIVERY_DELAYED] = BIT(DELAYED) | BIT(RETRYING) | BIT(WAITING) | BIT(DONE),
        [DELIVERY_RETRYING] = BIT(DELAYED) | BIT(RETRYING) | BIT(WAITING) | BIT(DEAD) | BIT(DONE) |
                              BIT(DROPPED) | BIT(PARKED),
        [DELIVERY_WAITING] = BIT(DELAYED) | BIT(WAITING) | BIT(DONE),
        [DELIVERY_DEAD] = BIT(DEAD) | BIT(DONE),
        [DELIVERY_PARKED] = BIT(PARKED),
    };
#undef BIT
    return allowed[from] >> to & 1;
}

static bool operator_may(int from, int to)
{
    if (from == DELIVERY_PARKED)
        return to == DELIVERY_RELEASED;
    if (from == DELIVERY_DEAD)
        return to == DELIVERY_DELAYED || to == DELIVERY_WAITING || to == DELIVERY_DISCARDED;
    return to == DELIVERY_DISCARDED && (from == DELIVERY_DELAYED || from == DELIVERY_WAITING);
}

static bool was_replayed(const struct sim *s, const char *consumer, const char *channel)
{
    for (size_t i = 0; i < s->job_count; i++) {
        const struct replay_spec *spec = &s->jobs[i].spec;
        bool allowed = !channel;
        for (size_t a = 0; a < spec->allow_count; a++)
            allowed |= channel && strcmp(spec->allow[a], channel) == 0;
        if (allowed && strcmp(spec->consumer, consumer) == 0)
            return true;
    }
    return false;
}

/* The next try is not due before the ladder's rung, nor before what the other side asked for. Only
 * for deliveries to one person: pages of a larger audience fail side by side. */
static void check_patience(struct sim *s, struct sim_event *e, size_t rule,
                           const struct checker_row *now)
{
    unsigned slot = sim_slot(s, rule);
    int64_t failed_ms = e->failed_ms[slot], asked_ms = e->patience_ms[slot];
    e->failed_ms[slot] = e->patience_ms[slot] = 0;
    if (s->clock_jumps || failed_ms == 0 || s->rules[rule].audience != TO_ACTOR ||
        now->state != DELIVERY_DELAYED || was_replayed(s, now->consumer, NULL))
        return;
    int64_t rung_ms = ladder_ms[now->tries - 1], wait_ms = now->due_ms - failed_ms;
    HOLDS(s, wait_ms >= rung_ms, "try %d comes after %" PRId64 " ms", now->tries, wait_ms);
    HOLDS(s, wait_ms >= asked_ms, "try %d comes after %" PRId64 " ms, asked for %" PRId64,
          now->tries, wait_ms, asked_ms);
}

static void check_tries(struct sim *s, const struct checker_row *old, const struct checker_row *now)
{
    struct sim_event *e = sim_event_of(s, now->event);
    size_t rule = rule_of(s, e, now->consumer);
    if (rule == RULE_COUNT || is_closed(now->state))
        return;
    int retries = retries_of[s->rules[rule].priority];
    /* To a page not tried before; a delivery_record whose reply was lost says so twice. */
    bool got_on = now->tries == 0 && (now->after != old->after || s->replies_lost);
    HOLDS(s, now->tries >= old->tries || s->checker.by_operator || got_on,
          "delivery %" PRIu64 " forgot tries", now->delivery);
    HOLDS(s, now->tries <= retries + (now->state == DELIVERY_DEAD),
          "delivery %" PRIu64 " was tried %d times", now->delivery, now->tries);
    if (now->tries > old->tries)
        check_patience(s, e, rule, now);
}

static void check_change(struct sim *s, const struct checker_row *old,
                         const struct checker_row *now, int64_t changed_ms)
{
    bool by_operator = s->checker.by_operator;
    bool moved = is_closed(now->state) && now->state == old->state; /* to another page's place */
    /* A delivery_record whose reply was lost is written again, and a replay repeats what it had not
     * saved: both may meet a row that an operator has just re-driven, and end it once more. */
    bool repeated = (s->replies_lost || now->replay) && old->state == DELIVERY_DELAYED &&
                    (now->state == DELIVERY_DEAD || now->state == DELIVERY_DROPPED);
    bool allowed = may_follow(old->state, now->state) || moved || repeated ||
                   (by_operator && operator_may(old->state, now->state));
    HOLDS(s, allowed, "delivery %" PRIu64 " of event %" PRIu64 " to %s went from %s to %s",
          now->delivery, now->event, now->consumer, state_name(old->state), state_name(now->state));
    if (now->state == DELIVERY_RETRYING && old->state != DELIVERY_RETRYING)
        HOLDS(s, changed_ms >= old->due_ms,
              "delivery %" PRIu64 " is tried %" PRId64 " ms too early", now->delivery,
              old->due_ms - changed_ms);
    check_tries(s, old, now);
}

static void copy_name(char out[CHECKER_NAME_MAX], struct str name)
{
    snprintf(out, CHECKER_NAME_MAX, "%.*s", STR_ARG(name));
}

static void row_changed(struct sim *s, struct db_rows *rows)
{
    struct checker *c = &s->checker;
    struct checker_row now = {.delivery = db_id(rows, 1),
                              .event = db_id(rows, 2),
                              .order_key = db_id(rows, 4),
                              .after = db_id(rows, 5),
                              .until = db_id(rows, 6),
                              .replay = db_id(rows, 7),
                              .state = (int)db_i64(rows, 8),
                              .tries = (int)db_i64(rows, 9),
                              .due_ms = db_i64(rows, 10)};
    copy_name(now.consumer, db_text(rows, 3));
    copy_name(now.reason, db_text(rows, 12));
    struct sim_event *e = sim_event_of(s, now.event);
    HOLDS(s, e && e->committed, "delivery %" PRIu64 " of no event", now.delivery);
    struct checker_row *row = find_row(c, now.delivery);
    if (!row) {
        HOLDS(s, c->row_count < CHECKER_ROWS, "too many rows");
        row = &c->rows[c->row_count];
        *row = (struct checker_row){.next = c->first[e - s->events]};
        c->first[e - s->events] = (int)c->row_count++;
    }
    now.next = row->next;
    check_change(s, row, &now, db_i64(rows, 11));
    if (now.state != row->state || strcmp(now.reason, row->reason) != 0 ||
        now.tries != row->tries) {
        s->totals.dead += now.state == DELIVERY_DEAD && row->state != DELIVERY_DEAD;
        sim_say(s, "delivery %" PRIu64 " of event %" PRIu64 " to %s: %s → %s, %d tries, %s",
                now.delivery, now.event, now.consumer, state_name(row->state),
                state_name(now.state), now.tries, now.reason);
    }
    *row = now;
    sim_trace(s, now.delivery, (uint64_t)now.state);
}

static void row_removed(struct sim *s, uint64_t delivery)
{
    struct checker_row *row = find_row(&s->checker, delivery);
    HOLDS(s, row && is_closed(row->state), "delivery %" PRIu64 " is open and was removed",
          delivery);
    row->gone = true;
}

/* Members whom the rule did not reach with this event. A digest is one for all events of its key.
 */
static uint64_t missing(const struct sim *s, const struct sim_event *e, size_t rule)
{
    unsigned slot = sim_slot(s, rule);
    uint64_t met = e->met[slot];
    for (const struct sim_event *o = s->events;
         rule == RULE_DIGEST && o < s->events + s->event_count; o++) {
        if (o->type == e->type && o->actor == e->actor && o->value == e->value)
            met |= o->met[slot];
    }
    return sim_expected(s, e, rule) & ~met;
}

/* A consumer in the store did its work: once for each business key. */
static void row_made(struct sim *s, uint64_t event, size_t rule)
{
    struct sim_event *made = sim_event_of(s, event);
    unsigned slot = sim_slot(s, rule);
    HOLDS(s, made && made->committed, "a row of no event");
    HOLDS(s, missing(s, made, rule), "%s did event %" PRIu64 " twice", s->rules[rule].consumer,
          event);
    made->met[slot] = sim_expected(s, made, rule);
}

static void outbox_removed(struct sim *s, uint64_t event, int64_t state)
{
    HOLDS(s, state == 1, "event %" PRIu64 " left the outbox in state %" PRId64, event, state);
    HOLDS(s, event <= s->views.saved_position, "event %" PRIu64 " left before the views have it",
          event);
    HOLDS(s, s->clock_jumps || s->clock.wall_ms - id_time_ms(event) >= s->config.retain_settled_ms,
          "event %" PRIu64 " left before its time", event);
}

static enum err read_history(struct tx *tx, void *arg)
{
    struct sim *s = arg;
    struct db_rows rows;
    enum err e = tx_query(tx,
                          "SELECT what, delivery, event_id, consumer, order_key, after, until, "
                          "replay, state, tries, due_at, changed_at, reason, n FROM sim_history "
                          "WHERE n > $1 ORDER BY n",
                          DB_ARGS(DB_I64(s->checker.read)), &rows);
    while (!e && db_next(&rows)) {
        enum history_kind kind = (enum history_kind)db_i64(&rows, 0);
        s->checker.read = db_id(&rows, 13);
        if (kind == ROW_REMOVED)
            row_removed(s, db_id(&rows, 1));
        else if (kind == ROW_MADE)
            row_made(s, db_id(&rows, 2), (size_t)db_i64(&rows, 8));
        else if (kind == OUTBOX_REMOVED)
            outbox_removed(s, db_id(&rows, 2), db_i64(&rows, 8));
        else
            row_changed(s, &rows);
    }
    return e ? e : db_rows_done(&rows);
}

void checker_catch_up(struct sim *s, struct tx *tx)
{
    enum err e = tx ? read_history(tx, s) : plain_db_look(s->store, read_history, s);
    CHECK(e == OK);
}

/* ---- deliveries ---- */

/* Is there a row of the delivery store, of the live delivery, in one of these states? */
static bool recorded(const struct sim *s, const struct sim_event *e, const char *consumer,
                     unsigned states)
{
    for (int i = s->checker.first[e - s->events]; i >= 0; i = s->checker.rows[i].next) {
        const struct checker_row *row = &s->checker.rows[i];
        if (row->replay == 0 && (states >> row->state & 1) && strcmp(row->consumer, consumer) == 0)
            return true;
    }
    return false;
}

enum {
    CLOSED = 1 << DELIVERY_DONE | 1 << DELIVERY_DISCARDED | 1 << DELIVERY_DROPPED,
    GIVEN_UP = 1 << DELIVERY_DISCARDED | 1 << DELIVERY_DROPPED,
    UNTOUCHABLE = 1 << DELIVERY_DELAYED | 1 << DELIVERY_WAITING | 1 << DELIVERY_DEAD,
    OPEN = UNTOUCHABLE | 1 << DELIVERY_RETRYING,
};

/* All deliveries of the event in the ordered lanes of its key are done or discarded. */
static bool key_is_done_with(const struct sim *s, const struct sim_event *e)
{
    for (size_t rule = 0; rule < RULE_COUNT; rule++) {
        const struct rule *r = &s->rules[rule];
        if (lane_is_ordered(r->lane) && (missing(s, e, rule) & ~e->ever[sim_slot(s, rule)]) &&
            !recorded(s, e, r->consumer, CLOSED))
            return false;
    }
    return true;
}

static void check_order(struct sim *s, const struct sim_event *e, size_t rule)
{
    for (const struct sim_event *earlier = s->events; earlier < s->events + s->event_count;
         earlier++) {
        if (!earlier->committed || earlier->unreadable || earlier->actor != e->actor ||
            earlier->id >= e->id)
            continue;
        HOLDS(s, key_is_done_with(s, earlier),
              "%s got event %" PRIu64 " of actor %" PRIu64 " before event %" PRIu64,
              s->rules[rule].consumer, e->id, e->actor, earlier->id);
    }
    HOLDS(s, s->busy_key[e->actor] == 0 || s->busy_key[e->actor] == e->id,
          "%s got event %" PRIu64 " in the middle of event %" PRIu64, s->rules[rule].consumer,
          e->id, s->busy_key[e->actor]);
}

void checker_delivers(struct sim *s, struct sim_event *e, size_t rule, uint64_t accounts)
{
    const struct rule *r = &s->rules[rule];
    HOLDS(s, (accounts & ~sim_expected(s, e, rule)) == 0, "%s got event %" PRIu64 " for others",
          r->consumer, e->id);
    if (lane_is_ordered(r->lane))
        check_order(s, e, rule);
    /* When a reply was lost a claim may be begun that truth does not know of, if it is due. */
    unsigned not_now = s->replies_lost ? UNTOUCHABLE & ~(1u << DELIVERY_DELAYED) : UNTOUCHABLE;
    if (r->audience == TO_ACTOR && !was_replayed(s, r->consumer, NULL))
        HOLDS(s,
              !recorded(s, e, r->consumer, not_now) ||
                  recorded(s, e, r->consumer, 1 << DELIVERY_RETRYING),
              "%s got event %" PRIu64 ", which waits in the delivery store", r->consumer, e->id);
}

void checker_sent(struct sim *s, struct sim_event *e, size_t rule, uint64_t account)
{
    unsigned slot = sim_slot(s, rule);
    const struct rule *r = &s->rules[rule];
    e->sent[slot][account]++;
    HOLDS(s, e->sent[slot][account] <= 1 + e->granted[slot][account],
          "%s of event %" PRIu64 " went out to %" PRIu64 " %d times", r->channel, e->id, account,
          e->sent[slot][account]);
    HOLDS(s, !e->discarded[slot] || was_replayed(s, r->consumer, r->channel),
          "%s of event %" PRIu64 " went out though it was given up", r->channel, e->id);
}

/* ---- at any moment ---- */

static bool is_released(const struct sim *s, const struct sim_event *e)
{
    return recorded(s, e, "", 1 << DELIVERY_RELEASED);
}

static void check_settled(struct sim *s)
{
    uint64_t through = engine_settled_through(s->engine);
    for (const struct sim_event *e = s->events; e < s->events + s->event_count; e++) {
        if (!e->committed || e->id > through || recorded(s, e, "", 1 << DELIVERY_PARKED))
            continue;
        for (size_t rule = 0; rule < RULE_COUNT; rule++) {
            uint64_t left = missing(s, e, rule) | (rule == RULE_TIMELINES ? e->owed : 0);
            if (left == 0 || recorded(s, e, s->rules[rule].consumer, OPEN | GIVEN_UP))
                continue;
            char sql[80];
            snprintf(sql, sizeof sql, "SELECT state = 0 FROM outbox WHERE id = %" PRIu64, e->id);
            bool released = is_released(s, e) && plain_db_ask(s->store, sql);
            HOLDS(s, released,
                  "settled through %" PRIu64 ", but event %" PRIu64 " did not reach %" PRIx64
                  " by %s",
                  through, e->id, left, s->rules[rule].consumer);
        }
    }
}

static void expect_none(struct sim *s, const char *sql, const char *what)
{
    int64_t n = plain_db_ask_often(s->store, sql);
    HOLDS(s, n == 0, "%" PRId64 " %s", n, what);
}

static void check_deliveries(struct sim *s)
{
    expect_none(s,
                "SELECT count(*) FROM deliveries d WHERE order_key <> 0 AND state IN (1, 2) AND "
                "EXISTS (SELECT 1 FROM deliveries o WHERE o.lane = d.lane AND "
                "o.order_key = d.order_key AND o.state <= 4 AND o.id <> d.id AND "
                "((d.state = 1 AND o.event_id < d.event_id) OR o.state IN (1, 2)))",
                "rows are tried out of their key's order");
    expect_none(s,
                "SELECT count(*) FROM (SELECT consumer, type, lane, state, count(*) "
                "FROM deliveries GROUP BY 1, 2, 3, 4 EXCEPT "
                "SELECT consumer, type, lane, state, sum(count) FROM delivery_counts "
                "GROUP BY 1, 2, 3, 4)",
                "groups of deliveries are counted wrongly");
    expect_none(s,
                "SELECT count(*) FROM (SELECT consumer, type, lane, state, sum(count) AS total "
                "FROM delivery_counts GROUP BY 1, 2, 3, 4 HAVING total <> 0 EXCEPT SELECT "
                "consumer, type, lane, state, "
                "count(*) FROM deliveries GROUP BY 1, 2, 3, 4)",
                "counts of deliveries have no rows");
}

static void check_jobs(struct sim *s)
{
    expect_none(s,
                "SELECT count(*) FROM jobs WHERE kind = 'replay' AND "
                "acted + repeated + suppressed + failed < seen",
                "replays do not add up");
}

void checker_now(struct sim *s)
{
    s->totals.checks++;
    checker_catch_up(s, NULL);
    check_settled(s);
    check_deliveries(s);
    check_jobs(s);
}

/* ---- at the end ---- */

static void check_reached(struct sim *s)
{
    for (const struct sim_event *e = s->events; e < s->events + s->event_count; e++) {
        for (size_t rule = 0; rule < RULE_COUNT && e->committed; rule++) {
            uint64_t left = missing(s, e, rule);
            HOLDS(s, left == 0 || recorded(s, e, s->rules[rule].consumer, GIVEN_UP),
                  "event %" PRIu64 " never reached %" PRIx64 " by %s", e->id, left,
                  s->rules[rule].consumer);
        }
    }
}

static void check_engine(struct sim *s)
{
    struct engine_stats stats;
    engine_stats(s->engine, &stats);
    HOLDS(s, engine_drained(s->engine) && stats.undone == 0, "%" PRIu64 " undone", stats.undone);
    HOLDS(s, stats.blocked_keys == 0, "%" PRIu64 " keys wait", stats.blocked_keys);
    const struct event_states *states = &stats.states;
    HOLDS(s,
          states->pending + states->published + states->expanded + states->delayed +
                  states->waiting + states->dead + states->parked ==
              0,
          "something is not done, the engine says");
    int64_t settled = plain_db_ask(s->store, "SELECT count(*) FROM outbox WHERE state = 1");
    HOLDS(s, (int64_t)states->settled == settled, "%" PRIu64 " settled, %" PRId64 " in the table",
          states->settled, settled);
    for (uint16_t lane = 0; lane < LANE_COUNT; lane++) {
        struct bus_lane_stats bus;
        bus_lane_stats(s->bus, lane, &bus);
        HOLDS(s, s->lossy || bus.ready + bus.delayed + bus.taken == 0, "lane %s holds messages",
              lane_name((enum lane)lane));
        /* An unknown outcome is not tried again: when a lane has nothing else to do, no delivery is
         * left to probe it. The next one will. */
        const struct breaker_look *b = &stats.lanes[lane].breaker;
        HOLDS(s, b->state == BREAKER_CLOSED || b->reason == ERR_UNKNOWN_COMMIT,
              "lane %s is stopped", lane_name((enum lane)lane));
    }
    struct freshness_headline headline;
    freshness_look(engine_freshness(s->engine), NULL, 0, NULL, &headline);
    HOLDS(s, headline.late + headline.behind + headline.stopped == 0 && headline.worst_ms == 0,
          "%s is not fresh", headline.consumer ? headline.consumer : "something");
}

/* A replay hands over no more than its plan counted: what was settled then, or was about to be; and
 * what was parked then and is released since. */
static void check_plans(struct sim *s)
{
    uint64_t unreadable = 0;
    for (size_t i = 0; i < s->event_count; i++)
        unreadable += s->events[i].unreadable;
    for (const struct sim_job *job = s->jobs; job < s->jobs + s->job_count; job++) {
        char sql[80];
        snprintf(sql, sizeof sql, "SELECT seen FROM jobs WHERE id = %" PRIu64, job->id);
        uint64_t seen = (uint64_t)plain_db_ask(s->store, sql);
        uint64_t most = job->plan.events + job->plan.undone + unreadable;
        HOLDS(s, seen <= most || job->spec.dead_reason[0],
              "a replay of %" PRIu64 " events has seen %" PRIu64, most, seen);
    }
}

void checker_at_rest(struct sim *s)
{
    checker_now(s);
    check_reached(s);
    expect_none(s, "SELECT count(*) FROM outbox WHERE state <> 1", "events are not settled");
    expect_none(s, "SELECT count(*) FROM deliveries WHERE state IN (1, 2, 3, 4, 8)",
                "deliveries are open");
    expect_none(s, "SELECT count(*) FROM jobs WHERE state <= 1", "jobs are open");
    check_plans(s);
    check_engine(s);
}
