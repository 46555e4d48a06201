/* What the engine does for each member of an audience.
 *
 * Every sink may be called again for the same members and in any order with others. They rest on
 * what the views promise: a timeline may hold too much (readers filter), and backfill and forget
 * look at the graph in the same act as they change the timeline. What a sink reads from truth it
 * reads in a snapshot of its own, begun after the event was committed and applied: whatever that
 * snapshot does not show was committed later and has an event of its own on the way. */
#include "model/sinks.h"

#include "base/arena.h"
#include "base/fault.h"
#include "model/account.h"
#include "model/erase.h"
#include "model/follow.h"
#include "model/follow_all.h"
#include "port/cards.h"
#include "port/db.h"
#include "port/views.h"

enum { PURGE_SLICE = 200 };

/* Was the post deleted meanwhile? Then there is nothing to add. (Truth knows in any case: this only
 * saves timelines from ids that every reader would filter.) */
static bool is_gone(struct sink_env *env, uint64_t post)
{
    struct arena arena;
    struct post_card card;
    enum card_state state;
    arena_init(&arena);
    cards_posts(env->cards, &post, 1, &card, &state, &arena);
    arena_done(&arena);
    return state == CARD_GONE;
}

static void skip_gone(struct sink_result *result, size_t n)
{
    result->skipped = n;
    result->skipped_as = "the post was deleted meanwhile";
}

enum err sink_push(struct sink_env *env, const struct event *e, const uint64_t *members, size_t n,
                   struct sink_result *result)
{
    size_t added = 0;
    if (is_gone(env, e->object)) {
        skip_gone(result, n);
        return OK;
    }
    enum err error = timelines_push_one(env->views->timelines, e->object, members, n, &added);
    if (error)
        return error;
    result->delivered = added;
    result->repeated = n - added;
    return OK;
}

static enum err push_shown(struct sink_env *env, struct sink_call *calls, size_t n,
                           const enum card_state *state, struct timeline_push *pushes)
{
    size_t count = 0, at = 0;
    for (size_t i = 0; i < n; i++)
        if (state[i] != CARD_GONE)
            pushes[count++] =
                (struct timeline_push){calls[i].event->object, calls[i].members, calls[i].n, 0};
    enum err e = count > 0 ? timelines_push(env->views->timelines, pushes, count) : OK;
    for (size_t i = 0; i < n && !e; i++) {
        if (state[i] == CARD_GONE) {
            skip_gone(&calls[i].result, calls[i].n);
            continue;
        }
        calls[i].result.delivered = pushes[at].added;
        calls[i].result.repeated = calls[i].n - pushes[at].added;
        at++;
    }
    return e;
}

enum err sink_pushes(struct sink_env *env, struct sink_call *calls, size_t n)
{
    struct arena arena;
    arena_init(&arena);
    uint64_t *posts = ARENA_ARRAY(&arena, uint64_t, n);
    struct post_card *cards = ARENA_ARRAY(&arena, struct post_card, n);
    enum card_state *state = ARENA_ARRAY(&arena, enum card_state, n);
    struct timeline_push *pushes = ARENA_ARRAY(&arena, struct timeline_push, n);
    for (size_t i = 0; i < n; i++)
        posts[i] = calls[i].event->object;
    cards_posts(env->cards, posts, n, cards, state, &arena);
    enum err e = push_shown(env, calls, n, state, pushes);
    arena_done(&arena);
    return e;
}

enum err sink_retract(struct sink_env *env, const struct event *e, const uint64_t *members,
                      size_t n, struct sink_result *result)
{
    size_t removed = 0;
    enum err error = timelines_retract(env->views->timelines, e->object, members, n, &removed);
    if (error)
        return error;
    result->delivered = removed;
    result->repeated = n - removed;
    return OK;
}

/* The author's newest pushed posts. */
struct pushed {
    uint64_t author;
    bool with_deleted;
    size_t max;
    uint64_t *ids;
    size_t count;
};

static enum err read_pushed(struct tx *tx, void *arg)
{
    struct pushed *p = arg;
    return tx_get_ids(tx,
                      p->with_deleted
                          ? "SELECT id FROM posts WHERE author_id = $1 AND delivery = 0 "
                            "ORDER BY id DESC LIMIT $2"
                          : "SELECT id FROM posts WHERE author_id = $1 AND delivery = 0 "
                            "AND deleted_at IS NULL ORDER BY id DESC LIMIT $2",
                      DB_ARGS(DB_I64(p->author), DB_I64(p->max)), p->ids, p->max, &p->count);
}

/* An account that the views do not know has no timeline to change. */
static enum err unless_unknown(enum err e)
{
    return e == ERR_NOT_FOUND ? OK : e;
}

static void note_one(enum err e, struct sink_result *result)
{
    if (e == ERR_NOT_FOUND) {
        result->skipped = 1;
        result->skipped_as = "the person has no timeline";
    } else if (e == OK) {
        result->delivered = 1;
    }
}

enum err sink_backfill(struct sink_env *env, const struct event *e, const uint64_t *members,
                       size_t n, struct sink_result *result)
{
    (void)n;
    struct arena arena;
    arena_init(&arena);
    size_t cap = env->views->cap;
    struct pushed p = {.author = e->object,
                       .max = cap + 1, /* one more shows whether there is anything below */
                       .ids = ARENA_ARRAY(&arena, uint64_t, cap + 1)};
    enum err error = db_read(env->db, read_pushed, &p, NULL);
    if (!error) {
        FAULT(backfill_before_merge);
        bool below = p.count > cap;
        error = timelines_backfill(env->views->timelines, members[0], e->object, p.ids,
                                   below ? cap : p.count, below ? p.ids[cap] : 0);
        note_one(error, result);
    }
    arena_done(&arena);
    return unless_unknown(error);
}

/* Of several followees those who have posts: an author without any leaves a timeline as it is. (A
 * post that this snapshot does not show is delivered by its own event.) */
struct authors {
    uint64_t asked[FOLLOWS_AN_EVENT], ids[FOLLOWS_AN_EVENT];
    size_t asked_count, count;
};

static enum err read_authors(struct tx *tx, void *arg)
{
    struct authors *a = arg; /* what is asked stays as it is: a read may run again */
    return tx_get_ids(tx,
                      "SELECT i.id FROM ids($1) AS i WHERE EXISTS (SELECT 1 FROM posts "
                      "WHERE author_id = i.id AND delivery = 0 AND deleted_at IS NULL)",
                      DB_ARGS(DB_IDS(a->asked, a->asked_count)), a->ids, a->asked_count, &a->count);
}

enum err sink_backfill_all(struct sink_env *env, const struct event *e, const uint64_t *members,
                           size_t n, struct sink_result *result)
{
    struct authors authors;
    authors.asked_count = followees_read(e->data, authors.asked);
    if (authors.asked_count == 0)
        return ERR_INVALID; /* no list that this program has written */
    TRY(db_read(env->db, read_authors, &authors, NULL));
    for (size_t i = 0; i < authors.count; i++) {
        struct event one = *e;
        one.object = authors.ids[i];
        TRY(sink_backfill(env, &one, members, n, result));
    }
    result->delivered = authors.count == 0 || result->delivered > 0;
    return OK;
}

/* Deleted posts, too: the clean-up after a delete reaches only the followers of that time. */
enum err sink_forget(struct sink_env *env, const struct event *e, const uint64_t *members, size_t n,
                     struct sink_result *result)
{
    (void)n;
    struct arena arena;
    arena_init(&arena);
    size_t cap = env->views->cap;
    struct pushed p = {.author = e->object,
                       .with_deleted = true,
                       .max = cap,
                       .ids = ARENA_ARRAY(&arena, uint64_t, cap)};
    enum err error = db_read(env->db, read_pushed, &p, NULL);
    if (!error) {
        error = timelines_forget(env->views->timelines, members[0], e->object, p.ids, p.count);
        note_one(error, result);
    }
    arena_done(&arena);
    return unless_unknown(error);
}

/* Readers find the author's pull list by themselves once they know that there is one. */
enum err sink_spread(struct sink_env *env, const struct event *e, const uint64_t *members, size_t n,
                     struct sink_result *result)
{
    (void)members;
    size_t told = 0;
    bool more = false;
    TRY(timelines_spread(env->views->timelines, e->actor, &told, &more));
    result->again = more;
    result->delivered = told > 0 ? n : 0;
    if (told == 0 && !more) {
        result->skipped = n;
        result->skipped_as = "the followers know that the author's posts are pulled";
    }
    return OK;
}

struct purge {
    uint64_t account;
    struct follow_policy policy;
    bool erase_messages;
    bool more;
};

static enum err purge_slice(struct tx *tx, void *arg)
{
    struct purge *p = arg;
    TRY(account_purge_slice(tx, p->account, PURGE_SLICE, &p->policy, &p->more));
    return p->more ? OK : erase_messages_slice(tx, p->account, p->erase_messages, &p->more);
}

enum err sink_purge(struct sink_env *env, const struct event *e, const uint64_t *members, size_t n,
                    struct sink_result *result)
{
    (void)members;
    (void)n;
    struct purge p = {.account = e->actor,
                      .erase_messages = env->erase_messages,
                      .policy.celebrity_threshold = atomic_load(env->celebrity_threshold)};
    enum err error = db_write(env->db, purge_slice, &p, NULL);
    if (error)
        return error;
    FAULT(purge_between_slices);
    result->delivered = 1;
    result->again = p.more;
    return OK;
}
