/* JSON lines on stderr, one per event, with named fields. Fields are key/value C-string pairs built
 * by the macros below; values are escaped. Never log tokens, passwords or bodies. */
#pragma once

#include <stdint.h>

#include "base/str.h"

enum log_level { LOG_DEBUG, LOG_INFO, LOG_WARN, LOG_ERROR };

struct log_field {
    const char *key;
    enum { LOG_FIELD_TEXT, LOG_FIELD_INT, LOG_FIELD_ID } kind;
    struct str text;
    int64_t number;
};

#define LOG_STR(k, s)  ((struct log_field){(k), LOG_FIELD_TEXT, (s), 0})
#define LOG_CSTR(k, s) ((struct log_field){(k), LOG_FIELD_TEXT, str_of(s), 0})
#define LOG_INT(k, n)  ((struct log_field){(k), LOG_FIELD_INT, {0}, (int64_t)(n)})
#define LOG_ID(k, id)  ((struct log_field){(k), LOG_FIELD_ID, {0}, (int64_t)(id)}) /* text */

void log_set_level(enum log_level level);
bool log_level_parse(struct str text, enum log_level *out);
void log_write(enum log_level level, const char *message, const struct log_field *fields, size_t n);

#define LOG_FIELDS(...)                                                                            \
    (const struct log_field[]){__VA_ARGS__},                                                       \
        sizeof((const struct log_field[]){__VA_ARGS__}) / sizeof(struct log_field)

#define log_debug(message, ...) log_write(LOG_DEBUG, (message), LOG_FIELDS(__VA_ARGS__))
#define log_info(message, ...)  log_write(LOG_INFO, (message), LOG_FIELDS(__VA_ARGS__))
#define log_warn(message, ...)  log_write(LOG_WARN, (message), LOG_FIELDS(__VA_ARGS__))
#define log_error(message, ...) log_write(LOG_ERROR, (message), LOG_FIELDS(__VA_ARGS__))
