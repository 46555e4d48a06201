/* A SQLite store in a folder of its own, for the driver's unit tests. */
#pragma once

#include <pthread.h>
#include <semaphore.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/check.h"
#include "base/id.h"
#include "db/sqlite_driver.h"

struct store {
    char folder[64];
    char path[100];
    struct sqlite_config config;
    struct manual_clock clock;
    struct id_gen ids;
    struct db *db;
    _Atomic int fatal_calls;
};

int store_set_up(void **state); /* a folder and a configuration; nothing is opened */
int store_tear_down(void **state);
enum err store_try_open(struct store *s, char detail[TX_DETAIL_MAX]);
void store_open(struct store *s);
void store_close(struct store *s);

/* Fixed statements on the file itself, past the driver. */
void store_run_raw(struct store *s, const char *sql);
int64_t store_ask_raw(struct store *s, const char *sql);
