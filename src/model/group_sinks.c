/* Delivers a message to the inboxes of its group's members.
 *
 * An inbox is the order of a person's groups and nothing else, so delivering a message means
 * raising its group to the message's own activity, the event's id. That is a maximum: repeated,
 * late, or after a newer message of the group it changes nothing.
 *
 * No member is missed. A member at the time of the message has joined by an event with a lower id,
 * or with a higher one that carries an activity above the message's. The former is applied to the
 * views before the walk begins: events are applied in the order of commits by a server that is
 * alone, and in the order of ids, before they are delivered, by the leader. So the walk meets them.
 * A person who joins during the walk gets, by the join itself, an activity that is no lower.
 *
 * Inactive members pull large groups: instead of raising an unread inbox with every message, the
 * sink drops it, which is no work from then on, and a read makes it again from truth when its owner
 * comes back. The row of the group, with the id of its last message, is then the watermark for all
 * of them. This is a choice about cost alone and may be made page by page, by a count of members
 * that is out of date, or differently when a page is tried again: a member is either raised or
 * dropped, and both are right whatever happened before. A rebuild that runs meanwhile and has read
 * truth before the message is spoiled by the drop (promise 5 of port/inboxes.h), one that begins
 * later finds the message in truth. The walks over the active and over the rest together cover all
 * members, as they do for posts.
 *
 * Mentions are delivered first, in a lane of their own, by the event just before the message's: its
 * id is lower, so the message raises again what the mention raised, never the other way. */
#include <string.h>

#include "base/arena.h"
#include "model/group.h"
#include "model/sinks.h"
#include "port/views.h"

enum err sink_inbox(struct sink_env *env, const struct event *e, const uint64_t *members, size_t n,
                    struct sink_result *result)
{
    size_t changed = 0;
    enum err error = inboxes_push_one(env->views->inboxes, e->actor, e->id, members, n, &changed);
    if (error)
        return error;
    result->delivered = changed;
    result->repeated = n - changed;
    return OK;
}

/* Is there a later message to the same people of the same group? It raises them further. */
static bool is_outdone(const struct sink_call *calls, size_t n, size_t i)
{
    for (size_t k = 0; k < n; k++) {
        if (k != i && calls[k].event->actor == calls[i].event->actor &&
            calls[k].event->id > calls[i].event->id && calls[k].n == calls[i].n &&
            memcmp(calls[k].members, calls[i].members, calls[i].n * sizeof *calls[i].members) == 0)
            return true;
    }
    return false;
}

enum err sink_inboxes(struct sink_env *env, struct sink_call *calls, size_t n)
{
    struct arena arena;
    arena_init(&arena);
    struct inbox_push *pushes = ARENA_ARRAY(&arena, struct inbox_push, n);
    struct sink_result **results = ARENA_ARRAY(&arena, struct sink_result *, n);
    size_t count = 0;
    for (size_t i = 0; i < n; i++) {
        const struct sink_call *c = &calls[i];
        if (is_outdone(calls, n, i)) {
            calls[i].result.repeated = c->n;
            continue;
        }
        results[count] = &calls[i].result;
        pushes[count++] = (struct inbox_push){c->event->actor, c->event->id, c->members, c->n, 0};
    }
    enum err e = inboxes_push(env->views->inboxes, pushes, count);
    for (size_t i = 0; i < count && !e; i++) {
        results[i]->delivered = pushes[i].changed;
        results[i]->repeated = pushes[i].n - pushes[i].changed;
    }
    arena_done(&arena);
    return e;
}

/* ---- large groups ---- */

struct size_of_group {
    uint64_t group;
    int64_t members;
};

static enum err read_size(struct tx *tx, void *arg)
{
    struct size_of_group *s = arg;
    s->members = 0;
    enum err e = tx_get_i64(tx, "SELECT member_count FROM groups WHERE id = $1",
                            DB_ARGS(DB_I64(s->group)), &s->members);
    return e == ERR_NOT_FOUND ? OK : e;
}

/* One row for a page of a thousand: no cache of it is worth its staleness. */
static enum err is_large(struct sink_env *env, uint64_t group, bool *large)
{
    struct size_of_group s = {.group = group};
    *large = false;
    if (env->group_pull_threshold <= 0)
        return OK;
    enum err e = db_read(env->db, read_size, &s, NULL);
    *large = !e && s.members >= env->group_pull_threshold;
    return e;
}

/* A member who became active during the walk is among the rest, too (port/graph.h), and is pushed
 * to. */
static enum err push_or_drop(struct sink_env *env, const struct event *e, const uint64_t *members,
                             size_t n, struct arena *arena, struct sink_result *result)
{
    bool *here = ARENA_ARRAY(arena, bool, n);
    uint64_t *push = ARENA_ARRAY(arena, uint64_t, n), *drop = ARENA_ARRAY(arena, uint64_t, n);
    size_t pushes = 0, drops = 0;
    int64_t since_ms = clock_wall_ms(env->clock) - env->active_within_ms;
    enum err error = graph_seen_since(env->views->graph, members, n, since_ms, here);
    if (error)
        return error;
    for (size_t i = 0; i < n; i++) {
        if (here[i])
            push[pushes++] = members[i];
        else
            drop[drops++] = members[i];
    }
    if (pushes > 0)
        error = sink_inbox(env, e, push, pushes, result);
    if (!error && drops > 0)
        error = inboxes_drop(env->views->inboxes, drop, drops);
    if (error || drops == 0)
        return error;
    result->skipped = drops;
    result->skipped_as = "the group is large, and they were not here lately: they pull";
    return OK;
}

enum err sink_inbox_rest(struct sink_env *env, const struct event *e, const uint64_t *members,
                         size_t n, struct sink_result *result)
{
    bool large;
    enum err error = is_large(env, e->actor, &large);
    if (error)
        return error;
    if (!large)
        return sink_inbox(env, e, members, n, result);
    struct arena arena;
    arena_init(&arena);
    error = push_or_drop(env, e, members, n, &arena, result);
    arena_done(&arena);
    return error;
}

/* ---- signals alone ---- */

/* Nothing is delivered: the engine signals the members. */
enum err sink_live(struct sink_env *env, const struct event *e, const uint64_t *members, size_t n,
                   struct sink_result *result)
{
    (void)env, (void)e, (void)members;
    result->delivered = n;
    return OK;
}

/* ---- mentions ---- */

struct mentioned {
    uint64_t group;
    int64_t seq;
    uint64_t accounts[MESSAGE_MENTIONS_MAX];
    size_t n;
};

static enum err read_mentioned(struct tx *tx, void *arg)
{
    struct mentioned *m = arg;
    return message_mentioned(tx, m->group, m->seq, m->accounts, &m->n);
}

/* A message that was deleted meanwhile mentions no one any more. Its group has had its activity all
 * the same, and the walk over the members brings it. */
enum err sink_mentions(struct sink_env *env, const struct event *e, const uint64_t *members,
                       size_t n, struct sink_result *result)
{
    (void)members;
    (void)n;
    struct mentioned m = {.group = e->actor, .seq = e->value};
    enum err error = db_read(env->db, read_mentioned, &m, NULL);
    if (error)
        return error;
    struct view_change changes[MESSAGE_MENTIONS_MAX];
    for (size_t i = 0; i < m.n; i++)
        changes[i] = (struct view_change){.kind = VIEW_MESSAGE,
                                          .on = true,
                                          .account = m.accounts[i],
                                          .other = e->actor,
                                          .event = e->id};
    error = m.n > 0 ? views_apply(env->views, changes, m.n) : OK;
    if (error)
        return error;
    if (m.n > 0 && env->signal) { /* its audience is the group, its receivers are these */
        const struct signal_message named = {SIGNAL_GROUP, e->actor, e->value, m.accounts, m.n};
        TRY(signal_publish(env->signal, &named, 1));
    }
    result->delivered = m.n;
    if (m.n == 0) {
        result->skipped = 1;
        result->skipped_as = "the message was deleted meanwhile";
    }
    return OK;
}
