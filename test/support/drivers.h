/* The drivers under a test's world: those of a server that is alone (SQLite, memory, queues in the
 * process), or those of many nodes (PostgreSQL, Redis, RabbitMQ), which the test leads by itself.
 *
 * FANTAIL_TEST_DRIVERS=cluster asks for the latter; FANTAIL_TEST_POSTGRES, FANTAIL_TEST_REDIS and
 * FANTAIL_TEST_RABBITMQ say where the servers are, as script/servers does. Each set has a database,
 * a Redis database and names at the broker of its own. Whatever fails ends the program. */
#pragma once

#include <pthread.h>
#include <stdbool.h>

#include "base/id.h"
#include "model/views_state.h"
#include "pipe/engine.h"
#include "port/bus.h"
#include "port/cards.h"
#include "port/db.h"
#include "port/invalidation.h"
#include "port/page_source.h"
#include "port/signal.h"
#include "port/views.h"

enum test_drivers_kind { TEST_EMBEDDED, TEST_CLUSTER };

struct test_drivers {
    enum test_drivers_kind kind;
    char folder[64];
    /* cluster */
    char database[48], store[STORE_ID_MAX];
    char db_url[256], views_url[256];
    bool views_lost; /* as if Redis had been emptied: they are loaded when they are opened next */
    uint64_t bus_opened;
    pthread_mutex_t lock;
    pthread_cond_t ready;
    bool is_ready; /* the bus has something for us */
};

/* What FANTAIL_TEST_DRIVERS asks for. */
enum test_drivers_kind test_drivers_wanted(void);

/* `folder`: where files go; the caller makes and removes it. */
void test_drivers_init(struct test_drivers *t, enum test_drivers_kind kind, const char *folder);
void test_drivers_done(struct test_drivers *t); /* after everything below is closed */

/* Ids of a store of many nodes follow its time: its events are looked for by it. */
struct clock *test_drivers_id_clock(const struct test_drivers *t, struct clock *clock);
struct db *test_drivers_open_db(struct test_drivers *t, struct id_gen *ids, struct clock *clock);

/* Both hold everything that truth has: missing parts are loaded. *invalidation is NULL where the
 * views are not shared. */
void test_drivers_open_views(struct test_drivers *t, struct db *db, struct clock *clock, size_t cap,
                             struct views **views, struct cards **cards,
                             struct invalidation **invalidation, struct signal **signal);
/* Of shared ones: reads first pages from them; freed before them. NULL: they are not shared. */
struct page_source *test_drivers_page_source(const struct test_drivers *t, struct views *views,
                                             struct cards *cards);
/* Their snapshot is gone when they are opened next. */
void test_drivers_lose_views(struct test_drivers *t);

struct bus *test_drivers_open_bus(struct test_drivers *t, struct clock *clock);
/* Waits until the bus has something, or for `most_ms`. */
void test_drivers_await_work(struct test_drivers *t, int most_ms);

/* Makes a fresh engine work: it goes on from what was saved, as the only one or as the leader. */
void test_drivers_lead(const struct test_drivers *t, struct engine *engine, struct db *db,
                       struct clock *clock);
