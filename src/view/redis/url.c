/* Taking a Redis URL apart. User and password may be percent-encoded; an IPv6 address stands in
 * brackets. */
#include "view/redis/url.h"

#include <string.h>

static bool copy_decoded(struct str s, char *out, size_t size)
{
    char decoded[3 * URL_SECRET_MAX];
    size_t n;
    for (size_t i = 0; i < s.len; i++)
        if (s.ptr[i] == '+') /* means itself outside of forms */
            return false;
    if (s.len >= sizeof decoded || !str_url_decode(s, decoded, &n) || n >= size)
        return false;
    memcpy(out, decoded, n);
    out[n] = 0;
    return memchr(out, 0, n) == NULL;
}

static bool parse_credentials(struct str s, struct redis_url *out)
{
    struct str user = s;
    const char *colon = s.len > 0 ? memchr(s.ptr, ':', s.len) : NULL;
    if (!colon)
        return false;
    user.len = (size_t)(colon - s.ptr);
    struct str password = {colon + 1, s.len - user.len - 1};
    return password.len > 0 && copy_decoded(user, out->user, sizeof out->user) &&
           copy_decoded(password, out->password, sizeof out->password);
}

static bool parse_host(struct str s, struct redis_url *out)
{
    struct str host = s, port = {NULL, 0};
    if (s.len > 0 && s.ptr[0] == '[') {
        const char *close = memchr(s.ptr, ']', s.len);
        if (!close)
            return false;
        host = (struct str){s.ptr + 1, (size_t)(close - s.ptr) - 1};
        port = (struct str){close + 1, s.len - host.len - 2};
    } else {
        const char *colon = s.len > 0 ? memchr(s.ptr, ':', s.len) : NULL;
        if (colon) {
            host.len = (size_t)(colon - s.ptr);
            port = (struct str){colon, s.len - host.len};
        }
    }
    uint64_t number = REDIS_PORT;
    if (port.len > 0 &&
        (port.ptr[0] != ':' || !str_parse_u64((struct str){port.ptr + 1, port.len - 1}, &number)))
        return false;
    if (out->host_count == URL_HOSTS_MAX || host.len == 0 || host.len >= URL_HOST_MAX ||
        number == 0 || number > 65535)
        return false;
    memcpy(out->hosts[out->host_count].host, host.ptr, host.len);
    out->hosts[out->host_count].host[host.len] = 0;
    out->hosts[out->host_count++].port = (int)number;
    return true;
}

static struct str after(struct str s, size_t n)
{
    return (struct str){s.ptr + n, s.len - n};
}

enum err redis_url_parse(struct str text, struct redis_url *out, const char **why)
{
    static const struct str single = {"redis://", 8}, cluster = {"redis-cluster://", 16};
    memset(out, 0, sizeof *out);
    *why = "it begins with neither redis:// nor redis-cluster://";
    out->cluster = str_starts(text, cluster);
    if (!out->cluster && !str_starts(text, single))
        return ERR_BAD_INPUT;
    struct str rest = after(text, out->cluster ? cluster.len : single.len);
    const char *at = rest.len > 0 ? memrchr(rest.ptr, '@', rest.len) : NULL;
    if (at) {
        *why = "before the @ stands neither user:password nor :password";
        if (!parse_credentials((struct str){rest.ptr, (size_t)(at - rest.ptr)}, out))
            return ERR_BAD_INPUT;
        rest = after(rest, (size_t)(at - rest.ptr) + 1);
    }
    const char *slash = rest.len > 0 ? memchr(rest.ptr, '/', rest.len) : NULL;
    if (slash) {
        struct str number = after(rest, (size_t)(slash - rest.ptr) + 1);
        uint64_t db = 0;
        *why = "after the last / stands no database number (a cluster has only 0)";
        if (number.len > 0 &&
            (!str_parse_u64(number, &db) || db > 65535 || (out->cluster && db > 0)))
            return ERR_BAD_INPUT;
        out->db = (unsigned)db;
        rest.len = (size_t)(slash - rest.ptr);
    }
    struct str host;
    *why = "a host is missing or malformed";
    while (str_split(&rest, ',', &host)) {
        if (!parse_host(host, out))
            return ERR_BAD_INPUT;
    }
    if (out->host_count == 0 || (!out->cluster && out->host_count > 1))
        return ERR_BAD_INPUT;
    *why = NULL;
    return OK;
}
