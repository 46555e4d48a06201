/* The whole server in one struct, built from the settings: the only place that names concrete
 * drivers.
 *
 *     runtime_open → runtime_listen → runtime_start_workers → … → runtime_close
 *
 * Opening takes the folder's lock, opens truth, brings the views up from their snapshot (or from
 * truth) and finds where the engine has to go on. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "api/edge/api.h"
#include "ops/settings.h"

struct runtime;

/* In the data folder. */
#define STORE_FILE    "fantail.db"
#define SNAPSHOT_FILE "views.snapshot"
#define CONTROL_FILE  "control.sock"

/* Called about ten times a second while the views are loaded from truth; may be NULL. */
typedef void (*runtime_loading)(void *ctx, uint64_t done, uint64_t total);

/* `settings` must live as long as the runtime. On failure *out is untouched and `why` is one line
 * for a person. */
enum err runtime_open(const struct settings *settings, runtime_loading loading, void *ctx,
                      struct runtime **out, char why[300]);

/* Where to serve: a TCP address (host NULL: none) and a control socket (NULL: none). */
enum err runtime_listen(struct runtime *runtime, const char *host, uint16_t port,
                        const char *control_path, char why[300]);
bool runtime_start_workers(struct runtime *runtime);

/* Answers requests in flight (up to grace_ms), delivers what can be delivered quickly, saves the
 * views, closes the store and frees everything. */
void runtime_close(struct runtime *runtime, int64_t grace_ms);

unsigned runtime_loops(const struct settings *settings); /* event-loop threads */
struct api *runtime_api(struct runtime *runtime);
uint16_t runtime_port(const struct runtime *runtime);
uint64_t runtime_account_count(struct runtime *runtime);
