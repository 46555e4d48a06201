/* The test's world: see world.h. The store lies in memory (/dev/shm) when the machine has that, so
 * that a durable commit costs microseconds and thousands of histories fit into a minute. */
#include "world.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/check.h"
#include "base/log.h"
#include "model/account.h"
#include "model/event_views.h"
#include "model/post.h"
#include "model/rules.h"
#include "node/lease.h"

enum { DRAIN_STEPS_MAX = 1000000, DRAIN_MS = 60000, AWAIT_MS = 2 };

#define WORLD_BEGAN_MS INT64_C(1790000000000)

_Noreturn void world_fail(const char *what, const char *file, int line)
{
    printf("Bail out! %s:%d: %s\n", file, line, what);
    fflush(stdout);
    abort();
}

static bool is_shared(const struct world *w)
{
    return w->drivers.kind == TEST_CLUSTER;
}

static void committed(void *ctx, const struct event *events, size_t n)
{
    struct world *w = ctx;
    for (size_t i = 0; i < n; i++) {
        w->events[events[i].type]++;
        if (event_keep(events[i].type) == EVENT_STORED && events[i].id > w->last_event)
            w->last_event = events[i].id;
        if (w->views && !is_shared(w))
            event_apply(w->views, w->cards, &events[i]);
    }
    if (w->views && is_shared(w) && n > 0)
        EXPECT(event_apply_all(w->views, w->cards, events, n) == OK);
    if (w->engine)
        engine_offer(w->engine, events, n);
}

/* The leader's: events that it read back from the table. */
static enum err apply_again(void *ctx, const struct event *events, size_t n)
{
    struct world *w = ctx;
    return event_apply_all(w->views, w->cards, events, n);
}

void world_open(struct world *w, int64_t celebrity_threshold)
{
    world_open_on(w, celebrity_threshold, TEST_EMBEDDED);
}

void world_open_on(struct world *w, int64_t celebrity_threshold, enum test_drivers_kind kind)
{
    memset(w, 0, sizeof *w);
    log_set_level(LOG_ERROR);
    const char *root = access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp";
    snprintf(w->folder, sizeof w->folder, "%s/fantail-world-XXXXXX", root);
    EXPECT(mkdtemp(w->folder));
    test_drivers_init(&w->drivers, kind, w->folder);
    manual_clock_init(&w->clock, is_shared(w) ? clock_wall_ms(clock_system()) : WORLD_BEGAN_MS);
    w->ticked_us = clock_mono_us(clock_system());
    id_gen_init(&w->ids, test_drivers_id_clock(&w->drivers, &w->clock.clock), 1);
    w->policy =
        (struct follow_policy){.celebrity_threshold = celebrity_threshold, .max_following = 1000};
    w->db = test_drivers_open_db(&w->drivers, &w->ids, &w->clock.clock);
    w->db->on_commit = committed;
    w->db->on_commit_ctx = w;
}

static void remove_folder(const char *folder)
{
    DIR *d = opendir(folder);
    EXPECT(d);
    for (struct dirent *entry; (entry = readdir(d));) {
        if (entry->d_name[0] != '.')
            unlinkat(dirfd(d), entry->d_name, 0);
    }
    closedir(d);
    rmdir(folder);
}

void world_close(struct world *w)
{
    world_stop(w);
    db_stop(w->db);
    db_free(w->db);
    test_drivers_done(&w->drivers);
    remove_folder(w->folder);
}

static enum err clear_tables(struct tx *tx, void *arg)
{
    static const char *const tables[] = {
        "DELETE FROM accounts",       "DELETE FROM sessions",
        "DELETE FROM follows",        "DELETE FROM blocks",
        "DELETE FROM mutes",          "DELETE FROM posts",
        "DELETE FROM post_versions",  "DELETE FROM likes",
        "DELETE FROM comments",       "DELETE FROM outbox",
        "DELETE FROM idempotency",    "DELETE FROM groups",
        "DELETE FROM group_members",  "DELETE FROM group_log",
        "DELETE FROM group_mentions", "DELETE FROM group_invitations",
        "DELETE FROM chats",          "DELETE FROM erasures",
    };
    (void)arg;
    enum err e = OK;
    for (size_t i = 0; !e && i < sizeof tables / sizeof tables[0]; i++)
        e = tx_exec(tx, tables[i], DB_NO_ARGS, NULL);
    return e;
}

void world_clear(struct world *w)
{
    EXPECT(!w->views);
    EXPECT(db_write(w->db, clear_tables, NULL, NULL) == OK);
    world_forget_snapshot(w);
    memset(w->events, 0, sizeof w->events);
}

/* ---- the stack ---- */

void world_start(struct world *w, size_t timeline_cap)
{
    struct views *views;
    w->cap = timeline_cap;
    test_drivers_open_views(&w->drivers, w->db, &w->clock.clock, timeline_cap, &views, &w->cards,
                            &w->invalidation, &w->signal);
    w->page_source = test_drivers_page_source(&w->drivers, views, w->cards);
    w->bus = test_drivers_open_bus(&w->drivers, &w->clock.clock);
    struct engine_config engine;
    engine_config_default(&engine);
    engine.watermark_every_ms = 10;
    engine.shared = is_shared(w);
    engine.node = 1;
    engine.fence = lease_fence_engine;
    if (w->active_within_ms)
        engine.active_within_ms = w->active_within_ms;
    /* One thread moves this world: the policy's plain number may be read as the sinks read theirs.
     */
    const void *threshold = &w->policy.celebrity_threshold;
    struct sink_env env = {.db = w->db,
                           .views = views,
                           .cards = w->cards,
                           .signal = w->signal,
                           .clock = &w->clock.clock,
                           .celebrity_threshold = threshold,
                           .group_pull_threshold = w->group_pull_threshold};
    EXPECT(model_rule_count <= WORLD_RULES_MAX);
    memcpy(w->rules, model_rules, model_rule_count * sizeof *w->rules);
    for (size_t i = 0; w->batch_max && i < model_rule_count; i++)
        w->rules[i].batch = w->rules[i].batch < w->batch_max ? w->rules[i].batch : w->batch_max;
    EXPECT(model_rule_count + w->more_rule_count <= WORLD_RULES_MAX);
    for (size_t i = 0; i < w->more_rule_count; i++)
        w->rules[model_rule_count + i] = w->more_rules[i];
    w->engine = engine_new(&engine, w->rules, model_rule_count + w->more_rule_count, env, w->bus);
    w->views = views;
    if (is_shared(w))
        engine_on_apply(w->engine, apply_again, w);
    test_drivers_lead(&w->drivers, w->engine, w->db, &w->clock.clock);
}

void world_stop(struct world *w)
{
    if (!w->views)
        return;
    engine_free(w->engine);
    bus_free(w->bus);
    if (w->page_source)
        page_source_free(w->page_source);
    w->page_source = NULL;
    views_free(w->views);
    cards_free(w->cards);
    signal_free(w->signal);
    if (w->invalidation)
        invalidation_free(w->invalidation);
    w->invalidation = NULL;
    w->engine = NULL;
    w->bus = NULL;
    w->views = NULL;
    w->cards = NULL;
}

struct hearing {
    struct invalidation_question question;
    pthread_mutex_t lock;
    pthread_cond_t heard;
    bool done;
};

static void news_came(struct invalidation_question *q, bool good)
{
    struct hearing *h = CONTAINER_OF(q, struct hearing, question);
    (void)good; /* nothing is the same when it is not: the page will be drawn */
    pthread_mutex_lock(&h->lock);
    h->done = true;
    pthread_cond_signal(&h->heard);
    pthread_mutex_unlock(&h->lock);
}

void world_hear_news(struct world *w)
{
    struct hearing h = {.question = {.done = news_came},
                        .lock = PTHREAD_MUTEX_INITIALIZER,
                        .heard = PTHREAD_COND_INITIALIZER};
    if (!w->invalidation)
        return;
    invalidation_ask(w->invalidation, &h.question);
    pthread_mutex_lock(&h.lock);
    while (!h.done)
        pthread_cond_wait(&h.heard, &h.lock);
    pthread_mutex_unlock(&h.lock);
}

void world_save(struct world *w)
{
    uint64_t position = engine_settled_through(w->engine);
    if (position > 0)
        EXPECT(views_save(w->views, position) == OK);
}

void world_forget_snapshot(struct world *w)
{
    test_drivers_lose_views(&w->drivers);
}

/* Time that servers took is time that has passed. */
static void tick(struct world *w)
{
    int64_t now_us = clock_mono_us(clock_system()), ms = (now_us - w->ticked_us) / 1000;
    if (!is_shared(w))
        return;
    manual_clock_advance(&w->clock, ms);
    w->ticked_us += ms * 1000;
}

void world_step(struct world *w)
{
    tick(w);
    engine_relay_step(w->engine);
    engine_worker_step(w->engine);
    engine_recorder_step(w->engine);
}

/* False: there was nothing to do. */
static bool work(struct world *w)
{
    tick(w);
    int64_t now_us = clock_mono_us(&w->clock.clock);
    int64_t relay_us = engine_relay_step(w->engine);
    int64_t worker_us = engine_worker_step(w->engine);
    int64_t recorder_us = engine_recorder_step(w->engine);
    return relay_us <= now_us || worker_us <= now_us || recorder_us <= now_us;
}

/* Events of many nodes are looked for by time: the last one must have been found. */
static void drain_shared(struct world *w)
{
    int64_t end_ms = clock_mono_ms(clock_system()) + DRAIN_MS;
    while (clock_mono_ms(clock_system()) < end_ms) {
        if (work(w))
            continue;
        if (engine_settled_through(w->engine) >= w->last_event && engine_drained(w->engine))
            return;
        test_drivers_await_work(&w->drivers, AWAIT_MS);
    }
    world_fail("the engine never drains", __FILE__, __LINE__);
}

void world_drain(struct world *w)
{
    if (is_shared(w)) {
        drain_shared(w);
        return;
    }
    for (int i = 0; i < DRAIN_STEPS_MAX; i++) {
        if (work(w))
            continue;
        if (engine_drained(w->engine))
            return;
        manual_clock_advance(&w->clock, 5); /* a lane waits for its rate, or a retry for its time */
    }
    world_fail("the engine never drains", __FILE__, __LINE__);
}

enum err world_apply(struct world *w, struct view_change change)
{
    return views_apply(w->views, &change, 1);
}

/* ---- truth ---- */

struct number {
    const char *sql;
    const struct db_value *args;
    size_t n;
    int64_t value;
};

static enum err read_number(struct tx *tx, void *arg)
{
    struct number *q = arg;
    return tx_get_i64(tx, q->sql, q->args, q->n, &q->value);
}

int64_t world_i64(struct world *w, const char *sql, const struct db_value *args, size_t n)
{
    struct number q = {.sql = sql, .args = args, .n = n};
    EXPECT(db_read(w->db, read_number, &q, NULL) == OK);
    return q.value;
}

struct doing {
    struct world *world;
    struct deed *deed;
    struct arena arena;
};

static enum err do_account(struct tx *tx, struct deed *d, int64_t now_ms)
{
    switch (d->act) {
    case ACT_ACCOUNT: {
        struct account_new in = {.username = d->text, .seen_at_ms = now_ms};
        return account_create(tx, &in, &d->id);
    }
    case ACT_UPDATE: {
        struct account_change change = {.display_name = d->text};
        return account_update(tx, d->who, &change);
    }
    case ACT_SUSPEND:
        return account_suspend(tx, d->what, true);
    case ACT_RESTORE:
        return account_suspend(tx, d->what, false);
    default:
        return account_delete(tx, d->what);
    }
}

static enum err do_graph(struct tx *tx, struct deed *d, const struct follow_policy *p)
{
    switch (d->act) {
    case ACT_FOLLOW:
        return follow_create(tx, d->who, d->what, p, &d->changed);
    case ACT_UNFOLLOW:
        return follow_remove(tx, d->who, d->what, p, &d->changed);
    case ACT_BLOCK:
        return block_create(tx, d->who, d->what, p, &d->changed);
    case ACT_UNBLOCK:
        return block_remove(tx, d->who, d->what, &d->changed);
    case ACT_MUTE:
        return mute_create(tx, d->who, d->what, &d->changed);
    default:
        return mute_remove(tx, d->who, d->what, &d->changed);
    }
}

static enum err do_post(struct tx *tx, struct deed *d, int64_t now_ms, struct arena *arena)
{
    struct post_card card;
    enum err e;
    switch (d->act) {
    case ACT_POST: {
        struct post_new in = {.author = d->who, .caption = d->text, .id = d->id};
        e = post_create(tx, &in, arena, &card);
        d->id = card.id;
        return e;
    }
    case ACT_EDIT:
        return post_edit(tx, d->what, d->who, d->text, now_ms, arena, &card);
    case ACT_DELETE:
        return post_delete(tx, d->what, d->who, now_ms);
    case ACT_LIKE:
    case ACT_UNLIKE:
        return post_like(tx, d->what, d->who, d->act == ACT_LIKE, now_ms, &d->changed);
    case ACT_COMMENT: {
        struct comment comment = {0};
        e = comment_create(tx, 0, d->what, d->who, d->text, arena, &comment);
        d->id = comment.id;
        return e;
    }
    default:
        return comment_delete(tx, d->what, d->who, now_ms);
    }
}

static enum err run_deed(struct tx *tx, void *arg)
{
    struct doing *x = arg;
    struct deed *d = x->deed;
    int64_t now_ms = clock_wall_ms(&x->world->clock.clock);
    switch (d->act) {
    case ACT_ACCOUNT:
    case ACT_UPDATE:
    case ACT_SUSPEND:
    case ACT_RESTORE:
    case ACT_DELETE_ACCOUNT:
        return do_account(tx, d, now_ms);
    case ACT_FOLLOW:
    case ACT_UNFOLLOW:
    case ACT_BLOCK:
    case ACT_UNBLOCK:
    case ACT_MUTE:
    case ACT_UNMUTE:
        return do_graph(tx, d, &x->world->policy);
    default:
        return do_post(tx, d, now_ms, &x->arena);
    }
}

enum err world_do(struct world *w, struct deed *d)
{
    struct doing x = {.world = w, .deed = d};
    arena_init(&x.arena);
    enum err e = db_write(w->db, run_deed, &x, NULL);
    arena_done(&x.arena);
    return e;
}

uint64_t world_account(struct world *w, const char *username)
{
    struct deed d = {.act = ACT_ACCOUNT, .text = str_of(username)};
    EXPECT(world_do(w, &d) == OK);
    return d.id;
}

uint64_t world_post(struct world *w, uint64_t author, const char *caption)
{
    struct deed d = {.act = ACT_POST, .who = author, .text = str_of(caption)};
    EXPECT(world_do(w, &d) == OK);
    return d.id;
}

void world_act(struct world *w, enum act act, uint64_t who, uint64_t what)
{
    struct deed d = {.act = act, .who = who, .what = what, .text = STR("text")};
    EXPECT(world_do(w, &d) == OK);
}

/* ---- feeds ---- */

struct oracle {
    uint64_t viewer;
    uint64_t *ids;
    size_t max, n;
};

static enum err read_oracle(struct tx *tx, void *arg)
{
    struct oracle *o = arg;
    return feed_oracle(tx, o->viewer, UINT64_MAX, o->max, o->ids, &o->n);
}

size_t world_oracle(struct world *w, uint64_t viewer, uint64_t *ids, size_t max)
{
    struct oracle o = {.viewer = viewer, .ids = ids, .max = max};
    EXPECT(db_read(w->db, read_oracle, &o, NULL) == OK);
    return o.n;
}

size_t world_feed(struct world *w, uint64_t viewer, size_t limit, uint64_t *ids, size_t max)
{
    size_t n = 0;
    uint64_t below = UINT64_MAX;
    while (below > 0) {
        struct feed_page page;
        struct arena arena;
        arena_init(&arena);
        EXPECT(feed_read(w->views, w->cards, w->db, viewer, below, limit, &arena, &page) == OK);
        arena_done(&arena);
        EXPECT(page.count <= limit);
        EXPECT(page.next_below < below);
        for (size_t i = 0; i < page.count; i++) {
            EXPECT(n < max);
            EXPECT(page.items[i].card.id < below);
            below = page.items[i].card.id;
            ids[n++] = below;
        }
        below = page.next_below;
    }
    return n;
}
