/* Whether the data in Redis is ours, is complete, and is safe.
 *
 * **Complete.** A mark in every range of slots (driver.h) says that everything was loaded; it goes
 * when a node loses its data. But a node may also come back with less than it had: from a file that
 * is older than what was acknowledged. So beside each mark lies a **witness**: when it was written,
 * by which process of Redis (its run id), and which node of the cluster that is. When the same node
 * answers with another run id it was restarted, and what it had in memory may be gone. When another
 * node answers, a replica has taken over, which was fed while the old one lived; unless it was
 * started after the witness was written: then it is unknown what it was fed. The judgement is made
 * by a script where the witness lies, so every node of ours judges alike, and a witness that speaks
 * of a loss is not written over by anything but loaded(). A node may lose its data while it is
 * loaded, too: so clear() notes in every range that a load has begun, for which process, and
 * loaded() marks only ranges that still know.
 *
 * **Safe.** save() writes the witness anew and waits for a replica to have it. The stream to a
 * replica has one order: every earlier write, of any node, is there, too. One witness in each range
 * of slots reaches every master. Afterwards we look at which master answered: a mastership (run id
 * and replication id) that the last save did not see means that a replica took over in between, and
 * what was written between that save and the end of the old master may have died with it. A process
 * that has not saved yet compares with the last save of any process.
 *
 * **Ours.** A Redis database belongs to one store, whose id lies in every range of slots: clear()
 * removes everything in it, so it must not hold other data. */
#include <string.h>
#include <time.h>

#include "base/log.h"
#include "view/redis/driver.h"

enum {
    WITNESS_SLACK_MS = 3000, /* Redis reports its age in seconds; clocks differ a little */
    STAMP_TRIES = 20,        /* for another node's stamp to be seen */
    STAMP_WAIT_MS = 100
};

static struct key key_beside(const struct redis_views *r, size_t copy, char kind)
{
    struct key k = r->hidden[copy];
    k.text[0] = kind;
    return k;
}

/* ---- the witness ---- */

enum witness_part {
    WITNESS_MARK,
    WITNESS_SOUND,
    WITNESS_SAME,
    WITNESS_RUN,
    WITNESS_HISTORY,
    WITNESS_ENDED
};

/* One command for each copy, in their order. */
static void queue_witness(struct redis_views *r, struct batch *b, const char *what)
{
    for (size_t i = 0; i < r->copies; i++)
        batch_script(b, SCRIPT_witness, arg_key(r->hidden[i]), arg_key(key_beside(r, i, 's')),
                     arg_text(what), arg_signed(clock_wall_ms(r->clock)),
                     arg_number(connections_is_cluster(r->client.connections)),
                     arg_number(WITNESS_SLACK_MS), arg_number(atomic_load(&r->loading)));
}

enum err redis_look(struct redis_views *r, unsigned how, bool *complete)
{
    BORROWED struct batch *b = batch_borrow(&r->client);
    uint64_t restarts = connections_restarts(r->client.connections), epoch = 0;
    queue_witness(r, b, "look");
    batch_command(b, "GET", arg_key(EPOCH_KEY));
    TRY(batch_flush(b, FLUSH_GOOD | how));
    (void)str_parse_u64(batch_text(b, r->copies), &epoch);
    atomic_store(&r->epoch_seen, epoch);
    *complete = true;
    for (size_t i = 0; i < r->copies; i++)
        *complete &= reply_flag(b, i, WITNESS_MARK) && reply_flag(b, i, WITNESS_SOUND);
    if (*complete)
        atomic_store(&r->restarts_trusted, restarts);
    else
        atomic_store(&r->walked_at, 0);
    return OK;
}

enum err redis_is_complete(struct views *v, bool *complete)
{
    return redis_look(CONTAINER_OF(v, struct redis_views, views), FLUSH_HURRY, complete);
}

/* Need not wait for replicas: one that has the mark has everything before it. A range of slots
 * whose data went while it was loaded does not know of the load any more. */
enum err redis_loaded(struct views *v)
{
    struct redis_views *r = CONTAINER_OF(v, struct redis_views, views);
    BORROWED struct batch *b = batch_borrow(&r->client);
    uint64_t restarts = connections_restarts(r->client.connections);
    queue_witness(r, b, "load");
    TRY(batch_flush(b, FLUSH_GOOD));
    for (size_t i = 0; i < r->copies; i++)
        if (!reply_flag(b, i, WITNESS_ENDED))
            return ERR_CONFLICT;
    atomic_store(&r->restarts_trusted, restarts);
    return OK;
}

void redis_suspect(struct views *v, bool on)
{
    atomic_store(&CONTAINER_OF(v, struct redis_views, views)->suspect, on);
}

/* ---- saving ---- */

/* Run id and replication id: every new master draws both anew. */
static void read_mastership(const struct batch *b, size_t copy, char out[MASTERSHIP])
{
    struct str run = reply_text(reply_part(b, copy, WITNESS_RUN));
    struct str history = reply_text(reply_part(b, copy, WITNESS_HISTORY));
    snprintf(out, MASTERSHIP, "%.*s %.*s", run.len < 40 ? (int)run.len : 40, run.ptr,
             history.len < 40 ? (int)history.len : 40, history.ptr);
}

static bool was_master(const struct redis_views *r, const char *mastership)
{
    for (size_t i = 0; i < r->copies; i++)
        if (strcmp(r->masterships[i], mastership) == 0)
            return true;
    return false;
}

/* Compares who answered with who did at the last save, and remembers it if this one is good. */
static bool is_replaced(struct redis_views *r, const struct batch *b, bool saved)
{
    char now[COPIES_MAX][MASTERSHIP];
    bool replaced = false;
    pthread_mutex_lock(&r->lock);
    for (size_t i = 0; i < r->copies; i++) {
        read_mastership(b, i, now[i]);
        bool lost = reply_flag(b, i, WITNESS_MARK) && !reply_flag(b, i, WITNESS_SOUND);
        replaced |=
            lost || (r->has_saved ? !was_master(r, now[i]) : !reply_flag(b, i, WITNESS_SAME));
    }
    if (saved) {
        memcpy(r->masterships, now, sizeof now);
        r->has_saved = true;
    }
    pthread_mutex_unlock(&r->lock);
    return replaced;
}

enum err redis_save(struct views *v, uint64_t position)
{
    (void)position; /* applied changes outlive this process already */
    struct redis_views *r = CONTAINER_OF(v, struct redis_views, views);
    BORROWED struct batch *b = batch_borrow(&r->client);
    queue_witness(r, b, "save");
    TRY(batch_flush(b, FLUSH_REPLICATE | FLUSH_GOOD));
    bool saved = batch_is_replicated(b), replaced = is_replaced(r, b, saved);
    return !saved ? ERR_UNAVAILABLE : replaced ? ERR_CONFLICT : OK;
}

/* ---- whose it is ---- */

static void queue_stamps(struct redis_views *r, struct batch *b)
{
    for (size_t i = 0; r->store[0] && i < r->copies; i++)
        batch_command(b, "SET", arg_key(key_beside(r, i, 'o')), arg_text(r->store));
}

/* *ours: some copy says so, and none says otherwise. */
static enum err look_at_stamps(struct redis_views *r, struct batch *b, bool *ours)
{
    for (size_t i = 0; i < r->copies; i++)
        batch_command(b, "GET", arg_key(key_beside(r, i, 'o')));
    enum err e = batch_flush(b, FLUSH_GOOD);
    *ours = false;
    for (size_t i = 0; !e && i < r->copies; i++) {
        struct str owner = batch_text(b, i);
        *ours |= str_eq(owner, str_of(r->store));
        if (owner.len == 0 || str_eq(owner, str_of(r->store)))
            continue;
        log_error("this Redis holds the views of another store: give each store its own, or "
                  "another database number",
                  LOG_STR("theirs", owner), LOG_CSTR("ours", r->store));
        e = ERR_CONFLICT;
    }
    batch_reset(b);
    return e;
}

static enum err count_keys(struct redis_views *r, struct batch *b, int64_t *keys)
{
    *keys = 0;
    queue_at_masters(r, b, "DBSIZE", NULL);
    enum err e = batch_flush(b, FLUSH_GOOD);
    for (size_t i = 0; !e && i < batch_count(b); i++)
        *keys += batch_integer(b, i, 0);
    batch_reset(b);
    return e;
}

/* Keys without a stamp are another program's, or those of a node of ours that took the empty
 * database, or cleared it, a moment ago: its stamp is then about to be seen. */
static enum err look_for_others(struct redis_views *r, struct batch *b)
{
    bool ours = false;
    int64_t keys = 0;
    for (int tries = 0; tries < STAMP_TRIES; tries++) {
        TRY(look_at_stamps(r, b, &ours));
        if (ours)
            return OK;
        TRY(count_keys(r, b, &keys));
        if (keys == 0)
            return OK;
        nanosleep(&(struct timespec){.tv_nsec = STAMP_WAIT_MS * 1000000L}, NULL);
    }
    log_error("this Redis holds something that is not ours: views want a database of their own",
              LOG_INT("keys", keys));
    return ERR_CONFLICT;
}

enum err redis_own(struct redis_views *r)
{
    if (!r->store[0])
        return OK;
    BORROWED struct batch *b = batch_borrow(&r->client);
    TRY(look_for_others(r, b));
    queue_stamps(r, b);
    return batch_flush(b, FLUSH_GOOD);
}

/* A replica that takes over in the middle may still hold everything: the marks tell. */
static enum err flush_masters(struct redis_views *r, struct batch *b)
{
    queue_at_masters(r, b, "FLUSHDB", "ASYNC");
    TRY(batch_flush(b, FLUSH_REPLICATE | FLUSH_GOOD));
    batch_reset(b);
    queue_witness(r, b, "look");
    TRY(batch_flush(b, FLUSH_GOOD));
    for (size_t i = 0; i < r->copies; i++)
        if (reply_number(b, i, WITNESS_MARK) == 1)
            return ERR_UNAVAILABLE;
    return OK;
}

/* The epoch changes before the first master is flushed, and again afterwards, since it goes, too:
 * so a writer that finds the same epoch before and after its writes made all of them before any
 * master was flushed, or all of them after the last one was. */
enum err redis_clear(struct views *v)
{
    struct redis_views *r = CONTAINER_OF(v, struct redis_views, views);
    BORROWED struct batch *b = batch_borrow(&r->client);
    uint64_t epoch;
    (void)connections_refresh(r->client.connections);
    TRY(redis_set_epoch(r, true, &epoch));
    TRY(flush_masters(r, b));
    batch_reset(b);
    queue_stamps(r, b);
    TRY(batch_flush(b, FLUSH_REPLICATE | FLUSH_GOOD));
    atomic_store(&r->walked_at, 0);
    TRY(redis_set_epoch(r, true, &epoch));
    atomic_store(&r->loading, epoch);
    batch_reset(b);
    queue_witness(r, b, "begin");
    return batch_flush(b, FLUSH_GOOD);
}
