/* The audit proves what the product promises: with the pipeline drained, a feed is what the oracle
 * says, and so is an inbox. A comparison counts only when nothing was committed and nothing was
 * under way while it was made; a busy server gets a few tries and then the next period. Timelines
 * and inboxes that are not in memory are passed over: there is nothing derived to compare, and
 * looking would build them.
 *
 * A snapshot is named after the engine's watermark as it was *before* saving began: whatever the
 * save holds beyond that is delivered again after a crash, which is harmless. */
#include "node/maintenance.h"

#include <stdlib.h>

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

/* A feed that waits for a dead letter differs, and the dead letter says so already. */
static bool has_dead(struct api *api)
{
    struct engine_stats stats;
    engine_stats(api->engine, &stats);
    return stats.states.dead + stats.states.parked + stats.states.discarded > 0;
}

static void count_verdict(struct api *api, const struct finding *v, _Atomic int64_t *compared,
                          const char *what, uint64_t account)
{
    if (!v->compared)
        return;
    atomic_fetch_add(compared, 1);
    if (v->same)
        return;
    atomic_fetch_add(&api->audit_drift, 1);
    log_error(what, LOG_ID("account", account));
}

/* True when the comparison says something: equal, or different while nothing moved. */
static bool audit_once(struct maintenance *c, struct audit *a)
{
    struct api *api = c->api;
    uint64_t before = movements(api);
    bool quiet = engine_drained(api->engine) && !has_dead(api);
    struct finding feed, inbox;
    if (compare(a, &feed, &inbox) != OK || (!feed.compared && !inbox.compared))
        return true; /* nothing to say about this one */
    bool same = feed.same && inbox.same;
    if (!same && (!quiet || !engine_drained(api->engine) || movements(api) != before))
        return false;
    count_verdict(api, &feed, &api->audited,
                  "a feed differs from truth; run 'fantail check --repair'", a->account);
    count_verdict(api, &inbox, &api->audited_inboxes,
                  "an inbox differs from truth; run 'fantail check --repair'", a->account);
    return true;
}

int64_t maintenance_audit_step(struct maintenance *c)
{
    struct audit *a = calloc(1, sizeof(*a));
    CHECK(a);
    a->maintenance = c;
    a->account = c->audit_account;
    bool settled = audit_once(c, a) || ++c->audit_tries == AUDIT_TRIES;
    c->audit_account = settled ? 0 : a->account;
    c->audit_tries = settled ? 0 : c->audit_tries;
    free(a);
    return clock_mono_us(c->api->clock) +
           (settled ? c->api->settings->audit_every_ms * 1000 : AUDIT_RETRY_US);
}
