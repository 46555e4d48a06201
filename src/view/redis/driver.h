/* The inside of the Redis views driver, shared by its files.
 *
 * An account's own keys lie in its bucket's slot (keys.h). Two kinds are shared:
 *
 * The hidden accounts. A page asks about every author on it, and a hidden author must be out of
 * sight as soon as the change has returned, so no node may cache the answer. Therefore the set is
 * kept in copies, one for every 256 slots: a reader asks the copy next to the viewer's own keys,
 * mostly on the same node and in the same breath, and a change, which is rare, is written to all.
 * Each copy holds the member 0, too, as long as everything in its 256 slots is complete. When a
 * node of Redis loses its data these marks go along, and readers are sent to truth.
 *
 * The time at which the latest walk over a part of followers began: one number. */
#pragma once

#include <pthread.h>
#include <stdatomic.h>

#include "base/check.h"
#include "base/clock.h"
#include "base/map.h"
#include "port/views.h"
#include "view/redis/client.h"
#include "view/semantics.h"

enum {
    COPY_SLOTS = 256,
    COPIES_MAX = 16384 / COPY_SLOTS,
    REBUILDS_MAX = 4096,      /* timelines and inboxes that this process rebuilds at once */
    REBUILD_KEEP_MS = 60000,  /* one that is not ended by then counts as given up */
    RECENT_KEEP_MS = 3600000, /* how late a change may come and still be known to be late */
    MASTERSHIP = 82,          /* run id and replication id, as text */
    STORE_TEXT_MAX = 64
};

enum tally_part {
    TALLY_ACCOUNTS,
    TALLY_FOLLOWS,
    TALLY_DROPPED,
    TALLY_ENTRIES,
    TALLY_PULL_LISTS,
    TALLY_GROUPS,
    TALLY_MEMBERSHIPS,
    TALLY_INBOXES,
    TALLY_INBOX_ENTRIES,
    TALLY_PARTS
};

struct redis_views {
    struct views views;
    struct graph graph;
    struct timelines timelines;
    struct inboxes inboxes;
    struct clock *clock;
    struct client client;
    size_t pull_cap;
    bool safe_pushes;               /* wait for the replica after each */
    char store[STORE_TEXT_MAX + 1]; /* the store that the views belong to; "": not checked */
    size_t copies;
    struct key hidden[COPIES_MAX], hidden_recent[COPIES_MAX];

    pthread_mutex_t lock; /* of what follows */
    struct map rebuilds;  /* see rebuild.c */
    unsigned sweep_bucket;
    char sweep_cursor[24];
    int64_t bytes, bytes_at_ms;
    bool has_saved;
    char masterships[COPIES_MAX][MASTERSHIP]; /* who answered at the last save, by copy */

    _Atomic bool suspect;
    _Atomic uint64_t loading;           /* the epoch that clear() began; 0: it was not called */
    _Atomic uint64_t epoch_seen;        /* as of the last look */
    _Atomic uint64_t restarts_trusted;  /* up to this restart all was found complete */
    _Atomic uint32_t walked_at;         /* as far as this process knows, seconds */
    _Atomic int64_t tally[TALLY_PARTS]; /* not yet added to the numbers in Redis */
    _Atomic int64_t poured_at_ms;
};

/* Must readers be sent to truth without a look? A restart becomes known while a call is under way:
 * look again after it. */
static inline bool is_lost(struct redis_views *r)
{
    return atomic_load_explicit(&r->suspect, memory_order_relaxed) ||
           connections_restarts(r->client.connections) != atomic_load(&r->restarts_trusted);
}

/* When the latest walk over a part of followers began, in seconds. */
#define WALKED_KEY key_named("walked{fantail}")

/* ---- views.c ---- */

static inline void tally_add(struct redis_views *r, enum tally_part part, int64_t n)
{
    if (n != 0)
        atomic_fetch_add_explicit(&r->tally[part], n, memory_order_relaxed);
}

void tally_pour(struct redis_views *r); /* into Redis, if it is time */
/* The epoch of what lies there, begun if there is none. Anew: everything was cleared, what lies
 * there is of another time from now on. */
enum err redis_set_epoch(struct redis_views *r, bool anew, uint64_t *epoch);

/* ---- state.c ---- */

/* Is it the store's own, or empty? Then it is from now on. ERR_CONFLICT: it holds other data. */
enum err redis_own(struct redis_views *r);
enum err redis_look(struct redis_views *r, unsigned how, bool *complete); /* is it all there? */
enum err redis_clear(struct views *v);
enum err redis_loaded(struct views *v);
enum err redis_is_complete(struct views *v, bool *complete);
void redis_suspect(struct views *v, bool on);
enum err redis_save(struct views *v, uint64_t position);

/* ---- commands and replies ---- */

/* The copy of the hidden set next to the account's own keys. */
static inline struct key hidden_near(const struct redis_views *r, uint64_t account)
{
    return r->hidden[r->copies > 1 ? key_of_people(account).slot / COPY_SLOTS : 0];
}
/* Is everything complete around the account? Queued, then answered by 1. */
static inline size_t queue_complete(struct redis_views *r, struct batch *b, uint64_t account)
{
    return batch_command(b, "SISMEMBER", arg_key(hidden_near(r, account)), arg_text("0"));
}
/* Is it an account? Answered by 1 or 0. */
static inline size_t queue_known(struct batch *b, uint64_t account)
{
    return batch_command(b, "HEXISTS", arg_people(account), arg_number(account));
}

/* A script's reply {a, b, …}: the i-th, NULL: none, and the i-th as a number. */
static inline const redisReply *reply_part(const struct batch *b, size_t command, size_t i)
{
    return reply_element(batch_reply(b, command), i);
}
static inline int64_t reply_number(const struct batch *b, size_t command, size_t i)
{
    const redisReply *r = reply_part(b, command, i);
    return r && r->type == REDIS_REPLY_INTEGER ? r->integer : 0;
}
static inline bool reply_flag(const struct batch *b, size_t command, size_t i)
{
    return reply_number(b, command, i) == 1;
}
/* Was it this number, and not an array? */
static inline bool reply_is(const struct batch *b, size_t command, int64_t n)
{
    const redisReply *r = batch_reply(b, command);
    return r->type == REDIS_REPLY_INTEGER && r->integer == n;
}

enum err flush_pushes(struct redis_views *r, struct batch *b);
/* A command for every master, with an option or NULL. */
void queue_at_masters(struct redis_views *r, struct batch *b, const char *command,
                      const char *option);

/* ---- the ports ---- */

extern const struct graph_ops redis_graph_ops;
extern const struct timelines_ops redis_timelines_ops;
extern const struct inboxes_ops redis_inboxes_ops;

enum err redis_apply(struct views *v, const struct view_change *changes, size_t n);
/* Many follows at once: all name an event, or none does (a loader's). */
enum err redis_add_follows(struct redis_views *r, const struct view_change *changes, size_t n);
enum err redis_home(struct timelines *base, uint64_t viewer, uint64_t below, uint64_t *ids,
                    size_t max, size_t *n, uint64_t *floor);
enum err redis_sweep(struct timelines *base, int64_t seen_before_ms, size_t max_accounts,
                     size_t *dropped, bool *wrapped);

/* ---- spread.c ---- */

enum err redis_spread(struct timelines *base, uint64_t author, size_t *told, bool *more);

static inline void tell_of_pull_list(struct batch *b, uint64_t follower, uint64_t author)
{
    batch_command(b, "SADD", arg_account(KEY_PULLED, follower), arg_number(author));
}

/* ---- home.c ---- */

/* Answered by [[the newest ids], [head]]. */
size_t queue_top(struct batch *b, uint64_t viewer, size_t max);
/* Answered by {floor, {ids}}, or {}: no such list. */
size_t queue_pull_list(struct redis_views *r, struct batch *b, uint64_t author, uint64_t below,
                       size_t max);
/* Is everything complete around each of these, whose keys were read before in the same batch? The
 * last commands of a batch, the first of which is returned; then whether all of them said so. */
size_t queue_complete_around(struct redis_views *r, struct batch *b, const uint64_t *authors,
                             size_t n);
bool is_complete_around(const struct batch *b, size_t first);
/* Sorts, keeps each id once and the newest `max`. Returns how many. */
size_t sort_page(uint64_t *ids, size_t n, size_t max);

static inline void raise_floor(const redisReply *r, uint64_t *floor)
{
    uint64_t found;
    if (reply_id(r, &found) && found > *floor)
        *floor = found;
}

/* ---- rebuild.c: rebuilding, of a timeline ('t') or an inbox ('i') ---- */

enum { REBUILD_IDS = 3 };

void rebuilds_init(struct redis_views *r);
/* `ids`: the last arguments of a rebuild's end, REBUILD_IDS of them; NULL: it has no result. */
enum err rebuild_step(struct redis_views *r, uint64_t viewer, char part, enum view_rebuild step,
                      const struct arg *ids);
/* Flushes a script about one account that says 0: there is none, 1: a conflict, or {numbers}: how
 * the tally changed. */
enum err flush_entries(struct redis_views *r, struct batch *b, unsigned how, enum tally_part part);

/* ---- graph.c ---- */

/* "A1700000000": a state and the last visit. False: no such person. */
bool read_person(struct str person, char *state, uint64_t *seen);
/* One page of an author's followers above `after`, in the order of ids. */
size_t queue_followers(struct batch *b, uint64_t author, uint64_t after, size_t max);
/* Is everything complete around the viewer, and who of these is hidden? */
static inline size_t queue_hidden(struct redis_views *r, struct batch *b, uint64_t viewer,
                                  const uint64_t *authors, size_t n)
{
    return batch_command(b, "SMISMEMBER", arg_key(hidden_near(r, viewer)), arg_text("0"),
                         arg_numbers(authors, n));
}
/* Which of the authors are in the viewer's set? */
static inline size_t queue_members(struct batch *b, enum key_kind kind, uint64_t viewer,
                                   const uint64_t *authors, size_t n)
{
    return batch_command(b, "SMISMEMBER", arg_account(kind, viewer), arg_numbers(authors, n));
}
