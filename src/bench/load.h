/* An HTTP load generator on few threads: the benchmarks' client, for Fantail and for its peers
 * alike.
 *
 * Closed loop (rate 0): every connection sends its next request as soon as it has its answer: shows
 * the peak. Open loop (rate > 0): requests are due at fixed moments, and a latency counts from the
 * moment a request was due, not from when a connection was free to send it: shows what a client
 * would wait. */
#pragma once

#include "base/err.h"
#include "base/hist.h"
#include "base/str.h"

enum { LOAD_CONNECTIONS_MAX = 4096 };

/* The bytes of request number `index`; they must stay valid for the whole run. */
typedef struct str (*load_request)(void *ctx, uint64_t index);

struct load_config {
    const char *host;
    uint16_t port;
    unsigned connections;
    unsigned threads;       /* that share the connections and the rate; 0: one */
    uint64_t first_request; /* the index of the first one sent */
    double rate;            /* requests a second; 0: closed loop */
    uint64_t requests;      /* stop after so many; 0: when the time is up */
    int64_t warm_up_ms;     /* not counted */
    int64_t run_ms;
    load_request request;
    void *ctx;
};

struct load_result {
    uint64_t answers; /* 2xx */
    uint64_t refused; /* other statuses */
    uint64_t broken;  /* connections lost, answers malformed */
    double seconds;
    double per_second;   /* 2xx */
    double body_bytes;   /* mean size of an answer, head included */
    struct hist latency; /* µs, 2xx only */
};

/* Runs to the end. ERR_UNAVAILABLE: could not connect. */
enum err load_run(const struct load_config *config, struct load_result *result);
