/* The writers and the operators.
 *
 * Events are committed as the models do it: outbox_emit in a transaction, several at a time now and
 * then, so that the commit hook and the outbox are the real ones. Some rows come another way: as an
 * earlier release wrote them, or unreadable, as a later one might.
 *
 * An operator's acts go through the same transactions as the API's. Changes of delivery rows that
 * only operators may make are marked for the checker, and a re-drive of a delivery with an unknown
 * outcome grants one more mail to its recipient. */
#include <inttypes.h>
#include <stdio.h>

#include "base/check.h"
#include "sim.h"

/* ---- writing ---- */

static const enum event_type written_types[] = {
    EVENT_POST_CREATED,      EVENT_POST_CREATED,     EVENT_FOLLOW_CREATED,  EVENT_FOLLOW_CREATED,
    EVENT_FOLLOW_REMOVED,    EVENT_POST_DELETED,     EVENT_POST_EDITED,     EVENT_ACCOUNT_UPDATED,
    EVENT_ACCOUNT_SUSPENDED, EVENT_ACCOUNT_RESTORED, EVENT_ACCOUNT_CREATED,
};

static struct sim_event choose_event(struct sim *s)
{
    struct rand *r = &s->rand;
    struct sim_event e = {.type = written_types[rand_below(r, COUNT_OF(written_types))]};
    switch (e.type) {
    case EVENT_POST_CREATED:
        e.value = rand_below(r, 5) ? DELIVERY_PUSH : DELIVERY_PULL;
        e.actor = 1 + rand_below(r, AUTHORS);
        break;
    case EVENT_POST_DELETED:
    case EVENT_POST_EDITED:
        e.actor = 1 + rand_below(r, AUTHORS);
        break;
    case EVENT_FOLLOW_REMOVED:
        e.value = FOLLOW_ENDED_UNFOLLOW;
        e.actor = 1 + rand_below(r, ACTORS);
        break;
    default:
        e.value = (int64_t)rand_below(r, 2);
        e.actor = 1 + rand_below(r, ACTORS);
        break;
    }
    return e;
}

struct writing {
    struct sim *s;
    size_t n;
};

static enum err emit(struct tx *tx, void *arg)
{
    struct writing *w = arg;
    for (size_t i = 0; i < w->n; i++) {
        struct sim_event *e = &w->s->events[w->s->event_count + i];
        enum err error = outbox_emit(tx, (struct event){.type = e->type,
                                                        .version = event_version(e->type),
                                                        .actor = e->actor,
                                                        .object = (uint64_t)(e - w->s->events) + 1,
                                                        .value = e->value});
        if (error)
            return error;
        e->id = tx->events.items[tx->events.count - 1].id;
    }
    return OK;
}

static void write_some(struct sim *s)
{
    struct writing w = {s, 1 + rand_below(&s->rand, 3)};
    if (s->event_count + w.n > EVENTS_MAX)
        w.n = EVENTS_MAX - s->event_count;
    for (size_t i = 0; i < w.n; i++)
        s->events[s->event_count + i] = choose_event(s);
    enum err e = db_write(s->db, emit, &w, NULL);
    if (e && e != ERR_UNKNOWN_COMMIT)
        return;
    for (size_t i = 0; i < w.n; i++) {
        s->events[s->event_count + i].committed = true;
        sim_trace(s, s->events[s->event_count + i].id, s->event_count + i);
    }
    s->event_count += w.n;
    if (e == ERR_UNKNOWN_COMMIT)
        *s->dead = true; /* as the store does it: nothing is acknowledged any more */
}

/* As another release wrote it before this one was started (again): an older version, a newer one,
 * or something that is no payload. */
static void write_foreign(struct sim *s)
{
    struct sim_event *e = &s->events[s->event_count];
    *e = choose_event(s);
    e->id = id_next(&s->ids);
    int version = event_version(e->type);
    bool damaged = false;
    if (e->type == EVENT_FOLLOW_REMOVED) {
        version = 1;
        e->value = FOLLOW_ENDED_UNKNOWN;
    } else {
        damaged = sim_chance(s, 2);
        version += damaged ? 0 : 90;
    }
    char sql[320];
    snprintf(sql, sizeof sql,
             "INSERT INTO outbox (id, type, version, payload) VALUES (%" PRIu64 ", '%s', %d, "
             "'{\"actor\":\"%" PRIu64 "\",\"object\":\"%zu\"%s,\"value\":%" PRId64 "}')",
             e->id, event_wire_name(e->type), version, e->actor, s->event_count + 1,
             damaged ? ",\"x\":1" : "", e->value);
    plain_db_run(s->store, sql);
    e->committed = true;
    e->unreadable = version != 1 || damaged;
    s->event_count++;
    *s->dead = true;
    sim_say(s, "event %" PRIu64 " is written by another release, %s", e->id,
            damaged        ? "damaged"
            : version == 1 ? "an older one"
                           : "a newer one");
}

void sim_write_events(struct sim *s, size_t burst)
{
    for (; burst > 0 && s->event_count < EVENTS_MAX && !*s->dead; burst--) {
        if (sim_chance(s, 20))
            write_foreign(s);
        else
            write_some(s);
    }
}

/* ---- dead letters ---- */

struct order {
    struct sim *s;
    struct delivery_filter filter;
    int64_t rate;
    bool discard;
    uint64_t changed;
};

/* A re-drive of what may have happened is an explicit wish for it to happen once more. */
static enum err grant_repeats(struct tx *tx, struct sim *s)
{
    for (size_t i = 0; i < s->checker.row_count; i++) {
        const struct checker_row *row = &s->checker.rows[i];
        struct sim_event *event = sim_event_of(s, row->event);
        if (row->state != DELIVERY_DEAD || row->gone)
            continue;
        for (size_t rule = 0; rule < RULE_COUNT; rule++) {
            const struct rule *r = &s->rules[rule];
            uint64_t expected = sim_expected(s, event, rule);
            for (uint64_t a = 1; a <= ACCOUNTS && r->effect == EFFECT_OUTSIDE; a++) {
                struct dedup_key key;
                enum dedup_answer answer;
                struct event e = {.id = event->id, .type = event->type, .actor = event->actor};
                if (!(expected >> a & 1) || strcmp(r->consumer, row->consumer) != 0)
                    continue;
                dedup_key_of(r, &e, a, &key);
                enum err error = dedup_look(tx, r->consumer, &key, &answer);
                if (error)
                    return error;
                if (answer == DEDUP_UNKNOWN)
                    event->granted[sim_slot(s, rule)][a]++;
            }
        }
    }
    return OK;
}

static enum err carry_out(struct tx *tx, void *arg)
{
    struct order *o = arg;
    struct delivery_slice slice = {.max = 1 + rand_below(&o->s->rand, 20)};
    int64_t now_ms = o->s->clock.wall_ms;
    o->changed = 0;
    enum err e = o->discard ? OK : grant_repeats(tx, o->s);
    while (!e && !slice.end) {
        if (o->discard)
            e = delivery_store_discard(tx, &o->filter, &slice, STR("not needed"), now_ms);
        else
            e = delivery_store_redrive(tx, &o->filter, &slice, now_ms, o->rate, o->changed, now_ms);
        o->changed += slice.changed;
    }
    return e;
}

static void note_discards(struct sim *s)
{
    checker_catch_up(s, NULL);
    for (size_t i = 0; i < s->checker.row_count; i++) {
        const struct checker_row *row = &s->checker.rows[i];
        struct sim_event *event = sim_event_of(s, row->event);
        if (row->state != DELIVERY_DISCARDED)
            continue;
        for (size_t rule = 0; rule < RULE_COUNT; rule++) {
            if (s->rules[rule].on == event->type && row->replay == 0 &&
                strcmp(s->rules[rule].consumer, row->consumer) == 0)
                event->discarded[sim_slot(s, rule)] = true;
        }
        if (s->busy_key[event->actor] == event->id)
            s->busy_key[event->actor] = 0;
    }
}

static void give_order(struct sim *s, struct order *o)
{
    checker_catch_up(s, NULL);
    o->s = s;
    enum err e = db_write(s->db, carry_out, o, NULL);
    if (e && e != ERR_UNKNOWN_COMMIT)
        return;
    s->checker.by_operator = true;
    note_discards(s);
    s->checker.by_operator = false;
    if (o->discard)
        s->totals.discarded += o->changed;
    else
        s->totals.redriven += o->changed;
    sim_say(s, "an operator %s %" PRIu64 " deliveries", o->discard ? "discards" : "re-drives",
            o->changed);
    if (!*s->dead)
        engine_deliveries_changed(s->engine);
}

/* One row that is dead, or waits; NULL: there is none. */
static const struct checker_row *choose_row(struct sim *s, unsigned states)
{
    struct checker *c = &s->checker;
    size_t at = c->row_count ? rand_below(&s->rand, c->row_count) : 0;
    for (size_t i = 0; i < c->row_count; i++) {
        const struct checker_row *row = &c->rows[(at + i) % c->row_count];
        if ((states >> row->state & 1) && !row->gone)
            return row;
    }
    return NULL;
}

static void redrive(struct sim *s)
{
    static const char *const consumers[] = {"", "mailer", "texter", "archive", "timelines"};
    struct order o = {.filter.state = DELIVERY_DEAD,
                      .rate = sim_chance(s, 2) ? 0 : 1 + (int64_t)rand_below(&s->rand, 20)};
    const char *consumer = consumers[rand_below(&s->rand, COUNT_OF(consumers))];
    if (consumer[0])
        o.filter.consumer = str_of(consumer);
    give_order(s, &o);
}

static void discard(struct sim *s)
{
    const struct checker_row *row =
        choose_row(s, 1u << DELIVERY_DEAD | 1u << DELIVERY_DELAYED | 1u << DELIVERY_WAITING);
    if (!row)
        return;
    struct order o = {.filter.delivery = row->delivery, .discard = true};
    give_order(s, &o);
}

/* ---- parked events ---- */

static enum err release_all(struct tx *tx, void *arg)
{
    struct sim *s = arg;
    struct delivery_filter all = {0};
    struct delivery_slice slice = {.max = 10};
    enum err e = OK;
    while (!e && !slice.end) {
        e = delivery_store_release(tx, &all, &slice, s->clock.wall_ms);
        s->totals.released += slice.changed;
    }
    return e;
}

/* The program is upgraded: what was unreadable is understood from now on. Here it is the rows that
 * are brought to what this program understands. */
static void upgrade(struct sim *s, const char *update, const char *where)
{
    char sql[400];
    for (size_t i = 0; i < s->event_count; i++) {
        struct sim_event *e = &s->events[i];
        if (!e->unreadable)
            continue;
        snprintf(sql, sizeof sql,
                 "%s SET version = %d, payload = '{\"actor\":\"%" PRIu64 "\",\"object\":\"%zu\","
                 "\"value\":%" PRId64 "}' %s = %" PRIu64,
                 update, event_version(e->type), e->actor, i + 1, e->value, where, e->id);
        plain_db_run(s->store, sql);
    }
}

/* Now and then the operator is too early. */
static void release(struct sim *s, bool upgraded)
{
    if (upgraded) {
        upgrade(s, "UPDATE outbox", "WHERE id");
        upgrade(s, "UPDATE deliveries", "WHERE state = 8 AND event_id");
    }
    checker_catch_up(s, NULL);
    enum err e = db_write(s->db, release_all, s, NULL);
    s->checker.by_operator = true;
    checker_catch_up(s, NULL);
    s->checker.by_operator = false;
    if ((e == OK || e == ERR_UNKNOWN_COMMIT) && !*s->dead)
        engine_deliveries_changed(s->engine);
}

/* ---- replays ---- */

static const struct replay_spec choices[] = {
    {.consumer = "timelines"},
    {.consumer = "backfill"},
    {.consumer = "archive"},
    {.consumer = "digest"},
    {.consumer = "mailer"},
    {.consumer = "mailer", .allow = {"email"}, .allow_count = 1},
    {.consumer = "texter", .allow = {"email"}, .allow_count = 1},
    {.consumer = "texter", .allow = {"sms"}, .allow_count = 1, .accept_duplicates = true},
    {.consumer = "forget", .dead_reason = "*"},
};

struct opening {
    struct sim *s;
    struct sim_job *job;
};

static enum err open_replay(struct tx *tx, void *arg)
{
    struct opening *o = arg;
    struct sim *s = o->s;
    struct job job;
    enum err e = OK;
    o->job->plan = (struct replay_plan){0};
    while (!e && !o->job->plan.end)
        e = replay_plan_slice(tx, &o->job->spec, s->rules, RULE_COUNT, 1 + rand_below(&s->rand, 50),
                              &o->job->plan);
    if (e)
        return e;
    replay_job_init(&job, &o->job->spec, 1 + (int64_t)rand_below(&s->rand, 100),
                    o->job->plan.events, s->clock.wall_ms);
    e = job_create(tx, &job, s->clock.wall_ms);
    o->job->id = job.id;
    return e;
}

static void start_replay(struct sim *s)
{
    if (s->job_count == JOBS_MAX)
        return;
    struct opening o = {s, &s->jobs[s->job_count]};
    *o.job = (struct sim_job){.spec = choices[rand_below(&s->rand, COUNT_OF(choices))]};
    if (sim_chance(s, 2))
        o.job->spec.key = 1 + rand_below(&s->rand, ACTORS);
    if (sim_chance(s, 3))
        o.job->spec.to_ms = s->clock.wall_ms - (int64_t)rand_below(&s->rand, 60 * 1000);
    char why[300];
    enum err e =
        replay_check(&o.job->spec, s->rules, RULE_COUNT, s->config.dedup_ms,
                     s->clock.wall_ms - s->config.retain_settled_ms, s->clock.wall_ms, why);
    if (!e)
        e = db_write(s->db, open_replay, &o, NULL);
    if (e && e != ERR_UNKNOWN_COMMIT)
        return;
    s->job_count++;
    s->totals.replays++;
    sim_say(s, "a replay for %s begins, %" PRIu64 " events", o.job->spec.consumer,
            o.job->plan.events);
    if (!*s->dead)
        engine_jobs_changed(s->engine);
}

struct job_wish {
    struct sim *s;
    uint64_t id;
    enum job_state state;
};

static enum err set_job(struct tx *tx, void *arg)
{
    struct job_wish *w = arg;
    return job_set_state(tx, w->id, w->state, "an operator", w->s->clock.wall_ms);
}

static void steer_replay(struct sim *s)
{
    static const enum job_state states[] = {JOB_PAUSED, JOB_RUNNING, JOB_RUNNING, JOB_CANCELLED};
    if (s->job_count == 0)
        return;
    struct job_wish w = {s, s->jobs[rand_below(&s->rand, s->job_count)].id,
                         states[rand_below(&s->rand, COUNT_OF(states))]};
    enum err e = db_write(s->db, set_job, &w, NULL);
    if ((e == OK || e == ERR_UNKNOWN_COMMIT) && !*s->dead)
        engine_jobs_changed(s->engine);
}

/* ---- all of them ---- */

void sim_operate(struct sim *s)
{
    switch (rand_below(&s->rand, 10)) {
    case 0:
    case 1:
        redrive(s);
        break;
    case 2:
        discard(s);
        break;
    case 3:
        release(s, sim_chance(s, 2));
        break;
    case 4:
    case 5:
        start_replay(s);
        break;
    case 6:
    case 7:
        steer_replay(s);
        break;
    default:
        break;
    }
}

bool sim_decide_all(struct sim *s)
{
    checker_catch_up(s, NULL);
    bool any = choose_row(s, 1u << DELIVERY_PARKED) != NULL;
    if (any)
        release(s, true);
    for (size_t i = 0; i < s->job_count; i++) {
        struct job_wish w = {s, s->jobs[i].id, JOB_RUNNING};
        if (db_write(s->db, set_job, &w, NULL) == OK)
            any = true;
    }
    engine_jobs_changed(s->engine);
    if (!choose_row(s, 1u << DELIVERY_DEAD))
        return any;
    struct order o = {.filter.state = DELIVERY_DEAD, .discard = sim_chance(s, 4)};
    give_order(s, &o);
    return true;
}
