/* Explains why a post is, or is not, in a person's feed: a verdict in one sentence, and the facts.
 *
 * Where truth and an actual read disagree, the verdict says what that means: a delivery that is
 * under way, one that something holds up, or a fault. */
#include <stdarg.h>
#include <stdio.h>

#include "api/render/explain.h"
#include "api/render/render.h"
#include "base/check.h"
#include "base/clock.h"
#include "base/id.h"

enum { HOLD_MAX = 400, TEXT_MAX = HOLD_MAX + 200 };

static const char *const reasons[] = {
    [NOT_HIDDEN] = NULL,
    [HIDDEN_NO_ACCOUNT] = "there is no such account",
    [HIDDEN_NO_POST] = "there is no such post",
    [HIDDEN_DELETED] = "the post was deleted",
    [HIDDEN_SUSPENDED] = "its author is suspended",
    [HIDDEN_AUTHOR_DELETED] = "its author's account was deleted",
    [HIDDEN_BLOCKED] = "a block lies between the two accounts",
    [HIDDEN_NOT_FOLLOWED] = "its author is not followed",
    [HIDDEN_MUTED] = "its author is muted",
};

static const char *when(const struct explanation *s, int64_t at_ms)
{
    char *text = arena_alloc(s->arena, TIME_TEXT_LEN + 1);
    time_format(at_ms, text);
    return text;
}

__attribute__((format(printf, 2, 3))) static void fact(struct json_out *j, const char *format, ...)
{
    char text[TEXT_MAX];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    json_str(j, str_of(text));
}

static void tell_relation(struct json_out *j, const struct explanation *s)
{
    const char *viewer = s->viewer_name.ptr, *author = s->author_name.ptr;
    if (s->author == s->viewer) {
        fact(j, "%s wrote it: own posts are always shown", viewer);
        return;
    }
    if (s->followed_at_ms)
        fact(j, "%s has followed %s since %s", viewer, author, when(s, s->followed_at_ms));
    else
        fact(j, "%s does not follow %s", viewer, author);
    if (s->muted_at_ms)
        fact(j, "%s has muted %s since %s", viewer, author, when(s, s->muted_at_ms));
    if (s->blocked_at_ms)
        fact(j, "%s has blocked %s since %s", viewer, author, when(s, s->blocked_at_ms));
    if (s->blocked_by_at_ms)
        fact(j, "%s has blocked %s since %s", author, viewer, when(s, s->blocked_by_at_ms));
}

static void tell_views(struct json_out *j, const struct explanation *s)
{
    if (!s->known) {
        fact(j, "the views do not know %s", s->viewer_name.ptr);
        return;
    }
    if (s->away) {
        fact(j, "the views cannot be asked, or have lost something: reads answer from truth");
        return;
    }
    if (s->dropped) {
        fact(j, "the timeline of %s is not in memory: it is rebuilt at the next read",
             s->viewer_name.ptr);
    } else {
        fact(j, "the id is %sin the timeline or a pull list that %s reads now",
             s->in_views ? "" : "not ", s->viewer_name.ptr);
        if (s->post <= s->floor)
            fact(j, "it lies at or below the timeline's floor (%llu): reads answer from truth",
                 (unsigned long long)s->floor);
        else
            fact(j, "it lies above the timeline's floor (%llu): reads answer from memory",
                 (unsigned long long)s->floor);
    }
    fact(j, "the graph in memory says that %s %s see this author", s->viewer_name.ptr,
         s->visible_now ? "may" : "may not");
}

/* ---- events ---- */

static bool is_under_way(enum event_state state)
{
    return state == EVENT_IS_PENDING || state == EVENT_IS_PUBLISHED || state == EVENT_IS_EXPANDED;
}

/* "delivery 12 (backfill) is dead: INTERNAL, database is locked" */
static void write_hold(const struct explanation *s, const struct event_standing *e, char *text,
                       size_t size)
{
    unsigned long long delivery = e->delivery;
    const char *comma = e->detail[0] ? ", " : "";
    if (e->state == EVENT_IS_DEAD)
        snprintf(text, size, "delivery %llu (%s) is dead: %s%s%s", delivery, e->consumer, e->reason,
                 comma, e->detail);
    else if (e->state == EVENT_IS_PARKED)
        snprintf(text, size, "event %llu is parked: %s", (unsigned long long)e->event,
                 e->delivery ? e->reason : "this version cannot read it");
    else if (e->state == EVENT_IS_DELAYED)
        snprintf(text, size, "delivery %llu (%s) failed (%s%s%s) and is tried again at %s",
                 delivery, e->consumer, e->reason, comma, e->detail, when(s, e->due_ms));
    else if (e->behind)
        snprintf(text, size, "delivery %llu (%s) waits behind delivery %llu, which is %s%s%s",
                 delivery, e->consumer, (unsigned long long)e->behind,
                 delivery_state_name(e->behind_state), e->behind_reason[0] ? ": " : "",
                 e->behind_reason);
    else
        snprintf(text, size, "delivery %llu (%s) waits for its turn", delivery, e->consumer);
}

static void tell_event(struct json_out *j, const struct explanation *s, const char *which,
                       const struct event_standing *e)
{
    char hold[HOLD_MAX];
    unsigned long long id = e->event;
    if (e->event == 0)
        return;
    if (event_is_held_up(e->state)) {
        write_hold(s, e, hold, sizeof hold);
        fact(j, "%s %llu: %s", which, id, hold);
    } else if (is_under_way(e->state)) {
        fact(j, "%s %llu is %s: its delivery is under way", which, id, event_state_name(e->state));
    } else {
        fact(j, "%s %llu is settled: its delivery has ended", which, id);
    }
}

static void tell_facts(struct json_out *j, const struct explanation *s,
                       const struct explained_events *events)
{
    if (!s->viewer_found)
        fact(j, "there is no account %llu", (unsigned long long)s->viewer);
    if (!s->post_found) {
        fact(j, "there is no post %llu", (unsigned long long)s->post);
        return;
    }
    fact(j, "posted by %s (%llu) at %s", s->author_name.ptr, (unsigned long long)s->author,
         when(s, id_time_ms(s->post)));
    if (s->deleted_at_ms)
        fact(j, "deleted at %s", when(s, s->deleted_at_ms));
    if (s->author_state != ACCOUNT_ACTIVE)
        fact(j, "its author's account is %s",
             s->author_state == ACCOUNT_SUSPENDED ? "suspended" : "deleted");
    tell_relation(j, s);
    fact(j, "its delivery is %s, decided when it was posted",
         s->delivery == DELIVERY_PUSH ? "push: it is put into the followers' timelines"
                                      : "pull: followers merge it in when they read");
    tell_event(j, s, "its event", &events->posting);
    tell_event(j, s, "the event of the reader's follow", &events->follow);
    tell_views(j, s);
}

static const char *how_shown(const struct explanation *s)
{
    if (s->author == s->viewer)
        return "it is the reader's own";
    if (s->dropped || s->post <= s->floor)
        return "its author is followed, and this part of the feed is read from truth";
    return s->delivery == DELIVERY_PUSH
               ? "its author is followed, and it was pushed into the timeline"
               : "its author is followed, and it is pulled when reading";
}

/* What an operator does about it. */
static const char *way_out(const struct event_standing *e)
{
    bool blocked = e->state == EVENT_IS_WAITING && e->behind_state == DELIVERY_DEAD;
    if (e->state == EVENT_IS_DEAD || blocked)
        return "; run 'fantail dead redrive' or 'fantail dead discard'";
    return e->state == EVENT_IS_PARKED
               ? "; run 'fantail dead release' with a version that can read it"
               : "";
}

/* It should be shown and is not: will it be? */
static void write_missing(const struct explanation *s, const struct explained_events *events,
                          char *text, size_t size)
{
    const struct event_standing *const both[] = {&events->posting, &events->follow};
    for (size_t i = 0; i < COUNT_OF(both); i++) {
        char hold[HOLD_MAX];
        const struct event_standing *e = both[i];
        if (!event_is_held_up(e->state))
            continue;
        write_hold(s, e, hold, sizeof hold);
        snprintf(text, size, "It should be shown and is not: %s%s.", hold, way_out(e));
        return;
    }
    if (is_under_way(events->posting.state) || is_under_way(events->follow.state))
        snprintf(text, size, "It should be shown and is not yet: its delivery is under way.");
    else
        snprintf(text, size,
                 "It should be shown and is not, and its delivery has ended: "
                 "run 'fantail check --repair'.");
}

static void write_verdict(struct json_out *j, const struct explanation *s,
                          const struct explained_events *events)
{
    const char *against = reasons[s->against];
    char text[TEXT_MAX];
    if (against && !s->shown)
        snprintf(text, sizeof text, "It is not shown because %s.", against);
    else if (!against && s->shown)
        snprintf(text, sizeof text, "It is shown because %s.", how_shown(s));
    else if (against)
        snprintf(text, sizeof text, "It is shown although %s: run 'fantail check --repair'.",
                 against);
    else
        write_missing(s, events, text, sizeof text);
    json_put(j, "verdict", str, str_of(text));
}

void render_explanation(struct json_out *j, const struct explanation *s,
                        const struct explained_events *events)
{
    json_object_begin(j);
    json_put(j, "viewer", id, s->viewer);
    json_put(j, "post", id, s->post);
    json_put(j, "visible", bool, s->shown);
    json_put(j, "expected", bool, s->against == NOT_HIDDEN);
    write_verdict(j, s, events);
    json_key(j, STR("facts"));
    json_array_begin(j);
    tell_facts(j, s, events);
    json_array_end(j);
    json_object_end(j);
}
