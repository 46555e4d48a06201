/* The watermark: how far everything is settled, saved by time, and what may go
 * behind it.
 *
 * Settling is done in slices, so that after a burst the store's writer is held
 * for a moment at a time. An outbox row may go when three things hold: it is
 * settled, the views' saved state covers what it did (after a crash the views
 * come back as saved), and its retention is over. Closed deliveries, and dead
 * ones when the operator set a limit, go by age, and so do dedup entries. All
 * of it in slices with a pause between them.
 *
 * The saved watermark never goes back: after a restart with an older saved state of
 * the views the relay starts below it, and the watermark stays until that has been
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

void watermark_init(struct watermark *m)
{
    *m = (struct watermark){
        .save_after_us = INT64_MIN, .clean_after_us = INT64_MIN, .log_after_us = INT64_MIN};
}

/* How far it may be settled: as far as everything is done and, in views that others hold, also
 * safe. How far that is was read before the save, so the save covers it. A horizon moves with
 * time: it alone is no reason to write. */
static enum err find_end(struct engine *g, uint64_t saved, uint64_t *through)
{
    struct watermark *m = &g->watermark;
    *through = m->safe;
    if (m->safe > saved)
        return OK;
    *through = inflight_through(&g->inflight);
    if (*through <= saved || !g->config.shared)
        return OK;
    if (atomic_load(&g->relay.last_event) <= saved) {
        *through = saved;
        return OK;
    }
    TRY(engine_save_views(g));
    m->safe = *through;
    return OK;
}

/* At most one slice; true when there is more to settle. */
static bool settle(struct engine *g, int64_t now_us)
{
    struct watermark *m = &g->watermark;
    uint64_t saved = atomic_load(&m->saved), through;
    enum err e = find_end(g, saved, &through);
    if (e) {
        engine_complain(&m->log_after_us, now_us,
                        "the views cannot be saved, so nothing is settled",
                        LOG_CSTR("error", err_name(e)));
        return false;
    }
    if (through <= saved)
        return false;
    FAULT(done_before_watermark);
    e = outbox_settle(engine_write, g, saved, through, SETTLE_SLICE, &saved);
    if (e) {
        engine_complain(&m->log_after_us, now_us, "the watermark cannot be saved",
                        LOG_CSTR("error", err_name(e)));
        return false;
    }
    FAULT(done_after_watermark);
    atomic_store(&m->saved, saved);
    return saved < through;
}

/* At most one slice; true when there may be more to remove. */
static bool trim(struct engine *g, int64_t now_us)
{
    struct watermark *m = &g->watermark;
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
    enum err e = outbox_trim(engine_write, g, &m->trimmed, through, g->config.trim_slice, &removed);
    if (e) {
        engine_complain(&m->log_after_us, now_us, "the outbox cannot be trimmed",
                        LOG_CSTR("error", err_name(e)));
        return false;
    }
    return removed == g->config.trim_slice;
}

/* ---- old deliveries and dedup entries ---- */

struct cleaning {
    struct engine *g;
    int64_t now_ms;
    size_t closed, dead; /* removed */
    struct dedup dedup;
    bool more;
};

static enum err run_clean(struct tx *tx, void *arg)
{
    struct cleaning *c = arg;
    const struct engine_config *config = &c->g->config;
    c->dead = 0;
    int64_t dead_before_ms = config->retain_dead_ms ? c->now_ms - config->retain_dead_ms : 0;
    TRY(delivery_store_clean(tx, c->now_ms - config->retain_closed_ms, 0, config->trim_slice,
                             c->now_ms, &c->closed));
    return delivery_store_clean(tx, 0, dead_before_ms, config->trim_slice, c->now_ms, &c->dead);
}

static enum err run_forget(struct tx *tx, void *arg)
{
    struct cleaning *c = arg;
    TRY(dedup_begin(tx, &c->dedup, c->now_ms));
    return dedup_forget(tx, c->now_ms, c->g->config.trim_slice, &c->more);
}

/* True when there is more to remove. */
static bool clean(struct engine *g, int64_t now_us)
{
    struct cleaning c = {.g = g, .now_ms = clock_wall_ms(g->env.clock)};
    enum err e = engine_write(g, run_clean, &c);
    if (!e && c.dead)
        engine_stir_recorder(g); /* a key may be free now; closed ones held up none */
    if (!e && g->has_dedup) {
        dedup_init(&c.dedup, g->config.dedup_ms);
        e = engine_write(g, run_forget, &c);
    }
    if (e)
        engine_complain(&g->watermark.log_after_us, now_us, "old deliveries cannot be removed",
                        LOG_CSTR("error", err_name(e)));
    size_t slice = g->config.trim_slice;
    return !e && (c.closed == slice || c.dead == slice || c.more);
}

static int64_t step(struct engine *g)
{
    struct watermark *m = &g->watermark;
    int64_t now_us = clock_mono_us(g->env.clock);
    bool more = false;
    if (now_us >= m->save_after_us) {
        more = settle(g, now_us);
        if (!more)
            m->save_after_us = now_us + g->config.watermark_every_ms * 1000;
    }
    more |= trim(g, now_us);
    if (now_us >= m->clean_after_us) {
        bool old = clean(g, now_us);
        if (!old)
            m->clean_after_us = now_us + CLEAN_EVERY_US;
        more |= old;
    }
    int64_t slice_us = now_us + SLICE_PAUSE_US, due_us = m->save_after_us;
    due_by(&due_us, m->clean_after_us);
    return more || due_us <= now_us ? slice_us : due_us;
}

int64_t engine_watermark_step(struct engine *g)
{
    return engine_lead_step(g, NULL, step);
}
