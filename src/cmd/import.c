/* `fantail import FILE`: accounts, follows, posts, likes and comments as lines of JSON. You can run
 * an import again: existing rows stay as they are. */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "cmd/command.h"
#include "cmd/import_lines.h"
#include "ops/progress.h"

/* Reads lines with a bound: of a line that is too long only the length is kept. */
enum line_kind { LINE_END, LINE_WHOLE, LINE_TOO_LONG };

static enum line_kind read_line(FILE *f, struct buf *line, uint64_t *bytes)
{
    buf_clear(line);
    int c;
    uint64_t read = 0;
    while ((c = getc_unlocked(f)) != EOF) {
        char byte = (char)c;
        read++;
        if (byte == '\n')
            break;
        buf_append(line, &byte, 1);
    }
    *bytes += read;
    return read == 0 ? LINE_END : line->failed ? LINE_TOO_LONG : LINE_WHOLE;
}

static bool read_lines(struct invocation *in, struct import_lines *im, FILE *f, uint64_t size)
{
    struct progress p;
    struct buf line;
    progress_init(&p, "importing", size, PROGRESS_BYTES);
    buf_init(&line, IMPORT_LINE_MAX);
    uint64_t bytes = 0;
    enum line_kind kind = LINE_WHOLE;
    bool ok = true;
    while (ok && (kind = read_line(f, &line, &bytes)) != LINE_END) {
        ok = kind == LINE_WHOLE ? import_lines_add(im, buf_view(&line))
                                : import_lines_reject(im, "longer than 900 KiB");
        progress_update(&p, bytes);
    }
    ok = ok && import_lines_flush(im);
    progress_done(&p);
    buf_done(&line);
    if (ok && ferror(f)) {
        command_fail(in, "cannot read %s: %s", in->arguments[0], strerror(errno));
        ok = false;
    }
    return ok;
}

static int import_stream(struct invocation *in, FILE *f, uint64_t size)
{
    struct control *c = control_open(in, CONTROL_CREATE);
    if (!c)
        return EXIT_FAILED;
    struct import_lines im;
    import_lines_init(&im, c);
    bool ok = read_lines(in, &im, f, size);
    import_lines_summary(&im);
    if (!ok)
        fprintf(stderr, "stopped before line %" PRIu64 "; the lines before it are in the store\n",
                im.line - im.chunk_lines + 1);
    int code = ok && im.totals[IMPORTED_REJECTED] == 0 ? EXIT_DONE : EXIT_FAILED;
    import_lines_done(&im);
    control_close(c);
    return code;
}

static int run(struct invocation *in)
{
    bool from_stdin = strcmp(in->arguments[0], "-") == 0;
    FILE *f = from_stdin ? stdin : fopen(in->arguments[0], "re");
    if (!f)
        return command_fail(in, "cannot read %s: %s", in->arguments[0], strerror(errno));
    struct stat st;
    int code;
    if (fstat(fileno(f), &st) != 0 || S_ISDIR(st.st_mode))
        code = command_fail(in, "cannot read %s: it is a folder", in->arguments[0]);
    else
        code = import_stream(in, f, S_ISREG(st.st_mode) ? (uint64_t)st.st_size : 0);
    if (!from_stdin)
        fclose(f);
    return code;
}

const struct command command_import = {
    .name = "import",
    .arguments = "FILE|-",
    .summary = "bring accounts, follows, posts, likes and comments in, in bulk",
    .about = "FILE holds one JSON object per line ('-': standard input):\n"
             "  {\"type\":\"account\",\"username\":\"ada\",\"display_name\":\"Ada\"}\n"
             "  {\"type\":\"follow\",\"follower\":\"ada\",\"followee\":\"grace\"}\n"
             "  "
             "{\"type\":\"post\",\"author\":\"ada\",\"caption\":\"hello\",\"created_at\":\"2026-11-"
             "01T10:00:00Z\"}\n"
             "What is there already is left as it is, so an import can be run again. Lines that "
             "are wrong are skipped and listed; the exit code is then 1.",
    .examples = "  fantail import people.ndjson\n  zcat posts.ndjson.gz | fantail import -",
    .arguments_min = 1,
    .arguments_max = 1,
    .run = run,
};
