/* The arithmetic of `fantail plan`: what a stall costs and how long recovery takes, for the
 * producer and each consumer, and the size of duplicate memory. Pure: numbers in, numbers out; all
 * of them finite and not negative. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct capacity_consumer {
    const char *name;
    double per_event;       /* deliveries that one event makes for it */
    double drain;           /* deliveries a second that it can take */
    double dedup_days;      /* duplicate memory; 0: none */
    double bytes_per_entry; /* of it */
};

struct capacity_question {
    double inflow;      /* events a second */
    double stall_s;     /* how long draining was reduced … */
    double stall_drain; /* … to this many events a second; 0: it stood still */
    double relay_drain; /* events a second when recovered */
};

struct capacity_answer {
    double backlog;    /* events at the end of the stall; 0 when the stalled drain keeps up */
    double growth;     /* events a second while it lasted */
    double net;        /* events a second when recovered: drain - inflow */
    double recovery_s; /* -1: never */
};

struct capacity_consumer_answer {
    double backlog;    /* deliveries owed at the end of the stall, wherever they wait */
    double growth;     /* deliveries a second while it lasted */
    double inflow;     /* deliveries a second that live traffic makes */
    double net;        /* deliveries a second when recovered: its drain of its inflow, - inflow */
    double recovery_s; /* from the end of the stall, taking what the relay gives it; -1: never */
    double dedup_entries, dedup_bytes;
};

void capacity_relay(const struct capacity_question *q, struct capacity_answer *out);
/* The consumer takes its backlog and live deliveries at its own drain rate; it can be no faster
 * than the relay feeds it, so it recovers no sooner than the relay. */
void capacity_consumer(const struct capacity_question *q, const struct capacity_consumer *c,
                       struct capacity_consumer_answer *out);
/* The backlog at time t_s after the stall began: for the plot. Events; deliveries. */
double capacity_relay_backlog_at(const struct capacity_question *q, double t_s);
double capacity_backlog_at(const struct capacity_question *q, const struct capacity_consumer *c,
                           double t_s);
