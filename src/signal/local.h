/* The signal of a process that is alone: consumers are its own threads. */
#pragma once

#include "port/signal.h"

struct signal *signal_local_new(void);
