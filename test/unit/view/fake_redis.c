/* The scripted server: one thread, a handful of connections, hiredis's reader for the commands. */
#include "fake_redis.h"

#include <arpa/inet.h>
#include <poll.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <hiredis/hiredis.h>

#include "base/check.h"

enum { CONNECTIONS_MAX = 32, ARGS_MAX = 64 };

struct peer {
    int fd;
    redisReader *reader;
};

struct fake_redis {
    fake_answer answer;
    void *ctx;
    int listening, port, stop[2];
    pthread_t thread;
    struct peer peers[CONNECTIONS_MAX];
    size_t count;
};

static void close_peer(struct fake_redis *f, size_t i)
{
    close(f->peers[i].fd);
    redisReaderFree(f->peers[i].reader);
    f->peers[i] = f->peers[--f->count];
}

static bool answer_one(struct fake_redis *f, const redisReply *command, struct buf *out)
{
    struct str argv[ARGS_MAX];
    if (command->type != REDIS_REPLY_ARRAY || command->elements > ARGS_MAX)
        return false;
    for (size_t i = 0; i < command->elements; i++)
        argv[i] = (struct str){command->element[i]->str, command->element[i]->len};
    if (command->elements == 1 && str_eq(argv[0], STR("PING"))) {
        buf_str(out, STR("+PONG\r\n"));
        return true;
    }
    if (command->elements == 2 && str_eq(argv[0], STR("INFO")) &&
        str_eq(argv[1], STR("server"))) { /* the greeting's second word */
        buf_str(out, STR("$0\r\n\r\n"));
        return true;
    }
    return f->answer(f->ctx, argv, command->elements, out);
}

static bool serve(struct fake_redis *f, struct peer *p)
{
    char bytes[4096];
    ssize_t n = recv(p->fd, bytes, sizeof bytes, 0);
    if (n <= 0 || redisReaderFeed(p->reader, bytes, (size_t)n) != REDIS_OK)
        return false;
    struct buf out;
    void *command = NULL;
    bool good = true;
    buf_init(&out, 0);
    while (good && redisReaderGetReply(p->reader, &command) == REDIS_OK && command) {
        good = answer_one(f, command, &out);
        freeReplyObject(command);
        command = NULL;
    }
    if (out.len > 0)
        (void)!send(p->fd, out.ptr, out.len, MSG_NOSIGNAL);
    buf_done(&out);
    return good;
}

static void *run(void *arg)
{
    struct fake_redis *f = arg;
    for (;;) {
        struct pollfd fds[CONNECTIONS_MAX + 2] = {{f->stop[0], POLLIN, 0},
                                                  {f->listening, POLLIN, 0}};
        size_t count = f->count;
        for (size_t i = 0; i < count; i++)
            fds[i + 2] = (struct pollfd){f->peers[i].fd, POLLIN, 0};
        poll(fds, (nfds_t)count + 2, -1);
        if (fds[0].revents)
            return NULL;
        for (size_t i = count; i > 0; i--)
            if (fds[i + 1].revents && !serve(f, &f->peers[i - 1]))
                close_peer(f, i - 1);
        if (fds[1].revents && f->count < CONNECTIONS_MAX) {
            int fd = accept(f->listening, NULL, NULL);
            if (fd >= 0)
                f->peers[f->count++] = (struct peer){fd, redisReaderCreate()};
        }
    }
}

struct fake_redis *fake_redis_new(fake_answer answer, void *ctx)
{
    struct fake_redis *f = calloc(1, sizeof *f);
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t size = sizeof at;
    CHECK(f && pipe(f->stop) == 0);
    f->answer = answer;
    f->ctx = ctx;
    f->listening = socket(AF_INET, SOCK_STREAM, 0);
    CHECK(f->listening >= 0 && bind(f->listening, (struct sockaddr *)&at, size) == 0);
    CHECK(listen(f->listening, 16) == 0);
    CHECK(getsockname(f->listening, (struct sockaddr *)&at, &size) == 0);
    f->port = ntohs(at.sin_port);
    CHECK(pthread_create(&f->thread, NULL, run, f) == 0);
    return f;
}

void fake_redis_free(struct fake_redis *f)
{
    CHECK(write(f->stop[1], "", 1) == 1);
    pthread_join(f->thread, NULL);
    while (f->count > 0)
        close_peer(f, f->count - 1);
    close(f->listening);
    close(f->stop[0]);
    close(f->stop[1]);
    free(f);
}

int fake_redis_port(const struct fake_redis *f)
{
    return f->port;
}
