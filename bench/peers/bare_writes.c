/* The peer of `fantail bench live`: the same bytes to as many sockets, and nothing else. A process
 * with two threads writes one small frame to each of its connections, in the order of the sockets;
 * this process reads them in one epoll loop, as the benchmark's client does. No server that sends
 * one frame to each receiver over TCP can be faster on the same machine.
 *
 *   bare_writes CONNECTIONS ROUNDS
 *
 * Prints one JSON line: milliseconds until the last connection has its frame, median and worst. */
#include <arpa/inet.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { THREADS = 2, EVENTS = 1024, BACKLOG = 512, ROUNDS_MAX = 100 };

static const char frame[] =
    "event: group\ndata: {\"group\":\"1234567890123456789\",\"seq\":12345}\n\n";

static void die(const char *what)
{
    perror(what);
    exit(1);
}

static double now_s(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

/* ---- the process that writes ---- */

struct share {
    const int *sockets;
    int count;
    pthread_barrier_t *begin, *end;
};

static void *write_share(void *arg)
{
    const struct share *s = arg;
    for (;;) {
        pthread_barrier_wait(s->begin);
        for (int i = 0; i < s->count; i++)
            if (write(s->sockets[i], frame, sizeof frame - 1) != sizeof frame - 1)
                die("write");
        pthread_barrier_wait(s->end);
    }
    return NULL;
}

/* Each byte from `orders` is a round. */
static void serve(int listener, int connections, int orders)
{
    int *sockets = calloc((size_t)connections, sizeof *sockets);
    pthread_barrier_t begin, end;
    struct share shares[THREADS];
    pthread_t thread;
    char order;
    for (int i = 0; i < connections; i++) {
        const int on = 1;
        sockets[i] = accept(listener, NULL, NULL);
        if (sockets[i] < 0)
            die("accept");
        (void)setsockopt(sockets[i], IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    }
    pthread_barrier_init(&begin, NULL, THREADS + 1);
    pthread_barrier_init(&end, NULL, THREADS + 1);
    for (int i = 0; i < THREADS; i++) {
        int from = connections * i / THREADS, to = connections * (i + 1) / THREADS;
        shares[i] = (struct share){sockets + from, to - from, &begin, &end};
        if (pthread_create(&thread, NULL, write_share, &shares[i]) != 0)
            die("pthread_create");
    }
    while (read(orders, &order, 1) == 1) {
        pthread_barrier_wait(&begin);
        pthread_barrier_wait(&end);
    }
    _exit(0);
}

/* ---- the process that reads ---- */

static double run_round(int epoll, int connections, int orders)
{
    double start_s = now_s();
    if (write(orders, "x", 1) != 1)
        die("write");
    for (int heard = 0; heard < connections;) {
        struct epoll_event events[EVENTS];
        char text[16384];
        int n = epoll_wait(epoll, events, EVENTS, 10000);
        if (n <= 0)
            die("epoll_wait");
        for (int i = 0; i < n; i++, heard++)
            if (read(events[i].data.fd, text, sizeof text) <= 0)
                die("read");
    }
    return (now_s() - start_s) * 1e3;
}

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

int main(int argc, char **argv)
{
    int connections = argc > 1 ? atoi(argv[1]) : 10000, rounds = argc > 2 ? atoi(argv[2]) : 10;
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t length = sizeof address;
    int listener = socket(AF_INET, SOCK_STREAM, 0), orders[2], epoll = epoll_create1(0);
    struct rlimit files;
    if (connections < 1 || rounds < 1 || rounds > ROUNDS_MAX)
        return 2;
    getrlimit(RLIMIT_NOFILE, &files);
    files.rlim_cur = files.rlim_max;
    setrlimit(RLIMIT_NOFILE, &files);
    if (bind(listener, (struct sockaddr *)&address, length) != 0 ||
        listen(listener, BACKLOG) != 0 ||
        getsockname(listener, (struct sockaddr *)&address, &length) != 0 || pipe(orders) != 0)
        die("listen");
    pid_t writer = fork();
    if (writer == 0) {
        close(orders[1]);
        serve(listener, connections, orders[0]);
    }
    for (int i = 0; i < connections; i++) {
        int fd = socket(AF_INET, SOCK_STREAM, 0);
        struct epoll_event event = {.events = EPOLLIN, .data.fd = fd};
        if (fd < 0 || connect(fd, (struct sockaddr *)&address, length) != 0 ||
            epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &event) != 0)
            die("connect");
    }
    double times[ROUNDS_MAX];
    (void)run_round(epoll, connections, orders[1]); /* warms up */
    for (int i = 0; i < rounds; i++) {
        nanosleep(&(struct timespec){.tv_nsec = 100 * 1000 * 1000}, NULL);
        times[i] = run_round(epoll, connections, orders[1]);
    }
    close(orders[1]);
    waitpid(writer, NULL, 0);
    qsort(times, (size_t)rounds, sizeof *times, compare);
    printf("{\"last_ms\":%.3f,\"worst_ms\":%.3f}\n", times[rounds / 2], times[rounds - 1]);
    return 0;
}
