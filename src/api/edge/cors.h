/* Which browsers' pages may call the API: the Origin header against the setting cors-origins.
 * Fantail never uses cookies, so Access-Control-Allow-Credentials is never sent. */
#pragma once

#include "net/http.h"

/* `allowed` is the setting: "" for none, "*" for any, or origins separated by commas. */
bool cors_allows(const char *allowed, struct str origin);

/* Adds what an answer to `origin` needs; nothing when CORS is off. */
void cors_add_headers(const char *allowed, struct str origin, struct http_exchange *x);

/* Adds the preflight's headers; `methods` as "GET, HEAD, OPTIONS". */
void cors_add_preflight(struct http_exchange *x, struct str methods);
