/* How answers of the server are shown to people: a template per answer, and the formats of counts,
 * spans and times.
 *
 * A template is text with:
 *   {path}           the value: "breaker.state", "/root.path", "." for the whole, "a+b" for a sum,
 *                    "#" for the number (or name) of a loop's round
 *   {path?else}      "else" when there is none: null, "", 0, false, empty or missing
 *   {path:format}    [-][width] and a kind: n (12,345), ms (3 min), ago (3 min ago), since (3 min),
 *                    bytes (1.5 MB), % (of a share), .1 (decimals), sums (12 dead, 3 parked), or
 *                    "try|tries", the noun of one and of many. {path?else:format} has both.
 *   [text]           shown only when each of its own values is there
 *   [?test text]     shown only when the test holds: path, !path, path=word, path!=word, path>5,
 *                    path<5; joined by & and |, where & binds closer. Through an array: of any item
 *   <path text>      once for each item of an array, or member of an object */
#pragma once

#include <jansson.h>
#include <stdio.h>

#include "ops/settings.h"

enum { SHOWN_MAX = 32 };

void show_text(FILE *out, const char *template, const json_t *value);
void show_json(const json_t *value);

const char *show_span(int64_t ms, char out[SHOWN_MAX]); /* "3 min"; nothing: "-" */
int64_t show_now_ms(void);
/* How long ago ("90s", "15m", "2h", "7d"), ms since 1970, or RFC 3339; as the latter. */
bool show_parse_moment(const char *text, char out[SHOWN_MAX]);
