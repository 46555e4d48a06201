/* Rendering. The head is written with plain copies into a buffer of a size that is known
 * beforehand: this runs for every request. */
#include "net/exchange.h"

#include <stdio.h>
#include <time.h>

#include "base/check.h"
#include "base/json_out.h"

/* Status line, date, type, length and connection, without the parts that are counted separately. */
enum { FIXED_HEAD_MAX = 256 };

#define REASON_TABLE(X)                                                                            \
    X(200, "OK")                                                                                   \
    X(201, "Created")                                                                              \
    X(202, "Accepted")                                                                             \
    X(204, "No Content")                                                                           \
    X(400, "Bad Request")                                                                          \
    X(401, "Unauthorized")                                                                         \
    X(403, "Forbidden")                                                                            \
    X(404, "Not Found")                                                                            \
    X(405, "Method Not Allowed")                                                                   \
    X(408, "Request Timeout")                                                                      \
    X(409, "Conflict")                                                                             \
    X(410, "Gone")                                                                                 \
    X(413, "Content Too Large")                                                                    \
    X(415, "Unsupported Media Type")                                                               \
    X(417, "Expectation Failed")                                                                   \
    X(421, "Misdirected Request")                                                                  \
    X(422, "Unprocessable Content")                                                                \
    X(429, "Too Many Requests")                                                                    \
    X(431, "Request Header Fields Too Large")                                                      \
    X(500, "Internal Server Error")                                                                \
    X(501, "Not Implemented")                                                                      \
    X(503, "Service Unavailable")                                                                  \
    X(505, "HTTP Version Not Supported")

static const char *reason_of(int status)
{
    switch (status) {
#define REASON(code, reason)                                                                       \
    case code:                                                                                     \
        return reason;
        REASON_TABLE(REASON)
#undef REASON
    default:
        return "Other";
    }
}

void date_line_update(struct date_line *d, int64_t wall_second)
{
    if (d->second == wall_second)
        return;
    d->second = wall_second;
    /* Not strftime: the names must not follow a locale. */
    static const char days[] = "SunMonTueWedThuFriSat";
    static const char months[] = "JanFebMarAprMayJunJulAugSepOctNovDec";
    time_t t = (time_t)wall_second;
    struct tm tm;
    CHECK(gmtime_r(&t, &tm));
    const int numbers[][2] = {/* where, what */
                              {11, tm.tm_mday},       {18, (tm.tm_year + 1900) / 100},
                              {20, tm.tm_year % 100}, {23, tm.tm_hour},
                              {26, tm.tm_min},        {29, tm.tm_sec}};
    memcpy(d->text, "Date: ---, -- --- ---- --:--:-- GMT\r\n", DATE_LINE_LEN);
    memcpy(d->text + 6, days + 3 * tm.tm_wday, 3);
    memcpy(d->text + 14, months + 3 * tm.tm_mon, 3);
    for (size_t i = 0; i < COUNT_OF(numbers); i++) {
        d->text[numbers[i][0]] = (char)('0' + numbers[i][1] / 10 % 10);
        d->text[numbers[i][0] + 1] = (char)('0' + numbers[i][1] % 10);
    }
}

void http_problem(struct http_exchange *x, int status, const char *code, const char *title,
                  const char *detail)
{
    char type[64];
    snprintf(type, sizeof type, "/docs#problem-%s", code);
    x->status = status;
    x->content_type = STR("application/problem+json");
    buf_clear(&x->out);
    x->out.max = HTTP_ANSWER_MAX; /* a handler may have set a lower one, which this need not fit */
    struct json_out j;
    json_out_init(&j, &x->out);
    json_object_begin(&j);
    json_put(&j, "type", str, str_of(type));
    json_put(&j, "code", str, str_of(code));
    json_put(&j, "title", str, str_of(title));
    json_put(&j, "status", i64, status);
    struct str text = str_of(detail);
    while (
        !str_is_utf8(text)) /* a detail is cut where its buffer ends, within a character perhaps */
        text.len--;
    if (text.len > 0)
        json_put(&j, "detail", str, text);
    json_object_end(&j);
}

void answer_problem(struct http_exchange *x, int status, const char *detail)
{
    char code[ERR_CODE_MAX] = HTTP_PROBLEM_CODE;
    for (int e = 1; e < ERR_COUNT; e++) {
        if (err_http_status((enum err)e) == status) {
            err_code((enum err)e, code); /* the first of them is the plain one */
            break;
        }
    }
    buf_clear(&x->head);
    http_problem(x, status, code, reason_of(status), detail);
}

static char *put(char *to, struct str s)
{
    memcpy(to, s.ptr, s.len);
    return to + s.len;
}

static char *put_number(char *to, uint64_t value)
{
    char digits[20];
    size_t n = 0;
    do {
        digits[n++] = (char)('0' + value % 10);
        value /= 10;
    } while (value > 0);
    while (n > 0)
        *to++ = digits[--n];
    return to;
}

static char *put_status_line(char *to, int status)
{
    to = put(to, STR("HTTP/1.1 "));
    to = put(put_number(to, (uint64_t)status), STR(" "));
    return put(put(to, str_of(reason_of(status))), STR("\r\n"));
}

void answer_render(struct exchange *e, const struct date_line *date, bool keep_alive)
{
    struct http_exchange *x = &e->x;
    CHECK(x->status >= 200 && x->status <= 599);
    if (x->out.failed || x->head.failed) {
        exchange_release_stream(e);
        answer_problem(x, 500, "the answer outgrew its limit");
    }
    bool bodiless = x->status == 204;
    size_t body_len = exchange_body(e).len;
    e->wire_body_len = bodiless || x->method == HTTP_M_HEAD ? 0 : body_len;

    char *start = buf_reserve(&e->wire, FIXED_HEAD_MAX + x->content_type.len + x->head.len);
    CHECK(start);
    char *to = put_status_line(start, x->status);
    to = put(to, (struct str){date->text, DATE_LINE_LEN});
    to = put(to, STR("X-Content-Type-Options: nosniff\r\n"));
    if (x->no_store)
        to = put(to, STR("Cache-Control: no-store\r\n"));
    if (!bodiless) {
        if (body_len > 0) {
            to = put(to, STR("Content-Type: "));
            to = put(to, x->content_type);
            to = put(to, STR("\r\n"));
        }
        if (!e->stream) { /* which ends with its connection */
            to = put(to, STR("Content-Length: "));
            to = put_number(to, body_len);
            to = put(to, STR("\r\n"));
        }
    }
    if (x->head.len > 0)
        to = put(to, buf_view(&x->head));
    if (!keep_alive)
        to = put(to, STR("Connection: close\r\n"));
    else if (e->request.http_1_0)
        to = put(to, STR("Connection: keep-alive\r\n"));
    to = put(to, STR("\r\n"));
    e->wire.len = (size_t)(to - start);
}
