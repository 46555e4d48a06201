/* Explains why a post is, or is not, in a person's feed: a verdict in one sentence, and the facts.
 *
 * Where truth and an actual read disagree, the verdict says what that means: a delivery still on
 * its way, or a fault. */
#include <stdarg.h>
#include <stdio.h>

#include "api/render/render.h"
#include "base/clock.h"
#include "base/id.h"
#include "model/truth.h"

enum { TEXT_MAX = 300 };

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

static void tell_facts(struct json_out *j, const struct explanation *s)
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
    if (s->event)
        fact(j, "its event %llu is still in the outbox: under way, or done since the last save",
             (unsigned long long)s->event);
    else
        fact(j, "its event has left the outbox: delivery was completed");
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

static void write_verdict(struct json_out *j, const struct explanation *s)
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
    else if (s->event)
        snprintf(text, sizeof text,
                 "It should be shown and is not yet: its delivery is under way.");
    else
        snprintf(text, sizeof text, "It should be shown and is not: run 'fantail check --repair'.");
    json_put(j, "verdict", str, str_of(text));
}

void render_explanation(struct json_out *j, const struct explanation *s)
{
    json_object_begin(j);
    json_put(j, "viewer", id, s->viewer);
    json_put(j, "post", id, s->post);
    json_put(j, "visible", bool, s->shown);
    json_put(j, "expected", bool, s->against == NOT_HIDDEN);
    write_verdict(j, s);
    json_key(j, STR("facts"));
    json_array_begin(j);
    tell_facts(j, s);
    json_array_end(j);
    json_object_end(j);
}
