/* `fantail check`: compares feeds, inboxes, counters and the graph with truth, a slice of accounts
 * at a time. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/check.h"
#include "cmd/commands.h"
#include "cmd/link.h"
#include "ops/progress.h"

enum { SLICE = 100, DEPTH_DEFAULT = 200, DEPTH_MAX = 100000, SHOWN_MAX = 50, DRAIN_TRIES = 200 };

static const char *const summed[] = {"feeds",        "feed_errors", "inboxes",
                                     "inbox_errors", "counters",    "counter_errors",
                                     "edges",        "edge_errors", "repaired"};
enum {
    FEEDS,
    FEED_ERRORS,
    INBOXES,
    INBOX_ERRORS,
    COUNTERS,
    COUNTER_ERRORS,
    EDGES,
    EDGE_ERRORS,
    REPAIRED,
    SUMS
};

struct check {
    struct invocation *in;
    struct link *link;
    char from[24];
    int64_t limit, depth;
    bool repair, json;
    uint64_t sums[SUMS];
    uint64_t differences;
    json_t *kept; /* with --json: all of them */
};

/* Additions may lag while something is under way: wait a little, then compare anyway and say so. */
static bool await_drained(struct check *k)
{
    for (int tries = 0; tries < DRAIN_TRIES; tries++) {
        json_t *status = link_get(k->link, "/v1/admin/status");
        if (!status)
            return false;
        bool drained = json_is_true(json_object_get(json_object_get(status, "engine"), "drained"));
        json_decref(status);
        if (drained)
            return true;
        struct timespec pause = {.tv_nsec = 50 * 1000 * 1000};
        nanosleep(&pause, NULL);
    }
    fprintf(stderr, "note: the server is busy; feeds may show posts that are still on their way\n");
    return true;
}

static void show_difference(struct check *k, json_t *difference)
{
    if (k->kept)
        json_array_append(k->kept, difference);
    if (k->differences++ >= SHOWN_MAX || k->json)
        return;
    const char *separator = "", *key;
    json_t *value;
    json_object_foreach(difference, key, value)
    {
        char *text =
            json_is_string(value) ? NULL : json_dumps(value, JSON_ENCODE_ANY | JSON_COMPACT);
        printf("%s%s %s", separator, key, text ? text : json_string_value(value));
        separator = ", ";
        free(text);
    }
    printf("\n");
}

/* One slice. *more: there is another, at k->from. */
static bool check_slice(struct check *k, bool *more)
{
    json_t *answer =
        link_send(k->link, "POST", "/v1/admin/check",
                  json_pack("{s:s, s:I, s:I, s:b}", "from", k->from, "limit", (json_int_t)k->limit,
                            "depth", (json_int_t)k->depth, "repair", k->repair));
    if (!answer)
        return false;
    for (size_t i = 0; i < SUMS; i++)
        k->sums[i] += (uint64_t)answer_int(answer, summed[i]);
    size_t i;
    json_t *difference;
    json_array_foreach(json_object_get(answer, "differences"), i, difference)
    {
        show_difference(k, difference);
    }
    snprintf(k->from, sizeof(k->from), "%s", answer_text(answer, "next"));
    *more = k->from[0] != '\0' && strcmp(k->from, "0") != 0;
    json_decref(answer);
    return true;
}

static bool check_all(struct check *k)
{
    json_t *status = link_get(k->link, "/v1/admin/status");
    if (!status)
        return false;
    struct progress p;
    progress_init(&p, "checking",
                  (uint64_t)answer_int(json_object_get(status, "views"), "accounts"),
                  PROGRESS_COUNT);
    json_decref(status);
    bool more = true, ok = true;
    while (ok && more && !ferror(stdout)) {
        ok = check_slice(k, &more);
        progress_update(&p, k->sums[FEEDS]);
    }
    progress_done(&p);
    return ok;
}

static bool check_user(struct check *k, const char *user)
{
    uint64_t id;
    if (str_parse_u64(str_of(user), &id)) {
        snprintf(k->from, sizeof(k->from), "%llu", (unsigned long long)id);
    } else {
        struct buf target;
        buf_init(&target, 0);
        buf_printf(&target, "/v1/accounts?username=");
        link_encode(&target, user[0] == '@' ? user + 1 : user);
        buf_append(&target, "", 1);
        json_t *found = link_get(k->link, target.ptr);
        buf_done(&target);
        const json_t *items = json_object_get(found, "items");
        snprintf(k->from, sizeof(k->from), "%s",
                 answer_text(items ? json_array_get(items, 0) : found, "id"));
        json_decref(found);
        if (!found)
            return false;
        if (k->from[0] == '\0') {
            command_fail(k->in, "there is no account '%s'", user);
            return false;
        }
    }
    bool more;
    k->limit = 1;
    return check_slice(k, &more);
}

static void print_summary(const struct check *k)
{
    char a[32], b[32], c[32], d[32], e[32], f[32];
    if (k->json) {
        json_t *out = json_object();
        for (size_t i = 0; i < SUMS; i++)
            json_object_set_new(out, summed[i], json_integer((json_int_t)k->sums[i]));
        json_object_set(out, "differences", k->kept);
        json_dumpf(out, stdout, JSON_INDENT(2));
        printf("\n");
        json_decref(out);
        return;
    }
    if (k->differences > SHOWN_MAX)
        printf("(%llu more differences are not shown; see --json)\n",
               (unsigned long long)(k->differences - SHOWN_MAX));
    progress_print_count(k->sums[FEEDS], a);
    progress_print_count(k->sums[COUNTERS], b);
    progress_print_count(k->sums[EDGES], c);
    progress_print_count(k->differences, d);
    progress_print_count(k->sums[REPAIRED], e);
    progress_print_count(k->sums[INBOXES], f);
    printf("%s feeds, %s inboxes, %s counters, %s edges compared: %s differences", a, f, b, c, d);
    if (k->repair)
        printf(", %s repaired", e);
    printf("\n");
}

static int run(struct invocation *in)
{
    struct check k = {.in = in, .from = "0", .limit = SLICE, .depth = DEPTH_DEFAULT};
    const char *user = invocation_value(in, "user");
    if (user && invocation_has(in, "all"))
        return command_usage(in, "either --all or --user");
    if (!invocation_number(in, "depth", 1, DEPTH_MAX, &k.depth))
        return EXIT_USAGE;
    k.repair = invocation_has(in, "repair");
    k.json = invocation_has(in, "json");
    k.link = link_open(in, LINK_EXISTING);
    if (!k.link)
        return EXIT_FAILED;
    k.kept = k.json ? json_array() : NULL;
    bool ok = await_drained(&k) && (user ? check_user(&k, user) : check_all(&k));
    if (ok)
        print_summary(&k);
    json_decref(k.kept);
    link_close(k.link);
    return ok && k.differences == 0 ? EXIT_DONE : EXIT_FAILED;
}

const struct command command_check = {
    .name = "check",
    .arguments = "",
    .summary = "compare feeds, inboxes, counters and the graph with truth",
    .about = "Reads every feed and every inbox as its owner would and compares it with one plain "
             "query over the\n"
             "store; counts the edges behind every counter, and the entries and members behind "
             "those of groups;\n"
             "compares the graph in memory with the stored one. The exit code is 1 when something "
             "differs, also\n"
             "when it was repaired.",
    .examples =
        "  fantail check\n  fantail check --user ada --depth 1000\n  fantail check --repair",
    .options = {{"all", NULL, "everybody (the default)"},
                {"user", "USER", "one account, by name or id"},
                {"depth", "N", "how many posts of each feed, groups of each inbox (default 200)"},
                {"repair", NULL, "put right what differs"},
                {"json", NULL, "as one JSON object"}},
    .run = run,
};
