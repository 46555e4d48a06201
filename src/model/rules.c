/* The fan-out table of the domain, and the immediate part of each event.
 *
 * The two halves divide an event's work by what may lag. What a reader must never miss (removals,
 * the author's own post, the graph) is applied by event_apply after the COMMIT and before the
 * answer. What may arrive a moment later (other people's timelines) is a row of the table and goes
 * through the engine.
 *
 * event_apply runs again at the start for everything the views' saved state may not hold. That is
 * safe because events come in commit order and each says what became true, not what changed: a
 * state that already knows the end of the story walks through the middle of it and arrives at the
 * same end. A replayed event has no card; the caches are empty then and fill themselves. */
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
};

const size_t model_rule_count = COUNT_OF(model_rules);

/* An event that cannot be applied (there is no memory) leaves the views different from truth for
 * good: the process ends, and the next start makes them anew. */
static void change(struct views *views, const struct event *e, struct view_change c)
{
    enum err error = views_apply(views, &c, 1);
    if (error == OK)
        return;
    log_error("an event could not be applied to the views; the server ends", LOG_ID("event", e->id),
              LOG_CSTR("type", event_wire_name(e->type)), LOG_CSTR("error", err_name(error)));
    abort();
}

static void apply_to_views(struct views *views, const struct event *e)
{
    switch (e->type) {
    case EVENT_ACCOUNT_CREATED:
        change(
            views, e,
            (struct view_change){
                .kind = VIEW_ACCOUNT, .on = true, .account = e->actor, .value = id_time_ms(e->id)});
        break;
    case EVENT_ACCOUNT_SUSPENDED:
    case EVENT_ACCOUNT_DELETED:
    case EVENT_ACCOUNT_RESTORED:
        change(views, e,
               (struct view_change){.kind = VIEW_HIDE,
                                    .on = e->type != EVENT_ACCOUNT_RESTORED,
                                    .account = e->actor});
        break;
    case EVENT_FOLLOW_CREATED:
    case EVENT_FOLLOW_REMOVED:
        change(views, e,
               (struct view_change){.kind = VIEW_FOLLOW,
                                    .on = e->type == EVENT_FOLLOW_CREATED,
                                    .account = e->actor,
                                    .other = e->object});
        break;
    case EVENT_MUTE_CREATED:
    case EVENT_MUTE_REMOVED:
        change(views, e,
               (struct view_change){.kind = VIEW_MUTE,
                                    .on = e->type == EVENT_MUTE_CREATED,
                                    .account = e->actor,
                                    .other = e->object});
        break;
    case EVENT_POST_CREATED:
    case EVENT_POST_DELETED:
        change(views, e,
               (struct view_change){.kind = VIEW_POST,
                                    .on = e->type == EVENT_POST_CREATED,
                                    .account = e->actor,
                                    .other = e->object,
                                    .value = e->value});
        break;
    default: /* blocks end follows by events of their own; the rest is about caches alone */
        break;
    }
}

static void apply_to_cards(struct cards *cards, const struct event *e)
{
    switch (e->type) {
    case EVENT_ACCOUNT_UPDATED:
    case EVENT_ACCOUNT_SUSPENDED:
    case EVENT_ACCOUNT_RESTORED:
    case EVENT_ACCOUNT_DELETED:
        cards_forget_account(cards, e->actor);
        break;
    case EVENT_POST_CREATED:
    case EVENT_POST_EDITED:
        /* A stored event that is read back at start has no card, and needs none: the caches begin
         * empty and are filled from truth, which knows the edit. */
        if (e->card)
            cards_change_post(cards, e->card);
        break;
    case EVENT_POST_DELETED:
        cards_post_gone(cards, e->object);
        break;
    case EVENT_POST_LIKED:
    case EVENT_POST_UNLIKED:
        cards_like(cards, e->actor, e->object, e->type == EVENT_POST_LIKED);
        cards_post_counts(cards, e->object, e->value, -1);
        break;
    case EVENT_POST_COMMENTED:
    case EVENT_POST_UNCOMMENTED:
        cards_post_counts(cards, e->object, -1, e->value);
        break;
    default:
        break;
    }
}

void event_apply(struct views *views, struct cards *cards, const struct event *e)
{
    /* The card first: a deleted post is gone from every read before any list is touched, and a new
     * post's card is there before a reader can meet its id. */
    apply_to_cards(cards, e);
    apply_to_views(views, e);
}
