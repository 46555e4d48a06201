/* Proxies in front that are trusted to say for whom they ask, by Forwarded (RFC 7239) or
 * X-Forwarded-For. Each proxy on the way adds the address that it sees on the right, so the lists
 * are read from there: the first address that is no trusted proxy's is the client's. What stands
 * left of it was written by the client, and proves nothing. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/str.h"
#include "net/http.h"

enum { PROXIES_MAX = 32, PROXY_ADDRESS_MAX = 64 };

struct proxies {
    size_t count;
    struct {
        uint8_t bytes[16]; /* IPv4 as ::ffff:a.b.c.d */
        unsigned bits;
    } networks[PROXIES_MAX];
};

/* "10.0.0.0/8, ::1" and so on: addresses and networks, by commas or spaces. False: `why` names the
 * one that is not. */
bool proxies_parse(const char *list, struct proxies *out, char why[200]);
/* Is this the address of a trusted proxy? */
bool proxies_trust(const struct proxies *p, struct str address);

/* For whom a trusted proxy at `peer` asks. `peer` itself: the headers do not say, or two headers
 * disagree: then the client wrote one of them, which its proxy does not know. The answer is `peer`,
 * or lies in `out`. */
struct str proxies_client(const struct proxies *p, const struct http_header *headers, size_t n,
                          struct str peer, char out[PROXY_ADDRESS_MAX]);
