/* The beat alone knows the lease; it publishes until when the lease is ours. The step compares that
 * with the engine ten times a second, by time and not when woken: a node whose beat hangs resigns
 * before another node can begin.
 *
 * A term in which the engine had to resign is spent: what it noted in that term is void. The beat
 * then takes the same lease again, in a new term.
 *
 * A row that names this node though it does not hold the lease was written by its former process,
 * and the data folder's lock says that this one is gone: it is free for us. */
#include "node/leadership.h"

#include <string.h>

#include "base/log.h"
#include "node/peer.h"

enum { TICK_US = 100 * 1000, AGAIN_US = 500 * 1000 };

static int64_t now_us(const struct leadership *l)
{
    return clock_mono_us(l->config.clock);
}

void leadership_init(struct leadership *l, const struct leadership_config *config)
{
    *l = (struct leadership){.config = *config};
    lease_init(&l->lease, LEASE_ENGINE, config->token, config->clock);
    pthread_mutex_init(&l->lock, NULL);
}

void leadership_done(struct leadership *l)
{
    if (l->config.engine)
        pthread_mutex_destroy(&l->lock);
}

void leadership_set_willing(struct leadership *l, bool willing)
{
    atomic_store(&l->willing, willing);
}

/* ---- lanes, as an operator set them at the leader ---- */

/* All of them: a lane that the row leaves out keeps its present setting. */
static void read_lanes(struct engine *g, struct lane_override out[LANE_COUNT])
{
    struct engine_stats stats;
    engine_stats(g, &stats);
    for (int lane = 0; lane < LANE_COUNT; lane++) {
        const struct lane_stats *l = &stats.lanes[lane];
        out[lane] = (struct lane_override){.known = true,
                                           .concurrency = l->concurrency,
                                           .rate = l->rate,
                                           .stopped = l->breaker.state == BREAKER_BY_HAND};
    }
}

/* Sets only what differs: following costs nothing, and a node's own breaker is left alone. */
static void follow_lanes(struct engine *g, const struct lane_override lanes[LANE_COUNT])
{
    struct lane_override own[LANE_COUNT];
    read_lanes(g, own);
    for (int lane = 0; lane < LANE_COUNT; lane++) {
        const struct lane_override *told = &lanes[lane];
        if (!told->known)
            continue;
        if (told->concurrency != own[lane].concurrency || told->rate != own[lane].rate)
            engine_set_lane(g, (enum lane)lane, told->concurrency, told->rate);
        if (told->stopped != own[lane].stopped)
            engine_stop_lane(g, (enum lane)lane, told->stopped);
    }
}

/* ---- the beat ---- */

/* A notice that we do not understand names no node: its writer leads, and we cannot say where it
 * is.
 */
static void note_leader(struct leadership *l)
{
    struct engine *g = l->config.engine;
    struct leader_notice notice = {0};
    bool told = l->lease.holder != 0 && leader_notice_decode(str_of(l->lease.body), &notice);
    pthread_mutex_lock(&l->lock);
    memcpy(l->leader_address, notice.address, sizeof notice.address);
    l->leader_number = notice.number;
    pthread_mutex_unlock(&l->lock);
    atomic_store(&l->config.cluster->term, l->lease.term);
    engine_saw_term(g, l->lease.term);
    if (told && !engine_leads(g) && l->lease.holder != l->lease.self)
        follow_lanes(g, notice.lanes);
}

static void publish_lease(struct leadership *l)
{
    bool ours = lease_is_held(&l->lease, now_us(l));
    atomic_store(&l->held_term, ours ? l->lease.term : 0);
    int64_t until_us = ours ? l->lease.renewed_us + LEASE_GIVE_UP_MS * INT64_C(1000) : 0;
    engine_lead_until(l->config.engine, until_us);
    atomic_store(&l->held_until_us, until_us);
}

static enum err renew(struct leadership *l, const char *address, int64_t at_us)
{
    struct leader_notice notice = {.number = l->config.number};
    char body[PEER_TEXT_MAX];
    memcpy(notice.address, address, strnlen(address, sizeof notice.address - 1));
    read_lanes(l->config.engine, notice.lanes);
    leader_notice_encode(&notice, body);
    enum err e = lease_renew(&l->lease, l->config.store, body, at_us);
    return e == ERR_CONFLICT ? lease_look(&l->lease, l->config.store, at_us) : e;
}

static enum err look(struct leadership *l, bool may_take, int64_t at_us)
{
    TRY(lease_look(&l->lease, l->config.store, at_us));
    if (!may_take || !lease_is_free(&l->lease, at_us))
        return OK;
    enum err e = lease_take(&l->lease, l->config.store, at_us);
    return e == ERR_CONFLICT ? lease_look(&l->lease, l->config.store, now_us(l)) : e;
}

enum err leadership_beat(struct leadership *l, const char *address)
{
    struct lease *lease = &l->lease;
    int64_t at_us = now_us(l);
    bool willing = atomic_load(&l->willing), leads = engine_leads(l->config.engine);
    enum err e;
    if (!lease_is_held(lease, at_us))
        e = look(l, willing, at_us);
    else if (!willing && !leads)
        e = lease_give_back(lease, l->config.store);
    else if (!leads && lease->term == atomic_load(&l->spent_term))
        e = lease_take(lease, l->config.store, at_us); /* the same lease, in a new term */
    else
        e = renew(l, address, at_us);
    publish_lease(l);
    if (!e)
        note_leader(l);
    return e;
}

/* ---- the step ---- */

static void resign(struct leadership *l, const char *why)
{
    atomic_store(&l->config.cluster->leads, false);
    log_info("this node stops leading", LOG_CSTR("why", why));
    engine_resign(l->config.engine);
}

static int64_t begin(struct leadership *l, uint64_t term)
{
    atomic_store(&l->leading_term, term);
    enum err e = engine_lead(l->config.engine, term);
    if (e)
        log_warn("this node holds the lease and cannot lead yet", LOG_CSTR("error", err_name(e)));
    else
        atomic_store(&l->config.cluster->leads, true);
    return now_us(l) + (e ? AGAIN_US : TICK_US);
}

int64_t leadership_step(struct leadership *l)
{
    struct engine *g = l->config.engine;
    int64_t at_us = now_us(l);
    bool held = at_us < atomic_load(&l->held_until_us), willing = atomic_load(&l->willing);
    uint64_t term = atomic_load(&l->held_term);
    if (!engine_leads(g)) {
        bool may = held && willing && term != atomic_load(&l->spent_term);
        return may ? begin(l, term) : at_us + TICK_US;
    }
    if (!held || term != atomic_load(&l->leading_term)) {
        resign(l, "its lease is over");
    } else if (engine_must_resign(g)) {
        atomic_store(&l->spent_term, term);
        resign(l, "its term is over, or the views lost what was not saved");
    } else if (!willing) {
        resign(l, "it stops, or another node can do it better");
    }
    return at_us + TICK_US;
}

enum err leadership_end(struct leadership *l)
{
    leadership_set_willing(l, false);
    if (engine_leads(l->config.engine))
        resign(l, "it stops");
    return lease_is_held(&l->lease, now_us(l)) ? lease_give_back(&l->lease, l->config.store) : OK;
}

/* ---- what others ask ---- */

uint64_t leadership_term(struct leadership *l)
{
    return atomic_load(&l->held_term);
}

void leadership_leader(struct leadership *l, char address[CLUSTER_ADDRESS_MAX], uint32_t *number)
{
    pthread_mutex_lock(&l->lock);
    memcpy(address, l->leader_address, CLUSTER_ADDRESS_MAX);
    *number = l->leader_number;
    pthread_mutex_unlock(&l->lock);
}
