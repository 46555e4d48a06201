/* The fan-out table of the domain, and the immediate part of each event.
 *
 * The two halves divide an event's work by what may lag. What a reader must never miss (removals,
 * the author's own post, the graph, the group of one's own message) is applied by event_apply after
 * the COMMIT and before the answer. What may arrive a moment later (other people's timelines and
 * inboxes) is a row of the table and goes through the engine.
 *
 * event_apply runs again at the start for everything the views' saved state may not hold. That is
 * safe because events come in commit order and each says what became true, not what changed: a
 * state that already knows the end of the story walks through the middle of it and arrives at the
 * same end. A replayed event has no card; the caches are empty then and fill themselves.
 *
 * Views that many nodes share hear of an event from the node that committed it and, once more, from
 * the one that leads, and not always in order: so a change names its event, and the latest event
 * counts. Both go in one trip each, for all events of a commit (event_apply_all). */
#include "model/rules.h"

#include <stdlib.h>

#include "base/check.h"
#include "base/id.h"
#include "base/log.h"
#include "model/sinks.h"

static bool is_pushed(const struct event *e)
{
    return e->value == DELIVERY_PUSH;
}

const struct rule model_rules[] = {
    {
        .consumer = "timelines",
        .on = EVENT_POST_CREATED,
        .wants = is_pushed,
        .audience = TO_FOLLOWERS,
        .unwanted_as = "the author is a celebrity: readers pull the post",
        .sink = sink_push,
        .sinks = sink_pushes,
        .lane = LANE_SMALL,
        .batch = 500,
        .priority = PRIORITY_CRITICAL,
        .effect = EFFECT_VIEWS,
        .visible = true,
        .late_means = "followers do not see a new post yet",
    },
    {
        .consumer = "cleanup",
        .on = EVENT_POST_DELETED,
        .wants = is_pushed,
        .audience = TO_FOLLOWERS,
        .unwanted_as = "the post was pulled: no timeline holds it",
        .sink = sink_retract,
        .lane = LANE_CLEANUP,
        .batch = 200,
        .priority = PRIORITY_LOW,
        .effect = EFFECT_VIEWS,
        .late_means = "nothing: readers filter deleted posts; timelines hold dead ids for longer",
    },
    {
        .consumer = "backfill",
        .on = EVENT_FOLLOW_CREATED,
        .audience = TO_ACTOR,
        .sink = sink_backfill,
        .lane = LANE_GRAPH,
        .batch = 1,
        .priority = PRIORITY_CRITICAL,
        .effect = EFFECT_VIEWS,
        .visible = true,
        .late_means = "a new follower does not see the author's earlier posts yet",
    },
    {
        .consumer = "forget",
        .on = EVENT_FOLLOW_REMOVED,
        .audience = TO_ACTOR,
        .sink = sink_forget,
        .lane = LANE_GRAPH,
        .batch = 1,
        .priority = PRIORITY_LOW,
        .effect = EFFECT_VIEWS,
        .late_means = "nothing: readers filter by the graph; a timeline holds dead ids for longer",
    },
    {
        .consumer = "purge",
        .on = EVENT_ACCOUNT_DELETED,
        .audience = TO_ACTOR,
        .sink = sink_purge,
        .lane = LANE_CLEANUP,
        .batch = 1,
        .priority = PRIORITY_CRITICAL,
        .effect = EFFECT_TRUTH,
        .late_means = "a deleted account's data, which nobody sees any more, is stored for longer",
    },
    {
        .consumer = "mentions",
        .on = EVENT_GROUP_MENTIONS,
        .audience = TO_ACTOR,
        .sink = sink_mentions,
        .lane = LANE_MENTIONS,
        .batch = 1,
        .priority = PRIORITY_CRITICAL,
        .effect = EFFECT_VIEWS,
        .visible = true,
        .late_means = "those whom a message names do not find its group on top of their inbox yet",
    },
    {
        .consumer = "inboxes",
        .on = EVENT_GROUP_MESSAGE,
        .audience = TO_MEMBERS,
        .sink = sink_inbox,
        .sinks = sink_inboxes,
        .rest_sink = sink_inbox_rest,
        .lane = LANE_SMALL,
        .batch = 1000,
        .priority = PRIORITY_CRITICAL,
        .effect = EFFECT_VIEWS,
        .visible = true,
        .late_means = "members do not find the group of a new message on top of their inbox yet",
    },
};

const size_t model_rule_count = COUNT_OF(model_rules);

/* What an event says about the views. False: nothing. */
static bool view_change_of(const struct event *e, struct view_change *c)
{
    *c = (struct view_change){.account = e->actor, .other = e->object, .event = e->id};
    switch (e->type) {
    case EVENT_ACCOUNT_CREATED:
        c->kind = VIEW_ACCOUNT;
        c->on = true;
        c->other = 0;
        c->value = id_time_ms(e->id);
        return true;
    case EVENT_ACCOUNT_SUSPENDED:
    case EVENT_ACCOUNT_DELETED:
    case EVENT_ACCOUNT_RESTORED:
        c->kind = VIEW_HIDE;
        c->on = e->type != EVENT_ACCOUNT_RESTORED;
        c->other = 0;
        return true;
    case EVENT_FOLLOW_CREATED:
    case EVENT_FOLLOW_REMOVED:
        c->kind = VIEW_FOLLOW;
        c->on = e->type == EVENT_FOLLOW_CREATED;
        return true;
    case EVENT_MUTE_CREATED:
    case EVENT_MUTE_REMOVED:
        c->kind = VIEW_MUTE;
        c->on = e->type == EVENT_MUTE_CREATED;
        return true;
    case EVENT_POST_CREATED:
    case EVENT_POST_DELETED:
        c->kind = VIEW_POST;
        c->on = e->type == EVENT_POST_CREATED;
        c->value = e->value;
        return true;
    case EVENT_GROUP_JOINED: /* all of them, the creator included */
    case EVENT_GROUP_LEFT:
        c->kind = VIEW_MEMBER;
        c->on = e->type == EVENT_GROUP_JOINED;
        c->account = e->object;
        c->other = e->actor;
        return true;
    case EVENT_GROUP_MESSAGE:
        c->kind = VIEW_MESSAGE;
        c->on = true;
        c->account = e->object;
        c->other = e->actor;
        return true;
    default: /* blocks end follows by events of their own; the rest is about caches alone */
        return false;
    }
}

enum { WRITES_AN_EVENT = 2 };

/* What an event says about the cards; how many things. */
static size_t card_writes_of(const struct cards *cards, const struct event *e,
                             struct card_write w[WRITES_AN_EVENT])
{
    switch (e->type) {
    case EVENT_ACCOUNT_UPDATED:
    case EVENT_ACCOUNT_SUSPENDED:
    case EVENT_ACCOUNT_RESTORED:
    case EVENT_ACCOUNT_DELETED:
        w[0] = (struct card_write){.kind = CARD_FORGET_ACCOUNT, .id = e->actor};
        return 1;
    case EVENT_POST_CREATED:
    case EVENT_POST_EDITED:
        w[0] = (struct card_write){.kind = CARD_CHANGE_POST, .card = e->card};
        if (e->card)
            return 1;
        /* A stored event that is read back has no card. Cards of this process alone need none: they
         * begin empty and are filled from truth, which knows the edit. Shared ones may hold what
         * was before it: whoever edited may not have got so far. */
        w[0] = (struct card_write){.kind = CARD_FORGET_POST, .id = e->object};
        return cards->shared && e->type == EVENT_POST_EDITED ? 1 : 0;
    case EVENT_POST_DELETED:
        w[0] = (struct card_write){.kind = CARD_POST_GONE, .id = e->object};
        return 1;
    case EVENT_POST_LIKED:
    case EVENT_POST_UNLIKED:
        w[0] = (struct card_write){.kind = CARD_LIKE,
                                   .viewer = e->actor,
                                   .id = e->object,
                                   .on = e->type == EVENT_POST_LIKED};
        w[1] = (struct card_write){
            .kind = CARD_POST_COUNTS, .id = e->object, .likes = e->value, .comments = -1};
        return 2;
    case EVENT_POST_COMMENTED:
    case EVENT_POST_UNCOMMENTED:
        w[0] = (struct card_write){
            .kind = CARD_POST_COUNTS, .id = e->object, .likes = -1, .comments = e->value};
        return 1;
    default:
        return 0;
    }
}

/* An event that cannot be applied (there is no memory) leaves the views different from truth for
 * good: the process ends, and the next start makes them anew. */
void event_apply(struct views *views, struct cards *cards, const struct event *e)
{
    struct card_write writes[WRITES_AN_EVENT];
    struct view_change change;
    /* The card first: a deleted post is gone from every read before any list is touched, and a new
     * post's card is there before a reader can meet its id. */
    size_t n = card_writes_of(cards, e, writes);
    if (n > 0)
        cards_write(cards, writes, n);
    enum err error = view_change_of(e, &change) ? views_apply(views, &change, 1) : OK;
    if (error == OK)
        return;
    log_error("an event could not be applied to the views; the server ends", LOG_ID("event", e->id),
              LOG_CSTR("type", event_wire_name(e->type)), LOG_CSTR("error", err_name(error)));
    abort();
}

enum err event_apply_all(struct views *views, struct cards *cards, const struct event *events,
                         size_t n)
{
    size_t write_count = 0, change_count = 0;
    if (n == 0)
        return OK;
    struct card_write *writes = malloc(n * WRITES_AN_EVENT * sizeof *writes);
    struct view_change *changes = malloc(n * sizeof *changes);
    CHECK(writes && changes);
    for (size_t i = 0; i < n; i++) {
        write_count += card_writes_of(cards, &events[i], &writes[write_count]);
        change_count += view_change_of(&events[i], &changes[change_count]);
    }
    if (write_count > 0)
        cards_write(cards, writes, write_count);
    enum err e = change_count > 0 ? views_apply(views, changes, change_count) : OK;
    free(writes);
    free(changes);
    return e;
}
