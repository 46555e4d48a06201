/* A small blocking HTTP/1.1 client over a unix socket or TCP. The command line uses it to talk to a
 * running server, a node to forward requests, and so do tests and the demo. Not for event loops;
 * one thread at a time. */
#pragma once

#include "base/buf.h"
#include "base/err.h"

struct http_client;

/* Both connect at once. NULL: no server listens there. */
struct http_client *http_client_unix(const char *socket_path);
struct http_client *http_client_tcp(const char *host, uint16_t port);
/* Connects with the first call, and within the time that this has. Never NULL. */
struct http_client *http_client_later(const char *host, uint16_t port);
void http_client_free(struct http_client *c);

/* Sends one request on a kept connection and reads the whole answer into `body` (cleared first).
 * `headers`: extra lines "Name: value\r\n…" or NULL. Returns an error only when no answer came:
 *   UNAVAILABLE     no server answers, or the answer broke off; the request may be repeated
 *   UNKNOWN_COMMIT  the same after a POST or PATCH was sent: the server may have carried it out
 *   TIMEOUT         not within `timeout_ms`
 *   TOO_LARGE       the answer outgrew the ceiling of `body` */
enum err http_client_call(struct http_client *c, const char *method, const char *target,
                          const char *headers, struct str request_body, int *status,
                          struct buf *body, int64_t timeout_ms);
/* The value of a header of the last answer, {NULL, 0} when it had none. Valid until the next
 * call. */
struct str http_client_header(const struct http_client *c, const char *name);
