/* The whole server in one struct, built from the settings: the only place that names concrete
 * engines.
 *
 *     app_open → app_listen → app_start_workers → … → app_close
 *
 * Opening takes the folder's lock, opens truth, brings the views up from their snapshot (or from
 * truth) and finds where the engine has to go on. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "api/api.h"
#include "ops/settings.h"

struct app;

/* In the data folder. */
#define STORE_FILE    "fantail.db"
#define SNAPSHOT_FILE "views.snapshot"

/* Called about ten times a second while the views are loaded from truth; may be NULL. */
typedef void (*app_loading)(void *ctx, uint64_t done, uint64_t total);

/* `settings` must live as long as the app. On failure *out is untouched and `why` is one line for a
 * person. */
enum err app_open(const struct settings *settings, app_loading loading, void *ctx, struct app **out,
                  char why[300]);

/* Where to serve: a TCP address (host NULL: none) and a control socket (NULL: none). */
enum err app_listen(struct app *app, const char *host, uint16_t port, const char *control_path,
                    char why[300]);
bool app_start_workers(struct app *app);

/* Answers what is in flight (up to grace_ms), delivers what can be delivered quickly, saves the
 * views, closes the store and frees everything. */
void app_close(struct app *app, int64_t grace_ms);

struct api *app_api(struct app *app);
uint16_t app_port(const struct app *app);
uint64_t app_account_count(struct app *app);

/* The path of the control socket of a data folder, in `out` (at least 108 bytes, all that a socket
 * address holds). Long folder names go through an open descriptor (*fd, else -1), to be closed
 * after use. False: no such folder. */
enum { CONTROL_PATH_MAX = 108 };
bool app_control_path(const char *folder, char out[CONTROL_PATH_MAX], int *fd);
