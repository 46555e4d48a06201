/* What nodes tell each other through the store: each its report, in its row of `nodes`; the leader
 * its notice, in the row of its lease. Both are text, "key=value key=value … v=1", because nodes of
 * the version before search it for their words while a cluster is upgraded node by node.
 *
 * Decoding takes bytes from a row that any version may have written. Keys that it does not know it
 * passes over. A text that is too long, is malformed, lacks a key, names one twice or has a higher
 * version is not understood: false, and the result says nothing. No "v" is the version before. */
#pragma once

#include "api/edge/cluster.h"
#include "base/str.h"
#include "port/rule.h"

enum { PEER_VERSION = 1, PEER_TEXT_MAX = 512 };

void node_report_encode(const struct node_report *r, char out[PEER_TEXT_MAX]);
bool node_report_decode(struct str text, struct node_report *out);

/* How an operator set a lane at the leader. Every node follows it, so that the next leader goes
 * on with it. */
struct lane_override {
    bool known; /* else: a program without this lane wrote it */
    uint32_t concurrency, rate;
    bool stopped;
};

struct leader_notice {
    uint32_t number;
    char address[CLUSTER_ADDRESS_MAX];
    struct lane_override lanes[LANE_COUNT];
};

/* Without the lanes when they do not fit: half a list would say something else. */
void leader_notice_encode(const struct leader_notice *n, char out[PEER_TEXT_MAX]);
bool leader_notice_decode(struct str text, struct leader_notice *out);
