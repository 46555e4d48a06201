/* Dies where a test says, and fails deliveries that a test names.
 *
 * The wish to die is read from the environment once, at the first point reached; the count is
 * atomic, because points are reached from many threads at a time. A wish that names no point is
 * refused loudly: a crash test that never crashes must not pass.
 *
 * The wishes to fail are lines of a file that a test rewrites while the program runs. The file is
 * looked at most every LOOK_EVERY_MS and read when its time, size or identity is another one; while
 * its time is so near that another write could bear the same one it is read at every look. It may
 * be caught half written: a line counts when its end is there. A whole line that says nothing that
 * can be done is refused as loudly as above. No file: nothing fails. */
#include "base/fault.h"

#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/check.h"
#include "base/clock.h"
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

/* ---- failing deliveries ---- */

enum {
    LOOK_EVERY_MS = 20,
    SAME_TIME_MS = 1000, /* the coarsest clock of a file system that a test is likely to meet */
    FAILS_MAX = 64,
    CONSUMER_MAX = 64,
    FILE_MAX = 8192,
};

struct fail {
    char consumer[CONSUMER_MAX];
    enum err error;
    uint64_t actor; /* 0: whoever's */
};

static struct {
    pthread_mutex_t lock;
    int64_t look_at_ms;
    struct stat seen;
    bool settled; /* `seen` cannot hide a later write */
    size_t count;
    struct fail list[FAILS_MAX];
} fails = {.lock = PTHREAD_MUTEX_INITIALIZER};

static _Noreturn void refuse_line(struct str line)
{
    log_error("FANTAIL_FAIL: a line must be: CONSUMER ERROR [ACTOR]", LOG_STR("line", line));
    _exit(2);
}

static bool parse_error(struct str name, enum err *out)
{
#define FAULT_ERR(error, cls, http, title)                                                         \
    if (ERR_##error != OK && str_eq(name, STR(#error))) {                                          \
        *out = ERR_##error;                                                                        \
        return true;                                                                               \
    }
    ERR_TABLE(FAULT_ERR)
#undef FAULT_ERR
    return false;
}

static void read_fail(struct str line)
{
    struct str rest = str_trim(line), consumer, error;
    if (rest.len == 0 || rest.ptr[0] == '#')
        return;
    struct fail f = {0};
    bool valid = fails.count < FAILS_MAX && str_split(&rest, ' ', &consumer) &&
                 consumer.len < CONSUMER_MAX && str_split(&rest, ' ', &error) &&
                 parse_error(error, &f.error) &&
                 (rest.len == 0 || (str_parse_u64(rest, &f.actor) && f.actor > 0));
    if (!valid)
        refuse_line(line);
    memcpy(f.consumer, consumer.ptr, consumer.len);
    fails.list[fails.count++] = f;
}

static void read_fails(int file)
{
    char text[FILE_MAX];
    size_t len = 0;
    for (ssize_t n = 1; n > 0 && len<sizeof text; len += n> 0 ? (size_t)n : 0)
        n = read(file, text + len, sizeof text - len);
    if (len == sizeof text)
        refuse_line(STR("the file is too large"));
    fails.count = 0;
    char *line = text, *end;
    while ((end = memchr(line, '\n', len - (size_t)(line - text)))) {
        read_fail((struct str){line, (size_t)(end - line)});
        line = end + 1;
    }
}

static bool same_file(const struct stat *a, const struct stat *b)
{
    return a->st_ino == b->st_ino && a->st_size == b->st_size &&
           a->st_mtim.tv_sec == b->st_mtim.tv_sec && a->st_mtim.tv_nsec == b->st_mtim.tv_nsec;
}

static void look_at_fails(const char *path)
{
    struct stat now;
    int file = open(path, O_RDONLY | O_CLOEXEC);
    if (file < 0 || fstat(file, &now) != 0) {
        fails.count = 0;
        fails.settled = false;
    } else if (!fails.settled || !same_file(&now, &fails.seen)) {
        int64_t changed_ms = now.st_mtim.tv_sec * INT64_C(1000) + now.st_mtim.tv_nsec / 1000000;
        fails.settled = clock_wall_ms(clock_system()) - changed_ms > SAME_TIME_MS;
        fails.seen = now;
        read_fails(file);
    }
    if (file >= 0)
        close(file);
}

enum err fault_asked(const char *consumer, uint64_t actor)
{
    const char *path = getenv("FANTAIL_FAIL");
    if (!path || !path[0])
        return OK;
    enum err error = OK;
    pthread_mutex_lock(&fails.lock);
    int64_t now_ms = clock_mono_ms(clock_system());
    if (now_ms >= fails.look_at_ms) {
        fails.look_at_ms = now_ms + LOOK_EVERY_MS;
        look_at_fails(path);
    }
    for (size_t i = 0; i < fails.count && !error; i++) {
        const struct fail *f = &fails.list[i];
        if (strcmp(f->consumer, consumer) == 0 && (f->actor == 0 || f->actor == actor))
            error = f->error;
    }
    pthread_mutex_unlock(&fails.lock);
    return error;
}
