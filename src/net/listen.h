/* The sockets that a server listens on. Each call returns a listening socket, or -1 and says why.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

enum { LISTEN_BACKLOG = 1024 };

/* `shared`: several sockets of ours will bind the same port, and the kernel spreads connections
 * over them. *port 0: any free one; holds the port afterwards. */
int listen_tcp(const char *host, uint16_t *port, bool shared, char why[200]);
/* Is the port free? Sharing a port would otherwise succeed silently. */
bool listen_tcp_is_free(const char *host, uint16_t port, char why[200]);

/* A unix socket that only its owner may use (mode 0600). Replaces a socket file without a listener;
 * fails when there is one. */
int listen_unix(const char *path, char why[200]);

/* Connects to a unix socket, blocking; -1 with errno. */
int connect_unix(const char *path);
