/* The dispatcher's view of one request, shared by the files that take turns with it:
 *   dispatch.c  finds the route and the caller      admission.c  decides whether it may run
 *   run.c       runs the handler                    repeat.c     Idempotency-Key
 *   forward.c   passes it on to the leader          answer.c     sends the answer
 * It lives in the exchange's arena and has one holder at a time, which answers it or hands it on.
 */
#pragma once

#include "api/edge/auth.h"
#include "api/edge/idempotency.h"
#include "api/edge/routes.h"
#include "base/check.h"
#include "port/invalidation.h"

/* The headers that the dispatcher looks at, found in one walk. */
struct known_headers {
    struct str authorization, acting, origin, preflight_method, content_type, idempotency_key,
        traceparent, forwarded;
};

struct request {
    struct call call; /* first: handlers and jobs know this part */
    struct known_headers headers;
    struct credentials credentials;
    size_t head_mark; /* header lines before the handler ran */
    bool on_loop;     /* must not block */
    bool presented;   /* a token came with it */
    bool forwarded;   /* another node has looked at it already */
    bool keyed;       /* has an Idempotency-Key that counts */
    bool claimed;     /* … which is in the set of keys in progress */
    bool executed;    /* … and the handler ran: its refusal may be remembered */
    bool repeated;    /* … or an earlier answer was found */
    bool limited;     /* took a token of its route's own limit */
    bool happened;    /* the handler ran, and something became true */
    bool rendered;    /* … and its answer is written */
    enum err refusal; /* of `prepare`, for a request whose key is looked up first */
    enum err result;  /* of the transaction, for the one who writes the answer */
    int64_t submitted_us;
    struct idempotency_key key;
    struct db_job keep; /* remembers a refusal */
    struct invalidation_question question;
};

static inline struct request *request_of_task(struct pool_task *task)
{
    return CONTAINER_OF(task, struct request, call.task);
}

/* admission.c. An error is the answer. The first two checks also hold for what is passed on. */
enum err request_admit(struct request *r);
enum err request_prepare(struct request *r);
/* The write ended: counts it against its route's own limit, or gives the token back. */
void request_settle_limit(struct request *r, bool written);

/* run.c */
void request_run(struct request *r);
void request_submit(struct request *r, struct pool *pool, void (*run)(struct pool_task *task));
void request_clear_answer(struct request *r);
void request_render(struct request *r); /* writes the answer of a write, unless it is written */

/* repeat.c. request_repeat: ERR_NOT_FOUND: nothing was answered under this key yet. */
enum err request_claim_key(struct request *r);
enum err request_repeat(struct request *r, struct tx *tx);
enum err request_remember(struct request *r, struct tx *tx);
/* The refusal rolled its own transaction back, so a second one remembers it. True: that one will
 * send the answer. */
bool request_remember_refusal(struct request *r, enum err refusal);

/* forward.c */
void request_pass_on(struct request *r);

/* answer.c. `kind` OK: the handler's answer; else a problem document. The request is gone then. */
void request_finish(struct request *r, enum err kind);
/* The same of an answer whose status and body are written already. */
void request_send(struct request *r, enum err kind);
/* The same of a write that has ended: everything that is left to do is done on its loop. */
void request_finish_write(struct request *r, enum err kind);
