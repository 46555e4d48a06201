/* The origin is echoed rather than answered with "*", so that one rule serves both settings and
 * caches keep the answers apart (Vary: Origin, sent also to those without an Origin as soon as CORS
 * is on). */
#include "api/edge/cors.h"

enum { ORIGIN_MAX = 255 };

/* "scheme://host[:port]", or "null". What is echoed must not carry anything else into our head. */
static bool is_origin(struct str origin)
{
    if (origin.len == 0 || origin.len > ORIGIN_MAX)
        return false;
    for (size_t i = 0; i < origin.len; i++) {
        if (origin.ptr[i] <= ' ' || origin.ptr[i] >= 0x7f || origin.ptr[i] == ',')
            return false;
    }
    return true;
}

bool cors_allows(const char *allowed, struct str origin)
{
    if (!is_origin(origin))
        return false;
    struct str rest = str_of(allowed), one;
    while (str_split(&rest, ',', &one)) {
        one = str_trim(one);
        if (str_eq(one, STR("*")) || (one.len > 0 && str_eq_nocase(one, origin)))
            return true;
    }
    return false;
}

void cors_add_headers(const char *allowed, struct str origin, struct http_exchange *x)
{
    if (!allowed[0])
        return;
    buf_str(&x->head, STR("Vary: Origin\r\n"));
    if (!cors_allows(allowed, origin))
        return;
    buf_str(&x->head, STR("Access-Control-Allow-Origin: "));
    buf_str(&x->head, origin);
    buf_str(&x->head, STR("\r\nAccess-Control-Expose-Headers: Link, Retry-After, RateLimit-Limit, "
                          "RateLimit-Remaining, RateLimit-Reset, Idempotent-Replayed\r\n"));
}

void cors_add_preflight(struct http_exchange *x, struct str methods)
{
    buf_str(&x->head, STR("Access-Control-Allow-Methods: "));
    buf_str(&x->head, methods);
    buf_str(&x->head,
            STR("\r\nAccess-Control-Allow-Headers: authorization, content-type, idempotency-key, "
                "fantail-account, traceparent\r\nAccess-Control-Max-Age: 600\r\n"));
}
