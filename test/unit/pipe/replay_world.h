/* What the tests of replays share: a store with an outbox, a host that keeps begun events and
 * reports outcomes when the test wants, and words for what operators do. */
#pragma once

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "base/check.h"
#include "pipe/replay.h"
#include "plain_db.h"

#define NOW_MS   INT64_C(1800000000000)
#define BEGAN_MS (NOW_MS - 3600000)

enum { BEGUN_MAX = 4000, STEPS_MAX = 10000 };
enum { PENDING = 0, SETTLED = 1, PARKED = 2 };
enum { ANN = 11, BOB = 12 };

enum { RULE_COUNT = 5 };
extern const struct rule rules[RULE_COUNT];

struct begun {
    uint64_t job, event;
    uint32_t mask;
    bool told;
};

struct fixture {
    struct manual_clock clock;
    struct id_gen ids;
    struct plain_db *plain;
    struct db *db;
    struct replays *replays;
    struct begun begun[BEGUN_MAX];
    size_t begun_count;
    size_t room; /* events the host takes at most in all */
    bool tells;  /* at once, from inside begin */
    bool late, guarded;
    unsigned wakes;
};

int set_up(void **state);
int tear_down(void **state);
void crash(struct fixture *f); /* memory is lost, what was committed stays */

void tell(struct fixture *f, size_t i); /* the i-th that was begun is done */
void tell_all(struct fixture *f);

struct adding {
    enum event_type type;
    uint64_t actor;
    int64_t value, state, version;
    const char *payload; /* NULL: a good one */
    uint64_t id;
};
uint64_t add(struct fixture *f, struct adding a);
uint64_t add_post(struct fixture *f, uint64_t actor); /* settled, pushed */
void add_posts(struct fixture *f, size_t n);          /* of ANN */

enum err run_create(struct tx *tx, void *arg); /* a struct job */
/* The clock is at NOW_MS from here on. */
uint64_t create(struct fixture *f, const struct replay_spec *spec, int64_t rate);
extern const struct replay_spec all_of_alpha;
void change(struct fixture *f, uint64_t job, enum job_state state);
struct job look(struct fixture *f, uint64_t job);

/* Steps for as long as it wants to be called at once; returns when it wants its next step. */
int64_t step(struct fixture *f);
void wait_ms(struct fixture *f, int64_t ms);
void assert_begun(struct fixture *f, const uint64_t *events, size_t n);

#define BEGUN_ARE(f, ...)                                                                          \
    assert_begun((f), (const uint64_t[]){__VA_ARGS__},                                             \
                 sizeof((const uint64_t[]){__VA_ARGS__}) / sizeof(uint64_t))
