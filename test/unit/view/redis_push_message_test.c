/* What Redis sends to the invalidation listener, whole, in pieces, and broken. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/check.h"
#include "base/rand.h"
#include "view/redis/push_message.h"

#define KEYS   ">2\r\n$10\r\ninvalidate\r\n*2\r\n$3\r\na\r\n\r\n$2\r\nbc\r\n"
#define HELLO  "%2\r\n$5\r\nproto\r\n:3\r\n$7\r\nmodules\r\n*0\r\n"
#define SHRUNK ">2\r\n$10\r\ninvalidate\r\n_\r\n"

struct sample {
    const char *text;
    enum push_message_kind kind;
};

static const struct sample samples[] = {
    {KEYS, PUSH_KEYS},
    {SHRUNK, PUSH_ALL},
    {">2\r\n$10\r\ninvalidate\r\n*-1\r\n", PUSH_ALL},
    {">2\r\n$10\r\ninvalidate\r\n:7\r\n", PUSH_ALL},
    {">3\r\n$7\r\nmessage\r\n$1\r\nc\r\n$1\r\nx\r\n", PUSH_OTHER},
    {HELLO, PUSH_ANSWER},
    {"+PONG\r\n", PUSH_ANSWER},
    {":0\r\n", PUSH_ANSWER},
    {"$-1\r\n", PUSH_ANSWER},
    {"-MOVED 1 127.0.0.1:7000\r\n", PUSH_REFUSAL},
};

static void every_message_is_known_when_it_is_whole_and_not_before(void **state)
{
    (void)state;
    for (size_t i = 0; i < COUNT_OF(samples); i++) {
        size_t len = strlen(samples[i].text);
        struct push_message n;
        for (size_t part = 0; part < len; part++) {
            char *copy = malloc(part + 1); /* of its own: a look beyond the end is found out */
            memcpy(copy, samples[i].text, part);
            push_message_read((struct str){copy, part}, &n);
            free(copy);
            assert_int_equal(n.kind, PUSH_MORE);
        }
        char two[200];
        int both = snprintf(two, sizeof two, "%s+PONG\r\n", samples[i].text);
        push_message_read((struct str){two, (size_t)both}, &n);
        assert_int_equal(n.kind, samples[i].kind);
        assert_int_equal(n.size, len);
    }
}

static void keys_come_one_after_another(void **state)
{
    (void)state;
    struct push_message n;
    struct str key;
    push_message_read(STR(KEYS "$1\r\nx\r\n"), &n);
    assert_true(push_message_next_key(&n, &key));
    assert_true(str_eq(key, STR("a\r\n")));
    assert_true(push_message_next_key(&n, &key));
    assert_true(str_eq(key, STR("bc")));
}

static void what_is_no_message_is_refused(void **state)
{
    (void)state;
    static const char *const bad[] = {
        "PONG\r\n",     "\r\n",
        "$x\r\n",       "$-2\r\n",
        "$3\r\nabcd\r", "+OK\n",
        "*-5\r\n",      "*99999999999\r\n",
        ">1000000\r\n", "*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n:1\r\n"};
    for (size_t i = 0; i < COUNT_OF(bad); i++) {
        struct push_message n;
        push_message_read(str_of(bad[i]), &n);
        assert_int_equal(n.kind, PUSH_BAD);
    }
    struct push_message n;
    size_t len = PUSH_BYTES_MAX + 2;
    char *long_line = malloc(len);
    memset(long_line, 'x', len);
    long_line[0] = '+';
    push_message_read((struct str){long_line, len}, &n);
    assert_int_equal(n.kind, PUSH_BAD);
    free(long_line);
}

/* Nothing is read beyond the bytes, and a message is never longer than they are. */
static void broken_messages_end_somewhere(void **state)
{
    (void)state;
    struct rand rand;
    rand_seed(&rand, 20);
    for (int i = 0; i < 200000; i++) {
        const char *text = samples[rand_u64(&rand) % COUNT_OF(samples)].text;
        size_t len = strlen(text);
        char *copy = malloc(len);
        for (size_t k = 0; k < len; k++)
            copy[k] = text[k];
        for (uint64_t k = rand_u64(&rand) % 3 + 1; k > 0; k--)
            copy[rand_u64(&rand) % len] = "\r\n$*>_%:-190"[rand_u64(&rand) % 12];
        struct push_message n;
        struct str key;
        push_message_read((struct str){copy, len}, &n);
        assert_true(n.size <= len);
        for (size_t keys = 0; n.kind == PUSH_KEYS && push_message_next_key(&n, &key); keys++)
            assert_true(key.ptr >= copy && key.ptr + key.len <= copy + len && keys < len);
        free(copy);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_message_is_known_when_it_is_whole_and_not_before),
        cmocka_unit_test(keys_come_one_after_another),
        cmocka_unit_test(what_is_no_message_is_refused),
        cmocka_unit_test(broken_messages_end_somewhere),
    };
    return cmocka_run_group_tests_name("redis push_message", tests, NULL, NULL);
}
