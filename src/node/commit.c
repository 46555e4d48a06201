/* What the hook promises: an answer goes out only when the views have its change, or when no node
 * trusts them any more. The first is event_apply; the second is membership_views_lost. */
#include "node/commit.h"

#include <errno.h>
#include <stdlib.h>

#include "api/edge/auth.h"
#include "base/check.h"
#include "base/fault.h"
#include "base/id.h"
#include "base/sync.h"
#include "live/live.h"
#include "model/event_views.h"

enum { HOOK_WAIT_US = 1000 * 1000 };

static void apply_shared(struct commit *c, const struct event *events, size_t n)
{
    uint64_t term = engine_leading(c->api->engine);
    pthread_mutex_lock(&c->lock);
    c->begun++;
    pthread_mutex_unlock(&c->lock);
    enum err e = event_apply_all(c->api->views, c->api->cards, events, n);
    if (!e)
        applied_note(&c->applied, term, events, n);
    pthread_mutex_lock(&c->lock);
    c->ended++;
    pthread_cond_broadcast(&c->has_ended);
    pthread_mutex_unlock(&c->lock);
    if (e)
        membership_views_lost(c->membership);
}

/* Until the call that is under way has changed the views; not for one that begins later. */
static void await_hook(struct commit *c)
{
    struct timespec until = cond_deadline_us(HOOK_WAIT_US);
    pthread_mutex_lock(&c->lock);
    uint64_t begun = c->begun;
    while (c->ended < begun && pthread_cond_timedwait(&c->has_ended, &c->lock, &until) != ETIMEDOUT)
        ;
    pthread_mutex_unlock(&c->lock);
}

static void committed(void *ctx, const struct event *events, size_t n)
{
    struct commit *c = ctx;
    if (n == 0)
        return; /* also while the server is being opened: nothing is emitted before all is there */
    if (c->membership)
        apply_shared(c, events, n);
    else
        for (size_t i = 0; i < n; i++)
            event_apply(c->api->views, c->api->cards, &events[i]);
    auth_committed(c->api->auth, events, n);
    live_committed(c->api->live, events, n);
    FAULT(outbox_after_commit);
    engine_offer(c->api->engine, events, n);
}

void commit_init(struct commit *c, struct api *api, struct membership *membership)
{
    CHECK(api->db->shared == (membership != NULL)); /* may the hook wait? */
    c->api = api;
    c->membership = membership;
    applied_init(&c->applied);
    pthread_mutex_init(&c->lock, NULL);
    cond_init(&c->has_ended);
    api->db->on_commit = committed;
    api->db->on_commit_ctx = c;
}

void commit_done(struct commit *c)
{
    if (!c->api)
        return;
    applied_done(&c->applied);
    pthread_cond_destroy(&c->has_ended);
    pthread_mutex_destroy(&c->lock);
}

/* Did this node commit any of them? A large commit is in the table before the hook is through with
 * it, and to apply it once is enough. */
static bool has_own(const struct commit *c, const struct event *events, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (id_node(events[i].id) == c->api->db->ids->node)
            return true;
    return false;
}

enum err commit_apply_again(void *ctx, const struct event *events, size_t n)
{
    struct commit *c = ctx;
    struct event *left = malloc(n * sizeof *left);
    CHECK(left);
    uint64_t term = engine_leading(c->api->engine);
    size_t count = applied_sift(&c->applied, term, events, n, left);
    if (has_own(c, left, count)) {
        await_hook(c);
        count = applied_sift(&c->applied, term, events, n, left);
    }
    enum err e = event_apply_all(c->api->views, c->api->cards, left, count);
    free(left);
    return e;
}
