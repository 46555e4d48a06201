/* Streams in numbers: thousands at once and what each costs, many senders, comings and goings while
 * everybody sends, and a stop in the middle of that. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "streamed.h"

#include <malloc.h>
#include <poll.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/check.h"
#include "base/rand.h"

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define SANITIZED 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define SANITIZED 1
#endif
#endif
#ifndef SANITIZED
#define SANITIZED 0
#endif

enum { STREAM_COST_MAX = 1024 };

/* ---- thousands ---- */

/* How many streams this process may hold both ends of. */
static uint64_t room_for(uint64_t wanted)
{
    struct rlimit limit;
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &limit), 0);
    limit.rlim_cur = limit.rlim_max;
    setrlimit(RLIMIT_NOFILE, &limit);
    uint64_t room = (limit.rlim_cur - 100) / 2;
    return room < wanted ? room : wanted;
}

static size_t heap_in_use(void)
{
    struct mallinfo2 info = mallinfo2();
    return info.uordblks + info.hblkhd;
}

static void open_many(struct streamed *t, int *fds, uint64_t from, uint64_t to)
{
    for (uint64_t i = from; i < to; i++) {
        struct listener l;
        listener_open(&l, t, i);
        assert_true(listener_next(&l)); /* hello */
        fds[i] = l.fd;
        buf_done(&l.in);
    }
}

static void thousands_cost_little(void **state)
{
    (void)state;
    enum { WARM = 300, MANY = 2300 };
    struct streamed t;
    streamed_init(&t);
    streamed_start(&t);
    uint64_t count = room_for(MANY);
    static int fds[MANY];
    static uint64_t persons[MANY];
    for (uint64_t i = 0; i < count; i++)
        persons[i] = i;
    open_many(&t, fds, 0, WARM); /* the loops' spare exchanges and all that is there once */
    streamed_await_streams(&t, WARM);
    size_t before = heap_in_use();
    open_many(&t, fds, WARM, count);
    streamed_await_streams(&t, count);
    size_t after = heap_in_use();
    size_t each = (after - before) / (count - WARM);
    print_message("# an idle stream: %zu bytes\n", each);
    if (!SANITIZED)
        assert_true(each <= STREAM_COST_MAX);

    const struct frame_text text = {.id = 1, .data = STR("to all")};
    assert_int_equal(hub_send(t.hub, persons, count, &text), count);
    for (uint64_t i = 0; i < count; i++) {
        struct listener l = {.fd = fds[i]};
        buf_init(&l.in, 0);
        listener_expect(&l, 1, "", "to all");
        listener_close(&l);
    }
    streamed_await_streams(&t, 0);
    streamed_done(&t);
}

/* ---- many senders ---- */

enum { SENDERS = 4, READERS = 4, FRAMES_EACH = 3000, AHEAD_MAX = 512 };

struct traffic {
    struct streamed t;
    _Atomic uint64_t sent[READERS], read[READERS];
};

static char filler[900];

struct sender {
    struct traffic *traffic;
    uint64_t number;
};

/* The id is sender × 1,000,000 + n, to all streams in turn; no stream gets too far ahead of its
 * reader. */
static void *send_numbers(void *arg)
{
    const struct sender *me = arg;
    struct traffic *w = me->traffic;
    for (uint64_t n = 1; n <= FRAMES_EACH; n++)
        for (uint64_t person = 0; person < READERS; person++) {
            while (atomic_load(&w->sent[person]) - atomic_load(&w->read[person]) > AHEAD_MAX)
                poll(NULL, 0, 1);
            const struct frame_text text = {.id = me->number * 1000000 + n,
                                            .data = {filler, n * 7 % sizeof filler}};
            CHECK(hub_send(w->t.hub, &person, 1, &text) == 1);
            atomic_fetch_add(&w->sent[person], 1);
        }
    return NULL;
}

struct reader {
    struct traffic *traffic;
    struct listener listener;
    uint64_t number;
    uint64_t last[SENDERS];
};

static void *read_numbers(void *arg)
{
    struct reader *me = arg;
    for (uint64_t i = 0; i < (uint64_t)SENDERS * FRAMES_EACH; i++) {
        CHECK(listener_next(&me->listener));
        uint64_t sender = me->listener.id / 1000000, n = me->listener.id % 1000000;
        CHECK(sender < SENDERS && n == me->last[sender] + 1); /* in order, none lost, none twice */
        CHECK(str_eq(me->listener.data, (struct str){filler, n * 7 % sizeof filler}));
        me->last[sender] = n;
        atomic_fetch_add(&me->traffic->read[me->number], 1);
    }
    return NULL;
}

static void many_senders_keep_each_ones_order(void **state)
{
    (void)state;
    static struct traffic w;
    memset(filler, 'x', sizeof filler);
    streamed_init(&w.t);
    w.t.buffer_max = 1024 * 1024;
    streamed_start(&w.t);
    struct reader readers[READERS] = {0};
    pthread_t reading[READERS], sending[SENDERS];
    for (uint64_t i = 0; i < READERS; i++) {
        readers[i].traffic = &w;
        readers[i].number = i;
        if (i % 2 == 0)
            listener_open(&readers[i].listener, &w.t, i);
        else
            listener_open_narrow(&readers[i].listener, &w.t, i); /* whose socket is often full */
        assert_true(listener_next(&readers[i].listener));        /* hello */
        assert_int_equal(pthread_create(&reading[i], NULL, read_numbers, &readers[i]), 0);
    }
    struct sender senders[SENDERS];
    for (uint64_t i = 0; i < SENDERS; i++) {
        senders[i] = (struct sender){.traffic = &w, .number = i};
        assert_int_equal(pthread_create(&sending[i], NULL, send_numbers, &senders[i]), 0);
    }
    for (int i = 0; i < SENDERS; i++)
        pthread_join(sending[i], NULL);
    for (int i = 0; i < READERS; i++) {
        pthread_join(reading[i], NULL);
        listener_close(&readers[i].listener);
    }
    streamed_done(&w.t);
}

/* ---- comings and goings ---- */

enum { CLIENTS = 4, TALKERS = 2, PEOPLE = 8, ROUNDS = 150 };

struct bustle {
    struct streamed t;
    _Atomic bool over;
    _Atomic unsigned rounds;
};

static void *talk(void *arg)
{
    struct bustle *b = arg;
    static const uint64_t people[PEOPLE] = {0, 1, 2, 3, 4, 5, 6, 7};
    char data[2001];
    memset(data, 'x', sizeof data - 1);
    data[sizeof data - 1] = '\0';
    for (uint64_t id = 1; !atomic_load(&b->over); id++) {
        const struct frame_text event = {.id = id, .kind = 1, .data = STR("event")};
        const struct frame_text large = {.id = id, .data = str_of(data)};
        hub_send(b->t.hub, people, PEOPLE, &event);
        if (id % 16 == 0)
            hub_send(b->t.hub, people, PEOPLE, &large);
        if (id % 512 == 0)
            hub_close(b->t.hub, id / 512 % PEOPLE, "turn");
        if (id % 32 == 0)
            poll(NULL, 0, 1);
    }
    return NULL;
}

/* Opens a stream, reads some of it or none, and goes in one of several ways. Whatever happens is
 * right, as long as what arrives is well formed. */
static void visit(struct bustle *b, struct rand *r)
{
    int fd = raw_connect(&b->t.served);
    char request[128];
    int n = snprintf(request, sizeof request, "GET /%s?person=%u HTTP/1.1\r\nHost: h\r\n\r\n",
                     rand_below(r, 2) ? "later" : "stream", (unsigned)rand_below(r, PEOPLE));
    if (raw_try_send(fd, (struct str){request, (size_t)n}) && rand_below(r, 8) > 0) {
        struct listener l;
        listener_over(&l, fd);
        for (uint64_t i = rand_below(r, 20); i > 0 && listener_next(&l); i--)
            continue;
        buf_done(&l.in);
    }
    if (rand_below(r, 3) == 0) {
        const struct linger reset = {.l_onoff = 1, .l_linger = 0};
        setsockopt(fd, SOL_SOCKET, SO_LINGER, &reset, sizeof reset);
    }
    close(fd);
    atomic_fetch_add(&b->rounds, 1);
}

struct client {
    struct bustle *bustle;
    uint64_t seed;
};

static void *come_and_go(void *arg)
{
    const struct client *me = arg;
    struct rand r;
    rand_seed(&r, me->seed);
    for (int i = 0; i < ROUNDS; i++)
        visit(me->bustle, &r);
    return NULL;
}

static void comings_and_goings_while_everybody_sends(void **state)
{
    (void)state;
    static struct bustle b;
    streamed_init(&b.t);
    b.t.hub_config.person_max = HUB_PERSON_MAX;
    b.t.served.config.stream_heartbeat_ms = 5;
    streamed_start(&b.t);
    pthread_t talking[TALKERS], coming[CLIENTS];
    struct client clients[CLIENTS];
    for (int i = 0; i < TALKERS; i++)
        assert_int_equal(pthread_create(&talking[i], NULL, talk, &b), 0);
    for (unsigned i = 0; i < CLIENTS; i++) {
        clients[i] = (struct client){.bustle = &b, .seed = i + 1};
        assert_int_equal(pthread_create(&coming[i], NULL, come_and_go, &clients[i]), 0);
    }
    for (int i = 0; i < CLIENTS; i++)
        pthread_join(coming[i], NULL);
    assert_int_equal(atomic_load(&b.rounds), CLIENTS * ROUNDS);
    streamed_await_streams(&b.t, 0); /* and with them nobody is left */

    /* The server stops while they still talk. */
    struct listener last[PEOPLE];
    for (uint64_t i = 0; i < PEOPLE; i++)
        listener_open(&last[i], &b.t, i);
    http_server_stop(b.t.served.server, 1000);
    streamed_await_streams(&b.t, 0);
    atomic_store(&b.over, true);
    for (int i = 0; i < TALKERS; i++)
        pthread_join(talking[i], NULL);
    for (int i = 0; i < PEOPLE; i++)
        listener_close(&last[i]);
    streamed_done(&b.t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(thousands_cost_little),
        cmocka_unit_test(many_senders_keep_each_ones_order),
        cmocka_unit_test(comings_and_goings_while_everybody_sends),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
