/* Commands that are rows of a table: what they ask the server, with which options, and how the
 * answer is shown. `operator_commands` has them all; a new one is a row there and nothing else. */
#pragma once

#include "cmd/control.h"

struct operation {
    const char *verb; /* the command's first argument; NULL: its only operation */
    const char *method;
    const char *target;  /* {N}: the Nth argument; {N:id}: which must be an id */
    const char *members; /* of every request, as JSON; options are added to them */
    const char *needs;   /* an option that must be given */
    bool filtered;       /* needs filters or --all, not both */
    bool create;         /* an empty folder becomes a store */
    const char *text;    /* template of the answer (cmd/show.h), which also has {asked.MEMBER} */
    const char *note;    /* the same, on stderr */

    /* Answers that come in slices, which are added up: numbers are summed, arrays joined. */
    const char *resume, *next; /* the position to resume at: member of the request, of the answer */
    const char *label;         /* of the progress bar; NULL: none */
    const char *counted;       /* the member that it shows */
    int64_t slice_max;         /* the members "limit" and "items" are of such slices; 0: not */
    /* Sees each slice before it is added to the total; may be NULL. */
    void (*take)(struct invocation *in, json_t *total, json_t *slice);

    /* Instead of showing the answer, which it takes. Returns the exit code. */
    int (*then)(struct invocation *in, struct control *c, const struct operation *op,
                json_t *answer);
    /* Instead of all that. */
    int (*run)(struct invocation *in, const struct operation *op);
};

extern const struct command operator_commands[];
extern const size_t operator_command_count;

/* Runs such a command: finds the operation, checks options, asks, shows. */
int operate(struct invocation *in);

/* ---- for operations with code of their own ---- */

/* The request's members from the row and the options. NULL: a message was printed, return
 * EXIT_USAGE. */
json_t *operate_members(const struct invocation *in, const struct operation *op);
/* All slices, added up; NULL: a message was printed. `total`: of the progress bar; 0: not known. */
json_t *operate_ask(struct invocation *in, struct control *c, const struct operation *op,
                    const json_t *members, uint64_t total);
/* As JSON when that was asked for, else by the row's template. */
void operate_show(struct invocation *in, const struct operation *op, const json_t *members,
                  json_t *answer);

/* ---- the `take`, `then` and `run` of rows that do more than ask and show ---- */

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
