/* The node's number, its beat and the lease. What the steps do together:
 *
 * The beat step alone talks about the lease; it publishes until when the lease is ours. The lead
 * step compares that with the engine ten times a second, by time and not by news: a node whose beat
 * hangs stops to lead before anybody else can begin.
 *
 * A leader's own words to all travel in the lease: where it is, and which lanes an operator stopped
 * or set. Whoever leads next knows them, because every node follows them.
 *
 * A node that cannot do its part steps aside: without Redis or RabbitMQ, while another node has
 * them, it neither leads nor takes writes. When nobody has them there is no better node. */
#include "cmd/membership.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <time.h>
#include <unistd.h>

#include "base/check.h"
#include "base/id.h"
#include "base/log.h"
#include "cmd/engines.h"
#include "cmd/membership_views.h"
#include "cmd/switches.h"
#include "model/celebrity.h"

enum {
    WHY_MAX = 300,
    PATH_TEXT_MAX = 4096,
    JOIN_TRIES = 100,
    LEAD_TICK_US = 100 * 1000,
    LEAD_AGAIN_US = 500 * 1000,
    FOLLOW_FIRST_US = 1000 * 1000,
    FOLLOW_EVERY_US = 5 * 1000 * 1000,
    ASIDE_AFTER_US = 3 * 1000 * 1000,
    LOG_EVERY_US = 60 * 1000 * 1000,
    NODES_LOOKED_AT = 64, /* when one is looked for that has something */
};

static int64_t now_us(const struct membership *m)
{
    return clock_mono_us(m->api ? m->api->clock : clock_system());
}

/* ---- joining ---- */

/* A number that means this data folder. */
static enum err read_token(const char *folder, uint64_t *token, char *why)
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

static void write_address(const struct settings *s, char out[NODE_TEXT_MAX])
{
    snprintf(out, NODE_TEXT_MAX, "http://%.200s", s->advertise[0] ? s->advertise : s->listen);
}

static void leader_of(void *ctx, char address[CLUSTER_ADDRESS_MAX], uint32_t *number)
{
    struct membership *m = ctx;
    pthread_mutex_lock(&m->lock);
    memcpy(address, m->leader_address, CLUSTER_ADDRESS_MAX);
    *number = m->leader_number;
    pthread_mutex_unlock(&m->lock);
}

static void describe(struct membership *m)
{
    const struct settings *s = m->settings;
    engines_kind(s->db, "sqlite", m->kinds[0]);
    engines_kind(s->views, "memory", m->kinds[1]);
    engines_kind(s->bus, "local", m->kinds[2]);
    m->cluster.db_kind = m->kinds[0];
    m->cluster.views_kind = m->kinds[1];
    m->cluster.bus_kind = m->kinds[2];
    m->cluster.leader = leader_of;
    m->cluster.ctx = m;
}

/* Goes by the store's time from now on. */
static enum err follow_time(struct membership *m)
{
    int64_t wall_ms, error_us;
    enum err e = db_now(m->control, &wall_ms, &error_us);
    if (!e)
        clock_follow(m->time, wall_ms, clock_mono_us(clock_system()));
    return e;
}

enum err membership_join(struct membership *m, const struct settings *settings, struct db *control,
                         struct following_clock *time, struct id_gen *ids, char why[WHY_MAX])
{
    *m = (struct membership){.settings = settings,
                             .control = control,
                             .time = time,
                             .log_after_us = INT64_MIN,
                             .views_there = true,
                             .bus_there = true};
    pthread_mutex_init(&m->lock, NULL);
    CHECK(roles_parse(str_of(settings->role), &m->self.roles));
    write_address(settings, m->self.address);
    snprintf(m->self.version, sizeof m->self.version, "%s", FANTAIL_VERSION);
    m->self.started_ms = clock_wall_ms(&time->clock);
    m->cluster.watch = node_watch_new();
    enum err e = read_token(settings->data, &m->self.token, why);
    lease_init(&m->lease, "engine", m->self.token);
    if (!e)
        e = follow_time(m);
    if (!e)
        e = node_watch_look(m->cluster.watch, control, now_us(m));
    if (!e)
        e = node_join(control, m->cluster.watch, &m->self, now_us(m));
    if (e) {
        if (why[0] == '\0')
            snprintf(why, WHY_MAX, "cannot join the nodes of this store: %s",
                     e == ERR_OVERLOADED ? "every node number is in use" : err_title(e));
        return e;
    }
    ids->node = m->self.number; /* nothing has been given an id yet */
    atomic_store(&m->beaten_us, now_us(m));
    m->cluster.roles = m->self.roles;
    m->cluster.number = m->self.number;
    describe(m);
    return OK;
}

void membership_attach(struct membership *m, struct api *api, struct bus *bus)
{
    m->api = api;
    m->bus = bus;
    api->cluster = &m->cluster;
}

void membership_listens(struct membership *m, uint16_t port)
{
    char host[256];
    uint16_t asked = 0;
    if (m->settings->advertise[0] || !settings_split_address(m->settings->listen, host, &asked))
        return;
    bool six = strchr(host, ':') != NULL;
    snprintf(m->self.address, sizeof m->self.address, "http://%s%.200s%s:%u", six ? "[" : "", host,
             six ? "]" : "", (unsigned)port);
}

/* ---- stepping aside ---- */

/* Does another node, that does what we do, have this? `words`: as in its body. */
static bool another_has(struct membership *m, unsigned role, const char *words)
{
    struct node nodes[NODES_LOOKED_AT];
    size_t n = node_watch_list(m->cluster.watch, nodes, COUNT_OF(nodes));
    for (size_t i = 0; i < n && i < COUNT_OF(nodes); i++) {
        const struct node *o = &nodes[i];
        if (o->number != m->self.number && (o->roles & role) && !o->leaving &&
            o->silent_ms < NODE_GONE_MS && strstr(o->body, words))
            return true;
    }
    return false;
}

static void decide_aside(struct membership *m, int64_t at_us)
{
    bool views = atomic_load(&m->views_there), bus = atomic_load(&m->bus_there);
    bool cut_off = at_us - atomic_load(&m->beaten_us) > NODE_GIVE_UP_MS * INT64_C(1000);
    bool lacking = !views && another_has(m, ROLE_API, "views=1");
    if (!lacking)
        m->aside_since_us = 0;
    else if (m->aside_since_us == 0)
        m->aside_since_us = at_us;
    bool aside = cut_off || (lacking && at_us - m->aside_since_us >= ASIDE_AFTER_US);
    if (atomic_exchange(&m->cluster.aside, aside) != aside)
        log_warn(aside ? "this node steps aside: it takes no writes" : "this node is back",
                 LOG_CSTR("why", cut_off ? "its beat does not reach the store"
                                 : aside ? "it does not reach the views, and others do"
                                         : "it has all it needs"));
    atomic_store(&m->yielding, (!views || !bus) && another_has(m, ROLE_RELAY, "views=1 bus=1"));
}

/* ---- the beat ---- */

static void note_leader(struct membership *m)
{
    const struct lease *l = &m->lease;
    char address[CLUSTER_ADDRESS_MAX] = "";
    unsigned number = 0;
    if (l->holder != 0)
        (void)sscanf(l->body, "node=%u address=%255s", &number, address);
    pthread_mutex_lock(&m->lock);
    memcpy(m->leader_address, address, sizeof address);
    m->leader_number = number;
    pthread_mutex_unlock(&m->lock);
    atomic_store(&m->cluster.term, l->term);
    engine_saw_term(m->api->engine, l->term);
}

static void publish_lease(struct membership *m)
{
    const struct lease *l = &m->lease;
    bool ours = lease_is_held(l, now_us(m));
    atomic_store(&m->held_term, ours ? l->term : 0);
    int64_t until_us = ours ? l->renewed_us + LEASE_GIVE_UP_MS * INT64_C(1000) : 0;
    engine_lead_until(m->api->engine, until_us);
    atomic_store(&m->held_until_us, until_us);
}

static enum err keep_lease(struct membership *m)
{
    struct lease *l = &m->lease;
    char body[LEASE_BODY_MAX];
    int64_t at_us = now_us(m);
    bool may_lead =
        (m->self.roles & ROLE_RELAY) && !atomic_load(&m->yielding) && !atomic_load(&m->stopping);
    bool ours = lease_is_held(l, at_us);
    enum err e = OK;
    if (ours && !may_lead && !engine_leads(m->api->engine)) {
        e = lease_give_back(l, m->control);
    } else if (ours && l->term == atomic_load(&m->spent_term) && !engine_leads(m->api->engine)) {
        e = lease_take(l, m->control, at_us); /* the same lease, in a new term */
    } else if (ours) {
        int n = snprintf(body, sizeof body, "node=%u address=%s ", (unsigned)m->self.number,
                         m->self.address);
        switches_write(m->api->engine, body + n, sizeof body - (size_t)n);
        e = lease_renew(l, m->control, body, at_us);
        if (e == ERR_CONFLICT)
            e = lease_look(l, m->control, at_us);
    } else {
        e = lease_look(l, m->control, at_us);
        /* Also when the row names us: the data folder's lock says that our former self is gone. */
        if (!e && may_lead && lease_is_free(l, at_us)) {
            e = lease_take(l, m->control, at_us);
            if (e == ERR_CONFLICT)
                e = lease_look(l, m->control, now_us(m));
        }
    }
    publish_lease(m);
    if (!e)
        note_leader(m);
    if (!e && !engine_leads(m->api->engine) && l->holder != l->self)
        switches_follow(m->api->engine, l->body);
    return e;
}

static enum err beat_node(struct membership *m, int64_t at_us)
{
    struct engine_stats stats;
    engine_stats(m->api->engine, &stats);
    snprintf(m->self.body, sizeof m->self.body, "views=%d bus=%d leads=%d aside=%d undone=%" PRIu64,
             atomic_load(&m->views_there), atomic_load(&m->bus_there),
             atomic_load(&m->cluster.leads), atomic_load(&m->cluster.aside), stats.undone);
    enum err e = node_beat(m->control, &m->self);
    if (e == ERR_CONFLICT) {
        /* The number is somebody else's by now: nothing may be given an id with it. */
        log_error("another node has this node's number; the server ends",
                  LOG_INT("number", m->self.number));
        _exit(EXIT_FAILURE);
    }
    if (!e)
        atomic_store(&m->beaten_us, at_us);
    if (!e)
        e = node_watch_look(m->cluster.watch, m->control, now_us(m));
    if (!e && !atomic_load(&m->cluster.leads) && m->api->keeper)
        e = celebrity_keeper_follow(m->api->keeper);
    return e;
}

int64_t membership_beat_step(void *arg)
{
    struct membership *m = arg;
    int64_t began_us = now_us(m);
    enum err e = keep_lease(m);
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
    atomic_store(&m->cluster.db_state, e ? PART_AWAY : PART_UP);
    decide_aside(m, now_us(m));
    membership_decide_doubt(m);
    if (e && began_us >= m->log_after_us) {
        m->log_after_us = began_us + LOG_EVERY_US;
        log_warn("this node's beat does not reach the store", LOG_CSTR("error", err_name(e)));
    }
    return began_us + LEASE_BEAT_MS * INT64_C(1000);
}

/* ---- leading ---- */

static void begin_to_lead(struct membership *m, uint64_t term)
{
    enum err e = engine_lead(m->api->engine, term);
    if (e) {
        log_warn("this node holds the lease and cannot lead yet", LOG_CSTR("error", err_name(e)));
        return;
    }
    atomic_store(&m->cluster.leads, true);
}

static void stop_to_lead(struct membership *m, const char *why)
{
    atomic_store(&m->cluster.leads, false);
    log_info("this node stops to lead", LOG_CSTR("why", why));
    engine_resign(m->api->engine);
}

int64_t membership_lead_step(void *arg)
{
    struct membership *m = arg;
    struct engine *g = m->api->engine;
    int64_t at_us = now_us(m);
    bool held = at_us < atomic_load(&m->held_until_us);
    uint64_t term = atomic_load(&m->held_term);
    bool leads = engine_leads(g);
    membership_decide_doubt(m);
    if (leads && (!held || term != atomic_load(&m->leading_term)))
        stop_to_lead(m, "its lease is over");
    else if (leads && engine_must_resign(g)) {
        atomic_store(&m->spent_term, term);
        stop_to_lead(m, "its term is over, or the views lost what was not saved");
    } else if (leads && (atomic_load(&m->yielding) || atomic_load(&m->stopping)))
        stop_to_lead(m, "another node can do it better");
    else if (!leads && held && term != atomic_load(&m->spent_term) && !atomic_load(&m->yielding) &&
             !atomic_load(&m->stopping)) {
        atomic_store(&m->leading_term, term);
        begin_to_lead(m, term);
        return engine_leads(g) ? at_us + LEAD_TICK_US : at_us + LEAD_AGAIN_US;
    }
    return at_us + LEAD_TICK_US;
}

uint64_t membership_undone(struct membership *m)
{
    struct node nodes[NODES_LOOKED_AT];
    size_t n = node_watch_list(m->cluster.watch, nodes, COUNT_OF(nodes));
    for (size_t i = 0; i < n && i < COUNT_OF(nodes); i++) {
        const char *undone = strstr(nodes[i].body, "undone=");
        if (undone && strstr(nodes[i].body, "leads=1") && nodes[i].silent_ms < NODE_GONE_MS)
            return strtoull(undone + strlen("undone="), NULL, 10);
    }
    return 0;
}

/* ---- the end ---- */

void membership_leave(struct membership *m)
{
    atomic_store(&m->stopping, true);
    if (engine_leads(m->api->engine))
        stop_to_lead(m, "it is stopping");
    enum err e = lease_is_held(&m->lease, now_us(m)) ? lease_give_back(&m->lease, m->control) : OK;
    if (!e)
        e = node_leave(m->control, &m->self);
    if (e)
        log_warn("the other nodes could not be told that this one leaves",
                 LOG_CSTR("error", err_name(e)));
}

void membership_done(struct membership *m)
{
    if (!m->settings)
        return;
    node_watch_free(m->cluster.watch);
    if (m->control) {
        db_stop(m->control);
        db_free(m->control);
    }
    pthread_mutex_destroy(&m->lock);
}
