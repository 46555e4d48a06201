/* The fan-out table of the domain: what may arrive a moment after the answer (other people's
 * timelines and inboxes). What a reader must never miss is in event_views.c. */
#include "model/rules.h"

#include "base/check.h"
#include "model/sinks.h"

static bool is_pushed(const struct event *e)
{
    return e->value == DELIVERY_PUSH;
}

static bool is_pulled(const struct event *e)
{
    return e->value == DELIVERY_PULL;
}

/* ---- signals ---- */

static void signal_post(const struct event *e, struct signal_message *out)
{
    out->kind = SIGNAL_FEED;
    out->key = e->actor;
    out->seq = (int64_t)e->object;
}

static void signal_pulled(const struct event *e, struct signal_message *out)
{
    signal_post(e, out);
    out->kind = SIGNAL_FEED_PULLED;
}

static void signal_entry(const struct event *e, struct signal_message *out)
{
    out->kind = SIGNAL_GROUP;
    out->key = e->actor;
    out->seq = e->value;
}

#define RULE(sink_, ...)            {.sink = sink_, __VA_ARGS__},
#define TX_RULE(sink_, ...)         {.tx_sink = sink_, __VA_ARGS__},
#define OUTSIDE_RULE(outside_, ...) {.outside = outside_, __VA_ARGS__},
#define AUDIENCE(name)
const struct rule model_rules[] = {
#include "model/rules.def"
};
#undef RULE
#undef TX_RULE
#undef OUTSIDE_RULE
#undef AUDIENCE

const size_t model_rule_count = COUNT_OF(model_rules);
