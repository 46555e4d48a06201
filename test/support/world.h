/* A small world for tests: a real store in a temporary folder, a clock moved by hand, and, when
 * asked for, the views, caches, bus and engine of the embedded server, stepped by the test; or the
 * same over the drivers of many nodes, where the clock also runs by itself, because servers take
 * their time. Everything that goes wrong where the test did not expect it ends the program with a
 * message. */
#pragma once

#include "base/arena.h"
#include "base/id.h"
#include "drivers.h"
#include "model/feed.h"
#include "model/follow.h"
#include "pipe/engine.h"
#include "port/bus.h"
#include "port/cards.h"
#include "port/db.h"
#include "port/invalidation.h"
#include "port/views.h"

enum { WORLD_RULES_MAX = 16 };

struct world {
    char folder[64];
    struct test_drivers drivers;
    struct manual_clock clock;
    int64_t ticked_us; /* of the system's clock: the world's has run until then */
    struct id_gen ids;
    struct db *db;
    struct follow_policy policy;
    uint64_t events[EVENT_TYPE_COUNT]; /* committed so far, by type */
    uint64_t last_event;               /* the greatest id of a stored one */
    /* before world_start; 0: as they are by default */
    uint16_t batch_max;            /* members a call of any sink at most, so that few are many */
    int64_t active_within_ms;      /* who counts as active in large fan-outs */
    int64_t group_pull_threshold;  /* 0: no member pulls */
    const struct rule *more_rules; /* behind the domain's own */
    size_t more_rule_count;
    struct rule rules[WORLD_RULES_MAX];
    /* after world_start */
    size_t cap;
    struct views *views;
    struct cards *cards;
    struct signal *signal;
    struct invalidation *invalidation; /* NULL: the views are not shared */
    struct page_source *page_source;   /* NULL as well */
    struct bus *bus;
    struct engine *engine;
};

void world_open(struct world *w, int64_t celebrity_threshold);
void world_open_on(struct world *w, int64_t celebrity_threshold, enum test_drivers_kind kind);
void world_close(struct world *w);
void world_clear(struct world *w); /* removes every row; the stack must be stopped */

/* The stack on top of the store: views from their snapshot or from truth, then what came after. */
void world_start(struct world *w, size_t timeline_cap);
void world_stop(struct world *w); /* forgets all memory, as a crash does */
void world_save(struct world *w); /* a snapshot at the engine's done watermark, or a second copy */
void world_forget_snapshot(struct world *w);
void world_step(struct world *w); /* a little work of the engine */
void world_drain(struct world *w);
void world_hear_news(struct world *w); /* of all that was changed in shared views until now */
enum err world_apply(struct world *w, struct view_change change);

/* Takes the world's numbers from truth. */
int64_t world_i64(struct world *w, const char *sql, const struct db_value *args, size_t n);

enum act {
    ACT_ACCOUNT,
    ACT_FOLLOW,
    ACT_UNFOLLOW,
    ACT_BLOCK,
    ACT_UNBLOCK,
    ACT_MUTE,
    ACT_UNMUTE,
    ACT_POST,
    ACT_EDIT,
    ACT_DELETE,
    ACT_LIKE,
    ACT_UNLIKE,
    ACT_COMMENT,
    ACT_UNCOMMENT,
    ACT_SUSPEND,
    ACT_RESTORE,
    ACT_DELETE_ACCOUNT,
    ACT_UPDATE,
    ACT_COUNT
};

/* One act in one transaction: `who` does it to `what` (an account, a post or a comment). */
struct deed {
    enum act act;
    uint64_t who, what;
    struct str text;
    uint64_t id;  /* given: what is made gets it; after: what was made */
    bool changed; /* of the edges and likes */
};
enum err world_do(struct world *w, struct deed *d);

/* Shorthands that expect success. */
uint64_t world_account(struct world *w, const char *username);
uint64_t world_post(struct world *w, uint64_t author, const char *caption);
void world_act(struct world *w, enum act act, uint64_t who, uint64_t what);

/* The feed as the oracle sees it, at most `max` ids. */
size_t world_oracle(struct world *w, uint64_t viewer, uint64_t *ids, size_t max);
/* The feed as it is read, all pages of `limit`. *ok: every page was strictly falling. */
size_t world_feed(struct world *w, uint64_t viewer, size_t limit, uint64_t *ids, size_t max);

#define EXPECT(e) ((e) ? (void)0 : world_fail(#e, __FILE__, __LINE__))
_Noreturn void world_fail(const char *what, const char *file, int line);
