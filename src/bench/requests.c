/* Two threads send, because one alone would be the limit that is measured. Of a thousand answers
 * one may be a refusal; a connection that breaks is a failure. */
#include "bench/requests.h"

enum { LOAD_THREADS = 2, PRIME_CONNECTIONS = 8, PRIME_MS = 120000, WARM_UP_MS = 500 };

static struct str next_request(void *ctx, uint64_t index)
{
    const struct requests *r = ctx;
    return r->items[index % r->count];
}

struct requests requests_get(struct arena *arena, const char *target, const struct str *tokens,
                             size_t n)
{
    struct requests r = {ARENA_ARRAY(arena, struct str, n), n};
    for (size_t i = 0; i < n; i++)
        r.items[i] =
            arena_printf(arena,
                         "GET %s HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer %.*s\r\n"
                         "Accept: application/json\r\n\r\n",
                         target, STR_ARG(tokens[i]));
    return r;
}

bool requests_run(struct bench *b, uint16_t port, struct requests *r, double rate, int64_t run_ms,
                  struct load_result *out)
{
    struct load_config config = {.host = "127.0.0.1",
                                 .port = port,
                                 .connections = (unsigned)b->connections,
                                 .threads = b->connections < LOAD_THREADS ? 1 : LOAD_THREADS,
                                 .rate = rate,
                                 .warm_up_ms = WARM_UP_MS,
                                 .run_ms = run_ms,
                                 .request = next_request,
                                 .ctx = r};
    enum err e = load_run(&config, out);
    if (e || out->answers == 0 || out->refused * 1000 > out->answers || out->broken > 0) {
        bench_say(b, "the server did not answer as it should: %llu good, %llu refused, %llu broken",
                  (unsigned long long)out->answers, (unsigned long long)out->refused,
                  (unsigned long long)out->broken);
        return false;
    }
    return true;
}

bool requests_prime(uint16_t port, const struct requests *requests)
{
    struct requests r = *requests;
    struct load_config config = {.host = "127.0.0.1",
                                 .port = port,
                                 .connections = PRIME_CONNECTIONS,
                                 .requests = r.count,
                                 .run_ms = PRIME_MS,
                                 .request = next_request,
                                 .ctx = &r};
    struct load_result result;
    return load_run(&config, &result) == OK && result.answers == r.count;
}

double load_quantile_ms(const struct load_result *r, double q)
{
    return (double)hist_quantile(&r->latency, q) / 1e3;
}
