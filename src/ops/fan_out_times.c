/* One histogram a size. Sizes are powers of ten: what an operator asks is whether large fan-outs
 * are slow, and few labels keep the series few. */
#include "ops/fan_out_times.h"

#include <stdlib.h>

#include "base/check.h"

struct fan_out_times {
    struct hist us[FAN_OUT_SIZES];
};

struct fan_out_times *fan_out_times_new(void)
{
    struct fan_out_times *t = calloc(1, sizeof *t);
    CHECK(t);
    return t;
}

void fan_out_times_free(struct fan_out_times *t)
{
    free(t);
}

void fan_out_times_record(struct fan_out_times *t, size_t followers, int64_t took_us)
{
    size_t size = 0;
    for (; followers >= 10 && size < FAN_OUT_SIZES - 1; followers /= 10)
        size++;
    hist_record(&t->us[size], took_us > 0 ? (uint64_t)took_us : 0);
}

const struct hist *fan_out_times_of(const struct fan_out_times *t, size_t size)
{
    CHECK(size < FAN_OUT_SIZES);
    return &t->us[size];
}

const char *fan_out_size_name(size_t size)
{
    static const char *const names[FAN_OUT_SIZES] = {
        "1-9", "10-99", "100-999", "1000-9999", "10000-99999", "100000-999999", "1000000+"};
    CHECK(size < FAN_OUT_SIZES);
    return names[size];
}
