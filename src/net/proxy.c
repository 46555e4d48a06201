/* Addresses are compared as 16 bytes, IPv4 ones in their IPv6 form. The last ITEMS_MAX items of a
 * header count: a longer way than that no honest request has come. */
#include "net/proxy.h"

#include <arpa/inet.h>
#include <stdio.h>
#include <string.h>

enum { ITEMS_MAX = 32, IPV4_PREFIX_BITS = 96 };

struct address {
    uint8_t bytes[16];
};

static const uint8_t ipv4_prefix[12] = {[10] = 0xff, [11] = 0xff};

/* A bare address, without port or brackets. *ipv4: which kind it is. */
static bool parse_address(struct str text, struct address *out, bool *ipv4)
{
    char copy[INET6_ADDRSTRLEN];
    if (text.len == 0 || text.len >= sizeof copy)
        return false;
    memcpy(copy, text.ptr, text.len);
    copy[text.len] = '\0';
    memcpy(out->bytes, ipv4_prefix, sizeof ipv4_prefix);
    *ipv4 = inet_pton(AF_INET, copy, out->bytes + sizeof ipv4_prefix) == 1;
    return *ipv4 || inet_pton(AF_INET6, copy, out->bytes) == 1;
}

static bool parse_network(struct str text, struct address *out, unsigned *bits)
{
    bool ipv4;
    uint64_t given = 0;
    const char *slash = memchr(text.ptr, '/', text.len);
    struct str address = {text.ptr, slash ? (size_t)(slash - text.ptr) : text.len};
    struct str length = {slash ? slash + 1 : "", slash ? text.len - address.len - 1 : 0};
    if (!parse_address(address, out, &ipv4))
        return false;
    unsigned most = ipv4 ? 32 : 128;
    if (slash && (!str_parse_u64(length, &given) || given > most))
        return false;
    *bits = (ipv4 ? IPV4_PREFIX_BITS : 0) + (slash ? (unsigned)given : most);
    return true;
}

bool proxies_parse(const char *list, struct proxies *out, char why[200])
{
    *out = (struct proxies){0};
    for (const char *at = list + strspn(list, ", "); *at; at += strspn(at, ", ")) {
        struct str text = {at, strcspn(at, ", ")};
        struct address address;
        at += text.len;
        if (out->count == PROXIES_MAX) {
            snprintf(why, 200, "trusted-proxy: more than %d networks", PROXIES_MAX);
            return false;
        }
        if (!parse_network(text, &address, &out->networks[out->count].bits)) {
            snprintf(why, 200, "trusted-proxy: '%.60s' is no address or network like 10.0.0.0/8",
                     text.ptr);
            return false;
        }
        memcpy(out->networks[out->count++].bytes, address.bytes, sizeof address.bytes);
    }
    return true;
}

static bool is_trusted(const struct proxies *p, const struct address *a)
{
    for (size_t i = 0; i < p->count; i++) {
        unsigned whole = p->networks[i].bits / 8, rest = p->networks[i].bits % 8;
        uint8_t mask = (uint8_t)(0xff00 >> rest);
        if (memcmp(a->bytes, p->networks[i].bytes, whole) == 0 &&
            (rest == 0 || ((a->bytes[whole] ^ p->networks[i].bytes[whole]) & mask) == 0))
            return true;
    }
    return false;
}

bool proxies_trust(const struct proxies *p, struct str address)
{
    struct address a;
    bool ipv4;
    return p->count > 0 && parse_address(address, &a, &ipv4) && is_trusted(p, &a);
}

/* ---- items of the two headers ---- */

/* An address as proxies write it: 192.0.2.1, 192.0.2.1:80, 2001:db8::1, [2001:db8::1]:80. */
static bool parse_node(struct str text, struct address *out)
{
    bool ipv4;
    if (text.len > 1 && text.ptr[0] == '[') {
        const char *end = memchr(text.ptr, ']', text.len);
        return end &&
               parse_address((struct str){text.ptr + 1, (size_t)(end - text.ptr) - 1}, out, &ipv4);
    }
    const char *colon = memchr(text.ptr, ':', text.len);
    bool one = colon && !memchr(colon + 1, ':', text.len - (size_t)(colon - text.ptr) - 1);
    return parse_address(one ? (struct str){text.ptr, (size_t)(colon - text.ptr)} : text, out,
                         &ipv4);
}

/* The for= of one element of Forwarded: proto=https;for="[2001:db8::1]:80". Unknown and hidden
 * addresses are none. */
static bool parse_forwarded(struct str element, struct address *out)
{
    struct str pair;
    while (str_split(&element, ';', &pair)) {
        pair = str_trim(pair);
        struct str name = STR("for=");
        if (pair.len <= name.len || !str_eq_nocase((struct str){pair.ptr, name.len}, name))
            continue;
        struct str value = {pair.ptr + name.len, pair.len - name.len};
        if (value.len >= 2 && value.ptr[0] == '"' && value.ptr[value.len - 1] == '"')
            value = (struct str){value.ptr + 1, value.len - 2};
        return parse_node(value, out);
    }
    return false;
}

static bool parse_plain(struct str item, struct address *out)
{
    return parse_node(item, out);
}

/* Reads all lines of one header as one list, from its right end. False: there is no such header.
 * *out: the last address on the way that somebody trusted has seen; unchanged when nobody says. */
static bool read_way(const struct proxies *p, const struct http_header *headers, size_t n,
                     struct str name, bool (*parse)(struct str item, struct address *out),
                     struct address *out)
{
    struct str items[ITEMS_MAX], rest, item;
    size_t count = 0;
    bool found = false;
    for (size_t i = 0; i < n; i++) {
        if (!str_eq_nocase(headers[i].name, name))
            continue;
        found = true;
        for (rest = headers[i].value; rest.len > 0 && str_split(&rest, ',', &item); count++)
            items[count % ITEMS_MAX] = str_trim(item);
    }
    struct address seen;
    for (size_t i = 0; i < count && i < ITEMS_MAX; i++) {
        if (!parse(items[(count - 1 - i) % ITEMS_MAX], &seen))
            break;
        *out = seen;
        if (!is_trusted(p, &seen))
            break;
    }
    return found;
}

static struct str write_address(const struct address *a, char out[PROXY_ADDRESS_MAX])
{
    bool ipv4 = memcmp(a->bytes, ipv4_prefix, sizeof ipv4_prefix) == 0;
    const char *text =
        ipv4 ? inet_ntop(AF_INET, a->bytes + sizeof ipv4_prefix, out, PROXY_ADDRESS_MAX)
             : inet_ntop(AF_INET6, a->bytes, out, PROXY_ADDRESS_MAX);
    return str_of(text);
}

struct str proxies_client(const struct proxies *p, const struct http_header *headers, size_t n,
                          struct str peer, char out[PROXY_ADDRESS_MAX])
{
    struct address plain, forwarded;
    bool ipv4;
    if (!parse_address(peer, &plain, &ipv4))
        return peer;
    forwarded = plain;
    bool has_plain = read_way(p, headers, n, STR("x-forwarded-for"), parse_plain, &plain);
    bool has_forwarded = read_way(p, headers, n, STR("forwarded"), parse_forwarded, &forwarded);
    if (has_plain && has_forwarded && memcmp(&plain, &forwarded, sizeof plain) != 0)
        return peer;
    return write_address(has_forwarded ? &forwarded : &plain, out);
}
