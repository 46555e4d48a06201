/* Pairs of sockets, and one poll() over all of them. A word is looked for in what one read brings:
 * a client that sends a message at once is enough for that on loopback. A caller that changes the
 * orders takes the lock and wakes the thread through a pipe. */
#include "lossy_proxy.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/check.h"

enum { PAIRS_MAX = 128, CHUNK = 65536 };

struct pair {
    int client, server; /* -1: cut */
    bool cut_on_answer;
};

struct lossy_proxy {
    int listener, port, server_port, wake[2];
    pthread_t thread;
    struct pair pairs[PAIRS_MAX];
    size_t count;
    char chunk[CHUNK];

    pthread_mutex_t lock; /* guards what follows */
    enum proxy_loss loss;
    char word[32];
    int times, lost;
    bool refuse, cut, stop;
};

static void cut(int *fd)
{
    if (*fd >= 0)
        close(*fd);
    *fd = -1;
}

static void cut_pair(struct pair *p)
{
    cut(&p->client);
    cut(&p->server);
}

static int loopback(int port, bool listens)
{
    struct sockaddr_in a = {.sin_family = AF_INET,
                            .sin_port = htons((uint16_t)port),
                            .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int s = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    CHECK(s >= 0);
    if (listens) {
        CHECK(bind(s, (struct sockaddr *)&a, sizeof a) == 0 && listen(s, 64) == 0);
    } else if (connect(s, (struct sockaddr *)&a, sizeof a) != 0) {
        close(s);
        return -1;
    }
    return s;
}

static void take_client(struct lossy_proxy *p, bool refuse)
{
    int client = accept4(p->listener, NULL, NULL, SOCK_CLOEXEC);
    int server = client < 0 || refuse ? -1 : loopback(p->server_port, false);
    if (server < 0 || p->count == PAIRS_MAX) {
        cut(&client);
        cut(&server);
        return;
    }
    p->pairs[p->count++] = (struct pair){client, server, false};
}

static bool pass_on(struct lossy_proxy *p, int to, size_t n)
{
    for (size_t at = 0; at < n;) {
        ssize_t wrote = send(to, p->chunk + at, n - at, MSG_NOSIGNAL);
        if (wrote <= 0)
            return false;
        at += (size_t)wrote;
    }
    return true;
}

static enum proxy_loss loss_of(struct lossy_proxy *p, size_t n)
{
    enum proxy_loss loss = PROXY_LOSES_NOTHING;
    pthread_mutex_lock(&p->lock);
    if (p->times > 0 && memmem(p->chunk, n, p->word, strlen(p->word))) {
        loss = p->loss;
        p->times--;
        p->lost++;
    }
    pthread_mutex_unlock(&p->lock);
    return loss;
}

static void hear_client(struct lossy_proxy *p, struct pair *pair)
{
    ssize_t n = recv(pair->client, p->chunk, CHUNK, 0);
    if (n <= 0) {
        cut_pair(pair);
        return;
    }
    switch (loss_of(p, (size_t)n)) {
    case PROXY_LOSES_THE_MESSAGE:
        cut_pair(pair);
        return;
    case PROXY_LOSES_THE_CLIENT:
        cut(&pair->client);
        return;
    case PROXY_LOSES_THE_ANSWER:
        pair->cut_on_answer = true;
        break;
    case PROXY_LOSES_NOTHING:
        break;
    }
    if (!pass_on(p, pair->server, (size_t)n))
        cut_pair(pair);
}

static void hear_server(struct lossy_proxy *p, struct pair *pair)
{
    ssize_t n = recv(pair->server, p->chunk, CHUNK, 0);
    if (n <= 0 || pair->cut_on_answer)
        cut_pair(pair);
    else if (pair->client >= 0 && !pass_on(p, pair->client, (size_t)n))
        cut_pair(pair);
}

static void forget_cut(struct lossy_proxy *p)
{
    size_t kept = 0;
    for (size_t i = 0; i < p->count; i++)
        if (p->pairs[i].server >= 0)
            p->pairs[kept++] = p->pairs[i];
    p->count = kept;
}

static void *run(void *arg)
{
    struct lossy_proxy *p = arg;
    for (;;) {
        struct pollfd fds[2 + 2 * PAIRS_MAX];
        fds[0] = (struct pollfd){.fd = p->listener, .events = POLLIN};
        fds[1] = (struct pollfd){.fd = p->wake[0], .events = POLLIN};
        for (size_t i = 0; i < p->count; i++) {
            fds[2 + 2 * i] = (struct pollfd){.fd = p->pairs[i].client, .events = POLLIN};
            fds[3 + 2 * i] = (struct pollfd){.fd = p->pairs[i].server, .events = POLLIN};
        }
        size_t count = p->count;
        poll(fds, (nfds_t)(2 + 2 * count), -1);
        if (fds[1].revents)
            CHECK(read(p->wake[0], p->chunk, CHUNK) > 0);
        pthread_mutex_lock(&p->lock);
        bool refuse = p->refuse, all = p->cut, stop = p->stop;
        p->cut = false;
        pthread_mutex_unlock(&p->lock);
        for (size_t i = 0; i < count; i++) {
            struct pair *pair = &p->pairs[i];
            if (all || stop)
                cut_pair(pair);
            if (pair->client >= 0 && fds[2 + 2 * i].revents)
                hear_client(p, pair);
            if (pair->server >= 0 && fds[3 + 2 * i].revents)
                hear_server(p, pair);
        }
        forget_cut(p);
        if (stop)
            return NULL;
        if (fds[0].revents)
            take_client(p, refuse);
    }
}

static void wake(struct lossy_proxy *p)
{
    CHECK(write(p->wake[1], "", 1) == 1);
}

struct lossy_proxy *lossy_proxy_new(int server_port)
{
    struct lossy_proxy *p = calloc(1, sizeof *p);
    CHECK(p);
    struct sockaddr_in a;
    socklen_t n = sizeof a;
    p->server_port = server_port;
    p->listener = loopback(0, true);
    CHECK(getsockname(p->listener, (struct sockaddr *)&a, &n) == 0);
    p->port = ntohs(a.sin_port);
    CHECK(pipe2(p->wake, O_CLOEXEC) == 0);
    pthread_mutex_init(&p->lock, NULL);
    CHECK(pthread_create(&p->thread, NULL, run, p) == 0);
    return p;
}

void lossy_proxy_free(struct lossy_proxy *p)
{
    pthread_mutex_lock(&p->lock);
    p->stop = true;
    pthread_mutex_unlock(&p->lock);
    wake(p);
    pthread_join(p->thread, NULL);
    close(p->listener);
    close(p->wake[0]);
    close(p->wake[1]);
    pthread_mutex_destroy(&p->lock);
    free(p);
}

int lossy_proxy_port(const struct lossy_proxy *p)
{
    return p->port;
}

void lossy_proxy_lose(struct lossy_proxy *p, enum proxy_loss loss, const char *word, int times)
{
    CHECK(strlen(word) < sizeof p->word);
    pthread_mutex_lock(&p->lock);
    p->loss = loss;
    memcpy(p->word, word, strlen(word) + 1);
    p->times = times;
    pthread_mutex_unlock(&p->lock);
}

int lossy_proxy_lost(struct lossy_proxy *p)
{
    pthread_mutex_lock(&p->lock);
    int lost = p->lost;
    pthread_mutex_unlock(&p->lock);
    return lost;
}

void lossy_proxy_refuse(struct lossy_proxy *p, bool refuse, bool cut_all)
{
    pthread_mutex_lock(&p->lock);
    p->refuse = refuse;
    p->cut = cut_all;
    pthread_mutex_unlock(&p->lock);
    wake(p);
}
