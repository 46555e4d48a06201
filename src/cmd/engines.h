/* Which engines stand behind the ports, by the settings: alone (SQLite, memory, in process) or as
 * one node of many (PostgreSQL, Redis, RabbitMQ). One or the other: a shared store with views of
 * its own at each node would answer from what other nodes never told it. */
#pragma once

#include "base/clock.h"
#include "bus/rabbitmq.h"
#include "ops/settings.h"
#include "port/bus.h"
#include "port/cards.h"
#include "port/db.h"
#include "port/views.h"
#include "port/watch.h"

enum { ENGINES_WHY_MAX = 300 };

static inline bool engines_are_shared(const struct settings *s)
{
    return s->db[0] != '\0';
}
/* All three URLs or none, of schemes that we know, and roles that exist. */
enum err engines_check(const struct settings *s, char why[ENGINES_WHY_MAX]);
/* The scheme of a URL without what follows: "redis-cluster"; never a password. */
void engines_kind(const char *url, const char *otherwise, char out[24]);

/* `readers`: threads that read at a time. */
enum err engines_open_store(const struct settings *s, int readers, struct id_gen *ids,
                            struct clock *clock, struct db **out, char why[ENGINES_WHY_MAX]);
/* A second, small handle on a shared store, for what must not queue behind requests: leases, beats,
 * and the word that the views have lost something. */
enum err engines_open_control(const struct settings *s, struct id_gen *ids, struct clock *clock,
                              struct db **out, char why[ENGINES_WHY_MAX]);
/* `store_id`: whose views these are; shared engines refuse another store's. *watch, which hears of
 * changes to shared ones, is freed after both; NULL: nobody else changes them. */
enum err engines_open_views(const struct settings *s, const char *store_id, struct clock *clock,
                            struct views **views, struct cards **cards, struct watch **watch,
                            char why[ENGINES_WHY_MAX]);
/* Called when work or reports arrive; must not block. */
typedef void (*engines_ready)(void *ctx, uint16_t lane);
enum err engines_open_bus(const struct settings *s, const char *store_id, const char *node,
                          unsigned roles, engines_ready ready, void *ctx, struct bus **out,
                          char why[ENGINES_WHY_MAX]);
