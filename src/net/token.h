/* Which bytes HTTP allows where (RFC 9110, 5.5 and 5.6.2). */
#pragma once

#include <stdbool.h>
#include <string.h>

/* tchar: methods and header names. */
static inline bool token_is_name_byte(unsigned char b)
{
    if ((b >= 'a' && b <= 'z') || (b >= 'A' && b <= 'Z') || (b >= '0' && b <= '9'))
        return true;
    return b != 0 && strchr("!#$%&'*+-.^_`|~", b) != NULL;
}

/* Header values: visible bytes, space, tab, and obs-text; no control characters. */
static inline bool token_is_value_byte(unsigned char b)
{
    return (b >= 0x20 && b != 0x7f) || b == '\t';
}
