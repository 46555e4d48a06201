/* The nodes, their connections and the slot map.
 *
 * Nodes are numbered in the order of their appearance; the map holds a number for each slot and is
 * read without a lock. A number is given to another node only when all are taken and the cluster no
 * longer speaks of the old one; connections know whose they are. A map that is out of date is no
 * error: the node asked answers MOVED and the map learns.
 *
 * A node that fails is asked again after a pause (50 ms, doubling to 1 s) and then by one thread
 * only: the other callers fail at once, so that a dead server costs one caller its timeout.
 *
 * Tracked connections, whose reads the invalidation listener follows, are kept apart from the
 * others: Redis has to remember the keys read over them, which writes and deliveries should not pay
 * for. They belong to one connection of the listener; when that has been replaced they are closed
 * at their next use. Closing a valid one loses its push messages, so the listener is told first.
 *
 * Reads never go to replicas, not even while a master is being replaced: a replica may lag, and
 * could show what was removed already. */
#include "view/redis/connections.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/check.h"
#include "base/clock.h"
#include "base/log.h"
#include "view/redis/handshake.h"
#include "view/redis/reply.h"

enum {
    IDLE_MAX = 64,     /* connections kept for each node */
    TRACKED_MAX = 256, /* of those: to close one costs all that was noted */
    RETRY_FIRST_MS = 50,
    RETRY_LAST_MS = 1000,
    REFRESH_EVERY_MS = 20,
    NO_NODE = 0
};

enum kind { PLAIN, TRACKED, KINDS };

struct node {
    char host[URL_HOST_MAX];
    int port;
    unsigned tenant; /* counts who had this number */
    bool known;      /* the cluster spoke of it when it was asked last */
    bool master, has_replica;
    char run[RUN_ID + 1]; /* the process that answered last; "": not known */
    struct connection *idle[KINDS];
    unsigned idle_count[KINDS];
    struct invalidation_peer *peer; /* NULL: nothing was read for a trace yet */
    int64_t down_since_ms;          /* 0: it answers */
    int64_t retry_at_ms;
    int64_t retry_after_ms;
};

struct connections {
    struct redis_url url;
    int64_t failover_wait_ms;
    struct invalidation *invalidation;
    pthread_mutex_t lock;
    pthread_mutex_t refreshing;
    _Atomic int64_t refreshed_at_ms;
    _Atomic uint64_t restarts;
    _Atomic unsigned node_count;
    struct node nodes[REDIS_NODES_MAX];
    _Atomic uint16_t map[SLOT_COUNT]; /* node + 1; NO_NODE */
};

static int64_t now_ms(void)
{
    return clock_mono_ms(clock_system()) + 1; /* 0 means never */
}

static enum kind kind_of(const struct connection *c)
{
    return c->tracking_id ? TRACKED : PLAIN;
}

/* Does the listener still follow the reads of this connection? The lock is held. */
static bool is_heard(const struct node *n, const struct connection *c)
{
    return c->tracking_id &&
           (!n->peer || c->tenant != n->tenant || c->tracking_id == invalidation_peer_id(n->peer));
}

static void free_connection(struct connection *c)
{
    redisFree(c->context);
    free(c);
}

/* The lock is held. */
static void close_connection(struct connections *l, struct connection *c)
{
    if (is_heard(&l->nodes[c->node], c))
        invalidation_lost(l->invalidation);
    free_connection(c);
}

static struct connection *pop_idle(struct node *n, enum kind kind)
{
    struct connection *c = n->idle[kind];
    if (c) {
        n->idle[kind] = c->next;
        n->idle_count[kind]--;
        c->fresh = false;
    }
    return c;
}

static void close_idle(struct connections *l, struct node *n)
{
    bool heard = false;
    for (const struct connection *c = n->idle[TRACKED]; c && !heard; c = c->next)
        heard = is_heard(n, c);
    if (heard)
        invalidation_lost(l->invalidation);
    struct connection *c;
    for (enum kind kind = PLAIN; kind < KINDS; kind++)
        while ((c = pop_idle(n, kind)))
            free_connection(c);
}

static int find_node(struct connections *l, const char *host, int port)
{
    for (unsigned i = 0; i < l->node_count; i++)
        if (l->nodes[i].port == port && strcmp(l->nodes[i].host, host) == 0)
            return (int)i;
    return -1;
}

/* The lock is held. -1: too many nodes, or no host. */
static int add_node(struct connections *l, struct str host, int port)
{
    char name[URL_HOST_MAX];
    if (host.len == 0 || host.len >= sizeof name || port <= 0 || port > 65535)
        return -1;
    memcpy(name, host.ptr, host.len);
    name[host.len] = 0;
    int found = find_node(l, name, port);
    if (found >= 0) {
        l->nodes[found].known = true;
        return found;
    }
    unsigned at = l->node_count;
    for (unsigned i = 0; at == REDIS_NODES_MAX && i < REDIS_NODES_MAX; i++)
        if (!l->nodes[i].known)
            at = i;
    if (at == REDIS_NODES_MAX)
        return -1;
    struct node *n = &l->nodes[at];
    close_idle(l, n);
    invalidation_peer_release(n->peer);
    *n = (struct node){.port = port, .known = true, .tenant = n->tenant + 1};
    memcpy(n->host, name, host.len + 1);
    if (at == l->node_count)
        atomic_fetch_add(&l->node_count, 1);
    return (int)at;
}

struct connections *connections_new(const struct redis_url *url, int64_t failover_wait_ms,
                                    struct invalidation *w)
{
    struct connections *l = calloc(1, sizeof *l);
    CHECK(l);
    l->url = *url;
    l->invalidation = w;
    l->failover_wait_ms = failover_wait_ms > 0 ? failover_wait_ms : FAILOVER_WAIT_MS;
    pthread_mutex_init(&l->lock, NULL);
    pthread_mutex_init(&l->refreshing, NULL);
    for (size_t i = 0; i < url->host_count; i++)
        add_node(l, str_of(url->hosts[i].host), url->hosts[i].port);
    if (!url->cluster) {
        l->nodes[0].master = true;
        for (size_t slot = 0; slot < SLOT_COUNT; slot++)
            atomic_init(&l->map[slot], 1);
    }
    return l;
}

void connections_free(struct connections *l)
{
    if (!l)
        return;
    for (unsigned i = 0; i < l->node_count; i++) {
        close_idle(l, &l->nodes[i]);
        invalidation_peer_release(l->nodes[i].peer);
    }
    pthread_mutex_destroy(&l->lock);
    pthread_mutex_destroy(&l->refreshing);
    explicit_bzero(l->url.password, sizeof l->url.password);
    free(l);
}

struct invalidation *connections_invalidation(const struct connections *l)
{
    return l->invalidation;
}

bool connections_is_cluster(const struct connections *l)
{
    return l->url.cluster;
}

int64_t connections_patience_ms(const struct connections *l)
{
    return l->url.cluster ? l->failover_wait_ms : COMMAND_MS;
}

int connections_node_of(struct connections *l, uint16_t slot)
{
    return (int)atomic_load_explicit(&l->map[slot % SLOT_COUNT], memory_order_relaxed) - 1;
}

bool connections_has_replica(struct connections *l, unsigned node)
{
    pthread_mutex_lock(&l->lock);
    bool has = l->nodes[node].has_replica;
    pthread_mutex_unlock(&l->lock);
    return has;
}

uint64_t connections_restarts(const struct connections *l)
{
    return atomic_load(&l->restarts);
}

size_t connections_masters(struct connections *l, unsigned *nodes, size_t max)
{
    size_t n = 0;
    pthread_mutex_lock(&l->lock);
    for (unsigned i = 0; i < l->node_count && n < max; i++)
        if (l->nodes[i].master)
            nodes[n++] = i;
    pthread_mutex_unlock(&l->lock);
    return n;
}

/* ---- connections ---- */

/* Has push messages about what is read here sent to the invalidation listener. Guarded first: no
 * push messages without a guard. */
static bool be_tracked(const struct connections *l, redisContext *context, uint64_t tracking_id)
{
    char id[24];
    snprintf(id, sizeof id, "%llu", (unsigned long long)tracking_id);
    return invalidation_guard(l->invalidation, context->fd) &&
           handshake_command(context, 5,
                             (const char *[]){"CLIENT", "TRACKING", "ON", "REDIRECT", id});
}

/* A connection to open, and the result. */
struct opening {
    char host[URL_HOST_MAX];
    int port;
    unsigned tenant;
    uint64_t tracking_id; /* wanted; 0 afterwards: it was refused */
    char run[RUN_ID + 1];
};

static redisContext *open_context(const struct connections *l, struct opening *o)
{
    redisContext *context = handshake_open(&l->url, o->host, o->port);
    if (!context)
        return NULL;
    handshake_run_id(context, o->run);
    if (!context->err && o->tracking_id && !be_tracked(l, context, o->tracking_id))
        o->tracking_id = 0;
    if (context->err || !handshake_set_timeout(context, COMMAND_MS)) {
        redisFree(context);
        return NULL;
    }
    return context;
}

/* The lock is held. */
static void note_failure(struct connections *l, struct node *n, int64_t now)
{
    if (n->down_since_ms == 0) {
        n->down_since_ms = now;
        n->retry_after_ms = RETRY_FIRST_MS;
        log_warn("Redis cannot be reached", LOG_CSTR("host", n->host), LOG_INT("port", n->port));
    }
    n->retry_at_ms = now + n->retry_after_ms;
    n->retry_after_ms =
        n->retry_after_ms * 2 < RETRY_LAST_MS ? n->retry_after_ms * 2 : RETRY_LAST_MS;
    close_idle(l, n);
}

/* The lock is held. A replica that was restarted gets everything from its master again. */
static void note_run(struct connections *l, struct node *n, const char run[RUN_ID + 1])
{
    if (!run[0] || strcmp(run, n->run) == 0)
        return;
    if (n->run[0] && n->master) {
        atomic_fetch_add(&l->restarts, 1);
        log_warn("Redis was restarted", LOG_CSTR("host", n->host), LOG_INT("port", n->port));
    }
    memcpy(n->run, run, sizeof n->run);
}

/* The lock is held. */
static void note_success(struct node *n, int64_t now)
{
    if (n->down_since_ms == 0)
        return;
    log_info("Redis answers again", LOG_CSTR("host", n->host), LOG_INT("port", n->port),
             LOG_INT("after_ms", now - n->down_since_ms));
    n->down_since_ms = 0;
}

/* Some slot that the node serves, not always the same: one may be on its way to another node. */
static int any_slot_of(struct connections *l, unsigned node)
{
    unsigned begin = (unsigned)now_ms() % SLOT_COUNT;
    for (unsigned i = 0; i < SLOT_COUNT; i++)
        if (connections_node_of(l, (uint16_t)((begin + i) % SLOT_COUNT)) == (int)node)
            return (int)((begin + i) % SLOT_COUNT);
    return -1;
}

/* The lock is held. 0: the listener is not connected to that node yet. */
static uint64_t tracking_id_of(struct connections *l, unsigned node)
{
    struct node *n = &l->nodes[node];
    if (l->invalidation && !n->peer)
        n->peer = invalidation_peer_take(l->invalidation, n->host, n->port);
    uint64_t id = n->peer ? invalidation_peer_id(n->peer) : 0;
    int slot = n->peer && id == 0 && l->url.cluster ? any_slot_of(l, node) : -1;
    if (n->peer && id == 0 && (slot >= 0 || !l->url.cluster))
        invalidation_peer_want(n->peer, slot);
    return id;
}

/* The lock is held. What is good for a connection of the invalidation listener that is no more
 * goes. */
static struct connection *take_idle(struct connections *l, struct node *n, uint64_t tracking_id)
{
    struct connection *c;
    while ((c = pop_idle(n, tracking_id ? TRACKED : PLAIN)) && c->tracking_id != tracking_id)
        close_connection(l, c);
    return c;
}

/* The lock is held. False: it is of no use. */
static bool note_opened(struct connections *l, struct node *n, const struct opening *o,
                        redisContext *context, uint64_t tracking_id)
{
    if (o->tenant != n->tenant)
        return false;
    if (!context) {
        note_failure(l, n, now_ms());
        return false;
    }
    note_run(l, n, o->run);
    note_success(n, now_ms());
    if (tracking_id != o->tracking_id && n->peer)
        invalidation_peer_refused(n->peer, tracking_id);
    return true;
}

struct connection *connections_take(struct connections *l, unsigned node, bool tracked)
{
    struct node *n = &l->nodes[node];
    struct opening o = {.run = ""};
    int64_t now = now_ms();
    pthread_mutex_lock(&l->lock);
    uint64_t tracking_id = tracked ? tracking_id_of(l, node) : 0;
    struct connection *c = take_idle(l, n, tracking_id);
    bool wait = !c && n->down_since_ms != 0 && now < n->retry_at_ms;
    if (!c && !wait && n->down_since_ms != 0) /* one tries, the others do not wait for it */
        n->retry_at_ms = now + CONNECT_MS + PROBE_MS;
    memcpy(o.host, n->host, sizeof o.host);
    o.port = n->port;
    o.tenant = n->tenant;
    o.tracking_id = tracking_id;
    pthread_mutex_unlock(&l->lock);
    if (c || wait)
        return c;
    redisContext *context = open_context(l, &o);
    pthread_mutex_lock(&l->lock);
    bool good = note_opened(l, n, &o, context, tracking_id);
    pthread_mutex_unlock(&l->lock);
    if (!good) {
        if (context)
            redisFree(context);
        return NULL;
    }
    c = malloc(sizeof *c);
    CHECK(c);
    *c = (struct connection){.context = context,
                             .node = node,
                             .tenant = o.tenant,
                             .tracking_id = o.tracking_id,
                             .fresh = true};
    return c;
}

void connections_give(struct connections *l, struct connection *c)
{
    struct node *n = &l->nodes[c->node];
    enum kind kind = kind_of(c);
    pthread_mutex_lock(&l->lock);
    bool keep = n->idle_count[kind] < (kind == PLAIN ? IDLE_MAX : TRACKED_MAX) &&
                c->tenant == n->tenant && (kind == PLAIN || is_heard(n, c));
    if (keep) {
        c->next = n->idle[kind];
        n->idle[kind] = c;
        n->idle_count[kind]++;
    } else {
        close_connection(l, c);
    }
    pthread_mutex_unlock(&l->lock);
}

void connections_drop(struct connections *l, struct connection *c, bool silent)
{
    struct node *n = &l->nodes[c->node];
    pthread_mutex_lock(&l->lock);
    if (c->tenant == n->tenant && (silent || c->fresh))
        note_failure(l, n, now_ms());
    else if (c->tenant == n->tenant)
        close_idle(l, n); /* the others are as old: the server was restarted */
    close_connection(l, c);
    pthread_mutex_unlock(&l->lock);
}

int64_t connections_down_for_ms(struct connections *l, unsigned node)
{
    pthread_mutex_lock(&l->lock);
    int64_t since = l->nodes[node].down_since_ms;
    pthread_mutex_unlock(&l->lock);
    return since == 0 ? 0 : now_ms() - since;
}

/* ---- who serves what ---- */

/* One node of an entry: [host, port, …]. An empty host: as the one that was asked. */
static int learn_node(struct connections *l, const redisReply *r, unsigned asked)
{
    if (r->type != REDIS_REPLY_ARRAY || r->elements < 2 ||
        r->element[1]->type != REDIS_REPLY_INTEGER || r->element[1]->integer > 65535)
        return -1;
    struct str host = reply_text(r->element[0]);
    if (host.len == 0)
        host = str_of(l->nodes[asked].host);
    return add_node(l, host, (int)r->element[1]->integer);
}

/* Entries: [first, last, master, replica…]. Malformed entries are skipped. Slots that no node
 * serves keep their old node, which answers with the right one when asked. */
static bool learn_map(struct connections *l, const redisReply *r, unsigned asked)
{
    bool learned = false;
    if (!r || r->type != REDIS_REPLY_ARRAY)
        return false;
    pthread_mutex_lock(&l->lock);
    for (unsigned i = 0; i < l->node_count; i++)
        l->nodes[i].known = l->nodes[i].master = l->nodes[i].has_replica = false;
    for (size_t i = 0; i < r->elements; i++) {
        const redisReply *entry = r->element[i];
        if (entry->type != REDIS_REPLY_ARRAY || entry->elements < 3 ||
            entry->element[0]->type != REDIS_REPLY_INTEGER ||
            entry->element[1]->type != REDIS_REPLY_INTEGER)
            continue;
        long long first = entry->element[0]->integer, last = entry->element[1]->integer;
        int master = learn_node(l, entry->element[2], asked);
        if (master < 0 || first < 0 || last >= SLOT_COUNT)
            continue;
        l->nodes[master].master = true;
        l->nodes[master].has_replica = entry->elements > 3;
        for (long long slot = first; slot <= last; slot++)
            atomic_store_explicit(&l->map[slot], (uint16_t)(master + 1), memory_order_relaxed);
        learned = true;
        for (size_t k = 3; k < entry->elements; k++)
            (void)learn_node(l, entry->element[k], asked);
    }
    pthread_mutex_unlock(&l->lock);
    return learned;
}

static bool ask_node(struct connections *l, unsigned node)
{
    struct connection *c = connections_take(l, node, false);
    if (!c)
        return false;
    redisReply *reply = redisCommandArgv(c->context, 2, (const char *[]){"CLUSTER", "SLOTS"}, NULL);
    bool learned = learn_map(l, reply, node);
    if (reply)
        freeReplyObject(reply);
    if (c->context->err)
        connections_drop(l, c, c->context->err == REDIS_ERR_IO && c->fresh);
    else
        connections_give(l, c);
    return learned;
}

enum err connections_refresh(struct connections *l)
{
    if (!l->url.cluster)
        return OK;
    int64_t now = now_ms();
    if (now - atomic_load(&l->refreshed_at_ms) < REFRESH_EVERY_MS ||
        pthread_mutex_trylock(&l->refreshing) != 0)
        return OK;
    bool learned = false;
    unsigned count = l->node_count, begin = (unsigned)now % (count ? count : 1);
    for (unsigned i = 0; i < count && !learned; i++) /* first those that are well */
        if (connections_down_for_ms(l, (begin + i) % count) == 0)
            learned = ask_node(l, (begin + i) % count);
    for (unsigned i = 0; i < count && !learned; i++)
        if (connections_down_for_ms(l, (begin + i) % count) > 0)
            learned = ask_node(l, (begin + i) % count);
    atomic_store(&l->refreshed_at_ms, now_ms());
    pthread_mutex_unlock(&l->refreshing);
    return learned ? OK : ERR_UNAVAILABLE;
}

int connections_moved(struct connections *l, unsigned from, uint16_t slot, struct str address,
                      bool for_good)
{
    const char *colon = address.len > 0 ? memrchr(address.ptr, ':', address.len) : NULL;
    uint64_t port;
    if (!colon || slot >= SLOT_COUNT)
        return -1;
    struct str host = {address.ptr, (size_t)(colon - address.ptr)};
    if (!str_parse_u64((struct str){colon + 1, address.len - host.len - 1}, &port) || port > 65535)
        return -1;
    if (host.len == 0)
        host = str_of(l->nodes[from].host);
    pthread_mutex_lock(&l->lock);
    int node = add_node(l, host, (int)port);
    if (node >= 0 && for_good) {
        l->nodes[node].master = true;
        atomic_store_explicit(&l->map[slot], (uint16_t)(node + 1), memory_order_relaxed);
    }
    pthread_mutex_unlock(&l->lock);
    return node;
}
