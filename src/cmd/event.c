/* `fantail event ID`: one event's whole story, to read. */
#include <stdio.h>
#include <string.h>

#include "cmd/commands.h"
#include "cmd/link.h"
#include "cmd/show.h"

static void print_fact(const json_t *e, int64_t now_ms)
{
    char when[SHOWN_MAX];
    const char *actor = answer_text(e, "actor"), *object = answer_text(e, "object");
    const char *type = answer_text(e, "type"), *unread = answer_text(e, "unread");
    printf("event %s: %s, %s\n", answer_text(e, "id"), type[0] ? type : "of a type not known",
           answer_text(e, "state"));
    if (actor[0])
        printf("  by %s%s%s\n", actor, object[0] ? ", about " : "", object);
    if (unread[0])
        printf("  this version of the program cannot read it: %s\n", unread);
    printf("  committed  %s (%s)\n", answer_text(e, "committed_at"),
           show_when(answer_text(e, "committed_at"), now_ms, when));
    static const char *const steps[][2] = {{"published_at", "published"}, {"done_at", "done"}};
    for (size_t i = 0; i < 2; i++) {
        const char *at = answer_text(e, steps[i][0]);
        if (at[0])
            printf("  %-10s %s (%s)\n", steps[i][1], at, show_when(at, now_ms, when));
    }
}

static void print_rules(const json_t *e)
{
    size_t i;
    json_t *rule;
    json_array_foreach(json_object_get(e, "rules"), i, rule)
    {
        if (json_is_true(json_object_get(rule, "wanted")))
            printf("  for %s, lane %s\n", answer_text(rule, "consumer"), answer_text(rule, "lane"));
        else
            printf("  not for %s: %s\n", answer_text(rule, "consumer"),
                   answer_text(rule, "why_not"));
    }
}

static void print_work(const json_t *e)
{
    char a[SHOWN_MAX], b[SHOWN_MAX], c[SHOWN_MAX], d[SHOWN_MAX];
    const json_t *batches = json_object_get(e, "batches");
    size_t i;
    json_t *unit;
    if (answer_int(batches, "count") > 0)
        printf("  delivered to %s in %s: %s changed something, %s skipped%s\n",
               show_number((uint64_t)answer_int(batches, "members"), "account", "accounts", a),
               show_number((uint64_t)answer_int(batches, "count"), "batch", "batches", b),
               show_count((uint64_t)answer_int(batches, "delivered"), c),
               show_count((uint64_t)answer_int(batches, "skipped"), d),
               json_is_true(json_object_get(batches, "complete"))
                   ? ""
                   : " (the trace does not reach back to its beginning)");
    json_array_foreach(json_object_get(e, "in_flight"), i, unit)
    {
        printf("  in flight: %s, lane %s, part %s, after %s: %s\n", answer_text(unit, "consumer"),
               answer_text(unit, "lane"), answer_text(unit, "part"), answer_text(unit, "cursor"),
               answer_text(unit, "state"));
    }
}

static void print_deliveries(const json_t *e, int64_t now_ms)
{
    const json_t *rows = json_object_get(e, "deliveries");
    char a[SHOWN_MAX], b[SHOWN_MAX];
    size_t i, k;
    json_t *d, *try;
    if (json_array_size(rows) > 0)
        printf("on the books:\n");
    json_array_foreach(rows, i, d)
    {
        const char *consumer = answer_text(d, "consumer"), *detail = answer_text(d, "detail");
        printf("  %s: %s, %s, after %s; %s%s%s", consumer[0] ? consumer : "the event itself",
               answer_text(d, "state"), show_when(answer_text(d, "changed_at"), now_ms, a),
               show_number((uint64_t)answer_int(d, "tries"), "try", "tries", b),
               answer_text(d, "reason"), detail[0] ? ": " : "", detail);
        if (answer_text(d, "due_at")[0])
            printf("; next try %s", show_when(answer_text(d, "due_at"), now_ms, b));
        printf(" (delivery %s)\n", answer_text(d, "id"));
        json_array_foreach(json_object_get(d, "history"), k, try)
        {
            printf("    %-11s %s\n", show_when(answer_text(try, "at"), now_ms, a),
                   answer_text(try, "reason"));
        }
    }
}

/* The number of a record means something else for each kind of it (pipe/trace.h). */
static void print_amount(const json_t *r, bool follows)
{
    const char *kind = answer_text(r, "kind"), *separator = follows ? ", " : " ";
    int64_t n = answer_int(r, "n"), done = answer_int(r, "done");
    char text[SHOWN_MAX];
    if (n <= 0)
        return;
    if (strcmp(kind, "published") == 0)
        printf("%s%s", separator, show_number((uint64_t)n, "message", "messages", text));
    else if (strcmp(kind, "failed") == 0)
        printf("%stry %lld", separator, (long long)n);
    else if (strcmp(kind, "dead") == 0 || strcmp(kind, "dropped") == 0)
        printf("%safter %s", separator, show_number((uint64_t)n, "try", "tries", text));
    else if (strcmp(kind, "delayed") == 0)
        printf("%sby %s", separator, show_span(n, text));
    else
        printf("%s%s", separator, show_number((uint64_t)n, "account", "accounts", text));
    if (done > 0)
        printf(" (%s changed something)", show_count((uint64_t)done, text));
}

static void print_trace(const json_t *e, int64_t now_ms)
{
    const json_t *trace = json_object_get(e, "trace");
    char when[SHOWN_MAX];
    size_t i;
    json_t *r;
    if (json_array_size(trace) > 0)
        printf("what happened:\n");
    json_array_foreach(trace, i, r)
    {
        const char *consumer = answer_text(r, "consumer"), *why = answer_text(r, "why");
        printf("  %-11s %-11s", show_when(answer_text(r, "at"), now_ms, when),
               answer_text(r, "kind"));
        if (consumer[0])
            printf(" %s, lane %s", consumer, answer_text(r, "lane"));
        print_amount(r, consumer[0] != '\0');
        printf("%s%s\n", why[0] ? ": " : "", why);
    }
    if (answer_int(e, "trace_left_out") > 0)
        printf("  … and %lld more between these\n", (long long)answer_int(e, "trace_left_out"));
}

static void print_next(const json_t *e)
{
    const char *state = answer_text(e, "state"), *id = answer_text(e, "id");
    if (strcmp(state, "dead") == 0)
        printf("next: fantail dead redrive --event %s\n"
               "or:   fantail dead discard --event %s --why TEXT\n",
               id, id);
    else if (strcmp(state, "parked") == 0)
        printf("next: after an upgrade, fantail dead release --event %s\n", id);
}

static int run(struct invocation *in)
{
    uint64_t id;
    char target[80];
    if (!str_parse_u64(str_of(in->arguments[0]), &id))
        return command_usage(in, "'%s' is not the id of an event", in->arguments[0]);
    snprintf(target, sizeof target, "/v1/admin/events/%llu", (unsigned long long)id);
    struct link *l = link_open(in, LINK_EXISTING);
    json_t *e = l ? link_get(l, target) : NULL;
    link_close(l);
    if (!e)
        return EXIT_FAILED;
    int64_t now_ms = show_now_ms();
    if (invocation_has(in, "json")) {
        show_json(e);
    } else {
        print_fact(e, now_ms);
        print_rules(e);
        print_work(e);
        print_deliveries(e, now_ms);
        print_trace(e, now_ms);
        print_next(e);
    }
    json_decref(e);
    return EXIT_DONE;
}

const struct command command_event = {
    .name = "event",
    .arguments = "ID",
    .summary = "tell one event's whole story",
    .about =
        "Prints what became true, when it was committed and published, who should get it and who "
        "not,\n"
        "what was delivered, each try that failed and what becomes of it, and every decision "
        "not to\n"
        "act, with its reason. Ids of events are in 'fantail dead list' and in GET /v1/events.",
    .examples = "  fantail event 7266382940364193792",
    .arguments_min = 1,
    .arguments_max = 1,
    .options = {{"json", NULL, "as one JSON object"}},
    .run = run,
};
