/* The lanes' names, from the table in rule.h. */
#include "port/rule.h"

#include "base/check.h"

const char *lane_name(enum lane lane)
{
    static const char *const names[LANE_COUNT] = {
#define LANE_ROW(name, wire, concurrency, rate, limit) wire,
        LANE_TABLE(LANE_ROW)
#undef LANE_ROW
    };
    CHECK(lane < LANE_COUNT);
    return names[lane];
}
