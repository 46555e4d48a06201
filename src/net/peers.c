/* One map for all loops: an address is counted once when a connection opens and once when it
 * closes, and both cost the kernel far more. The map has an entry for each address with open
 * connections. */
#include "net/peers.h"

#include <pthread.h>
#include <stdlib.h>

#include "base/check.h"
#include "base/map.h"

struct peer {
    uint64_t key;
    uint64_t open;
};

struct peers {
    pthread_mutex_t lock;
    unsigned connections_max;
    struct map peers;
};

struct peers *peers_new(unsigned connections_max)
{
    struct peers *p = calloc(1, sizeof *p);
    CHECK(p);
    p->connections_max = connections_max;
    pthread_mutex_init(&p->lock, NULL);
    map_init(&p->peers, sizeof(struct peer), sizeof(uint64_t));
    return p;
}

void peers_free(struct peers *p)
{
    if (!p)
        return;
    map_done(&p->peers);
    pthread_mutex_destroy(&p->lock);
    free(p);
}

/* The map has no key 0. */
static uint64_t place_of(uint64_t key)
{
    return key ? key : 1;
}

bool peers_enter(struct peers *p, uint64_t key)
{
    key = place_of(key);
    pthread_mutex_lock(&p->lock);
    struct peer *peer = map_put(&p->peers, &key, NULL);
    bool allowed = peer && peer->open < p->connections_max;
    if (allowed)
        peer->open++;
    pthread_mutex_unlock(&p->lock);
    return allowed;
}

void peers_leave(struct peers *p, uint64_t key)
{
    key = place_of(key);
    pthread_mutex_lock(&p->lock);
    struct peer *peer = map_find(&p->peers, &key);
    CHECK(peer && peer->open > 0);
    if (--peer->open == 0)
        map_remove(&p->peers, peer);
    pthread_mutex_unlock(&p->lock);
}
