/* The REST API: one table of routes with their policies; who calls; where each handler runs.
 *
 * A handler is `enum err h(struct call *c, struct tx *tx)` and runs, by its route's mode:
 *   INLINE  on the event loop, tx NULL; may return ERR_NEEDS_TRUTH and is then run again on a
 *           blocking thread with c->blocking set, tx still NULL: it does its own db_read
 *   READ    on a blocking thread, in a read snapshot
 *   WRITE   in a write transaction (may be run again: the answer's body is cleared before each
 *           run); the answer is sent after COMMIT and after the views know. The row may name what
 *           needs no transaction: `prepare` runs before it and reads and checks what was sent,
 *           `render` runs after COMMIT, on the event loop, and writes c->json. Both leave what they
 *           have for each other in c->work. One thread runs all transactions of an embedded store,
 *           and every write waits for it: it does nothing else
 *   SLOW    on a thread of its kind (enum slow_pool), tx NULL: does its own db_read/db_write
 * Handlers fill c->json (an object or array written into x->out) and c->status. An error return
 * becomes application/problem+json: {"type","code","title","status","detail"}. */
#pragma once

#include <jansson.h>

#include "base/json_out.h"
#include "model/account.h"
#include "model/celebrity.h"
#include "net/http.h"
#include "net/pool.h"
#include "ops/settings.h"
#include "pipe/engine.h"
#include "port/cards.h"
#include "port/db.h"
#include "port/views.h"

struct auth;
struct overload_guard;
struct page_source;
struct cluster;
struct dispatcher;
struct guessing;
struct hot_keys;
struct live;
struct limits;
struct http_server;

/* Slow work by kind, each with threads of its own: however much there is of one kind, the others go
 * on. Requests through the control socket never wait for anyone else's. */
enum slow_pool { SLOW_PASSWORDS, SLOW_EXPORTS, SLOW_ADMIN, SLOW_CONTROL, SLOW_POOLS };
enum { SLOW_THREADS = 8 }; /* of all these pools */

/* What the handlers work with; made by cmd/. */
struct api {
    const struct settings *settings;
    struct clock *clock;
    struct db *db;
    struct views *views;
    struct cards *cards;
    struct invalidation
        *invalidation; /* port/invalidation.h; NULL: views and cards are this process's own */
    struct engine *engine;
    struct celebrity_keeper *keeper;
    struct pool *pool;                     /* blocking reads */
    struct pool *drawing;                  /* answers drawn in step; NULL: each on its own */
    struct page_source *page_source;       /* port/page_source.h, of shared views; else NULL */
    struct pool *slow[SLOW_POOLS];         /* of MODE_SLOW, by kind: few threads, short queues */
    struct pool *forwarding;               /* api/edge/forward.h; NULL: this server is alone */
    struct http_server *http;              /* set after start; for metrics */
    struct auth *auth;                     /* api/edge/auth.h */
    struct limits *limits;                 /* net/limits.h */
    struct guessing *guessing;             /* api/edge/guessing.h */
    struct page_cache *pages;              /* api/edge/page_cache.h; NULL: none are kept */
    struct overload_guard *overload_guard; /* ops/overload_guard.h; NULL: nothing is watched */
    struct live *live;                     /* live/live.h; NULL: no streams */
    struct cluster *cluster;               /* api/edge/cluster.h; NULL: this server is alone */
    struct hot_keys *hot_groups;           /* ops/hot_keys.h */
    struct fan_out_times *fan_outs;        /* ops/fan_out_times.h; NULL: not measured */
    uint8_t secret[32];                    /* signs cursors; from meta */
    _Atomic bool ready;                    /* /readyz */
    int64_t started_at_ms;
    _Atomic int64_t audit_drift; /* feeds and inboxes that differ, as the background audit last saw
                                    them: should read zero */
    _Atomic int64_t audited, audited_inboxes;
    _Atomic uint64_t rebuilt;      /* changes of views by rebuilds, which have no event */
    struct dispatcher *dispatcher; /* api/edge/dispatcher.h */
};

/* Reads or makes the secret, makes auth, limits and the dispatcher from the settings. Blocking;
 * after the db is open and before the HTTP server starts. On failure `why` says so. */
enum err api_open(struct api *api, char why[200]);
void api_start_pools(struct api *api); /* those of MODE_SLOW */
void api_stop_pools(struct api *api);
void api_close(struct api *api); /* after the HTTP server, the pools and the db have stopped */

struct session_terms api_session_terms(const struct api *api); /* from the settings */

enum route_mode { MODE_INLINE, MODE_READ, MODE_WRITE, MODE_SLOW };
/* Who may call it. A route without one does not compile (see ROUTE_ROW in routes.h). */
enum route_policy { POLICY_ANYONE = 1, POLICY_ACCOUNT, POLICY_ADMIN_READ, POLICY_ADMIN };
enum rate_class { RATE_READ, RATE_WRITE, RATE_AUTH, RATE_NONE };

struct caller {
    uint64_t account;      /* 0: none */
    uint64_t session;      /* 0: not by session */
    int64_t expires_at_ms; /* of a JWT; 0: as long as the session, or the key */
    unsigned scopes;       /* of an API key, or all on the control socket */
    uint64_t key;          /* 0: not by API key, or on the control socket, or passed on */
    int64_t key_rate;      /* its requests a second; 0: no limit */
    bool control;
};

/* Which invalidations of shared views and cards this node has received. A handler on the loop may
 * want all until now: it sets WANTED, returns ERR_NEEDS_TRUTH, and is run again with HEARD or
 * MISSED, still unable to block. */
enum call_invalidations {
    INVALIDATIONS_UNASKED,
    INVALIDATIONS_WANTED,
    INVALIDATIONS_HEARD,
    INVALIDATIONS_MISSED
};

struct route;
enum { CALL_PARAMS_MAX = 3, DETAIL_MAX = 320 };

struct call {
    struct api *api;
    struct http_exchange *x;
    const struct route *route;
    struct caller caller;
    uint64_t params[CALL_PARAMS_MAX]; /* the {id}s of the path, in order */
    struct str name;                  /* the {name} of the path */
    json_t *body; /* parsed JSON object of a request that has one; freed with the call */
    struct json_out json;
    int status;      /* the route's success status unless set; 204 sends no body */
    void *work;      /* of a write: what it passes from `prepare` to handler to `render` */
    uint64_t object; /* of a keyed write: what it made, remembered under its key for `repeat` */
    bool blocking;   /* this run is on a thread that may block (READ, WRITE, SLOW) */
    bool in_step;    /* of a handler on the loop that needs truth: others can be drawn with it */
    enum call_invalidations invalidations;
    struct stream *stream; /* net/stream.h: the answer does not end. The handler's reference */
    char detail[DETAIL_MAX];
    /* the dispatcher's own */
    struct db_job job;
    struct pool_task task;
};

/* The http_handler: matches, authenticates, limits, dispatches. ctx is struct api. */
void api_handle(void *ctx, struct http_exchange *x);

/* ---- for handlers ---- */

/* Sets the detail and returns the kind. */
enum err call_fail(struct call *c, enum err kind, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* What a model's check without a transaction came to: its detail becomes the call's. */
enum err call_checked(struct call *c, const struct tx *says, enum err e);

/* Fields of the JSON body. Strings must be UTF-8 without NUL. Absent or null: out untouched when
 * optional. */
enum err call_body_text(struct call *c, const char *name, bool required, struct str *out);
enum err call_body_number(struct call *c, const char *name, int64_t min, int64_t max, int64_t *out);
enum err call_body_flag(struct call *c, const char *name, bool *out);
enum err call_body_id(struct call *c, const char *name, uint64_t *out); /* "0" leaves it, too */
/* An array of ids; absent: *n is 0. In the request's arena. */
enum err call_body_ids(struct call *c, const char *name, size_t max, const uint64_t **ids,
                       size_t *n);

/* ?limit= (1 … the most of the route's row, else ERR_BAD_INPUT) and ?cursor= (checked: our MAC,
 * this caller, this very list). Without a cursor *position is UINT64_MAX: the beginning. `room`:
 * how many the handler can take, no fewer than the row says. */
enum err call_page(struct call *c, size_t room, size_t *limit, uint64_t *position);
/* Ends {"items":[…],"next_cursor":…} and adds the Link header; position 0: no more. */
void call_list_begin(struct call *c);
void call_list_end(struct call *c, uint64_t next_position);
/* Link: <this request with that cursor>; rel="next". */
void call_link_next(struct call *c, struct str cursor);
/* A query parameter that may be left out: then, and when empty, *out is {NULL, 0}. */
enum err call_query_text(struct call *c, const char *name, struct str *out);
enum err call_query_id(struct call *c, const char *name, uint64_t *out);
/* The same of a number; left out: *out stays. */
enum err call_query_number(struct call *c, const char *name, int64_t min, int64_t max,
                           int64_t *out);
