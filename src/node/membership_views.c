/* Views in Redis can lose something in two ways: Redis loses data, or a node commits a change and
 * cannot apply it. Both are counted in truth (`lost`); the leader then clears and loads the views,
 * and notes up to which loss it did so (`loaded`). Whenever the two differ no node answers from the
 * views: reads go to truth.
 *
 * A node learns of it with its beat, and does not trust the views for longer than MEMBER_TRUST_MS
 * after it last looked. So a node that loses something waits, before its caller is answered, for
 * MEMBER_SUSPECT_MS: then no node answers from views that lack it. When truth has spoken of a loss
 * for that long already, no node does anyway, and there is nothing to wait for.
 *
 * Only the leader loads. One that lost its lease in the middle of it may have written what the next
 * leader's clearing should have taken away: it counts as a loss, and they are loaded once more. */
#include "node/membership.h"

#include <stdlib.h>
#include <time.h>

#include "base/log.h"
#include "model/truth.h"
#include "model/views_state.h"
#include "port/invalidation.h"

enum {
    LOOK_US = 250 * 1000,
    LOOK_AWAY_US = 100 * 1000,
    RAISE_PAUSE_MS = 50,
    RAISE_LOG_EVERY = 100,
    PROGRESS_US = 1000 * 1000,
};

static void pause_ms(struct membership *m, int64_t ms)
{
    if (m->parts.pause) {
        m->parts.pause(m->parts.pause_ctx, ms);
        return;
    }
    struct timespec span = {.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000};
    nanosleep(&span, NULL);
}

/* ---- trust ---- */

struct look {
    uint64_t lost, loaded;
};

static enum err run_look(struct tx *tx, void *arg)
{
    struct look *l = arg;
    return views_state_read(tx, &l->lost, &l->loaded);
}

/* Each load ends the suspicions before it: a later loss counts from when it was noticed. */
static void note_suspicion(struct membership *m, const struct look *l)
{
    if (l->lost == l->loaded) {
        atomic_store(&m->suspect_since_us, 0);
    } else if (atomic_load(&m->suspect_since_us) == 0 ||
               atomic_load(&m->suspect_load) != l->loaded) {
        atomic_store(&m->suspect_since_us,
                     clock_mono_us(m->config.clock)); /* first: better too late */
        atomic_store(&m->suspect_load, l->loaded);
    }
}

static enum err look(struct membership *m, struct look *l)
{
    int64_t began_us = clock_mono_us(m->config.clock);
    TRY(db_read(m->config.control, run_look, l, NULL));
    atomic_store(&m->loaded, l->loaded);
    atomic_store(&m->lost, l->lost);
    atomic_store(&m->trusted_us, began_us);
    note_suspicion(m, l);
    return OK;
}

/* The cards are lost with the views, and so are the pages made of both. */
static void suspect_all(struct membership *m, bool suspect)
{
    views_suspect(m->parts.views, suspect);
    cards_suspect(m->parts.cards, suspect);
    invalidation_suspect(m->parts.invalidation, suspect);
}

enum err membership_look_at_views(struct membership *m)
{
    struct look l;
    return look(m, &l);
}

void membership_decide_trust(struct membership *m)
{
    int64_t age_us = clock_mono_us(m->config.clock) - atomic_load(&m->trusted_us);
    bool suspect = atomic_load(&m->lost) != atomic_load(&m->loaded) ||
                   atomic_load(&m->losing) > 0 || age_us > MEMBER_TRUST_MS * INT64_C(1000);
    suspect_all(m, suspect);
    /* Views that are not complete do not answer, whether suspect or not. */
    bool trusted = !suspect && atomic_load(&m->views_complete);
    atomic_store(&m->cluster->views_state, !atomic_load(&m->views_there) ? PART_AWAY
                                           : trusted                     ? PART_UP
                                                                         : PART_SUSPECT);
}

void membership_views_lost(struct membership *m)
{
    struct look l = {0};
    uint64_t lost;
    int tries = 0;
    atomic_fetch_add(&m->losing, 1);
    suspect_all(m, true);
    while (views_state_lost(m->config.control, &lost) != OK) {
        if (tries++ % RAISE_LOG_EVERY == 0)
            log_error("the views lost a change, and the store cannot be told; callers wait");
        pause_ms(m, RAISE_PAUSE_MS);
    }
    while (look(m, &l) != OK)
        pause_ms(m, RAISE_PAUSE_MS);
    atomic_fetch_sub(&m->losing, 1);
    if (l.loaded + 1 >= lost)
        log_warn("the views lost a change: reads go to the store until they are loaded again");
    if (l.lost == l.loaded)
        return; /* they were loaded in the meantime, this change included */
    int64_t now_us = clock_mono_us(m->config.clock),
            suspect_since_us = atomic_load(&m->suspect_since_us);
    int64_t for_ms = suspect_since_us ? (now_us - suspect_since_us) / 1000 : 0;
    if (for_ms < MEMBER_SUSPECT_MS)
        pause_ms(m, MEMBER_SUSPECT_MS - for_ms);
}

/* ---- loading ---- */

static void log_progress(void *arg, uint64_t done, uint64_t total)
{
    int64_t *shown_us = arg, now_us = clock_mono_us(clock_system());
    if (now_us - *shown_us < PROGRESS_US)
        return;
    *shown_us = now_us;
    log_info("loading the views from the store", LOG_INT("done", done), LOG_INT("total", total));
}

struct loaded {
    uint64_t lost, term;
};

static enum err run_loaded(struct tx *tx, void *arg)
{
    const struct loaded *l = arg;
    TRY(lease_fence_engine(tx, l->term));
    return views_state_loaded(tx, l->lost);
}

static enum err load(struct membership *m)
{
    struct look l;
    struct loaded done = {.term = leadership_term(&m->leadership)};
    int64_t began_us = clock_mono_us(m->config.clock), shown_us = began_us;
    TRY(look(m, &l));
    if (l.lost == l.loaded)
        return OK;
    done.lost = l.lost;
    enum err e = views_clear(m->parts.views);
    if (!e)
        e = truth_load_views(m->parts.db, m->parts.views, log_progress, &shown_us);
    if (!e)
        e = views_loaded(m->parts.views);
    if (!e)
        e = db_write(m->config.control, run_loaded, &done, NULL);
    if (e == ERR_NO_LEADER) {
        uint64_t lost;
        e = views_state_lost(m->config.control, &lost);
        return e ? e : ERR_NO_LEADER;
    }
    if (e)
        return e;
    atomic_store(&m->views_complete, true);
    atomic_fetch_add(&m->cluster->views_lost, 1);
    log_info("the views are loaded", LOG_INT("loss", l.lost),
             LOG_INT("took_ms", (clock_mono_us(m->config.clock) - began_us) / 1000));
    return membership_look_at_views(m);
}

int64_t membership_views_step(struct membership *m)
{
    bool complete = false;
    uint64_t lost;
    enum err e = views_is_complete(m->parts.views, &complete);
    bool there = e == OK;
    if (atomic_exchange(&m->views_there, there) != there)
        log_warn(there ? "the views answer again" : "the views do not answer",
                 LOG_CSTR("error", err_name(e)));
    bool bus = bus_is_connected(m->parts.bus);
    atomic_store(&m->bus_there, bus);
    atomic_store(&m->cluster->bus_state, bus ? PART_UP : PART_AWAY);
    atomic_store(&m->views_complete, there && complete);
    if (!there)
        return clock_mono_us(m->config.clock) + LOOK_AWAY_US;
    if (!engine_leads(m->parts.engine))
        return clock_mono_us(m->config.clock) + LOOK_US;
    if (!complete && atomic_load(&m->lost) == atomic_load(&m->loaded)) {
        log_warn("the views are not complete: they are loaded from the store");
        e = views_state_lost(m->config.control, &lost);
        if (!e)
            e = membership_look_at_views(m);
    }
    if (!e && atomic_load(&m->lost) != atomic_load(&m->loaded))
        e = load(m);
    membership_decide_trust(m);
    if (e)
        log_warn("the views could not be loaded; it is tried again",
                 LOG_CSTR("error", err_name(e)));
    return clock_mono_us(m->config.clock) + (e ? LOOK_AWAY_US : LOOK_US);
}
