/* The lane table's look-ups. */
#include "port/rule.h"

#include "base/check.h"
#include "base/str.h"

const struct lane_row lane_rows[LANE_COUNT] = {
#define LANE_ROW(name, wire, concurrency, rate, limit, target_ms, ordered, local, use, settings)   \
    [LANE_##name] = {wire,  concurrency, rate,                                                     \
                     limit, target_ms,   ordered,                                                  \
                     local, USE_##use,   LANE_SETTINGS_##settings},
    LANE_TABLE(LANE_ROW)
#undef LANE_ROW
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

enum lane lane_for(enum lane_use use)
{
    int lane = 0;
    while (lane < LANE_COUNT && lane_rows[lane].use != use)
        lane++;
    CHECK(lane < LANE_COUNT);
    return (enum lane)lane;
}
