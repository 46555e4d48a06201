/* Dies where a test says, and fails deliveries that a test names.
 *
 * FANTAIL_FAULT is read once, at the first point reached. Its count is atomic, because many threads
 * reach points at a time. A value that names no point ends the process with a message: a crash test
 * that never crashes must not pass.
 *
 * FANTAIL_FAIL names a file that a test rewrites while the program runs. The program reads it at
 * most every LOOK_EVERY_MS. A read may see a half-written file, so a line counts only with its line
 * end. A whole line that does not parse ends the process, too. No file: nothing fails. */
#include "base/fault.h"

#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/check.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/str.h"
#include "base/sync.h"

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
    FAILS_MAX = 64,
    CONSUMER_MAX = 64,
    FILE_MAX = 8192,
};

struct fail {
    char consumer[CONSUMER_MAX];
    enum err error;
    uint64_t actor; /* 0: any actor */
};

static struct {
    pthread_mutex_t lock;
    int64_t look_at_ms;
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
    int e = OK + 1;
    while (e < ERR_COUNT && !str_eq(name, str_of(err_name((enum err)e))))
        e++;
    *out = (enum err)e;
    return e < ERR_COUNT;
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

static void read_fails(const char *path)
{
    char text[FILE_MAX];
    FILE *file = fopen(path, "re");
    size_t len = file ? fread(text, 1, sizeof text, file) : 0;
    if (file)
        fclose(file);
    if (len == sizeof text)
        refuse_line(STR("the file is too large"));
    fails.count = 0;
    char *line = text, *end;
    while ((end = memchr(line, '\n', len - (size_t)(line - text)))) {
        read_fail((struct str){line, (size_t)(end - line)});
        line = end + 1;
    }
}

enum err fault_asked(const char *consumer, uint64_t actor)
{
    const char *path = getenv("FANTAIL_FAIL");
    if (!path || !path[0])
        return OK;
    LOCK_SCOPE(&fails.lock);
    int64_t now_ms = clock_mono_ms(clock_system());
    if (now_ms >= fails.look_at_ms) {
        fails.look_at_ms = now_ms + LOOK_EVERY_MS;
        read_fails(path);
    }
    for (size_t i = 0; i < fails.count; i++) {
        const struct fail *f = &fails.list[i];
        if (strcmp(f->consumer, consumer) == 0 && (f->actor == 0 || f->actor == actor))
            return f->error;
    }
    return OK;
}
