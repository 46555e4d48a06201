/* The nodes as answers and metrics show them. */
#pragma once

#include "api/status.h"
#include "base/arena.h"
#include "pipe/nodes.h"

struct cluster;

enum node_state { NODE_UP, NODE_LEAVING, NODE_GONE, NODE_STATES };

enum node_state node_state(const struct node *node);
const char *node_state_name(enum node_state state);
/* Everybody, by number, in the arena. */
struct node *nodes_list(struct cluster *k, struct arena *arena, size_t *n);
