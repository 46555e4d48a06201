/* The codec of node/peer.h. The order of the keys is part of it: the version before looks for
 * "views=1 bus=1" and for a notice that begins with "node=… address=…". */
#include "node/peer.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/check.h"

/* ---- pairs ---- */

/* Finds the values of `keys` in the text. False: it is malformed, or one of them is there twice. */
static bool find_pairs(struct str text, const char *const *keys, size_t n, struct str *values)
{
    struct str pair, key;
    if (text.len >= PEER_TEXT_MAX)
        return false;
    memset(values, 0, n * sizeof *values);
    while (str_split(&text, ' ', &pair)) {
        if (pair.len == 0 || !memchr(pair.ptr, '=', pair.len) || !str_split(&pair, '=', &key))
            return false;
        for (size_t i = 0; i < n; i++) {
            if (!str_eq(key, str_of(keys[i])))
                continue;
            if (values[i].ptr)
                return false;
            values[i] = pair;
        }
    }
    return true;
}

static bool read_number(struct str text, uint64_t max, uint64_t *out)
{
    return text.ptr && str_parse_u64(text, out) && *out <= max;
}

static bool read_flag(struct str text, bool *out)
{
    uint64_t number;
    bool ok = read_number(text, 1, &number);
    *out = ok && number == 1;
    return ok;
}

static bool is_understood(struct str version)
{
    uint64_t number = 0;
    return !version.ptr || read_number(version, PEER_VERSION, &number);
}

/* ---- reports ---- */

void node_report_encode(const struct node_report *r, char out[PEER_TEXT_MAX])
{
    snprintf(out, PEER_TEXT_MAX, "views=%d bus=%d leads=%d quarantined=%d undone=%" PRIu64 " v=%d",
             r->views, r->bus, r->leads, r->quarantined, r->undone, PEER_VERSION);
}

bool node_report_decode(struct str text, struct node_report *out)
{
    /* "aside": what the version before calls quarantined. */
    static const char *const keys[] = {"views", "bus",         "leads", "undone",
                                       "v",     "quarantined", "aside"};
    struct str values[COUNT_OF(keys)];
    struct node_report r = {.known = true};
    *out = (struct node_report){0};
    if (!find_pairs(text, keys, COUNT_OF(keys), values) || !is_understood(values[4]) ||
        !read_flag(values[0], &r.views) || !read_flag(values[1], &r.bus) ||
        !read_flag(values[2], &r.leads) || !read_number(values[3], UINT64_MAX, &r.undone) ||
        !read_flag(values[values[5].ptr ? 5 : 6], &r.quarantined))
        return false;
    *out = r;
    return true;
}

/* ---- notices ---- */

static size_t write_lanes(const struct leader_notice *n, char *out, size_t max)
{
    size_t at = 0;
    for (int lane = 0; lane < LANE_COUNT && at < max; lane++) {
        const struct lane_override *l = &n->lanes[lane];
        if (l->known)
            at += (size_t)snprintf(out + at, max - at, "%s%s:%u:%u%s",
                                   at ? "," : " lanes=", lane_name((enum lane)lane),
                                   (unsigned)l->concurrency, (unsigned)l->rate,
                                   l->stopped ? ":stopped" : "");
    }
    return at;
}

void leader_notice_encode(const struct leader_notice *n, char out[PEER_TEXT_MAX])
{
    char end[16];
    size_t size = (size_t)snprintf(end, sizeof end, " v=%d", PEER_VERSION) + 1;
    int head = snprintf(out, PEER_TEXT_MAX, "node=%u address=%s", (unsigned)n->number, n->address);
    CHECK(head > 0 && (size_t)head + size <= PEER_TEXT_MAX);
    size_t at = (size_t)head, room = PEER_TEXT_MAX - size - at;
    size_t lanes = write_lanes(n, out + at, room);
    memcpy(out + at + (lanes < room ? lanes : 0), end, size);
}

/* "name:concurrency:rate" and perhaps ":stopped". A lane of another program is passed over. */
static bool read_lane(struct str words, struct leader_notice *n)
{
    struct str name, concurrency, rate;
    uint64_t c, r;
    enum lane lane;
    if (!str_split(&words, ':', &name) || !str_split(&words, ':', &concurrency) ||
        !str_split(&words, ':', &rate) || !read_number(concurrency, UINT32_MAX, &c) ||
        !read_number(rate, UINT32_MAX, &r))
        return false;
    bool stopped = words.len > 0;
    if (stopped && !str_eq(words, STR("stopped")))
        return false;
    if (lane_parse(name, &lane))
        n->lanes[lane] = (struct lane_override){true, (uint32_t)c, (uint32_t)r, stopped};
    return true;
}

static bool is_address(struct str s)
{
    for (size_t i = 0; i < s.len; i++)
        if (s.ptr[i] <= ' ' || s.ptr[i] >= 0x7f)
            return false;
    return s.len < CLUSTER_ADDRESS_MAX && str_starts(s, STR("http://"));
}

bool leader_notice_decode(struct str text, struct leader_notice *out)
{
    static const char *const keys[] = {"node", "address", "lanes", "v"};
    struct str values[COUNT_OF(keys)], lane;
    struct leader_notice n = {0};
    uint64_t number;
    *out = n;
    if (!find_pairs(text, keys, COUNT_OF(keys), values) || !is_understood(values[3]) ||
        !read_number(values[0], UINT32_MAX, &number) || !values[1].ptr || !is_address(values[1]))
        return false;
    n.number = (uint32_t)number;
    memcpy(n.address, values[1].ptr, values[1].len);
    while (values[2].ptr && str_split(&values[2], ',', &lane))
        if (!read_lane(lane, &n))
            return false;
    *out = n;
    return true;
}
