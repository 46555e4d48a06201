/* The nodes as answers and metrics show them. */
#pragma once

#include "api/edge/cluster.h"
#include "api/resource/status.h"
#include "base/arena.h"

enum node_state { NODE_UP, NODE_LEAVING, NODE_GONE, NODE_STATES };

enum node_state node_state(const struct cluster_node *node);
/* All nodes, by number, in the arena. */
struct cluster_node *nodes_list(struct cluster *k, struct arena *arena, size_t *n);
