/* Names and arguments of everything at the broker. Arguments of a queue can never be changed: a
 * program that wants other ones gets a refusal from the broker (ERR_CONFLICT), and a person
 * decides. So what an operator may want to change is kept out of them where that is possible. */
#include "bus/rabbitmq_topology.h"

#include <stdio.h>
#include <string.h>

#include "base/check.h"

const int rabbitmq_step_s[RABBITMQ_STEPS] = {2, 8, 32, 128, 240};

enum {
    DEAD_MAX = 100000,
    TRANSIENT_MAX = 20000,
    DELIVERY_LIMIT = 20,
    PART_MAX = 50,
    ARGUMENTS_MAX = 8
};

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

struct arguments {
    amqp_table_entry_t entries[ARGUMENTS_MAX];
    amqp_table_t table;
};

static amqp_table_entry_t *argument(struct arguments *a, const char *key)
{
    CHECK(a->table.num_entries < ARGUMENTS_MAX);
    amqp_table_entry_t *entry = &a->entries[a->table.num_entries++];
    a->table.entries = a->entries;
    entry->key = amqp_cstring_bytes(key);
    return entry;
}

static void argument_text(struct arguments *a, const char *key, const char *value)
{
    amqp_field_value_t *v = &argument(a, key)->value;
    v->kind = AMQP_FIELD_KIND_UTF8;
    v->value.bytes = amqp_cstring_bytes(value);
}

static void argument_number(struct arguments *a, const char *key, int32_t value)
{
    amqp_field_value_t *v = &argument(a, key)->value;
    v->kind = AMQP_FIELD_KIND_I32;
    v->value.i32 = value;
}

/* Where dead and expired messages go, at least once; that strategy wants this overflow. */
static void argument_hand_on(struct arguments *a)
{
    argument_text(a, "x-dead-letter-exchange", "");
    argument_text(a, "x-dead-letter-strategy", "at-least-once");
    argument_text(a, "x-overflow", "reject-publish");
}

static bool declare(amqp_connection_state_t c, amqp_channel_t channel, const char *name,
                    bool durable, struct arguments *a, uint32_t *ready)
{
    argument_text(a, "x-queue-type", durable ? "quorum" : "classic");
    amqp_queue_declare_ok_t *r =
        amqp_queue_declare(c, channel, amqp_cstring_bytes(name), 0, durable, 0, 0, a->table);
    if (r && ready)
        *ready = r->message_count;
    return r != NULL;
}

static bool declare_queue(amqp_connection_state_t c, amqp_channel_t channel, const char *name,
                          struct arguments *a, uint32_t *ready)
{
    return declare(c, channel, name, true, a, ready);
}

/* What is dropped is not handed on: the dead letters would drown in it. */
static bool declare_transient(amqp_connection_state_t c, amqp_channel_t channel, const char *name,
                              uint32_t *ready)
{
    struct arguments a = {.table = {0}};
    argument_number(&a, "x-max-length", TRANSIENT_MAX);
    argument_text(&a, "x-overflow", "drop-head");
    return declare(c, channel, name, false, &a, ready);
}

static bool declare_delay(amqp_connection_state_t c, amqp_channel_t channel, const char *name,
                          int delay_s)
{
    struct arguments a = {.table = {0}};
    argument_number(&a, "x-message-ttl", delay_s * 1000);
    argument_hand_on(&a);
    amqp_bytes_t bytes = amqp_cstring_bytes(name);
    return declare_queue(c, channel, name, &a, NULL) &&
           amqp_exchange_declare(c, channel, bytes, amqp_cstring_bytes("fanout"), 0, 1, 0, 0,
                                 amqp_empty_table) &&
           amqp_queue_bind(c, channel, bytes, bytes, amqp_empty_bytes, amqp_empty_table);
}

bool rabbitmq_topology_declare(const struct rabbitmq_topology *t,
                               amqp_connection_state_t connection, amqp_channel_t channel,
                               uint32_t ready[BUS_LANES_MAX])
{
    struct arguments dead = {.table = {0}};
    argument_number(&dead, "x-max-length", DEAD_MAX);
    if (!declare_queue(connection, channel, t->dead, &dead, NULL))
        return false;
    for (int i = 0; i < RABBITMQ_STEPS; i++) {
        if (!declare_delay(connection, channel, t->delay[i], rabbitmq_step_s[i]))
            return false;
    }
    for (size_t i = 0; i < t->lanes; i++) {
        if (t->transient >> i & 1) {
            if (!declare_transient(connection, channel, t->lane[i], &ready[i]))
                return false;
            continue;
        }
        struct arguments lane = {.table = {0}};
        argument_number(&lane, "x-delivery-limit", (int32_t)t->delivery_limit);
        argument_hand_on(&lane);
        argument_text(&lane, "x-dead-letter-routing-key", t->dead);
        if (!declare_queue(connection, channel, t->lane[i], &lane, &ready[i]))
            return false;
    }
    return true;
}
