/* A message is walked over once to see that all of it is there, and only then looked at.
 *
 * A value begins with its type. One-line types end with the line; strings ($ = !) say their length
 * in it, and those that contain others (* ~ > and, in pairs, % |) how many. A length of -1 is the
 * null of the version before. */
#include "view/redis/push_message.h"

#include <string.h>

enum { DEPTH_MAX = 8, COUNT_MAX = PUSH_BYTES_MAX / 3 };

enum walk { WALK_DONE, WALK_MORE, WALK_BAD };

static bool is_one_of(char type, const char *types)
{
    return type && strchr(types, type);
}

/* The first line of a value: its type, what follows on the line, and where the line ends. */
struct head {
    char type;
    int64_t number; /* of those that have one; -1: null */
    struct str line;
};

static enum walk read_head(struct str *rest, struct head *out)
{
    const char *end = rest->len > 0 ? memchr(rest->ptr, '\n', rest->len) : NULL;
    if (!end)
        return rest->len > PUSH_BYTES_MAX ? WALK_BAD : WALK_MORE;
    size_t n = (size_t)(end - rest->ptr);
    if (n < 2 || end[-1] != '\r')
        return WALK_BAD;
    out->type = rest->ptr[0];
    out->line = (struct str){rest->ptr + 1, n - 2};
    out->number = 0;
    if (is_one_of(out->type, "$=!*~>%|") &&
        (!str_parse_i64(out->line, &out->number) || out->number < -1))
        return WALK_BAD;
    *rest = (struct str){end + 1, rest->len - n - 1};
    return WALK_DONE;
}

/* The bytes of a string; *rest goes on behind it. */
static enum walk read_bytes(struct str *rest, const struct head *h, struct str *out)
{
    size_t n = h->number < 0 ? 0 : (size_t)h->number;
    *out = (struct str){rest->ptr, n};
    if (h->number < 0)
        return WALK_DONE;
    if (n > PUSH_BYTES_MAX)
        return WALK_BAD;
    if (rest->len < n + 2)
        return WALK_MORE;
    if (memcmp(rest->ptr + n, "\r\n", 2) != 0)
        return WALK_BAD;
    *rest = (struct str){rest->ptr + n + 2, rest->len - n - 2};
    return WALK_DONE;
}

static size_t parts_of(const struct head *h)
{
    size_t n = h->number < 0 ? 0 : (size_t)h->number;
    return h->type == '%' || h->type == '|' ? 2 * n : n;
}

static enum walk walk_over(struct str *rest, int depth)
{
    struct head h;
    struct str bytes;
    enum walk e = read_head(rest, &h);
    if (e || is_one_of(h.type, "+-:_,#("))
        return e;
    if (is_one_of(h.type, "$=!"))
        return read_bytes(rest, &h, &bytes);
    if (!is_one_of(h.type, "*~>%|") || depth == DEPTH_MAX || h.number > COUNT_MAX)
        return WALK_BAD;
    for (size_t i = 0, n = parts_of(&h); !e && i < n; i++)
        e = walk_over(rest, depth + 1);
    return e;
}

static bool is_null(const struct head *h)
{
    return h->type == '_' || h->number == -1;
}

static bool next_string(struct str *rest, struct str *out)
{
    struct head h;
    return read_head(rest, &h) == WALK_DONE && h.type == '$' && h.number >= 0 &&
           read_bytes(rest, &h, out) == WALK_DONE;
}

/* [invalidate, [key…]], with null for everything. The message is complete. */
static void read_push(struct str rest, const struct head *push, struct push_message *out)
{
    struct head keys;
    struct str word;
    out->kind = PUSH_OTHER;
    if (push->number != 2 || !next_string(&rest, &word) || !str_eq(word, STR("invalidate")))
        return;
    if (read_head(&rest, &keys) != WALK_DONE || (keys.type != '*' && !is_null(&keys))) {
        out->kind = PUSH_ALL; /* of what, is not to be understood: of everything, then */
        return;
    }
    out->kind = is_null(&keys) ? PUSH_ALL : PUSH_KEYS;
    out->text = rest;
}

void push_message_read(struct str bytes, struct push_message *out)
{
    struct str rest = bytes;
    enum walk e = walk_over(&rest, 0);
    *out = (struct push_message){
        .kind = e == WALK_BAD || (e && bytes.len > PUSH_BYTES_MAX) ? PUSH_BAD : PUSH_MORE};
    if (e)
        return;
    struct head h;
    struct str inside = {bytes.ptr, (size_t)(rest.ptr - bytes.ptr)};
    out->size = inside.len;
    if (read_head(&inside, &h) != WALK_DONE)
        return; /* cannot be: it was walked over */
    if (h.type == '>') {
        read_push(inside, &h, out);
        return;
    }
    out->kind = h.type == '-' || h.type == '!' ? PUSH_REFUSAL : PUSH_ANSWER;
    out->text = h.line;
}

bool push_message_next_key(struct push_message *n, struct str *key)
{
    return n->text.len > 0 && next_string(&n->text, key);
}
