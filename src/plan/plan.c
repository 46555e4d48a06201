/* `fantail plan`: what a stall would cost and how long it would take to be over.
 *
 * The arithmetic is plan/capacity.c. Here the numbers are read, from options or from the server
 * that runs, and the answers shown.
 *
 * A server that keeps up shows how much it does, not how much it could do. So a measured rate
 * counts as a drain rate only where something waited while it was measured; elsewhere the drain is
 * unknown and what depends on it is shown as "?" instead of a guess. */
#include "plan/plan.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/check.h"
#include "base/json_out.h"
#include "cmd/command.h"
#include "cmd/control.h"
#include "ops/progress.h"

enum {
    MEASURE_SECONDS = 3,
    ENTRY_BYTES =
        100, /* a row of the dedup memory: 63 to 73 bytes in full pages, and pages are not full */
};

#define RATE_MAX     1e9
#define FAST_ENOUGH  1e12 /* stands for a drain that is not known */
#define BYTES_MAX    1e18
#define STALL_MAX_MS (INT64_C(3650) * 86400000)

/* ---- words ---- */

const char *plan_print_count(double n, char out[PLAN_TEXT_MAX])
{
    static const struct {
        double factor;
        const char *unit;
    } units[] = {{1e18, " E"}, {1e15, " P"}, {1e12, " T"}, {1e9, " G"}, {1e6, " M"}};
    double size = n < 0 ? -n : n;
    if (size >= 1e21) {
        snprintf(out, PLAN_TEXT_MAX, "%.1e", n);
        return out;
    }
    for (size_t i = 0; i < COUNT_OF(units); i++) {
        if (size < units[i].factor)
            continue;
        double value = n / units[i].factor, shown = size / units[i].factor;
        snprintf(out, PLAN_TEXT_MAX, "%.*f%s",
                 shown < 10    ? 2
                 : shown < 100 ? 1
                               : 0,
                 value, units[i].unit);
        return out;
    }
    if (size < 10 && size != (double)(int)size) {
        snprintf(out, PLAN_TEXT_MAX, "%.*f", size < 0.1 ? 2 : 1, n);
        return out;
    }
    char digits[32];
    progress_print_count((uint64_t)(size + 0.5), digits);
    snprintf(out, PLAN_TEXT_MAX, "%s%.20s", n < 0 ? "-" : "", digits);
    return out;
}

const char *plan_print_span(double s, char out[PLAN_TEXT_MAX])
{
    static const struct {
        double from, seconds;
        const char *unit;
    } units[] = {{172800, 86400, "days"}, {7200, 3600, "h"}, {120, 60, "min"}, {0, 1, "s"}};
    if (s < 0) {
        snprintf(out, PLAN_TEXT_MAX, "never");
        return out;
    }
    size_t i = 0;
    while (s < units[i].from)
        i++;
    double value = s / units[i].seconds;
    bool whole = value >= 10 || value < 0.05 || value == (double)(int)value;
    snprintf(out, PLAN_TEXT_MAX, "%.*f %s", whole ? 0 : 1, value, units[i].unit);
    return out;
}

static const char *count_or_unknown(bool known, double n, char out[PLAN_TEXT_MAX])
{
    return known ? plan_print_count(n, out) : "?";
}

/* ---- options ---- */

/* A plain decimal number: no sign, no exponent, nothing around it. */
static bool parse_rate(struct str text, double *out)
{
    char digits[32], *end;
    if (text.len == 0 || text.len >= sizeof digits || text.ptr[0] < '0' || text.ptr[0] > '9')
        return false;
    memcpy(digits, text.ptr, text.len);
    digits[text.len] = '\0';
    if (strspn(digits, "0123456789.") != text.len)
        return false;
    *out = strtod(digits, &end);
    return *end == '\0' && *out <= RATE_MAX;
}

static bool read_rate(const struct invocation *in, const char *option, double *out, bool *given)
{
    const char *text = invocation_value(in, option);
    *given = text != NULL;
    if (!text || parse_rate(str_of(text), out))
        return true;
    command_usage(in, "--%s: '%.40s' is not a number from 0 to 1000000000", option, text);
    return false;
}

static bool read_consumer(const struct invocation *in, const char *text, double entry_bytes,
                          struct plan *p)
{
    struct str rest = str_of(text), name = {0}, per_event = {0}, drain = {0};
    struct capacity_consumer c = {.bytes_per_entry = entry_bytes};
    bool valid = str_split(&rest, ':', &name) && name.len > 0 && name.len <= PLAN_NAME_MAX &&
                 str_is_utf8(name) && str_split(&rest, ':', &per_event) &&
                 parse_rate(per_event, &c.per_event) && str_split(&rest, ':', &drain) &&
                 parse_rate(drain, &c.drain) &&
                 (rest.len == 0 || (parse_rate(rest, &c.dedup_days) && c.dedup_days <= 3650));
    if (!valid) {
        command_usage(in,
                      "--consumer: '%.60s' is not NAME:PER_EVENT:DRAIN or "
                      "NAME:PER_EVENT:DRAIN:DEDUP_DAYS",
                      text);
        return false;
    }
    if (p->consumer_count == PLAN_CONSUMERS_MAX) {
        command_usage(in, "give at most %d consumers", PLAN_CONSUMERS_MAX);
        return false;
    }
    struct plan_consumer *to = &p->consumers[p->consumer_count++];
    to->question = c;
    to->drain_known = true;
    memcpy(to->name, name.ptr, name.len);
    return true;
}

/* ---- measuring ---- */

struct reading {
    double events; /* committed since the start */
    double taken;  /* of them, by the relay */
    double waiting;
};

static bool read_status(struct control *control, struct reading *out)
{
    json_t *status = control_get(control, "/v1/admin/status");
    if (!status)
        return false;
    const json_t *engine = json_object_get(status, "engine");
    const json_t *states = json_object_get(engine, "states");
    out->waiting = (double)answer_int(states, "pending");
    out->taken = (double)answer_int(engine, "events_taken");
    out->events = out->taken + out->waiting;
    json_decref(status);
    return true;
}

static struct plan_consumer *find_consumer(struct plan *p, const char *name)
{
    for (size_t i = 0; i < p->consumer_count; i++)
        if (strncmp(p->consumers[i].name, name, PLAN_NAME_MAX) == 0)
            return &p->consumers[i];
    return NULL;
}

/* Adds the measured rates of each consumer that no option describes: the sum of its cells (one for
 * each event type and lane). */
static bool read_cells(struct control *control, double inflow, struct plan *p)
{
    json_t *freshness = control_get(control, "/v1/admin/freshness");
    if (!freshness)
        return false;
    size_t named = p->consumer_count, i;
    double waiting[PLAN_CONSUMERS_MAX] = {0};
    json_t *cell;
    json_array_foreach(json_object_get(freshness, "cells"), i, cell)
    {
        const char *name = answer_text(cell, "consumer");
        struct plan_consumer *c = find_consumer(p, name);
        if (!c && p->consumer_count < PLAN_CONSUMERS_MAX) {
            c = &p->consumers[p->consumer_count++];
            snprintf(c->name, sizeof c->name, "%.*s", PLAN_NAME_MAX, name);
        }
        if (!c || c < &p->consumers[named])
            continue;
        c->question.per_event += json_number_value(json_object_get(cell, "in_per_second"));
        c->question.drain += json_number_value(json_object_get(cell, "out_per_second"));
        waiting[c - p->consumers] += (double)answer_int(cell, "backlog");
    }
    json_decref(freshness);
    for (size_t k = named; k < p->consumer_count; k++) {
        struct plan_consumer *c = &p->consumers[k];
        c->question.per_event = inflow > 0 ? c->question.per_event / inflow : 0;
        c->drain_known = waiting[k] > 0;
        if (!c->drain_known)
            c->question.drain = FAST_ENOUGH;
    }
    return true;
}

/* Fills in what no option said. False: a message was printed. */
static bool measure(struct invocation *in, struct plan *p, bool inflow_given)
{
    struct control *control = control_open(in, CONTROL_EXISTING);
    struct reading first, last;
    if (!control)
        return false;
    if (!control_is_remote(control)) {
        control_close(control);
        command_fail(in,
                     "no server runs on %.200s, so there is nothing to measure; give --inflow "
                     "and --relay-drain",
                     in->settings.data);
        return false;
    }
    struct timespec pause = {.tv_sec = MEASURE_SECONDS}, from, to;
    bool ok = read_status(control, &first);
    clock_gettime(CLOCK_MONOTONIC, &from);
    nanosleep(&pause, NULL);
    ok = ok && read_status(control, &last);
    clock_gettime(CLOCK_MONOTONIC, &to);
    double took_s = (double)(to.tv_sec - from.tv_sec) + (double)(to.tv_nsec - from.tv_nsec) / 1e9;
    double inflow = ok ? (last.events - first.events) / took_s : 0;
    if (inflow < 0)
        inflow = 0; /* the server began anew in between */
    ok = ok && read_cells(control, inflow, p);
    control_close(control);
    if (!ok)
        return false;
    p->measured = true;
    p->measured_inflow = inflow;
    p->inflow_measured = !inflow_given;
    if (!inflow_given)
        p->question.inflow = inflow;
    if (!p->drain_known && first.waiting > 0 && last.waiting > 0 && last.taken > first.taken) {
        p->question.relay_drain = (last.taken - first.taken) / took_s;
        p->drain_known = true;
    }
    return true;
}

/* ---- answering ---- */

static void answer(struct plan *p)
{
    if (!p->drain_known)
        p->question.relay_drain = FAST_ENOUGH;
    capacity_relay(&p->question, &p->relay);
    for (size_t i = 0; i < p->consumer_count; i++) {
        struct plan_consumer *c = &p->consumers[i];
        c->question.name = c->name;
        capacity_consumer(&p->question, &c->question, &c->answer);
    }
}

static double deliveries(const struct plan *p)
{
    double sum = 0;
    for (size_t i = 0; i < p->consumer_count; i++)
        sum += p->consumers[i].answer.backlog;
    return sum;
}

/* A consumer is known to recover only when the relay is, and known not to in any case. */
static const char *recovery(const struct plan *p, const struct plan_consumer *c,
                            char out[PLAN_TEXT_MAX])
{
    double s = c ? c->answer.recovery_s : p->relay.recovery_s;
    bool known = p->drain_known && (!c || c->drain_known);
    return known || s < 0 ? plan_print_span(s, out) : "?";
}

static void print_table(const struct plan *p)
{
    char a[PLAN_TEXT_MAX], b[PLAN_TEXT_MAX], c[PLAN_TEXT_MAX], d[PLAN_TEXT_MAX], e[PLAN_TEXT_MAX];
    printf("%-20s %8s %9s %10s %10s  %s\n", "", "grows/s", "backlog", "catch-up/s", "recovered",
           "remembers");
    printf("%-20s %8s %9s %10s %10s\n", "relay", plan_print_count(p->relay.growth, a),
           plan_print_count(p->relay.backlog, b), count_or_unknown(p->drain_known, p->relay.net, c),
           recovery(p, NULL, d));
    for (size_t i = 0; i < p->consumer_count; i++) {
        const struct plan_consumer *x = &p->consumers[i];
        bool known = p->drain_known && x->drain_known;
        printf("%-20s %8s %9s %10s %10s", x->name, plan_print_count(x->answer.growth, a),
               plan_print_count(x->answer.backlog, b), count_or_unknown(known, x->answer.net, c),
               recovery(p, x, d));
        if (x->answer.dedup_entries > 0) {
            double bytes = x->answer.dedup_bytes;
            progress_print_bytes(bytes < BYTES_MAX ? (uint64_t)bytes : (uint64_t)BYTES_MAX, e);
            printf("  %s, %s", plan_print_count(x->answer.dedup_entries, a), e);
        }
        printf("\n");
    }
    if (p->consumer_count > 1)
        printf("%-20s %8s %9s\n", "deliveries in all", "", plan_print_count(deliveries(p), a));
}

/* What the numbers mean where they are bad, or where they are not known. */
static void print_notes(const struct plan *p)
{
    char a[PLAN_TEXT_MAX], b[PLAN_TEXT_MAX], c[PLAN_TEXT_MAX];
    bool unknown = !p->drain_known;
    if (p->relay.recovery_s < 0)
        printf("\nThe relay never catches up: %s/s come in and it publishes %s/s.\n",
               plan_print_count(p->question.inflow, a),
               plan_print_count(p->question.relay_drain, b));
    for (size_t i = 0; i < p->consumer_count; i++) {
        const struct plan_consumer *x = &p->consumers[i];
        unknown = unknown || !x->drain_known;
        if (p->relay.recovery_s < 0 || x->answer.recovery_s >= 0)
            continue;
        printf("\n%s never catches up: it gets %s/s and takes %s/s.\n", x->name,
               plan_print_count(x->answer.inflow, a), plan_print_count(x->question.drain, b));
        if (p->drain_known)
            printf("At %s/s it would be even with the relay.\n",
                   plan_print_count(p->question.relay_drain * x->question.per_event, c));
    }
    if (p->measured && p->measured_inflow == 0)
        printf("\nNothing came in while it was measured, so it says nothing about consumers: ask\n"
               "again while the server is used, or give --inflow and --consumer.\n");
    else if (unknown)
        printf("\n?: nothing waited there while it was measured. That shows what the server does,\n"
               "not what it could do: give --relay-drain and --consumer as seen under load.\n");
}

static void print_plan(const struct plan *p)
{
    char a[PLAN_TEXT_MAX], b[PLAN_TEXT_MAX], c[PLAN_TEXT_MAX];
    const struct capacity_question *q = &p->question;
    printf("%s events/s come in%s. For %s the relay ", plan_print_count(q->inflow, a),
           p->inflow_measured ? " (measured)" : "", plan_print_span(q->stall_s, b));
    if (q->stall_drain > 0)
        printf("takes %s/s", plan_print_count(q->stall_drain, c));
    else
        printf("stands still");
    if (p->drain_known)
        printf(", then %s/s", plan_print_count(q->relay_drain, c));
    printf(".\n\n");
    print_table(p);
    print_notes(p);
    printf("\n");
    plan_plot(p, stdout);
}

static void put_known(struct json_out *j, const char *key, bool known, double value)
{
    json_key(j, str_of(key));
    if (known)
        json_f64(j, value);
    else
        json_nil(j);
}

/* Absent knowledge is null; "never" is recovers: false with recovery_s null. */
static void put_recovery(struct json_out *j, bool known, double recovery_s)
{
    put_known(j, "recovery_s", known && recovery_s >= 0, recovery_s);
    json_key(j, STR("recovers"));
    if (known || recovery_s < 0)
        json_bool(j, recovery_s >= 0);
    else
        json_nil(j);
}

static void write_consumer(struct json_out *j, const struct plan *p, const struct plan_consumer *c)
{
    bool known = p->drain_known && c->drain_known;
    json_object_begin(j);
    json_put(j, "name", str, str_of(c->name));
    json_put(j, "per_event", f64, c->question.per_event);
    put_known(j, "drain", c->drain_known, c->question.drain);
    json_put(j, "inflow", f64, c->answer.inflow);
    json_put(j, "growth", f64, c->answer.growth);
    json_put(j, "backlog", f64, c->answer.backlog);
    put_known(j, "net", known, c->answer.net);
    put_recovery(j, known, c->answer.recovery_s);
    json_put(j, "dedup_entries", f64, c->answer.dedup_entries);
    json_put(j, "dedup_bytes", f64, c->answer.dedup_bytes);
    json_object_end(j);
}

static void write_plan(const struct plan *p)
{
    struct buf out;
    struct json_out json, *j = &json;
    buf_init(&out, 0);
    json_out_init(j, &out);
    json_object_begin(j);
    json_put(j, "measured", bool, p->measured);
    json_put(j, "inflow", f64, p->question.inflow);
    json_put(j, "stall_s", f64, p->question.stall_s);
    json_put(j, "stall_drain", f64, p->question.stall_drain);
    put_known(j, "relay_drain", p->drain_known, p->question.relay_drain);
    json_key(j, STR("relay"));
    json_object_begin(j);
    json_put(j, "growth", f64, p->relay.growth);
    json_put(j, "backlog", f64, p->relay.backlog);
    put_known(j, "net", p->drain_known, p->relay.net);
    put_recovery(j, p->drain_known, p->relay.recovery_s);
    json_object_end(j);
    json_key(j, STR("consumers"));
    json_array_begin(j);
    for (size_t i = 0; i < p->consumer_count; i++)
        write_consumer(j, p, &p->consumers[i]);
    json_array_end(j);
    json_put(j, "deliveries", f64, deliveries(p));
    json_object_end(j);
    printf("%.*s\n", STR_ARG(buf_view(&out)));
    buf_done(&out);
}

static int run(struct invocation *in)
{
    struct plan p = {.question = {.stall_s = 1800}};
    bool inflow_given, given;
    int64_t stall_ms, entry_bytes = ENTRY_BYTES;
    const char *stall = invocation_value(in, "stall");
    if (!read_rate(in, "inflow", &p.question.inflow, &inflow_given) ||
        !read_rate(in, "stall-drain", &p.question.stall_drain, &given) ||
        !read_rate(in, "relay-drain", &p.question.relay_drain, &p.drain_known) ||
        !invocation_number(in, "entry-bytes", 1, 1000000, &entry_bytes))
        return EXIT_USAGE;
    if (stall) {
        if (!settings_parse_span(stall, &stall_ms) || stall_ms > STALL_MAX_MS)
            return command_usage(in, "--stall: '%.40s' is not a time such as 30m or 2h", stall);
        p.question.stall_s = (double)stall_ms / 1000;
    }
    for (int i = 0; i < in->option_count; i++)
        if (strcmp(in->options[i].name, "consumer") == 0 &&
            !read_consumer(in, in->options[i].value, (double)entry_bytes, &p))
            return EXIT_USAGE;
    if ((!inflow_given || !p.drain_known) && !measure(in, &p, inflow_given))
        return EXIT_FAILED;
    answer(&p);
    if (invocation_has(in, "json"))
        write_plan(&p);
    else
        print_plan(&p);
    return EXIT_DONE;
}

const struct command command_plan = {
    .name = "plan",
    .arguments = "",
    .summary = "reckon what a stall costs and how long recovery takes",
    .about = "Events come in all the time; for the time of --stall the relay takes only "
             "--stall-drain of them a second, afterwards --relay-drain. Shows for the relay and "
             "for each consumer how fast the backlog grows, what it is at the end of the stall, "
             "how fast it then shrinks (the drain rate less what comes in meanwhile) and when it "
             "is gone; what a consumer's duplicate memory holds and weighs; and a plot of what is "
             "owed over time (where curves meet, the last one is seen).\n"
             "\n"
             "Without --inflow or --relay-drain the numbers that are missing are measured at the "
             "server that runs on the data folder. A server that keeps up shows what it does, not "
             "what it could do: a drain rate is known only where something waited, and \"?\" is "
             "shown elsewhere.\n"
             "\n"
             "A consumer gets every live delivery, however far behind it is. One that takes 3,000 "
             "a second of 4,000 that come in never catches up, with or without a stall: its net is "
             "-1,000, not the 2,000 that is sometimes reckoned for it, which would need 6,000 a "
             "second (and then 40 minutes for a stall of 20). And each consumer owes its own share "
             "of the deliveries alone: of the 216,000 that 54,000 events make for four consumers, "
             "each has 54,000 to work off.",
    .examples =
        "  fantail plan --stall 10m\n"
        "  fantail plan --inflow 150 --stall 30m --stall-drain 120 --relay-drain 360 \\\n"
        "      --consumer mail:1:1000 --consumer entitlement:1:250:7\n"
        "  fantail plan --inflow 4000 --stall 20m --relay-drain 10000 --consumer inbox:1:6000 "
        "--json",
    .options = {{"inflow", "N", "events a second that come in"},
                {"stall", "TIME", "how long the relay is slowed down (30m)"},
                {"stall-drain", "N", "events a second it still takes (0)"},
                {"relay-drain", "N", "events a second it takes afterwards"},
                {"consumer", "SPEC",
                 "NAME:PER_EVENT:DRAIN[:DEDUP_DAYS]: deliveries that an event\n"
                 "                              makes for it, deliveries a second that it can "
                 "take,\n"
                 "                              days of duplicate memory; may be repeated"},
                {"entry-bytes", "N", "what an entry of duplicate memory weighs (100)"},
                {"json", NULL, "as one JSON object"}},
    .run = run,
};
