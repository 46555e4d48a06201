/* Sentences from patterns. */
#include "demo/text.h"

#include <ctype.h>

const char *demo_text_pick(struct rand *r, const struct demo_list *list)
{
    return list->words[rand_below(r, list->count)];
}

/* The words of one text: a slot that appears twice gets the same word twice. */
struct slots {
    const char *place, *adjective, *time, *job, *thing;
    int number;
};

static void put_slot(char letter, const struct slots *s, struct buf *out)
{
    if (letter == 'n') {
        buf_printf(out, "%d", s->number);
        return;
    }
    buf_str(out, str_of(letter == 'p'   ? s->place
                        : letter == 'a' ? s->adjective
                        : letter == 'w' ? s->time
                        : letter == 'j' ? s->job
                                        : s->thing));
}

void demo_text_fill(const char *pattern, const struct demo_topic *topic, struct rand *r,
                    struct buf *out)
{
    size_t start = out->len;
    struct slots slots = {
        .place = demo_text_pick(r, &demo_places),
        .adjective = demo_text_pick(r, &demo_adjectives),
        .time = demo_text_pick(r, &demo_times),
        .job = demo_text_pick(r, &demo_jobs),
        .thing = topic ? demo_text_pick(r, &topic->things) : "it",
        .number = (int)rand_below(r, 8) + 2,
    };
    for (const char *p = pattern; *p; p++) {
        if (p[0] == '{' && p[1] != '\0' && p[2] == '}') {
            put_slot(p[1], &slots, out);
            p += 2;
        } else {
            buf_append(out, p, 1);
        }
    }
    /* Slots stand anywhere: a sentence begins with a capital letter all the same. */
    bool begins = true;
    for (size_t i = start; i < out->len; i++) {
        if (begins && isalpha((unsigned char)out->ptr[i]))
            out->ptr[i] = (char)toupper((unsigned char)out->ptr[i]);
        if (!isspace((unsigned char)out->ptr[i]))
            begins = out->ptr[i] == '.' && i + 1 < out->len && out->ptr[i + 1] == ' ';
    }
}
