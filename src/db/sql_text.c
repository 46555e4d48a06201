/* The one form that is not SQL: `ids($N)`, a table of ids made from a parameter. */
#include "db/sql_text.h"

#include <string.h>

bool sql_is_word(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
}

size_t sql_match_ids(const char *p, struct str *parameter)
{
    if (strncmp(p, "ids($", 5) != 0)
        return 0;
    size_t end = 5;
    while (p[end] >= '0' && p[end] <= '9')
        end++;
    if (end == 5 || p[end] != ')')
        return 0;
    *parameter = (struct str){p + 4, end - 4};
    return end + 1;
}
