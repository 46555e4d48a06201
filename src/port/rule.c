/* The lane table's look-ups. */
#include "port/rule.h"

#include <pthread.h>

#include "base/check.h"
#include "base/str.h"

const struct lane_row lane_rows[LANE_COUNT] = {
#define LANE(name, ...) [LANE_##name] = {__VA_ARGS__},
#include "port/lanes.def"
#undef LANE
};

const char *lane_name(enum lane lane)
{
    CHECK(lane < LANE_COUNT);
    return lane_rows[lane].name;
}

bool lane_parse(struct str name, enum lane *lane)
{
    for (int i = 0; i < LANE_COUNT; i++) {
        if (str_eq(name, str_of(lane_rows[i].name))) {
            *lane = (enum lane)i;
            return true;
        }
    }
    return false;
}

enum lane lane_for_replays(enum lane of)
{
    int lane = 0;
    while (lane < LANE_COUNT &&
           !(lane_rows[lane].replays && lane_rows[lane].pool == lane_rows[of].pool))
        lane++;
    CHECK(lane < LANE_COUNT);
    return (enum lane)lane;
}

static enum lane served[POOL_COUNT][LANE_COUNT];
static size_t served_count[POOL_COUNT];
static pthread_once_t served_once = PTHREAD_ONCE_INIT;

static void sort_lanes(void)
{
    for (int i = 0; i < LANE_COUNT; i++) {
        enum lane lane = (enum lane)i;
        enum lane *list = served[lane_rows[lane].pool];
        size_t at = served_count[lane_rows[lane].pool]++;
        for (; at > 0 && lane_rows[list[at - 1]].priority > lane_rows[lane].priority; at--)
            list[at] = list[at - 1];
        list[at] = lane;
    }
}

const enum lane *lanes_of_pool(enum worker_pool pool, size_t *n)
{
    pthread_once(&served_once, sort_lanes);
    *n = served_count[pool];
    return served[pool];
}
