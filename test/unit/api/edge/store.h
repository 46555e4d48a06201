/* A fresh embedded store in a folder of its own, with a clock moved by hand, for tests that need
 * truth. */
#pragma once

#include "base/clock.h"
#include "base/id.h"
#include "port/db.h"

struct store {
    struct manual_clock clock;
    struct id_gen ids;
    struct db *db;
    char folder[64];
};

#define STORE_BEGAN_MS INT64_C(1750000000000)

void store_open(struct store *s);
void store_close(struct store *s);
int64_t store_number(struct store *s, const char *sql); /* of one row; -1: none */
