/* For each cell a short ring of samples (when, entered, left) and the last raw numbers; every
 * figure is derived from these, so the cost is the number of cells and nothing else.
 *
 * Rates are between the newest sample and the oldest that is at most FRESHNESS_SPAN samples' time
 * old; when sampling itself paused for longer than that, between the newest two. They never reach
 * across counters that went down or a clock that did: there the ring of that cell begins anew.
 *
 * Whether a cell catches up is judged from the moment when its backlog was largest: a large
 * fan-out enters at once, with all its batches, and is no inflow that goes on.
 *
 * A replay has no target, whatever its rule's is: its events are old by intent. */
#include "pipe/freshness.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/sync.h"

#define SPAN_US ((int64_t)FRESHNESS_SPAN * FRESHNESS_SAMPLE_US)

/* As many pairs as the span has samples, and one more to begin with. */
enum { SAMPLES = FRESHNESS_SPAN + 1, NO_CELL = UINT16_MAX };

struct sample {
    int64_t at_us;
    uint64_t entered, left;
};

struct cell {
    struct cell_raw raw;
    struct sample samples[SAMPLES];
    uint32_t taken; /* ever, since it began */
    uint64_t round; /* of the call that gave it last */
    double in, out; /* a second */
    double net;     /* out - in since the backlog was largest */
};

struct freshness {
    pthread_mutex_t lock;
    const struct rule *rules;
    size_t rule_count;
    int64_t *targets_ms;      /* by rule, as set; 0: the tables' */
    uint16_t *index;          /* cell of (rule, lane), or NO_CELL */
    _Atomic uint64_t *failed; /* batches, by (rule, lane) */
    struct cell cells[FRESHNESS_CELLS_MAX];
    size_t cell_count; /* ever met; those of the present round are shown */
    uint64_t round;
    int64_t called_us, sampled_us;
    _Atomic bool late;
};

const char *verdict_name(enum verdict v)
{
    static const char *const names[] = {
        [FRESH_GREEN] = "green",
        [FRESH_LATE] = "late",
        [FRESH_BEHIND] = "behind",
        [FRESH_STOPPED] = "stopped",
    };
    CHECK((size_t)v < COUNT_OF(names));
    return names[v];
}

struct freshness *freshness_new(const struct rule *rules, size_t rule_count)
{
    struct freshness *f = calloc(1, sizeof *f);
    CHECK(f && rule_count < NO_CELL);
    f->rules = rules;
    f->rule_count = rule_count;
    size_t places = rule_count * LANE_COUNT;
    f->index = malloc((places ? places : 1) * sizeof *f->index);
    f->failed = calloc(places ? places : 1, sizeof *f->failed);
    f->targets_ms = calloc(rule_count ? rule_count : 1, sizeof *f->targets_ms);
    CHECK(f->index && f->failed && f->targets_ms);
    for (size_t i = 0; i < places; i++)
        f->index[i] = NO_CELL;
    lock_init_spinning(&f->lock);
    return f;
}

void freshness_free(struct freshness *f)
{
    pthread_mutex_destroy(&f->lock);
    free(f->failed);
    free(f->index);
    free(f->targets_ms);
    free(f);
}

void freshness_set_target(struct freshness *f, size_t rule, int64_t target_ms)
{
    CHECK(rule < f->rule_count);
    f->targets_ms[rule] = target_ms;
}

void freshness_failed(struct freshness *f, uint16_t rule, enum lane lane)
{
    if (rule < f->rule_count && lane < LANE_COUNT)
        atomic_fetch_add_explicit(&f->failed[rule * LANE_COUNT + lane], 1, memory_order_relaxed);
}

/* ---- samples ---- */

/* The cell's place. One that was gone for a while begins anew: its counters say nothing of the time
 * between. */
static struct cell *cell_of(struct freshness *f, const struct cell_raw *raw)
{
    CHECK(raw->rule < f->rule_count && raw->lane < LANE_COUNT);
    uint16_t *place = &f->index[raw->rule * (size_t)LANE_COUNT + raw->lane];
    if (*place == NO_CELL) {
        CHECK(f->cell_count < FRESHNESS_CELLS_MAX);
        *place = (uint16_t)f->cell_count++;
    }
    struct cell *c = &f->cells[*place];
    if (c->round + 1 != f->round)
        c->taken = 0;
    c->round = f->round;
    return c;
}

static void begin_anew(struct cell *c)
{
    c->taken = 0;
    c->in = c->out = c->net = 0;
}

static int64_t undone_at(const struct sample *s)
{
    return (int64_t)(s->entered - s->left);
}

static void take_sample(struct cell *c, int64_t now_us)
{
    struct sample newest = {now_us, c->raw.entered, c->raw.left};
    if (c->taken) {
        const struct sample *last = &c->samples[(c->taken - 1) % SAMPLES];
        if (newest.at_us <= last->at_us || newest.entered < last->entered ||
            newest.left < last->left)
            begin_anew(c);
    }
    c->samples[c->taken++ % SAMPLES] = newest;
    if (c->taken == 1) {
        c->in = c->out = c->net = 0;
        return;
    }
    uint32_t kept = c->taken < SAMPLES ? c->taken : SAMPLES;
    const struct sample *since = &c->samples[(c->taken - 2) % SAMPLES], *peak = NULL;
    for (uint32_t back = 3; back <= kept; back++) {
        const struct sample *earlier = &c->samples[(c->taken - back) % SAMPLES];
        if (now_us - earlier->at_us > SPAN_US)
            break;
        since = earlier;
        peak = !peak || undone_at(earlier) > undone_at(peak) ? earlier : peak;
    }
    double seconds = (double)(now_us - since->at_us) / 1e6;
    c->in = (double)(newest.entered - since->entered) / seconds;
    c->out = (double)(newest.left - since->left) / seconds;
    c->net = c->out - c->in;
    if (peak && undone_at(peak) > undone_at(&newest))
        c->net =
            (double)(undone_at(peak) - undone_at(&newest)) * 1e6 / (double)(now_us - peak->at_us);
}

/* ---- the figures of a cell ---- */

static int64_t target_of(const struct freshness *f, const struct cell *c)
{
    if (lane_rows[c->raw.lane].replays)
        return 0;
    int64_t target_ms = f->targets_ms[c->raw.rule];
    target_ms = target_ms ? target_ms : f->rules[c->raw.rule].target_ms;
    return target_ms ? target_ms : lane_rows[c->raw.lane].target_ms;
}

/* What moves on by itself, for replays. */
static enum verdict judge_moving(const struct freshness *f, const struct cell *c)
{
    int64_t target_ms = target_of(f, c);
    bool undone = c->raw.backlog + c->raw.delayed + c->raw.waiting > 0;
    if (target_ms == 0 || !undone)
        return FRESH_GREEN;
    if (c->raw.stopped)
        return FRESH_STOPPED;
    if (c->raw.oldest_age_ms <= target_ms)
        return FRESH_GREEN;
    return c->net > 0 ? FRESH_LATE : FRESH_BEHIND;
}

/* No rate helps what waits for a dead letter. */
static enum verdict judge(const struct freshness *f, const struct cell *c)
{
    enum verdict moving = judge_moving(f, c);
    int64_t target_ms = target_of(f, c);
    bool waits = target_ms && c->raw.waiting_age_ms > target_ms;
    return waits && moving < FRESH_BEHIND ? FRESH_BEHIND : moving;
}

static int64_t oldest_of(const struct cell *c)
{
    return c->raw.waiting_age_ms > c->raw.oldest_age_ms ? c->raw.waiting_age_ms
                                                        : c->raw.oldest_age_ms;
}

static int64_t catch_up_ms(const struct cell *c)
{
    if (c->raw.backlog == 0)
        return 0;
    if (c->net <= 0)
        return -1;
    double ms = (double)c->raw.backlog * 1000 / c->net;
    if (ms >= (double)(INT64_MAX / 2))
        return -1;
    int64_t whole_ms = (int64_t)ms;
    return (double)whole_ms < ms ? whole_ms + 1 : whole_ms;
}

static void describe(const struct freshness *f, const struct cell *c, struct freshness_cell *out)
{
    const struct rule *rule = &f->rules[c->raw.rule];
    *out = (struct freshness_cell){
        .consumer = rule->consumer,
        .type = event_wire_name(rule->on),
        .lane = lane_name(c->raw.lane),
        .late_means = rule->late_means,
        .visible = rule->visible,
        .backlog = c->raw.backlog,
        .delayed = c->raw.delayed,
        .waiting = c->raw.waiting,
        .dead = c->raw.dead,
        .failed = atomic_load_explicit(&f->failed[c->raw.rule * LANE_COUNT + c->raw.lane],
                                       memory_order_relaxed),
        .oldest_age_ms = oldest_of(c),
        .target_ms = target_of(f, c),
        .in_per_s = c->in,
        .out_per_s = c->out,
        .net_per_s = c->net,
        .catch_up_ms = catch_up_ms(c),
        .verdict = judge(f, c),
    };
}

/* Signals are a part of a page's work: what holds for the deliveries of such a rule holds for live
 * delivery, which is shown as a consumer of its own. */
static bool has_signals(const struct freshness *f, const struct cell *c)
{
    const struct rule *rule = &f->rules[c->raw.rule];
    return rule->signal && strcmp(rule->consumer, SIGNAL_CONSUMER) != 0 &&
           !lane_rows[c->raw.lane].replays;
}

static void add_to_headline(struct freshness_headline *h, const struct freshness_cell *c)
{
    size_t *const counts[] = {
        [FRESH_GREEN] = &h->green,
        [FRESH_LATE] = &h->late,
        [FRESH_BEHIND] = &h->behind,
        [FRESH_STOPPED] = &h->stopped,
    };
    ++*counts[c->verdict];
    h->dead += c->dead;
    if (c->visible && c->target_ms && c->oldest_age_ms > h->worst_ms) {
        h->worst_ms = c->oldest_age_ms;
        h->consumer = c->consumer;
        h->type = c->type;
        h->lane = c->lane;
        h->late_means = c->late_means;
    }
}

/* The verdicts are numbered from good to bad. */
static int worse_first(const void *left, const void *right)
{
    const struct freshness_cell *a = left, *b = right;
    if (a->verdict != b->verdict)
        return a->verdict > b->verdict ? -1 : 1;
    if (a->oldest_age_ms != b->oldest_age_ms)
        return a->oldest_age_ms > b->oldest_age_ms ? -1 : 1;
    return a->backlog == b->backlog ? 0 : a->backlog > b->backlog ? -1 : 1;
}

/* ---- the interface ---- */

void freshness_sample(struct freshness *f, const struct cell_raw *cells, size_t n, int64_t now_us)
{
    CHECK(n <= FRESHNESS_CELLS_MAX);
    pthread_mutex_lock(&f->lock);
    bool first = f->round++ == 0;
    bool due = first || now_us < f->called_us || now_us - f->sampled_us >= FRESHNESS_SAMPLE_US;
    f->called_us = now_us;
    if (due)
        f->sampled_us = now_us;
    bool late = false;
    for (size_t i = 0; i < n; i++) {
        struct cell *c = cell_of(f, &cells[i]);
        c->raw = cells[i];
        if (c->raw.oldest_age_ms < 0) /* the wall clock was set back */
            c->raw.oldest_age_ms = 0;
        if (c->raw.waiting_age_ms < 0)
            c->raw.waiting_age_ms = 0;
        if (c->taken == 0)
            begin_anew(c);
        if (due)
            take_sample(c, now_us);
        late |= judge_moving(f, c) != FRESH_GREEN; /* never of a replay */
    }
    atomic_store(&f->late, late);
    pthread_mutex_unlock(&f->lock);
}

void freshness_look(struct freshness *f, struct freshness_cell *out, size_t max, size_t *n,
                    struct freshness_headline *headline)
{
    struct freshness_cell told[2 * FRESHNESS_CELLS_MAX];
    struct freshness_headline sum = {0};
    size_t count = 0;
    pthread_mutex_lock(&f->lock);
    for (size_t i = 0; i < f->cell_count; i++) {
        if (f->cells[i].round != f->round)
            continue;
        describe(f, &f->cells[i], &told[count++]);
        add_to_headline(&sum, &told[count - 1]);
        if (has_signals(f, &f->cells[i])) { /* counted once */
            told[count] = told[count - 1];
            told[count].consumer = SIGNAL_CONSUMER;
            told[count++].late_means = "open streams do not announce it yet";
        }
    }
    pthread_mutex_unlock(&f->lock);
    if (headline)
        *headline = sum;
    size_t given = out && max < count ? max : count;
    if (out) {
        qsort(told, count, sizeof told[0], worse_first);
        memcpy(out, told, given * sizeof told[0]);
    }
    if (n)
        *n = out ? given : 0;
}

bool freshness_is_late(struct freshness *f)
{
    return atomic_load(&f->late);
}
