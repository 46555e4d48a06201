/* What the hook promises: an answer goes out only when the views have its change, or when no node
 * trusts them any more. The first is event_apply; the second is membership_views_lost. */
#include "node/commit.h"

#include <stdlib.h>

#include "api/edge/auth.h"
#include "base/check.h"
#include "base/fault.h"
#include "live/live.h"
#include "model/event_views.h"

static void apply_shared(struct commit *c, const struct event *events, size_t n)
{
    uint64_t term = engine_leading(c->api->engine);
    if (event_apply_all(c->api->views, c->api->cards, events, n) == OK)
        applied_note(&c->applied, term, events, n);
    else
        membership_views_lost(c->membership);
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
    api->db->on_commit = committed;
    api->db->on_commit_ctx = c;
}

void commit_done(struct commit *c)
{
    if (c->api)
        applied_done(&c->applied);
}

enum err commit_apply_again(void *ctx, const struct event *events, size_t n)
{
    struct commit *c = ctx;
    struct event *left = malloc(n * sizeof *left);
    CHECK(left);
    size_t count = applied_sift(&c->applied, engine_leading(c->api->engine), events, n, left);
    enum err e = event_apply_all(c->api->views, c->api->cards, left, count);
    live_entries(c->api->live, left,
                 count); /* the node that committed it may have died just then */
    free(left);
    return e;
}
