/* The simple model of the delivery store: a list of rows in which every rule of delivery_store.h is
 * a loop. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "pipe/delivery_store.h"

enum {
    SEEDS = 300,
    OPERATIONS = 200,
    EVENTS = 8,
    CONSUMERS = 3,
    KEYS = 3,
    ROWS = 600,
    CLAIMS = 64,
    BATCH = 6,
    LEASE_MS = 5000,
    START_MS = 1000000,
    SEGMENTS = 4, /* of a walk: [0, 100) [100, 200) [200, 300) [300, end) */
    REPLAY = 7,
};

extern const char *const model_consumers[CONSUMERS];
extern const enum lane model_lanes[CONSUMERS];

struct row {
    uint64_t id, event, key, part, after, until, epoch, replay;
    int consumer;
    enum delivery_state state;
    int64_t tries, due, opened, changed, members;
    const char *reason;
};

extern struct row rows[ROWS]; /* the model, in the order they were made */
extern size_t row_count;
extern int64_t now;
extern uint64_t epoch, seed_now;

bool is_open(enum delivery_state s);
struct row *at_page(uint64_t event, int consumer, uint64_t part, uint64_t after, uint64_t replay);
void set_state(struct row *r, enum delivery_state state);
void forget(struct row *r);
void model_order(void);
int consumer_of(const struct delivery_record *b);
void model_record(const struct delivery_record *b);
size_t model_claim(size_t max, struct row *taken);
