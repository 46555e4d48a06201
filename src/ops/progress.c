/* Drawing is separate from deciding when to draw: progress_render is a pure function of the
 * numbers, the time and the width. When the terminal is narrow, the bar goes first, then the
 * estimate; label and percentage stay. */
#include "ops/progress.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "base/clock.h"

enum {
    REDRAW_US = 100 * 1000,    /* on a terminal */
    LINE_US = 3 * 1000 * 1000, /* otherwise */
    BAR_MIN = 10,
    BAR_MAX = 40,
    PART_MAX = 160
};

void progress_print_count(uint64_t n, char out[32])
{
    char digits[24];
    int len = snprintf(digits, sizeof(digits), "%" PRIu64, n);
    size_t at = 0;
    for (int i = 0; i < len; i++) {
        if (i > 0 && (len - i) % 3 == 0)
            out[at++] = ',';
        out[at++] = digits[i];
    }
    out[at] = '\0';
}

void progress_print_bytes(uint64_t n, char out[32])
{
    static const char *const units[] = {"B", "kB", "MB", "GB", "TB", "PB"};
    double value = (double)n;
    size_t unit = 0;
    while (value >= 999.5 && unit + 1 < sizeof(units) / sizeof(units[0])) {
        value /= 1000;
        unit++;
    }
    snprintf(out, 32, unit > 0 && value < 9.95 ? "%.1f %s" : "%.0f %s", value, units[unit]);
}

static void print_amount(enum progress_unit unit, uint64_t n, char out[32])
{
    if (unit == PROGRESS_BYTES)
        progress_print_bytes(n, out);
    else
        progress_print_count(n, out);
}

static void print_span(int64_t seconds, char *out, size_t size)
{
    if (seconds < 60)
        snprintf(out, size, "%" PRId64 " s", seconds);
    else if (seconds < 3600)
        snprintf(out, size, "%" PRId64 ":%02" PRId64 " min", seconds / 60, seconds % 60);
    else
        snprintf(out, size, "%" PRId64 ":%02" PRId64 " h", seconds / 3600, seconds / 60 % 60);
}

/* "1,200 of 6,000, 400/s, 12 s left" */
static void render_numbers(const struct progress *p, int64_t now_us, bool estimate, char *out,
                           size_t size)
{
    char done[32], total[32], rate_text[32], left[40];
    double elapsed_s = (double)(now_us - p->began_us) / 1e6;
    double rate = elapsed_s > 0.05 ? (double)p->done / elapsed_s : 0;
    print_amount(p->unit, p->done, done);
    print_amount(p->unit, p->total, total);
    print_amount(p->unit, (uint64_t)rate, rate_text);
    int n = p->total > 0 && p->done < p->total ? snprintf(out, size, "%s of %s", done, total)
                                               : snprintf(out, size, "%s", done);
    if (!estimate || rate < 1 || n < 0 || (size_t)n >= size)
        return;
    int more = snprintf(out + n, size - (size_t)n, ", %s/s", rate_text);
    if (more < 0 || (size_t)(n += more) >= size || p->total <= p->done)
        return;
    print_span((int64_t)((double)(p->total - p->done) / rate + 0.5), left, sizeof(left));
    snprintf(out + n, size - (size_t)n, ", %s left", left);
}

void progress_render(const struct progress *p, int64_t now_us, unsigned width, char *out,
                     size_t size)
{
    char numbers[PART_MAX], percent[8] = "", bar[BAR_MAX + 4] = "";
    uint64_t done = p->done < p->total ? p->done : p->total;
    if (p->total > 0)
        snprintf(percent, sizeof(percent), " %3u%%",
                 (unsigned)((double)done * 100 / (double)p->total));
    render_numbers(p, now_us, true, numbers, sizeof(numbers));
    size_t fixed = strlen(p->label) + strlen(percent) + 2;
    if (width > 0 && fixed + strlen(numbers) > width)
        render_numbers(p, now_us, false, numbers, sizeof(numbers));
    size_t used = fixed + strlen(numbers);
    if (p->total > 0 && width > 0 && used + BAR_MIN + 3 <= width) {
        size_t cells = width - used - 3;
        cells = cells > BAR_MAX ? BAR_MAX : cells;
        size_t full = (size_t)((double)cells * (double)done / (double)p->total);
        size_t at = 0;
        bar[at++] = ' ';
        bar[at++] = '[';
        for (size_t i = 0; i < cells; i++)
            bar[at++] = i < full ? '#' : '.';
        bar[at++] = ']';
        bar[at] = '\0';
    }
    snprintf(out, size, "%s%s%s  %s", p->label, bar, percent, numbers);
    if (width > 0 && strlen(out) > width)
        out[width] = '\0';
}

static unsigned terminal_width(int fd)
{
    struct winsize w;
    return ioctl(fd, TIOCGWINSZ, &w) == 0 && w.ws_col > 0 ? w.ws_col : 80;
}

static void show(struct progress *p, int64_t now_us, bool last)
{
    char text[400], line[420];
    /* The last column stays free: some terminals wrap as soon as it is filled. */
    unsigned width = p->terminal ? terminal_width(p->fd) - 1 : 0;
    if (width > sizeof(text) - 1)
        width = sizeof(text) - 1;
    progress_render(p, now_us, width, text, sizeof(text));
    int n = p->terminal ? snprintf(line, sizeof(line), "\r%s\033[K%s", text, last ? "\n" : "")
                        : snprintf(line, sizeof(line), "%s\n", text);
    if (n > 0 && write(p->fd, line, (size_t)n) < 0)
        return; /* stderr is closed: the work continues without a bar */
}

void progress_init(struct progress *p, const char *label, uint64_t total, enum progress_unit unit)
{
    *p = (struct progress){.label = label, .unit = unit, .total = total, .fd = STDERR_FILENO};
    p->terminal = isatty(p->fd) == 1;
    p->began_us = clock_mono_us(clock_system());
    p->shown_us = p->began_us;
}

void progress_update(struct progress *p, uint64_t done)
{
    p->done = done;
    int64_t now_us = clock_mono_us(clock_system());
    if (now_us - p->shown_us < (p->terminal ? REDRAW_US : LINE_US))
        return;
    p->shown_us = now_us;
    show(p, now_us, false);
}

void progress_follow(void *ctx, uint64_t done, uint64_t total)
{
    struct progress *p = ctx;
    p->total = total;
    progress_update(p, done);
}

void progress_done(struct progress *p)
{
    int64_t now_us = clock_mono_us(clock_system());
    /* Work that ended before its first line was due needs none, except on a terminal. */
    if (p->terminal || now_us - p->began_us >= LINE_US)
        show(p, now_us, true);
}
