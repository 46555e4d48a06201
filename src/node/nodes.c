/* The table of nodes, and one watcher's view of it.
 *
 * A row changes only by statements that name the token in it, so a number has one owner at a time.
 * A node's beat names its start, too: when another process serves the same data folder (a restart
 * while the old one still hangs, a copied folder), the next beat of the process that joined first
 * fails, because the number is no longer its own.
 *
 * Silence is measured by the watcher: it keeps for each row when it last saw token, start or beat
 * change, by its own monotonic clock. So a watcher that has just begun finds no node silent, and
 * takes no number of another. Each watcher removes rows that were silent for NODE_FORGET_MS; two of
 * them may do it at a time, because the row must be unchanged since it was read. */
#include "node/nodes.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/clock.h"
#include "node/peer.h"

enum {
    JOIN_TRIES = 16, /* others may take the number that we were about to take */
};

/* ---- roles ---- */

static unsigned role_of(struct str name)
{
    for (unsigned bit = 1; bit <= ROLE_ALL; bit <<= 1)
        if (str_eq(name, str_of(role_name((enum node_role)bit))))
            return bit;
    return 0;
}

bool roles_parse(struct str text, unsigned *roles, bool *retired)
{
    unsigned found = 0;
    bool gateway = false;
    struct str name;
    if (text.len == 0 || text.ptr[text.len - 1] == ',')
        return false;
    while (str_split(&text, ',', &name)) {
        name = str_trim(name);
        unsigned role = role_of(name);
        bool is_gateway = str_eq(name, STR("gateway"));
        if (!role && !is_gateway)
            return false;
        gateway |= is_gateway;
        found |= role;
    }
    *roles = found;
    *retired = gateway;
    return true;
}

/* ---- the watch ---- */

struct watched {
    struct node node;
    int64_t moved_us;
};

struct node_watch {
    struct clock *clock;
    pthread_mutex_t lock;
    struct watched *list; /* by number */
    size_t count;
};

struct node_watch *node_watch_new(struct clock *clock)
{
    struct node_watch *w = calloc(1, sizeof *w);
    CHECK(w);
    w->clock = clock;
    pthread_mutex_init(&w->lock, NULL);
    return w;
}

void node_watch_free(struct node_watch *w)
{
    if (!w)
        return;
    pthread_mutex_destroy(&w->lock);
    free(w->list);
    free(w);
}

struct seen {
    struct watched *list; /* room for NODE_MAX */
    size_t count;
};

static void read_node(struct db_rows *rows, void *watched)
{
    struct node *n = &((struct watched *)watched)->node;
    *n = (struct node){
        .shown = {.number = (uint32_t)db_i64(rows, 0),
                  .roles = (unsigned)db_i64(rows, 2) & ROLE_ALL,
                  .started_ms = db_i64(rows, 5),
                  .leaving = db_i64(rows, 7) != 0},
        .token = db_id(rows, 1),
        .beat = db_id(rows, 6),
    };
    str_copy(n->shown.address, sizeof n->shown.address, db_text(rows, 3));
    str_copy(n->shown.version, sizeof n->shown.version, db_text(rows, 4));
    (void)node_report_decode(db_text(rows, 8), &n->shown.report);
}

static enum err read_all(struct tx *tx, void *arg)
{
    struct seen *s = arg;
    return tx_get_rows(tx,
                       "SELECT number, token, roles, address, version, started_at, beat, "
                       "leaving, body FROM nodes WHERE number >= 1 AND number <= $1 "
                       "ORDER BY number",
                       DB_ARGS(DB_I64(NODE_MAX)), read_node, s->list, sizeof s->list[0], NODE_MAX,
                       &s->count);
}

static bool has_moved(const struct node *before, const struct node *now)
{
    return before->token != now->token || before->shown.started_ms != now->shown.started_ms ||
           before->beat != now->beat;
}

/* Both lists are by number. */
static void note_movement(const struct node_watch *w, struct seen *s, int64_t now_us,
                          int64_t read_us)
{
    size_t at = 0;
    for (size_t i = 0; i < s->count; i++) {
        struct watched *n = &s->list[i];
        while (at < w->count && w->list[at].node.shown.number < n->node.shown.number)
            at++;
        bool known = at < w->count && w->list[at].node.shown.number == n->node.shown.number;
        n->moved_us =
            known && !has_moved(&w->list[at].node, &n->node) ? w->list[at].moved_us : read_us;
        n->node.shown.silent_ms = now_us > n->moved_us ? (now_us - n->moved_us) / 1000 : 0;
    }
}

static enum err run_forget(struct tx *tx, void *arg)
{
    const struct node_watch *w = arg;
    enum err e = OK;
    for (size_t i = 0; !e && i < w->count; i++) {
        const struct node *n = &w->list[i].node;
        if (n->shown.silent_ms >= NODE_FORGET_MS)
            e = tx_exec(tx, "DELETE FROM nodes WHERE number = $1 AND token = $2 AND beat = $3",
                        DB_ARGS(DB_I64(n->shown.number), DB_I64(n->token), DB_I64(n->beat)), NULL);
    }
    return e;
}

/* A failure is not the look's: the next one tries again. The one thread that looks may read without
 * the lock. */
static void forget_silent(struct db *db, struct node_watch *w)
{
    for (size_t i = 0; i < w->count; i++) {
        if (w->list[i].node.shown.silent_ms < NODE_FORGET_MS)
            continue;
        (void)db_write(db, run_forget, w, NULL);
        return;
    }
}

enum err node_watch_look(struct node_watch *w, struct db *db, int64_t now_us)
{
    struct seen seen = {.list = calloc(NODE_MAX, sizeof *seen.list)};
    CHECK(seen.list);
    int64_t began_us = clock_mono_us(w->clock);
    enum err e = db_read(db, read_all, &seen, NULL);
    if (e) {
        free(seen.list);
        return e;
    }
    /* Rows are as they were at the end of a read that may have taken long: silence begins there. */
    int64_t took_us = clock_mono_us(w->clock) - began_us;
    note_movement(w, &seen, now_us, now_us + took_us);
    pthread_mutex_lock(&w->lock);
    struct watched *old = w->list;
    w->list = seen.list;
    w->count = seen.count;
    pthread_mutex_unlock(&w->lock);
    free(old);
    forget_silent(db, w);
    return OK;
}

size_t node_watch_list(struct node_watch *w, struct cluster_node *out, size_t max)
{
    pthread_mutex_lock(&w->lock);
    size_t count = w->count;
    for (size_t i = 0; i < count && i < max; i++)
        out[i] = w->list[i].node.shown;
    pthread_mutex_unlock(&w->lock);
    return count;
}

/* ---- joining ---- */

struct silent {
    uint32_t number;
    uint64_t token, beat;
    int64_t moved_us;
};

struct join {
    const struct node *self;
    struct silent free[NODE_MAX]; /* rows that the watch allows to take, longest silent first */
    size_t free_count;
    uint32_t taken; /* the result … */
    uint64_t beat;
};

static int by_silence(const void *a, const void *b)
{
    const struct silent *x = a, *y = b;
    return x->moved_us < y->moved_us ? -1 : x->moved_us > y->moved_us;
}

static void find_silent(struct join *j, struct node_watch *w, int64_t now_us)
{
    if (!w)
        return;
    pthread_mutex_lock(&w->lock);
    for (size_t i = 0; i < w->count && j->free_count < NODE_MAX; i++) {
        const struct watched *n = &w->list[i];
        if (now_us - n->moved_us >= NODE_SILENCE_MS * INT64_C(1000))
            j->free[j->free_count++] =
                (struct silent){n->node.shown.number, n->node.token, n->node.beat, n->moved_us};
    }
    pthread_mutex_unlock(&w->lock);
    qsort(j->free, j->free_count, sizeof j->free[0], by_silence);
}

/* The number and beat of our token's row, and the lowest number without a row; 0: none. */
static enum err find_places(struct tx *tx, struct join *j, uint32_t *own, uint64_t *own_beat,
                            uint32_t *unused)
{
    struct db_rows rows = tx_rows(tx,
                                  "SELECT number, token, beat FROM nodes "
                                  "WHERE number >= 1 AND number <= $1 ORDER BY number",
                                  DB_ARGS(DB_I64(NODE_MAX)));
    *own = 0;
    *unused = 1;
    while (db_next(&rows)) {
        uint32_t n = (uint32_t)db_i64(&rows, 0);
        if (n == *unused)
            ++*unused;
        if (!*own && db_id(&rows, 1) == j->self->token) {
            *own = n;
            *own_beat = db_id(&rows, 2);
        }
    }
    if (*unused > NODE_MAX)
        *unused = 0;
    return db_rows_done(&rows);
}

/* Writes us into a new row, or into one that still has this token and beat. */
static enum err take_row(struct tx *tx, struct join *j, uint32_t n, uint64_t token, uint64_t beat)
{
    const struct cluster_node *s = &j->self->shown;
    char report[PEER_TEXT_MAX];
    int64_t changed = 0;
    node_report_encode(&s->report, report);
    TRY(tx_exec(
        tx,
        "INSERT INTO nodes (number, token, roles, address, version, started_at, body, beat, "
        "leaving) VALUES ($1, $2, $3, $4, $5, $6, $7, 1, 0) "
        "ON CONFLICT (number) DO UPDATE SET token = $2, roles = $3, address = $4, version = $5, "
        "started_at = $6, body = $7, beat = nodes.beat + 1, leaving = 0 "
        "WHERE nodes.token = $8 AND nodes.beat = $9",
        DB_ARGS(DB_I64(n), DB_I64(j->self->token), DB_I64(s->roles), DB_TEXT(str_of(s->address)),
                DB_TEXT(str_of(s->version)), DB_I64(s->started_ms), DB_TEXT(str_of(report)),
                DB_I64(token), DB_I64(beat)),
        &changed));
    if (changed != 1)
        return ERR_CONFLICT;
    j->taken = n;
    j->beat = beat + 1;
    return OK;
}

static enum err run_join(struct tx *tx, void *arg)
{
    struct join *j = arg;
    uint32_t own = 0, unused = 0;
    uint64_t own_beat = 0;
    j->taken = 0;
    enum err e = find_places(tx, j, &own, &own_beat, &unused);
    if (e)
        return e;
    if (own)
        return take_row(tx, j, own, j->self->token, own_beat);
    if (unused)
        return take_row(tx, j, unused, 0, 0); /* no token is 0 */
    for (size_t i = 0; i < j->free_count; i++) {
        e = take_row(tx, j, j->free[i].number, j->free[i].token, j->free[i].beat);
        if (e != ERR_CONFLICT) /* it spoke since the watch looked, or another node was faster */
            return e;
    }
    return tx_fail(tx, ERR_OVERLOADED, "all %d numbers of nodes are taken", NODE_MAX);
}

enum err node_join(struct db *db, struct node_watch *watch, struct node *self, int64_t now_us)
{
    struct join *j = calloc(1, sizeof *j);
    CHECK(j);
    j->self = self;
    find_silent(j, watch, now_us);
    enum err e = ERR_CONFLICT;
    for (int i = 0; i < JOIN_TRIES && e == ERR_CONFLICT; i++)
        e = db_write(db, run_join, j, NULL);
    if (e == OK) {
        self->shown.number = j->taken;
        self->beat = j->beat;
        self->shown.leaving = false;
    }
    free(j);
    return e;
}

/* ---- living and leaving ---- */

struct beat {
    const struct node *self;
    int64_t now;
};

static enum err run_beat(struct tx *tx, void *arg)
{
    struct beat *b = arg;
    const struct cluster_node *s = &b->self->shown;
    char report[PEER_TEXT_MAX];
    node_report_encode(&s->report, report);
    enum err e = tx_get_i64(tx,
                            "UPDATE nodes SET beat = beat + 1, leaving = $1, body = $2, "
                            "address = $6 "
                            "WHERE number = $3 AND token = $4 AND started_at = $5 RETURNING beat",
                            DB_ARGS(DB_I64(s->leaving), DB_TEXT(str_of(report)), DB_I64(s->number),
                                    DB_I64(b->self->token), DB_I64(s->started_ms),
                                    DB_TEXT(str_of(s->address))),
                            &b->now);
    return e == ERR_NOT_FOUND ? ERR_CONFLICT : e;
}

enum err node_beat(struct db *db, struct node *self)
{
    struct beat b = {.self = self};
    TRY(db_write(db, run_beat, &b, NULL));
    self->beat = (uint64_t)b.now;
    return OK;
}

enum err node_leave(struct db *db, struct node *self)
{
    self->shown.leaving = true;
    return node_beat(db, self);
}
