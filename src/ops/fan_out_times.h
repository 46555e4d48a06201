/* How long fan-outs took, by the number of people that each reached: a histogram for each power of
 * ten. Any thread. */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "base/hist.h"

enum { FAN_OUT_SIZES = 7 };

struct fan_out_times;
struct fan_out_times *fan_out_times_new(void);
void fan_out_times_free(struct fan_out_times *t); /* NULL: nothing */
void fan_out_times_record(struct fan_out_times *t, size_t followers, int64_t took_us);
const struct hist *fan_out_times_of(const struct fan_out_times *t, size_t size); /* µs */
const char *fan_out_size_name(size_t size); /* "1-9", "10-99" … "1000000+" */
