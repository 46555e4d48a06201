/* Replays and rebuilds: long work that an operator starts, looks at, pauses and ends. Both are rows
 * of the table of jobs; the engine or the rebuild step takes the work up from there, also after a
 * restart. Nothing here does any of the work itself; the dry run of a replay goes in slices. */
#include <stdio.h>
#include <stdlib.h>

#include "api/edge/handlers.h"
#include "api/render/render.h"
#include "api/resource/status.h"
#include "base/check.h"
#include "base/id.h"
#include "model/rebuild.h"
#include "model/subscriber.h"
#include "pipe/jobs.h"
#include "pipe/replay.h"

enum {
    JOBS_LIMIT_MAX = 100,
    JOBS_READ = 32,           /* rows at a time; each holds its whole selection */
    JOBS_LOOKED_AT_MAX = 640, /* for a page of one kind */
    PLAN_ROWS = 5000,
    JOB_RATE_MAX = 1000000,
    REBUILD_RATE_DEFAULT = 500,
};

enum job_family { FAMILY_REPLAY, FAMILY_REBUILD };

static bool is_of(const struct job *job, enum job_family family)
{
    struct str prefix = family == FAMILY_REPLAY ? STR("replay") : STR("rebuild.");
    return str_starts(str_of(job->kind), prefix);
}

/* ---- showing ---- */

/* At the pace since it began; 0: not known. */
static int64_t left_ms(const struct job *job)
{
    int64_t took_ms = job->changed_ms - job->created_ms;
    if (job->state != JOB_RUNNING || job->total <= job->counts.seen || job->counts.seen == 0)
        return 0;
    return (int64_t)((double)took_ms / (double)job->counts.seen *
                     (double)(job->total - job->counts.seen));
}

static void write_job(struct json_out *j, const struct job *job)
{
    json_object_begin(j);
    json_put(j, "id", id, job->id);
    json_put(j, "kind", str, str_of(job->kind));
    json_put(j, "state", str, str_of(job_state_name(job->state)));
    json_put(j, "spec", raw, job->spec[0] ? str_of(job->spec) : STR("{}"));
    json_put(j, "rate", i64, job->rate);
    render_put_id(j, "position", job->position);
    render_put_id(j, "last", job->last);
    json_put(j, "total", u64, job->total);
    json_put(j, "seen", u64, job->counts.seen);
    json_put(j, "acted", u64, job->counts.acted);
    json_put(j, "repeated", u64, job->counts.repeated);
    json_put(j, "suppressed", u64, job->counts.suppressed);
    json_put(j, "failed", u64, job->counts.failed);
    json_put(j, "created_at", time, job->created_ms);
    json_put(j, "changed_at", time, job->changed_ms);
    int64_t left = left_ms(job);
    json_put_if(left > 0, j, "left_ms", i64, left);
    json_put(j, "note", str, str_of(job->note));
    json_object_end(j);
}

/* Both kinds lie in one table: a page of one passes over the other, up to a limit, and goes on from
 * there. */
static enum err list_jobs(struct call *c, struct tx *tx, enum job_family family)
{
    struct job *jobs = ARENA_ARRAY(&c->x->arena, struct job, JOBS_READ);
    size_t limit, shown = 0, n = JOBS_READ, looked_at = 0;
    uint64_t below, next = 0;
    enum err e = call_page(c, JOBS_LIMIT_MAX, &limit, &below);
    if (e)
        return e;
    call_list_begin(c);
    while (!e && n == JOBS_READ && shown < limit && looked_at < JOBS_LOOKED_AT_MAX) {
        e = job_list(tx, false, below, jobs, JOBS_READ, &n);
        size_t i = 0;
        for (; i < n && !e && shown < limit; i++) {
            below = jobs[i].id;
            if (!is_of(&jobs[i], family))
                continue;
            write_job(&c->json, &jobs[i]);
            shown++;
        }
        looked_at += i;
        next = !e && (n == JOBS_READ || i < n) ? below : 0;
    }
    if (!e)
        call_list_end(c, next);
    return e;
}

static enum err find_job(struct tx *tx, uint64_t id, enum job_family family, struct job *job)
{
    enum err e = job_get(tx, id, job);
    if (e == ERR_NOT_FOUND)
        e = tx_fail(tx, e, "there is no %s of this id",
                    family == FAMILY_REPLAY ? "replay" : "rebuild");
    if (!e && !is_of(job, family))
        e = tx_fail(tx, ERR_NOT_FOUND, "there is no %s of this id; that one is a %s",
                    family == FAMILY_REPLAY ? "replay" : "rebuild", job->kind);
    return e;
}

static enum err show_job(struct call *c, struct tx *tx, enum job_family family)
{
    struct job job;
    TRY(find_job(tx, c->params[0], family, &job));
    write_job(&c->json, &job);
    return OK;
}

/* ---- making and changing ---- */

struct job_write {
    enum job_family family;
    enum job_state state; /* JOB_STATES: as it is */
    int64_t rate;         /* -1: as it is */
    int64_t now_ms;
    struct job job;
};

static enum err run_create(struct tx *tx, void *arg)
{
    struct job_write *w = arg;
    return job_create(tx, &w->job, w->now_ms);
}

static enum err create_job(struct call *c, struct job_write *w)
{
    TRY(db_write(c->api->db, run_create, w, c->detail));
    engine_jobs_changed(c->api->engine);
    write_job(&c->json, &w->job);
    return OK;
}

static enum err run_change(struct tx *tx, void *arg)
{
    struct job_write *w = arg;
    uint64_t id = w->job.id;
    enum err e = find_job(tx, id, w->family, &w->job);
    if (!e && w->rate >= 0)
        e = job_set_rate(tx, id, w->rate, w->now_ms);
    if (!e && w->state != JOB_STATES && w->job.state != w->state) /* asking twice is asking once */
        e = job_set_state(tx, id, w->state, "", w->now_ms);
    if (!e)
        e = job_get(tx, id, &w->job);
    w->job.id = id;
    return e;
}

static enum err change_job(struct call *c, enum job_family family)
{
    static const enum job_state allowed[] = {JOB_RUNNING, JOB_PAUSED, JOB_CANCELLED};
    struct str text = {NULL, 0};
    struct job_write *w = ARENA_NEW(&c->x->arena, struct job_write);
    *w = (struct job_write){
        .family = family, .state = JOB_STATES, .rate = -1, .now_ms = clock_wall_ms(c->api->clock)};
    w->job.id = c->params[0];
    TRY(call_body_text(c, "state", false, &text));
    TRY(call_body_number(c, "rate", 0, JOB_RATE_MAX, &w->rate));
    for (size_t i = 0; i < COUNT_OF(allowed) && text.ptr; i++) {
        if (str_eq(text, str_of(job_state_name(allowed[i]))))
            w->state = allowed[i];
    }
    if (w->state == JOB_STATES && (text.ptr || w->rate < 0))
        return call_fail(c, ERR_INVALID,
                         "state must be paused, running or cancelled, or rate a number");
    TRY(db_write(c->api->db, run_change, w, c->detail));
    engine_jobs_changed(c->api->engine);
    write_job(&c->json, &w->job);
    return OK;
}

/* ---- replays ---- */

/* A number of ms becomes the text that the selection is written with. */
static void put_time_text(json_t *object, const char *name)
{
    const json_t *value = json_object_get(object, name);
    if (!json_is_integer(value) || json_integer_value(value) < 0)
        return;
    char text[TIME_TEXT_LEN];
    time_format(json_integer_value(value), text);
    json_object_set_new(object, name, json_stringn(text, sizeof text));
}

/* The selection is what is left of the body when everything else is taken out of it. */
static enum err read_spec(struct call *c, const char *const *others, size_t n,
                          struct replay_spec *spec)
{
    size_t rule_count;
    const struct rule *rules = engine_rules(c->api->engine, &rule_count);
    json_t *copy = json_copy(c->body);
    for (size_t i = 0; i < n; i++)
        json_object_del(copy, others[i]);
    put_time_text(copy, "from");
    put_time_text(copy, "to");
    char *text = json_dumps(copy, JSON_COMPACT);
    char why[200] = "";
    enum err e = replay_spec_parse(str_of(text), rules, rule_count, spec, why);
    free(text);
    json_decref(copy);
    return e ? call_fail(c, e, "%s", why) : OK;
}

struct bounds {
    uint64_t removed, oldest;
};

static enum err read_bounds(struct tx *tx, void *arg)
{
    struct bounds *b = arg;
    return stored_events_bounds(tx, &b->removed, &b->oldest);
}

struct planning {
    struct replay_spec spec;
    const struct rule *rules;
    size_t rule_count;
    uint64_t position, settled_after, settled_through;
    struct replay_plan plan;
};

static enum err run_plan(struct tx *tx, void *arg)
{
    struct planning *p = arg;
    p->plan = (struct replay_plan){.position = p->position,
                                   .settled_after = p->settled_after,
                                   .settled_through = p->settled_through};
    return replay_plan_slice(tx, &p->spec, p->rules, p->rule_count, PLAN_ROWS, &p->plan);
}

static void write_plan(struct json_out *j, const struct replay_plan *p)
{
    char position[24];
    snprintf(position, sizeof position, "%llu", (unsigned long long)p->position);
    json_put(j, "position", str, str_of(position));
    json_put(j, "end", bool, p->end);
    json_put(j, "events", u64, p->events);
    json_put(j, "undone", u64, p->undone);
    json_put(j, "unreadable", u64, p->unreadable);
    json_put(j, "remembered", u64, p->remembered);
    json_put(j, "unknown", u64, p->unknown);
    json_put(j, "suppressed", u64, p->suppressed);
    json_put(j, "would_act", u64, p->would_act);
    json_put(j, "members", u64, p->members);
    json_key(j, STR("channels"));
    json_array_begin(j);
    for (size_t i = 0; i < p->channel_count; i++) {
        json_object_begin(j);
        json_put(j, "channel", str, str_of(p->channels[i].channel));
        json_put(j, "would_act", u64, p->channels[i].would_act);
        json_put(j, "suppressed", u64, p->channels[i].suppressed);
        json_object_end(j);
    }
    json_array_end(j);
    render_put_id(j, "first", p->first);
    render_put_id(j, "last", p->last);
}

/* May it be started as it is? *warning: it may, but something should be known. */
static enum err check_spec(struct call *c, const struct replay_spec *spec, char why[300])
{
    size_t n;
    const struct rule *rules = engine_rules(c->api->engine, &n);
    struct bounds b = {0};
    enum err e = db_read(c->api->db, read_bounds, &b, c->detail);
    if (!e)
        e = replay_check(spec, rules, n, engine_dedup_ms(c->api->engine),
                         b.oldest ? id_time_ms(b.oldest) : 0, clock_wall_ms(c->api->clock), why);
    /* A range that begins before the first event ever is whole. */
    if (!e && b.oldest && !b.removed)
        why[0] = '\0';
    return e;
}

enum err replays_plan(struct call *c, struct tx *tx)
{
    (void)tx;
    static const char *const others[] = {"position", "rate", "total"};
    struct planning *p = ARENA_NEW(&c->x->arena, struct planning);
    struct str position = {NULL, 0};
    char why[300] = "";
    TRY(read_spec(c, others, COUNT_OF(others), &p->spec));
    TRY(call_body_text(c, "position", false, &position));
    if (position.ptr && (!str_parse_u64(position, &p->position) || p->position > INT64_MAX))
        return call_fail(c, ERR_INVALID,
                         "position is malformed: send the position of the last answer unchanged");
    p->rules = engine_rules(c->api->engine, &p->rule_count);
    if (p->spec.to_ms == 0)
        p->spec.to_ms = clock_wall_ms(c->api->clock);
    engine_unsaved(c->api->engine, &p->settled_after, &p->settled_through);
    TRY(db_read(c->api->db, run_plan, p, c->detail));
    enum err e = check_spec(c, &p->spec, why);
    if (e && e != ERR_CONFLICT)
        return e;
    json_object_begin(&c->json);
    write_plan(&c->json, &p->plan);
    render_put_text(&c->json, "refused", e ? why : NULL);
    render_put_text(&c->json, "note", !e && why[0] ? why : NULL);
    json_object_end(&c->json);
    return OK;
}

enum err replays_create(struct call *c, struct tx *tx)
{
    (void)tx;
    static const char *const others[] = {"rate", "total"};
    struct replay_spec spec;
    struct job_write *w = ARENA_NEW(&c->x->arena, struct job_write);
    int64_t rate = c->api->settings->replay_rate, total = 0;
    char why[300] = "";
    enum err e = call_body_number(c, "rate", 0, JOB_RATE_MAX, &rate);
    if (!e)
        e = call_body_number(c, "total", 0, INT64_MAX, &total);
    if (!e)
        e = read_spec(c, others, COUNT_OF(others), &spec);
    if (!e)
        e = check_spec(c, &spec, why);
    if (e == ERR_CONFLICT)
        return call_fail(c, e, "%s", why);
    if (e)
        return e;
    w->now_ms = clock_wall_ms(c->api->clock);
    replay_job_init(&w->job, &spec, rate, (uint64_t)total, w->now_ms);
    return create_job(c, w);
}

enum err replays_list(struct call *c, struct tx *tx)
{
    return list_jobs(c, tx, FAMILY_REPLAY);
}

enum err replays_show(struct call *c, struct tx *tx)
{
    return show_job(c, tx, FAMILY_REPLAY);
}

enum err replays_change(struct call *c, struct tx *tx)
{
    (void)tx;
    return change_job(c, FAMILY_REPLAY);
}

/* ---- rebuilds ---- */

struct range {
    struct str user; /* {NULL, 0}: all accounts */
    struct arena *arena;
    uint64_t first, last, total;
};

static enum err read_range(struct tx *tx, void *arg)
{
    struct range *r = arg;
    int64_t last = 0;
    if (r->user.ptr) {
        struct account account;
        enum err e = account_look_up(tx, r->user, r->arena, &account);
        if (e == ERR_NOT_FOUND)
            return tx_fail(tx, ERR_INVALID, "user names no account: give an id or a username");
        r->first = r->last = e ? 0 : account.id;
        r->total = 1;
        return e;
    }
    enum err e =
        tx_get_i64(tx, "SELECT id FROM accounts ORDER BY id DESC LIMIT 1", DB_NO_ARGS, &last);
    r->first = 1;
    r->last = (uint64_t)last;
    return e == ERR_NOT_FOUND ? OK : e;
}

enum err rebuilds_create(struct call *c, struct tx *tx)
{
    (void)tx;
    struct job_write *w = ARENA_NEW(&c->x->arena, struct job_write);
    struct range range = {.arena = &c->x->arena};
    struct str name = {NULL, 0};
    int64_t rate = REBUILD_RATE_DEFAULT;
    enum rebuild_what what;
    TRY(call_body_text(c, "what", true, &name));
    if (!rebuild_parse(name, &what))
        return call_fail(c, ERR_INVALID, "what must be timelines, counters or inboxes");
    TRY(call_body_text(c, "user", false, &range.user));
    TRY(call_body_number(c, "rate", 0, JOB_RATE_MAX, &rate));
    TRY(db_read(c->api->db, read_range, &range, c->detail));
    struct view_stats views;
    views_stats(c->api->views, &views);
    w->now_ms = clock_wall_ms(c->api->clock);
    w->job = (struct job){
        .rate = rate,
        .position = range.first ? range.first - 1 : 0,
        .last = range.last,
        .total = range.total ? range.total : views.accounts,
    };
    snprintf(w->job.kind, sizeof w->job.kind, "rebuild.%s", rebuild_name(what));
    if (range.user.ptr)
        snprintf(w->job.spec, sizeof w->job.spec, "{\"what\":\"%s\",\"user\":\"%llu\"}",
                 rebuild_name(what), (unsigned long long)range.last);
    else
        snprintf(w->job.spec, sizeof w->job.spec, "{\"what\":\"%s\"}", rebuild_name(what));
    return create_job(c, w);
}

enum err rebuilds_list(struct call *c, struct tx *tx)
{
    return list_jobs(c, tx, FAMILY_REBUILD);
}

enum err rebuilds_show(struct call *c, struct tx *tx)
{
    return show_job(c, tx, FAMILY_REBUILD);
}

enum err rebuilds_change(struct call *c, struct tx *tx)
{
    (void)tx;
    return change_job(c, FAMILY_REBUILD);
}
