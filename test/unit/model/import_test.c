/* Bulk import: what is taken, what is refused, and that running it again changes nothing. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <sodium.h>
#include <stdio.h>

#include "base/rand.h"
#include "model/account.h"
#include "model/follow_all.h"
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

/* ---- follows, many in a chunk, against a table ---- */

enum { CROWD = 12, FOLLOWS = 160, FOLLOWING_MAX = 7, THRESHOLD = 5 };

struct crowd {
    struct buf lines;
    bool follows[CROWD][CROWD];
    int following[CROWD];
    uint64_t made, repeated, rejected;
    struct import_result result;
    struct arena arena;
};

static enum err block_one(struct tx *tx, void *arg)
{
    const uint64_t *ids = arg;
    bool changed;
    return block_create(tx, ids[0], ids[1], &w.policy, &changed);
}

static enum err run_crowd(struct tx *tx, void *arg)
{
    struct crowd *c = arg;
    const struct follow_policy policy = {.celebrity_threshold = THRESHOLD,
                                         .max_following = FOLLOWING_MAX};
    return import_chunk(tx, buf_view(&c->lines), 1, &policy, &c->arena, &c->result);
}

static int64_t id_of(int person)
{
    char name[24];
    snprintf(name, sizeof name, "crowd%d", person);
    return world_i64(&w, "SELECT id FROM accounts WHERE username = $1",
                     DB_ARGS(DB_TEXT(str_of(name))));
}

/* Names, ids and strangers; again and again the same; sometimes a line of another kind between. */
static void add_line(struct crowd *c, struct rand *rnd)
{
    int from = (int)rand_below(rnd, CROWD), to = (int)rand_below(rnd, CROWD + 1);
    if (rand_below(rnd, 20) == 0) {
        buf_printf(&c->lines, "{\"type\":\"account\",\"username\":\"crowd0\"}\n");
        c->repeated++;
    }
    if (rand_below(rnd, 2))
        buf_printf(&c->lines, "{\"type\":\"follow\",\"follower\":\"CROWD%d\",", from);
    else
        buf_printf(&c->lines, "{\"type\":\"follow\",\"follower\":\"%lld\",",
                   (long long)id_of(from));
    buf_printf(&c->lines, "\"followee\":\"crowd%d\" }\n", to);
    bool blocked = (from == 0 && to == 1) || (from == 1 && to == 0);
    if (to == CROWD || from == to || blocked) {
        c->rejected++;
    } else if (c->follows[from][to]) {
        c->repeated++;
    } else if (c->following[from] == FOLLOWING_MAX) {
        c->rejected++;
    } else {
        c->follows[from][to] = true;
        c->following[from]++;
        c->made++;
    }
}

static void check_crowd(const struct crowd *c)
{
    for (int i = 0; i < CROWD; i++) {
        int64_t id = id_of(i);
        int followers = 0;
        for (int k = 0; k < CROWD; k++)
            followers += c->follows[k][i];
        assert_int_equal(world_i64(&w, "SELECT following_count FROM accounts WHERE id = $1",
                                   DB_ARGS(DB_I64(id))),
                         c->following[i]);
        assert_int_equal(
            world_i64(&w, "SELECT follower_count FROM accounts WHERE id = $1", DB_ARGS(DB_I64(id))),
            followers);
        assert_int_equal(
            world_i64(&w, "SELECT celebrity FROM accounts WHERE id = $1", DB_ARGS(DB_I64(id))),
            followers >= THRESHOLD);
        for (int k = 0; k < CROWD; k++)
            assert_int_equal(world_i64(&w,
                                       "SELECT COUNT(*) FROM follows WHERE follower_id = $1 "
                                       "AND followee_id = $2",
                                       DB_ARGS(DB_I64(id), DB_I64(id_of(k)))),
                             c->follows[i][k]);
    }
}

/* What the stored events tell: of how many follows, and how many events tell of several. */
struct told {
    const struct crowd *crowd;
    int64_t ids[CROWD];
    int64_t follows, several;
};

static int person_of(const struct told *t, uint64_t id)
{
    int i = 0;
    while (i < CROWD && t->ids[i] != (int64_t)id)
        i++;
    assert_true(i < CROWD);
    return i;
}

static enum err read_told(struct tx *tx, void *arg)
{
    struct told *t = arg;
    struct db_rows rows = tx_rows(tx,
                                  "SELECT id, type, version, payload FROM outbox "
                                  "WHERE type IN ('follow.created', 'follows.imported')",
                                  DB_NO_ARGS);
    while (db_next(&rows)) {
        struct event e;
        uint64_t followees[FOLLOWS_AN_EVENT];
        assert_int_equal(event_read_whole(db_id(&rows, 0), db_text(&rows, 1), db_i64(&rows, 2),
                                          db_text(&rows, 3), &e),
                         EVENT_READ);
        if (e.type == EVENT_FOLLOW_CREATED) {
            t->follows++;
            assert_int_equal(e.subject, e.object);
            continue;
        }
        size_t n = followees_read(e.data, followees);
        assert_true(n > 1);
        assert_int_equal(e.value, n);
        t->several++;
        for (size_t i = 0; i < n; i++)
            t->follows += t->crowd->follows[person_of(t, e.actor)][person_of(t, followees[i])];
    }
    return db_rows_done(&rows);
}

static struct told told_of(const struct crowd *c)
{
    struct told t = {.crowd = c};
    for (int i = 0; i < CROWD; i++)
        t.ids[i] = id_of(i);
    assert_int_equal(db_read(w.db, read_told, &t, NULL), OK);
    return t;
}

static void follows_in_a_chunk_are_as_one_by_one(void **state)
{
    (void)state;
    struct crowd c = {.made = 0};
    struct rand rnd;
    char lines[1200] = "", errors[1000];
    rand_seed(&rnd, 7);
    for (int i = 0; i < CROWD; i++)
        snprintf(lines + strlen(lines), 60, "{\"type\":\"account\",\"username\":\"crowd%d\"}\n", i);
    assert_int_equal(import(lines, errors, sizeof errors).accounts, CROWD);
    assert_int_equal(
        db_write(w.db, block_one, (uint64_t[]){(uint64_t)id_of(0), (uint64_t)id_of(1)}, NULL), OK);
    struct told before = told_of(&c), after;
    uint64_t made = 0;
    buf_init(&c.lines, 0);
    arena_init(&c.arena);
    for (int round = 0; round < 6; round++) {
        buf_clear(&c.lines);
        c.made = c.repeated = c.rejected = 0;
        for (int i = 0; i < FOLLOWS / (round + 1); i++)
            add_line(&c, &rnd);
        w.db->shared = round % 2 == 0; /* then an event may tell of several */
        assert_int_equal(db_write(w.db, run_crowd, &c, NULL), OK);
        after = told_of(&c);
        assert_true(after.several == before.several || w.db->shared);
        assert_true(after.several > before.several || round > 0);
        w.db->shared = false;
        before.several = after.several;
        assert_int_equal(c.result.follows, c.made);
        assert_int_equal(c.result.repeated, c.repeated);
        assert_int_equal(c.result.rejected, c.rejected);
        made += c.made;
        check_crowd(&c);
    }
    assert_true(made > 20);
    assert_int_equal(after.follows, before.follows + (int64_t)made);
    arena_done(&c.arena);
    buf_done(&c.lines);
}

static void the_data_of_several_follows_fits_and_is_read_strictly(void **state)
{
    (void)state;
    char memory[EVENT_DATA_MAX];
    uint64_t in[FOLLOWS_AN_EVENT], out[FOLLOWS_AN_EVENT];
    for (size_t n = 1; n <= FOLLOWS_AN_EVENT; n++) {
        struct buf data = buf_over(memory, sizeof memory);
        for (size_t i = 0; i < n; i++)
            in[i] = INT64_MAX - i;
        followees_write(in, n, &data);
        assert_false(data.failed);
        assert_int_equal(followees_read(buf_view(&data), out), n);
        assert_memory_equal(in, out, n * sizeof *in);
    }
    static const char *const wrong[] = {"",
                                        "{}",
                                        "{\"followees\":[]}",
                                        "{\"followees\":[\"\"]}",
                                        "{\"followees\":[\"0\"]}",
                                        "{\"followees\":[\"1\",]}",
                                        "{\"followees\":[\"1\"",
                                        "{\"followees\":[\"1",
                                        "{\"followees\":[1]}",
                                        "{\"followees\":[\"1\"]}x"};
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++)
        assert_int_equal(followees_read(str_of(wrong[i]), out), 0);
}

/* Twice the same name, or id; what is there; what is refused: as one by one. */
static void accounts_in_a_chunk_are_as_one_by_one(void **state)
{
    (void)state;
    char detail[200];
    struct import_result r = import(
        "{\"type\":\"account\",\"username\":\"many1\",\"display_name\":\"first\"}\n"
        "{\"type\":\"account\",\"username\":\"MANY1\",\"display_name\":\"second\"}\n"
        "{\"type\":\"account\",\"username\":\"many2\",\"id\":\"77001\"}\n"
        "{\"type\":\"account\",\"username\":\"many3\",\"id\":\"77001\"}\n"
        "{\"type\":\"account\",\"username\":\"no\"}\n"
        "{\"type\":\"account\",\"username\":\"many4\",\"email\":\"none\"}\n"
        "{\"type\":\"account\",\"username\":\"many5\",\"created_at\":\"2025-01-02T03:04:05Z\"}\n"
        "{\"type\":\"follow\",\"follower\":\"many5\",\"followee\":\"many1\"}\n"
        "{\"type\":\"account\",\"username\":\"many6\"}\n",
        detail, sizeof detail);
    assert_int_equal(r.accounts, 4); /* 1, 2, 5, 6 */
    assert_int_equal(r.repeated, 2); /* a name, an id */
    assert_int_equal(r.rejected, 2);
    assert_int_equal(r.errors[0].line, 5);
    assert_int_equal(r.errors[1].line, 6);
    assert_int_equal(r.follows, 1);
    assert_int_equal(world_i64(&w,
                               "SELECT COUNT(*) FROM accounts WHERE username = 'many1' "
                               "AND display_name = 'first'",
                               DB_NO_ARGS),
                     1);
    assert_int_equal(world_i64(&w, "SELECT id FROM accounts WHERE username = 'many2'", DB_NO_ARGS),
                     77001);
    assert_int_equal(id_time_ms((uint64_t)world_i64(
                         &w, "SELECT id FROM accounts WHERE username = 'many5'", DB_NO_ARGS)),
                     INT64_C(1735787045000));
    assert_int_equal(world_i64(&w,
                               "SELECT COUNT(*) FROM outbox JOIN accounts ON payload LIKE "
                               "'{\"actor\":\"' || accounts.id || '\"%' "
                               "WHERE type = 'account.created' AND username LIKE 'many%'",
                               DB_NO_ARGS),
                     4);
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
        cmocka_unit_test(follows_in_a_chunk_are_as_one_by_one),
        cmocka_unit_test(the_data_of_several_follows_fits_and_is_read_strictly),
        cmocka_unit_test(accounts_in_a_chunk_are_as_one_by_one),
        cmocka_unit_test(at_most_a_hundred_errors_are_kept),
        cmocka_unit_test(passwords_are_hashed_outside_of_transactions),
    };
    return cmocka_run_group_tests_name("model/import", tests, open_world, close_world);
}
