/* How an operator set the lanes of an engine: what the leader tells all nodes, and what they follow
 * so that whoever leads next goes on with it. */
#pragma once

#include "node/peer.h"
#include "pipe/engine.h"

void lane_overrides_read(struct engine *g, struct lane_override out[LANE_COUNT]);
/* Sets only what differs: following costs nothing, and a node's own breaker is left alone. */
void lane_overrides_follow(struct engine *g, const struct lane_override lanes[LANE_COUNT]);
