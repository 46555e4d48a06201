/* Query strings: name=value pairs joined by '&', both sides percent-encoded, '+' for a space. */
#include "net/http.h"

/* Is the encoded `text` the encoding of `name`? */
static bool names(struct http_exchange *x, struct str text, struct str name)
{
    if (str_eq(text, name))
        return true; /* our own names need no encoding */
    if (text.len <= name.len || !memchr(text.ptr, '%', text.len))
        return false;
    char *decoded = arena_alloc(&x->arena, text.len);
    size_t len;
    return str_url_decode(text, decoded, &len) && str_eq((struct str){decoded, len}, name);
}

bool http_query(struct http_exchange *x, struct str name, struct str *value)
{
    struct str rest = x->query, pair;
    while (str_split(&rest, '&', &pair)) {
        const char *equals = pair.len > 0 ? memchr(pair.ptr, '=', pair.len) : NULL;
        struct str key = {pair.ptr, equals ? (size_t)(equals - pair.ptr) : pair.len};
        if (key.len == 0 || !names(x, key, name))
            continue;
        struct str encoded = equals ? (struct str){equals + 1, pair.len - key.len - 1} : STR("");
        char *decoded = arena_alloc(&x->arena, encoded.len + 1);
        size_t len;
        if (str_url_decode(encoded, decoded, &len)) {
            decoded[len] = '\0';
            *value = (struct str){decoded, len};
        } else {
            *value = (struct str){0};
        }
        return true;
    }
    return false;
}
