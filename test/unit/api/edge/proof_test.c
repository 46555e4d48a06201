/* What a node believes another: exactly what was vouched for, soon, and once. */
#include "test.h"

#include <sodium.h>

#include "api/edge/proof.h"
#include "base/check.h"

static const uint8_t secret[32] = "the secret in truth";
static const int64_t now_ms = INT64_C(1790000000000);

static struct proofs *node, *leader;

static int begin(void **state)
{
    (void)state;
    assert_true(sodium_init() >= 0);
    node = proofs_new(secret);
    leader = proofs_new(secret);
    return 0;
}

static int end(void **state)
{
    (void)state;
    proofs_free(node);
    proofs_free(leader);
    return 0;
}

static struct vouched sample(void)
{
    return (struct vouched){
        .method = STR("PUT"),
        .target = STR("/v1/admin/lanes?a=b"),
        .body = STR("{\"lane\":\"cleanup\"}"),
        .caller = {.account = 42, .session = 7, .scopes = SCOPE_ADMIN, .control = true},
        .term = 9,
        .node = 3,
    };
}

/* The request as it arrives: nothing is known of its caller. */
static struct vouched bare(const struct vouched *v)
{
    return (struct vouched){.method = v->method, .target = v->target, .body = v->body};
}

static enum err check(const char *proof, struct vouched *v, int64_t at_ms)
{
    const char *why = "";
    enum err e = proof_check(leader, str_of(proof), at_ms, v, &why);
    assert_true(e != ERR_FORBIDDEN || why[0]);
    return e;
}

static void test_says_who_calls(void **state)
{
    (void)state;
    char proof[PROOF_TEXT_MAX];
    struct vouched v = sample(), got = bare(&v);
    proof_write(node, &v, now_ms, proof);
    assert_int_equal(check(proof, &got, now_ms), OK);
    assert_true(got.caller.account == 42 && got.caller.session == 7);
    assert_true(got.caller.scopes == SCOPE_ADMIN && got.caller.control);
    assert_true(got.term == 9 && got.node == 3);

    v.caller = (struct caller){.account = UINT64_MAX, .session = UINT64_MAX, .scopes = UINT32_MAX};
    v.term = UINT64_MAX;
    v.node = UINT32_MAX;
    proof_write(node, &v, INT64_MAX / 4, proof); /* the longest there can be */
    got = bare(&v);
    assert_int_equal(check(proof, &got, INT64_MAX / 4), OK);
    assert_true(got.caller.account == UINT64_MAX && !got.caller.control && got.term == UINT64_MAX);
}

static void test_holds_once(void **state)
{
    (void)state;
    char proof[PROOF_TEXT_MAX], other[PROOF_TEXT_MAX];
    struct vouched v = sample(), got = bare(&v);
    proof_write(node, &v, now_ms, proof);
    proof_write(node, &v, now_ms, other);
    assert_string_not_equal(proof, other);
    assert_int_equal(check(proof, &got, now_ms), OK);
    got = bare(&v);
    assert_int_equal(check(proof, &got, now_ms), ERR_FORBIDDEN);
    assert_int_equal(check(proof, &got, now_ms + PROOF_AGE_MS), ERR_FORBIDDEN);
    assert_int_equal(got.caller.account, 0); /* untouched */
    assert_int_equal(check(other, &got, now_ms), OK);
}

static void test_holds_for_a_while(void **state)
{
    (void)state;
    const struct {
        int64_t off_ms;
        enum err result;
    } cases[] = {
        {0, OK},
        {PROOF_AGE_MS, OK},
        {-PROOF_AGE_MS, OK},
        {PROOF_AGE_MS + 1, ERR_FORBIDDEN},
        {-PROOF_AGE_MS - 1, ERR_FORBIDDEN},
        {INT64_C(86400000), ERR_FORBIDDEN},
    };
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        char proof[PROOF_TEXT_MAX];
        struct vouched v = sample(), got = bare(&v);
        proof_write(node, &v, now_ms + cases[i].off_ms, proof);
        assert_int_equal(check(proof, &got, now_ms), cases[i].result);
    }
}

static void test_holds_for_this_request_only(void **state)
{
    (void)state;
    char proof[PROOF_TEXT_MAX];
    struct vouched v = sample();
    struct vouched others[] = {bare(&v), bare(&v), bare(&v), bare(&v), bare(&v), bare(&v)};
    others[0].method = STR("POST");
    others[1].target = STR("/v1/admin/lanes?a=c");
    others[2].body = STR("{\"lane\":\"cleanuq\"}");
    others[3].body = STR("");
    /* the same bytes, cut elsewhere */
    others[4].method = STR("PUT\n/v1");
    others[4].target = STR("/admin/lanes?a=b");
    others[5].target = STR("/v1/admin/lanes?a=b\n");
    proof_write(node, &v, now_ms, proof);
    for (size_t i = 0; i < COUNT_OF(others); i++)
        assert_int_equal(check(proof, &others[i], now_ms), ERR_FORBIDDEN);
    struct vouched right = bare(&v); /* the wrong ones have not used it up */
    assert_int_equal(check(proof, &right, now_ms), OK);
}

static void test_any_change_breaks_it(void **state)
{
    (void)state;
    char proof[PROOF_TEXT_MAX];
    struct vouched v = sample();
    proof_write(node, &v, now_ms, proof);
    size_t len = strlen(proof);
    for (size_t i = 0; i < len; i++) {
        char changed[PROOF_TEXT_MAX];
        struct vouched got = bare(&v);
        memcpy(changed, proof, len + 1);
        changed[i] = changed[i] == '1' ? '2' : '1';
        assert_int_equal(check(changed, &got, now_ms), ERR_FORBIDDEN);
        got = bare(&v);
        memcpy(changed, proof, len + 1);
        changed[i] = '\0'; /* cut off */
        assert_int_equal(check(changed, &got, now_ms), ERR_FORBIDDEN);
    }
    const char *bad[] = {"", " ", "1", "1 2 3", "refused", "Bearer fts_x"};
    for (size_t i = 0; i < COUNT_OF(bad); i++) {
        struct vouched got = bare(&v);
        assert_int_equal(check(bad[i], &got, now_ms), ERR_FORBIDDEN);
    }
    char longer[2 * PROOF_TEXT_MAX];
    memset(longer, '0', sizeof longer - 1);
    longer[sizeof longer - 1] = '\0';
    struct vouched got = bare(&v);
    assert_int_equal(check(longer, &got, now_ms), ERR_FORBIDDEN);
}

static void test_another_store_proves_nothing(void **state)
{
    (void)state;
    static const uint8_t other_secret[32] = "the secret of another store";
    char proof[PROOF_TEXT_MAX];
    struct proofs *stranger = proofs_new(other_secret);
    struct vouched v = sample(), got = bare(&v);
    proof_write(stranger, &v, now_ms, proof);
    assert_int_equal(check(proof, &got, now_ms), ERR_FORBIDDEN);
    proofs_free(stranger);
}

/* More at a time than are remembered: refused rather than believed twice; later there is room. */
static void test_remembering_has_a_limit(void **state)
{
    (void)state;
    enum { MANY = 40000 };
    char proof[PROOF_TEXT_MAX];
    struct vouched v = sample();
    size_t fine = 0, full = 0;
    for (int i = 0; i < MANY; i++) {
        struct vouched got = bare(&v);
        proof_write(node, &v, now_ms, proof);
        enum err e = check(proof, &got, now_ms);
        fine += e == OK;
        full += e == ERR_OVERLOADED;
    }
    assert_int_equal(fine + full, MANY);
    assert_true(fine > 8000 && full > 0);
    size_t again = 0;
    int64_t later_ms = now_ms + PROOF_AGE_MS + 1;
    for (int i = 0; i < 1000; i++) {
        struct vouched got = bare(&v);
        proof_write(node, &v, later_ms, proof);
        again += check(proof, &got, later_ms) == OK;
    }
    assert_int_equal(again, 1000);
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, begin, end)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_says_who_calls),          TEST(test_holds_once),
        TEST(test_holds_for_a_while),       TEST(test_holds_for_this_request_only),
        TEST(test_any_change_breaks_it),    TEST(test_another_store_proves_nothing),
        TEST(test_remembering_has_a_limit),
    };
    return cmocka_run_group_tests_name("api/edge/proof", tests, NULL, NULL);
}
