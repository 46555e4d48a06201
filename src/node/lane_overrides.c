/* Lanes are told as they are, all of them: what is not told keeps what this node has. */
#include "node/lane_overrides.h"

void lane_overrides_read(struct engine *g, struct lane_override out[LANE_COUNT])
{
    struct engine_stats stats;
    engine_stats(g, &stats);
    for (int lane = 0; lane < LANE_COUNT; lane++) {
        const struct lane_stats *l = &stats.lanes[lane];
        out[lane] = (struct lane_override){.known = true,
                                           .concurrency = l->concurrency,
                                           .rate = l->rate,
                                           .stopped = l->breaker.state == BREAKER_BY_HAND};
    }
}

void lane_overrides_follow(struct engine *g, const struct lane_override lanes[LANE_COUNT])
{
    struct lane_override own[LANE_COUNT];
    lane_overrides_read(g, own);
    for (int lane = 0; lane < LANE_COUNT; lane++) {
        const struct lane_override *told = &lanes[lane];
        if (!told->known)
            continue;
        if (told->concurrency != own[lane].concurrency || told->rate != own[lane].rate)
            engine_set_lane(g, (enum lane)lane, told->concurrency, told->rate);
        if (told->stopped != own[lane].stopped)
            engine_stop_lane(g, (enum lane)lane, told->stopped);
    }
}
