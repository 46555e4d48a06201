/* Which drivers stand behind the ports, by the settings: alone (SQLite, memory, in process) or as
 * one node of many (PostgreSQL, Redis, RabbitMQ). One or the other: a shared store with views of
 * its own at each node would answer from what other nodes never told it. */
#pragma once

#include "base/clock.h"
#include "bus/rabbitmq.h"
#include "ops/settings.h"
#include "port/bus.h"
#include "port/cards.h"
#include "port/db.h"
#include "port/invalidation.h"
#include "port/page_source.h"
#include "port/signal.h"
#include "port/views.h"

enum { DRIVERS_WHY_MAX = 300 };

static inline bool drivers_are_shared(const struct settings *s)
{
    return s->db[0] != '\0';
}
/* All three URLs or none, of schemes that we know, and roles that exist. */
enum err drivers_check(const struct settings *s, char why[DRIVERS_WHY_MAX]);
/* The scheme of a URL that drivers_check has seen: "redis-cluster"; never a password. */
const char *drivers_kind(const char *url);

/* `readers`: threads that read at a time. */
enum err drivers_open_store(const struct settings *s, int readers, struct id_gen *ids,
                            struct clock *clock, struct db **out, char why[DRIVERS_WHY_MAX]);
/* A second, small handle on a shared store, for what must not queue behind requests: leases, beats,
 * and the word that the views have lost something. */
enum err drivers_open_control(const struct settings *s, struct id_gen *ids, struct clock *clock,
                              struct db **out, char why[DRIVERS_WHY_MAX]);
/* `store_id`: the store that the views belong to; shared drivers refuse another store's.
 * *invalidation, which reports changes to shared views, is freed after the others; NULL: the views
 * are not shared. *page_source, of shared ones too, is freed before them. */
enum err drivers_open_views(const struct settings *s, const char *store_id, struct clock *clock,
                            struct views **views, struct cards **cards,
                            struct invalidation **invalidation, struct page_source **page_source,
                            struct signal **signal, char why[DRIVERS_WHY_MAX]);
/* Called when work or reports arrive; must not block. */
typedef void (*drivers_ready)(void *ctx, uint16_t lane);
enum err drivers_open_bus(const struct settings *s, const char *store_id, const char *node,
                          unsigned roles, drivers_ready ready, void *ctx, struct bus **out,
                          char why[DRIVERS_WHY_MAX]);
