/* The lane table's look-ups. */
#include "port/rule.h"

#include "base/check.h"
#include "base/str.h"

static const struct {
    const char *name;
    int64_t target_ms;
    bool ordered;
} lanes[LANE_COUNT] = {
#define LANE_ROW(name, wire, concurrency, rate, limit, target_ms, ordered)                         \
    [LANE_##name] = {wire, target_ms, ordered},
    LANE_TABLE(LANE_ROW)
#undef LANE_ROW
};

const char *lane_name(enum lane lane)
{
    CHECK(lane < LANE_COUNT);
    return lanes[lane].name;
}

bool lane_parse(struct str name, enum lane *lane)
{
    for (int i = 0; i < LANE_COUNT; i++) {
        if (str_eq(name, str_of(lanes[i].name))) {
            *lane = (enum lane)i;
            return true;
        }
    }
    return false;
}

bool lane_is_ordered(enum lane lane)
{
    CHECK(lane < LANE_COUNT);
    return lanes[lane].ordered;
}

int64_t lane_target_ms(enum lane lane)
{
    CHECK(lane < LANE_COUNT);
    return lanes[lane].target_ms;
}
