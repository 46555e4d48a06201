/* The load generator of `fantail bench` (src/bench/load.c) as a program of its own, for
 * servers that are running already.
 *
 *   http_load PORT CONNECTIONS SECONDS feed|anew|post|GROUP KEY FILE
 *
 * FILE has an account's id a line: request after request acts for the next of them, with the API
 * key KEY; GROUP is the id of a group to which they send messages. SECONDS 0: once for each of
 * them. Prints one JSON line. */
#include <stdio.h>
#include <stdlib.h>

#include "bench/load.h"

enum { ACCOUNTS_MAX = 100000, REQUEST_MAX = 1024, WARM_UP_MS = 300, ONCE_MS = 300 * 1000 };

struct requests {
    struct str *items;
    size_t count;
};

static struct str next_request(void *ctx, uint64_t index)
{
    const struct requests *r = ctx;
    return r->items[index % r->count];
}

static struct str request_of(const char *what, const char *key, const char *account)
{
    static const char caption[] =
        "A caption of a hundred and twenty characters, give or take: what people write "
        "under a picture of their breakfast table.";
    char *text = malloc(REQUEST_MAX);
    int n = -1;
    if (text && strcmp(what, "post") == 0)
        n = snprintf(text, REQUEST_MAX,
                     "POST /v1/posts HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer %s\r\n"
                     "Fantail-Account: %s\r\nContent-Type: application/json\r\n"
                     "Content-Length: %zu\r\n\r\n{\"caption\":\"%s\"}",
                     key, account, sizeof caption - 1 + 14, caption);
    else if (text && what[0] >= '0' && what[0] <= '9')
        n = snprintf(text, REQUEST_MAX,
                     "POST /v1/groups/%s/messages HTTP/1.1\r\nHost: localhost\r\n"
                     "Authorization: Bearer %s\r\nFantail-Account: %s\r\n"
                     "Content-Type: application/json\r\nContent-Length: %zu\r\n\r\n"
                     "{\"body\":\"%s\"}",
                     what, key, account, sizeof caption - 1 + 11, caption);
    else if (text)
        n = snprintf(text, REQUEST_MAX,
                     "GET /v1/feed%s HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer %s\r\n"
                     "Fantail-Account: %s\r\nAccept: application/json\r\n\r\n",
                     strcmp(what, "anew") == 0 ? "?limit=20" : "", key, account);
    if (n < 0 || n >= REQUEST_MAX) {
        fprintf(stderr, "http_load: the key is too long\n");
        exit(1);
    }
    return (struct str){text, (size_t)n};
}

static bool read_accounts(const char *path, const char *what, const char *key, struct requests *r)
{
    char line[64];
    FILE *f = fopen(path, "re");
    r->items = calloc(ACCOUNTS_MAX, sizeof *r->items);
    while (f && r->items && r->count < ACCOUNTS_MAX && fgets(line, sizeof line, f)) {
        line[strcspn(line, "\n")] = '\0';
        r->items[r->count++] = request_of(what, key, line);
    }
    if (f)
        fclose(f);
    return r->count > 0;
}

int main(int argc, char **argv)
{
    struct requests requests = {0};
    if (argc != 7 || (strcmp(argv[4], "post") != 0 && strcmp(argv[4], "feed") != 0 &&
                      strcmp(argv[4], "anew") != 0 && strtoull(argv[4], NULL, 10) == 0)) {
        fprintf(stderr,
                "usage: http_load PORT CONNECTIONS SECONDS feed|anew|post|GROUP KEY FILE\n");
        return 2;
    }
    if (!read_accounts(argv[6], argv[4], argv[5], &requests)) {
        fprintf(stderr, "http_load: %s names no accounts\n", argv[6]);
        return 1;
    }
    long seconds = strtol(argv[3], NULL, 10);
    struct load_config config = {.host = "127.0.0.1",
                                 .port = (uint16_t)strtoul(argv[1], NULL, 10),
                                 .connections = (unsigned)strtoul(argv[2], NULL, 10),
                                 .threads = 2,
                                 .requests = seconds > 0 ? 0 : requests.count,
                                 .warm_up_ms = seconds > 0 ? WARM_UP_MS : 0,
                                 .run_ms = seconds > 0 ? seconds * 1000 : ONCE_MS,
                                 .request = next_request,
                                 .ctx = &requests};
    static struct load_result result;
    if (load_run(&config, &result) != OK) {
        fprintf(stderr, "http_load: no server listens on port %s\n", argv[1]);
        return 1;
    }
    printf("{\"per_s\":%.1f,\"answers\":%llu,\"refused\":%llu,\"broken\":%llu,\"bytes\":%.0f,"
           "\"p50_ms\":%.3f,\"p99_ms\":%.3f}\n",
           result.per_second, (unsigned long long)result.answers,
           (unsigned long long)result.refused, (unsigned long long)result.broken, result.body_bytes,
           (double)hist_quantile(&result.latency, 0.5) / 1e3,
           (double)hist_quantile(&result.latency, 0.99) / 1e3);
    return 0;
}
