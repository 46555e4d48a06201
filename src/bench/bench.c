/* The bench command: options, output, and the choice of what to measure. */
#include "bench/bench.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/check.h"
#include "base/clock.h"
#include "cmd/command.h"

enum { NUMBERS_MAX = 64 };

static struct {
    char name[48];
    double value;
    const char *unit;
} numbers[NUMBERS_MAX];
static size_t number_count;

static const struct {
    const char *name;
    int (*run)(struct bench *b);
    int64_t accounts;
} kinds[] = {
    {"fanout", bench_fan_out, 1000000}, {"feed", bench_feed, 10000},
    {"post", bench_post, 10000},        {"mixed", bench_mixed, 1000000},
    {"size", bench_size, 1000000},      {"relay", bench_relay, 10000},
    {"backlog", bench_backlog, 10000},  {"group", bench_group, 125000},
    {"outside", bench_outside, 10},     {"live", bench_live, 10000},
};

double bench_now_s(void)
{
    return (double)clock_mono_us(clock_system()) / 1e6;
}

void bench_say(const struct bench *b, const char *format, ...)
{
    (void)b;
    va_list args;
    va_start(args, format);
    vfprintf(stderr, format, args);
    va_end(args);
    fputc('\n', stderr);
}

void bench_number(struct bench *b, const char *name, double value, const char *unit)
{
    CHECK(number_count < NUMBERS_MAX && strlen(name) < sizeof numbers[0].name);
    memcpy(numbers[number_count].name, name, strlen(name) + 1);
    numbers[number_count].value = value;
    numbers[number_count].unit = unit;
    number_count++;
    if (!b->json) {
        printf("%-28s %16.2f  %s\n", name, value, unit);
        fflush(stdout);
    }
}

static int compare_doubles(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

double bench_median(double *values, size_t n)
{
    if (n == 0)
        return 0;
    qsort(values, n, sizeof *values, compare_doubles);
    return n % 2 ? values[n / 2] : (values[n / 2 - 1] + values[n / 2]) / 2;
}

/* Numbers named "sweep.FOLLOWERS" become the array "sweep". */
static void print_json(const char *kind)
{
    printf("{\"bench\":\"%s\"", kind);
    for (size_t i = 0; i < number_count; i++) {
        if (strncmp(numbers[i].name, "sweep.", 6) != 0)
            printf(",\"%s\":%.10g", numbers[i].name, numbers[i].value);
    }
    bool first = true;
    for (size_t i = 0; i < number_count; i++) {
        if (strncmp(numbers[i].name, "sweep.", 6) != 0)
            continue;
        printf("%s{\"followers\":%s,\"ms\":%.10g}", first ? ",\"sweep\":[" : ",",
               numbers[i].name + 6, numbers[i].value);
        first = false;
    }
    printf("%s}\n", first ? "" : "]");
}

static bool read_options(struct bench *b, const struct invocation *in)
{
    return invocation_number(in, "accounts", 1000, 5000000, &b->accounts) &&
           invocation_number(in, "followers", 100, 5000000, &b->followers) &&
           invocation_number(in, "entries", 0, 1000, &b->entries) &&
           invocation_number(in, "connections", 1, 4096, &b->connections) &&
           invocation_number(in, "seconds", 1, 600, &b->seconds) &&
           invocation_number(in, "rounds", 1, 100, &b->rounds) &&
           invocation_number(in, "events", 1000, 20000000, &b->events);
}

static int run_bench(struct invocation *in)
{
    struct bench b = {
        .in = in,
        .settings = in->settings,
        .followers = 800000,
        .entries = 200,
        .connections = 64,
        .seconds = 5,
        .rounds = 3,
        .events = 1000000,
        .peer = invocation_value(in, "peer"),
        .json = invocation_has(in, "json"),
    };
    for (size_t i = 0; i < COUNT_OF(kinds); i++) {
        if (strcmp(in->arguments[0], kinds[i].name) != 0)
            continue;
        b.accounts = kinds[i].accounts;
        if (!read_options(&b, in))
            return EXIT_USAGE;
        if (b.followers > b.accounts * 8 / 10)
            b.followers = b.accounts * 8 / 10;
        int code = kinds[i].run(&b);
        if (code == EXIT_DONE && b.json)
            print_json(kinds[i].name);
        return code;
    }
    return command_usage(
        in, "'%s' is not fanout, feed, post, mixed, size, relay, backlog, group, live or outside",
        in->arguments[0]);
}

const struct command command_bench = {
    .name = "bench",
    .arguments = "fanout|feed|post|mixed|size|relay|backlog|group|live|outside",
    .summary = "measure fan-out, feeds, posts, groups and the engine on this machine",
    .about =
        "Measures the real path in a temporary data folder: the model, the durable commit, the "
        "engine; feed, post, mixed and group over HTTP against a server process of their own, on "
        "loopback.\n"
        "\n"
        "  fanout  one post to 800,000 of 1,000,000 accounts that hold 200 entries each, a sweep "
        "over\n"
        "          follower counts, and a stream of 10,000 posts to 200 followers each\n"
        "  feed    GET /v1/feed: peak rate, latency at 30% of it, the same with 50 celebrities "
        "followed\n"
        "  post    POST /v1/posts, durable: peak rate, latency at 30% of it\n"
        "  mixed   latency of other people's posts while fan-outs to 800,000 run back to back\n"
        "  size    1,000,000 accounts with 20,000,000 edges and timelines of 200: memory, restart "
        "times\n"
        "  relay   small events from their commit until they are settled; retries; what freshness "
        "costs\n"
        "          with few and with many events waiting\n"
        "  backlog how fast 1,000,000 waiting events drain, and what live posts notice meanwhile\n"
        "  group   messages/s of one busy group and of 10,000; one message into 100,000 inboxes, "
        "and what the\n"
        "          next one of that group notices; GET /v1/inbox of people with 1,000 groups\n"
        "  live    one message of a group of 10,000, and one post to as many followers, all of "
        "them "
        "connected:\n"
        "          until the last has its live event\n"
        "  outside deliveries/s to another server, each once; how late timers fire while many wait",
    .examples = "  fantail bench fanout\n"
                "  fantail bench feed --accounts 1000000 --json\n",
    .arguments_min = 1,
    .arguments_max = 1,
    .options =
        {
            {"json", NULL, "one JSON line instead of a table"},
            {"accounts", "N", "accounts in the world"},
            {"followers", "N", "followers of the large author (800000); group: members (100000)"},
            {"entries", "N", "entries in each timeline beforehand (200)"},
            {"connections", "N", "HTTP connections (64)"},
            {"seconds", "N", "length of one HTTP measurement (5)"},
            {"rounds", "N", "repetitions; medians are reported (3)"},
            {"events", "N", "relay, backlog: events that wait; outside: timers (1000000)"},
            {"peer", "URL",
             "feed: another HTTP server to measure in turn with the same client; live: another "
             "fantail program to measure instead"},
        },
    .run = run_bench,
};
