/* Bulk import: what is taken, what is refused, and that running it again changes nothing. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <sodium.h>
#include <stdio.h>

#include "model/account.h"
#include "model/import.h"
#include "world.h"

static struct world w;

struct importing {
    struct str lines;
    struct arena arena;
    struct import_result result;
};

static int open_world(void **state)
{
    (void)state;
    world_open(&w, 1000);
    return sodium_init() < 0;
}

static int close_world(void **state)
{
    (void)state;
    world_close(&w);
    return 0;
}

static enum err run(struct tx *tx, void *arg)
{
    struct importing *im = arg;
    return import_chunk(tx, im->lines, 1, &w.policy, &im->arena, &im->result);
}

/* `detail`: of the first error. */
static struct import_result import(const char *lines, char *detail, size_t size)
{
    struct importing im = {.lines = str_of(lines)};
    arena_init(&im.arena);
    assert_int_equal(db_write(w.db, run, &im, NULL), OK);
    snprintf(detail, size, "%s", im.result.error_count ? im.result.errors[0].detail.ptr : "");
    arena_done(&im.arena);
    return im.result;
}

static void an_import_can_be_run_again(void **state)
{
    (void)state;
    const char *lines =
        "{\"type\":\"account\",\"username\":\"Ada\",\"display_name\":\"Ada "
        "L.\",\"created_at\":\"2025-01-02T03:04:05Z\"}\n"
        "{\"type\":\"account\",\"username\":\"bob\",\"id\":\"4194304000\"}\n"
        "\n"
        "{\"type\":\"follow\",\"follower\":\"ada\",\"followee\":\"4194304000\"}\n"
        "{\"type\":\"post\",\"author\":\"bob\",\"caption\":\"one\",\"created_at\":\"2025-01-03T00:"
        "00:00.5Z\"}\n"
        "{\"type\":\"post\",\"author\":\"bob\",\"caption\":\"two\",\"created_at\":\"2025-01-03T00:"
        "00:00.5Z\"}\n"
        "{\"type\":\"post\",\"author\":4194304000,\"caption\":\"three\",\"id\":\"4194304001\"}\n"
        "{\"type\":\"like\",\"account\":\"ada\",\"post\":\"4194304001\"}\n"
        "{\"type\":\"comment\",\"author\":\"ada\",\"post\":\"4194304001\",\"body\":\"nice\","
        "\"created_at\":\"2025-01-04T00:00:00Z\"}\n";
    for (int round = 0; round < 3; round++) {
        char errors[1000];
        struct import_result r = import(lines, errors, sizeof errors);
        assert_string_equal(errors, "");
        assert_int_equal(r.error_count, 0);
        assert_int_equal(r.accounts, round ? 0 : 2);
        assert_int_equal(r.follows, round ? 0 : 1);
        assert_int_equal(r.posts, round ? 0 : 3);
        assert_int_equal(r.likes, round ? 0 : 1);
        assert_int_equal(r.comments, round ? 0 : 1);
        assert_int_equal(r.repeated, round ? 8 : 0);
        assert_int_equal(world_i64(&w, "SELECT COUNT(*) FROM posts", DB_NO_ARGS), 3);
        assert_int_equal(world_i64(&w, "SELECT COUNT(*) FROM comments", DB_NO_ARGS), 1);
        assert_int_equal(
            world_i64(&w, "SELECT post_count FROM accounts WHERE username = 'bob'", DB_NO_ARGS), 3);
    }
    int64_t id = world_i64(&w, "SELECT id FROM posts WHERE caption = 'one'", DB_NO_ARGS);
    assert_int_equal(id_time_ms((uint64_t)id), INT64_C(1735862400500));
}

static void a_bad_line_is_told_and_leaves_nothing(void **state)
{
    (void)state;
    static const struct {
        const char *line, *why;
    } bad[] = {
        {"{\"type\":\"account\"", "not JSON"},
        {"{\"type\":\"account\",\"type\":\"post\"}", "duplicate"},
        {"[1]", "type must be"},
        {"{\"type\":\"planet\"}", "type must be"},
        {"{\"type\":\"account\",\"username\":\"x\"}", "username"},
        {"{\"type\":\"account\",\"username\":5}", "must be a string"},
        {"{\"type\":\"account\",\"username\":\"ok.name\",\"password_hash\":\"plain\"}", "argon2id"},
        {"{\"type\":\"account\",\"username\":\"ok.name\",\"password\":\"secret123\"}",
         "not hashed"},
        {"{\"type\":\"follow\",\"follower\":\"ada\",\"followee\":\"nobody.here\"}",
         "no such account"},
        {"{\"type\":\"follow\",\"follower\":\"ada\",\"followee\":\"ada\"}", "oneself"},
        {"{\"type\":\"post\",\"author\":\"ada\"}", "caption is missing"},
        {"{\"type\":\"post\",\"author\":\"ada\",\"caption\":\"\"}", "empty"},
        {"{\"type\":\"post\",\"author\":\"ada\",\"caption\":\"x\",\"created_at\":\"yesterday\"}",
         "RFC 3339"},
        {"{\"type\":\"post\",\"author\":\"ada\",\"caption\":\"x\",\"created_at\":\"2019-01-01T00:"
         "00:00Z\"}",
         "2024"},
        {"{\"type\":\"post\",\"author\":\"ada\",\"caption\":\"x\",\"created_at\":\"2999-01-01T00:"
         "00:00Z\"}",
         "future"},
        {"{\"type\":\"post\",\"author\":\"ada\",\"caption\":\"x\",\"id\":\"abc\"}", "not an id"},
        {"{\"type\":\"like\",\"account\":\"ada\",\"post\":\"77\"}", "no such post"},
    };
    int64_t events = world_i64(&w, "SELECT COUNT(*) FROM outbox", DB_NO_ARGS);
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        char lines[500], errors[1000];
        snprintf(lines, sizeof lines, "\n%s\n", bad[i].line);
        struct import_result r = import(lines, errors, sizeof errors);
        assert_int_equal(r.rejected, 1);
        assert_int_equal(r.errors[0].line, 2);
        if (!strstr(errors, bad[i].why))
            fail_msg("%s: %s does not say \"%s\"", bad[i].line, errors, bad[i].why);
    }
    assert_int_equal(world_i64(&w, "SELECT COUNT(*) FROM outbox", DB_NO_ARGS), events);
}

static void at_most_a_hundred_errors_are_kept(void **state)
{
    (void)state;
    char lines[600] = "", errors[1000];
    for (int i = 0; i < 150; i++)
        strcat(lines, "[]\n");
    struct import_result r = import(lines, errors, sizeof errors);
    assert_int_equal(r.rejected, 150);
    assert_int_equal(r.error_count, 100);
    assert_int_equal(r.errors[99].line, 100);
}

static void passwords_are_hashed_outside_of_transactions(void **state)
{
    (void)state;
    struct arena arena;
    struct str out;
    arena_init(&arena);
    struct str lines =
        STR("{\"type\":\"account\",\"username\":\"with.password\",\"password\":\"correct horse\"}\n"
            "not json, \"password\"\n"
            "{\"type\":\"account\",\"username\":\"without\"}\n");
    assert_int_equal(import_hash_passwords(lines, &arena, &out), OK);
    assert_null(memmem(out.ptr, out.len, "correct horse", 13));
    struct importing im = {.lines = out, .arena = arena};
    assert_int_equal(db_write(w.db, run, &im, NULL), OK);
    assert_int_equal(im.result.accounts, 2);
    assert_int_equal(im.result.rejected, 1);
    assert_int_equal(
        world_i64(&w, "SELECT COUNT(*) FROM accounts WHERE password_hash LIKE '$argon2id$%'",
                  DB_NO_ARGS),
        1);
    arena_done(&im.arena);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_import_can_be_run_again),
        cmocka_unit_test(a_bad_line_is_told_and_leaves_nothing),
        cmocka_unit_test(at_most_a_hundred_errors_are_kept),
        cmocka_unit_test(passwords_are_hashed_outside_of_transactions),
    };
    return cmocka_run_group_tests_name("model/import", tests, open_world, close_world);
}
