/* Log lines. Each is built in a buffer on the stack and leaves in one write(2), so that lines of
 * many threads never mix and logging needs no allocation. A line is at most
 * LINE_MAX_BYTES long: a text is cut at TEXT_MAX_BYTES, and fields that find no room are left out
 * and counted ("dropped").
 *
 * Nobody waits for whoever reads the log: event loops and the store's writer log, too, and a full
 * pipe would hold up the server. A line that cannot leave at once is lost, and the next one that
 * can says how many were ("lost"). A pipe that is ready takes at least PIPE_BUF bytes, which is a
 * whole line; the lock keeps two lines from being promised the same room.
 *
 * Values may come from peers. Whatever they hold, a line is valid JSON and valid UTF-8: control
 * characters are escaped, and in a text that is not UTF-8 every byte above ASCII becomes '?'. */
#include "base/log.h"

#include <errno.h>
#include <limits.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <unistd.h>

#include "base/check.h"
#include "base/clock.h"
#include "base/json_out.h"

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

static void put_text(struct buf *line, struct str text)
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
    buf_append(line, "\"", 1);
    json_escape(line, text);
    buf_append(line, "\"", 1);
}

static void put_field(struct buf *line, const struct log_field *f)
{
    buf_append(line, ",", 1);
    put_text(line, str_of(f->key));
    buf_append(line, ":", 1);
    switch (f->kind) {
    case LOG_FIELD_TEXT:
        if (f->text.ptr)
            put_text(line, f->text);
        else
            buf_append(line, "null", 4);
        break;
    case LOG_FIELD_INT:
        buf_printf(line, "%lld", (long long)f->number);
        break;
    case LOG_FIELD_ID:
        buf_printf(line, "\"%llu\"", (unsigned long long)f->number);
        break;
    }
}

static void write_all(const char *bytes, size_t n)
{
    while (n > 0) {
        ssize_t written = write(STDERR_FILENO, bytes, n);
        if (written < 0 && errno == EINTR)
            continue;
        if (written <= 0)
            return; /* nobody listens: there is nobody to tell, either */
        bytes += written;
        n -= (size_t)written;
    }
}

/* Ends the line and lets it out. */
static void leave(struct buf *line)
{
    struct pollfd out = {.fd = STDERR_FILENO, .events = POLLOUT};
    pthread_mutex_lock(&leaving);
    if (poll(&out, 1, 0) == 0) {
        lost++;
    } else {
        if (lost > 0)
            buf_printf(line, ",\"lost\":%llu", (unsigned long long)lost);
        lost = 0;
        buf_str(line, STR("}\n"));
        write_all(line->ptr, line->len);
    }
    pthread_mutex_unlock(&leaving);
}

void log_write(enum log_level level, const char *message, const struct log_field *fields, size_t n)
{
    if ((int)level < atomic_load_explicit(&lowest_level, memory_order_relaxed))
        return;
    int saved_errno = errno; /* a log call between a failure and its errno must not hide it */
    char memory[LINE_MAX_BYTES];
    struct buf line = buf_over(memory, sizeof memory - TAIL_BYTES);
    char now[TIME_TEXT_LEN];
    time_format(clock_wall_ms(clock_system()), now);
    buf_str(&line, STR("{\"time\":\""));
    buf_append(&line, now, sizeof now);
    buf_str(&line, STR("\",\"level\":\""));
    buf_str(&line, str_of(level_names[level]));
    buf_str(&line, STR("\",\"message\":"));
    size_t message_at = line.len;
    put_text(&line, str_of(message));
    if (line.failed) { /* only by escapes without number; a CHECK here would come back here */
        line.len = message_at;
        line.failed = false;
        buf_str(&line, STR("\"(unprintable)\""));
    }
    size_t dropped = 0;
    for (size_t i = 0; i < n; i++) {
        size_t before = line.len;
        put_field(&line, &fields[i]);
        if (line.failed) {
            line.len = before;
            line.failed = false;
            dropped++;
        }
    }
    line.max = line.cap = sizeof memory;
    if (dropped > 0)
        buf_printf(&line, ",\"dropped\":%zu", dropped);
    leave(&line);
    errno = saved_errno;
}
