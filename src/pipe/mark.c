/* The mark: how far everything is done, saved by time, and the outbox trimmed behind it.
 *
 * A row may go when two things hold: the event is done (at or below the saved mark), and the views'
 * saved state covers what it did (at or below their position), because after a crash the views come
 * back as saved. Rows go in slices with a pause between them, so that trimming takes the writer
 * only a moment at a time.
 *
 * The saved mark never goes back: after a restart with an older saved state of the views the relay
 * starts below it, and the mark stays until that has been delivered again. */
#include "base/fault.h"
#include "base/log.h"
#include "pipe/outbox.h"
#include "pipe/state.h"

enum { SLICE_PAUSE_US = 10 * 1000 };

static void mark_log(struct mark *m, int64_t now_us, const char *message, enum err e)
{
    if (now_us < m->log_after_us)
        return;
    m->log_after_us = now_us + LOG_AGAIN_US;
    log_error(message, LOG_CSTR("error", err_name(e)));
}

static void save(struct engine *g, int64_t now_us)
{
    uint64_t through = flight_through(&g->flight);
    if (through <= g->mark.saved)
        return;
    FAULT(done_before_mark);
    enum err e = outbox_save_mark(g->env.db, through);
    if (e) {
        mark_log(&g->mark, now_us, "the done mark cannot be saved", e);
        return;
    }
    FAULT(done_after_mark);
    g->mark.saved = through;
}

/* At most one slice; true when there may be more to remove. */
static bool trim(struct engine *g, int64_t now_us)
{
    struct mark *m = &g->mark;
    struct view_stats stats = {0};
    views_stats(g->env.views, &stats);
    uint64_t through = stats.saved_position < m->saved ? stats.saved_position : m->saved;
    if (through <= m->trimmed)
        return false;
    FAULT(outbox_before_trim);
    size_t removed;
    enum err e = outbox_trim(g->env.db, through, g->config.trim_slice, &removed);
    if (e) {
        mark_log(m, now_us, "the outbox cannot be trimmed", e);
        return false;
    }
    if (removed < g->config.trim_slice) {
        m->trimmed = through;
        return false;
    }
    return true;
}

int64_t engine_mark_step(struct engine *g)
{
    struct mark *m = &g->mark;
    int64_t now_us = clock_mono_us(g->env.clock);
    if (now_us >= m->save_after_us) {
        save(g, now_us);
        m->save_after_us = now_us + g->config.mark_every_ms * 1000;
    }
    bool more = trim(g, now_us);
    int64_t slice_us = now_us + SLICE_PAUSE_US;
    return more && slice_us < m->save_after_us ? slice_us : m->save_after_us;
}
