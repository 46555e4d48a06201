/* What the commands about long work (replay, rebuild) have in common: list, watch, pause, resume,
 * cancel. */
#pragma once

#include <jansson.h>

#include "cmd/command.h"

struct link;

struct job_family {
    const char *path;       /* "/v1/admin/replays" */
    const char *noun;       /* "replay", also the command's name */
    const char *label;      /* "replaying", of the bar */
    const char *one, *many; /* "event", "events" */
};

int job_list_all(struct invocation *in, const struct job_family *family);
/* in->arguments[1] is the id. */
int job_change_state(struct invocation *in, const struct job_family *family, const char *state);
int job_watch_id(struct invocation *in, const struct job_family *family);
/* Shows how far it is until it has ended. Ctrl-C leaves it running and says so. Takes `job`. */
int job_watch(struct invocation *in, struct link *l, const struct job_family *family, json_t *job);
