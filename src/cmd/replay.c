/* `fantail replay plan | start | pause | resume | cancel | list | watch`: deliver again what was
 * delivered once, knowing beforehand what that will do. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "cmd/commands.h"
#include "cmd/job_watch.h"
#include "cmd/link.h"
#include "cmd/show.h"
#include "ops/progress.h"

enum { RATE_MAX = 1000000 };

static const struct job_family replays = {.path = "/v1/admin/replays",
                                          .noun = "replay",
                                          .label = "replaying",
                                          .one = "event",
                                          .many = "events"};

/* The numbers of a plan, in the order in which they are shown. */
static const struct {
    const char *key, *words;
} counts[] = {
    {"events", "events that match"},
    {"undone", "under way, left to the live engine"},
    {"unreadable", "that this version cannot read"},
    {"remembered", "already done, by the inbox"},
    {"unknown", "of unknown outcome, not acted on"},
    {"suppressed", "suppressed: channel not allowed"},
    {"would_act", "would act"},
};
enum { COUNTS = sizeof counts / sizeof *counts };

/* ---- the selection ---- */

static void add_channels(json_t *list, const char *text)
{
    struct str rest = str_of(text), one;
    while (str_split(&rest, ',', &one)) {
        one = str_trim(one);
        if (one.len > 0)
            json_array_append_new(list, json_stringn(one.ptr, one.len));
    }
}

static void put_text(json_t *body, const char *field, const char *text)
{
    if (text && text[0])
        json_object_set_new(body, field, json_string(text));
}

/* NULL: a message was printed, return EXIT_USAGE. Without --to it ends now, so that plan and start
 * mean the same events. */
static json_t *selection(const struct invocation *in)
{
    char from[SHOWN_MAX], to[SHOWN_MAX];
    const char *consumer = invocation_value(in, "consumer");
    if (!consumer) {
        command_usage(in, "say whose events: --consumer NAME; 'fantail status' lists them");
        return NULL;
    }
    if (!show_parse_moment(in, "from", from) || !show_parse_moment(in, "to", to))
        return NULL;
    if (!to[0]) {
        time_format(show_now_ms(), to);
        to[TIME_TEXT_LEN] = '\0';
    }
    json_t *body = json_object(), *allow = json_array();
    put_text(body, "consumer", consumer);
    put_text(body, "type", invocation_value(in, "type"));
    put_text(body, "from", from);
    put_text(body, "to", to);
    put_text(body, "key", invocation_value(in, "key"));
    put_text(body, "dead_reason", invocation_value(in, "dead"));
    for (int i = 0; i < in->option_count; i++) {
        if (strcmp(in->options[i].name, "allow") == 0)
            add_channels(allow, in->options[i].value);
    }
    if (json_array_size(allow) > 0)
        json_object_set(body, "allow", allow);
    json_decref(allow);
    if (invocation_has(in, "accept-duplicates"))
        json_object_set_new(body, "accept_duplicates", json_true());
    return body;
}

/* ---- the dry run ---- */

struct plan {
    uint64_t sums[COUNTS];
    json_t *channels; /* {"views":{"would_act","suppressed"}} */
    char first[24], last[24];
    char refused[320], note[320];
};

static void add_slice(struct plan *p, const json_t *answer)
{
    for (size_t i = 0; i < COUNTS; i++)
        p->sums[i] += (uint64_t)answer_int(answer, counts[i].key);
    size_t at;
    json_t *one;
    json_array_foreach(json_object_get(answer, "channels"), at, one)
    {
        const char *name = answer_text(one, "channel");
        json_t *sum = json_object_get(p->channels, name);
        json_int_t acts = answer_int(sum, "would_act") + answer_int(one, "would_act");
        json_int_t suppressed = answer_int(sum, "suppressed") + answer_int(one, "suppressed");
        json_t *both = json_pack("{s:I, s:I}", "would_act", acts, "suppressed", suppressed);
        json_object_set_new(p->channels, name, both);
    }
    const char *first = answer_text(answer, "first"), *last = answer_text(answer, "last");
    if (!p->first[0])
        snprintf(p->first, sizeof p->first, "%s", first);
    if (last[0])
        snprintf(p->last, sizeof p->last, "%s", last);
    snprintf(p->refused, sizeof p->refused, "%s", answer_text(answer, "refused"));
    snprintf(p->note, sizeof p->note, "%s", answer_text(answer, "note"));
}

static bool make_plan(struct link *l, const json_t *body, struct plan *p)
{
    struct progress bar;
    char position[24] = "0";
    bool end = false, ok = true;
    progress_init(&bar, "planning", 0, PROGRESS_COUNT);
    while (ok && !end) {
        json_t *asked = json_copy((json_t *)(uintptr_t)body);
        json_object_set_new(asked, "position", json_string(position));
        json_t *answer = link_send(l, "POST", "/v1/admin/replays/plan", asked);
        ok = answer != NULL;
        if (ok) {
            add_slice(p, answer);
            end = json_is_true(json_object_get(answer, "end"));
            snprintf(position, sizeof position, "%s", answer_text(answer, "position"));
            progress_update(&bar, p->sums[0]);
        }
        json_decref(answer);
    }
    if (bar.shown_us)
        progress_done(&bar);
    return ok;
}

static void print_plan(const json_t *body, const struct plan *p)
{
    char a[SHOWN_MAX], b[SHOWN_MAX];
    const char *type = answer_text(body, "type"), *from = answer_text(body, "from");
    printf("%s of %s, %s to %s\n", answer_text(body, "consumer"), type[0] ? type : "every type",
           from[0] ? from : "the oldest kept", answer_text(body, "to"));
    for (size_t i = 0; i < COUNTS; i++) {
        if (p->sums[i] > 0 || i == 0 || i == COUNTS - 1)
            printf("  %-38s %15s\n", counts[i].words, show_count(p->sums[i], a));
    }
    const char *name;
    json_t *one;
    json_object_foreach(p->channels, name, one)
    {
        printf("    %-36s %15s", name, show_count((uint64_t)answer_int(one, "would_act"), a));
        if (answer_int(one, "suppressed") > 0)
            printf("  (%s suppressed; --allow %s)",
                   show_count((uint64_t)answer_int(one, "suppressed"), b), name);
        printf("\n");
    }
    if (p->first[0])
        printf("  from event %s to %s\n", p->first, p->last);
    if (p->note[0])
        printf("note: %s\n", p->note);
}

static json_t *plan_json(const struct plan *p)
{
    json_t *out = json_object();
    for (size_t i = 0; i < COUNTS; i++)
        json_object_set_new(out, counts[i].key, json_integer((json_int_t)p->sums[i]));
    json_object_set(out, "channels", p->channels);
    json_object_set_new(out, "first", p->first[0] ? json_string(p->first) : json_null());
    json_object_set_new(out, "last", p->last[0] ? json_string(p->last) : json_null());
    json_object_set_new(out, "refused", p->refused[0] ? json_string(p->refused) : json_null());
    json_object_set_new(out, "note", p->note[0] ? json_string(p->note) : json_null());
    return out;
}

static int plan(struct invocation *in, struct link *l, const json_t *body)
{
    struct plan p = {.channels = json_object()};
    bool ok = make_plan(l, body, &p);
    if (ok && invocation_has(in, "json")) {
        json_t *out = plan_json(&p);
        show_json(out);
        json_decref(out);
    } else if (ok) {
        print_plan(body, &p);
    }
    if (ok && p.refused[0])
        ok = command_fail(in, "it could not be started like this: %s", p.refused) == EXIT_DONE;
    json_decref(p.channels);
    return ok ? EXIT_DONE : EXIT_FAILED;
}

/* ---- starting ---- */

static int start(struct invocation *in, struct link *l, json_t *body, int64_t rate)
{
    struct plan p = {.channels = json_object()};
    bool json = invocation_has(in, "json");
    bool ok = make_plan(l, body, &p);
    if (ok && !json)
        print_plan(body, &p);
    json_decref(p.channels);
    if (!ok)
        return EXIT_FAILED;
    if (p.sums[0] == 0 && !p.refused[0]) {
        fprintf(stderr, "nothing matches: no replay was started\n");
        return EXIT_DONE;
    }
    json_object_set_new(body, "total", json_integer((json_int_t)p.sums[0]));
    if (rate >= 0)
        json_object_set_new(body, "rate", json_integer((json_int_t)rate));
    json_t *job = link_send(l, "POST", "/v1/admin/replays", json_incref(body));
    if (!job)
        return EXIT_FAILED;
    if (!invocation_has(in, "detach"))
        return job_watch(in, l, &replays, job);
    if (json)
        show_json(job);
    else
        printf("replay %s runs%s: fantail replay watch %s\n", answer_text(job, "id"),
               link_is_remote(l) ? "" : " when the server does", answer_text(job, "id"));
    json_decref(job);
    return EXIT_DONE;
}

static int plan_or_start(struct invocation *in, bool begin)
{
    int64_t rate = -1;
    if (!invocation_number(in, "rate", 0, RATE_MAX, &rate))
        return EXIT_USAGE;
    json_t *body = selection(in);
    if (!body)
        return EXIT_USAGE;
    struct link *l = link_open(in, LINK_EXISTING);
    int code = !l ? EXIT_FAILED : begin ? start(in, l, body, rate) : plan(in, l, body);
    link_close(l);
    json_decref(body);
    return code;
}

static int run(struct invocation *in)
{
    const char *what = in->arguments[0];
    if (strcmp(what, "pause") == 0)
        return job_change_state(in, &replays, "paused");
    if (strcmp(what, "resume") == 0)
        return job_change_state(in, &replays, "running");
    if (strcmp(what, "cancel") == 0)
        return job_change_state(in, &replays, "cancelled");
    if (strcmp(what, "watch") == 0)
        return job_watch_id(in, &replays);
    if (in->argument_count > 1)
        return command_usage(in, "unexpected argument '%s'", in->arguments[1]);
    if (strcmp(what, "plan") == 0 || strcmp(what, "start") == 0)
        return plan_or_start(in, what[0] == 's');
    if (strcmp(what, "list") == 0)
        return job_list_all(in, &replays);
    return command_usage(in, "'%s' is not plan, start, pause, resume, cancel, list or watch", what);
}

const struct command command_replay = {
    .name = "replay",
    .arguments = "plan | start | list | watch ID | pause ID | resume ID | cancel ID",
    .summary = "deliver events again to one consumer",
    .about =
        "Selects events by consumer, type, time, account or dead letter and delivers them again, "
        "under\n"
        "their own ids, in a lane and at a rate of their own. 'plan' is a dry run; 'start' plans, "
        "then\n"
        "begins and shows how far it is (Ctrl-C leaves it running). Outside effects happen only on "
        "the\n"
        "channels named with --allow. It rests while live work is late, and survives a restart.\n"
        "Times are 2026-11-15T08:00:00Z, or 2h for two hours ago (s, m, h, d).",
    .examples = "  fantail replay plan --consumer timelines --from 2h\n"
                "  fantail replay start --consumer timelines --type post.created --from 2h --rate "
                "500\n"
                "  fantail replay start --consumer backfill --dead UNAVAILABLE --detach\n"
                "  fantail replay list\n  fantail replay pause 7266382940364193792",
    .arguments_min = 1,
    .arguments_max = 2,
    .options = {{"consumer", "NAME", "whose deliveries; required"},
                {"type", "TYPE", "only events of this type, such as post.created"},
                {"from", "TIME", "from this moment on (default: the oldest kept)"},
                {"to", "TIME", "up to this moment (default: now)"},
                {"key", "ID", "only events of this account"},
                {"dead", "REASON", "only events with a dead letter for REASON; '*' for any"},
                {"allow", "CHANNEL", "may use this outside channel; may be repeated"},
                {"rate", "N", "events a second (default 1000); 0: no limit"},
                {"accept-duplicates", NULL, "also what is older than the duplicate memory"},
                {"detach", NULL, "start: do not wait for the end"},
                {"json", NULL, "as JSON"}},
    .run = run,
};
