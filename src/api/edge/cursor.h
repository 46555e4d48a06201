/* Page cursors: the list, its owner and the position of the next page, under a MAC. A client can
 * keep one and hand it back; it cannot make one, change one, or use another account's. */
#pragma once

#include "base/err.h"
#include "base/str.h"

enum { CURSOR_SECRET_BYTES = 32, CURSOR_TEXT_LEN = 48 };

struct cursor {
    uint32_t list;     /* which list: cursor_list() */
    uint64_t position; /* > 0 */
    uint64_t owner;    /* the account it was made for; 0: callers without an account */
};

/* Names a list: the route and the id in its path (0: none). */
uint32_t cursor_list(const char *route_name, uint64_t subject);

/* Writes exactly CURSOR_TEXT_LEN characters of base64url. */
void cursor_write(const uint8_t secret[CURSOR_SECRET_BYTES], const struct cursor *cursor,
                  char out[CURSOR_TEXT_LEN]);

/* Reads one that must belong to `list` and `owner`. ERR_BAD_INPUT otherwise, with a text for the
 * client in *why. */
enum err cursor_read(const uint8_t secret[CURSOR_SECRET_BYTES], struct str text, uint32_t list,
                     uint64_t owner, uint64_t *position, const char **why);
