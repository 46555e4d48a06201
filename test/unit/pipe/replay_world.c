/* The world of the replays' tests: see replay_world.h. */
#include "replay_world.h"

#include "base/log.h"

/* Posts: alpha is the first rule on them, beta's e-mail the second, its text message the third. */
static bool is_pushed(const struct event *e)
{
    return e->value == DELIVERY_PUSH;
}

const struct rule rules[RULE_COUNT] = {
    {.consumer = "alpha", .on = EVENT_POST_CREATED, .wants = is_pushed, .audience = TO_FOLLOWERS},
    {.consumer = "beta",
     .on = EVENT_POST_CREATED,
     .audience = TO_ACTOR,
     .effect = EFFECT_OUTSIDE,
     .channel = "email",
     .dedup = DEDUP_BY_EVENT},
    {.consumer = "alpha", .on = EVENT_FOLLOW_CREATED, .audience = TO_ACTOR},
    {.consumer = "beta", .on = EVENT_FOLLOW_CREATED, .audience = TO_ACTOR, .effect = EFFECT_TRUTH},
    {.consumer = "beta",
     .on = EVENT_POST_CREATED,
     .wants = is_pushed,
     .audience = TO_ACTOR,
     .effect = EFFECT_OUTSIDE,
     .channel = "sms"},
};

/* ---- the host ---- */

void tell(struct fixture *f, size_t i)
{
    struct begun *b = &f->begun[i];
    const struct job_counts what = {.seen = 99, .acted = 2, .repeated = 1};
    b->told = true;
    replays_told(f->replays, b->job, b->event, &what);
}

static bool host_begin(void *ctx, uint64_t job, const struct event *e, uint32_t mask)
{
    struct fixture *f = ctx;
    if (f->begun_count == f->room)
        return false;
    CHECK(f->begun_count < BEGUN_MAX);
    f->begun[f->begun_count++] = (struct begun){.job = job, .event = e->id, .mask = mask};
    if (f->tells)
        tell(f, f->begun_count - 1);
    return true;
}

static bool host_is_late(void *ctx)
{
    return ((struct fixture *)ctx)->late;
}

static bool host_is_guarded(void *ctx)
{
    return ((struct fixture *)ctx)->guarded;
}

static void host_wake(void *ctx)
{
    ((struct fixture *)ctx)->wakes++;
}

void tell_all(struct fixture *f)
{
    for (size_t i = 0; i < f->begun_count; i++) {
        if (!f->begun[i].told)
            tell(f, i);
    }
}

/* ---- the world ---- */

static void start(struct fixture *f)
{
    struct replay_host host = {.ctx = f,
                               .begin = host_begin,
                               .live_is_late = host_is_late,
                               .guarded = host_is_guarded,
                               .wake = host_wake};
    f->replays = replays_new(f->db, &f->clock.clock, rules, RULE_COUNT, host);
}

void crash(struct fixture *f)
{
    replays_free(f->replays);
    f->begun_count = 0;
    start(f);
}

int set_up(void **state)
{
    struct fixture *f = calloc(1, sizeof *f);
    log_set_level(LOG_ERROR + 1); /* what is made to fail here is expected */
    manual_clock_init(&f->clock, BEGAN_MS);
    id_gen_init(&f->ids, &f->clock.clock, 1);
    f->plain = plain_db_new(&f->clock.clock, &f->ids);
    f->db = plain_db_port(f->plain);
    f->room = BEGUN_MAX;
    f->tells = true;
    start(f);
    *state = f;
    return 0;
}

int tear_down(void **state)
{
    struct fixture *f = *state;
    replays_free(f->replays);
    plain_db_free(f->plain);
    free(f);
    return 0;
}
static enum err run_add(struct tx *tx, void *arg)
{
    struct adding *a = arg;
    char memory[200];
    struct buf payload = buf_over(memory, sizeof memory);
    struct event e = {.type = a->type, .actor = a->actor, .object = 5, .value = a->value};
    event_payload(&e, &payload);
    a->id = id_next(tx->ids);
    return tx_exec(tx,
                   "INSERT INTO outbox (id, type, version, payload, state) "
                   "VALUES ($1, $2, $3, $4, $5)",
                   DB_ARGS(DB_I64(a->id), DB_TEXT(str_of(event_wire_name(a->type))),
                           DB_I64(a->version ? a->version : event_version(a->type)),
                           DB_TEXT(a->payload ? str_of(a->payload) : buf_view(&payload)),
                           DB_I64(a->state)),
                   NULL);
}

uint64_t add(struct fixture *f, struct adding a)
{
    assert_int_equal(db_write(f->db, run_add, &a, NULL), OK);
    return a.id;
}

uint64_t add_post(struct fixture *f, uint64_t actor)
{
    return add(f, (struct adding){.type = EVENT_POST_CREATED, .actor = actor, .state = SETTLED});
}

void add_posts(struct fixture *f, size_t n)
{
    for (size_t i = 0; i < n; i++)
        add_post(f, ANN);
}

enum err run_create(struct tx *tx, void *arg)
{
    return job_create(tx, arg, NOW_MS);
}

uint64_t create(struct fixture *f, const struct replay_spec *spec, int64_t rate)
{
    struct job job;
    if (f->clock.wall_ms < NOW_MS)
        manual_clock_advance(&f->clock, NOW_MS - f->clock.wall_ms);
    replay_job_init(&job, spec, rate, 0, NOW_MS);
    assert_int_equal(db_write(f->db, run_create, &job, NULL), OK);
    replays_poke(f->replays);
    return job.id;
}

const struct replay_spec all_of_alpha = {.consumer = "alpha"};

struct changing {
    uint64_t id;
    enum job_state state;
    struct job job;
};

static enum err run_change(struct tx *tx, void *arg)
{
    struct changing *c = arg;
    return job_set_state(tx, c->id, c->state, "", NOW_MS);
}

void change(struct fixture *f, uint64_t job, enum job_state state)
{
    struct changing c = {.id = job, .state = state};
    assert_int_equal(db_write(f->db, run_change, &c, NULL), OK);
    replays_poke(f->replays);
}

static enum err run_look(struct tx *tx, void *arg)
{
    struct changing *c = arg;
    return job_get(tx, c->id, &c->job);
}

struct job look(struct fixture *f, uint64_t job)
{
    struct changing c = {.id = job};
    assert_int_equal(db_read(f->db, run_look, &c, NULL), OK);
    return c.job;
}

int64_t step(struct fixture *f)
{
    for (int i = 0; i < STEPS_MAX; i++) {
        int64_t due_us = replays_step(f->replays);
        if (due_us > f->clock.mono_us)
            return due_us;
    }
    fail_msg("it never rests");
    return 0;
}

void wait_ms(struct fixture *f, int64_t ms)
{
    manual_clock_advance(&f->clock, ms);
    step(f);
}

void assert_begun(struct fixture *f, const uint64_t *events, size_t n)
{
    assert_int_equal(f->begun_count, n);
    for (size_t i = 0; i < n; i++)
        assert_int_equal(f->begun[i].event, events[i]);
}
