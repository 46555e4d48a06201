/* Live play in the demo world: one to three acts a second, through the API, as its people. */
#pragma once

#include <signal.h>

#include "cmd/control.h"
#include "demo/world.h"

/* Until one of `signals` (blocked) comes or the server goes away. Returns the exit code. */
int demo_live(struct control *control, struct demo_world *w, const sigset_t *signals);
