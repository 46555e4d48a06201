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
        traceparent, forwarded, why;
    const char *twice; /* a header that must not appear more than once, and does; NULL: none */
};

struct request {
    struct call call; /* first: handlers and jobs know this part */
    struct known_headers headers;
    struct credentials credentials;
    size_t head_mark; /* header lines before the handler ran */
    bool on_loop;     /* must not block */
    bool presented;   /* a token came with it */
    bool looked_up;   /* … which nobody was known by: it took a token of the limit on that */
    bool forwarded;   /* another node has looked at it already */
    bool keyed;       /* has an Idempotency-Key that counts */
    bool claimed;     /* … which is in the set of keys in progress */
    bool repeated;    /* … under which it was done before */
    bool executed;    /* the handler ran */
    bool limited;     /* took a token of its route's own limit */
    bool happened;    /* … and something became true */
    enum err refusal; /* of `prepare`, for a request whose key is looked up first */
    enum err result;  /* of the transaction, for the one who writes the answer */
    int64_t submitted_us;
    struct idempotency_key key;
    struct invalidation_question question;
};

static inline struct request *request_of_task(struct pool_task *task)
{
    return CONTAINER_OF(task, struct request, call.task);
}

/* admission.c. An error is the answer. The first two checks also hold for what is passed on. */
enum err request_admit(struct request *r);
enum err request_prepare(struct request *r);
/* Signing up by JWT: held to what a sign-up by password is held to. `ctx` is struct api. */
enum err api_admit_subject(void *ctx, uint64_t address, char detail[DETAIL_MAX]);
/* Around the look-up of a token in truth, which a peer that guesses must not fill. */
enum err request_begin_look_up(struct request *r);
void request_end_look_up(struct request *r, enum err e);
/* The write ended: counts it against its route's own limit, or gives the token back. */
void request_settle_limit(struct request *r, bool written);

/* run.c */
void request_run(struct request *r);
void request_submit(struct request *r, struct pool *pool, void (*run)(struct pool_task *task));
struct pool *request_readers(const struct request *r); /* threads that may read truth for it */
void request_clear_answer(struct request *r);
void request_render(struct request *r); /* writes the answer of a write */

/* repeat.c. request_repeat sets `repeated` when the key's write was done before, and reads what its
 * answer shows; an error is the answer. */
enum err request_claim_key(struct request *r);
enum err request_repeat(struct request *r, struct tx *tx);
enum err request_remember(struct request *r, struct tx *tx);

/* forward.c */
void request_pass_on(struct request *r);

/* answer.c. `kind` OK: the handler's answer; else a problem document. The request is gone then. */
void request_finish(struct request *r, enum err kind);
/* The same of an answer whose status and body are written already. */
void request_send(struct request *r, enum err kind);
/* The same of a write that has ended: everything that is left to do is done on its loop. */
void request_finish_write(struct request *r, enum err kind);
