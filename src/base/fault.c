/* Dies where a test says. The wish is read from the environment once, at the first point reached;
 * the count is atomic, because points are reached from many threads at a time. A wish that names no
 * point is refused loudly: a crash test that never crashes must not pass. */
#include "base/fault.h"

#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/check.h"
#include "base/log.h"
#include "base/str.h"

static const char *const names[FAULT_COUNT] = {
#define FAULT_ROW(name) #name,
    FAULT_TABLE(FAULT_ROW)
#undef FAULT_ROW
};

static pthread_once_t wish_once = PTHREAD_ONCE_INIT;
static enum fault_point wished = FAULT_COUNT; /* FAULT_COUNT: none */
static _Atomic int64_t hits_left;

const char *fault_name(enum fault_point point)
{
    CHECK(point < FAULT_COUNT);
    return names[point];
}

static void read_wish(void)
{
    struct str wish = str_of(getenv("FANTAIL_FAULT"));
    struct str rest = wish, name;
    if (!str_split(&rest, ':', &name))
        return;
    int64_t hits = 1;
    bool valid = rest.len == 0 || (str_parse_i64(rest, &hits) && hits > 0);
    for (size_t i = 0; valid && i < FAULT_COUNT; i++) {
        if (str_eq(name, str_of(names[i]))) {
            atomic_store(&hits_left, hits);
            wished = (enum fault_point)i;
            return;
        }
    }
    log_error("FANTAIL_FAULT names no fault point", LOG_STR("value", wish));
    _exit(2);
}

void fault_reached(enum fault_point point)
{
    pthread_once(&wish_once, read_wish);
    if (point != wished || atomic_fetch_sub(&hits_left, 1) != 1)
        return;
    kill(getpid(), SIGKILL);
    for (;;) /* the signal may take a moment; nothing may happen meanwhile */
        pause();
}
