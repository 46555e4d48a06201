/* The rules of the simulated server and their sinks: they write down their calls and fail on
 * demand. Three kinds, by where the effect lasts: in the views, whose unsaved part a crash takes;
 * in the store, whose committed rows reach the checker by triggers; outside, where a provider
 * remembers every mail. Every delivery passes the checker first. */
#include <inttypes.h>
#include <string.h>

#include "base/check.h"
#include "base/hash.h"
#include "sim.h"

/* ---- the sinks ---- */

static struct sim_event *known(struct sim *s, const struct event *e)
{
    struct sim_event *known = sim_event_of(s, e->id);
    HOLDS(s, known && known->committed, "event %" PRIu64 " was never committed", e->id);
    struct event truth = sim_truth_of(s, known);
    HOLDS(s,
          e->type == truth.type && e->actor == truth.actor && e->object == truth.object &&
              e->value == truth.value && e->version == truth.version,
          "event %" PRIu64 " is not what was committed", e->id);
    return known;
}

static uint64_t accounts_of(struct sim *s, const struct event *e, size_t rule,
                            const uint64_t *members, size_t n)
{
    const struct rule *r = &s->rules[rule];
    uint64_t accounts = 0;
    HOLDS(s, n >= 1 && n <= r->batch, "%zu members for a batch of %u", n, r->batch);
    HOLDS(s, r->audience == TO_FOLLOWERS || (n == 1 && members[0] == e->actor),
          "event %" PRIu64 " is for its actor alone", e->id);
    for (size_t i = 0; i < n; i++) {
        HOLDS(s, members[i] >= 1 && members[i] <= ACCOUNTS, "member %" PRIu64, members[i]);
        uint64_t account = r->audience == TO_ACTOR ? members[i] : s->views.account_of[members[i]];
        accounts |= UINT64_C(1) << account;
    }
    return accounts;
}

/* The process dies here, before or after the act. */
static bool dies(struct sim *s, bool after_act)
{
    struct sim_trouble *t = &s->trouble;
    if (t->die_at_sink == s->totals.sink_calls && t->die_after_act == after_act && !s->healed)
        *s->dead = true;
    return *s->dead;
}

/* Writes down the failure, for the checker to compare with when it is tried again. */
static enum err fail(struct sim *s, struct sim_event *e, size_t rule, enum err error,
                     int64_t retry_after_ms, struct sink_result *result)
{
    unsigned slot = sim_slot(s, rule);
    result->retry_after_ms = retry_after_ms;
    e->failed_ms[slot] = s->clock.wall_ms;
    e->patience_ms[slot] = retry_after_ms;
    s->totals.failures++;
    if (s->busy_key[e->actor] == e->id)
        s->busy_key[e->actor] = 0; /* it waits in the delivery store now */
    sim_say(s, "%s fails event %" PRIu64 " with %s", s->rules[rule].consumer, e->id,
            err_name(error));
    return error;
}

static enum err trouble_for(struct sim *s, struct sim_event *e, size_t rule,
                            struct sink_result *result)
{
    struct sim_trouble *t = &s->trouble;
    enum err error = OK;
    if (t->poison_rule == (int)rule && (t->poison_actor == 0 || t->poison_actor == e->actor))
        error = t->poison_error;
    else if (sim_chance(s, t->fail_one_in))
        error = ERR_UNAVAILABLE;
    if (!error)
        return OK;
    int64_t retry_after_ms = sim_chance(s, 4) ? (int64_t)rand_below(&s->rand, 60 * 1000) : 0;
    return fail(s, e, rule, error, retry_after_ms, result);
}

/* Begins every delivery. ERR_STOPPING: the process is dead, nothing happens any more. */
static enum err begin(struct sim *s, struct tx *tx, const struct event *e, size_t rule,
                      const uint64_t *members, size_t n, struct sim_event **event,
                      uint64_t *accounts)
{
    if (*s->dead)
        return ERR_STOPPING;
    s->totals.sink_calls++;
    *event = known(s, e);
    *accounts = accounts_of(s, e, rule, members, n);
    checker_catch_up(s, tx);
    checker_delivers(s, *event, rule, *accounts);
    (*event)->failed_ms[sim_slot(s, rule)] = 0;
    sim_trace(s, e->id, *accounts * 16 + rule);
    return dies(s, false) ? ERR_STOPPING : OK;
}

static enum err to_views(struct sink_env *env, const struct event *e, const uint64_t *members,
                         size_t n, struct sink_result *result, size_t rule)
{
    struct sim *s = env->user;
    struct sim_event *event;
    uint64_t accounts;
    enum err error = begin(s, NULL, e, rule, members, n, &event, &accounts);
    if (error)
        return error;
    unsigned slot = sim_slot(s, rule);
    error = trouble_for(s, event, rule, result);
    if (error) {
        if (sim_chance(s, 3)) /* it got half-way */
            event->met[slot] |= accounts & rand_u64(&s->rand) & ~(UINT64_C(1) << e->actor);
        return error;
    }
    bool ordered = lane_is_ordered(s->rules[rule].lane);
    if (ordered && event->again[slot] < hash_u64(e->id + rule) % 3) {
        event->again[slot]++;
        result->again = true;
        s->busy_key[e->actor] = e->id;
        return dies(s, true) ? ERR_STOPPING : OK;
    }
    uint64_t fresh = accounts & ~event->met[slot];
    result->delivered = (size_t)__builtin_popcountll(fresh);
    result->repeated = n - result->delivered;
    s->totals.repeats += result->repeated;
    event->met[slot] |= accounts;
    if (rule == RULE_TIMELINES && fresh)
        event->owed |= accounts;
    if (s->busy_key[e->actor] == e->id)
        s->busy_key[e->actor] = 0;
    return dies(s, true) ? ERR_STOPPING : OK;
}

/* ---- signals ---- */

static void signal_post(const struct event *e, struct signal_message *out)
{
    *out = (struct signal_message){
        .kind = SIGNAL_FEED, .key = e->actor, .seq = (int64_t)e->id, .receivers = out->receivers};
}

/* A failure may have brought it all the same. */
static enum err publish(struct signal *base, const struct signal_message *messages, size_t n)
{
    struct sim *s = CONTAINER_OF(base, struct sim, signal);
    if (*s->dead)
        return ERR_STOPPING;
    for (size_t i = 0; i < n; i++) {
        const struct signal_message *m = &messages[i];
        struct sim_event *e = sim_event_of(s, (uint64_t)m->seq);
        struct sink_result unused = {0};
        HOLDS(s, e && m->n > 0 && m->key == e->actor, "a signal of nothing, or to nobody");
        bool fails = sim_chance(s, s->trouble.fail_one_in);
        for (size_t k = 0; k < m->n && (!fails || sim_chance(s, 2)); k++)
            e->owed &= ~(UINT64_C(1) << m->receivers[k]);
        if (fails)
            return fail(s, e, RULE_TIMELINES, ERR_UNAVAILABLE, 0, &unused);
    }
    return OK;
}

const struct signal_ops sim_signal_ops = {.publish = publish};

/* Into the store: the rows tell the checker when they are committed, and only then. */
static enum err to_truth(struct tx *tx, struct sink_env *env, const struct event *e,
                         uint64_t member, struct sink_result *result, size_t rule)
{
    struct sim *s = env->user;
    struct sim_event *event;
    uint64_t accounts;
    enum err error = begin(s, tx, e, rule, &member, 1, &event, &accounts);
    if (!error)
        error = trouble_for(s, event, rule, result);
    if (error)
        return error;
    error = tx_exec(tx, "INSERT INTO sim_rows (event_id, rule) VALUES ($1, $2)",
                    DB_ARGS(DB_I64(e->id), DB_I64(rule)), NULL);
    result->delivered = 1;
    return dies(s, true) ? ERR_STOPPING : error;
}

static enum err to_outside(struct sink_env *env, const struct event *e, const uint64_t *members,
                           size_t n, struct sink_result *result, size_t rule)
{
    struct sim *s = env->user;
    struct sim_trouble *t = &s->trouble;
    struct sim_event *event;
    uint64_t accounts;
    HOLDS(s, n == 1, "%zu members at once behind a dedup memory", n);
    enum err error = begin(s, NULL, e, rule, members, n, &event, &accounts);
    if (!error)
        error = trouble_for(s, event, rule, result);
    if (!error && sim_chance(s, t->mail_fails_one_in))
        error = fail(s, event, rule, ERR_UNAVAILABLE, t->mail_retry_after_ms, result);
    if (error)
        return error;
    bool unknown = sim_chance(s, t->mail_unknown_one_in);
    if (!unknown || sim_chance(s, 2)) {
        event->met[sim_slot(s, rule)] |= accounts;
        s->totals.mails++;
        checker_sent(s, event, rule, (uint64_t)__builtin_ctzll(accounts));
        sim_say(s, "sent %s of event %" PRIu64 " to %d%s", s->rules[rule].channel, e->id,
                __builtin_ctzll(accounts), unknown ? ", and the answer is lost" : "");
    }
    s->totals.unknown += unknown;
    result->delivered = 1;
    if (dies(s, true))
        return ERR_STOPPING;
    return unknown ? ERR_UNKNOWN_COMMIT : OK;
}

/* A call that takes its time: it ends in a later step, or at once. */
static void end_call(struct sim *s, struct sim_call c)
{
    struct sink_env env = {.user = s};
    enum err error = to_outside(&env, c.call->event, &c.call->member, 1, &c.call->result, c.rule);
    if (!*s->dead) /* the process is gone */
        outside_end(c.call, error);
}

static void begin_call(struct sink_env *env, struct outside_call *call, size_t rule)
{
    struct sim *s = env->user;
    struct sim_call c = {call, rule};
    HOLDS(s, s->call_count < SIM_CALLS_MAX, "%zu calls are under way", s->call_count);
    if (sim_chance(s, 3))
        end_call(s, c);
    else
        s->calls[s->call_count++] = c;
}

bool sim_end_call(struct sim *s)
{
    if (s->call_count == 0)
        return false;
    size_t i = rand_below(&s->rand, s->call_count);
    struct sim_call c = s->calls[i];
    s->calls[i] = s->calls[--s->call_count];
    end_call(s, c);
    return s->call_count > 0;
}

#define OUTSIDE(name, rule)                                                                        \
    static void name(struct sink_env *env, struct outside_call *call)                              \
    {                                                                                              \
        begin_call(env, call, rule);                                                               \
    }
OUTSIDE(call_mailer, RULE_MAILER)
OUTSIDE(call_texter, RULE_TEXTER)

#define SINK(name, how, rule)                                                                      \
    static enum err name(struct sink_env *env, const struct event *e, const uint64_t *members,     \
                         size_t n, struct sink_result *result)                                     \
    {                                                                                              \
        return how(env, e, members, n, result, rule);                                              \
    }
SINK(sink_timelines, to_views, RULE_TIMELINES)
SINK(sink_backfill, to_views, RULE_BACKFILL)
SINK(sink_forget, to_views, RULE_FORGET)
SINK(sink_cleanup, to_views, RULE_CLEANUP)
SINK(sink_alarm, to_outside, RULE_ALARM)

#define TX_SINK(name, rule)                                                                        \
    static enum err name(struct tx *tx, struct sink_env *env, const struct event *e,               \
                         uint64_t member, struct sink_result *result)                              \
    {                                                                                              \
        return to_truth(tx, env, e, member, result, rule);                                         \
    }
TX_SINK(sink_digest, RULE_DIGEST)
TX_SINK(sink_archive, RULE_ARCHIVE)
TX_SINK(sink_restored, RULE_RESTORED)

/* ---- the rules ---- */

static bool is_pushed(const struct event *e)
{
    return e->value == DELIVERY_PUSH;
}

/* One digest for an account and a kind of change, however many events ask for it. */
static void digest_key(const struct event *e, uint64_t member, struct buf *out)
{
    buf_printf(out, "digest:%" PRIu64 ":%" PRId64, member, e->value);
}

static void archive_key(const struct event *e, uint64_t member, struct buf *out)
{
    buf_printf(out, "archive:%" PRIu64 ":%" PRIu64, e->id, member);
}

const struct rule sim_rule_table[RULE_COUNT] = {
    [RULE_TIMELINES] =
        {
            .consumer = "timelines",
            .on = EVENT_POST_CREATED,
            .wants = is_pushed,
            .unwanted_as = "pulled",
            .audience = TO_FOLLOWERS,
            .sink = sink_timelines,
            .signal = signal_post,
            .lane = LANE_SMALL,
            .batch = 4,
            .priority = PRIORITY_NORMAL,
            .effect = EFFECT_VIEWS,
            .visible = true,
            .late_means = "posts come late",
        },
    [RULE_BACKFILL] =
        {
            .consumer = "backfill",
            .on = EVENT_FOLLOW_CREATED,
            .audience = TO_ACTOR,
            .sink = sink_backfill,
            .lane = LANE_GRAPH,
            .batch = 1,
            .priority = PRIORITY_CRITICAL,
            .effect = EFFECT_VIEWS,
            .late_means = "earlier posts come late",
        },
    [RULE_FORGET] =
        {
            .consumer = "forget",
            .on = EVENT_FOLLOW_REMOVED,
            .audience = TO_ACTOR,
            .sink = sink_forget,
            .lane = LANE_GRAPH,
            .batch = 1,
            .priority = PRIORITY_NORMAL,
            .effect = EFFECT_VIEWS,
            .late_means = "nothing",
        },
    [RULE_CLEANUP] =
        {
            .consumer = "cleanup",
            .on = EVENT_POST_DELETED,
            .audience = TO_FOLLOWERS,
            .sink = sink_cleanup,
            .lane = LANE_CLEANUP,
            .batch = 4,
            .priority = PRIORITY_LOW,
            .effect = EFFECT_VIEWS,
            .late_means = "nothing",
        },
    [RULE_DIGEST] =
        {
            .consumer = "digest",
            .on = EVENT_ACCOUNT_UPDATED,
            .audience = TO_ACTOR,
            .tx_sink = sink_digest,
            .lane = LANE_SMALL,
            .batch = 1,
            .priority = PRIORITY_NORMAL,
            .effect = EFFECT_TRUTH,
            .dedup = DEDUP_BY_KEY,
            .business_key = digest_key,
            .late_means = "digests come late",
        },
    [RULE_ARCHIVE] =
        {
            .consumer = "archive",
            .on = EVENT_ACCOUNT_SUSPENDED,
            .audience = TO_ACTOR,
            .tx_sink = sink_archive,
            .lane = LANE_GRAPH,
            .batch = 1,
            .priority = PRIORITY_NORMAL,
            .effect = EFFECT_TRUTH,
            .dedup = DEDUP_BY_KEY,
            .business_key = archive_key,
            .late_means = "the archive is late",
        },
    [RULE_RESTORED] =
        {
            .consumer = "archive",
            .on = EVENT_ACCOUNT_RESTORED,
            .audience = TO_ACTOR,
            .tx_sink = sink_restored,
            .lane = LANE_GRAPH,
            .batch = 1,
            .priority = PRIORITY_NORMAL,
            .effect = EFFECT_TRUTH,
            .dedup = DEDUP_BY_KEY,
            .business_key = archive_key,
            .late_means = "the archive is late",
        },
    [RULE_MAILER] =
        {
            .consumer = "mailer",
            .on = EVENT_FOLLOW_CREATED,
            .audience = TO_ACTOR,
            .outside = call_mailer,
            .lane = LANE_OUTSIDE,
            .batch = 1,
            .priority = PRIORITY_CRITICAL,
            .effect = EFFECT_OUTSIDE,
            .channel = "email",
            .dedup = DEDUP_BY_EVENT,
            .visible = true,
            .late_means = "mail comes late",
        },
    [RULE_TEXTER] =
        {
            .consumer = "texter",
            .on = EVENT_POST_EDITED,
            .audience = TO_ACTOR,
            .outside = call_texter,
            .lane = LANE_OUTSIDE,
            .batch = 1,
            .priority = PRIORITY_NORMAL,
            .effect = EFFECT_OUTSIDE,
            .channel = "sms",
            .dedup = DEDUP_BY_EVENT,
            .visible = true,
            .late_means = "texts come late",
        },
    [RULE_ALARM] =
        {
            .consumer = "texter",
            .on = EVENT_ACCOUNT_SUSPENDED,
            .audience = TO_ACTOR,
            .sink = sink_alarm,
            .lane = LANE_GRAPH,
            .batch = 1,
            .priority = PRIORITY_CRITICAL,
            .effect = EFFECT_OUTSIDE,
            .channel = "sms",
            .dedup = DEDUP_BY_EVENT,
            .visible = true,
            .late_means = "texts come late",
        },
};
