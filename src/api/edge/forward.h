/* Requests that only the node that leads can answer, passed on to it by the node that got them.
 *
 * The node that got the request has authenticated its caller and counted it against the limits; the
 * leader believes that by a proof (api/edge/proof.h) and looks at no token. A request is passed on
 * once: a node that gets one and does not lead says ERR_NO_LEADER. Nothing of the request's head
 * goes along but the target and a trace id; of the answer's, what describes the answer. */
#pragma once

#include "api/edge/api.h"

struct forward;
struct route;

/* The header that a proof travels in; the leader answers with it, saying "refused", when it does
 * not believe one. */
#define FORWARD_HEADER "Fantail-Forwarded"

enum { FORWARD_TIMEOUT_MS = 10 * 1000, FORWARD_THREADS = 2, FORWARD_WAITING_MAX = 64 };

struct forward *forward_new(const uint8_t secret[32]);
void forward_free(struct forward *f); /* after the pool has ended */

/* ---- at a node that does not lead ---- */

/* Is this a request that another node must answer? */
bool forward_is_needed(const struct api *api, const struct route *route);

struct forward_question {
    enum http_method method;
    struct str target; /* path?query */
    struct str body;   /* JSON or empty */
    struct str trace;  /* {NULL, 0}: none */
    struct caller caller;
    int64_t deadline_us; /* monotonic */
};
struct forward_answer {
    int status;
    bool problem;                     /* its body is a problem document */
    char retry_after[16], link[2048]; /* "": none */
};
/* Asks the leader; blocking. The answer's body goes into `body`, whatever its status is.
 * ERR_NO_LEADER: no node leads; ERR_UNAVAILABLE: no answer came, or none that can be used;
 * ERR_UNKNOWN_COMMIT: the same of a POST that may have been carried out. `why` is for the log. */
enum err forward_ask(struct api *api, const struct forward_question *q, struct forward_answer *a,
                     struct buf *body, char why[DETAIL_MAX]);

/* ---- at the leader ---- */

/* Reads the proof that came with a request: who calls. ERR_FORBIDDEN: it proves nothing, or not
 * for this route; ERR_NO_LEADER: it is meant for another leader. Never blocks. */
enum err forward_check(struct api *api, const struct http_exchange *x, const struct route *route,
                       struct str proof, struct caller *caller, const char **why);
