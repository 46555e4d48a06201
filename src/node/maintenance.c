/* The audit proves what the product promises: with the pipeline drained, a feed is what the oracle
 * says, and so is an inbox. A comparison counts only when nothing was committed and nothing was
 * under way while it was made; a busy server gets a few tries and then the next period. Timelines
 * and inboxes that are not in memory are passed over: there is nothing derived to compare, and
 * looking would build them. What a dead, parked or discarded delivery keeps out is no drift: the
 * delivery store says so already, about these feeds and no others.
 *
 * Accounts that were found different are looked at again in every second period, until they are
 * right. So the gauge says how many differ now, and falls after a repair.
 *
 * A snapshot is named after the engine's watermark as it was *before* saving began: whatever the
 * save holds beyond that is delivered again after a crash, which is harmless. */
#include "node/maintenance.h"

#include <stdlib.h>

#include "api/resource/explain.h"
#include "base/check.h"
#include "base/log.h"
#include "model/feed.h"
#include "model/inbox.h"

enum {
    SWEEP_SLICE = 1000,         /* accounts */
    SWEEP_PAUSE_US = 50 * 1000, /* between slices */
    AUDIT_TRIES = 3,
    SAVE_LOOK_US = 1000 * 1000, /* a replay or rebuild has ended: its work is saved soon */
    AUDIT_RETRY_US = 200 * 1000,
    AUDIT_MISSING_MAX = 20, /* posts whose absence is looked into */
};

static const int64_t sweep_rest_us = INT64_C(3600) * 1000 * 1000;

void maintenance_init(struct maintenance *c, struct api *api)
{
    *c = (struct maintenance){.api = api, .saved_position = api->views->loaded_position};
    rand_seed(&c->rand, (uint64_t)clock_wall_ms(api->clock));
    c->next_save_us = clock_mono_us(api->clock) + api->settings->snapshot_every_ms * 1000;
}

/* Retries, replays and rebuilds change the views without moving the watermark. */
static uint64_t repairs(struct maintenance *c)
{
    struct engine_stats stats;
    engine_stats(c->api->engine, &stats);
    return stats.late + atomic_load(&c->api->rebuilt);
}

enum err maintenance_save(struct maintenance *c)
{
    uint64_t position = engine_settled_through(c->api->engine);
    uint64_t repaired = repairs(c);
    if (position <= c->saved_position && repaired == c->saved_repairs)
        return OK;
    TRY(views_save(c->api->views, position));
    c->saved_position = position;
    c->saved_repairs = repaired;
    return OK;
}

int64_t maintenance_save_step(struct maintenance *c)
{
    int64_t now_us = clock_mono_us(c->api->clock);
    uint64_t repaired = repairs(c);
    bool settled = repaired != c->saved_repairs && repaired == c->seen_repairs;
    c->seen_repairs = repaired;
    if (now_us < c->next_save_us && !settled)
        return now_us + SAVE_LOOK_US < c->next_save_us ? now_us + SAVE_LOOK_US : c->next_save_us;
    enum err e = maintenance_save(c);
    if (e)
        log_warn("the views could not be saved; a restart will take longer",
                 LOG_CSTR("error", err_name(e)));
    c->next_save_us = clock_mono_us(c->api->clock) + c->api->settings->snapshot_every_ms * 1000;
    return c->next_save_us;
}

int64_t maintenance_sweep_step(struct maintenance *c)
{
    int64_t inactive_ms = c->api->settings->inactive_after_ms;
    int64_t seen_before_ms = clock_wall_ms(c->api->clock) - inactive_ms;
    size_t dropped = 0;
    bool wrapped = false;
    enum err e =
        timelines_sweep(c->api->views->timelines, seen_before_ms, SWEEP_SLICE, &dropped, &wrapped);
    if (dropped > 0)
        log_debug("dropped timelines of inactive people", LOG_INT("dropped", dropped));
    int64_t now_us = clock_mono_us(c->api->clock);
    if (!e && !wrapped)
        return now_us + SWEEP_PAUSE_US;
    /* Once an hour is plenty for thirty days; a short span, as tests set it, asks for more. */
    int64_t rest_us = inactive_ms * 1000 / 4;
    return now_us + (rest_us < sweep_rest_us ? rest_us : sweep_rest_us);
}

/* ---- the audit ---- */

struct audit {
    struct maintenance *maintenance;
    uint64_t account; /* 0: there is none */
    size_t expected;
    struct feed_page page;
    uint64_t oracle[FEED_LIMIT_MAX];
    size_t groups_expected;
    uint64_t groups[INBOX_LIMIT_MAX], activities[INBOX_LIMIT_MAX];
    struct inbox_page inbox;
};

static enum err pick_account(struct tx *tx, struct rand *rand, uint64_t *account)
{
    int64_t newest;
    enum err e =
        tx_get_i64(tx, "SELECT id FROM accounts ORDER BY id DESC LIMIT 1", DB_NO_ARGS, &newest);
    int64_t oldest = 0;
    if (!e)
        e = tx_get_i64(tx, "SELECT id FROM accounts ORDER BY id LIMIT 1", DB_NO_ARGS, &oldest);
    int64_t found = 0;
    if (!e) {
        uint64_t span = (uint64_t)(newest - oldest) + 1;
        int64_t from = oldest + (int64_t)rand_below(rand, span);
        e = tx_get_i64(tx,
                       "SELECT id FROM accounts WHERE id >= $1 AND state = 0 ORDER BY id LIMIT 1",
                       DB_ARGS(DB_I64(from)), &found);
    }
    *account = (uint64_t)found;
    return e == ERR_NOT_FOUND ? OK : e;
}

/* Chooses an account, unless one was chosen before, and asks the oracle. */
static enum err ask_oracle(struct tx *tx, void *arg)
{
    struct audit *a = arg;
    a->expected = 0;
    TRY(a->account ? OK : pick_account(tx, &a->maintenance->rand, &a->account));
    if (a->account == 0)
        return OK;
    TRY(feed_oracle(tx, a->account, UINT64_MAX, FEED_LIMIT_MAX, a->oracle, &a->expected));
    return inbox_from_truth(tx, a->account, UINT64_MAX, false, INBOX_LIMIT_MAX, a->groups,
                            a->activities, &a->groups_expected);
}

/* What a comparison found. */
struct finding {
    bool compared, same; /* not compared: there is nothing derived */
    bool excused;        /* different, and the delivery store says why */
};

static enum err compare_feed(struct audit *a, struct finding *v)
{
    struct api *api = a->maintenance->api;
    uint64_t top, floor = UINT64_MAX;
    size_t n;
    *v = (struct finding){.same = true};
    TRY(timelines_home(api->views->timelines, a->account, UINT64_MAX, &top, 1, &n, &floor));
    if (floor == UINT64_MAX)
        return OK;
    struct arena arena;
    arena_init(&arena);
    enum err e = feed_peek(api->views, api->cards, api->db, a->account, UINT64_MAX, FEED_LIMIT_MAX,
                           &arena, &a->page);
    arena_done(&arena);
    v->compared = !e;
    v->same = !e && a->page.count == a->expected;
    for (size_t i = 0; i < a->expected && v->same; i++)
        v->same = a->page.items[i].card.id == a->oracle[i];
    return e;
}

static enum err compare_inbox(struct audit *a, struct finding *v)
{
    struct api *api = a->maintenance->api;
    struct inbox_entry first;
    size_t n;
    *v = (struct finding){.same = true};
    enum err e = inboxes_read(api->views->inboxes, a->account, UINT64_MAX, &first, 1, &n);
    if (e)
        return e == ERR_NEEDS_TRUTH || e == ERR_NOT_FOUND ? OK : e;
    struct arena arena;
    arena_init(&arena);
    e = inbox_page_read(api->views, api->cards, api->db, a->account, UINT64_MAX, false,
                        INBOX_LIMIT_MAX, &arena, &a->inbox);
    arena_done(&arena);
    v->compared = !e;
    v->same = !e && a->inbox.count == a->groups_expected;
    for (size_t i = 0; i < a->groups_expected && v->same; i++)
        v->same = a->inbox.items[i].group.id == a->groups[i];
    return e;
}

static enum err compare(struct audit *a, struct finding *feed, struct finding *inbox)
{
    *feed = *inbox = (struct finding){.same = true};
    TRY(db_read(a->maintenance->api->db, ask_oracle, a, NULL));
    if (a->account)
        TRY(compare_feed(a, feed));
    return a->account ? compare_inbox(a, inbox) : OK;
}

/* The writes of this node and, where many nodes write, the events that the engine took from all. */
static uint64_t movements(struct api *api)
{
    struct db_stats db;
    struct engine_stats engine;
    db_stats(api->db, &db);
    engine_stats(api->engine, &engine);
    return db.transactions + engine.events_taken;
}

/* ---- differences that the delivery store explains ---- */

static bool is_excuse(const struct event_standing *e)
{
    return e->event && (event_is_held_up(e->state) || e->given_up);
}

struct asking {
    struct audit *audit;
    struct explanation found;
    struct explained_events events;
    uint64_t event;
};

static enum err ask_about_post(struct tx *tx, void *arg)
{
    struct asking *k = arg;
    return explain_events(tx, k->audit->maintenance->api->engine, &k->found, &k->events);
}

static bool is_shown(const struct audit *a, uint64_t post)
{
    for (size_t i = 0; i < a->page.count; i++) {
        if (a->page.items[i].card.id == post)
            return true;
    }
    return false;
}

static bool is_expected(const struct audit *a, uint64_t post)
{
    for (size_t i = 0; i < a->expected; i++) {
        if (a->oracle[i] == post)
            return true;
    }
    /* What is missing further up lets older ones onto the page. */
    return a->expected == FEED_LIMIT_MAX && post < a->oracle[a->expected - 1];
}

static bool has_excuse(struct audit *a, uint64_t post)
{
    struct api *api = a->maintenance->api;
    struct asking k = {.audit = a};
    struct arena arena;
    arena_init(&arena);
    enum err e = truth_explain(api->db, api->views, api->cards, a->account, post, &arena, &k.found);
    if (!e)
        e = db_read(api->db, ask_about_post, &k, NULL);
    arena_done(&arena);
    return !e && (is_excuse(&k.events.posting) || is_excuse(&k.events.follow));
}

/* A post too many has none. */
static bool excuse_feed(struct audit *a)
{
    size_t missing = 0;
    for (size_t i = 0; i < a->page.count; i++) {
        if (!is_expected(a, a->page.items[i].card.id))
            return false;
    }
    for (size_t i = 0; i < a->expected && missing < AUDIT_MISSING_MAX; i++) {
        if (is_shown(a, a->oracle[i]))
            continue;
        missing++;
        if (!has_excuse(a, a->oracle[i]))
            return false;
    }
    return true;
}

struct asking_event {
    struct engine *engine;
    uint64_t event;
    struct event_standing standing;
};

static enum err ask_about_event(struct tx *tx, void *arg)
{
    struct asking_event *k = arg;
    return event_standing_read(tx, k->engine, k->event, &k->standing);
}

/* An activity is the id of the event that should have raised its group. */
static bool excuse_inbox(struct audit *a)
{
    struct api *api = a->maintenance->api;
    size_t at = 0;
    while (at < a->groups_expected && at < a->inbox.count &&
           a->inbox.items[at].group.id == a->groups[at])
        at++;
    if (at == a->groups_expected)
        return false;
    struct asking_event k = {.engine = api->engine, .event = a->activities[at]};
    return db_read(api->db, ask_about_event, &k, NULL) == OK && is_excuse(&k.standing);
}

/* ---- what it comes to ---- */

static struct audit_drift *find_drift(struct maintenance *c, uint64_t account)
{
    for (size_t i = 0; i < c->drift_count; i++) {
        if (c->drift[i].account == account)
            return &c->drift[i];
    }
    return NULL;
}

static void write_gauge(struct maintenance *c)
{
    int64_t differ = 0;
    for (size_t i = 0; i < c->drift_count; i++)
        differ += c->drift[i].feed + c->drift[i].inbox;
    atomic_store(&c->api->audit_drift, differ);
}

static void note_drift(struct maintenance *c, uint64_t account, bool feed, bool inbox)
{
    struct audit_drift *known = find_drift(c, account);
    if (!known && (feed || inbox) && c->drift_count < AUDIT_DRIFT_MAX) {
        known = &c->drift[c->drift_count++];
        known->account = account;
    }
    if (known) {
        known->feed = feed;
        known->inbox = inbox;
        if (!feed && !inbox)
            *known = c->drift[--c->drift_count];
    }
    write_gauge(c);
}

/* True: it differs, and nothing explains it. */
static bool count_verdict(const struct finding *v, _Atomic int64_t *compared, const char *what,
                          uint64_t account)
{
    if (!v->compared)
        return false;
    atomic_fetch_add(compared, 1);
    if (v->same || v->excused)
        return false;
    log_error(what, LOG_ID("account", account));
    return true;
}

/* True when the comparison says something: equal, or different while nothing moved. */
static bool audit_once(struct maintenance *c, struct audit *a)
{
    struct api *api = c->api;
    uint64_t before = movements(api);
    bool quiet = engine_drained(api->engine);
    struct finding feed, inbox;
    enum err e = compare(a, &feed, &inbox);
    if (e && e != ERR_NOT_FOUND)
        return true; /* nothing to say about this one now */
    bool same = feed.same && inbox.same;
    if (!e && !same && (!quiet || !engine_drained(api->engine) || movements(api) != before))
        return false;
    feed.excused = !feed.same && excuse_feed(a);
    inbox.excused = !inbox.same && excuse_inbox(a);
    bool feed_differs =
        count_verdict(&feed, &api->audited,
                      "a feed differs from truth; run 'fantail check --repair'", a->account);
    bool inbox_differs =
        count_verdict(&inbox, &api->audited_inboxes,
                      "an inbox differs from truth; run 'fantail check --repair'", a->account);
    note_drift(c, a->account, feed_differs, inbox_differs);
    return true;
}

/* Every second time one that differed; 0: one by chance. */
static uint64_t next_account(struct maintenance *c)
{
    c->audit_turn++;
    if (c->drift_count == 0 || c->audit_turn % 2 == 0)
        return 0;
    return c->drift[(c->audit_turn / 2) % c->drift_count].account;
}

int64_t maintenance_audit_step(struct maintenance *c)
{
    struct audit *a = calloc(1, sizeof(*a));
    CHECK(a);
    a->maintenance = c;
    a->account = c->audit_account;
    bool settled = audit_once(c, a) || ++c->audit_tries == AUDIT_TRIES;
    c->audit_account = settled ? next_account(c) : a->account;
    c->audit_tries = settled ? 0 : c->audit_tries;
    free(a);
    return clock_mono_us(c->api->clock) +
           (settled ? c->api->settings->audit_every_ms * 1000 : AUDIT_RETRY_US);
}
