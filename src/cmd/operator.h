/* The code behind rows of cmd/operator.c that do more than ask and show. Each is the `then` or the
 * `run` of an operation. */
#pragma once

#include "cmd/operate.h"

/* Watches work on the server (a replay, a rebuild) until it ends; Ctrl-C leaves it running. */
int job_watch(struct invocation *in, struct control *c, const struct operation *op, json_t *job);
/* The same for work that this command began, unless --detach was given. */
int job_follow(struct invocation *in, struct control *c, const struct operation *op, json_t *job);

void replay_take_slice(struct invocation *in, json_t *total, json_t *slice);
int replay_plan(struct invocation *in, const struct operation *op);
int replay_start(struct invocation *in, const struct operation *op);

void check_take_slice(struct invocation *in, json_t *total, json_t *slice);
int check_run(struct invocation *in, const struct operation *op);

int status_show(struct invocation *in, struct control *c, const struct operation *op,
                json_t *status);
