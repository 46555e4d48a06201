/* The parts of a running server, for node/ alone: runtime.c opens and closes them, steps.c works on
 * them. */
#pragma once

#include "api/edge/api.h"
#include "base/id.h"
#include "model/views_state.h"
#include "net/proxy.h"
#include "node/commit.h"
#include "node/maintenance.h"
#include "node/membership.h"
#include "node/steps.h"
#include "ops/lock.h"
#include "ops/overload_guard.h"

struct runtime {
    const struct settings *settings;
    struct data_lock lock;
    struct id_gen ids;
    bool shared; /* one node of many */
    struct signal *signal;
    unsigned roles;
    char store_id[STORE_ID_MAX]; /* shared: names of keys and queues elsewhere contain it */
    struct following_clock time; /* shared: the store's */
    struct db *control;          /* shared: a second handle on the store, for beats and leases */
    struct cluster cluster;      /* shared: what the API knows of the nodes */
    struct membership membership;
    uint64_t greeted_load; /* the load after which listeners were greeted */
    struct commit commit;
    struct bus *bus;
    struct celebrity_keeper keeper;
    bool joined, keeper_made, api_made;
    struct api api;
    struct maintenance maintenance;
    struct overload_guard overload_guard;
    struct proxies proxies;
    struct steps steps;
};
