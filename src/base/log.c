/* Log lines. Each is built in a buffer on the stack and leaves in one write(2), so that lines of
 * many threads never mix and logging needs no allocation. A line is at most
 * LINE_MAX_BYTES long: a text is cut at TEXT_MAX_BYTES, and fields that find no room are left out
 * and counted ("dropped").
 *
 * Logging never waits for the reader of the log: event loops and the store's writer log, too, and a
 * full pipe would hold up the server. A line that cannot leave at once is lost, and the next one
 * that can says how many were ("lost"). A pipe that is ready takes at least PIPE_BUF bytes, which
 * is a whole line; the lock keeps two lines from being promised the same room.
 *
 * Values may come from peers. Whatever they hold, a line is valid JSON and valid UTF-8: control
 * characters are escaped, and in a text that is not UTF-8 every byte above ASCII becomes '?'. */
#include "base/log.h"

#include <errno.h>
#include <limits.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/check.h"
#include "base/clock.h"
#include "base/json_out.h"
#include "base/sync.h"

enum { LINE_MAX_BYTES = 4096, TEXT_MAX_BYTES = 1024, TAIL_BYTES = 80 };
_Static_assert(LINE_MAX_BYTES <= PIPE_BUF, "a line leaves whole or not at all");

static _Atomic int lowest_level = LOG_INFO;
static pthread_mutex_t leaving = PTHREAD_MUTEX_INITIALIZER;
static uint64_t lost; /* under the lock */

static const char *const level_names[] = {
    [LOG_DEBUG] = "debug", [LOG_INFO] = "info", [LOG_WARN] = "warn", [LOG_ERROR] = "error"};

void log_set_level(enum log_level level)
{
    atomic_store_explicit(&lowest_level, (int)level, memory_order_relaxed);
}

bool log_level_parse(struct str text, enum log_level *out)
{
    for (size_t i = 0; i < COUNT_OF(level_names); i++) {
        if (str_eq(text, str_of(level_names[i]))) {
            *out = (enum log_level)i;
            return true;
        }
    }
    return false;
}

static void put_text(struct json_out *j, struct str text)
{
    char clean[TEXT_MAX_BYTES];
    if (text.len > TEXT_MAX_BYTES) {
        text.len = TEXT_MAX_BYTES;
        /* Not through the middle of a character. */
        while (text.len > 0 && ((unsigned char)text.ptr[text.len] & 0xC0) == 0x80)
            text.len--;
    }
    if (!str_is_utf8(text)) {
        for (size_t i = 0; i < text.len; i++)
            clean[i] = (unsigned char)text.ptr[i] < 0x80 ? text.ptr[i] : '?';
        text.ptr = clean;
    }
    json_str(j, text);
}

/* False: the field does not fit, and nothing was written. */
static bool put_field(struct json_out *j, const struct log_field *f)
{
    struct json_out before = *j;
    size_t len = j->buf->len;
    json_key(j, str_of(f->key));
    if (f->kind == LOG_FIELD_INT)
        json_i64(j, f->number);
    else if (f->kind == LOG_FIELD_ID)
        json_id(j, (uint64_t)f->number);
    else if (f->text.ptr)
        put_text(j, f->text);
    else
        json_nil(j);
    if (!j->buf->failed)
        return true;
    *j = before;
    j->buf->len = len;
    j->buf->failed = false;
    return false;
}

static void write_all(const char *bytes, size_t n)
{
    while (n > 0) {
        ssize_t written = write(STDERR_FILENO, bytes, n);
        if (written < 0 && errno == EINTR)
            continue;
        if (written <= 0)
            return; /* stderr is closed: drop the line */
        bytes += written;
        n -= (size_t)written;
    }
}

/* Ends the line and lets it out. */
static void leave(struct json_out *line)
{
    struct pollfd out = {.fd = STDERR_FILENO, .events = POLLOUT};
    LOCK_SCOPE(&leaving);
    if (poll(&out, 1, 0) == 0) {
        lost++;
        return;
    }
    if (lost > 0)
        json_put(line, "lost", u64, lost);
    lost = 0;
    json_object_end(line);
    buf_str(line->buf, STR("\n"));
    write_all(line->buf->ptr, line->buf->len);
}

void log_write(enum log_level level, const char *message, const struct log_field *fields, size_t n)
{
    if ((int)level < atomic_load_explicit(&lowest_level, memory_order_relaxed))
        return;
    int saved_errno = errno; /* a log call between a failure and its errno must not hide it */
    char memory[LINE_MAX_BYTES];
    struct buf buf = buf_over(memory, sizeof memory - TAIL_BYTES);
    struct json_out line;
    json_out_init(&line, &buf);
    json_object_begin(&line);
    json_put(&line, "time", time, clock_wall_ms(clock_system()));
    json_put(&line, "level", str, str_of(level_names[level]));
    if (!put_field(&line, &LOG_CSTR("message", message))) /* it consists of escapes */
        put_field(&line, &LOG_CSTR("message", "(unprintable)"));
    size_t dropped = 0;
    for (size_t i = 0; i < n; i++)
        dropped += !put_field(&line, &fields[i]);
    buf.max = buf.cap = sizeof memory;
    if (dropped > 0)
        json_put(&line, "dropped", u64, dropped);
    leave(&line);
    errno = saved_errno;
}

/* Aborts, so that a core dump shows the stack. It cleans nothing up on purpose: after one of our
 * own bugs the memory cannot be trusted, and the store survives a sudden death at any moment. */
noreturn void check_failed(const char *expression, const char *file, int line)
{
    log_error("check failed", LOG_CSTR("expression", expression), LOG_CSTR("file", file),
              LOG_INT("line", line));
    abort();
}
