/* The mapping from events to changes of views and cards: one row per event type.
 *
 * An event's work is divided by what may lag. What a reader must never miss (removals, the author's
 * own post, the graph, the group of one's own message) happens here, after the COMMIT and before
 * the answer. What may arrive a moment later is a rule (rules.c) and goes through the engine.
 *
 * Events are applied again at the start, for everything the views' saved state may not hold. That
 * is safe because events come in commit order and each says what became true, not what changed: a
 * state that already knows the end of the story walks through the middle of it and arrives at the
 * same end. A replayed event has no card; the caches are empty then and fill themselves.
 *
 * Shared views get an event from the node that committed it and, once more, from the leader, and
 * not always in order: so a change names its event, and the latest event counts. Both go in one
 * trip each, for all events of a commit (event_apply_all). */
#include "model/event_views.h"

#include <stdlib.h>

#include "base/check.h"
#include "base/id.h"
#include "base/log.h"
#include "model/follow_all.h"

/* Which of an event's ids the change is about, and which is the other one. */
enum about { NO_VIEW, ACTOR, ACTOR_AND_OBJECT, OBJECT_AND_ACTOR, ACTOR_AND_LISTED };

enum card_effect {
    NO_CARD,
    FORGET_AUTHOR, /* the actor's account */
    NEW_TEXT,
    GONE,
    LIKE,
    UNLIKE,
    COMMENTS,
    MEMBER,            /* what the group (the actor) is to the object; 0: to all of them */
    GROUP_AND_MEMBER,  /* and what it is */
    GROUP_AND_MEMBERS, /* to all of them */
};

/* A type without a row changes neither: blocks end follows by events of their own. */
static const struct effect {
    enum about about;
    enum view_change_kind kind;
    bool on;
    enum card_effect card;
} effects[EVENT_TYPE_COUNT] = {
    [EVENT_ACCOUNT_CREATED] = {ACTOR, VIEW_ACCOUNT, true, NO_CARD},
    [EVENT_ACCOUNT_UPDATED] = {.card = FORGET_AUTHOR},
    [EVENT_ACCOUNT_SUSPENDED] = {ACTOR, VIEW_HIDE, true, FORGET_AUTHOR},
    [EVENT_ACCOUNT_RESTORED] = {ACTOR, VIEW_HIDE, false, FORGET_AUTHOR},
    [EVENT_ACCOUNT_DELETED] = {ACTOR, VIEW_HIDE, true, FORGET_AUTHOR},
    [EVENT_FOLLOW_CREATED] = {ACTOR_AND_OBJECT, VIEW_FOLLOW, true, NO_CARD},
    [EVENT_FOLLOWS_IMPORTED] = {ACTOR_AND_LISTED, VIEW_FOLLOW, true, NO_CARD},
    [EVENT_FOLLOW_REMOVED] = {ACTOR_AND_OBJECT, VIEW_FOLLOW, false, NO_CARD},
    [EVENT_MUTE_CREATED] = {ACTOR_AND_OBJECT, VIEW_MUTE, true, NO_CARD},
    [EVENT_MUTE_REMOVED] = {ACTOR_AND_OBJECT, VIEW_MUTE, false, NO_CARD},
    [EVENT_POST_CREATED] = {ACTOR_AND_OBJECT, VIEW_POST, true, NEW_TEXT},
    [EVENT_POST_EDITED] = {.card = NEW_TEXT},
    [EVENT_POST_DELETED] = {ACTOR_AND_OBJECT, VIEW_POST, false, GONE},
    [EVENT_POST_LIKED] = {.card = LIKE},
    [EVENT_POST_UNLIKED] = {.card = UNLIKE},
    [EVENT_POST_COMMENTED] = {.card = COMMENTS},
    [EVENT_POST_UNCOMMENTED] = {.card = COMMENTS},
    [EVENT_GROUP_JOINED] = {OBJECT_AND_ACTOR, VIEW_MEMBER, true,
                            GROUP_AND_MEMBER}, /* the creator, too */
    [EVENT_GROUP_LEFT] = {OBJECT_AND_ACTOR, VIEW_MEMBER, false, GROUP_AND_MEMBER},
    [EVENT_GROUP_MESSAGE] = {OBJECT_AND_ACTOR, VIEW_MESSAGE, true, GROUP_AND_MEMBER},
    [EVENT_GROUP_MENTIONS] = {.card = GROUP_AND_MEMBERS}, /* of whom, it does not say */
    [EVENT_GROUP_ENTRY] = {.card = GROUP_AND_MEMBERS}, /* a role; a deletion, with its mentions */
    [EVENT_GROUP_READ] = {.card = MEMBER},
    [EVENT_GROUP_UPDATED] = {.card = MEMBER},
};

enum { CHANGES_AN_EVENT = FOLLOWS_AN_EVENT };

static size_t changes_listed(const struct event *e, struct view_change c[CHANGES_AN_EVENT])
{
    uint64_t others[FOLLOWS_AN_EVENT];
    size_t n = followees_read(e->data, others);
    for (size_t i = 0; i < n; i++)
        c[i] = (struct view_change){.kind = effects[e->type].kind,
                                    .on = effects[e->type].on,
                                    .account = e->actor,
                                    .other = others[i],
                                    .event = e->id};
    return n;
}

/* What an event says about the views; how many things. */
static size_t view_changes_of(const struct event *e, struct view_change c[CHANGES_AN_EVENT])
{
    const struct effect *row = &effects[e->type];
    if (row->about == NO_VIEW)
        return 0;
    if (row->about == ACTOR_AND_LISTED)
        return changes_listed(e, c);
    bool swapped = row->about == OBJECT_AND_ACTOR;
    *c = (struct view_change){.kind = row->kind,
                              .on = row->on,
                              .account = swapped ? e->object : e->actor,
                              .other = swapped               ? e->actor
                                       : row->about == ACTOR ? 0
                                                             : e->object,
                              .event = e->id};
    if (row->kind == VIEW_POST)
        c->value = e->value; /* how it is delivered */
    else if (row->kind == VIEW_ACCOUNT)
        c->value = id_time_ms(e->id);
    return 1;
}

enum { WRITES_AN_EVENT = 2 };

/* The member's card goes first. A reader in between may then find a mark above the group's
 * own number, which tells that the two do not belong together; never a number that the member has
 * not heard of and has written itself. */
static size_t group_writes_of(const struct event *e, struct card_write w[WRITES_AN_EVENT])
{
    enum card_effect effect = effects[e->type].card;
    bool all = effect == GROUP_AND_MEMBERS || !e->object;
    w[0] = (struct card_write){.kind = all ? CARD_FORGET_MEMBERS : CARD_FORGET_MEMBER,
                               .viewer = e->object,
                               .id = e->actor};
    w[1] = (struct card_write){.kind = CARD_FORGET_GROUP, .id = e->actor};
    return effect == MEMBER && e->object ? 1 : 2;
}

/* What an event says about the cards; how many things. */
static size_t card_writes_of(const struct cards *cards, const struct event *e,
                             struct card_write w[WRITES_AN_EVENT])
{
    enum card_effect effect = effects[e->type].card;
    switch (effect) {
    case NO_CARD:
        return 0;
    case FORGET_AUTHOR:
        w[0] = (struct card_write){.kind = CARD_FORGET_ACCOUNT, .id = e->actor};
        return 1;
    case NEW_TEXT:
        w[0] = (struct card_write){.kind = CARD_CHANGE_POST, .post = e->card};
        if (e->card)
            return 1;
        /* A stored event that is read back has no card. Cards of this process alone need none: they
         * begin empty and are filled from truth, which knows the edit. Shared ones may hold the
         * text before it: the editing node may have died before its update. */
        w[0] = (struct card_write){.kind = CARD_FORGET_POST, .id = e->object};
        return cards->shared && e->type == EVENT_POST_EDITED ? 1 : 0;
    case GONE:
        w[0] = (struct card_write){.kind = CARD_POST_GONE, .id = e->object};
        return 1;
    case LIKE:
    case UNLIKE:
        w[0] = (struct card_write){
            .kind = CARD_LIKE, .viewer = e->actor, .id = e->object, .on = effect == LIKE};
        w[1] = (struct card_write){
            .kind = CARD_POST_COUNTS, .id = e->object, .likes = e->value, .comments = -1};
        return 2;
    case COMMENTS:
        w[0] = (struct card_write){
            .kind = CARD_POST_COUNTS, .id = e->object, .likes = -1, .comments = e->value};
        return 1;
    case MEMBER:
    case GROUP_AND_MEMBER:
    case GROUP_AND_MEMBERS: /* shared cards have none of groups */
        return cards->shared ? 0 : group_writes_of(e, w);
    }
    return 0;
}

/* An event that cannot be applied (there is no memory) leaves the views different from truth for
 * good: the process ends, and the next start makes them anew. */
void event_apply(struct views *views, struct cards *cards, const struct event *e)
{
    struct card_write writes[WRITES_AN_EVENT];
    struct view_change changes[CHANGES_AN_EVENT];
    /* The card first: a deleted post is gone from every read before any list is touched, and a new
     * post's card is there before a reader can meet its id. */
    size_t n = card_writes_of(cards, e, writes);
    if (n > 0)
        cards_write(cards, writes, n);
    size_t count = view_changes_of(e, changes);
    enum err error = count > 0 ? views_apply(views, changes, count) : OK;
    if (error == OK)
        return;
    log_error("an event could not be applied to the views; the server ends", LOG_ID("event", e->id),
              LOG_CSTR("type", event_wire_name(e->type)), LOG_CSTR("error", err_name(error)));
    abort();
}

enum err event_apply_all(struct views *views, struct cards *cards, const struct event *events,
                         size_t n)
{
    size_t write_count = 0, change_count = 0, room = 0;
    if (n == 0)
        return OK;
    for (size_t i = 0; i < n; i++)
        room += effects[events[i].type].about == ACTOR_AND_LISTED ? CHANGES_AN_EVENT : 1;
    struct card_write *writes = malloc(n * WRITES_AN_EVENT * sizeof *writes);
    struct view_change *changes = malloc(room * sizeof *changes);
    CHECK(writes && changes);
    for (size_t i = 0; i < n; i++) {
        write_count += card_writes_of(cards, &events[i], &writes[write_count]);
        change_count += view_changes_of(&events[i], &changes[change_count]);
    }
    if (write_count > 0)
        cards_write(cards, writes, write_count);
    enum err e = change_count > 0 ? views_apply(views, changes, change_count) : OK;
    free(writes);
    free(changes);
    return e;
}
