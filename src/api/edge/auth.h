/* Who calls: bearer tokens of sessions ("fts_…"), API keys ("ftk_…") and JWTs, and the control
 * socket.
 *
 * auth_read() and auth_find() run on the event loop and never block; what auth_find() does not
 * know, auth_resolve() asks truth on a blocking thread. */
#pragma once

#include "api/edge/api.h"

struct auth_config {
    struct db *db;
    struct views *views;
    struct clock *clock;
    const char *jwt_key;      /* FILE or hs256:FILE; "": no JWTs */
    const char *jwt_issuer;   /* "": any, if waived */
    const char *jwt_audience; /* "": any, if waived */
    const char *jwt_waive;    /* "iss", "aud" or both */
    bool jwt_return;          /* a deleted account's subject may come back, as a new account */
    /* May a JWT's account be made for a caller at this address now? An error is the answer. NULL:
     * always. */
    enum err (*admit)(void *ctx, uint64_t address, char detail[DETAIL_MAX]);
    void *admit_ctx;
    struct session_terms sessions;
    size_t entries_max; /* callers remembered; 0: the default */
};

/* Loads the JWT key if there is one; its tokens need an issuer and an audience, unless waived. On
 * failure *out is untouched and `why` says so. */
enum err auth_new(const struct auth_config *config, struct auth **out, char why[200]);
void auth_free(struct auth *a);

/* What a request shows of its caller. */
struct credentials {
    struct str token;  /* {NULL, 0}: none */
    struct str acting; /* Fantail-Account: an id or @username; {NULL, 0}: none */
    bool control;
    uint64_t address; /* limits_peer_key of the peer; the dispatcher's */
};

/* Reads the headers' values ({NULL, 0}: absent). ERR_UNAUTHENTICATED: not a bearer token;
 * ERR_INVALID: Fantail-Account is neither an id nor @username. *why is for the client. */
enum err auth_read(struct str authorization, struct str acting, bool control,
                   struct credentials *out, const char **why);

/* True: *caller is known without asking truth (also when there are no credentials at all). */
bool auth_find(struct auth *a, const struct credentials *cred, struct caller *caller);

/* Were these good when truth was asked last? Such a caller is not guessing. */
bool auth_knew(struct auth *a, const struct credentials *cred);

/* Asks truth, and remembers. Blocking. ERR_UNAUTHENTICATED: the token is unknown, expired, revoked
 * or its account is not active; ERR_FORBIDDEN: may not act for others, or that account is
 * suspended; ERR_NOT_FOUND: no such account to act for. A JWT's account is made when it is seen for
 * the first time; ERR_FORBIDDEN, ERR_RATE_LIMITED, ERR_OVERLOAD_GUARD: not now, or never. */
enum err auth_resolve(struct auth *a, const struct credentials *cred, struct arena *arena,
                      struct caller *caller, char detail[DETAIL_MAX]);

/* The commit hook's part: forgets the callers whom these events concern. */
void auth_committed(struct auth *a, const struct event *events, size_t n);

/* Writes gathered "last seen" marks to truth, and to remote views; blocking, one caller; returns
 * when to call again (monotonic µs). */
int64_t auth_last_seen_step(struct auth *a);

struct auth_stats {
    uint64_t hits, misses, refused;
};
void auth_stats(const struct auth *a, struct auth_stats *out);
