/* `fantail status`: what the engine has to do, and how the parts are. */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "cmd/commands.h"
#include "cmd/link.h"
#include "cmd/show.h"
#include "ops/progress.h"

enum { WATCH_SECONDS = 2, HOT_SHOWN = 5 };

static const char *count(const json_t *object, const char *key, char out[32])
{
    progress_print_count((uint64_t)answer_int(object, key), out);
    return out;
}

static const char *bytes(const json_t *object, const char *key, char out[32])
{
    progress_print_bytes((uint64_t)answer_int(object, key), out);
    return out;
}

static void print_lanes(const json_t *engine)
{
    char a[32], b[32], c[32], d[32], e[32], f[32];
    printf("\n%-9s %8s %9s %8s %13s %11s %8s\n", "lane", "backlog", "in flight", "oldest",
           "delivered", "repeated", "failed");
    size_t i;
    json_t *lane;
    json_array_foreach(json_object_get(engine, "lanes"), i, lane)
    {
        const json_t *breaker = json_object_get(lane, "breaker");
        const char *state = answer_text(breaker, "state"), *reason = answer_text(breaker, "reason");
        printf("%-9s %8s %9s %8s %13s %11s %8s", answer_text(lane, "name"),
               count(lane, "backlog", a), count(lane, "in_flight", b),
               show_span(answer_int(lane, "oldest_age_ms"), c), count(lane, "delivered", d),
               count(lane, "repeated", e), count(lane, "failed", f));
        if (state[0] && strcmp(state, "running") != 0)
            printf("  STOPPED%s%s", reason[0] ? ": " : " ", reason[0] ? reason : state);
        printf("\n");
    }
    printf("\n%-9s %s undone, oldest %s; %s done since the start\n", "events",
           count(engine, "undone", a), show_span(answer_int(engine, "oldest_undone_ms"), b),
           count(engine, "events_done", c));
}

/* Each state that has any, in the order in which an event passes them. */
static void print_states(const json_t *engine)
{
    static const char *const names[] = {"pending",   "published", "expanded", "delayed",
                                        "waiting",   "dead",      "parked",   "dropped",
                                        "discarded", "settled",   "archived"};
    const json_t *states = json_object_get(engine, "states");
    char a[32];
    const char *separator = "";
    printf("%-9s ", "states");
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        if (answer_int(states, names[i]) == 0)
            continue;
        printf("%s%s %s", separator, count(states, names[i], a), names[i]);
        separator = ", ";
    }
    printf("%s\n", separator[0] ? "" : "no events");
    const json_t *duplicates = json_object_get(engine, "duplicates");
    int64_t unknown = answer_int(duplicates, "unknown");
    int64_t keys = answer_int(engine, "blocked_keys");
    if (keys > 0)
        printf("%-9s %s behind a delivery on the books: fantail dead list --state delayed\n",
               "blocked", show_number((uint64_t)keys, "key waits", "keys wait", a));
    if (unknown > 0)
        printf("%-9s %s of unknown outcome: fantail dead groups\n", "unknown",
               show_number((uint64_t)unknown, "act", "acts", a));
}

static void print_headline(const json_t *status)
{
    char a[32], worst[32];
    const json_t *h = json_object_get(status, "headline"),
                 *brake = json_object_get(status, "brake");
    int64_t worst_ms = answer_int(h, "worst_ms");
    if (worst_ms > 0)
        printf("worst lag that people notice: %s: %s\n", show_span(worst_ms, worst),
               answer_text(h, "late_means"));
    else
        printf("nothing that people notice is late\n");
    if (answer_int(h, "dead") > 0)
        printf("%s for a decision: fantail dead groups\n",
               show_number((uint64_t)answer_int(h, "dead"), "dead letter waits",
                           "dead letters wait", a));
    int64_t parked =
        answer_int(json_object_get(json_object_get(status, "engine"), "states"), "parked");
    if (parked > 0)
        printf("%s, not read by this version: fantail dead groups\n",
               show_number((uint64_t)parked, "event is parked", "events are parked", a));
    if (answer_int(brake, "level") > 0)
        printf("AT RISK: %s; %s\n", answer_text(brake, "why"),
               answer_int(brake, "level") > 1 ? "nothing new is taken" : "bulk work rests");
}

/* ---- one node of many ---- */

static void join_roles(const json_t *roles, char *out, size_t size)
{
    struct buf text = buf_over(out, size);
    size_t i;
    json_t *role;
    json_array_foreach(roles, i, role)
    {
        buf_printf(&text, "%s%s", i ? "," : "", json_string_value(role));
    }
    out[text.len < size ? text.len : size - 1] = '\0';
}

static void print_part(const json_t *parts, const char *name, const char *separator)
{
    const json_t *part = json_object_get(parts, name);
    const char *state = answer_text(part, "state");
    bool up = strcmp(state, "up") == 0;
    printf("%s%s%s%s", answer_text(part, "kind"), up ? "" : " ", up ? "" : state, separator);
}

/* Where this is, who leads, and everybody when there are several. */
static void print_cluster(const json_t *status)
{
    const json_t *cluster = json_object_get(status, "cluster");
    const json_t *nodes = json_object_get(status, "nodes");
    if (!json_is_object(cluster))
        return;
    const json_t *leader = json_object_get(cluster, "leader"),
                 *parts = json_object_get(cluster, "parts");
    printf("node %lld, ", (long long)answer_int(cluster, "node"));
    if (json_is_integer(leader))
        printf("node %lld leads in term %lld; ", (long long)json_integer_value(leader),
               (long long)answer_int(cluster, "term"));
    else
        printf("NOBODY LEADS; ");
    print_part(parts, "db", ", ");
    print_part(parts, "views", ", ");
    print_part(parts, "bus", "\n");
    if (json_is_true(json_object_get(cluster, "aside")))
        printf("THIS NODE STANDS ASIDE: it refuses writes until it reaches its servers again\n");
    if (json_array_size(nodes) < 2)
        return;
    size_t i;
    json_t *node;
    char roles[64], silent[SHOWN_MAX], up[SHOWN_MAX];
    printf("  %4s %-8s %-25s %8s %8s %-9s %s\n", "node", "is", "roles", "silent", "up", "version",
           "address");
    json_array_foreach(nodes, i, node)
    {
        const char *state = answer_text(node, "state");
        join_roles(json_object_get(node, "roles"), roles, sizeof roles);
        bool gone = strcmp(state, "gone") == 0;
        if (gone && json_is_true(json_object_get(node, "left")))
            state = "left";
        printf("%c %4lld %-8s %-25s %8s %8s %-9s %s\n",
               json_is_true(json_object_get(node, "leads")) ? '*' : ' ',
               (long long)answer_int(node, "number"), state, roles,
               show_span(answer_int(node, "silent_ms"), silent),
               gone ? "-" : show_since(answer_text(node, "started_at"), show_now_ms(), up),
               answer_text(node, "version"), answer_text(node, "address"));
    }
    printf("  * leads\n\n");
}

/* Worst first, as the server sorts them. */
static void print_freshness(const json_t *freshness)
{
    char a[32], b[32], c[32], d[32], e[32];
    size_t i;
    json_t *cell;
    printf("\n%-10s %-15s %-7s %-7s %8s %8s %8s %6s\n", "consumer", "type", "lane", "is", "oldest",
           "target", "backlog", "dead");
    json_array_foreach(json_object_get(freshness, "cells"), i, cell)
    {
        if (answer_int(cell, "target_ms") == 0 && answer_int(cell, "backlog") == 0)
            continue; /* a replay lane at rest */
        bool never = json_is_null(json_object_get(cell, "catch_up_ms"));
        printf("%-10s %-15s %-7s %-7s %8s %8s %8s %6s", answer_text(cell, "consumer"),
               answer_text(cell, "type"), answer_text(cell, "lane"), answer_text(cell, "verdict"),
               show_span(answer_int(cell, "oldest_age_ms"), a),
               show_span(answer_int(cell, "target_ms"), b), count(cell, "backlog", c),
               count(cell, "dead", d));
        int64_t retried = answer_int(cell, "delayed") + answer_int(cell, "waiting");
        bool green = strcmp(answer_text(cell, "verdict"), "green") == 0;
        if (retried > 0)
            printf("  %s on the books", show_count((uint64_t)retried, e));
        if (!green && answer_int(cell, "backlog") > 0)
            printf("  caught up %s%s", never ? "never" : "in ",
                   never ? "" : show_span(answer_int(cell, "catch_up_ms"), e));
        printf("\n");
    }
}

/* Groups: how fast entries get their numbers on this node, and, which is another question, how late
 * inboxes are by the leader's engine. */
static void print_groups(const json_t *status)
{
    char a[32], b[32], c[32];
    size_t i;
    json_t *one;
    const json_t *groups = json_object_get(status, "groups"),
                 *inboxes = json_object_get(status, "inboxes");
    printf("%-9s %.0f entries/s, sequenced in %.1f ms (p50) and %.1f ms (p99)", "groups",
           json_number_value(json_object_get(groups, "per_second")),
           json_number_value(json_object_get(groups, "lag_p50_ms")),
           json_number_value(json_object_get(groups, "lag_p99_ms")));
    if (answer_int(groups, "limited") > 0)
        printf("; %s refused: their group wrote too much", count(groups, "limited", a));
    printf("\n");
    if (json_is_object(inboxes))
        printf("%-9s oldest undelivered %s, %s not written at the first try\n", "inboxes",
               show_span(answer_int(inboxes, "lag_ms"), a),
               show_number((uint64_t)answer_int(inboxes, "failed"), "batch", "batches", b));
    json_array_foreach(json_object_get(inboxes, "lanes"), i, one)
    {
        if (answer_int(one, "backlog") + answer_int(one, "failed") + answer_int(one, "dead") == 0)
            continue;
        printf("%-9s %s in %s: oldest %s, %s waiting, %s failed\n", "",
               answer_text(one, "consumer"), answer_text(one, "lane"),
               show_span(answer_int(one, "lag_ms"), a), count(one, "backlog", b),
               count(one, "failed", c));
    }
    const json_t *hot = json_object_get(groups, "hot");
    if (json_array_size(hot) > 0)
        printf("%-9s", "hot");
    json_array_foreach(hot, i, one)
    {
        if (i < HOT_SHOWN)
            printf("%s %s at %.1f/s", i ? "," : "", answer_text(one, "group_id"),
                   json_number_value(json_object_get(one, "per_second")));
    }
    if (json_array_size(hot) > HOT_SHOWN)
        printf(", %zu more: --json", json_array_size(hot) - HOT_SHOWN);
    printf("%s", json_array_size(hot) > 0 ? "\n" : "");
}

static void print_rest(const json_t *status)
{
    char a[32], b[32], c[32], d[32], e[32];
    const json_t *views = json_object_get(status, "views"),
                 *cards = json_object_get(status, "cards");
    const json_t *pages = json_object_get(status, "pages");
    const json_t *db = json_object_get(status, "db"), *http = json_object_get(status, "http");
    const json_t *audit = json_object_get(status, "audit");
    const json_t *celebrity = json_object_get(status, "celebrity");
    printf("%-9s %s accounts, %s follows, %s timelines with %s entries, %s\n", "views",
           count(views, "accounts", a), count(views, "follows", b), count(views, "timelines", c),
           count(views, "entries", d), bytes(views, "bytes", e));
    const char *saved = answer_text(views, "saved_at");
    printf("%-9s %s\n", "snapshot", saved[0] ? saved : "none yet");
    printf("%-9s %s posts, hit rate %.1f%%, %s of %s\n", "cards", count(cards, "posts", a),
           100 * json_number_value(json_object_get(cards, "hit_rate")), bytes(cards, "bytes", b),
           bytes(cards, "bytes_max", c));
    printf("%-9s %s first pages, hit rate %.1f%%, %s of %s\n", "pages", count(pages, "pages", a),
           100 * json_number_value(json_object_get(pages, "hit_rate")), bytes(pages, "bytes", b),
           bytes(pages, "bytes_max", c));
    printf("%-9s %s commits, %s waiting, file %s, log %s%s\n", "store", count(db, "commits", a),
           count(db, "queue_depth", b), bytes(db, "file_bytes", c), bytes(db, "wal_bytes", d),
           json_is_true(json_object_get(db, "full")) ? ", FULL" : "");
    printf("%-9s %s, %s\n", "http",
           show_number((uint64_t)answer_int(http, "connections"), "connection", "connections", a),
           show_number((uint64_t)answer_int(http, "requests"), "request", "requests", b));
    printf("%-9s %s followers%s\n", "celebrity", count(celebrity, "threshold", a),
           json_is_true(json_object_get(celebrity, "adaptive")) ? ", adaptive" : "");
    printf("%-9s %s feeds and %s inboxes compared with truth, %s wrong\n", "audit",
           count(audit, "feeds", a), count(audit, "inboxes", c), count(audit, "drift", b));
}

/* The status with what belongs to it: the freshness of the leader's engine, unless nobody leads,
 * and of several nodes the list. */
static json_t *ask_all(struct link *l)
{
    json_t *status = link_get(l, "/v1/admin/status");
    bool led = json_is_object(json_object_get(status, "engine"));
    bool many = json_is_object(json_object_get(status, "cluster"));
    json_t *freshness = led ? link_get(l, "/v1/admin/freshness") : NULL;
    bool complete = freshness || (many && !led);
    json_object_set_new(status, "freshness", freshness ? freshness : json_null());
    if (complete && many) {
        json_t *answer = link_get(l, "/v1/admin/nodes");
        complete = answer != NULL;
        json_object_set(status, "nodes", json_object_get(answer, "items"));
        json_decref(answer);
    }
    if (complete)
        return status;
    json_decref(status);
    return NULL;
}

static void print_engine(const json_t *status)
{
    const json_t *engine = json_object_get(status, "engine");
    if (!json_is_object(engine)) {
        printf("no node that leads answers: writes and reads go on, deliveries wait\n\n");
        return;
    }
    print_headline(status);
    print_freshness(json_object_get(status, "freshness"));
    print_lanes(engine);
    print_states(engine);
}

static bool show(struct invocation *in, struct link *l)
{
    json_t *status = ask_all(l);
    if (!status)
        return false;
    if (invocation_has(in, "json")) {
        json_dumpf(status, stdout, invocation_has(in, "watch") ? JSON_COMPACT : JSON_INDENT(2));
        printf("\n");
    } else {
        char up[32];
        bool terminal = invocation_has(in, "watch") && isatty(STDOUT_FILENO);
        printf("%sFantail %s on %s, %s\n", terminal ? "\033[H\033[2J" : "",
               answer_text(status, "version"), in->settings.data,
               link_is_remote(l) ? show_span(answer_int(status, "uptime_ms"), up) : "not serving");
        print_cluster(status);
        print_engine(status);
        print_groups(status);
        print_rest(status);
    }
    json_decref(status);
    if (fflush(stdout) == 0)
        return true;
    if (errno != EPIPE) { /* a reader that went away is dealt with at the end */
        command_fail(in, "cannot write the output: %s", strerror(errno));
        clearerr(stdout);
    }
    return false;
}

static int run(struct invocation *in)
{
    struct link *l = link_open(in, LINK_EXISTING);
    if (!l)
        return EXIT_FAILED;
    bool ok = show(in, l);
    while (ok && invocation_has(in, "watch")) {
        struct timespec pause = {.tv_sec = WATCH_SECONDS};
        nanosleep(&pause, NULL);
        ok = show(in, l);
    }
    link_close(l);
    return ok ? EXIT_DONE : EXIT_FAILED;
}

const struct command command_status = {
    .name = "status",
    .arguments = "",
    .summary = "show what is late, lanes, states and how the parts are",
    .about =
        "First the worst lag that people notice. Then for each consumer, event type and lane how "
        "old the\n"
        "oldest undone event is, against its target, worst first; for each lane how much waits "
        "and what was\n"
        "delivered; events by state; how fast groups get their numbers, how late inboxes are, "
        "which "
        "groups are\n"
        "busy; then the views, caches, store and the celebrity threshold.\n"
        "Where several nodes use one store, also which they are and who leads; the engine's part "
        "is "
        "the\n"
        "leader's, whatever node is asked, the rest is of the node that runs on the data folder.",
    .examples = "  fantail status\n  fantail status --watch\n  fantail status --json",
    .options = {{"json", NULL, "as one JSON object"}, {"watch", NULL, "again every two seconds"}},
    .run = run,
};
