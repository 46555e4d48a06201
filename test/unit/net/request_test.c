/* The request reader, fed by hand: what it accepts, what it refuses with which status, and that the
 * way the bytes are cut never matters. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "base/check.h"
#include "net/request.h"

/* Feeds `bytes` in pieces of `piece` (0: whole) until the reader is done with one request, and
 * writes down everything that came out. Returns how many bytes were used. */
static size_t read_in_pieces(struct str bytes, size_t first, size_t piece, struct buf *out)
{
    struct request *r = malloc(sizeof *r);
    assert_non_null(r);
    request_init(r);
    enum request_verdict v = REQUEST_MORE;
    size_t used = 0;
    while (used < bytes.len && v == REQUEST_MORE) {
        size_t n = used == 0 && first ? first : piece ? piece : bytes.len;
        if (n > bytes.len - used)
            n = bytes.len - used;
        /* A copy of its own, so that the sanitizers see any reach beyond the piece. */
        char *copy = malloc(n);
        assert_non_null(copy);
        memcpy(copy, bytes.ptr + used, n);
        size_t took = request_feed(r, copy, n, &v);
        free(copy);
        assert_true(took <= n);
        if (v == REQUEST_MORE)
            assert_int_equal(took, n);
        used += took;
    }
    buf_clear(out);
    if (v == REQUEST_BAD) {
        buf_printf(out, "bad %d %s", r->problem_status, r->problem_detail);
    } else if (v == REQUEST_DONE) {
        buf_printf(out, "%d target=%.*s path=%.*s query=%.*s keep=%d 1.0=%d\n", (int)r->method,
                   STR_ARG(r->target), STR_ARG(r->path), STR_ARG(r->query), r->keep_alive,
                   r->http_1_0);
        for (size_t i = 0; i < r->header_count; i++)
            buf_printf(out, "[%.*s]=[%.*s]\n", STR_ARG(r->headers[i].name),
                       STR_ARG(r->headers[i].value));
        buf_printf(out, "body %zu ", r->body.len);
        buf_str(out, buf_view(&r->body));
    } else {
        buf_printf(out, "more");
    }
    buf_append(out, "", 1);
    request_done(r);
    free(r);
    return used;
}

static void assert_reads(struct str bytes, const char *expected)
{
    struct buf out;
    buf_init(&out, 0);
    read_in_pieces(bytes, 0, 0, &out);
    assert_string_equal(out.ptr, expected);
    buf_done(&out);
}

static void assert_refused(struct str bytes, int status)
{
    struct buf out;
    buf_init(&out, 0);
    read_in_pieces(bytes, 0, 0, &out);
    char expected[16];
    snprintf(expected, sizeof expected, "bad %d", status);
    if (strncmp(out.ptr, expected, strlen(expected)) != 0)
        fail_msg("expected %s, got %s for: %.*s", expected, out.ptr, STR_ARG(bytes));
    buf_done(&out);
}

static void plain_get_is_read(void **state)
{
    (void)state;
    assert_reads(STR("GET /v1/feed?limit=20&x HTTP/1.1\r\nHost: a.example:80\r\nAccept:  */* "
                     "\t\r\nEmpty:\r\n\r\n"),
                 "0 target=/v1/feed?limit=20&x path=/v1/feed query=limit=20&x keep=1 1.0=0\n"
                 "[Host]=[a.example:80]\n[Accept]=[*/*]\n[Empty]=[]\nbody 0 ");
}

static void methods_are_told_apart(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        enum http_method method;
    } cases[] = {{"GET", HTTP_M_GET},         {"HEAD", HTTP_M_HEAD},     {"POST", HTTP_M_POST},
                 {"PUT", HTTP_M_PUT},         {"PATCH", HTTP_M_PATCH},   {"DELETE", HTTP_M_DELETE},
                 {"OPTIONS", HTTP_M_OPTIONS}, {"BREW", HTTP_M_OTHER},    {"M-SEARCH", HTTP_M_OTHER},
                 {"TRACE", HTTP_M_OTHER},     {"get", HTTP_M_OTHER},     {"X", HTTP_M_OTHER},
                 {"PRI", HTTP_M_OTHER},       {"DESCRIBE", HTTP_M_OTHER}};
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        char text[128], expected[128];
        int n = snprintf(text, sizeof text, "%s /x HTTP/1.1\r\nHost: h\r\n\r\n", cases[i].name);
        snprintf(expected, sizeof expected,
                 "%d target=/x path=/x query= keep=1 1.0=0\n[Host]=[h]\nbody 0 ",
                 (int)cases[i].method);
        assert_reads((struct str){text, (size_t)n}, expected);
    }
}

static void targets_are_split(void **state)
{
    (void)state;
    assert_reads(STR("GET http://h:8080/a/b?c HTTP/1.1\r\nHost: other\r\n\r\n"),
                 "0 target=/a/b?c path=/a/b query=c keep=1 1.0=0\n[Host]=[other]\nbody 0 ");
    assert_reads(STR("GET HTTPS://h?c=/ HTTP/1.1\r\nHost: h\r\n\r\n"),
                 "0 target=?c=/ path=/ query=c=/ keep=1 1.0=0\n[Host]=[h]\nbody 0 ");
    assert_reads(STR("GET http://h HTTP/1.1\r\nHost: h\r\n\r\n"),
                 "0 target= path=/ query= keep=1 1.0=0\n[Host]=[h]\nbody 0 ");
    assert_reads(STR("GET /a?b?c HTTP/1.1\r\nHost: h\r\n\r\n"),
                 "0 target=/a?b?c path=/a query=b?c keep=1 1.0=0\n[Host]=[h]\nbody 0 ");
    assert_reads(STR("OPTIONS * HTTP/1.1\r\nHost: h\r\n\r\n"),
                 "6 target=* path=* query= keep=1 1.0=0\n[Host]=[h]\nbody 0 ");
    assert_refused(STR("GET * HTTP/1.1\r\nHost: h\r\n\r\n"), 400);
    assert_refused(STR("GET ftp://h/ HTTP/1.1\r\nHost: h\r\n\r\n"), 400);
    assert_refused(STR("GET http:///x HTTP/1.1\r\nHost: h\r\n\r\n"), 400);
    assert_refused(STR("GET /x#y HTTP/1.1\r\nHost: h\r\n\r\n"), 400);
    assert_refused(STR("GET x HTTP/1.1\r\nHost: h\r\n\r\n"), 400);
    assert_refused(STR("CONNECT h:443 HTTP/1.1\r\nHost: h\r\n\r\n"), 400);
    assert_refused(STR("GET /\xc3\xa9 HTTP/1.1\r\nHost: h\r\n\r\n"), 400);
}

static void request_line_is_strict(void **state)
{
    (void)state;
    assert_refused(STR("GET  / HTTP/1.1\r\nHost: h\r\n\r\n"), 400);
    assert_refused(STR("GET /  HTTP/1.1\r\nHost: h\r\n\r\n"), 400);
    assert_refused(STR("GET / HTTP/1.1 \r\nHost: h\r\n\r\n"), 400);
    assert_refused(STR("GET\t/ HTTP/1.1\r\nHost: h\r\n\r\n"), 400);
    assert_refused(STR(" GET / HTTP/1.1\r\nHost: h\r\n\r\n"), 400);
    assert_refused(STR("GET /\r\n\r\n"), 400);
    assert_refused(STR("GET / HTTP/1.1x\r\nHost: h\r\n\r\n"), 400);
    assert_refused(STR("GET / http/1.1\r\nHost: h\r\n\r\n"), 400);
    assert_refused(STR("G(T / HTTP/1.1\r\nHost: h\r\n\r\n"), 400);
    assert_refused(STR("GET / HTTP/2.0\r\nHost: h\r\n\r\n"), 505);
    assert_refused(STR("GET / HTTP/1.2\r\nHost: h\r\n\r\n"), 505);
    assert_refused(STR("GET / HTTP/0.9\r\nHost: h\r\n\r\n"), 505);
    assert_refused(STR("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"), 505);
    assert_refused(STR("ABCDEFGHIJKLMNOPQRSTUVWXYZABCDEFGH / HTTP/1.1\r\nHost: h\r\n\r\n"), 400);
    assert_refused(STR("\x16\x03\x01\x02\x00\x01\x00"), 400); /* TLS */
}

static void blank_lines_before_a_request_are_skipped(void **state)
{
    (void)state;
    assert_reads(STR("\r\n\r\nGET / HTTP/1.1\r\nHost: h\r\n\r\n"),
                 "0 target=/ path=/ query= keep=1 1.0=0\n[Host]=[h]\nbody 0 ");
    assert_refused(STR("\r\n\r\n\r\n\r\n\r\nGET / HTTP/1.1\r\nHost: h\r\n\r\n"), 400);
    assert_refused(STR("\nGET / HTTP/1.1\r\nHost: h\r\n\r\n"), 400);
    assert_refused(STR("\rGET / HTTP/1.1\r\nHost: h\r\n\r\n"), 400);
}

/* Each of these is read differently by some server or proxy in the world. */
static void smuggling_is_refused(void **state)
{
    (void)state;
#define HEAD "POST / HTTP/1.1\r\nHost: h\r\n"
    static const struct {
        struct str bytes;
        int status;
    } cases[] = {
        {{HEAD "Content-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 0}, 400},
        {{HEAD "Transfer-Encoding: chunked\r\nContent-Length: 3\r\n\r\n0\r\n\r\n", 0}, 400},
        {{HEAD "Content-Length: 3\r\nContent-Length: 3\r\n\r\nabc", 0}, 400},
        {{HEAD "Content-Length: 3\r\nContent-Length: 4\r\n\r\nabcd", 0}, 400},
        {{HEAD "Content-Length: 3, 3\r\n\r\nabc", 0}, 400},
        {{HEAD "Content-Length: +3\r\n\r\nabc", 0}, 400},
        {{HEAD "Content-Length: -3\r\n\r\nabc", 0}, 400},
        {{HEAD "Content-Length: 0x3\r\n\r\nabc", 0}, 400},
        {{HEAD "Content-Length: 3 4\r\n\r\nabc", 0}, 400},
        {{HEAD "Content-Length:\r\n\r\n", 0}, 400},
        {{HEAD "Content-Length: 18446744073709551617\r\n\r\na", 0}, 400},
        {{HEAD "Content-Length : 3\r\n\r\nabc", 0}, 400},
        {{HEAD "Content-Length\t: 3\r\n\r\nabc", 0}, 400},
        {{HEAD "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 0},
         400},
        {{HEAD "Transfer-Encoding : chunked\r\n\r\n0\r\n\r\n", 0}, 400},
        {{HEAD "Transfer-Encoding: \x0b"
               "chunked\r\n\r\n0\r\n\r\n",
          0},
         400},
        {{HEAD "X: y\n\r\nabc", 0}, 400},
        {{HEAD "X: y\nZ: z\r\n\r\n", 0}, 400},
        {{HEAD "X: y\rZ: z\r\n\r\n", 0}, 400},
        {{HEAD "X: y\r\r\n\r\n", 0}, 400},
        {{HEAD "\rX: y\r\n\r\n", 0}, 400},
        {{HEAD "X: y\r\n folded\r\n\r\n", 0}, 400},
        {{HEAD "X: y\r\n\tfolded\r\n\r\n", 0}, 400},
        {{HEAD " X: y\r\n\r\n", 0}, 400},
        {{HEAD ": y\r\n\r\n", 0}, 400},
        {{HEAD "X\r\n\r\n", 0}, 400},
        {{HEAD "X y: z\r\n\r\n", 0}, 400},
        {{HEAD "X(: z\r\n\r\n", 0}, 400},
        {{HEAD "X: a\x01z\r\n\r\n", 0}, 400},
        {{HEAD "X: a\x7fz\r\n\r\n", 0}, 400},
        {{HEAD "Host: h\r\n\r\n", 0}, 400},
        {{HEAD "Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n", 0}, 501},
        {{HEAD "Transfer-Encoding: chunked, identity\r\n\r\n0\r\n\r\n", 0}, 400},
        {{HEAD "Transfer-Encoding: xchunked\r\n\r\n0\r\n\r\n", 0}, 501},
        {{HEAD "Transfer-Encoding:\r\n\r\n0\r\n\r\n", 0}, 501},
        {{"POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 0}, 400},
        {{"GET / HTTP/1.1\r\n\r\n", 0}, 400},
        {{"GET / HTTP/1.1\nHost: h\n\n", 0}, 400},
        {{"GET / HTTP/1.1\r\nHost: a b\r\n\r\n", 0}, 400},
        {{"GET / HTTP/1.1\r\nHost: a/b\r\n\r\n", 0}, 400},
        {{"GET / HTTP/1.1\r\nHost: a@b\r\n\r\n", 0}, 400},
    };
    for (size_t i = 0; i < COUNT_OF(cases); i++)
        assert_refused(str_of(cases[i].bytes.ptr), cases[i].status);
    assert_refused((struct str){HEAD "X: a\0b\r\n\r\n", sizeof HEAD "X: a\0b\r\n\r\n" - 1}, 400);
}

static void chunked_grammar_is_strict(void **state)
{
    (void)state;
#define CHUNKED HEAD "Transfer-Encoding: chunked\r\n\r\n"
    static const char *bad[] = {
        CHUNKED "\r\n",
        CHUNKED "x\r\n",
        CHUNKED " 1\r\na\r\n",
        CHUNKED "1 \r\na\r\n",
        CHUNKED "1\na\n0\n\n",
        CHUNKED "1\ra\r\n",
        CHUNKED "1\r\nab\r\n",
        CHUNKED "1\r\na\n",
        CHUNKED "1\r\na\rX",
        CHUNKED "0\r\n\n",
        CHUNKED "0\r\nX: a\rb\r\n",
        CHUNKED "0\r\nX: a\nb\r\n",
        CHUNKED "0\r\n folded\r\n",
        CHUNKED "0\r\nX : y\r\n",
        CHUNKED "0\r\n: y\r\n",
        CHUNKED "1;a\x01\r\n",
        CHUNKED "0x1\r\na\r\n",
        CHUNKED "-1\r\n",
        CHUNKED "0000000000000001\r\n",
        CHUNKED "0\r\n\rX",
    };
    for (size_t i = 0; i < COUNT_OF(bad); i++)
        assert_refused(str_of(bad[i]), 400);
    assert_refused(STR(CHUNKED "100001\r\n"), 413);
    assert_refused(STR(CHUNKED "fffffffffffffff\r\n"), 413);
    assert_reads(
        STR(CHUNKED "3;x=\"y\"\r\nabc\r\nA\r\n0123456789\r\n000\r\nTrailer: ignored\r\n\r\n"),
        "2 target=/ path=/ query= keep=1 1.0=0\n[Host]=[h]\n[Transfer-Encoding]=[chunked]\n"
        "body 13 abc0123456789");
}

static void keep_alive_follows_version_and_header(void **state)
{
    (void)state;
    static const struct {
        const char *bytes;
        bool keep;
    } cases[] = {
        {"GET / HTTP/1.1\r\nHost: h\r\n\r\n", true},
        {"GET / HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n", false},
        {"GET / HTTP/1.1\r\nHost: h\r\nConnection: foo, CLOSE\r\n\r\n", false},
        {"GET / HTTP/1.0\r\n\r\n", false},
        {"GET / HTTP/1.0\r\nHost: h\r\nConnection: keep-alive\r\n\r\n", true},
        {"GET / HTTP/1.1\r\nHost: h\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n", true},
    };
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        struct buf out;
        buf_init(&out, 0);
        read_in_pieces(str_of(cases[i].bytes), 0, 0, &out);
        assert_non_null(strstr(out.ptr, cases[i].keep ? "keep=1" : "keep=0"));
        buf_done(&out);
    }
}

static void head_limits_are_exact(void **state)
{
    (void)state;
    struct buf b;
    buf_init(&b, 0);
    for (int lines = 99; lines <= 100; lines++) { /* and the Host line */
        buf_clear(&b);
        buf_str(&b, STR("GET / HTTP/1.1\r\nHost: h\r\n"));
        for (int i = 0; i < lines; i++)
            buf_printf(&b, "X-%d: y\r\n", i);
        buf_str(&b, STR("\r\n"));
        struct buf out;
        buf_init(&out, 0);
        read_in_pieces(buf_view(&b), 0, 0, &out);
        assert_int_equal(strncmp(out.ptr, "bad 431", 7) == 0, lines == 100);
        buf_done(&out);
    }
    for (size_t size = HTTP_HEAD_MAX - 1; size <= HTTP_HEAD_MAX + 1; size++) {
        buf_clear(&b);
        buf_str(&b, STR("GET / HTTP/1.1\r\nHost: h\r\nX: "));
        while (b.len < size - 4)
            buf_append(&b, "x", 1);
        buf_str(&b, STR("\r\n\r\n"));
        for (size_t piece = 0; piece <= 4096; piece += 1024) {
            struct buf out;
            buf_init(&out, 0);
            read_in_pieces(buf_view(&b), 0, piece, &out);
            assert_int_equal(strncmp(out.ptr, "bad 431", 7) == 0, size > HTTP_HEAD_MAX);
            buf_done(&out);
        }
    }
    buf_done(&b);
}

static void body_limit_is_exact(void **state)
{
    (void)state;
    struct buf b, out;
    buf_init(&b, 0);
    buf_init(&out, 0);
    buf_printf(&b, "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: %d\r\n\r\n", HTTP_BODY_MAX);
    size_t head = b.len;
    memset(buf_reserve(&b, HTTP_BODY_MAX), 'b', HTTP_BODY_MAX);
    b.len += HTTP_BODY_MAX;
    size_t used = read_in_pieces(buf_view(&b), 0, 60000, &out);
    assert_int_equal(used, head + HTTP_BODY_MAX);
    assert_non_null(strstr(out.ptr, "body 1048576 "));
    assert_refused(STR(HEAD "Content-Length: 1048577\r\n\r\n"), 413);
    buf_done(&b);
    buf_done(&out);
}

static void bytes_after_a_request_are_left(void **state)
{
    (void)state;
    struct buf out;
    buf_init(&out, 0);
    struct str two = STR("GET /1 HTTP/1.1\r\nHost: h\r\n\r\nGET /2 HTTP/1.1\r\nHost: h\r\n\r\n");
    assert_int_equal(read_in_pieces(two, 0, 0, &out), two.len / 2);
    struct str body = STR("POST /1 HTTP/1.1\r\nHost: h\r\nContent-Length: 2\r\n\r\nabGET");
    assert_int_equal(read_in_pieces(body, 0, 0, &out), body.len - 3);
    struct str chunks = STR(CHUNKED "1\r\na\r\n0\r\n\r\nGET");
    assert_int_equal(read_in_pieces(chunks, 0, 0, &out), chunks.len - 3);
    buf_done(&out);
}

static void cutting_never_matters(void **state)
{
    (void)state;
    static const char *requests[] = {
        "\r\nGET /v1/feed?limit=20 HTTP/1.1\r\nHost: h\r\nAuthorization: Bearer abc\r\nX:\t a b "
        "\r\n\r\n",
        "POST /v1/posts HTTP/1.1\r\nHost: h\r\nContent-Length: 11\r\nExpect: "
        "100-continue\r\n\r\n{\"a\":\"bcd\"}",
        CHUNKED "5;ext\r\nhello\r\n6\r\n world\r\n0\r\nT: v\r\n\r\n",
        "BREW /pot HTTP/1.0\r\nConnection: keep-alive\r\n\r\n",
        HEAD "X: y\rZ\r\n\r\n",
        HEAD "Content-Length: 1\r\nContent-Length: 1\r\n\r\na",
        CHUNKED "5\r\nhelloX",
        "GET / HTTP/1.1\r\nHost: h\r\n folded\r\n\r\n",
    };
    struct buf whole, cut;
    buf_init(&whole, 0);
    buf_init(&cut, 0);
    for (size_t i = 0; i < COUNT_OF(requests); i++) {
        struct str bytes = str_of(requests[i]);
        size_t used = read_in_pieces(bytes, 0, 0, &whole);
        for (size_t first = 0; first < bytes.len; first++) {
            for (size_t piece = 0; piece <= 3; piece++) {
                size_t used_cut = read_in_pieces(bytes, first, piece, &cut);
                assert_string_equal(cut.ptr, whole.ptr);
                if (strncmp(whole.ptr, "bad", 3) != 0)
                    assert_int_equal(used_cut, used);
            }
        }
    }
    buf_done(&whole);
    buf_done(&cut);
}

static void expectations_are_met_or_refused(void **state)
{
    (void)state;
    struct request *r = malloc(sizeof *r);
    assert_non_null(r);
    request_init(r);
    enum request_verdict v;
    struct str head = STR(HEAD "Content-Length: 2\r\nExpect: 100-Continue\r\n\r\n");
    request_feed(r, head.ptr, head.len, &v);
    assert_int_equal(v, REQUEST_MORE);
    assert_true(r->head_complete && r->expects_continue);
    request_reset(r, 0);
    head = STR("GET / HTTP/1.1\r\nHost: h\r\nExpect: 100-continue\r\n\r\n");
    request_feed(r, head.ptr, head.len, &v);
    assert_int_equal(v, REQUEST_DONE);
    assert_false(r->expects_continue);
    request_done(r);
    free(r);
    assert_refused(STR(HEAD "Content-Length: 2\r\nExpect: a-pony\r\n\r\nab"), 417);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(plain_get_is_read),
        cmocka_unit_test(methods_are_told_apart),
        cmocka_unit_test(targets_are_split),
        cmocka_unit_test(request_line_is_strict),
        cmocka_unit_test(blank_lines_before_a_request_are_skipped),
        cmocka_unit_test(smuggling_is_refused),
        cmocka_unit_test(chunked_grammar_is_strict),
        cmocka_unit_test(keep_alive_follows_version_and_header),
        cmocka_unit_test(head_limits_are_exact),
        cmocka_unit_test(body_limit_is_exact),
        cmocka_unit_test(bytes_after_a_request_are_left),
        cmocka_unit_test(cutting_never_matters),
        cmocka_unit_test(expectations_are_met_or_refused),
    };
    return cmocka_run_group_tests_name("net/request", tests, NULL, NULL);
}
