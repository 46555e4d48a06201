/* `fantail bench`: measures the real path on this machine. */
#pragma once

#include "cmd/command.h"

/* What the measurements share: how large, how long, how often, and where the numbers go. */
struct bench {
    const struct invocation *in;
    struct settings settings; /* of the world that is measured */
    int64_t accounts, followers, entries, connections, seconds, rounds, events;
    const char *peer; /* URL of a peer to measure in turn, or a program; NULL: none */
    bool json;
};

int bench_fan_out(struct bench *b);
int bench_feed(struct bench *b);
int bench_post(struct bench *b);
int bench_mixed(struct bench *b);
int bench_size(struct bench *b);
int bench_relay(struct bench *b);
int bench_outside(struct bench *b);
int bench_backlog(struct bench *b);
int bench_group(struct bench *b);
int bench_live(struct bench *b);

/* Numbers, printed as a table for people or as one JSON line at the end. */
void bench_number(struct bench *b, const char *name, double value, const char *unit);
void bench_say(const struct bench *b, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

double bench_median(double *values, size_t n);
double bench_now_s(void);
