/* The one table of routes, api/edge/routes.def. Matching, policies, the OpenAPI document, the docs
 * page, the metrics and the generated tests all come from it. */
#pragma once

#include "api/edge/api.h"

typedef enum err (*handler_fn)(struct call *c, struct tx *tx);

enum route_flag {
    ROUTE_BODY_OPTIONAL = 1, /* the request's JSON object may be left out */
    ROUTE_NDJSON = 2,        /* the body is NDJSON, up to HTTP_BODY_MAX; the handler reads it */
    ROUTE_KEYED = 4,         /* takes Idempotency-Key */
    ROUTE_TOKENLESS = 16,    /* ignores Authorization: a stale token must not stop a log-in */
    ROUTE_CONTROL = 32,      /* only through the control socket */
    ROUTE_GROWS = 64,        /* makes the store grow: refused at the overload guard's last level */
    ROUTE_BULK = 128,        /* work that can wait: refused from the guard's first level on */
    ROUTE_CONFLICTS = 256,   /* may answer 409 by what it does */
    ROUTE_MAY_BE_GONE = 512, /* may answer 410 */
    ROUTE_AT_LEADER = 1024,  /* only the node that leads can answer: others ask it */
    ROUTE_EITHER = 2048,     /* succeeds with 201 when it made something, with 200 otherwise */
    ROUTE_RECORDED = 4096,   /* an operator's act, which is recorded: takes Fantail-Why */
};

/* A second rate limit, by the {id} that the path names first, for all callers together. A request
 * takes a token before it reaches the store, and gets it back when it wrote nothing. */
struct route_limit {
    const char *noun, *unit;                          /* "group", "messages": for the refusal */
    int64_t burst;                                    /* times the rate */
    int64_t (*rate)(const struct settings *settings); /* a second; 0: no limit */
    void (*written)(struct api *api, uint64_t id, int64_t took_us);
    void (*refused)(struct api *api);
};

/* A list that is cut into pages takes limit and cursor. `most` 0: it is none. */
struct route_page {
    size_t usual, most; /* items a page: without limit, and at most */
};

struct route {
    const char *section; /* the heading it stands under in the documents; see docs.html */
    enum http_method method;
    struct str path; /* "/v1/posts/{id}" */
    handler_fn handler;
    const char *name; /* the handler's: operationId, metrics label, scope of cursors and keys */
    enum route_mode mode;
    enum route_policy policy;
    enum rate_class rate;
    const char *request;  /* schema of the JSON object that must come with it; NULL: none */
    const char *response; /* schema, or a media type; NULL: none. See api/edge/schemas.h */
    int success;
    unsigned flags;
    const char *query; /* "name=what it is;…" beyond limit and cursor; "" for none */
    const char *summary;
    /* Optional, of writes. `prepare`: on the loop or a blocking thread, before the transaction; an
     * error is the answer. `render`: writes the answer from what the handler left in c->work, after
     * COMMIT. It cannot fail: what is done is done. */
    enum err (*prepare)(struct call *c);
    void (*render)(struct call *c);
    void (*first_statement)(
        struct call *c); /* names the transaction's first statement, in c->job */
    /* The handler for several requests at once, as struct db_job has it. */
    enum err (*together)(struct call *const *calls, size_t n, struct tx *tx, bool *taken);
    /* In place of the handler when the key's write was done before: leaves in c->work what `render`
     * shows, by the path and c->object, as the caller may see it now. */
    enum err (*repeat)(struct call *c, struct tx *tx);
    const struct route_limit *limit;
    struct route_page page;
    /* Of INLINE routes over shared views: draws the answers of several calls that wait. Calls
     * `done` once for each; ERR_NEEDS_TRUTH: the handler shall draw this one, and may block. */
    void (*in_step)(struct call **calls, size_t n, void (*done)(struct call *c, enum err e));
};

/* A row of the table. The policy has no default: leaving the argument out or empty does not
 * compile, and neither does a policy of value zero (test/unit/api/edge/route_policy.c is compiled
 * by a test to show it). */
#define ROUTE_POLICY(policy)                                                                       \
    ((enum route_policy)((int)(policy) + 0 * (int)sizeof(char[(policy) > 0 ? 1 : -1])))
#define ROUTE_ROW(section_, method_, path_, handler_, mode_, policy_, rate_, request_, response_,  \
                  success_, flags_, query_, summary_, ...)                                         \
    {.section = #section_,                                                                         \
     .method = HTTP_M_##method_,                                                                   \
     .path = {"" path_, sizeof(path_) - 1},                                                        \
     .handler = handler_,                                                                          \
     .name = #handler_,                                                                            \
     .mode = MODE_##mode_,                                                                         \
     .policy = ROUTE_POLICY(POLICY_##policy_),                                                     \
     .rate = RATE_##rate_,                                                                         \
     .request = request_,                                                                          \
     .response = response_,                                                                        \
     .success = success_,                                                                          \
     .flags = flags_,                                                                              \
     .query = query_,                                                                              \
     .summary = summary_,                                                                          \
     __VA_ARGS__},

enum { ROUTES_MAX = 128, ROUTE_NAME_MAX = 40 };
extern const struct route routes[];
extern const size_t route_count;

struct route_match {
    const struct route *route; /* NULL: the path exists, the method does not */
    unsigned methods; /* bit set of 1 << enum http_method: what the path knows (HEAD and OPTIONS
                         included) */
    uint64_t params[CALL_PARAMS_MAX];
    size_t param_count;
    struct str name; /* of a {name}; {NULL, 0}: the path has none */
};

/* Finds the route in one walk over the path, without allocation. False: no such path. An {id},
 * {account} or {seq} is a decimal number as we write them: no sign, no leading zero, 1 … 2^63-1.
 * A {name} is 1 to ROUTE_NAME_MAX of a-z, 0-9, dot, underscore and hyphen. */
bool routes_match(enum http_method method, struct str path, struct route_match *out);
bool route_is_name(struct str segment);

/* "GET, HEAD, OPTIONS" for a bit set of methods. Returns the length. */
enum { ROUTE_METHODS_TEXT_MAX = 64 };
size_t routes_methods_text(unsigned methods, char out[ROUTE_METHODS_TEXT_MAX]);

/* Does every node answer it, whatever its roles are? True of what concerns the node itself and of
 * the operator's routes. */
bool route_is_everywhere(const struct route *route);

const char *route_method_name(enum http_method method);
const char *route_policy_text(enum route_policy policy); /* for people */
