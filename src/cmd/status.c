/* `fantail status`: gathers the figures, and repeats that with --watch. Its template is in
 * cmd/operator.c. */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "cmd/operate.h"
#include "cmd/show.h"

enum { WATCH_SECONDS = 2 };

/* Adds what belongs to the status: the freshness of the leader's engine, unless no node leads, and
 * of several nodes the list. */
static bool gather(struct control *c, json_t *status)
{
    bool led = json_is_object(json_object_get(status, "engine"));
    bool many = json_is_object(json_object_get(status, "cluster"));
    json_t *freshness = led ? control_get(c, "/v1/admin/freshness") : NULL;
    bool complete = freshness || (many && !led);
    json_object_set_new(status, "freshness", freshness ? freshness : json_null());
    if (complete && many) {
        json_t *nodes = control_get(c, "/v1/admin/nodes");
        complete = nodes != NULL;
        json_object_set(status, "nodes", json_object_get(nodes, "items"));
        json_decref(nodes);
    }
    return complete;
}

/* Takes `status`. */
static bool show_once(struct invocation *in, struct control *c, const struct operation *op,
                      json_t *status)
{
    bool watch = invocation_has(in, "watch"), complete = gather(c, status);
    if (complete && watch && invocation_has(in, "json")) {
        json_dumpf(status, stdout, JSON_COMPACT);
        printf("\n");
    } else if (complete) {
        if (watch && isatty(STDOUT_FILENO))
            printf("\033[H\033[2J");
        json_t *asked = json_pack("{s:s, s:b, s:b}", "data", in->settings.data, "remote",
                                  control_is_remote(c), "numbers", invocation_has(in, "numbers"));
        operate_show(in, op, asked, status);
        json_decref(asked);
    }
    json_decref(status);
    if (!complete || fflush(stdout) == 0)
        return complete;
    if (errno != EPIPE) { /* a reader that went away is dealt with at the end */
        command_fail(in, "cannot write the output: %s", strerror(errno));
        clearerr(stdout);
    }
    return false;
}

int status_show(struct invocation *in, struct control *c, const struct operation *op,
                json_t *status)
{
    bool ok = show_once(in, c, op, status);
    while (ok && invocation_has(in, "watch")) {
        struct timespec pause = {.tv_sec = WATCH_SECONDS};
        nanosleep(&pause, NULL);
        status = control_get(c, op->target);
        ok = status && show_once(in, c, op, status);
    }
    return ok ? EXIT_DONE : EXIT_FAILED;
}
