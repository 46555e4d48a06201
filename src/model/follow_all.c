/* Many follows in a few statements, and the events that tell of them.
 *
 * What decides about a follow is asked once for each account, not once for each follow: is it
 * active, how many does it follow, has it blocked anyone. A block between two accounts belongs to
 * one of them, and an account that follows nobody follows none of these. So only pairs with an
 * account that has blocked somebody, or with a follower that follows somebody already, are looked
 * up. If a counter were wrong, INSERT would meet a row that is there: the follows then go one by
 * one.
 *
 * The follows of one account are one event as far as its data has room. It counts as each of them
 * would: the events of an actor keep their order, and the views take each edge with the event's id.
 * A store of one process has follow.created for each: an event costs it little, and those who read
 * events know it. */
#include "model/follow_all.h"

#include <stdlib.h>

#include "base/check.h"
#include "base/id.h"
#include "base/map.h"
#include "model/celebrity.h"
#include "model/follow.h"

/* ---- the event's data ---- */

static const char data_begin[] = "{\"followees\":[";

void followees_write(const uint64_t *followees, size_t n, struct buf *out)
{
    CHECK(n > 0 && n <= FOLLOWS_AN_EVENT);
    buf_append(out, data_begin, sizeof data_begin - 1);
    for (size_t i = 0; i < n; i++) {
        buf_str(out, i == 0 ? STR("\"") : STR(",\""));
        buf_u64(out, followees[i]);
        buf_append(out, "\"", 1);
    }
    buf_append(out, "]}", 2);
}

static bool take(struct str *s, struct str text)
{
    if (!str_starts(*s, text))
        return false;
    *s = (struct str){s->ptr + text.len, s->len - text.len};
    return true;
}

size_t followees_read(struct str data, uint64_t followees[FOLLOWS_AN_EVENT])
{
    size_t n = 0;
    if (!take(&data, (struct str){data_begin, sizeof data_begin - 1}))
        return 0;
    do {
        const char *end = data.len > 1 ? memchr(data.ptr + 1, '"', data.len - 1) : NULL;
        struct str digits = {data.ptr + 1, end ? (size_t)(end - data.ptr - 1) : 0};
        if (!end || data.ptr[0] != '"' || n == FOLLOWS_AN_EVENT ||
            !str_parse_u64(digits, &followees[n]) || followees[n] == 0)
            return 0;
        data = (struct str){end + 1, data.len - digits.len - 2};
        n++;
    } while (take(&data, STR(",")));
    return str_eq(data, STR("]}")) ? n : 0;
}

/* ---- accounts ---- */

/* An account at either end, as it was, and what it gains. */
struct end {
    uint64_t id; /* the key */
    int64_t following, followers;
    bool active, celebrity, blocks;
    int64_t more_following, more_followers;
};

static void read_end(struct db_rows *rows, void *out)
{
    struct end *end = out;
    end->active = true;
    end->following = db_i64(rows, 0);
    end->followers = db_i64(rows, 1);
    end->celebrity = db_i64(rows, 2) != 0;
    end->blocks = db_i64(rows, 3) != 0;
}

static void add_end(struct map *ends, uint64_t id)
{
    if (id)
        CHECK(map_put(ends, &id, NULL));
}

/* Asks about the accounts of these follows. */
static enum err ask_ends(struct tx *tx, const struct follow_new *follows, size_t n,
                         struct map *ends, struct arena *arena)
{
    size_t count = 0;
    for (size_t i = 0; i < n; i++) {
        add_end(ends, follows[i].follower);
        add_end(ends, follows[i].followee);
    }
    struct db_value *ids = ARENA_ARRAY(arena, struct db_value, ends->count);
    struct end *answers = ARENA_ARRAY(arena, struct end, ends->count);
    bool *found = ARENA_ARRAY(arena, bool, ends->count);
    for (const struct end *e = map_next(ends, NULL); e; e = map_next(ends, e))
        ids[count++] = DB_I64(e->id);
    TRY(tx_get_row_each(tx,
                        "SELECT following_count, follower_count, celebrity, CASE WHEN EXISTS "
                        "(SELECT 1 FROM blocks WHERE blocker_id = $1) THEN 1 ELSE 0 END "
                        "FROM accounts WHERE id = $1 AND state = 0",
                        ids, 1, count, read_end, answers, sizeof *answers, found));
    for (size_t i = 0; i < count; i++) {
        struct end *e = map_find(ends, &(uint64_t){(uint64_t)ids[i].number});
        answers[i].id = e->id;
        *e = answers[i]; /* all zero, and so not active, where there was none */
    }
    return OK;
}

/* ---- pairs ---- */

struct pair {
    uint64_t follower, followee;
};

struct pair_slot {
    struct pair pair; /* the key */
};

/* What this needs is in one place. */
struct creating {
    struct tx *tx;
    struct follow_new *follows;
    size_t n;
    const struct follow_policy *policy;
    struct arena *arena, *kept;
    struct map ends, pairs; /* pairs: taken so far */
    struct pair *taken;
    size_t taken_count;
};

/* What lies between the two already. */
struct between {
    bool follow, block;
};

static void read_between(struct db_rows *rows, void *out)
{
    *(struct between *)out =
        (struct between){.follow = db_i64(rows, 0) != 0, .block = db_i64(rows, 1) != 0};
}

static bool is_possible(struct creating *c, const struct follow_new *f, bool *look)
{
    const struct end *from = f->follower ? map_find(&c->ends, &f->follower) : NULL;
    const struct end *to = f->followee ? map_find(&c->ends, &f->followee) : NULL;
    if (!from || !to || from == to || !from->active || !to->active)
        return false;
    /* Where a look is no round trip no counter is trusted: a conflict could not be undone there. */
    *look = !c->tx->db->shared || from->following > 0 || from->blocks || to->blocks;
    return true;
}

/* is_free[i]: nothing lies between the two, and both are there. */
static enum err ask_pairs(struct creating *c, bool *is_free)
{
    struct db_value *asked = ARENA_ARRAY(c->arena, struct db_value, c->n * 2);
    size_t *of = ARENA_ARRAY(c->arena, size_t, c->n), count = 0;
    bool *found = ARENA_ARRAY(c->arena, bool, c->n);
    struct between *between = ARENA_ARRAY(c->arena, struct between, c->n);
    for (size_t i = 0; i < c->n; i++) {
        bool look = false;
        is_free[i] = is_possible(c, &c->follows[i], &look);
        if (!look)
            continue;
        asked[count * 2] = DB_I64(c->follows[i].follower);
        asked[count * 2 + 1] = DB_I64(c->follows[i].followee);
        of[count++] = i;
    }
    TRY(tx_get_row_each(
        c->tx,
        "SELECT CASE WHEN EXISTS (SELECT 1 FROM follows WHERE follower_id = $1 "
        "AND followee_id = $2) THEN 1 ELSE 0 END, CASE WHEN EXISTS (SELECT 1 FROM blocks "
        "WHERE blocker_id = $1 AND blocked_id = $2) OR EXISTS (SELECT 1 FROM blocks "
        "WHERE blocker_id = $2 AND blocked_id = $1) THEN 1 ELSE 0 END",
        asked, 2, count, read_between, between, sizeof *between, found));
    for (size_t i = 0; i < count; i++) {
        c->follows[of[i]].present = between[i].follow && !between[i].block;
        is_free[of[i]] = !between[i].follow && !between[i].block;
    }
    return OK;
}

static void take_follow(struct creating *c, struct follow_new *f)
{
    struct end *from = map_find(&c->ends, &f->follower), *to = map_find(&c->ends, &f->followee);
    struct pair pair = {f->follower, f->followee};
    if (map_find(&c->pairs, &pair)) {
        f->present = true; /* by an earlier line */
        return;
    }
    if (from->following + from->more_following >= c->policy->max_following)
        return;
    CHECK(map_put(&c->pairs, &pair, NULL));
    from->more_following++;
    to->more_followers++;
    f->taken = true;
    c->taken[c->taken_count++] = pair;
}

/* ---- writing ---- */

static enum err insert_taken(struct creating *c)
{
    struct db_value *rows = ARENA_ARRAY(c->arena, struct db_value, c->taken_count * 3);
    int64_t now_ms = clock_wall_ms(c->tx->ids->clock);
    for (size_t i = 0; i < c->taken_count; i++) {
        rows[i * 3] = DB_I64(c->taken[i].follower);
        rows[i * 3 + 1] = DB_I64(c->taken[i].followee);
        rows[i * 3 + 2] = DB_I64(now_ms);
    }
    return tx_exec_each(
        c->tx, "INSERT INTO follows (follower_id, followee_id, created_at) VALUES ($1, $2, $3)",
        rows, 3, c->taken_count);
}

/* Counters, then crossings: no account loses followers here, so the last count decides. */
static enum err count_taken(struct creating *c)
{
    struct db_value *rows = ARENA_ARRAY(c->arena, struct db_value, c->ends.count * 3);
    size_t n = 0;
    for (const struct end *e = map_next(&c->ends, NULL); e; e = map_next(&c->ends, e)) {
        if (e->more_following == 0 && e->more_followers == 0)
            continue;
        rows[n * 3] = DB_I64(e->id);
        rows[n * 3 + 1] = DB_I64(e->more_following);
        rows[n++ * 3 + 2] = DB_I64(e->more_followers);
    }
    TRY(tx_exec_each(c->tx,
                     "UPDATE accounts SET following_count = following_count + $2, "
                     "follower_count = follower_count + $3 WHERE id = $1",
                     rows, 3, n));
    for (const struct end *e = map_next(&c->ends, NULL); e; e = map_next(&c->ends, e))
        if (e->more_followers > 0)
            TRY(celebrity_cross(c->tx, e->id, e->celebrity, e->followers + e->more_followers,
                                c->policy->celebrity_threshold));
    return OK;
}

static int compare_followers(const void *a, const void *b)
{
    const struct pair *x = a, *y = b;
    if (x->follower != y->follower)
        return x->follower < y->follower ? -1 : 1;
    return x->followee < y->followee ? -1 : x->followee > y->followee;
}

/* The event of `n` follows of one account. */
static struct event event_of(struct creating *c, const struct pair *pairs, size_t n)
{
    if (n == 1)
        return (struct event){.type = EVENT_FOLLOW_CREATED,
                              .actor = pairs->follower,
                              .subject = pairs->followee,
                              .object = pairs->followee};
    uint64_t followees[FOLLOWS_AN_EVENT];
    struct buf data = buf_over(arena_alloc(c->kept, EVENT_DATA_MAX), EVENT_DATA_MAX);
    for (size_t i = 0; i < n; i++)
        followees[i] = pairs[i].followee;
    followees_write(followees, n, &data);
    CHECK(!data.failed);
    return (struct event){.type = EVENT_FOLLOWS_IMPORTED,
                          .actor = pairs->follower,
                          .value = (int64_t)n,
                          .data = buf_view(&data)};
}

static enum err emit_taken(struct creating *c)
{
    struct event *events = ARENA_ARRAY(c->arena, struct event, c->taken_count);
    size_t max = c->tx->db->shared ? FOLLOWS_AN_EVENT : 1, count = 0;
    if (max > 1)
        qsort(c->taken, c->taken_count, sizeof *c->taken, compare_followers);
    for (size_t from = 0, n; from < c->taken_count; from += n) {
        for (n = 1; n < max && from + n < c->taken_count &&
                    c->taken[from + n].follower == c->taken[from].follower;)
            n++;
        events[count++] = event_of(c, &c->taken[from], n);
    }
    return outbox_emit_all(c->tx, events, count);
}

static enum err create(struct creating *c)
{
    bool *is_free = ARENA_ARRAY(c->arena, bool, c->n);
    TRY(ask_ends(c->tx, c->follows, c->n, &c->ends, c->arena));
    TRY(ask_pairs(c, is_free));
    for (size_t i = 0; i < c->n; i++)
        if (is_free[i])
            take_follow(c, &c->follows[i]);
    enum err e = insert_taken(c);
    for (size_t i = 0; i < c->n && e == ERR_CONFLICT; i++)
        c->follows[i].taken = c->follows[i].present =
            false; /* another writer was faster: nothing was written */
    if (e)
        return e == ERR_CONFLICT ? OK : e;
    TRY(count_taken(c));
    return emit_taken(c);
}

enum err follow_create_all(struct tx *tx, struct follow_new *follows, size_t n,
                           const struct follow_policy *p, struct arena *arena, struct arena *kept)
{
    struct creating c = {
        .tx = tx, .follows = follows, .n = n, .policy = p, .arena = arena, .kept = kept};
    for (size_t i = 0; i < n; i++)
        follows[i].taken = follows[i].present = false;
    c.taken = ARENA_ARRAY(arena, struct pair, n);
    map_init(&c.ends, sizeof(struct end), sizeof(uint64_t));
    map_init(&c.pairs, sizeof(struct pair_slot), sizeof(struct pair));
    enum err e = create(&c);
    map_done(&c.ends);
    map_done(&c.pairs);
    return e;
}
