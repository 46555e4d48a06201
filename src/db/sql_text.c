/* The SQL texts that both drivers share, read as far as they have to be. Quoted texts are passed
 * over: nothing in them is a parameter, or `ids($N)`, the one form that is not SQL: a table of ids
 * made from a parameter. */
#include "db/sql_text.h"

#include <stdlib.h>
#include <string.h>

bool sql_is_word(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
}

/* Where the quoted text ends that begins here; `p` itself when none does. */
static const char *skip_quoted(const char *p)
{
    if (*p != '\'' && *p != '"')
        return p;
    const char *end = strchr(p + 1, *p);
    return end ? end + 1 : p + strlen(p);
}

/* The length of `ids($N)` at `p`, with the place of `$N`; 0 when it is something else. */
static size_t match_ids(const char *p, struct str *parameter)
{
    if (strncmp(p, "ids($", 5) != 0)
        return 0;
    size_t digits = strspn(p + 5, "0123456789");
    if (digits == 0 || p[5 + digits] != ')')
        return 0;
    *parameter = (struct str){p + 4, digits + 1};
    return digits + 6;
}

bool sql_rewrite_ids(const char *sql, struct buf *out,
                     void (*write)(struct buf *out, struct str parameter, const char *rest))
{
    bool found = false;
    for (const char *p = sql, *next; *p; p = next) {
        struct str parameter;
        size_t length = 0;
        next = skip_quoted(p);
        if (next == p) {
            length = p == sql || !sql_is_word(p[-1]) ? match_ids(p, &parameter) : 0;
            next = p + (length ? length : 1);
        }
        if (length)
            write(out, parameter, next);
        else
            buf_append(out, p, (size_t)(next - p));
        found |= length > 0;
    }
    buf_append(out, "", 1);
    return found;
}

int sql_parameter_count(const char *sql)
{
    int highest = 0;
    for (const char *p = sql; *p; p++) {
        const char *next = skip_quoted(p);
        int n = *p == '$' ? atoi(p + 1) : 0;
        highest = n > highest ? n : highest;
        p = next > p ? next - 1 : p;
    }
    return highest;
}
