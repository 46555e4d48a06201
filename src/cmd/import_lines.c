/* Lines are sent in chunks that the API's body limit lets through. A line that is wrong by itself
 * is skipped by the server, counted and described; a chunk that fails as a whole (the disk is full,
 * the server went away) ends the work, and everything before it is in the store. */
#include "cmd/import_lines.h"

#include <inttypes.h>
#include <stdio.h>

#include "base/check.h"
#include "ops/progress.h"

/* A password takes the server as long as hundreds of other lines, and a call should end soon. */
enum { CHUNK_WEIGHT = 4000, PASSWORD_WEIGHT = 4, SHOWN_MAX = 20 };

static const struct {
    const char *key, *shown;
} counts[IMPORT_COUNTS] = {
    [IMPORTED_ACCOUNTS] = {"accounts", "accounts"},
    [IMPORTED_FOLLOWS] = {"follows", "follows"},
    [IMPORTED_POSTS] = {"posts", "posts"},
    [IMPORTED_LIKES] = {"likes", "likes"},
    [IMPORTED_COMMENTS] = {"comments", "comments"},
    [IMPORTED_REPEATED] = {"repeated", "already there"},
    [IMPORTED_REJECTED] = {"rejected", "rejected"},
};

void import_lines_init(struct import_lines *im, struct control *control)
{
    *im = (struct import_lines){.control = control};
    buf_init(&im->chunk, IMPORT_LINE_MAX + 1);
}

void import_lines_done(struct import_lines *im)
{
    buf_done(&im->chunk);
}

static void show_rejected(struct import_lines *im, uint64_t line, const char *why)
{
    if (im->rejections++ < SHOWN_MAX)
        fprintf(stderr, "line %llu: %s\n", (unsigned long long)line, why);
}

static void take_answer(struct import_lines *im, const json_t *answer)
{
    for (size_t i = 0; i < IMPORT_COUNTS; i++)
        im->totals[i] += (uint64_t)answer_int(answer, counts[i].key);
    size_t i;
    json_t *error;
    json_array_foreach(json_object_get(answer, "errors"), i, error)
    {
        show_rejected(im, (uint64_t)answer_int(error, "line"), answer_text(error, "detail"));
    }
}

bool import_lines_flush(struct import_lines *im)
{
    if (im->chunk_lines == 0)
        return true;
    CHECK(!im->chunk.failed);
    char target[80];
    snprintf(target, sizeof(target), "/v1/admin/import?first_line=%" PRIu64,
             im->line - im->chunk_lines + 1);
    json_t *answer =
        control_call(im->control, "POST", target, "Content-Type: application/x-ndjson\r\n",
                     buf_view(&im->chunk), NULL);
    if (!answer)
        return false;
    take_answer(im, answer);
    json_decref(answer);
    buf_clear(&im->chunk);
    im->chunk_lines = 0;
    im->chunk_weight = 0;
    return true;
}

bool import_lines_add(struct import_lines *im, struct str line)
{
    while (line.len > 0 && (line.ptr[line.len - 1] == '\n' || line.ptr[line.len - 1] == '\r'))
        line.len--;
    if (line.len >= IMPORT_LINE_MAX)
        return import_lines_reject(im, "longer than 900 KiB");
    if ((im->chunk.len + line.len >= IMPORT_LINE_MAX || im->chunk_weight >= CHUNK_WEIGHT) &&
        !import_lines_flush(im))
        return false;
    im->line++;
    im->chunk_lines++;
    im->chunk_weight += memmem(line.ptr, line.len, "\"password\"", 10) ? PASSWORD_WEIGHT : 1;
    buf_str(&im->chunk, line);
    buf_append(&im->chunk, "\n", 1);
    return true;
}

bool import_lines_reject(struct import_lines *im, const char *why)
{
    /* Numbers of a chunk are counted from its first line: they must not have gaps. */
    if (!import_lines_flush(im))
        return false;
    im->line++;
    im->totals[IMPORTED_REJECTED]++;
    show_rejected(im, im->line, why);
    return true;
}

void import_lines_summary(const struct import_lines *im)
{
    for (size_t i = 0; i < IMPORT_COUNTS; i++) {
        char number[32];
        progress_print_count(im->totals[i], number);
        if (i == IMPORTED_REJECTED || im->totals[i] > 0)
            printf("%s %s%s", number, counts[i].shown, i == IMPORTED_REJECTED ? "\n" : ", ");
    }
    if (im->rejections > SHOWN_MAX)
        fprintf(stderr, "(%llu more rejected lines are not shown)\n",
                (unsigned long long)(im->rejections - SHOWN_MAX));
}
