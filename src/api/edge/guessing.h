/* A limit on wrong passwords: for one account from one address, for an address, and for an account
 * from everywhere. Beyond a number of free tries each further one must wait twice as long as the
 * one before, up to a ceiling. Names that do not exist count like the others, so that the limit
 * tells nothing about them.
 *
 * Nobody can shut an account's owner out: where the right password came from before, only the limit
 * of this account from this address holds. In this process's memory: each node counts for
 * itself, and a restart forgets. */
#pragma once

#include <stdint.h>

#include "base/clock.h"

struct guessing;

/* `tries`: free for one account from one address; five times as many for an address, ten times as
 * many for an account. 0: no limit. */
struct guessing *guessing_new(struct clock *clock, int64_t tries);
void guessing_free(struct guessing *g);

/* Before a password is checked: counts the try as a wrong one. Returns 0, or the seconds to wait,
 * and then nothing is counted. `account` and `address` are hashes. Any thread. */
int64_t guessing_begin(struct guessing *g, uint64_t account, uint64_t address);
/* The try that was begun had the right password. */
void guessing_right(struct guessing *g, uint64_t account, uint64_t address);
