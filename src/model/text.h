/* What a text from outside may hold. */
#pragma once

#include "port/db.h"

enum text_kind {
    TEXT_FREE,  /* anything but NUL */
    TEXT_LINES, /* no control characters other than line breaks and tabs */
    TEXT_PLAIN, /* no control characters at all */
};

/* 1 to max_chars code points of UTF-8, not all of them white space; ERR_INVALID says what is wrong
 * with `what`. */
enum err text_check(struct tx *tx, struct str text, const char *what, size_t max_chars,
                    enum text_kind kind);
