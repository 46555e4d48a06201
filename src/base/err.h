/* The one closed table of error kinds. Functions return `enum err`; retry policy and the API's
 * answers both come from this table. A function either logs an error or returns it, never both. */
#pragma once

/* Classes: what a caller may do about it.
 *   NONE       not an error
 *   RETRY      try again later, the same call may succeed
 *   CLIENT     the caller's fault, trying again changes nothing
 *   SHED       we are too busy, try again after a pause
 *   RECONCILE  outcome unknown: look before trying again
 *   FATAL      this process cannot go on safely */
enum err_class {
    ERR_CLASS_NONE,
    ERR_CLASS_RETRY,
    ERR_CLASS_CLIENT,
    ERR_CLASS_SHED,
    ERR_CLASS_RECONCILE,
    ERR_CLASS_FATAL
};

/* name, class, http status, title */
/* clang-format off */
#define ERR_TABLE(X)                                                                  \
    X(NONE,             NONE,      200, "ok")                                         \
    X(BAD_INPUT,        CLIENT,    400, "the request is malformed")                   \
    X(UNAUTHENTICATED,  CLIENT,    401, "a valid token is required")                  \
    X(FORBIDDEN,        CLIENT,    403, "not allowed")                                \
    X(NOT_FOUND,        CLIENT,    404, "not found")                                  \
    X(METHOD,           CLIENT,    405, "method not allowed")                         \
    X(CONFLICT,         CLIENT,    409, "conflicts with the present state")           \
    X(IN_PROGRESS,      CLIENT,    409, "the same request is still in progress")      \
    X(GONE,             CLIENT,    410, "no longer kept")                             \
    X(TOO_LARGE,        CLIENT,    413, "too large")                                  \
    X(MEDIA_TYPE,       CLIENT,    415, "unsupported media type")                     \
    X(MISDIRECTED,      CLIENT,    421, "this node does not serve that")              \
    X(INVALID,          CLIENT,    422, "the request cannot be carried out as given") \
    X(RATE_LIMITED,     CLIENT,    429, "too many requests")                          \
    X(HEADERS_TOO_LARGE, CLIENT,   431, "request header fields too large")            \
    X(INTERNAL,         FATAL,     500, "internal error")                             \
    X(OVERLOADED,       SHED,      503, "overloaded")                                 \
    X(UNAVAILABLE,      RETRY,     503, "a dependency is unavailable")                \
    X(NO_LEADER,        RETRY,     503, "no node leads, or another one does now")     \
    X(STORAGE_FULL,     RETRY,     503, "the store is full")                          \
    X(OVERLOAD_GUARD,   SHED,      503, "the store is at risk, nothing new is taken") \
    X(STOPPING,         RETRY,     503, "the server is stopping")                     \
    X(TIMEOUT,          RETRY,     503, "timed out")                                  \
    X(UNKNOWN_COMMIT,   RECONCILE, 503, "outcome unknown, look before retrying")      \
    X(STORAGE_FAILED,   FATAL,     503, "the store failed")                           \
    X(NEEDS_TRUTH,      RETRY,     500, "not in memory, ask the database")            \
    X(NO_MEMORY,        SHED,      503, "out of memory")

enum err {
#define ERR_ENUM(name, cls, http, title) ERR_##name,
    ERR_TABLE(ERR_ENUM)
#undef ERR_ENUM
};
/* clang-format on */

#define ERR_COUNT_ONE(name, cls, http, title) +1
enum { ERR_COUNT = 0 ERR_TABLE(ERR_COUNT_ONE) };

#define OK ERR_NONE

/* A step of a function that returns `enum err` and has nothing to clean up: when the step fails,
 * the function returns the step's error. */
#define TRY(step)                                                                                  \
    do {                                                                                           \
        enum err try_error_ = (step);                                                              \
        if (try_error_ != OK)                                                                      \
            return try_error_;                                                                     \
    } while (0)

/* The words of whatever failed last in this thread, for records and logs: an error kind says what
 * to do, these say what happened. "": nothing was said since it was cleared. */
enum { ERR_CAUSE_MAX = 160 };
void err_cause_clear(void);
void err_cause_set(const char *words); /* cut to fit; "" leaves what is there */
const char *err_cause(void);

const char *err_name(enum err e); /* "NOT_FOUND" */
/* "not_found": the name as programs outside know it. */
enum { ERR_CODE_MAX = 32 };
void err_code(enum err e, char out[ERR_CODE_MAX]);
const char *err_title(enum err e);
int err_http_status(enum err e);
enum err_class err_class(enum err e);
