/* The node's number, its beat, its peers and its quarantine.
 *
 * A node that cannot do its part is quarantined: when its beat does not reach the store, or it does
 * not reach the views while another node does, it takes no writes. Without the views or the bus,
 * while another node has both, it does not lead. When no node has them there is no better node.
 *
 * A peer whose report this program does not understand has nothing, as far as we know. */
#include "node/membership.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

#include "base/check.h"
#include "base/id.h"
#include "base/log.h"

enum {
    WHY_MAX = 300,
    PATH_TEXT_MAX = 4096,
    FOLLOW_FIRST_US = 1000 * 1000,
    FOLLOW_EVERY_US = 5 * 1000 * 1000,
    LOG_EVERY_US = 60 * 1000 * 1000,
    NODES_LOOKED_AT = 64, /* when one is looked for that has something */
};

static int64_t now_us(const struct membership *m)
{
    return clock_mono_us(m->config.clock);
}

/* ---- joining ---- */

enum err membership_token(const char *folder, uint64_t *token, char why[WHY_MAX])
{
    char path[PATH_TEXT_MAX], text[32] = "";
    snprintf(path, sizeof path, "%s/node", folder);
    int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (fd < 0) {
        snprintf(why, WHY_MAX, "cannot open %.200s: %s", path, strerror(errno));
        return ERR_UNAVAILABLE;
    }
    ssize_t n = read(fd, text, sizeof text - 1);
    bool known = n > 0 && sscanf(text, "%" SCNx64, token) == 1 && *token != 0;
    if (!known) {
        CHECK(getrandom(token, sizeof *token, 0) == sizeof *token);
        *token = *token >> 1 | 1; /* fits a signed column, and is never 0 */
        int len = snprintf(text, sizeof text, "%016" PRIx64 "\n", *token);
        known = ftruncate(fd, 0) == 0 && pwrite(fd, text, (size_t)len, 0) == len && fsync(fd) == 0;
    }
    if (!known)
        snprintf(why, WHY_MAX, "cannot write %.200s: %s", path, strerror(errno));
    close(fd);
    return known ? OK : ERR_UNAVAILABLE;
}

static void leader_of(void *ctx, char address[CLUSTER_ADDRESS_MAX], uint32_t *number)
{
    leadership_leader(&((struct membership *)ctx)->leadership, address, number);
}

static size_t all_nodes(void *ctx, struct cluster_node *out, size_t max)
{
    return node_watch_list(((struct membership *)ctx)->watch, out, max);
}

/* Goes by the store's time from now on. */
static enum err follow_time(struct membership *m)
{
    int64_t wall_ms, error_us;
    if (!m->config.time)
        return OK;
    TRY(db_now(m->config.control, &wall_ms, &error_us));
    clock_follow(m->config.time, wall_ms, clock_mono_us(clock_system()));
    return OK;
}

void membership_set_address(struct membership *m, const char *address)
{
    snprintf(m->self.shown.address, sizeof m->self.shown.address, "%s", address);
}

enum err membership_join(struct membership *m, const struct membership_config *config,
                         char why[WHY_MAX])
{
    *m = (struct membership){.config = *config,
                             .cluster = config->cluster,
                             .watch = node_watch_new(config->clock),
                             .self = {.token = config->token, .shown.roles = config->roles},
                             .log_after_us = INT64_MIN,
                             .views_there = true,
                             .bus_there = true};
    struct cluster_node *self = &m->self.shown;
    membership_set_address(m, config->address);
    snprintf(self->version, sizeof self->version, "%s", FANTAIL_VERSION);
    enum err e = follow_time(m);
    self->started_ms = clock_wall_ms(config->clock);
    if (!e)
        e = node_watch_look(m->watch, config->control, now_us(m));
    if (!e)
        e = node_join(config->control, m->watch, &m->self, now_us(m));
    if (e) {
        snprintf(why, WHY_MAX, "cannot join the nodes of this store: %s",
                 e == ERR_OVERLOADED ? "every node number is in use" : err_title(e));
        return e;
    }
    atomic_store(&m->beaten_us, now_us(m));
    m->cluster->roles = config->roles;
    m->cluster->number = self->number;
    m->cluster->leader = leader_of;
    m->cluster->nodes = all_nodes;
    m->cluster->ctx = m;
    return OK;
}

void membership_attach(struct membership *m, const struct membership_parts *parts)
{
    m->parts = *parts;
    leadership_init(&m->leadership, &(struct leadership_config){.engine = parts->engine,
                                                                .store = m->config.control,
                                                                .clock = m->config.clock,
                                                                .cluster = m->cluster,
                                                                .token = m->config.token,
                                                                .number = m->self.shown.number});
    leadership_set_willing(&m->leadership, m->config.roles & ROLE_RELAY);
}

/* ---- peers ---- */

/* A node with this role that is there, stays, and has what `needed` has; `except`: not this number.
 */
static bool find_peer(struct membership *m, enum node_role role, uint32_t except,
                      struct node_report needed, struct cluster_node *out)
{
    struct cluster_node nodes[NODES_LOOKED_AT];
    size_t n = node_watch_list(m->watch, nodes, COUNT_OF(nodes));
    for (size_t i = 0; i < n && i < COUNT_OF(nodes); i++) {
        const struct cluster_node *o = &nodes[i];
        const struct node_report *r = &o->report;
        bool lacks =
            (needed.views && !r->views) || (needed.bus && !r->bus) || (needed.leads && !r->leads);
        if (o->number == except || !(o->roles & role) || o->leaving ||
            o->silent_ms >= CLUSTER_GONE_MS || lacks)
            continue;
        *out = *o;
        return true;
    }
    return false;
}

/* Does another node, that does what we do, have this? */
static bool another_has(struct membership *m, enum node_role role, struct node_report needed)
{
    struct cluster_node found;
    return find_peer(m, role, m->self.shown.number, needed, &found);
}

uint64_t membership_undone(struct membership *m)
{
    struct cluster_node found;
    return find_peer(m, ROLE_RELAY, 0, (struct node_report){.leads = true}, &found)
               ? found.report.undone
               : 0;
}

/* Whose workers are there, as far as we know; those of a node that we have not heard of for long
 * are not. */
static void share_lanes(struct membership *m)
{
    struct cluster_node nodes[NODES_LOOKED_AT];
    size_t n = node_watch_list(m->watch, nodes, COUNT_OF(nodes));
    uint32_t self = m->self.shown.number, rank = 0, count = 1;
    for (size_t i = 0; i < n && i < COUNT_OF(nodes); i++) {
        const struct cluster_node *o = &nodes[i];
        if (o->number == self || !(o->roles & ROLE_WORKER) || o->leaving ||
            o->silent_ms >= CLUSTER_GONE_MS)
            continue;
        rank += o->number < self;
        count++;
    }
    engine_share_lanes(m->parts.engine, rank, count);
}

static void decide_quarantine(struct membership *m, int64_t at_us)
{
    bool views = atomic_load(&m->views_there), bus = atomic_load(&m->bus_there);
    bool cut_off = at_us - atomic_load(&m->beaten_us) > NODE_GIVE_UP_MS * INT64_C(1000);
    bool lacking = !views && another_has(m, ROLE_API, (struct node_report){.views = true});
    if (!lacking)
        m->lacking_since_us = 0;
    else if (m->lacking_since_us == 0)
        m->lacking_since_us = at_us;
    bool quarantined =
        cut_off || (lacking && at_us - m->lacking_since_us >= MEMBER_QUARANTINE_MS * INT64_C(1000));
    if (atomic_exchange(&m->cluster->quarantined, quarantined) != quarantined)
        log_warn(quarantined ? "this node is quarantined: it takes no writes" : "this node is back",
                 LOG_CSTR("why", cut_off       ? "its beat does not reach the store"
                                 : quarantined ? "it does not reach the views, and others do"
                                               : "it has all it needs"));
    bool yields = (!views || !bus) &&
                  another_has(m, ROLE_RELAY, (struct node_report){.views = true, .bus = true});
    leadership_set_willing(&m->leadership, (m->config.roles & ROLE_RELAY) && !yields);
}

/* ---- the beat ---- */

static enum err beat_node(struct membership *m, int64_t at_us)
{
    struct engine_stats stats;
    engine_stats(m->parts.engine, &stats);
    m->self.shown.report =
        (struct node_report){.known = true,
                             .views = atomic_load(&m->views_there),
                             .bus = atomic_load(&m->bus_there),
                             .leads = atomic_load(&m->cluster->leads),
                             .quarantined = atomic_load(&m->cluster->quarantined),
                             .undone = stats.undone};
    enum err e = node_beat(m->config.control, &m->self);
    if (e == ERR_CONFLICT) {
        /* The number belongs to another node now: no id may be made with it. */
        log_error("another node has this node's number; the server ends",
                  LOG_INT("number", m->self.shown.number));
        _exit(EXIT_FAILURE);
    }
    if (e)
        return e;
    atomic_store(&m->beaten_us, at_us);
    TRY(node_watch_look(m->watch, m->config.control, now_us(m)));
    share_lanes(m);
    return OK;
}

int64_t membership_beat_step(struct membership *m)
{
    int64_t began_us = now_us(m);
    enum err e = leadership_beat(&m->leadership, m->self.shown.address);
    if (!e)
        e = membership_look_at_views(m);
    if (began_us >= m->node_beat_us) {
        enum err beat = beat_node(m, began_us);
        e = e ? e : beat;
        m->node_beat_us = began_us + NODE_BEAT_MS * INT64_C(1000);
    }
    if (!e && began_us >= m->follow_us) {
        e = follow_time(m);
        m->follow_us = began_us + (m->follow_us == 0 ? FOLLOW_FIRST_US : FOLLOW_EVERY_US);
    }
    atomic_store(&m->cluster->db_state, e ? PART_AWAY : PART_UP);
    decide_quarantine(m, now_us(m));
    membership_decide_trust(m);
    if (e && began_us >= m->log_after_us) {
        m->log_after_us = began_us + LOG_EVERY_US;
        log_warn("this node's beat does not reach the store", LOG_CSTR("error", err_name(e)));
    }
    return began_us + LEASE_BEAT_MS * INT64_C(1000);
}

/* ---- the end ---- */

void membership_leave(struct membership *m)
{
    enum err e = leadership_end(&m->leadership);
    if (!e)
        e = node_leave(m->config.control, &m->self);
    if (e)
        log_warn("the other nodes could not be told that this one leaves",
                 LOG_CSTR("error", err_name(e)));
}

void membership_done(struct membership *m)
{
    leadership_done(&m->leadership);
    node_watch_free(m->watch);
}
