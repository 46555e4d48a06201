/* A real PostgreSQL for one test program: made in a temporary folder, listening on a socket there
 * and on a loopback port, durable (fsync on), run as an unprivileged user when the program is
 * root's. It ends with the program, however that ends. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Starts it the first time. False, with one line on stderr, when there is no PostgreSQL here. */
bool postgres_server_start(void);
void postgres_server_stop(void); /* also called at exit */

int postgres_server_port(void);

/* The URL of a database that is empty but for the schema `name`, which is where tables go; through
 * another loopback port when `port` is not 0. */
void postgres_server_url(const char *name, int port, char *out, size_t size);
void postgres_server_make_schema(const char *name);

/* Runs SQL as the superuser, in that schema; dies when it fails. The first value is the answer. */
int64_t postgres_server_run(const char *schema, const char *sql);

/* A signal to the server and each of its processes; SIGKILL also waits for their end. */
void postgres_server_signal(int signal);
void postgres_server_restart(void); /* after a SIGKILL: waits until it takes connections */
