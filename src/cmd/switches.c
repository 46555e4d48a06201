/* Lanes are told as they are and set only where they differ, so that following costs nothing and a
 * node's own breaker is left alone. */
#include "cmd/switches.h"

#include <stdio.h>
#include <string.h>

enum { LANE_WORDS_MAX = 64 };

void switches_write(struct engine *g, char *out, size_t max)
{
    struct engine_stats stats;
    size_t at = 0;
    engine_stats(g, &stats);
    if (max == 0)
        return;
    at += (size_t)snprintf(out, max, "lanes=");
    for (int lane = 0; lane < LANE_COUNT && at < max; lane++) {
        const struct lane_stats *l = &stats.lanes[lane];
        at += (size_t)snprintf(out + at, max - at, "%s%s:%u:%u%s", lane > 0 ? "," : "",
                               lane_name((enum lane)lane), (unsigned)l->concurrency,
                               (unsigned)l->rate,
                               l->breaker.state == BREAKER_BY_HAND ? ":stopped" : "");
    }
    if (at >= max)
        out[0] = '\0'; /* half a list would say something else */
}

static void follow_lane(struct engine *g, const struct engine_stats *stats, struct str words)
{
    char text[LANE_WORDS_MAX], name[LANE_WORDS_MAX], stopped[LANE_WORDS_MAX] = "";
    unsigned concurrency, rate;
    enum lane lane;
    if (words.len >= sizeof text)
        return;
    memcpy(text, words.ptr, words.len);
    text[words.len] = '\0';
    if (sscanf(text, "%63[^:]:%u:%u:%63s", name, &concurrency, &rate, stopped) < 3 ||
        !lane_parse(str_of(name), &lane))
        return; /* a lane that only a newer program has */
    const struct lane_stats *own = &stats->lanes[lane];
    if (own->concurrency != concurrency || own->rate != rate)
        engine_set_lane(g, lane, concurrency, rate);
    bool stop = strcmp(stopped, "stopped") == 0;
    if (stop != (own->breaker.state == BREAKER_BY_HAND))
        engine_stop_lane(g, lane, stop);
}

void switches_follow(struct engine *g, const char *words)
{
    const char *lanes = strstr(words, "lanes=");
    if (!lanes)
        return;
    struct str rest = str_of(lanes + strlen("lanes=")), one;
    const char *end = memchr(rest.ptr, ' ', rest.len);
    rest.len = end ? (size_t)(end - rest.ptr) : rest.len;
    struct engine_stats stats;
    engine_stats(g, &stats);
    while (str_split(&rest, ',', &one))
        follow_lane(g, &stats, one);
}
