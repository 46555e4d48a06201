/* The lease: one row, changed only by statements that name the term and the holder they expect.
 *
 * Every change is a single UPDATE (or the first INSERT) whose WHERE names the row as it was read;
 * if the row differs, nothing changes and the result is ERR_CONFLICT. So the fastest node wins. A
 * change whose answer was lost is found by the next look: a row that names this process, though it
 * does not know that it holds the lease, is free for it, to be taken in a new term.
 *
 * The fence. In a store of one process transactions run one after the other, and looking is enough.
 * In a shared one a look alone would let a transaction of the old term become visible after the new
 * leader has begun to read. So the fence looks FOR KEY SHARE: taking the lease changes the term,
 * which is part of a key, and waits for all that looked; renewing it changes no key and disturbs
 * none. */
#include "node/lease.h"

#include <string.h>

#include "base/check.h"
#include "base/clock.h"

#define NEVER_US (INT64_MIN / 2)

void lease_init(struct lease *l, const char *name, uint64_t self, struct clock *clock)
{
    CHECK(self != 0);
    *l = (struct lease){
        .name = name, .clock = clock, .self = self, .moved_us = NEVER_US, .renewed_us = NEVER_US};
}

/* ---- looking ---- */

static void read_row(struct db_rows *rows, void *lease)
{
    struct lease *l = lease;
    l->term = db_id(rows, 0);
    l->holder = db_id(rows, 1);
    l->beat = db_id(rows, 2);
    str_copy(l->body, sizeof l->body, db_text(rows, 3));
}

static enum err run_look(struct tx *tx, void *arg)
{
    struct lease *l = arg;
    l->term = l->holder = l->beat = 0;
    l->body[0] = '\0';
    enum err e = tx_get_row(tx, "SELECT term, holder, beat, body FROM leases WHERE name = $1",
                            DB_ARGS(DB_TEXT(str_of(l->name))), read_row, l);
    return e == ERR_NOT_FOUND ? OK : e;
}

enum err lease_look(struct lease *l, struct db *db, int64_t now_us)
{
    struct lease seen = *l;
    int64_t began_us = clock_mono_us(l->clock);
    TRY(db_read(db, run_look, &seen, NULL));
    /* The row is what it was at the end of a read that may have taken long: silence begins there,
     * not at the caller's moment, which was before. */
    int64_t took_us = clock_mono_us(l->clock) - began_us;
    if (seen.term != l->term || seen.holder != l->holder || seen.beat != l->beat)
        seen.moved_us = now_us + took_us;
    *l = seen;
    return OK;
}

bool lease_is_held(const struct lease *l, int64_t now_us)
{
    return l->holder == l->self && now_us - l->renewed_us < LEASE_GIVE_UP_MS * INT64_C(1000);
}

bool lease_is_free(const struct lease *l, int64_t now_us)
{
    if (l->holder == 0)
        return true;
    if (l->holder == l->self)
        return !lease_is_held(l, now_us);
    return now_us - l->moved_us >= LEASE_SILENCE_MS * INT64_C(1000);
}

/* ---- changing ---- */

struct change {
    const char *sql;
    struct db_value args[5];
    size_t count;
};

static enum err run_change(struct tx *tx, void *arg)
{
    const struct change *c = arg;
    int64_t changed = 0;
    TRY(tx_exec(tx, c->sql, c->args, c->count, &changed));
    return changed == 1 ? OK : ERR_CONFLICT;
}

enum err lease_take(struct lease *l, struct db *db, int64_t now_us)
{
    struct db_value name = DB_TEXT(str_of(l->name)), self = DB_I64(l->self);
    struct change first = {"INSERT INTO leases (name, term, holder, beat) VALUES ($1, 1, $2, 1) "
                           "ON CONFLICT (name) DO NOTHING",
                           {name, self},
                           2};
    struct change next = {"UPDATE leases SET term = term + 1, holder = $2, beat = beat + 1, "
                          "body = '' WHERE name = $1 AND term = $3 AND holder = $4 AND beat = $5",
                          {name, self, DB_I64(l->term), DB_I64(l->holder), DB_I64(l->beat)},
                          5};
    l->renewed_us = NEVER_US; /* whatever comes of this, the old term is over */
    TRY(db_write(db, run_change, l->term == 0 ? &first : &next, NULL));
    l->term++;
    l->beat++;
    l->holder = l->self;
    l->body[0] = '\0';
    l->moved_us = l->renewed_us = now_us;
    return OK;
}

enum err lease_renew(struct lease *l, struct db *db, const char *body, int64_t now_us)
{
    /* A holder that was silent for so long has given up: it begins a new term. */
    if (!lease_is_held(l, now_us))
        return ERR_CONFLICT;
    struct str kept = str_cut(str_of(body), LEASE_BODY_MAX - 1);
    struct change c = {"UPDATE leases SET beat = beat + 1, body = $4 "
                       "WHERE name = $1 AND term = $2 AND holder = $3",
                       {DB_TEXT(str_of(l->name)), DB_I64(l->term), DB_I64(l->self), DB_TEXT(kept)},
                       4};
    enum err e = db_write(db, run_change, &c, NULL);
    if (e == ERR_CONFLICT)
        l->renewed_us = NEVER_US;
    if (e)
        return e;
    l->beat++; /* or by two, when an answer was lost before: the next look says */
    str_copy(l->body, sizeof l->body, kept);
    l->moved_us = l->renewed_us = now_us;
    return OK;
}

enum err lease_give_back(struct lease *l, struct db *db)
{
    struct change c = {"UPDATE leases SET holder = 0, beat = beat + 1, body = '' "
                       "WHERE name = $1 AND term = $2 AND holder = $3",
                       {DB_TEXT(str_of(l->name)), DB_I64(l->term), DB_I64(l->self)},
                       3};
    l->renewed_us = NEVER_US;
    TRY(db_write(db, run_change, &c, NULL));
    l->beat++;
    l->holder = 0;
    l->body[0] = '\0';
    return OK;
}

/* ---- the fence ---- */

enum err lease_fence(struct tx *tx, const char *name, uint64_t term)
{
    static const char look[] = "SELECT holder FROM leases WHERE name = $1 AND term = $2";
    static const char hold[] =
        "SELECT holder FROM leases WHERE name = $1 AND term = $2 FOR KEY SHARE";
    int64_t holder = 0;
    enum err e = tx_get_i64(tx, tx->db->shared ? hold : look,
                            DB_ARGS(DB_TEXT(str_of(name)), DB_I64(term)), &holder);
    if (e == ERR_NOT_FOUND || (e == OK && holder == 0))
        return tx_fail(tx, ERR_NO_LEADER, "term %llu is over", (unsigned long long)term);
    return e;
}

enum err lease_fence_engine(struct tx *tx, uint64_t term)
{
    return lease_fence(tx, LEASE_ENGINE, term);
}
