/* The mark: how far everything is settled, saved by time, and what may go
 * behind it.
 *
 * Settling is done in slices, so that after a burst the store's writer is held
 * for a moment at a time. An outbox row may go when three things hold: it is
 * settled, the views' saved state covers what it did (after a crash the views
 * come back as saved), and its retention is over. Closed deliveries, and dead
 * ones when the operator set a limit, go by age, and so do inbox entries. All
 * of it in slices with a pause between them.
 *
 * The saved mark never goes back: after a restart with an older saved state of
 * the views the relay starts below it, and the mark stays until that has been
 * delivered again. */
#include "base/fault.h"
#include "base/id.h"
#include "base/log.h"
#include "pipe/state.h"

enum {
    SLICE_PAUSE_US = 10 * 1000,
    SETTLE_SLICE = 2000,
    CLEAN_EVERY_US = 5 * 1000 * 1000,
};

static void mark_log(struct mark *m, int64_t now_us, const char *message, enum err e)
{
    if (now_us < m->log_after_us)
        return;
    m->log_after_us = now_us + LOG_AGAIN_US;
    log_error(message, LOG_CSTR("error", err_name(e)));
}

/* At most one slice; true when there is more to settle. */
static bool settle(struct engine *g, int64_t now_us)
{
    struct mark *m = &g->mark;
    uint64_t through = flight_through(&g->flight);
    uint64_t saved = atomic_load(&m->saved);
    if (through <= saved)
        return false;
    FAULT(done_before_mark);
    enum err e = outbox_settle(g->env.db, saved, through, SETTLE_SLICE, &saved);
    if (e) {
        mark_log(m, now_us, "the mark cannot be saved", e);
        return false;
    }
    FAULT(done_after_mark);
    atomic_store(&m->saved, saved);
    return saved < through;
}

/* At most one slice; true when there may be more to remove. */
static bool trim(struct engine *g, int64_t now_us)
{
    struct mark *m = &g->mark;
    struct view_stats stats = {0};
    views_stats(g->env.views, &stats);
    uint64_t through = atomic_load(&m->saved);
    int64_t kept_since_ms = clock_wall_ms(g->env.clock) - g->config.retain_settled_ms;
    uint64_t retained = kept_since_ms > ID_EPOCH_MS ? id_at(kept_since_ms, 0, 0) : 0;
    if (stats.saved_position < through)
        through = stats.saved_position;
    if (g->config.retain_settled_ms > 0 && retained < through)
        through = retained;
    if (atomic_exchange(&m->trim_again, false))
        m->trimmed = 0;
    if (through <= m->trimmed)
        return false;
    FAULT(outbox_before_trim);
    size_t removed;
    enum err e = outbox_trim(g->env.db, &m->trimmed, through, g->config.trim_slice, &removed);
    if (e) {
        mark_log(m, now_us, "the outbox cannot be trimmed", e);
        return false;
    }
    return removed == g->config.trim_slice;
}

/* ---- old deliveries and inbox entries ---- */

struct cleaning {
    struct engine *g;
    int64_t now_ms;
    size_t closed, dead; /* removed */
    struct inbox_ring ring;
    bool more;
};

static enum err run_clean(struct tx *tx, void *arg)
{
    struct cleaning *c = arg;
    const struct engine_config *config = &c->g->config;
    c->dead = 0;
    int64_t dead_before_ms = config->retain_dead_ms ? c->now_ms - config->retain_dead_ms : 0;
    enum err e = book_clean(tx, c->now_ms - config->retain_closed_ms, 0, config->trim_slice,
                            c->now_ms, &c->closed);
    return e ? e : book_clean(tx, 0, dead_before_ms, config->trim_slice, c->now_ms, &c->dead);
}

static enum err run_forget(struct tx *tx, void *arg)
{
    struct cleaning *c = arg;
    enum err e = inbox_turn(tx, &c->ring, c->now_ms);
    return e ? e : inbox_forget(tx, &c->ring, c->now_ms, c->g->config.trim_slice, &c->more);
}

/* True when there is more to remove. */
static bool clean(struct engine *g, int64_t now_us)
{
    struct cleaning c = {.g = g, .now_ms = clock_wall_ms(g->env.clock)};
    enum err e = db_write(g->env.db, run_clean, &c, NULL);
    if (!e && c.dead)
        engine_books_changed(g); /* a key may be free now; closed ones held up none */
    if (!e && g->has_inbox) {
        pthread_mutex_lock(&g->ring_lock);
        c.ring = g->ring;
        pthread_mutex_unlock(&g->ring_lock);
        e = db_write(g->env.db, run_forget, &c, NULL);
    }
    if (e)
        mark_log(&g->mark, now_us, "old deliveries cannot be removed", e);
    size_t slice = g->config.trim_slice;
    return !e && (c.closed == slice || c.dead == slice || c.more);
}

int64_t engine_mark_step(struct engine *g)
{
    struct mark *m = &g->mark;
    int64_t now_us = clock_mono_us(g->env.clock);
    bool more = false;
    if (now_us >= m->save_after_us) {
        more = settle(g, now_us);
        if (!more)
            m->save_after_us = now_us + g->config.mark_every_ms * 1000;
    }
    more |= trim(g, now_us);
    if (now_us >= m->clean_after_us) {
        bool old = clean(g, now_us);
        if (!old)
            m->clean_after_us = now_us + CLEAN_EVERY_US;
        more |= old;
    }
    int64_t slice_us = now_us + SLICE_PAUSE_US;
    int64_t due_us = m->save_after_us < m->clean_after_us ? m->save_after_us : m->clean_after_us;
    return more && slice_us < due_us ? slice_us : due_us > now_us ? due_us : slice_us;
}
