/* The hub by itself: streams that are never started, so that everything sent to them waits. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <pthread.h>
#include <stdlib.h>

#include "base/check.h"
#include "net/hub.h"
#include "net/stream.h"

static const struct hub_config wide = {.streams_max = 100000, .person_max = 4};

static struct stream *join(struct hub *h, uint64_t person)
{
    struct stream *s = stream_new(&encoding_sse, 0, 0);
    assert_int_equal(hub_join(h, person, s), OK);
    return s;
}

static void leave(struct hub *h, struct stream *s)
{
    hub_leave(h, s);
    stream_unref(s);
}

static size_t send_to(struct hub *h, uint64_t person, struct str data)
{
    const struct frame_text text = {.data = data};
    return hub_send(h, &person, 1, &text);
}

static void assert_bytes(struct frame *f, const char *bytes)
{
    assert_int_equal(f->len, strlen(bytes));
    assert_memory_equal(f->bytes, bytes, f->len);
    frame_unref(f);
}

static void a_frame_as_bytes(void **state)
{
    (void)state;
    assert_bytes(frame_new(&(struct frame_text){.name = STR("message"),
                                                .id = UINT64_MAX,
                                                .data = STR("{\"seq\":1}")},
                           &encoding_sse),
                 "id: 18446744073709551615\nevent: message\ndata: {\"seq\":1}\n\n");
    assert_bytes(frame_new(&(struct frame_text){.data = STR("x")}, &encoding_sse), "data: x\n\n");
    assert_bytes(frame_new(&(struct frame_text){.name = STR("n"), .data = {0}}, &encoding_sse),
                 "event: n\ndata: \n\n");
    assert_bytes(frame_of_bytes(STR(":\n\n")), ":\n\n");
}

static void who_is_here_and_who_is_not(void **state)
{
    (void)state;
    enum { PERSONS = 5000 };
    struct hub *h = hub_new(&wide);
    static struct stream *streams[PERSONS];
    static uint64_t all[PERSONS * 2];
    for (uint64_t i = 0; i < PERSONS; i++) {
        streams[i] = join(h, i * 2);
        all[i * 2] = i * 2;
        all[i * 2 + 1] = i * 2 + 1;
    }
    struct stream *second = join(h, 0);
    for (uint64_t i = 0; i < (uint64_t)PERSONS * 2; i++)
        assert_int_equal(hub_has(h, i), i % 2 == 0);
    const struct frame_text text = {.data = STR("x")};
    assert_int_equal(hub_send(h, all, (size_t)PERSONS * 2, &text), PERSONS + 1);
    struct hub_stats stats;
    hub_stats(h, &stats);
    assert_int_equal(stats.streams, PERSONS + 1);
    assert_int_equal(stats.persons, PERSONS);
    assert_int_equal(stats.sent, PERSONS + 1);
    hub_leave(h, streams[0]);
    hub_leave(h, streams[0]); /* harmless */
    assert_true(hub_has(h, 0));
    leave(h, second);
    assert_false(hub_has(h, 0));
    assert_int_equal(send_to(h, 0, STR("x")), 0);
    for (size_t i = 0; i < PERSONS; i++)
        leave(h, streams[i]);
    hub_stats(h, &stats);
    assert_int_equal(stats.streams, 0);
    assert_int_equal(stats.persons, 0);
    hub_free(h);
}

static void limits(void **state)
{
    (void)state;
    const struct hub_config narrow = {.streams_max = 3, .person_max = 2};
    struct hub *h = hub_new(&narrow);
    struct stream *a = join(h, 1), *b = join(h, 1), *c = stream_new(&encoding_sse, 0, 0);
    assert_int_equal(hub_join(h, 1, c), ERR_RATE_LIMITED);
    assert_int_equal(hub_join(h, 2, c), OK); /* a refusal leaves no trace */
    struct stream *d = stream_new(&encoding_sse, 0, 0);
    assert_int_equal(hub_join(h, 3, d), ERR_OVERLOADED);
    assert_false(hub_has(h, 3));
    leave(h, a);
    assert_int_equal(hub_join(h, 3, d), OK);
    struct hub_stats stats;
    hub_stats(h, &stats);
    assert_int_equal(stats.joined, 4);
    assert_int_equal(stats.refused, 2);
    leave(h, b);
    leave(h, c);
    leave(h, d);
    hub_free(h);
}

static void too_much_ends_a_stream_once(void **state)
{
    (void)state;
    struct hub *h = hub_new(&wide);
    struct stream *by_bytes = stream_new(&encoding_sse, 100, 0);
    assert_int_equal(hub_join(h, 1, by_bytes), OK);
    assert_int_equal(send_to(h, 1, STR("0123456789012345678901234567890123456789")), 1); /* 48 */
    assert_int_equal(send_to(h, 1, STR("01234567890123456789012345678901234567890123")), 1);
    assert_int_equal(send_to(h, 1, STR("")), 0); /* 8 more than 100 */
    assert_int_equal(send_to(h, 1, STR("")), 0);
    struct stream *by_count = join(h, 2);
    for (unsigned i = 0; i < STREAM_FRAMES_MAX; i++)
        assert_int_equal(send_to(h, 2, STR("")), 1);
    assert_int_equal(send_to(h, 2, STR("")), 0);
    struct hub_stats stats;
    hub_stats(h, &stats);
    assert_int_equal(stats.slow, 2);
    leave(h, by_bytes);
    leave(h, by_count);
    hub_free(h);
}

/* A full queue still takes what replaces something in it, again and again. */
static void merging_needs_no_room(void **state)
{
    (void)state;
    struct hub *h = hub_new(&wide);
    struct stream *s = join(h, 1);
    const uint64_t person = 1;
    for (uint64_t id = 1; id <= 3; id++)
        for (uint64_t key = 0; key < STREAM_FRAMES_MAX; key++) {
            const struct frame_text text = {
                .kind = 1, .key = key * 7 % STREAM_FRAMES_MAX, .id = id, .data = STR("x")};
            assert_int_equal(hub_send(h, &person, 1, &text), 1);
        }
    struct hub_stats stats;
    hub_stats(h, &stats);
    assert_int_equal(stats.merged, 2 * STREAM_FRAMES_MAX);
    assert_int_equal(stats.slow, 0);
    leave(h, s);
    hub_free(h);
}

static void after_a_goodbye_nothing_is_taken(void **state)
{
    (void)state;
    struct hub *h = hub_new(&wide);
    struct stream *s = join(h, 1);
    hub_close(h, 2, "nobody");
    assert_int_equal(send_to(h, 1, STR("x")), 1);
    hub_close(h, 1, "over");
    assert_int_equal(send_to(h, 1, STR("x")), 0);
    leave(h, s);
    hub_free(h);
}

/* ---- many threads ---- */

enum { THREADS = 6, ROUNDS = 3000, SHARED_PERSONS = 3 };

struct crowd {
    struct hub *hub;
    bool on[SHARED_PERSONS]; /* under a lock of the hub */
};

static void note_listener(void *ctx, uint64_t person, bool on)
{
    struct crowd *c = ctx;
    CHECK(c->on[person] != on); /* on and off take turns */
    c->on[person] = on;
}

static void *come_and_go(void *arg)
{
    struct crowd *c = arg;
    const struct frame_text text = {.kind = 1, .data = STR("x")};
    for (uint64_t i = 0; i < ROUNDS; i++) {
        uint64_t person = i % SHARED_PERSONS;
        struct stream *s = stream_new(&encoding_sse, 0, 0);
        CHECK(hub_join(c->hub, person, s) == OK);
        CHECK(hub_has(c->hub, person));
        CHECK(hub_send(c->hub, &person, 1, &text) >= 1);
        hub_leave(c->hub, s);
        stream_unref(s);
    }
    return NULL;
}

static void threads_that_come_and_go(void **state)
{
    (void)state;
    struct crowd c = {0};
    const struct hub_config config = {
        .streams_max = 1000, .person_max = HUB_PERSON_MAX, .listen = note_listener, .ctx = &c};
    c.hub = hub_new(&config);
    pthread_t threads[THREADS];
    for (int i = 0; i < THREADS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, come_and_go, &c), 0);
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    for (int i = 0; i < SHARED_PERSONS; i++)
        assert_false(c.on[i]);
    struct hub_stats stats;
    hub_stats(c.hub, &stats);
    assert_int_equal(stats.streams, 0);
    assert_int_equal(stats.joined, THREADS * ROUNDS);
    hub_free(c.hub);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_frame_as_bytes),
        cmocka_unit_test(who_is_here_and_who_is_not),
        cmocka_unit_test(limits),
        cmocka_unit_test(too_much_ends_a_stream_once),
        cmocka_unit_test(merging_needs_no_room),
        cmocka_unit_test(after_a_goodbye_nothing_is_taken),
        cmocka_unit_test(threads_that_come_and_go),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
