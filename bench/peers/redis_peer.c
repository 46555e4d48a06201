/* The Redis peer of `bench/compare cluster`: the least that a server of feeds would have to ask of
 * Redis, by clients that do nothing else. Speaks RESP itself, over TCP.
 *
 *   redis_peer fill   PORT FOLLOWERS FROM TO         timelines get the entries FROM to TO
 *   redis_peer fanout PORT FOLLOWERS FROM TO THREADS the same one by one: ZADD + ZREMRANGEBYRANK,
 *                                                    500 deliveries a pipeline
 *   redis_peer cards  PORT COUNT BYTES               the cards that pages show
 *   redis_peer pages  PORT FOLLOWERS COUNT SECONDS CONNECTIONS THREADS
 *                                                    ZREVRANGE + MGET of 20, a page a round trip
 *
 * A page is asked for in one go, as if the client knew the ids before it had read them: no real
 * one can be as fast. Prints one JSON line. */
#include <arpa/inet.h>
#include <errno.h>
#include <inttypes.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum { PIPELINE = 500, CAP = 1000, PAGE = 20, OUT = 1 << 20, THREADS_MAX = 64, FILL_AT_ONCE = 10 };

struct client {
    int fd;
    char *out;
    size_t len;
    uint64_t random;
};

static uint16_t port;

static void die(const char *what)
{
    fprintf(stderr, "redis_peer: %s: %s\n", what, strerror(errno));
    exit(1);
}

static double now_s(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static uint64_t next_random(struct client *c)
{
    c->random ^= c->random << 13;
    c->random ^= c->random >> 7;
    c->random ^= c->random << 17;
    return c->random;
}

static void open_client(struct client *c, uint64_t seed)
{
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_port = htons(port)};
    at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    int on = 1;
    *c = (struct client){.fd = socket(AF_INET, SOCK_STREAM, 0),
                         .out = malloc(OUT),
                         .random =
                             UINT64_C(88172645463325252) + seed * UINT64_C(7046029254386353131)};
    if (c->fd < 0 || !c->out || connect(c->fd, (struct sockaddr *)&at, sizeof at) < 0)
        die("connect");
    (void)setsockopt(c->fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
}

static void close_client(struct client *c)
{
    close(c->fd);
    free(c->out);
}

static void put(struct client *c, const char *format, ...) __attribute__((format(printf, 2, 3)));

static void put(struct client *c, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    int n = vsnprintf(c->out + c->len, OUT - c->len, format, args);
    va_end(args);
    if (n < 0 || c->len + (size_t)n >= OUT) {
        errno = ENOBUFS;
        die("pipeline");
    }
    c->len += (size_t)n;
}

static void put_bulk(struct client *c, const char *format, uint64_t number)
{
    char text[40];
    int n = snprintf(text, sizeof text, "%" PRIu64, number);
    if (format[0] == '0')
        n = snprintf(text, sizeof text, "%019" PRIu64, number);
    else if (format[0])
        n = snprintf(text, sizeof text, "%s:%" PRIu64, format, number);
    put(c, "$%d\r\n%s\r\n", n, text);
}

static void send_all(struct client *c)
{
    for (size_t sent = 0; sent < c->len;) {
        ssize_t n = write(c->fd, c->out + sent, c->len - sent);
        if (n <= 0)
            die("write");
        sent += (size_t)n;
    }
    c->len = 0;
}

/* Replies of one line each: numbers, OK, errors. */
static void flush_lines(struct client *c, size_t replies)
{
    char in[1 << 14];
    bool at_start = true;
    send_all(c);
    while (replies > 0) {
        ssize_t n = read(c->fd, in, sizeof in);
        if (n <= 0)
            die("read");
        for (ssize_t i = 0; i < n; i++) {
            if (at_start && in[i] == '-') {
                fprintf(stderr, "redis_peer: %.*s\n", (int)(n - i < 80 ? n - i : 80), in + i);
                exit(1);
            }
            at_start = in[i] == '\n';
            replies -= at_start;
        }
    }
}

/* Entry `i` has this id: Redis orders by the score and then by the member. */
static uint64_t entry_id(uint64_t i)
{
    return (UINT64_C(1700000000000) + i) << 22;
}

/* A few entries at a time over all timelines: a heap that has lived. */
static void fill(uint64_t followers, uint64_t from, uint64_t to)
{
    struct client c;
    size_t waiting = 0;
    open_client(&c, 1);
    for (uint64_t first = from; first < to; first += FILL_AT_ONCE) {
        uint64_t last = first + FILL_AT_ONCE < to ? first + FILL_AT_ONCE : to;
        for (uint64_t f = 0; f < followers; f++) {
            put(&c, "*%" PRIu64 "\r\n$4\r\nZADD\r\n", 2 + 2 * (last - first));
            put_bulk(&c, "feed", f);
            for (uint64_t i = first; i < last; i++) {
                put_bulk(&c, "", entry_id(i) >> 22);
                put_bulk(&c, "0", entry_id(i));
            }
            if (++waiting == PIPELINE) {
                flush_lines(&c, waiting);
                waiting = 0;
            }
        }
    }
    flush_lines(&c, waiting);
    close_client(&c);
}

struct share {
    pthread_t thread;
    unsigned number, of;
    uint64_t followers, from, to;
    uint64_t cards, connections;
    double until;
    uint64_t pages;
};

/* Each thread has the followers f with f % of == number. */
static void *fan_out(void *arg)
{
    struct share *s = arg;
    struct client c;
    open_client(&c, s->number);
    for (uint64_t i = s->from; i < s->to; i++) {
        size_t waiting = 0;
        for (uint64_t f = s->number; f < s->followers; f += s->of) {
            put(&c, "*4\r\n$4\r\nZADD\r\n");
            put_bulk(&c, "feed", f);
            put_bulk(&c, "", entry_id(i) >> 22);
            put_bulk(&c, "0", entry_id(i));
            put(&c, "*4\r\n$15\r\nZREMRANGEBYRANK\r\n");
            put_bulk(&c, "feed", f);
            put(&c, "$1\r\n0\r\n$5\r\n-%d\r\n", CAP + 1);
            if (++waiting == PIPELINE) {
                flush_lines(&c, 2 * waiting);
                waiting = 0;
            }
        }
        flush_lines(&c, 2 * waiting);
    }
    close_client(&c);
    return NULL;
}

static void fill_cards(uint64_t count, uint64_t bytes)
{
    struct client c;
    size_t waiting = 0;
    char *card = calloc(1, bytes + 1);
    if (!card)
        die("memory");
    memset(card, 'x', bytes);
    open_client(&c, 1);
    for (uint64_t i = 0; i < count; i++) {
        put(&c, "*3\r\n$3\r\nSET\r\n");
        put_bulk(&c, "card", i);
        put(&c, "$%" PRIu64 "\r\n%s\r\n", bytes, card);
        if (++waiting == PIPELINE) {
            flush_lines(&c, waiting);
            waiting = 0;
        }
    }
    flush_lines(&c, waiting);
    close_client(&c);
    free(card);
}

/* ---- pages ---- */

/* How much of an answer is still to come: two arrays of PAGE texts each. */
struct pager {
    struct client client;
    int texts_left;
    size_t body_left; /* of the present text, its line end included */
    uint64_t length;
    char kind;
    bool in_line;
};

static void ask(struct pager *p, const struct share *s)
{
    struct client *c = &p->client;
    put(c, "*4\r\n$9\r\nZREVRANGE\r\n");
    put_bulk(c, "feed", next_random(c) % s->followers);
    put(c, "$1\r\n0\r\n$2\r\n%d\r\n*%d\r\n$4\r\nMGET\r\n", PAGE - 1, PAGE + 1);
    for (int i = 0; i < PAGE; i++)
        put_bulk(c, "card", next_random(c) % s->cards);
    p->texts_left = 2 * PAGE;
    send_all(c);
}

/* Reads what has come; true when the page is whole. */
static bool take(struct pager *p, const char *at, size_t n)
{
    while (n > 0) {
        if (p->body_left > 0) {
            size_t step = n < p->body_left ? n : p->body_left;
            at += step;
            n -= step;
            p->body_left -= step;
            p->texts_left -= p->body_left == 0;
            continue;
        }
        char byte = *at++;
        n--;
        if (!p->in_line) {
            p->kind = byte;
            p->length = 0;
            p->in_line = true;
            if (byte != '*' && byte != '$') {
                fprintf(stderr, "redis_peer: a page is not as expected: %.*s\n",
                        (int)(n < 80 ? n : 80), at);
                exit(1);
            }
        } else if (byte == '\n') {
            p->in_line = false;
            if (p->kind == '$')
                p->body_left = p->length + 2;
            else if (p->length != PAGE) {
                fprintf(stderr, "redis_peer: a page of %" PRIu64 "\n", p->length);
                exit(1);
            }
        } else if (byte >= '0' && byte <= '9') {
            p->length = p->length * 10 + (uint64_t)(byte - '0');
        } else if (byte == '-') {
            fprintf(stderr, "redis_peer: a card is missing\n");
            exit(1);
        }
    }
    return p->texts_left == 0;
}

static void *read_pages(void *arg)
{
    struct share *s = arg;
    struct pager *pagers = calloc(s->connections, sizeof *pagers);
    static _Thread_local char in[1 << 16];
    int poll = epoll_create1(0);
    if (!pagers || poll < 0)
        die("memory");
    for (uint64_t i = 0; i < s->connections; i++) {
        struct epoll_event event = {.events = EPOLLIN, .data.u64 = i};
        open_client(&pagers[i].client, s->number * 1000 + i);
        if (epoll_ctl(poll, EPOLL_CTL_ADD, pagers[i].client.fd, &event) < 0)
            die("epoll");
        ask(&pagers[i], s);
    }
    while (now_s() < s->until) {
        struct epoll_event events[64];
        int ready = epoll_wait(poll, events, 64, 100);
        for (int i = 0; i < ready; i++) {
            struct pager *p = &pagers[events[i].data.u64];
            ssize_t n = read(p->client.fd, in, sizeof in);
            if (n <= 0)
                die("read");
            if (take(p, in, (size_t)n)) {
                s->pages++;
                ask(p, s);
            }
        }
    }
    for (uint64_t i = 0; i < s->connections; i++)
        close_client(&pagers[i].client);
    close(poll);
    free(pagers);
    return NULL;
}

/* ---- */

static double run_all(void *(*work)(void *), struct share *shares, unsigned threads)
{
    double began = now_s();
    for (unsigned i = 0; i < threads; i++)
        if (pthread_create(&shares[i].thread, NULL, work, &shares[i]) != 0)
            die("thread");
    for (unsigned i = 0; i < threads; i++)
        pthread_join(shares[i].thread, NULL);
    return now_s() - began;
}

int main(int argc, char **argv)
{
    uint64_t n[6] = {0};
    struct share shares[THREADS_MAX] = {0};
    for (int i = 2; i < argc && i < 8; i++)
        n[i - 2] = strtoull(argv[i], NULL, 10);
    const char *what = argc > 4 ? argv[1] : "";
    port = (uint16_t)n[0];
    if (strcmp(what, "fill") == 0 && argc == 6) {
        fill(n[1], n[2], n[3]);
        printf("{\"entries\":%" PRIu64 "}\n", n[1] * (n[3] - n[2]));
    } else if (strcmp(what, "fanout") == 0 && argc == 7 && n[4] > 0 && n[4] <= THREADS_MAX) {
        for (unsigned i = 0; i < n[4]; i++)
            shares[i] = (struct share){
                .number = i, .of = (unsigned)n[4], .followers = n[1], .from = n[2], .to = n[3]};
        double took = run_all(fan_out, shares, (unsigned)n[4]);
        printf("{\"per_s\":%.1f,\"seconds\":%.3f}\n", (double)(n[1] * (n[3] - n[2])) / took, took);
    } else if (strcmp(what, "cards") == 0 && argc == 5) {
        fill_cards(n[1], n[2]);
        printf("{\"cards\":%" PRIu64 "}\n", n[1]);
    } else if (strcmp(what, "pages") == 0 && argc == 8 && n[5] > 0 && n[5] <= THREADS_MAX) {
        uint64_t pages = 0;
        for (unsigned i = 0; i < n[5]; i++)
            shares[i] = (struct share){.number = i,
                                       .followers = n[1],
                                       .cards = n[2],
                                       .until = now_s() + (double)n[3],
                                       .connections = n[4] / n[5]};
        double took = run_all(read_pages, shares, (unsigned)n[5]);
        for (unsigned i = 0; i < n[5]; i++)
            pages += shares[i].pages;
        printf("{\"per_s\":%.1f,\"pages\":%" PRIu64 "}\n", (double)pages / took, pages);
    } else {
        fprintf(stderr, "redis_peer: see the head of redis_peer.c for what it takes\n");
        return 2;
    }
    return 0;
}
