/* Closeness is the number of single-character edits (insert, delete, replace, or a swap of
 * neighbours, which is what fingers do most). A suggestion further away than a third of the word
 * would only puzzle. Words are short: anything longer than WORD_MAX is not compared at all. */
#include "ops/nearest.h"

#include <string.h>

enum { WORD_MAX = 48 };

static size_t least(size_t a, size_t b)
{
    return a < b ? a : b;
}

static size_t edits_between(const char *a, size_t a_len, const char *b, size_t b_len)
{
    size_t rows[3][WORD_MAX + 1];
    size_t *before = rows[0], *last = rows[1], *row = rows[2];
    for (size_t j = 0; j <= b_len; j++)
        last[j] = j;
    memset(before, 0, sizeof(rows[0]));
    for (size_t i = 1; i <= a_len; i++) {
        row[0] = i;
        for (size_t j = 1; j <= b_len; j++) {
            size_t cost = a[i - 1] == b[j - 1] ? 0 : 1;
            row[j] = least(least(last[j] + 1, row[j - 1] + 1), last[j - 1] + cost);
            if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
                row[j] = least(row[j], before[j - 2] + 1);
        }
        size_t *oldest = before;
        before = last;
        last = row;
        row = oldest;
    }
    return last[b_len];
}

const char *nearest_word(const char *typed, const char *const *words, size_t n)
{
    size_t typed_len = strlen(typed);
    if (typed_len == 0 || typed_len > WORD_MAX)
        return NULL;
    const char *best = NULL;
    size_t best_edits = typed_len / 3 + 2;
    for (size_t i = 0; i < n; i++) {
        size_t len = strlen(words[i]);
        if (len > WORD_MAX)
            continue;
        size_t edits = edits_between(typed, typed_len, words[i], len);
        /* Nothing of the word may be left when every letter was changed. */
        if (edits < best_edits && edits < len) {
            best = words[i];
            best_edits = edits;
        }
    }
    return best;
}
