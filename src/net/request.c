/* The request reader. The head is first checked byte by byte, as it arrives, until the empty line
 * is found; then llhttp parses it in one piece. So the result does not depend on how the bytes were
 * cut, the slices that llhttp reports lie in one buffer (`head`, which lives as long as the
 * exchange), and llhttp's leniences (a bare CR inside a header line, runs of spaces in the request
 * line) are out of reach.
 *
 * The body is ours: a length is counted down, chunks are decoded by chunked.c. */
#include "net/request.h"

#include <llhttp.h>

#include "base/check.h"
#include "net/token.h"

enum { BLANK_LINES_MAX = 4, METHOD_LEN_MAX = 32, VERSION_LEN = 8 /* HTTP/1.1 */ };

enum {
    BEFORE, /* empty lines before the request line are skipped (RFC 9112, 2.2) */
    BEFORE_LF,
    LINE_START, /* of a header line or of the empty one */
    IN_LINE,
    LINE_LF,
    END_LF,
    COMPLETE,
};

void request_init(struct request *r)
{
    r->header_count = 0;
    buf_init(&r->head, HTTP_HEAD_MAX);
    buf_init(&r->body, HTTP_BODY_MAX);
    request_reset(r, SIZE_MAX);
}

void request_done(struct request *r)
{
    buf_done(&r->head);
    buf_done(&r->body);
}

void request_reset(struct request *r, size_t keep_max)
{
    buf_recycle(&r->head, keep_max);
    buf_recycle(&r->body, keep_max);
    r->method = HTTP_M_OTHER;
    r->target = r->path = r->query = (struct str){0};
    r->header_count = 0;
    r->keep_alive = r->http_1_0 = false;
    r->head_complete = r->expects_continue = false;
    r->problem_status = 0;
    r->problem_detail = NULL;
    r->check = (struct head_check){.state = BEFORE};
    r->chunked = false;
    r->body_left = 0;
}

/* Always false, so that a check can end in `return bad(…)`. */
static bool bad(struct request *r, int status, const char *detail)
{
    r->problem_status = status;
    r->problem_detail = detail;
    return false;
}

/* The number of leading bytes that are neither control characters nor DEL: eight at a time. A byte
 * whose top bit is set passes (obs-text). */
static size_t plain_prefix(const char *bytes, size_t n)
{
    const uint64_t ones = UINT64_C(0x0101010101010101);
    const uint64_t tops = UINT64_C(0x8080808080808080);
    size_t i = 0;
    for (; i + 8 <= n; i += 8) {
        uint64_t w;
        memcpy(&w, bytes + i, 8);
        uint64_t below_space = (w - ones * 0x20) & ~w;
        uint64_t del = w ^ ones * 0x7f;
        del = (del - ones) & ~del;
        if ((below_space | del) & tops)
            break;
    }
    while (i < n && ((unsigned char)bytes[i] >= 0x20 && bytes[i] != 0x7f))
        i++;
    return i;
}

/* Consumes bytes up to the end of the head (state COMPLETE) or all of them. False: bad. */
static bool check_head(struct request *r, const char *bytes, size_t n, size_t *used)
{
    struct head_check *k = &r->check;
    size_t i = *used;
    while (i < n && k->state != COMPLETE) {
        switch (k->state) {
        case LINE_START:
            if (bytes[i] == '\r') {
                k->state = END_LF;
                i++;
                break;
            }
            if (bytes[i] == ' ' || bytes[i] == '\t')
                return bad(r, 400, "folded header lines are not accepted");
            if (k->lines > HTTP_HEADERS_MAX)
                return bad(r, 431, "at most 100 header lines are accepted");
            k->lines++;
            k->state = IN_LINE;
            break;
        case IN_LINE: {
            size_t plain = plain_prefix(bytes + i, n - i);
            i += plain;
            if (k->lines == 1)
                k->first_line_len = (uint16_t)(k->first_line_len + plain);
            if (i == n)
                break;
            if (bytes[i] == '\r')
                k->state = LINE_LF;
            else if (bytes[i] != '\t' || k->lines == 1)
                return bad(r, 400, "the head holds a control character or a bare line feed");
            i++;
            break;
        }
        default: /* LINE_LF, END_LF */
            if (bytes[i] != '\n')
                return bad(r, 400, "a carriage return must be followed by a line feed");
            k->state = k->state == LINE_LF ? LINE_START : COMPLETE;
            i++;
            break;
        }
    }
    *used = i;
    return true;
}

/* Skips empty lines before the request line. False: bad. */
static bool skip_blank_lines(struct request *r, const char *bytes, size_t n, size_t *used)
{
    struct head_check *k = &r->check;
    while (*used < n && k->state <= BEFORE_LF) {
        char b = bytes[*used];
        if (k->state == BEFORE_LF) {
            if (b != '\n')
                return bad(r, 400, "a carriage return must be followed by a line feed");
            if (++k->blank_lines > BLANK_LINES_MAX)
                return bad(r, 400, "too many empty lines before the request");
            k->state = BEFORE;
            ++*used;
        } else if (b == '\r') {
            k->state = BEFORE_LF;
            ++*used;
        } else {
            k->state = IN_LINE;
            k->lines = 1;
        }
    }
    return true;
}

/* ---- what llhttp reports ---- */

static int on_target(llhttp_t *parser, const char *at, size_t len)
{
    struct request *r = parser->data;
    r->target = (struct str){at, len};
    return 0;
}

static int on_name(llhttp_t *parser, const char *at, size_t len)
{
    struct request *r = parser->data;
    if (r->header_count == HTTP_HEADERS_MAX)
        return -1; /* cannot be: the lines were counted */
    r->headers[r->header_count++] = (struct http_header){.name = {at, len}, .value = {at + len, 0}};
    return 0;
}

static int on_value(llhttp_t *parser, const char *at, size_t len)
{
    struct request *r = parser->data;
    if (r->header_count == 0)
        return -1;
    r->headers[r->header_count - 1].value = str_trim((struct str){at, len});
    return 0;
}

/* Here the flags are known and not yet cleared. The rest is ours: stop. */
static int on_head_end(llhttp_t *parser)
{
    struct request *r = parser->data;
    r->keep_alive = llhttp_should_keep_alive(parser);
    return HPE_PAUSED;
}

static const llhttp_settings_t head_settings = {
    .on_url = on_target,
    .on_header_field = on_name,
    .on_header_value = on_value,
    .on_headers_complete = on_head_end,
};

/* ---- the request line ---- */

static enum http_method method_of(struct str m)
{
    static const struct {
        struct str name;
        enum http_method method;
    } methods[] = {
        {{"GET", 3}, HTTP_M_GET},         {{"POST", 4}, HTTP_M_POST},   {{"PUT", 3}, HTTP_M_PUT},
        {{"DELETE", 6}, HTTP_M_DELETE},   {{"PATCH", 5}, HTTP_M_PATCH}, {{"HEAD", 4}, HTTP_M_HEAD},
        {{"OPTIONS", 7}, HTTP_M_OPTIONS},
    };
    for (size_t i = 0; i < COUNT_OF(methods); i++)
        if (str_eq(m, methods[i].name))
            return methods[i].method;
    return HTTP_M_OTHER;
}

/* method SP target SP version: finds the method, checks the version. The target is llhttp's. */
static bool read_request_line(struct request *r, struct str *method)
{
    struct str line = {r->head.ptr, r->check.first_line_len};
    CHECK(line.ptr && line.len <= r->head.len); /* the head is complete */
    size_t m = 0;
    while (m < line.len && token_is_name_byte((unsigned char)line.ptr[m]))
        m++;
    if (m == 0 || m > METHOD_LEN_MAX || m == line.len || line.ptr[m] != ' ')
        return bad(r, 400, "the request line is malformed");
    *method = (struct str){line.ptr, m};
    r->method = method_of(*method);

    if (line.len < m + 1 + 1 + 1 + VERSION_LEN)
        return bad(r, 400, "the request line is malformed");
    const char *version = line.ptr + line.len - VERSION_LEN;
    if (version[-1] != ' ' || memcmp(version, "HTTP/", 5) != 0 || version[6] != '.')
        return bad(r, 400, "the request line is malformed");
    if (version[5] != '1' || (version[7] != '0' && version[7] != '1'))
        return bad(r, 505, "only HTTP/1.0 and HTTP/1.1 are spoken here");
    r->http_1_0 = version[7] == '0';
    return true;
}

/* Splits origin-form and absolute-form targets into path and query. */
static bool read_target(struct request *r)
{
    struct str t = r->target;
    if (!t.ptr || t.len == 0)
        return bad(r, 400, "the request line is malformed");
    if (memchr(t.ptr, '#', t.len))
        return bad(r, 400, "a request target has no fragment");
    if (r->method == HTTP_M_OPTIONS && str_eq(t, STR("*"))) {
        r->path = t;
        return true;
    }
    if (t.ptr[0] != '/') {
        struct str scheme;
        if (t.len > 7 && str_eq_nocase((struct str){t.ptr, 7}, STR("http://")))
            scheme = STR("http://");
        else if (t.len > 8 && str_eq_nocase((struct str){t.ptr, 8}, STR("https://")))
            scheme = STR("https://");
        else
            return bad(r, 400, "the request target must be a path or an http URL");
        size_t i = scheme.len;
        while (i < t.len && t.ptr[i] != '/' && t.ptr[i] != '?')
            i++;
        if (i == scheme.len)
            return bad(r, 400, "the request target names no host");
        t = (struct str){t.ptr + i, t.len - i};
        r->target = t;
    }
    const char *mark = t.len > 0 ? memchr(t.ptr, '?', t.len) : NULL;
    r->path = mark ? (struct str){t.ptr, (size_t)(mark - t.ptr)} : t;
    r->query = mark ? (struct str){mark + 1, t.len - r->path.len - 1} : STR("");
    if (r->path.len == 0)
        r->path = STR("/");
    return true;
}

/* ---- the headers that decide on framing ---- */

struct framing {
    unsigned hosts, lengths, codings;
    uint64_t length;
};

static bool host_is_plain(struct str host)
{
    for (size_t i = 0; i < host.len; i++)
        if ((unsigned char)host.ptr[i] <= ' ' || (unsigned char)host.ptr[i] >= 0x7f ||
            strchr("/?#@\\,\"<>", host.ptr[i]))
            return false;
    return true;
}

static bool read_framing_header(struct request *r, const struct http_header *h, struct framing *f)
{
    switch (h->name.len) {
    case 0:
        return bad(r, 400, "a header line has no name");
    case 4:
        if (str_eq_nocase(h->name, STR("host"))) {
            f->hosts++;
            if (!host_is_plain(h->value))
                return bad(r, 400, "the Host header is malformed");
        }
        break;
    case 6:
        if (str_eq_nocase(h->name, STR("expect")) && !r->http_1_0) {
            if (!str_eq_nocase(h->value, STR("100-continue")))
                return bad(r, 417, "only 100-continue can be expected");
            r->expects_continue = true;
        }
        break;
    case 14:
        if (str_eq_nocase(h->name, STR("content-length"))) {
            f->lengths++;
            if (!str_parse_u64(h->value, &f->length))
                return bad(r, 400, "the Content-Length is malformed");
        }
        break;
    case 17:
        if (str_eq_nocase(h->name, STR("transfer-encoding"))) {
            f->codings++;
            if (!str_eq_nocase(h->value, STR("chunked")))
                return bad(r, 501, "chunked is the only transfer coding understood");
        }
        break;
    default:
        break;
    }
    return true;
}

static bool read_framing(struct request *r)
{
    struct framing f = {0};
    for (size_t i = 0; i < r->header_count; i++)
        if (!read_framing_header(r, &r->headers[i], &f))
            return false;
    if (f.hosts > 1 || (f.hosts == 0 && !r->http_1_0))
        return bad(r, 400, "exactly one Host header is required");
    if (f.lengths > 1 || f.codings > 1 || (f.lengths && f.codings))
        return bad(r, 400, "the length of the body is ambiguous");
    if (f.codings && r->http_1_0)
        return bad(r, 400, "HTTP/1.0 has no transfer codings");
    if (f.length > HTTP_BODY_MAX)
        return bad(r, 413, "the body exceeds 1 MiB");
    r->chunked = f.codings == 1;
    r->body_left = f.length;
    if (r->chunked)
        chunked_init(&r->chunks);
    return true;
}

/* The whole head is in r->head and holds no byte that it must not. */
static bool read_head(struct request *r)
{
    struct str method;
    if (!read_request_line(r, &method))
        return false;
    struct str rest = buf_view(&r->head);
    llhttp_t parser;
    llhttp_init(&parser, HTTP_REQUEST, &head_settings);
    parser.data = r;
    if (r->method == HTTP_M_OTHER) {
        /* llhttp knows a closed list of methods and treats some of them (CONNECT, PRI) as other
         * protocols. Ours is open: it is shown an ordinary method instead. */
        if (llhttp_execute(&parser, "POST ", 5) != HPE_OK)
            return bad(r, 400, "the request line is malformed");
        rest = (struct str){rest.ptr + method.len + 1, rest.len - method.len - 1};
    }
    r->target = (struct str){0};
    if (llhttp_execute(&parser, rest.ptr, rest.len) != HPE_PAUSED)
        return bad(r, 400, "the head is malformed");
    if (method.len + 1 + r->target.len + 1 + VERSION_LEN != r->check.first_line_len)
        return bad(r, 400, "the request line is malformed");
    if (!read_target(r) || !read_framing(r))
        return false;
    if (!r->chunked && r->body_left == 0)
        r->expects_continue = false;
    r->head_complete = true;
    return true;
}

static size_t feed_head(struct request *r, const char *bytes, size_t n,
                        enum request_verdict *verdict)
{
    size_t start = 0;
    *verdict = REQUEST_BAD;
    if (!skip_blank_lines(r, bytes, n, &start))
        return start;
    size_t room = HTTP_HEAD_MAX - r->head.len;
    size_t end = n - start < room ? n : start + room;
    size_t used = start;
    if (!check_head(r, bytes, end, &used))
        return used;
    buf_append(&r->head, bytes + start, used - start);
    if (r->head.failed) {
        bad(r, 503, "out of memory");
        return used;
    }
    if (r->check.state != COMPLETE) {
        if (used < n || r->head.len == HTTP_HEAD_MAX) {
            bad(r, 431, "the head exceeds 16 KiB");
            return used;
        }
        *verdict = REQUEST_MORE;
        return used;
    }
    if (read_head(r))
        *verdict = r->chunked || r->body_left > 0 ? REQUEST_MORE : REQUEST_DONE;
    return used;
}

static size_t feed_chunks(struct request *r, const char *bytes, size_t n,
                          enum request_verdict *verdict)
{
    static const struct {
        int status;
        const char *detail;
    } problems[] = {
        [CHUNKED_BAD] = {400, "the chunked body is malformed"},
        [CHUNKED_TOO_LARGE] = {413, "the body exceeds 1 MiB"},
        [CHUNKED_NO_MEMORY] = {503, "out of memory"},
    };
    enum chunked_verdict v;
    size_t used = chunked_feed(&r->chunks, bytes, n, &r->body, &v);
    *verdict = v == CHUNKED_MORE ? REQUEST_MORE : v == CHUNKED_DONE ? REQUEST_DONE : REQUEST_BAD;
    if (*verdict == REQUEST_BAD)
        bad(r, problems[v].status, problems[v].detail);
    return used;
}

static size_t feed_length(struct request *r, const char *bytes, size_t n,
                          enum request_verdict *verdict)
{
    size_t part = n < r->body_left ? n : (size_t)r->body_left;
    buf_append(&r->body, bytes, part);
    r->body_left -= part;
    if (r->body.failed) {
        bad(r, 503, "out of memory");
        *verdict = REQUEST_BAD;
    } else {
        *verdict = r->body_left == 0 ? REQUEST_DONE : REQUEST_MORE;
    }
    return part;
}

size_t request_feed(struct request *r, const char *bytes, size_t n, enum request_verdict *verdict)
{
    size_t used = 0;
    *verdict = REQUEST_MORE;
    if (!r->head_complete)
        used = feed_head(r, bytes, n, verdict);
    if (*verdict != REQUEST_MORE || used == n)
        return used;
    if (r->chunked)
        used += feed_chunks(r, bytes + used, n - used, verdict);
    else
        used += feed_length(r, bytes + used, n - used, verdict);
    return used;
}
