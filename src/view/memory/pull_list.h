/* An author's newest pulled posts, read by everyone who follows them. Readers take no lock and
 * write to no shared memory: a celebrity's list is read thousands of times for each post.
 *
 * Changing is for one caller at a time (the author's latch). */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct pull_list;

struct pull_list *pull_list_new(int64_t *bytes); /* NULL: no memory */
void pull_list_free(struct pull_list *l);

/* Keeps the newest `cap`; raises the floor to what falls out. */
bool pull_list_add(struct pull_list *l, uint64_t id, size_t cap,
                   int64_t *bytes); /* false: no memory */
void pull_list_remove(struct pull_list *l, uint64_t id);
void pull_list_raise_floor(struct pull_list *l, uint64_t floor);

/* The newest at most `max` ids with above < id < below, falling. *floor: complete above it. Any
 * thread. */
size_t pull_list_read(struct pull_list *l, uint64_t below, uint64_t above, uint64_t *ids,
                      size_t max, uint64_t *floor);
/* Rises with every change; begins above zero. Any thread. */
uint64_t pull_list_version(const struct pull_list *l);
size_t pull_list_count(struct pull_list *l); /* under the author's latch */
