/* The load generator: on each thread one epoll loop over non-blocking connections. It reads just
 * enough of an answer to know its status and where it ends (Content-Length), so that the client
 * costs little beside the server it measures. */
#include "bench/load.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <stdlib.h>
#include <strings.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "base/check.h"
#include "base/clock.h"

enum { READ_BYTES = 64 * 1024, HEAD_BYTES = 4096 };

struct connection {
    int fd;
    bool busy;
    struct str sending;    /* the rest of the request */
    int64_t due_us;        /* when the request was due */
    char head[HEAD_BYTES]; /* the answer's head so far */
    size_t head_len;
    bool in_body;
    size_t body_left;
    size_t answer_bytes;
    int status;
};

struct load {
    const struct load_config *config;
    struct load_result *result;
    struct clock *clock;
    int epoll;
    struct connection *connections;
    unsigned *idle; /* a stack of connections that wait for work (open loop) */
    unsigned idle_count;
    uint64_t next_request;
    int64_t count_from_us, end_us;
    double next_due_us;
    uint64_t bytes;
    char *buffer;
};

static int connect_to(const struct load_config *config)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons(config->port)};
    if (inet_pton(AF_INET, config->host, &address.sin_addr) != 1)
        return -1;
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return -1;
    int on = 1;
    (void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    if (connect(fd, (struct sockaddr *)&address, sizeof address) < 0) {
        close(fd);
        return -1;
    }
    return fd;
}

static bool open_connection(struct load *l, unsigned index)
{
    struct connection *c = &l->connections[index];
    *c = (struct connection){.fd = connect_to(l->config)};
    if (c->fd < 0)
        return false;
    struct epoll_event event = {.events = EPOLLIN, .data.u32 = index};
    CHECK(epoll_ctl(l->epoll, EPOLL_CTL_ADD, c->fd, &event) == 0);
    return true;
}

static void send_more(struct load *l, struct connection *c)
{
    ssize_t n = send(c->fd, c->sending.ptr, c->sending.len, MSG_NOSIGNAL);
    if (n < 0)
        return; /* the read side finds out what is wrong */
    c->sending.ptr += n;
    c->sending.len -= (size_t)n;
    (void)l;
}

static void start_request(struct load *l, struct connection *c, int64_t due_us)
{
    c->busy = true;
    c->due_us = due_us;
    c->head_len = 0;
    c->in_body = false;
    c->answer_bytes = 0;
    c->sending = l->config->request(l->config->ctx, l->next_request++);
    while (c->sending.len > 0) { /* requests are small: a blocking send of a few hundred bytes */
        size_t before = c->sending.len;
        send_more(l, c);
        if (c->sending.len == before)
            return;
    }
}

/* Reads status and Content-Length out of a complete head. */
static bool parse_head(struct connection *c, const char *end)
{
    if (c->head_len < 12 || memcmp(c->head, "HTTP/1.1 ", 9) != 0)
        return false;
    c->status = atoi(c->head + 9);
    c->body_left = 0;
    for (const char *line = c->head; line < end;) {
        const char *next = memchr(line, '\n', (size_t)(end - line));
        if (!next)
            break;
        if (strncasecmp(line, "content-length:", 15) == 0)
            c->body_left = (size_t)strtoul(line + 15, NULL, 10);
        line = next + 1;
    }
    return true;
}

static void finish_answer(struct load *l, struct connection *c, int64_t now_us)
{
    c->busy = false;
    if (now_us < l->count_from_us || c->due_us < l->count_from_us || c->due_us >= l->end_us)
        return;
    if (c->status / 100 != 2) {
        l->result->refused++;
        return;
    }
    l->result->answers++;
    l->bytes += c->answer_bytes;
    hist_record(&l->result->latency, (uint64_t)(now_us - c->due_us));
}

/* Feeds bytes of the answer; returns false when they make no sense. */
static bool take_bytes(struct load *l, struct connection *c, const char *bytes, size_t n,
                       int64_t now_us)
{
    while (n > 0) {
        if (!c->in_body) {
            size_t room = HEAD_BYTES - 1 - c->head_len;
            size_t take = n < room ? n : room;
            memcpy(c->head + c->head_len, bytes, take);
            size_t searched = c->head_len > 3 ? c->head_len - 3 : 0;
            c->head_len += take;
            char *end = memmem(c->head + searched, c->head_len - searched, "\r\n\r\n", 4);
            if (!end)
                return take == n; /* a head beyond the buffer is malformed */
            size_t head_size = (size_t)(end + 4 - c->head);
            size_t used = take - (c->head_len - head_size);
            *end = '\n';
            if (!parse_head(c, end + 1))
                return false;
            c->in_body = true;
            c->answer_bytes = head_size + c->body_left;
            bytes += used;
            n -= used;
        }
        size_t body = n < c->body_left ? n : c->body_left;
        c->body_left -= body;
        bytes += body;
        n -= body;
        if (c->body_left == 0) {
            if (n > 0)
                return false; /* nothing may follow: we do not pipeline */
            finish_answer(l, c, now_us);
            return true;
        }
    }
    if (c->in_body && c->body_left == 0 && c->busy)
        finish_answer(l, c, now_us);
    return true;
}

static bool reopen(struct load *l, unsigned index)
{
    l->result->broken++;
    close(l->connections[index].fd);
    return open_connection(l, index);
}

static bool all_sent(const struct load *l)
{
    return l->config->requests > 0 &&
           l->next_request >= l->config->first_request + l->config->requests;
}

static void after_answer(struct load *l, unsigned index, int64_t now_us)
{
    if (now_us >= l->end_us || all_sent(l))
        return;
    if (l->config->rate > 0)
        l->idle[l->idle_count++] = index;
    else
        start_request(l, &l->connections[index], now_us);
}

static void on_readable(struct load *l, unsigned index)
{
    struct connection *c = &l->connections[index];
    ssize_t n = recv(c->fd, l->buffer, READ_BYTES, MSG_DONTWAIT);
    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    int64_t now_us = clock_mono_us(l->clock);
    bool was_busy = c->busy;
    if (n <= 0 || !was_busy || !take_bytes(l, c, l->buffer, (size_t)n, now_us)) {
        if (reopen(l, index) && was_busy)
            after_answer(l, index, now_us);
        return;
    }
    if (!c->busy)
        after_answer(l, index, now_us);
}

/* Open loop: sends everything that is due as long as connections are free; the rest stays due. */
static void send_due(struct load *l, int64_t now_us)
{
    double gap_us = 1e6 / l->config->rate;
    while (l->idle_count > 0 && l->next_due_us <= (double)now_us &&
           l->next_due_us < (double)l->end_us) {
        struct connection *c = &l->connections[l->idle[--l->idle_count]];
        start_request(l, c, (int64_t)l->next_due_us);
        l->next_due_us += gap_us;
    }
}

static void run_loop(struct load *l)
{
    struct epoll_event events[256];
    /* Answers that are still out when the time is up are waited for, up to this. */
    int64_t give_up_us = l->end_us + 5000000;
    for (;;) {
        int64_t now_us = clock_mono_us(l->clock);
        bool any_busy = false;
        if (now_us >= l->end_us || all_sent(l)) {
            for (unsigned i = 0; i < l->config->connections; i++)
                any_busy |= l->connections[i].busy;
            if (!any_busy || now_us >= give_up_us)
                return;
        }
        int64_t wait_us = 100000;
        if (l->config->rate > 0 && now_us < l->end_us) {
            send_due(l, now_us);
            int64_t due_us = (int64_t)l->next_due_us - clock_mono_us(l->clock);
            /* Without a free connection an answer is what we wait for. */
            if (l->idle_count > 0)
                wait_us = due_us < 0 ? 0 : due_us < wait_us ? due_us : wait_us;
        }
        struct timespec wait = {.tv_nsec = (long)wait_us * 1000};
        int n = epoll_pwait2(l->epoll, events, 256, &wait, NULL);
        for (int i = 0; i < n; i++)
            on_readable(l, events[i].data.u32);
    }
}

static enum err run_part(const struct load_config *config, struct load_result *result)
{
    CHECK(config->connections > 0 && config->connections <= LOAD_CONNECTIONS_MAX);
    struct load l = {.config = config,
                     .result = result,
                     .clock = clock_system(),
                     .next_request = config->first_request};
    *result = (struct load_result){0};
    (void)prctl(PR_SET_TIMERSLACK,
                1UL); /* sleeps between requests are shorter than the usual slack */
    l.epoll = epoll_create1(EPOLL_CLOEXEC);
    CHECK(l.epoll >= 0);
    l.connections = calloc(config->connections, sizeof *l.connections);
    l.idle = calloc(config->connections, sizeof *l.idle);
    l.buffer = malloc(READ_BYTES);
    CHECK(l.connections && l.idle && l.buffer);

    enum err e = OK;
    unsigned opened = 0;
    while (opened < config->connections && open_connection(&l, opened))
        opened++;
    if (opened < config->connections)
        e = ERR_UNAVAILABLE;
    int64_t start_us = clock_mono_us(l.clock);
    l.count_from_us = start_us + config->warm_up_ms * 1000;
    l.end_us = l.count_from_us + config->run_ms * 1000;
    l.next_due_us = (double)start_us;
    for (unsigned i = 0; !e && i < opened; i++)
        after_answer(&l, i, start_us);
    if (!e)
        run_loop(&l);

    result->seconds = (double)config->run_ms / 1000.0;
    result->per_second = (double)result->answers / result->seconds;
    result->body_bytes = result->answers ? (double)l.bytes / (double)result->answers : 0;
    for (unsigned i = 0; i < opened; i++)
        close(l.connections[i].fd);
    close(l.epoll);
    free(l.connections);
    free(l.idle);
    free(l.buffer);
    return e;
}

/* One thread's share of the load. */
struct part {
    struct load_config config;
    struct load_result result;
    enum err error;
    pthread_t thread;
};

static void *part_main(void *arg)
{
    struct part *p = arg;
    p->error = run_part(&p->config, &p->result);
    return NULL;
}

static void add_part(struct load_result *sum, const struct load_result *part)
{
    uint64_t answers = sum->answers + part->answers;
    if (answers > 0)
        sum->body_bytes =
            (sum->body_bytes * (double)sum->answers + part->body_bytes * (double)part->answers) /
            (double)answers;
    sum->answers = answers;
    sum->refused += part->refused;
    sum->broken += part->broken;
    sum->seconds = part->seconds;
    sum->per_second += part->per_second;
    hist_merge(&sum->latency, &part->latency);
}

enum err load_run(const struct load_config *config, struct load_result *result)
{
    unsigned threads = config->threads ? config->threads : 1;
    CHECK(config->connections >= threads);
    struct part *parts = calloc(threads, sizeof *parts);
    CHECK(parts);
    *result = (struct load_result){0};
    enum err e = OK;
    uint64_t sent_before = config->first_request;
    for (unsigned i = 0; i < threads; i++) {
        struct load_config *c = &parts[i].config;
        *c = *config;
        c->connections = config->connections / threads + (i < config->connections % threads);
        c->rate = config->rate / threads;
        c->requests = config->requests / threads + (i < config->requests % threads);
        /* Each thread goes its own way through the ring of requests. */
        c->first_request = config->requests > 0 ? sent_before : sent_before + i * UINT64_C(7919);
        sent_before += config->requests > 0 ? c->requests : 0;
        CHECK(pthread_create(&parts[i].thread, NULL, part_main, &parts[i]) == 0);
    }
    for (unsigned i = 0; i < threads; i++) {
        pthread_join(parts[i].thread, NULL);
        e = e ? e : parts[i].error;
        add_part(result, &parts[i].result);
    }
    free(parts);
    return e;
}
