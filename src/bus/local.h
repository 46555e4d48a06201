/* The embedded driver of the bus port: queues in this process. */
#pragma once

#include "port/bus.h"

struct bus *bus_local_new(size_t lanes, const size_t *lane_limits);

/* These lanes (a bit for each) give nothing until bus_listen. Before the first use. */
void bus_local_quiet(struct bus *b, uint32_t lanes);
/* Throws away everything that it holds; what takers still say of it is ignored. */
void bus_local_forget(struct bus *b);
