/* COMMIT, its lost answer, and the order of hooks.
 *
 * COMMIT travels together with the writes that were not looked at yet: when one of them failed, the
 * server skips everything behind it, COMMIT included, and nothing has happened. Before it is sent
 * the transaction's id is known. So when the connection fails before the answer came, a new
 * connection can look up that id: committed, aborted, or in progress, which it asks again until the
 * transaction is over. A COMMIT that never reached the server leaves its session idle in its
 * transaction; that session is ended, so that the answer comes soon and its rows are free.
 *
 * A crash of the server makes that less simple: an id whose transaction had not reached the disk is
 * given to another one afterwards. So "committed" counts only within one life of the server (see
 * server_life); after a crash, or a failover, the outbox must have an event of the transaction. Any
 * other answer than "committed" is true in any life: a transaction that reached the disk keeps its
 * id.
 *
 * The order of hooks. Two jobs that concern the same row (a follow and its end, two likes of one
 * post) must reach the views in the order of their commits. From before COMMIT until after its
 * hook, a transaction holds the stripes of all its events' keys (actor and object). Another that
 * needs one of them waits with its COMMIT, so commits and hooks have the same order for each key. A
 * holder waits for no other transaction (it has all its rows and never wants further stripes), so
 * there is no deadlock. */
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "base/check.h"
#include "base/fault.h"
#include "base/hash.h"
#include "base/id.h"
#include "base/log.h"
#include "db/postgres_driver.h"

enum { EVENTS_KEEP = 64, LOOK_AGAIN_MS = 50 };

/* ---- order ---- */

static void add_key(struct pg_keys *keys, uint64_t id)
{
    size_t stripe = hash_u64(id) % PG_STRIPES;
    keys->bits[stripe / 64] |= UINT64_C(1) << stripe % 64;
}

void pg_keys_add(struct pg_keys *keys, const struct event_list *events)
{
    for (size_t i = 0; i < events->count; i++) {
        add_key(keys, events->items[i].actor);
        if (events->items[i].object)
            add_key(keys, events->items[i].object);
    }
}

static bool share(const struct pg_keys *a, const struct pg_keys *b)
{
    uint64_t both = 0;
    for (size_t i = 0; i < COUNT_OF(a->bits); i++)
        both |= a->bits[i] & b->bits[i];
    return both != 0;
}

void pg_order_init(struct pg_order *o)
{
    *o = (struct pg_order){.last = &o->first};
    pthread_mutex_init(&o->lock, NULL);
    pthread_cond_init(&o->left, NULL);
}

void pg_order_done(struct pg_order *o)
{
    pthread_cond_destroy(&o->left);
    pthread_mutex_destroy(&o->lock);
}

static bool has_turn(const struct pg_order *o, const struct pg_turn *turn)
{
    for (const struct pg_turn *t = o->first; t != turn; t = t->next)
        if (share(&t->keys, &turn->keys))
            return false;
    return !share(&o->held, &turn->keys);
}

void pg_order_enter(struct pg_order *o, struct pg_turn *turn)
{
    LOCK_SCOPE(&o->lock);
    turn->next = NULL;
    *o->last = turn;
    o->last = &turn->next;
    while (!has_turn(o, turn))
        pthread_cond_wait(&o->left, &o->lock);
    struct pg_turn **at = &o->first;
    while (*at != turn)
        at = &(*at)->next;
    *at = turn->next;
    if (o->last == &turn->next)
        o->last = at;
    for (size_t i = 0; i < COUNT_OF(o->held.bits); i++)
        o->held.bits[i] |= turn->keys.bits[i];
}

void pg_order_leave(struct pg_order *o, const struct pg_turn *turn)
{
    LOCK_SCOPE(&o->lock);
    for (size_t i = 0; i < COUNT_OF(o->held.bits); i++)
        o->held.bits[i] &= ~turn->keys.bits[i];
    pthread_cond_broadcast(&o->left);
}

/* ---- answers ---- */

void pg_answer(struct pg_db *db, struct pg_slot *slot)
{
    struct pg_writers *all = &db->writers;
    struct db_job *job = slot->job;
    if (slot->result == OK)
        FAULT(outbox_after_commit);
    atomic_fetch_add_explicit(slot->result ? &all->failures : &all->transactions, 1,
                              memory_order_relaxed);
    if (slot->result == OK || slot->result == ERR_STORAGE_FULL)
        atomic_store(&all->full, slot->result == ERR_STORAGE_FULL);
    if (slot->events.capacity > EVENTS_KEEP)
        event_list_done(&slot->events);
    job->result = slot->result;
    job->done(job, slot->result, job->detail);
}

/* ---- a lost answer ---- */

enum fate { COMMITTED, ABORTED, UNKNOWN };

/* What a lost connection leaves to ask with. */
struct lost {
    int pid;
    uint64_t xid, event; /* event: one in the outbox, 0 when there is none */
    int64_t life;
};

/* The oldest event that the group stores in the outbox; 0: it stores none. */
static uint64_t oldest_stored(const struct pg_writer *w)
{
    uint64_t oldest = 0;
    for (size_t i = 0; i < w->count; i++) {
        const struct event_list *events = &w->slots[i].events;
        for (size_t k = 0; !w->slots[i].result && k < events->count; k++)
            if (event_keep(events->items[k].type) == EVENT_STORED &&
                (!oldest || events->items[k].id < oldest))
                oldest = events->items[k].id;
    }
    return oldest;
}

/* "Committed", in another life: ours, or another transaction's with the same id? */
static enum fate look_for_event(struct pg_link *l, const struct lost *lost)
{
    char found[24], event[24];
    const char *const id[] = {event};
    snprintf(event, sizeof event, "%llu", (unsigned long long)lost->event);
    if (!lost->event || !pg_link_ask(l, "SELECT count(*) FROM outbox WHERE id = $1::bigint", id, 1,
                                     found, sizeof found))
        return UNKNOWN;
    return strcmp(found, "1") == 0 ? COMMITTED : ABORTED;
}

static enum fate ask_fate(struct pg_link *l, const struct lost *lost)
{
    char detail[TX_DETAIL_MAX], status[24], pid[16], xid[24];
    const char *const session[] = {pid, xid}, *const id[] = {xid};
    snprintf(pid, sizeof pid, "%d", lost->pid);
    snprintf(xid, sizeof xid, "%llu", (unsigned long long)lost->xid);
    if (pg_link_ensure(l, detail))
        return UNKNOWN;
    bool known = l->life != 0 && lost->life != 0, same_life = known && l->life == lost->life;
    /* Not a session at work on its COMMIT: that one may be waiting for a standby. */
    pg_link_ask(l,
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid = $1::int "
                "AND backend_xid = $2::xid8::xid AND state LIKE 'idle in transaction%'",
                session, 2, NULL, 0);
    if (!pg_link_ask(l, "SELECT pg_xact_status($1::xid8)", id, 1, status, sizeof status))
        /* "in the future": it never reached the disk, and no other has its id yet */
        return !l->lost && strcmp(l->failure.state, "22023") == 0 ? ABORTED : UNKNOWN;
    if (strcmp(status, "aborted") == 0)
        return ABORTED;
    if (strcmp(status, "in progress") == 0 && known && !same_life)
        return ABORTED; /* another one, with the id that ours had */
    if (strcmp(status, "committed") == 0)
        return same_life ? COMMITTED : look_for_event(l, lost);
    return UNKNOWN;
}

static enum fate look_up(struct pg_writer *w, const struct lost *lost)
{
    static const char *const names[] = {"committed", "aborted", "unknown"};
    enum fate fate;
    atomic_fetch_add_explicit(&w->db->writers.lookups, 1, memory_order_relaxed);
    int64_t end = pg_now_ms() + w->db->config.lookup_ms;
    while ((fate = ask_fate(&w->link, lost)) == UNKNOWN && pg_now_ms() < end)
        nanosleep(&(struct timespec){.tv_nsec = LOOK_AGAIN_MS * 1000000L}, NULL);
    log_warn("the answer to a COMMIT was lost", LOG_ID("xid", lost->xid),
             LOG_CSTR("found", names[fate]));
    return fate;
}

/* ---- commit ---- */

void pg_ids_reach(struct pg_writer *w)
{
    uint64_t floor = id_at(w->link.begun_ms, 0, 0);
    if (floor < SCHEMA_ID_LIMIT)
        id_gen_raise(w->db->base.ids, floor);
}

/* The horizon (postgres_horizon.c) is right only if no event is older than its transaction, but for
 * PG_EARLY_MS: then no reader can have passed over it. A node whose clock is behind the server's,
 * or that was stopped between giving an id and beginning, undoes and runs again, with the ids
 * raised to the server's time and the transaction begun before any id is given. */
static bool is_too_early(struct pg_writer *w, struct pg_tx *tx)
{
    uint64_t oldest = oldest_stored(w);
    if (!oldest || id_time_ms(oldest) >= w->link.begun_ms - PG_EARLY_MS)
        return false;
    pg_ids_reach(w);
    w->begins_first = PG_BEGINS_FIRST;
    pg_tx_poison(tx, ERR_UNAVAILABLE, PG_CONTENTION, "ids are behind the server's time");
    return true;
}

enum pg_end pg_end_of(enum pg_trouble trouble)
{
    return trouble == PG_CONTENTION ? PG_AGAIN_LATER : trouble == PG_LOST ? PG_AGAIN_NEW : PG_APART;
}

static enum pg_end committed(struct pg_writer *w)
{
    FAULT(db_after_commit);
    atomic_fetch_add_explicit(&w->db->writers.commits, 1, memory_order_relaxed);
    return PG_ENDED;
}

/* Sends COMMIT and waits. What was sent before it and failed is the transaction's failure. */
static enum pg_end send_commit(struct pg_writer *w, struct pg_tx *tx)
{
    struct pg_link *l = &w->link;
    struct lost lost = {
        .pid = PQbackendPID(l->handle), .xid = l->xid, .event = oldest_stored(w), .life = l->life};
    FAULT(db_before_commit);
    if (pg_link_send(l, "COMMIT", PG_SENT_COMMIT))
        pg_link_settle(l);
    if (pg_tx_take_failure(tx) == OK)
        return committed(w);
    /* Without an id nothing was written, and running it again is right in any case. With one, not
     * even a word of the server (that it is shutting down) says what it did before. */
    if (tx->trouble != PG_LOST || lost.xid == 0)
        return pg_end_of(tx->trouble);
    enum fate fate = look_up(w, &lost);
    if (fate != UNKNOWN)
        return fate == COMMITTED ? committed(w) : PG_AGAIN_NEW;
    for (size_t i = 0; i < w->count; i++) {
        w->slots[i].result = ERR_UNKNOWN_COMMIT;
        w->slots[i].job->detail[0] = '\0';
    }
    return PG_ENDED;
}

enum pg_end pg_commit(struct pg_writer *w, struct pg_tx *tx)
{
    struct pg_writers *all = &w->db->writers;
    struct pg_turn turn = {0};
    size_t succeeded = 0;
    for (size_t i = 0; i < w->count; i++) {
        if (w->slots[i].result)
            continue;
        succeeded++;
        pg_keys_add(&turn.keys, &w->slots[i].events);
    }
    if ((tx->unasked && pg_tx_settle(tx)) || is_too_early(w, tx))
        return pg_end_of(tx->trouble);
    if (succeeded == 0 || !tx->begun) {
        pg_tx_roll_back(tx);
        pg_apply(w, &(struct pg_turn){0});
        return PG_ENDED;
    }
    pg_order_enter(&all->order, &turn);
    enum pg_end end = send_commit(w, tx);
    if (end == PG_ENDED)
        pg_apply(w, &turn);
    else
        pg_order_leave(&all->order, &turn);
    return end;
}
