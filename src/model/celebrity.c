/* Celebrities, whose posts are pulled instead of pushed, and the keeper of the threshold.
 *
 * The class is a column of the account. It changes only in celebrity_cross, by an UPDATE that names
 * the class it leaves: the transaction that changes the row emits the event, and others find
 * nothing to change, so that each crossing is one event however many transactions see it coming.
 * Between CEASE_PERCENT of the threshold and the threshold itself an account keeps the class it
 * has.
 *
 * The threshold answers one question: up to which size is a fan-out fast enough? So the keeper
 * looks at the fan-outs near the threshold (from a quarter of it upwards: the largest that are
 * still pushed), bucket by bucket, because the many small ones would hide the few large ones in a
 * common p95. Their time counts from the commit, waiting included: a busy hour lowers the threshold
 * as much as a slow machine does. One window moves it by at most a fifth, and the dead zone between
 * half the target and the target keeps it still when all is well. A move of a fifth never carries
 * an account through the hysteresis and back.
 *
 * After a move, and once after the start, the keeper sweeps all accounts in slices: it reads in
 * snapshots and writes only for those that are on the wrong side, at most SWEEP_WRITES in one
 * transaction, each looked at again there. An account that crosses after the sweep has passed it
 * was changed by a follow or an unfollow, and that transaction fired its crossing itself; if it
 * used the threshold of a moment ago, the account's next follow or the next sweep fires it.
 *
 * Of many nodes the leader moves the threshold and sweeps; the others read what it has saved. A new
 * leader sweeps once: its predecessor may have died in the middle. */
#include "model/celebrity.h"

#include <stdlib.h>

#include "base/check.h"
#include "base/fault.h"
#include "base/log.h"
#include "model/meta.h"
#include "port/event.h"

enum {
    WINDOW_MIN_MS = 10 * 1000,
    WINDOW_MAX_MS = 10 * 60 * 1000, /* older evidence says little about the load of now */
    FAN_OUTS_MIN = 20,
    STEP_IDLE_US = 1000 * 1000,
    SWEEP_READS = 2000,
    SWEEP_WRITES = 200,
};

/* ---- crossings ---- */

static bool is_too_small(int64_t followers, int64_t threshold)
{
    return followers * 100 < threshold * CELEBRITY_CEASE_PERCENT;
}

static bool must_cross(bool is_celebrity, int64_t followers, int64_t threshold)
{
    return is_celebrity ? is_too_small(followers, threshold) : followers >= threshold;
}

enum err celebrity_cross(struct tx *tx, uint64_t account, bool is_celebrity, int64_t followers,
                         int64_t threshold)
{
    if (!must_cross(is_celebrity, followers, threshold))
        return OK;
    int64_t changed = 0;
    TRY(tx_exec(tx,
                is_celebrity ? "UPDATE accounts SET celebrity = 0 WHERE id = $1 AND celebrity = 1"
                             : "UPDATE accounts SET celebrity = 1 WHERE id = $1 AND celebrity = 0",
                DB_ARGS(DB_I64(account)), &changed));
    if (changed == 0)
        return OK;
    return outbox_emit(tx, (struct event){.type = is_celebrity ? EVENT_AUTHOR_CEASED_CELEBRITY
                                                               : EVENT_AUTHOR_BECAME_CELEBRITY,
                                          .actor = account,
                                          .value = followers});
}

/* ---- the threshold ---- */

static int64_t bounded(int64_t value, int64_t min, int64_t max)
{
    return value < min ? min : value > max ? max : value;
}

static size_t bucket_of(uint64_t followers)
{
    if (followers < 2)
        return 0;
    size_t log2 = (size_t)(63 - __builtin_clzll(followers));
    return log2 < CELEBRITY_BUCKETS ? log2 : CELEBRITY_BUCKETS - 1;
}

/* The worst p95 among the buckets near the threshold that saw enough fan-outs to have one; of all
 * of them together when no single one did. False: too few to say anything. */
static bool worst_p95_us(int64_t threshold, const struct hist *buckets, uint64_t *p95_us)
{
    struct hist *together = calloc(1, sizeof *together);
    if (!together)
        return false;
    uint64_t worst = 0;
    bool single = false;
    for (size_t b = bucket_of((uint64_t)(threshold / 4)); b < CELEBRITY_BUCKETS; b++) {
        uint64_t count = hist_count(&buckets[b]);
        if (count == 0)
            continue;
        hist_merge(together, &buckets[b]);
        if (count < FAN_OUTS_MIN)
            continue;
        uint64_t p95 = hist_quantile(&buckets[b], 0.95);
        worst = p95 > worst ? p95 : worst;
        single = true;
    }
    bool enough = hist_count(together) >= FAN_OUTS_MIN;
    *p95_us = single ? worst : hist_quantile(together, 0.95);
    free(together);
    return enough;
}

int64_t celebrity_decide(int64_t threshold, int64_t min, int64_t max, int64_t target_ms,
                         const struct hist *buckets)
{
    uint64_t p95_us;
    if (!worst_p95_us(threshold, buckets, &p95_us))
        return threshold;
    uint64_t target_us = (uint64_t)target_ms * 1000;
    if (p95_us > target_us)
        return bounded(threshold * 4 / 5, min, max);
    if (p95_us < target_us / 2) /* rounded up, or a very small threshold would never rise */
        return bounded((threshold * 5 + 3) / 4, min, max);
    return threshold;
}

/* ---- the keeper ---- */

static enum err read_saved(struct tx *tx, void *arg)
{
    uint64_t *saved = arg; /* [0] the threshold, [1] the start that it grew from */
    TRY(meta_get(tx, STR("celebrity_threshold"), &saved[0]));
    return meta_get(tx, STR("celebrity_start"), &saved[1]);
}

static enum err save_threshold(struct tx *tx, void *arg)
{
    const struct celebrity_keeper *k = arg;
    TRY(meta_set(tx, STR("celebrity_threshold"), (uint64_t)atomic_load(&k->threshold)));
    return meta_set(tx, STR("celebrity_start"), (uint64_t)k->start);
}

/* The saved threshold counts as long as it grew from the same start. */
static void take_over(struct celebrity_keeper *k, const uint64_t saved[2])
{
    if (saved[0] > 0 && saved[0] <= INT64_MAX && saved[1] == (uint64_t)k->start)
        atomic_store(&k->threshold, bounded((int64_t)saved[0], k->min, k->max));
}

enum err celebrity_keeper_init(struct celebrity_keeper *k, struct db *db, struct clock *clock,
                               bool adaptive, int64_t start, int64_t min, int64_t max,
                               int64_t target_ms)
{
    CHECK(start > 0 && min > 0 && target_ms > 0);
    *k = (struct celebrity_keeper){
        .db = db,
        .clock = clock,
        /* An operator who starts outside the bounds wants exactly that number. */
        .adaptive = adaptive && start >= min && start <= max,
        .start = start,
        .min = min,
        .max = max,
        .target_ms = target_ms,
        .window_began_ms = clock_mono_ms(clock),
        .crossing = true,
    };
    atomic_store(&k->threshold, start);
    uint64_t saved[2];
    if (k->adaptive) {
        TRY(db_read(db, read_saved, saved, NULL));
        take_over(k, saved);
    }
    k->buckets = calloc(CELEBRITY_BUCKETS, sizeof *k->buckets);
    if (!k->buckets)
        return ERR_NO_MEMORY;
    pthread_mutex_init(&k->stepping, NULL);
    return OK;
}

void celebrity_keeper_done(struct celebrity_keeper *k)
{
    if (k->buckets)
        pthread_mutex_destroy(&k->stepping);
    free(k->buckets);
    k->buckets = NULL;
}

void celebrity_observe(struct celebrity_keeper *k, size_t followers, int64_t took_us)
{
    hist_record(&k->buckets[bucket_of(followers)], took_us > 0 ? (uint64_t)took_us : 1);
}

static void begin_window(struct celebrity_keeper *k, int64_t now_ms)
{
    for (size_t b = 0; b < CELEBRITY_BUCKETS; b++)
        hist_clear(&k->buckets[b]);
    k->window_began_ms = now_ms;
}

static enum err move_threshold(struct celebrity_keeper *k, int64_t now_ms)
{
    int64_t before = atomic_load(&k->threshold);
    int64_t after = celebrity_decide(before, k->min, k->max, k->target_ms, k->buckets);
    uint64_t p95_us;
    bool decided = worst_p95_us(before, k->buckets, &p95_us);
    if (decided || now_ms - k->window_began_ms >= WINDOW_MAX_MS)
        begin_window(k, now_ms);
    if (after == before)
        return OK;
    log_info("celebrity threshold moved", LOG_INT("from", before), LOG_INT("to", after),
             LOG_INT("p95_us", p95_us));
    atomic_store(&k->threshold, after);
    k->cross_after = 0;
    k->crossing = true;
    return db_write(k->db, save_threshold, k, NULL);
}

/* One slice of the sweep: what a snapshot shows, and then what the writer makes of it. */
struct slice {
    int64_t threshold;
    uint64_t after; /* the last account looked at */
    bool end;
    uint64_t ids[SWEEP_WRITES];
    size_t count;
};

static enum err read_slice(struct tx *tx, void *arg)
{
    struct slice *s = arg;
    struct db_rows rows =
        tx_rows(tx,
                "SELECT id, celebrity, follower_count FROM accounts WHERE id > $1 "
                "ORDER BY id LIMIT $2",
                DB_ARGS(DB_I64(s->after), DB_I64(SWEEP_READS)));
    size_t seen = 0;
    while (s->count < SWEEP_WRITES && db_next(&rows)) {
        s->after = db_id(&rows, 0);
        seen++;
        if (must_cross(db_i64(&rows, 1) != 0, db_i64(&rows, 2), s->threshold))
            s->ids[s->count++] = s->after;
    }
    s->end = s->count < SWEEP_WRITES && seen < SWEEP_READS;
    return db_rows_done(&rows);
}

static enum err write_slice(struct tx *tx, void *arg)
{
    const struct slice *s = arg;
    enum err e = OK;
    for (size_t i = 0; !e && i < s->count; i++) {
        int64_t row[2];
        e = tx_get_numbers(tx, "SELECT celebrity, follower_count FROM accounts WHERE id = $1",
                           DB_ARGS(DB_I64(s->ids[i])), row, 2);
        e = e == ERR_NOT_FOUND ? OK
            : e                ? e
                               : celebrity_cross(tx, s->ids[i], row[0] != 0, row[1], s->threshold);
    }
    return e;
}

static enum err sweep(struct celebrity_keeper *k)
{
    struct slice s = {.threshold = atomic_load(&k->threshold), .after = k->cross_after};
    enum err e = db_read(k->db, read_slice, &s, NULL);
    if (!e && s.count > 0) {
        FAULT(keeper_before_crossing);
        e = db_write(k->db, write_slice, &s, NULL);
    }
    if (e)
        return e;
    k->cross_after = s.after;
    k->crossing = !s.end;
    return OK;
}

enum err celebrity_keeper_follow(struct celebrity_keeper *k)
{
    uint64_t saved[2] = {0};
    TRY(k->adaptive ? db_read(k->db, read_saved, saved, NULL) : OK);
    if (pthread_mutex_trylock(&k->stepping) != 0)
        return OK; /* this one moves it just now */
    if (k->adaptive)
        take_over(k, saved);
    begin_window(k, clock_mono_ms(k->clock));
    k->cross_after = 0;
    k->crossing = true;
    pthread_mutex_unlock(&k->stepping);
    return OK;
}

int64_t celebrity_keeper_step(struct celebrity_keeper *k)
{
    pthread_mutex_lock(&k->stepping);
    int64_t now_ms = clock_mono_ms(k->clock);
    enum err e = OK;
    if (k->adaptive && now_ms - k->window_began_ms >= WINDOW_MIN_MS)
        e = move_threshold(k, now_ms);
    if (!e && k->crossing)
        e = sweep(k);
    if (e && e != ERR_STOPPING)
        log_warn("celebrity keeper: will try again", LOG_CSTR("error", err_name(e)));
    bool busy = !e && k->crossing;
    pthread_mutex_unlock(&k->stepping);
    return clock_mono_us(k->clock) + (busy ? 0 : STEP_IDLE_US);
}
