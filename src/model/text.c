/* The one check of texts from outside, so that every field is refused in the same words. */
#include "model/text.h"

#include "base/check.h"

/* White space, as Unicode has it, and characters without a width. */
static const struct {
    uint32_t first, last;
} blanks[] = {{0x09, 0x0d},     {0x20, 0x20},     {0x85, 0x85},     {0xa0, 0xa0},
              {0x1680, 0x1680}, {0x2000, 0x200d}, {0x2028, 0x2029}, {0x202f, 0x202f},
              {0x205f, 0x2060}, {0x3000, 0x3000}, {0xfeff, 0xfeff}};

/* Takes the first character off a text of valid UTF-8. */
static uint32_t take_char(struct str *text)
{
    unsigned char lead = (unsigned char)text->ptr[0];
    size_t len = lead < 0x80 ? 1 : lead < 0xe0 ? 2 : lead < 0xf0 ? 3 : 4;
    uint32_t c = len == 1 ? lead : lead & (0x7fu >> len);
    for (size_t i = 1; i < len; i++)
        c = c << 6 | ((unsigned char)text->ptr[i] & 0x3fu);
    *text = (struct str){text->ptr + len, text->len - len};
    return c;
}

static bool is_allowed(uint32_t c, enum text_kind kind)
{
    if (c >= 0x20 && (c < 0x7f || c > 0x9f))
        return true;
    bool line = c == '\n' || c == '\r' || c == '\t';
    return c != 0 && (kind == TEXT_FREE || (kind == TEXT_LINES && line));
}

static bool is_blank(struct str text)
{
    while (text.len > 0) {
        uint32_t c = take_char(&text);
        size_t i = 0;
        while (i < COUNT_OF(blanks) && (c < blanks[i].first || c > blanks[i].last))
            i++;
        if (i == COUNT_OF(blanks))
            return false;
    }
    return true;
}

enum err text_check(struct tx *tx, struct str text, const char *what, size_t max_chars,
                    enum text_kind kind)
{
    if (text.len == 0)
        return tx_fail(tx, ERR_INVALID, "%s must not be empty", what);
    if (!str_is_utf8(text))
        return tx_fail(tx, ERR_INVALID, "%s is not valid UTF-8", what);
    if (is_blank(text))
        return tx_fail(tx, ERR_INVALID, "%s must not be blank", what);
    if (str_count_chars(text) > max_chars)
        return tx_fail(tx, ERR_INVALID, "%s is longer than %zu characters", what, max_chars);
    while (text.len > 0) {
        uint32_t c = take_char(&text);
        if (!is_allowed(c, kind))
            return tx_fail(tx, ERR_INVALID, "%s holds a %s character", what, c ? "control" : "NUL");
    }
    return OK;
}
