/* The request reader on arbitrary bytes: the first eight seed how the rest is cut, the rest is what
 * a connection sends. Checked, beyond what the sanitizers see:
 *   - cut anyhow, the same requests come out and the same refusal ends them;
 *   - what is accepted is well-formed (no control characters, one piece of the head each);
 *   - where llhttp accepts the same bytes, it sees the same body and the same end: nobody behind or
 *     in front of us who reads as it does can be made to disagree with us about where a request
 * ends. */
#include <llhttp.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/check.h"
#include "base/rand.h"
#include "net/request.h"
#include "net/token.h"

static struct request reader;

static void check_slice(const struct request *r, struct str s)
{
    CHECK(s.len == 0 || (s.ptr >= r->head.ptr && s.ptr + s.len <= r->head.ptr + r->head.len));
    for (size_t i = 0; i < s.len; i++)
        CHECK(token_is_value_byte((unsigned char)s.ptr[i]));
}

static void check_accepted(const struct request *r)
{
    CHECK(r->path.len > 0 && (r->path.ptr[0] == '/' || r->path.ptr[0] == '*'));
    check_slice(r, r->target);
    check_slice(r, r->query);
    CHECK(r->header_count <= HTTP_HEADERS_MAX);
    for (size_t i = 0; i < r->header_count; i++) {
        check_slice(r, r->headers[i].name);
        check_slice(r, r->headers[i].value);
        CHECK(r->headers[i].name.len > 0);
        for (size_t k = 0; k < r->headers[i].name.len; k++)
            CHECK(token_is_name_byte((unsigned char)r->headers[i].name.ptr[k]));
    }
    CHECK(r->body.len <= HTTP_BODY_MAX && r->head.len <= HTTP_HEAD_MAX);
}

/* ---- llhttp's opinion ---- */

struct opinion {
    struct buf body;
    bool complete;
};

static int on_body(llhttp_t *parser, const char *at, size_t len)
{
    struct opinion *o = parser->data;
    buf_append(&o->body, at, len);
    return 0;
}

static int on_end(llhttp_t *parser)
{
    struct opinion *o = parser->data;
    o->complete = true;
    return HPE_PAUSED;
}

static const llhttp_settings_t settings = {.on_body = on_body, .on_message_complete = on_end};

/* `bytes` is exactly one request that our reader accepted, and what follows it. */
static void check_against_llhttp(const struct request *r, const char *bytes, size_t used, size_t n)
{
    struct opinion o = {0};
    buf_init(&o.body, 0);
    llhttp_t parser;
    llhttp_init(&parser, HTTP_REQUEST, &settings);
    parser.data = &o;
    size_t skip = 0;
    if (r->method == HTTP_M_OTHER) { /* see read_head() */
        while (bytes[skip] == '\r' || bytes[skip] == '\n')
            skip++;
        while (bytes[skip] != ' ')
            skip++;
        skip++;
        CHECK(llhttp_execute(&parser, "POST ", 5) == HPE_OK);
    }
    llhttp_errno_t e = llhttp_execute(&parser, bytes + skip, n - skip);
    if (o.complete) {
        const char *end = e == HPE_OK ? bytes + n : llhttp_get_error_pos(&parser);
        CHECK(end == bytes + used);
        CHECK(str_eq(buf_view(&o.body), buf_view(&r->body)));
    } else {
        CHECK(r->chunked); /* of extensions and trailers it takes less than we do */
    }
    buf_done(&o.body);
}

/* ---- runs ---- */

static void write_down(const struct request *r, enum request_verdict v, struct buf *out)
{
    buf_printf(out, "%d %d ", (int)v, r->problem_status);
    if (v != REQUEST_DONE)
        return;
    buf_printf(out, "%d %d %d %zu ", (int)r->method, r->keep_alive, r->http_1_0, r->header_count);
    buf_str(out, r->target);
    buf_str(out, r->path);
    buf_str(out, r->query);
    for (size_t i = 0; i < r->header_count; i++) {
        buf_str(out, r->headers[i].name);
        buf_append(out, ":", 1);
        buf_str(out, r->headers[i].value);
    }
    buf_str(out, buf_view(&r->body));
}

/* Reads all requests in `bytes`; pieces of random size when `cuts` is given. */
static void read_all(const char *bytes, size_t n, struct rand *cuts, struct buf *out)
{
    request_reset(&reader, 1024);
    size_t at = 0, begin = 0;
    while (at < n) {
        size_t piece = cuts ? 1 + (size_t)rand_below(cuts, rand_below(cuts, 4) == 0 ? n : 8) : n;
        if (piece > n - at)
            piece = n - at;
        char *copy = malloc(piece); /* of its own, so that a reach beyond it is seen */
        CHECK(copy);
        memcpy(copy, bytes + at, piece);
        enum request_verdict v;
        size_t used = request_feed(&reader, copy, piece, &v);
        free(copy);
        CHECK(used <= piece && (v != REQUEST_MORE || used == piece));
        at += used;
        if (v == REQUEST_MORE)
            continue;
        write_down(&reader, v, out);
        if (v == REQUEST_BAD) {
            CHECK(reader.problem_status >= 400 && reader.problem_status < 600 &&
                  reader.problem_detail);
            return;
        }
        check_accepted(&reader);
        if (!cuts)
            check_against_llhttp(&reader, bytes + begin, at - begin, n - begin);
        begin = at;
        request_reset(&reader, 1024);
    }
    buf_printf(out, "%zu left", n - begin);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size < 8)
        return 0;
    static bool ready;
    if (!ready)
        request_init(&reader);
    ready = true;
    uint64_t seed;
    memcpy(&seed, data, 8);
    const char *bytes = (const char *)data + 8;
    struct buf whole, cut;
    buf_init(&whole, 0);
    buf_init(&cut, 0);
    read_all(bytes, size - 8, NULL, &whole);
    struct rand cuts;
    rand_seed(&cuts, seed);
    read_all(bytes, size - 8, &cuts, &cut);
    CHECK(str_eq(buf_view(&whole), buf_view(&cut)));
    buf_done(&whole);
    buf_done(&cut);
    return 0;
}
