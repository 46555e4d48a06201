/* The embedded engine of the bus port: queues in this process. */
#pragma once

#include "port/bus.h"

struct bus *bus_local_new(size_t lanes, const size_t *lane_limits);
