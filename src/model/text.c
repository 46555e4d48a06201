/* The one check of texts from outside, so that every field is refused in the same words. */
#include "model/text.h"

static bool is_allowed(unsigned char c, enum text_kind kind)
{
    if (c >= 0x20 && c != 0x7f)
        return true;
    bool line = c == '\n' || c == '\r' || c == '\t';
    return c != 0 && (kind == TEXT_FREE || (kind == TEXT_LINES && line));
}

enum err text_check(struct tx *tx, struct str text, const char *what, size_t max_chars,
                    enum text_kind kind)
{
    if (text.len == 0)
        return tx_fail(tx, ERR_INVALID, "%s must not be empty", what);
    if (!str_is_utf8(text))
        return tx_fail(tx, ERR_INVALID, "%s is not valid UTF-8", what);
    if (str_count_chars(text) > max_chars)
        return tx_fail(tx, ERR_INVALID, "%s is longer than %zu characters", what, max_chars);
    for (size_t i = 0; i < text.len; i++) {
        if (!is_allowed((unsigned char)text.ptr[i], kind))
            return tx_fail(tx, ERR_INVALID, "%s holds a %s character", what,
                           text.ptr[i] ? "control" : "NUL");
    }
    return OK;
}
