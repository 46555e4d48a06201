/* How counts, spans and times are written for people. Each writes into `out` and returns it, so
 * that several fit into one printf. */
#pragma once

#include <jansson.h>

#include "cmd/command.h"

enum { SHOWN_MAX = 32 };

const char *show_count(uint64_t n, char out[SHOWN_MAX]); /* "12,345" */
/* "1 try", "12,345 tries": one is the noun of a single one, many of any other number. */
const char *show_number(uint64_t n, const char *one, const char *many, char out[SHOWN_MAX]);
const char *show_span(int64_t ms, char out[SHOWN_MAX]); /* "3 min"; nothing: "-" */
/* An RFC 3339 text of an answer as "3 min ago" or "in 3 min"; absent: "-". */
const char *show_when(const char *time, int64_t now_ms, char out[SHOWN_MAX]);
/* How long ago that is: "3 min"; absent: "-". */
const char *show_since(const char *time, int64_t now_ms, char out[SHOWN_MAX]);
void show_json(const json_t *value);

int64_t show_now_ms(void);

/* A moment of an option as RFC 3339: such a text, ms since 1970, or how long ago ("90s", "15m",
 * "2h", "7d"). Absent: out is "". False: a message was printed, return EXIT_USAGE. */
bool show_parse_moment(const struct invocation *in, const char *option, char out[SHOWN_MAX]);
