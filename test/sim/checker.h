/* What must hold, whatever happens: the invariants of docs/guarantees.md that concern the engine.
 *
 * The checker sees every change of the delivery store through triggers in the store, so it knows
 * each row's whole life: which state followed which, how often it was tried, when it was due. From
 * that and from what the simulated people got it decides. It ends the program with the seed when
 * something does not hold. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

struct sim;
struct sim_event;
struct tx;

enum { CHECKER_ROWS = 2048, CHECKER_NAME_MAX = 24 };

/* A row of the delivery store as the checker last saw it. */
struct checker_row {
    uint64_t delivery, event, replay, order_key, after, until;
    char consumer[CHECKER_NAME_MAX], reason[CHECKER_NAME_MAX];
    int state;
    int tries;
    int64_t due_ms;
    bool gone; /* cleaned away after its retention */
    int next;  /* of the same event; -1: none */
};

struct checker {
    struct checker_row rows[CHECKER_ROWS];
    size_t row_count;
    int first[128];   /* by event: its newest row; -1: none */
    uint64_t read;    /* of the history */
    bool by_operator; /* at work: what only they may do is allowed */
};

/* Prepares a store for it, once: the history and its triggers. */
struct plain_db;
void checker_install(struct plain_db *store);
void checker_init(struct sim *s);

/* Reads what happened to the delivery store. Inside a transaction give it, else NULL. */
void checker_catch_up(struct sim *s, struct tx *tx);

/* A sink was called for these accounts: may it be? Before it acts. */
void checker_delivers(struct sim *s, struct sim_event *e, size_t rule, uint64_t accounts);
/* Something went outside to this account. */
void checker_sent(struct sim *s, struct sim_event *e, size_t rule, uint64_t account);

void checker_now(struct sim *s);     /* holds at any moment between steps */
void checker_at_rest(struct sim *s); /* holds when all is done */

#define HOLDS(s, condition, ...)                                                                   \
    do {                                                                                           \
        if (!(condition))                                                                          \
            checker_broken((s), #condition, __FILE__, __LINE__, __VA_ARGS__);                      \
    } while (0)
_Noreturn void checker_broken(struct sim *s, const char *what, const char *file, int line,
                              const char *format, ...) __attribute__((format(printf, 5, 6)));
