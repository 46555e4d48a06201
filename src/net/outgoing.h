/* Requests to other servers, many at a time, on one thread of its own, for channels and webhooks.
 * HTTP/1.1 and HTTP/2, with and without TLS, over kept and shared connections.
 *
 * Every request has a time limit, every answer a size limit, and the number under way has a limit.
 * The error says whether the other server can have acted, because that decides whether a delivery
 * may be tried again: see outgoing_done. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "base/str.h"

struct outgoing;

struct outgoing_config {
    size_t connections_max; /* in all */
    size_t per_host_max;
    size_t under_way_max; /* beyond it requests end with ERR_OVERLOADED at once */
    size_t answer_max;    /* bytes of an answer's body */
};
void outgoing_config_default(struct outgoing_config *c);

struct outgoing_answer {
    int status;
    struct str body;
    int64_t retry_after_ms; /* as a Retry-After in seconds says; 0: it does not */
};

/* Called on the client's thread, once; must not block. `answer` ends with the call.
 *   OK              there is an answer, whatever its status
 *   UNAVAILABLE     nothing was sent, or the connection could not be made: it did not happen
 *   UNKNOWN_COMMIT  it was sent, at least in part, and no whole answer came: outcome unknown
 *   TOO_LARGE       the answer's body outgrew its limit; status is set
 *   BAD_INPUT       the URL is malformed, or of another kind than http and https
 *   OVERLOADED      too many are under way; called before outgoing_send returns
 *   STOPPING        the client is being freed and it was not sent */
typedef void (*outgoing_done)(void *ctx, enum err e, const struct outgoing_answer *answer);

struct outgoing_request {
    const char *method, *url;
    const char *const *headers; /* "Name: value", NULL at the end; NULL: none */
    struct str body;
    int64_t timeout_ms; /* for all of it */
    outgoing_done done;
    void *ctx;
};

/* NULL: no thread could be had. */
struct outgoing *outgoing_new(const struct outgoing_config *config);
/* Ends requests under way: UNKNOWN_COMMIT, or STOPPING when nothing was sent. */
void outgoing_free(struct outgoing *o);

/* Everything in the request is copied. Any thread; never blocks. */
void outgoing_send(struct outgoing *o, const struct outgoing_request *request);

struct outgoing_stats {
    uint64_t sent, answered, failed, unknown;
    size_t under_way;
};
void outgoing_stats(struct outgoing *o, struct outgoing_stats *out);
