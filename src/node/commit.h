/* The commit hook: where truth meets everything that is derived from it. The store calls it after
 * each COMMIT and before the answers, with the events of one or more transactions, in commit order,
 * one call at a time.
 *
 * It changes the views and caches and hands the events to the engine. With views in memory it runs
 * on the embedded store's writer and must not wait. With shared views it waits for Redis, and, when
 * a change cannot be applied, until no node trusts the views: a shared store calls it on a thread
 * of its own for that (port/db.h). commit_init checks that the two go together. */
#pragma once

#include "api/edge/api.h"
#include "node/membership.h"
#include "pipe/applied.h"

struct commit {
    struct api *api;
    struct membership *membership; /* NULL: this server is alone */
    struct applied applied;        /* shared: what this hook did while the node leads */

    /* Shared: how many calls of the hook have begun to change the views, and have ended that. */
    pthread_mutex_t lock;
    pthread_cond_t has_ended;
    uint64_t begun, ended;
};

/* Before the first write: becomes the hook of api->db. */
void commit_init(struct commit *c, struct api *api, struct membership *membership);
void commit_done(struct commit *c);

/* The engine's: brings the views up to date with events that were read back from the table, of
 * whatever node, but for those that this hook has applied. ctx is struct commit. */
enum err commit_apply_again(void *ctx, const struct event *events, size_t n);
