/* The desk at which the delivery store's tests work: a store in memory, records in short, calls in
 * one line, and a look at the plan of every statement that was run. */
#pragma once

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "base/check.h"
#include "pipe/delivery_store.h"
#include "plain_db.h"

enum { NOW = 1000000, EPOCH = 5, LEASE_MS = 5000, BULK = 512 };

extern struct plain_db *store; /* open from set_up_all to tear_down_all */

int set_up_all(void **state);
int tear_down_all(void **state);
int set_up(void **state); /* an empty store */

/* Arguments and results of a call, for the run_… functions; run() is one transaction. */
struct call {
    struct delivery_record *records;
    size_t n;
    uint64_t epoch;
    int64_t now;
    struct claim *claims;
    size_t max;
    struct delivery_filter filter;
    struct delivery_slice slice;
    int64_t start, rate;
    uint64_t before;
    int64_t closed, dead;
    int64_t due;
    uint64_t delivery;
    struct open_key after;
    struct open_key *keys;
    struct recorded *recorded;
    uint64_t first, last;
    struct delivery_count *counts;
    struct delivery_group *groups;
};

enum err run_write(struct tx *tx, void *arg);
enum err run_claim(struct tx *tx, void *arg);
enum err run_redrive(struct tx *tx, void *arg);
enum err run_discard(struct tx *tx, void *arg);
enum err run_release(struct tx *tx, void *arg);
enum err run_clean(struct tx *tx, void *arg);
enum err run_reopen(struct tx *tx, void *arg);
enum err run_bury(struct tx *tx, void *arg);
enum err run_due(struct tx *tx, void *arg);
enum err run_keys(struct tx *tx, void *arg);
enum err run_recorded(struct tx *tx, void *arg);
enum err run_counts(struct tx *tx, void *arg);
enum err run_groups(struct tx *tx, void *arg);
void run(tx_fn fn, struct call *c);
void write_at(struct delivery_record *records, size_t n, int64_t now);
void write_one(struct delivery_record b);
size_t claim(struct claim *out, size_t max, uint64_t epoch, int64_t now);
int64_t ask(const char *sql);
int64_t next_due(void);
struct delivery_record page(uint64_t event, uint64_t after);
struct delivery_record keyed(uint64_t event, uint64_t key);
struct delivery_record waiting(uint64_t event, uint64_t key);
struct delivery_record ended(const struct claim *c, enum record_kind kind);
void put_in_outbox(int version);

#define state_of(event) ask("SELECT state FROM deliveries WHERE event_id = " #event)

/* A statement that has the words must be served by the index. */
struct wanted_plan {
    const char *words, *index;
};
/* Of all statements so far: none reads a whole table, and the wanted ones are as wanted. */
void check_plans(const struct wanted_plan *wanted, size_t n);
