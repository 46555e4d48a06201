/* A ring of slots. Ids rise along it, so an event is found by halving. */
#include "pipe/replay_window.h"

#include "base/check.h"

static struct window_slot *slot_at(struct replay_window *w, uint32_t nth)
{
    return &w->slots[(w->oldest + nth) % REPLAY_WINDOW];
}

void job_counts_add(struct job_counts *to, const struct job_counts *more)
{
    to->seen += more->seen;
    to->acted += more->acted;
    to->repeated += more->repeated;
    to->suppressed += more->suppressed;
    to->failed += more->failed;
}

void job_counts_take(struct job_counts *from, const struct job_counts *less)
{
    from->seen -= less->seen;
    from->acted -= less->acted;
    from->repeated -= less->repeated;
    from->suppressed -= less->suppressed;
    from->failed -= less->failed;
}

bool replay_window_enter(struct replay_window *w, uint64_t event)
{
    if (w->count == REPLAY_WINDOW)
        return false;
    CHECK(w->count == 0 || slot_at(w, w->count - 1)->event < event);
    *slot_at(w, w->count++) = (struct window_slot){.event = event};
    return true;
}

void replay_window_undo(struct replay_window *w)
{
    CHECK(w->count > 0 && !slot_at(w, w->count - 1)->told);
    w->count--;
}

static struct window_slot *find(struct replay_window *w, uint64_t event)
{
    uint32_t low = 0, high = w->count;
    while (low < high) {
        uint32_t middle = (low + high) / 2;
        if (slot_at(w, middle)->event < event)
            low = middle + 1;
        else
            high = middle;
    }
    return low < w->count && slot_at(w, low)->event == event ? slot_at(w, low) : NULL;
}

bool replay_window_tell(struct replay_window *w, uint64_t event, const struct job_counts *what)
{
    struct window_slot *slot = find(w, event);
    if (!slot || slot->told)
        return false;
    slot->told = true;
    slot->counts = *what;
    slot->counts.seen = 1;
    while (w->count > 0 && slot_at(w, 0)->told) {
        job_counts_add(&w->left, &slot_at(w, 0)->counts);
        w->oldest = (w->oldest + 1) % REPLAY_WINDOW;
        w->count--;
    }
    return true;
}

uint64_t replay_window_position(const struct replay_window *w, uint64_t walked)
{
    return w->count == 0 ? walked : w->slots[w->oldest].event - 1;
}
