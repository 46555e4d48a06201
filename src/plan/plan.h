/* The input and the result of `fantail plan`, for the files that show it. */
#pragma once

#include <stdio.h>

#include "plan/capacity.h"

enum { PLAN_CONSUMERS_MAX = 24, PLAN_NAME_MAX = 20 };

struct plan_consumer {
    char name[PLAN_NAME_MAX + 1];
    bool drain_known; /* false: only that it keeps up is known, it counts as fast enough */
    struct capacity_consumer question;
    struct capacity_consumer_answer answer;
};

struct plan {
    struct capacity_question question;
    bool drain_known;     /* the relay's */
    bool measured;        /* some numbers are the server's own … */
    bool inflow_measured; /* … among them this one */
    double measured_inflow;
    struct capacity_answer relay;
    struct plan_consumer consumers[PLAN_CONSUMERS_MAX];
    size_t consumer_count;
};

enum { PLAN_TEXT_MAX = 32 };
/* "54,000", "4.80 M", "28.8 M": at most 9 columns. */
const char *plan_print_count(double n, char out[PLAN_TEXT_MAX]);
/* "90 s", "13 min", "2.5 h"; -1: "never". */
const char *plan_print_span(double s, char out[PLAN_TEXT_MAX]);

/* The backlog over time, in plain characters, at most 79 columns wide. */
void plan_plot(const struct plan *p, FILE *out);
