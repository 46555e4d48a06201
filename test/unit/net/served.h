/* A real server on a loopback port whose handler does what the path says, and a raw socket to talk
 * to it byte by byte.
 *
 *   /echo    answers method, target and body
 *   /later   the same, from another thread
 *   /hold    keeps the exchange until served_release()
 *   /release answers everything that is held, from inside the handler, then itself
 *   /big?n=  answers n bytes
 *   /status?n= answers that status with an empty body, /close closes, /header adds a header */
#pragma once

#include <pthread.h>
#include <stdatomic.h>

#include "base/buf.h"
#include "net/http.h"
#include "net/pool.h"

enum { SERVED_HELD_MAX = 64, PATIENCE_MS = 20000 };

struct served {
    struct http_config config;
    struct http_server *server;
    struct pool *pool;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    struct http_exchange *held[SERVED_HELD_MAX];
    size_t held_count;
    _Atomic int completed, completed_on_loop; /* held answers that were written, and where */
};

void served_init(struct served *s); /* small loops count, default limits; change config, then: */
void served_start(struct served *s);
void served_done(struct served *s);
void served_await_held(struct served *s, size_t count);
void served_release(struct served *s); /* answers everything that is held, from this thread */
void served_await_stat(struct served *s, uint64_t (*read)(const struct http_stats *),
                       uint64_t value);

/* ---- the raw client ---- */

int raw_connect(const struct served *s);
void raw_send(int fd, struct str bytes);
bool raw_try_send(int fd, struct str bytes); /* false: the peer has closed */
/* Reads one answer (head and Content-Length body; `no_body` for HEAD) into `out`, NUL-terminated
 * after its length. Bytes behind it stay in the socket. False: closed before it was complete. */
bool raw_read_answer(int fd, struct buf *out, bool no_body);
/* One answer, by its status; 0: closed without one. */
int raw_status(int fd);
void raw_assert_closed(int fd); /* waits for the end of the stream */
