/* How a command reaches the store: through the control socket of the server that runs on the data
 * folder, else by opening the same server in this process with a control socket of its own in a
 * folder of its own. Either way the command speaks HTTP with the same handlers, so each operation
 * exists once. */
#pragma once

#include <jansson.h>

#include "base/buf.h"
#include "cmd/command.h"

struct control;

enum control_mode {
    CONTROL_EXISTING, /* there must be a store already */
    CONTROL_CREATE,   /* an empty folder becomes a store */
    CONTROL_SERVE,    /* like CREATE; when no server runs, this process also serves on --listen */
};

/* NULL: a message was printed. */
struct control *control_open(const struct invocation *in, enum control_mode mode);
void control_close(struct control *c);

bool control_is_remote(const struct control *c); /* another process serves */
uint16_t control_port(const struct control *c);  /* CONTROL_SERVE in this process; else 0 */

/* One request. NULL: it did not succeed and a message was printed, unless `status` is given: then
 * an answer of the server with a problem is returned too. The value belongs to the caller. */
json_t *control_call(struct control *c, const char *method, const char *target, const char *headers,
                     struct str body, int *status);
json_t *control_get(struct control *c, const char *target);
json_t *control_send(struct control *c, const char *method, const char *target,
                     json_t *body); /* takes body */

/* Numbers and texts of an answer; 0 and "" when absent. */
int64_t answer_int(const json_t *object, const char *key);
const char *answer_text(const json_t *object, const char *key);

/* Appends `text` percent-encoded. */
void control_encode(struct buf *target, const char *text);
