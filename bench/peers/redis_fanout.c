/* The Redis peer of `fantail bench fanout`: the same deliveries as ZADD + ZREMRANGEBYRANK,
 * pipelined by 500 over a unix socket, which is the fastest idempotent way that Redis offers.
 * Speaks RESP itself: the requests are formed ahead of each pipeline, so that the client costs
 * little.
 *
 *   redis_fanout SOCKET ACCOUNTS ENTRIES FOLLOWERS POSTS STREAM_POSTS STREAM_FOLLOWERS
 *
 * Prints one JSON line: deliveries a second of the large fan-out and of the stream, bytes an entry.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

enum { PIPELINE = 500, CAP = 1000, BUFFER = 1 << 22 };

static int server;
static char *out;
static size_t out_len;
static uint64_t random_state = 88172645463325252u;

static void die(const char *what)
{
    fprintf(stderr, "redis_fanout: %s: %s\n", what, strerror(errno));
    exit(1);
}

static uint64_t next_random(void)
{
    random_state ^= random_state << 13;
    random_state ^= random_state >> 7;
    random_state ^= random_state << 17;
    return random_state;
}

static double now_s(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static void put(const char *format, ...) __attribute__((format(printf, 1, 2)));

static void put(const char *format, ...)
{
    va_list args;
    va_start(args, format);
    int n = vsnprintf(out + out_len, BUFFER - out_len, format, args);
    va_end(args);
    if (n < 0 || out_len + (size_t)n >= BUFFER) {
        errno = ENOBUFS;
        die("pipeline");
    }
    out_len += (size_t)n;
}

static void put_bulk(const char *text)
{
    put("$%zu\r\n%s\r\n", strlen(text), text);
}

/* Sends the pipeline and reads as many replies (each of them one line: integers and errors). */
static void flush_pipeline(size_t replies)
{
    static char in[1 << 16];
    for (size_t sent = 0; sent < out_len;) {
        ssize_t n = write(server, out + sent, out_len - sent);
        if (n <= 0)
            die("write");
        sent += (size_t)n;
    }
    out_len = 0;
    while (replies > 0) {
        ssize_t n = read(server, in, sizeof in);
        if (n <= 0)
            die("read");
        for (ssize_t i = 0; i < n; i++) {
            if (in[i] == '-' && (i == 0 || in[i - 1] == '\n')) {
                fprintf(stderr, "redis_fanout: %.80s\n", in + i);
                exit(1);
            }
            replies -= in[i] == '\n';
        }
    }
}

static void put_delivery(uint64_t account, uint64_t post)
{
    char key[32], member[32];
    snprintf(key, sizeof key, "feed:%" PRIu64, account);
    snprintf(member, sizeof member, "%019" PRIu64, post);
    put("*4\r\n$4\r\nZADD\r\n");
    put_bulk(key);
    char score[32];
    snprintf(score, sizeof score, "%" PRIu64, post >> 22);
    put_bulk(score);
    put_bulk(member);
    put("*4\r\n$15\r\nZREMRANGEBYRANK\r\n");
    put_bulk(key);
    put_bulk("0");
    put_bulk("-1001");
}

/* Entry by entry over all accounts, ten at a time: a heap that has lived, not one sorted list after
 * the other. */
static void preload(uint64_t accounts, uint64_t entries, uint64_t first_post)
{
    enum { ROUND = 10 };
    char text[32];
    uint64_t batch = 0;
    for (uint64_t first = 0; first < entries; first += ROUND) {
        uint64_t count = entries - first < ROUND ? entries - first : ROUND;
        for (uint64_t a = 0; a < accounts; a++) {
            put("*%" PRIu64 "\r\n$4\r\nZADD\r\n", 2 + 2 * count);
            snprintf(text, sizeof text, "feed:%" PRIu64, a);
            put_bulk(text);
            for (uint64_t i = first; i < first + count; i++) {
                uint64_t post = first_post + (i << 22);
                snprintf(text, sizeof text, "%" PRIu64, post >> 22);
                put_bulk(text);
                snprintf(text, sizeof text, "%019" PRIu64, post);
                put_bulk(text);
            }
            if (++batch == PIPELINE) {
                flush_pipeline(batch);
                batch = 0;
            }
        }
    }
    if (batch)
        flush_pipeline(batch);
}

static uint64_t used_memory(void)
{
    static char in[1 << 16];
    const char *ask = "*2\r\n$4\r\nINFO\r\n$6\r\nmemory\r\n";
    if (write(server, ask, strlen(ask)) < 0)
        die("write");
    size_t len = 0;
    char *at;
    do {
        ssize_t n = read(server, in + len, sizeof in - 1 - len);
        if (n <= 0)
            die("read");
        len += (size_t)n;
        in[len] = '\0';
        at = strstr(in, "used_memory:");
    } while (!at || !strstr(in, "lazyfreed_objects:"));
    return strtoull(at + 12, NULL, 10);
}

/* Followers in no particular order, as a set of them comes out of Redis. */
static uint64_t *pick_followers(uint64_t accounts, uint64_t followers)
{
    uint64_t *all = malloc(accounts * sizeof *all);
    if (!all)
        die("memory");
    for (uint64_t i = 0; i < accounts; i++)
        all[i] = i;
    for (uint64_t i = 0; i < followers; i++) {
        uint64_t other = i + next_random() % (accounts - i), swap = all[i];
        all[i] = all[other];
        all[other] = swap;
    }
    return all;
}

static double fan_out(uint64_t accounts, uint64_t followers, uint64_t posts, uint64_t *post)
{
    uint64_t *members = pick_followers(accounts, followers);
    double start = now_s();
    for (uint64_t p = 0; p < posts; p++) {
        *post += 1 << 22;
        uint64_t batch = 0;
        for (uint64_t f = 0; f < followers; f++) {
            put_delivery(members[f], *post);
            if (++batch == PIPELINE || f + 1 == followers) {
                flush_pipeline(2 * batch);
                batch = 0;
            }
        }
    }
    double took = now_s() - start;
    free(members);
    return (double)(followers * posts) / took;
}

static double stream(uint64_t accounts, uint64_t posts, uint64_t followers, uint64_t *post)
{
    double start = now_s();
    uint64_t batch = 0;
    for (uint64_t p = 0; p < posts; p++) {
        *post += 1 << 22;
        for (uint64_t f = 0; f < followers; f++) {
            put_delivery(next_random() % accounts, *post);
            if (++batch == PIPELINE) {
                flush_pipeline(2 * batch);
                batch = 0;
            }
        }
    }
    if (batch)
        flush_pipeline(2 * batch);
    return (double)(followers * posts) / (now_s() - start);
}

int main(int argc, char **argv)
{
    if (argc != 8) {
        fprintf(stderr, "usage: redis_fanout SOCKET ACCOUNTS ENTRIES FOLLOWERS POSTS STREAM_POSTS "
                        "STREAM_FOLLOWERS\n");
        return 2;
    }
    uint64_t n[6];
    for (int i = 0; i < 6; i++)
        n[i] = strtoull(argv[i + 2], NULL, 10);
    uint64_t accounts = n[0], entries = n[1], followers = n[2];
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    strncpy(address.sun_path, argv[1], sizeof address.sun_path - 1);
    server = socket(AF_UNIX, SOCK_STREAM, 0);
    if (server < 0 || connect(server, (struct sockaddr *)&address, sizeof address) < 0)
        die(argv[1]);
    out = malloc(BUFFER);
    if (!out)
        die("memory");
    uint64_t post = UINT64_C(1) << 59, empty = used_memory();
    preload(accounts, entries, post);
    post += entries << 22;
    double bytes = (double)(used_memory() - empty) / (double)(accounts * entries);
    double one = fan_out(accounts, followers, n[3], &post);
    double many = stream(accounts, n[4], n[5], &post);
    printf("{\"one_per_s\":%.0f,\"stream_per_s\":%.0f,\"bytes_per_entry\":%.1f}\n", one, many,
           bytes);
    return 0;
}
