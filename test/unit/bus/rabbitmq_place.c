/* Every test has queues of its own, named after the process and the test, and deletes them. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "base/clock.h"
#include "broker.h"
#include "rabbitmq_place.h"

static const char *const lane_names[LANES] = {"a", "b", "quiet"};

int64_t now_us(void)
{
    return clock_mono_us(clock_system());
}

int make_place(void **state)
{
    static unsigned places;
    struct place *p = calloc(1, sizeof *p);
    snprintf(p->prefix, sizeof p->prefix, "unit-%d-%u", (int)getpid(), ++places);
    snprintf(p->queue, sizeof p->queue, "%s.a", p->prefix);
    snprintf(p->quiet, sizeof p->quiet, "%s.quiet", p->prefix);
    snprintf(p->dead, sizeof p->dead, "%s.dead", p->prefix);
    for (int i = 0; i < LANES; i++)
        p->limits[i] = LIMIT;
    p->config = (struct rabbitmq_config){.url = broker_url(),
                                         .prefix = p->prefix,
                                         .node = "test",
                                         .lanes = LANES,
                                         .lane_names = lane_names,
                                         .lane_limits = p->limits,
                                         .quiet = 1U << QUIET,
                                         .transient = 1U << QUIET,
                                         .heartbeat_s = 2};
    *state = p;
    return 0;
}

int forget_place(void **state)
{
    struct place *p = *state;
    broker_forget(p->prefix, lane_names, LANES);
    free(p);
    return 0;
}

struct bus *open_bus(const struct place *p)
{
    char detail[RABBITMQ_DETAIL_SIZE];
    struct bus *b = NULL;
    if (bus_rabbitmq_open(&p->config, &b, detail))
        fail_msg("%s", detail);
    return b;
}

struct bus_message message(uint64_t id)
{
    return (struct bus_message){.event = {.id = id, .type = EVENT_POST_CREATED}};
}

void publish(struct bus *b, uint64_t id)
{
    struct bus_message m = message(id);
    assert_int_equal(bus_publish(b, &m), OK);
}

struct bus_message take_from(struct bus *b, uint16_t lane)
{
    struct bus_message m;
    AWAIT(bus_take(b, lane, now_us(), &m)) {}
    return m;
}

struct bus_message take(struct bus *b)
{
    return take_from(b, 0);
}

struct bus_lane_stats stats_of_lane(struct bus *b, uint16_t lane)
{
    struct bus_lane_stats stats;
    bus_lane_stats(b, lane, &stats);
    return stats;
}

struct bus_lane_stats stats_of(struct bus *b)
{
    return stats_of_lane(b, 0);
}
