/* Names and arguments of everything at the broker. Arguments of a queue can never be changed: a
 * program that wants other ones gets a refusal from the broker (ERR_CONFLICT), and a person
 * decides. So what an operator may want to change is kept out of them where that is possible. */
#include "bus/rabbitmq_topology.h"

#include <stdio.h>
#include <string.h>

#include "base/check.h"

const int rabbitmq_step_s[RABBITMQ_STEPS] = {2, 8, 32, 128, 240};

enum { DEAD_MAX = 100000, TRANSIENT_MAX = 20000, DELIVERY_LIMIT = 20, PART_MAX = 50 };

static bool is_name(const char *name)
{
    size_t len = strlen(name);
    return len > 0 && len <= PART_MAX &&
           strspn(name, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_.") == len;
}

enum err rabbitmq_topology_init(struct rabbitmq_topology *t, const struct rabbitmq_config *config)
{
    const char *prefix = config->prefix ? config->prefix : "fantail";
    if (!is_name(prefix))
        return ERR_BAD_INPUT;
    t->lanes = config->lanes;
    t->transient = config->transient;
    t->delivery_limit = config->delivery_limit ? config->delivery_limit : DELIVERY_LIMIT;
    for (size_t i = 0; i < config->lanes; i++) {
        if (!is_name(config->lane_names[i]))
            return ERR_BAD_INPUT;
        snprintf(t->lane[i], sizeof t->lane[i], "%s.%s", prefix, config->lane_names[i]);
    }
    for (int i = 0; i < RABBITMQ_STEPS; i++)
        snprintf(t->delay[i], sizeof t->delay[i], "%s.delay.%ds", prefix, rabbitmq_step_s[i]);
    snprintf(t->dead, sizeof t->dead, "%s.dead", prefix);
    return OK;
}

int rabbitmq_topology_step(int64_t delay_us)
{
    int step = -1;
    while (step + 1 < RABBITMQ_STEPS && rabbitmq_step_s[step + 1] * INT64_C(1000000) <= delay_us)
        step++;
    return step;
}

/* ---- declaring ---- */

static amqp_table_entry_t text(const char *key, const char *value)
{
    return (amqp_table_entry_t){
        .key = amqp_cstring_bytes(key),
        .value = {.kind = AMQP_FIELD_KIND_UTF8, .value = {.bytes = amqp_cstring_bytes(value)}}};
}

static amqp_table_entry_t number(const char *key, int32_t value)
{
    return (amqp_table_entry_t){.key = amqp_cstring_bytes(key),
                                .value = {.kind = AMQP_FIELD_KIND_I32, .value = {.i32 = value}}};
}

/* Dead and expired messages are handed on at least once; that strategy wants this overflow. */
#define QUORUM text("x-queue-type", "quorum")
#define HANDS_ON                                                                                   \
    QUORUM, text("x-dead-letter-exchange", ""), text("x-dead-letter-strategy", "at-least-once"),   \
        text("x-overflow", "reject-publish")

struct declaring {
    amqp_connection_state_t connection;
    amqp_channel_t channel;
};

/* `ready` (may be NULL) gets how many messages the queue has. */
static bool declare(const struct declaring *d, const char *name, bool durable, uint32_t *ready,
                    amqp_table_entry_t *arguments, int count)
{
    amqp_table_t table = {.num_entries = count, .entries = arguments};
    amqp_queue_declare_ok_t *r = amqp_queue_declare(
        d->connection, d->channel, amqp_cstring_bytes(name), 0, durable, 0, 0, table);
    if (r && ready)
        *ready = r->message_count;
    return r != NULL;
}

static bool declare_lane(const struct declaring *d, const struct rabbitmq_topology *t, size_t lane,
                         uint32_t *ready)
{
    amqp_table_entry_t lasting[] = {HANDS_ON,
                                    number("x-delivery-limit", (int32_t)t->delivery_limit),
                                    text("x-dead-letter-routing-key", t->dead)};
    /* Dropped messages are not dead-lettered: the dead letters would drown in them. */
    amqp_table_entry_t transient[] = {text("x-queue-type", "classic"),
                                      number("x-max-length", TRANSIENT_MAX),
                                      text("x-overflow", "drop-head")};
    return t->transient >> lane & 1
               ? declare(d, t->lane[lane], false, ready, transient, COUNT_OF(transient))
               : declare(d, t->lane[lane], true, ready, lasting, COUNT_OF(lasting));
}

static bool declare_delay(const struct declaring *d, const char *name, int delay_s)
{
    amqp_table_entry_t delay[] = {HANDS_ON, number("x-message-ttl", delay_s * 1000)};
    amqp_bytes_t bytes = amqp_cstring_bytes(name);
    return declare(d, name, true, NULL, delay, COUNT_OF(delay)) &&
           amqp_exchange_declare(d->connection, d->channel, bytes, amqp_cstring_bytes("fanout"), 0,
                                 1, 0, 0, amqp_empty_table) &&
           amqp_queue_bind(d->connection, d->channel, bytes, bytes, amqp_empty_bytes,
                           amqp_empty_table);
}

bool rabbitmq_topology_declare(const struct rabbitmq_topology *t,
                               amqp_connection_state_t connection, amqp_channel_t channel,
                               uint32_t ready[BUS_LANES_MAX])
{
    const struct declaring d = {connection, channel};
    amqp_table_entry_t dead[] = {QUORUM, number("x-max-length", DEAD_MAX)};
    bool ok = declare(&d, t->dead, true, NULL, dead, COUNT_OF(dead));
    for (int i = 0; i < RABBITMQ_STEPS && ok; i++)
        ok = declare_delay(&d, t->delay[i], rabbitmq_step_s[i]);
    for (size_t i = 0; i < t->lanes && ok; i++)
        ok = declare_lane(&d, t, i, &ready[i]);
    return ok;
}
