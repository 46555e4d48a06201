/* `fantail dead list | groups | redrive | discard | release`: deliveries that did not succeed, and
 * what is to become of them. */
#include <stdio.h>
#include <string.h>

#include "cmd/commands.h"
#include "cmd/link.h"
#include "cmd/show.h"
#include "ops/progress.h"

enum { LIST_DEFAULT = 50, LIST_MAX = 100000, PAGE_MAX = 200, RATE_MAX = 1000000 };

static const char *const filters[] = {"event", "key", "reason", "consumer", "type"};
enum { FILTERS = sizeof filters / sizeof *filters };

/* ---- looking ---- */

static void print_row(const json_t *d, int64_t now_ms)
{
    char when[SHOWN_MAX], due[SHOWN_MAX];
    const char *consumer = answer_text(d, "consumer"), *detail = answer_text(d, "detail");
    printf("%-18s %-9s %-15s %-15s %5lld %-10s", answer_text(d, "event"),
           consumer[0] ? consumer : "-", answer_text(d, "type"), answer_text(d, "reason"),
           (long long)answer_int(d, "tries"), show_when(answer_text(d, "opened_at"), now_ms, when));
    if (answer_text(d, "due_at")[0])
        printf("  next try %s", show_when(answer_text(d, "due_at"), now_ms, due));
    if (detail[0])
        printf("  %s", detail);
    printf("\n");
}

static void list_target(const struct invocation *in, int64_t limit, const char *cursor,
                        struct buf *target)
{
    const char *state = invocation_value(in, "state");
    buf_printf(target, "/v1/admin/deliveries?limit=%lld&state=",
               (long long)(limit < PAGE_MAX ? limit : PAGE_MAX));
    link_encode(target, state ? state : "dead");
    for (size_t i = 0; i < FILTERS; i++) {
        const char *value = invocation_value(in, filters[i]);
        if (!value)
            continue;
        buf_printf(target, "&%s=", filters[i]);
        link_encode(target, value);
    }
    if (cursor[0])
        buf_printf(target, "&cursor=%s", cursor);
    buf_append(target, "", 1);
}

/* One page. *more: there is another, at cursor. */
static bool list_page(const struct invocation *in, struct link *l, json_t *all, int64_t left,
                      char cursor[80], bool *more)
{
    struct buf target;
    buf_init(&target, 0);
    list_target(in, left, cursor, &target);
    json_t *page = link_get(l, target.ptr);
    buf_done(&target);
    if (!page)
        return false;
    json_array_extend(all, json_object_get(page, "items"));
    snprintf(cursor, 80, "%s", answer_text(page, "next_cursor"));
    *more = cursor[0] != '\0';
    json_decref(page);
    return true;
}

static int list(struct invocation *in)
{
    int64_t limit = LIST_DEFAULT;
    if (!invocation_number(in, "limit", 1, LIST_MAX, &limit))
        return EXIT_USAGE;
    struct link *l = link_open(in, LINK_EXISTING);
    if (!l)
        return EXIT_FAILED;
    json_t *all = json_array();
    char cursor[80] = "";
    bool more = true, ok = true;
    while (ok && more && (int64_t)json_array_size(all) < limit)
        ok = list_page(in, l, all, limit - (int64_t)json_array_size(all), cursor, &more);
    link_close(l);
    const char *state = invocation_value(in, "state");
    int64_t now_ms = show_now_ms();
    size_t i;
    json_t *d;
    if (ok && invocation_has(in, "json")) {
        show_json(all);
    } else if (ok && json_array_size(all) == 0) {
        printf("no %s deliveries match\n", state ? state : "dead");
    } else if (ok) {
        printf("%-18s %-9s %-15s %-15s %5s %s\n", "event", "consumer", "type", "reason", "tries",
               "since");
        json_array_foreach(all, i, d)
        {
            print_row(d, now_ms);
        }
        if (more)
            printf("there are more: --limit N shows N of them\n");
        printf("one event's story: fantail event ID\n");
    }
    json_decref(all);
    return ok ? EXIT_DONE : EXIT_FAILED;
}

static int groups(struct invocation *in)
{
    struct link *l = link_open(in, LINK_EXISTING);
    json_t *answer = l ? link_get(l, "/v1/admin/deliveries/groups") : NULL;
    link_close(l);
    if (!answer)
        return EXIT_FAILED;
    const json_t *items = json_object_get(answer, "items");
    int64_t now_ms = show_now_ms();
    char a[SHOWN_MAX], b[SHOWN_MAX], c[SHOWN_MAX];
    bool dead = false, parked = false;
    size_t i;
    json_t *g;
    if (invocation_has(in, "json")) {
        show_json(answer);
    } else if (json_array_size(items) == 0) {
        printf("no dead letters and nothing parked\n");
    } else {
        printf("%-6s %-15s %-9s %-15s %7s  %-10s %s\n", "state", "reason", "consumer", "type",
               "count", "newest", "oldest");
        json_array_foreach(items, i, g)
        {
            const char *consumer = answer_text(g, "consumer");
            bool is_parked = strcmp(answer_text(g, "state"), "parked") == 0;
            parked = parked || is_parked;
            dead = dead || !is_parked;
            printf("%-6s %-15s %-9s %-15s %7s  %-10s %s\n", answer_text(g, "state"),
                   answer_text(g, "reason"), consumer[0] ? consumer : "-", answer_text(g, "type"),
                   show_count((uint64_t)answer_int(g, "count"), a),
                   show_when(answer_text(g, "newest_at"), now_ms, b),
                   show_when(answer_text(g, "oldest_at"), now_ms, c));
        }
        if (dead)
            printf("dead, next: fantail dead redrive --reason REASON\n"
                   "        or: fantail dead discard --reason REASON --why TEXT\n");
        if (parked)
            printf("parked, after an upgrade: fantail dead release --all\n");
    }
    json_decref(answer);
    return EXIT_DONE;
}

/* ---- changing ---- */

/* NULL: a message was printed. */
static json_t *filter_body(const struct invocation *in)
{
    json_t *body = json_object();
    bool any = false, all = invocation_has(in, "all");
    static const char *const also[] = {"delivery", "state"};
    for (size_t i = 0; i < FILTERS + 2; i++) {
        const char *name = i < FILTERS ? filters[i] : also[i - FILTERS];
        const char *value = invocation_value(in, name);
        if (!value)
            continue;
        any = any || strcmp(name, "state") != 0;
        json_object_set_new(body, name, json_string(value));
    }
    if (all)
        json_object_set_new(body, "all", json_true());
    if (any != all)
        return body;
    command_usage(in,
                  any ? "either a filter or --all, not both"
                      : "say which: --event, --delivery, --key, --reason, --consumer or --type; "
                        "or --all for every one");
    json_decref(body);
    return NULL;
}

/* Slice by slice until everything that matches is changed. */
static bool change_all(struct link *l, const char *target, const json_t *body, uint64_t *changed)
{
    struct progress p;
    char next[100] = "";
    bool ok = true, more = true;
    progress_init(&p, "changing", 0, PROGRESS_COUNT);
    while (ok && more) {
        json_t *asked = json_copy((json_t *)(uintptr_t)body);
        if (next[0])
            json_object_set_new(asked, "next", json_string(next));
        json_t *answer = link_send(l, "POST", target, asked);
        ok = answer != NULL;
        *changed += (uint64_t)answer_int(answer, "changed");
        snprintf(next, sizeof next, "%s", answer_text(answer, "next"));
        more = next[0] != '\0';
        json_decref(answer);
        if (more)
            progress_update(&p, *changed);
    }
    if (p.shown_us)
        progress_done(&p);
    return ok;
}

struct verb {
    const char *name, *target, *done;
};

static int change(struct invocation *in, const struct verb *verb)
{
    int64_t rate = -1;
    const char *why = invocation_value(in, "why");
    bool discard = strcmp(verb->name, "discard") == 0;
    if (!invocation_number(in, "rate", 0, RATE_MAX, &rate))
        return EXIT_USAGE;
    if (discard && !why)
        return command_usage(in, "say why they are given up: --why TEXT; it is recorded with each");
    json_t *body = filter_body(in);
    if (!body)
        return EXIT_USAGE;
    if (rate >= 0 && strcmp(verb->name, "redrive") == 0)
        json_object_set_new(body, "rate", json_integer((json_int_t)rate));
    if (discard)
        json_object_set_new(body, "why", json_string(why));
    struct link *l = link_open(in, LINK_EXISTING);
    uint64_t changed = 0;
    char count[SHOWN_MAX];
    bool ok = l && change_all(l, verb->target, body, &changed);
    if (ok && invocation_has(in, "json"))
        printf("{\"changed\": %llu}\n", (unsigned long long)changed);
    else if (ok && changed == 0)
        printf("nothing that could be %s matches; see: fantail dead groups\n", verb->done);
    else if (l && (ok || changed > 0))
        printf("%s %s%s\n", show_count(changed, count), verb->done,
               ok ? "" : " before it failed; the same command goes on with the rest");
    link_close(l);
    json_decref(body);
    return ok ? EXIT_DONE : EXIT_FAILED;
}

/* An option that another of these commands has would seem to narrow this one, and does not. */
static bool options_fit(const struct invocation *in, const char *what)
{
    static const struct {
        const char *option, *commands; /* '|' after each */
    } uses[] = {
        {"reason", "list|redrive|discard|release|"},
        {"consumer", "list|redrive|discard|release|"},
        {"type", "list|redrive|discard|release|"},
        {"event", "list|redrive|discard|release|"},
        {"key", "list|redrive|discard|release|"},
        {"delivery", "redrive|discard|release|"},
        {"state", "list|discard|"},
        {"all", "redrive|discard|release|"},
        {"rate", "redrive|"},
        {"why", "discard|"},
        {"limit", "list|"},
    };
    char word[32];
    snprintf(word, sizeof word, "%.20s|", what);
    for (size_t i = 0; i < sizeof uses / sizeof *uses; i++) {
        if (invocation_has(in, uses[i].option) && !strstr(uses[i].commands, word)) {
            command_usage(in, "'dead %s' takes no --%s", what, uses[i].option);
            return false;
        }
    }
    return true;
}

static int run(struct invocation *in)
{
    static const struct verb verbs[] = {
        {"redrive", "/v1/admin/deliveries/redrive", "tried again"},
        {"discard", "/v1/admin/deliveries/discard", "discarded"},
        {"release", "/v1/admin/deliveries/release", "released"},
    };
    const char *what = in->arguments[0];
    if (strcmp(what, "list") == 0)
        return options_fit(in, what) ? list(in) : EXIT_USAGE;
    if (strcmp(what, "groups") == 0)
        return options_fit(in, what) ? groups(in) : EXIT_USAGE;
    for (size_t i = 0; i < sizeof verbs / sizeof *verbs; i++) {
        if (strcmp(what, verbs[i].name) == 0)
            return options_fit(in, what) ? change(in, &verbs[i]) : EXIT_USAGE;
    }
    return command_usage(in, "'%s' is not list, groups, redrive, discard or release", what);
}

const struct command command_dead = {
    .name = "dead",
    .arguments = "list | groups | redrive | discard | release",
    .summary = "dead letters: look, try again, give up",
    .about =
        "A delivery that used up its tries becomes a dead letter and waits for a decision; later "
        "events\n"
        "of its key wait behind it where order matters. 'redrive' tries them again, at a rate;\n"
        "'discard' gives them up and records why; 'release' takes up parked events that this "
        "version\n"
        "can read. Those three want a filter, or --all.",
    .examples =
        "  fantail dead groups\n  fantail dead list --reason UNAVAILABLE\n"
        "  fantail dead redrive --reason UNAVAILABLE --rate 200\n"
        "  fantail dead discard --event 7266382940364193792 --why 'asked for by the owner'\n"
        "  fantail dead release --all",
    .arguments_min = 1,
    .arguments_max = 1,
    .options = {{"reason", "REASON", "that failed for this, such as UNAVAILABLE"},
                {"consumer", "NAME", "of this consumer"},
                {"type", "TYPE", "of events of this type"},
                {"event", "ID", "of this event"},
                {"key", "ID", "of events of this account"},
                {"delivery", "ID", "this one alone (redrive, discard, release)"},
                {"state", "STATE", "list: in this state instead of dead; discard: only these"},
                {"all", NULL, "every one"},
                {"rate", "N", "redrive: so many a second (default 500); 0: all at once"},
                {"why", "TEXT", "discard: recorded with each"},
                {"limit", "N", "list: at most so many (default 50)"},
                {"json", NULL, "as JSON"}},
    .run = run,
};
