/* `fantail backup PATH`: a consistent copy of the store, while it is in use or not. */
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cmd/command.h"
#include "cmd/control.h"
#include "ops/progress.h"

/* The server may stand in another folder: give it an absolute path. */
static bool absolute(const char *path, char out[PATH_MAX])
{
    char here[PATH_MAX];
    if (path[0] == '/')
        return snprintf(out, PATH_MAX, "%s", path) < PATH_MAX;
    return getcwd(here, sizeof(here)) && snprintf(out, PATH_MAX, "%s/%s", here, path) < PATH_MAX;
}

static int run(struct invocation *in)
{
    char path[PATH_MAX], size[32];
    if (!absolute(in->arguments[0], path))
        return command_fail(in, "the path %s is longer than %d bytes", in->arguments[0],
                            PATH_MAX - 1);
    struct control *l = control_open(in, CONTROL_EXISTING);
    json_t *answer =
        l ? control_send(l, "POST", "/v1/admin/backup", json_pack("{s:s}", "path", path)) : NULL;
    bool done = answer != NULL;
    json_decref(answer);
    control_close(l);
    struct stat st;
    if (!done || stat(path, &st) != 0)
        return done ? command_fail(in, "the server reported success, but %s does not exist", path)
                    : EXIT_FAILED;
    progress_print_bytes((uint64_t)st.st_size, size);
    printf("%s: %s\n", in->arguments[0], size);
    return EXIT_DONE;
}

const struct command command_backup = {
    .name = "backup",
    .arguments = "PATH",
    .summary = "copy the store, while it is in use or not",
    .about = "Writes a consistent copy of the store to the new file PATH. A running server goes on "
             "serving. The views are not copied: they are made again from the store.",
    .examples = "  fantail backup /backups/fantail-$(date +%F).db",
    .arguments_min = 1,
    .arguments_max = 1,
    .run = run,
};
