/* A store of either driver for the tests of groups, and the events of its commit hook. */
#pragma once

#include <stdbool.h>

#include "base/id.h"
#include "port/db.h"

enum { PLACE_PEOPLE = 12 };

struct group_place {
    struct id_gen ids;
    struct db *db;
    char folder[64];
    uint64_t people[PLACE_PEOPLE]; /* active accounts */
    struct event_list told;        /* of groups, in the order of telling */
};

/* `argument`: "postgres", or nothing for SQLite; false when there is no PostgreSQL here. */
bool group_place_choose(int count, char **arguments);
void group_place_open(struct group_place *p);
void group_place_close(struct group_place *p);

/* Runs until done; dies with the detail on anything but `expected`. */
void group_place_write(struct group_place *p, tx_fn run, void *arg, enum err expected);
enum err group_place_try(struct group_place *p, tx_fn run, void *arg);
int64_t group_place_ask(struct group_place *p, const char *sql, int64_t argument);
