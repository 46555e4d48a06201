/* `fantail status`: what the engine has to do, and how the parts are. */
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "cmd/commands.h"
#include "cmd/link.h"
#include "ops/progress.h"

enum { WATCH_SECONDS = 2 };

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

static const char *span(int64_t ms, char out[32])
{
    int64_t s = ms / 1000;
    if (ms <= 0)
        snprintf(out, 32, "-");
    else if (ms < 1000)
        snprintf(out, 32, "%lld ms", (long long)ms);
    else if (s < 120)
        snprintf(out, 32, "%lld s", (long long)s);
    else if (s < 7200)
        snprintf(out, 32, "%lld min", (long long)(s / 60));
    else if (s < 172800)
        snprintf(out, 32, "%lld h", (long long)(s / 3600));
    else
        snprintf(out, 32, "%lld days", (long long)(s / 86400));
    return out;
}

static void print_lanes(const json_t *engine)
{
    char a[32], b[32], c[32], d[32], e[32], f[32];
    printf("%-9s %10s %10s %10s %14s %12s %8s\n", "lane", "backlog", "in flight", "oldest",
           "delivered", "repeated", "failed");
    size_t i;
    json_t *lane;
    json_array_foreach(json_object_get(engine, "lanes"), i, lane)
    {
        printf("%-9s %10s %10s %10s %14s %12s %8s\n", answer_text(lane, "name"),
               count(lane, "backlog", a), count(lane, "in_flight", b),
               span(answer_int(lane, "oldest_age_ms"), c), count(lane, "delivered", d),
               count(lane, "repeated", e), count(lane, "failed", f));
    }
    printf("\n%-9s %s undone, oldest %s; %s done since the start\n", "events",
           count(engine, "undone", a), span(answer_int(engine, "oldest_undone_ms"), b),
           count(engine, "events_done", c));
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
    printf("%-9s %s connections, %s requests\n", "http", count(http, "connections", a),
           count(http, "requests", b));
    printf("%-9s %s followers%s\n", "celebrity", count(celebrity, "threshold", a),
           json_is_true(json_object_get(celebrity, "adaptive")) ? ", adaptive" : "");
    printf("%-9s %s feeds compared with truth, %s wrong\n", "audit", count(audit, "feeds", a),
           count(audit, "drift", b));
}

static bool show(struct invocation *in, struct link *l)
{
    json_t *status = link_get(l, "/v1/admin/status");
    if (!status)
        return false;
    if (invocation_has(in, "json")) {
        json_dumpf(status, stdout, invocation_has(in, "watch") ? JSON_COMPACT : JSON_INDENT(2));
        printf("\n");
    } else {
        char up[32];
        bool terminal = invocation_has(in, "watch") && isatty(STDOUT_FILENO);
        printf("%sFantail %s on %s, %s\n\n", terminal ? "\033[H\033[2J" : "",
               answer_text(status, "version"), in->settings.data,
               link_is_remote(l) ? span(answer_int(status, "uptime_ms"), up) : "not serving");
        print_lanes(json_object_get(status, "engine"));
        print_rest(status);
    }
    json_decref(status);
    return fflush(stdout) == 0;
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
    .summary = "show lanes, backlog, oldest age and how the parts are",
    .about = "Shows for each lane how much waits, how old the oldest of it is and what was "
             "delivered; then the\n"
             "views, caches, store and the celebrity threshold.",
    .examples = "  fantail status\n  fantail status --watch\n  fantail status --json",
    .options = {{"json", NULL, "as one JSON object"}, {"watch", NULL, "again every two seconds"}},
    .run = run,
};
