/* What the tests of the RabbitMQ driver share: queues of a test's own at the broker that
 * script/servers started, a bus on them, and waiting for what must come. Included after cmocka. */
#pragma once

#include <unistd.h>

#include "bus/rabbitmq.h"

enum { LANES = 3, QUIET = 2, LIMIT = 100000, PATIENCE_S = 60, SECOND_US = 1000 * 1000 };

/* The lanes are a, b and quiet, which is also transient. */
struct place {
    char prefix[40];
    char queue[48], quiet[48], dead[48];
    size_t limits[LANES];
    struct rabbitmq_config config;
};

int64_t now_us(void);
/* Set-up and tear-down of a test. */
int make_place(void **state);
int forget_place(void **state);

struct bus *open_bus(const struct place *p);
struct bus_message message(uint64_t id);
void publish(struct bus *b, uint64_t id); /* on the first lane, as all that names none */
struct bus_message take_from(struct bus *b, uint16_t lane);
struct bus_message take(struct bus *b);
struct bus_lane_stats stats_of_lane(struct bus *b, uint16_t lane);
struct bus_lane_stats stats_of(struct bus *b);

/* Waits for a condition; the loop's body does what is to be done meanwhile. */
#define AWAIT(condition)                                                                           \
    for (int64_t await_end_us = now_us() + PATIENCE_S * (int64_t)SECOND_US; !(condition);          \
         usleep(500))                                                                              \
        if (now_us() > await_end_us)                                                               \
            fail_msg("never: %s", #condition);                                                     \
        else
