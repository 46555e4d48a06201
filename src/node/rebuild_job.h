/* Does the rebuilds that operators started (jobs of kind rebuild.*), one at a time, the oldest
 * first, in bounded slices at the job's rate. A restart goes on after the last slice that was
 * saved; a slice done twice is harmless. Rests while the store is at risk. */
#pragma once

#include "api/edge/api.h"

/* One slice at most; when to call again (monotonic µs). Blocking SQL; one caller. */
int64_t rebuild_job_step(struct api *api);
