/* The words that the demo world is made of. */
#pragma once

#include <stddef.h>

struct demo_list {
    const char *const *words;
    size_t count;
};

/* A topic that a circle of people shares. Captions and bios hold slots, which are replaced by a
 * word of the list with that letter: {p} a place, {a} an adjective, {t} a thing of the topic, {w} a
 * time, {n} a small number. */
struct demo_topic {
    const char *name;
    struct demo_list bios, captions, things;
};

extern const struct demo_topic demo_topics[];
extern const size_t demo_topic_count;
extern const struct demo_list demo_first_names, demo_last_names, demo_places, demo_adjectives,
    demo_times, demo_everyday, demo_comments, demo_jobs;
