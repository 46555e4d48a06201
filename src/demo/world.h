/* A believable small world: people with names and interests, their follows, and thirty days of
 * posts, likes and comments. The same seed and size give the same people, graph and texts; times
 * count back from `now_ms`. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/rand.h"

enum {
    DEMO_PEOPLE_MIN = 20,
    DEMO_PEOPLE_MAX = 100000,
    DEMO_LOGINS = 3,     /* the first people are the ones to log in as */
    DEMO_CELEBRITIES = 2 /* those after them are followed by most */
};

/* Of every account. */
#define DEMO_PASSWORD "fantail-demo"

struct demo_world;

struct demo_counts {
    uint64_t people, follows, posts, likes, comments;
};

struct demo_world *demo_world_new(uint64_t seed, uint32_t people, int64_t now_ms);
void demo_world_free(struct demo_world *w);

void demo_world_counts(const struct demo_world *w, struct demo_counts *out);
const char *demo_username(const struct demo_world *w, uint32_t person);
const char *demo_name(const struct demo_world *w, uint32_t person);
uint32_t demo_followers(const struct demo_world *w, uint32_t person);

/* Writes the whole world as import lines, one call of `emit` each, in an order in which they can be
 * imported. Stops and returns false as soon as `emit` does. */
bool demo_world_write(struct demo_world *w, bool (*emit)(void *ctx, struct str line), void *ctx);

/* For live play: a person who acts (active people more often), and a text that they might write. */
uint32_t demo_pick_person(const struct demo_world *w, struct rand *r);
void demo_caption(const struct demo_world *w, uint32_t person, struct rand *r, struct buf *out);
void demo_comment(struct rand *r, struct buf *out);
