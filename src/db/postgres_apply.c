/* After COMMIT: the commit hook, then the answers, on a thread of their own.
 *
 * The hook may wait for another server (the views of many nodes are in Redis), and a writer must
 * not: its connection could commit the next group. So a writer hands its committed group to the
 * applier and continues. The applier runs the hook for groups in the order of arrival. They still
 * hold the stripes of their keys (pg_order): the next group with one of these keys commits only
 * after this one's hook, so commits and hooks have the same order for each key.
 *
 * Groups that came while the hook ran get one call: a round trip for all of them. They are
 * APPLY_MAX at most; a writer that finds no room waits, as its callers do.
 *
 * A group without events needs no hook, and its writer answers it by itself. */
#include <stdlib.h>

#include "base/check.h"
#include "db/postgres_driver.h"

/* ---- handing on ---- */

static bool has_events(const struct pg_writer *w)
{
    for (size_t i = 0; i < w->count; i++)
        if (!w->slots[i].result && w->slots[i].events.count > 0)
            return true;
    return false;
}

void pg_apply(struct pg_writer *w, const struct pg_turn *turn)
{
    struct pg_apply *a = &w->db->apply;
    if (!has_events(w) || !w->db->base.on_commit) {
        for (size_t i = 0; i < w->count; i++)
            pg_answer(w->db, &w->slots[i]);
        pg_order_leave(&w->db->writers.order, turn);
        return;
    }
    LOCK_SCOPE(&a->lock);
    while (!a->idle)
        pthread_cond_wait(&a->room, &a->lock);
    struct pg_group *g = a->idle;
    a->idle = g->next;
    for (size_t i = 0; i < w->count; i++) {
        struct pg_slot told = g->slots[i]; /* the writer uses its list of events again */
        g->slots[i] = w->slots[i];
        w->slots[i] = told;
    }
    g->count = w->count;
    g->turn = *turn;
    g->next = NULL;
    *a->last = g;
    a->last = &g->next;
    pthread_cond_signal(&a->wake);
}

/* ---- telling ---- */

/* All groups that wait, in order; NULL: it stops, and none does. */
static struct pg_group *take_all(struct pg_apply *a)
{
    LOCK_SCOPE(&a->lock);
    while (!a->first && !a->stopping)
        pthread_cond_wait(&a->wake, &a->lock);
    struct pg_group *all = a->first;
    a->first = NULL;
    a->last = &a->first;
    return all;
}

static void tell_hook(struct pg_apply *a, const struct pg_group *all)
{
    struct db *db = &a->db->base;
    event_list_clear(&a->told);
    for (const struct pg_group *g = all; g; g = g->next)
        for (size_t i = 0; i < g->count; i++)
            for (size_t k = 0; !g->slots[i].result && k < g->slots[i].events.count; k++)
                event_list_add(&a->told, &g->slots[i].events.items[k]);
    db->on_commit(db->on_commit_ctx, a->told.items, a->told.count);
}

static void *apply_main(void *arg)
{
    struct pg_apply *a = arg;
    for (struct pg_group *all; (all = take_all(a));) {
        tell_hook(a, all);
        for (struct pg_group *g = all, *next; g; g = next) {
            next = g->next;
            for (size_t i = 0; i < g->count; i++)
                pg_answer(a->db, &g->slots[i]);
            pg_order_leave(&a->db->writers.order, &g->turn);
            LOCK_SCOPE(&a->lock);
            g->next = a->idle;
            a->idle = g;
            pthread_cond_signal(&a->room);
        }
    }
    return NULL;
}

/* ---- life cycle ---- */

void pg_apply_init(struct pg_apply *a, struct pg_db *db)
{
    *a = (struct pg_apply){.db = db};
    a->last = &a->first;
    pthread_mutex_init(&a->lock, NULL);
    pthread_cond_init(&a->wake, NULL);
    pthread_cond_init(&a->room, NULL);
    for (size_t i = 0; i < PG_APPLY_MAX; i++) {
        struct pg_group *g = &a->groups[i];
        g->slots = pg_slots_new(db);
        g->next = a->idle;
        a->idle = g;
    }
}

enum err pg_apply_start(struct pg_apply *a)
{
    return thread_start(&a->thread, "db-apply", apply_main, a) ? OK : ERR_NO_MEMORY;
}

void pg_apply_stop(struct pg_apply *a)
{
    pthread_mutex_lock(&a->lock);
    a->stopping = true;
    pthread_mutex_unlock(&a->lock);
    pthread_cond_signal(&a->wake);
    thread_join(&a->thread);
}

void pg_apply_done(struct pg_apply *a)
{
    for (size_t i = 0; i < PG_APPLY_MAX; i++)
        pg_slots_free(a->db, a->groups[i].slots);
    event_list_done(&a->told);
    pthread_cond_destroy(&a->wake);
    pthread_cond_destroy(&a->room);
    pthread_mutex_destroy(&a->lock);
}
