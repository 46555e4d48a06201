/* Announcing: when a sink has delivered a page, the page's members are signalled, those of them who
 * may be connected. The walk is not made twice, and a signal never comes before the view that its
 * receiver reads next. A signal that cannot be published fails the page, which is then delivered
 * and signalled again: sinks of such rules are idempotent, and so is a signal. */
#include "base/check.h"
#include "base/fault.h"
#include "pipe/state.h"
#include "port/views.h"

/* Has the sink acted on any member? What was there already may be there because of an earlier try
 * that could not be announced; but a replay that finds everything in place announces nothing. */
static bool has_acted(const struct sink_result *r, bool replay)
{
    return r->delivered > 0 || (!replay && r->repeated > 0);
}

/* Who of the members is signalled; how many. */
static size_t receivers_of(struct engine *g, const struct rule *rule, const uint64_t *members,
                           size_t n, uint64_t *out)
{
    if (rule->audience->handles)
        return views_listening(g->env.views, members, n, out);
    memcpy(out, members, n * sizeof *out);
    return n;
}

enum err announce_page(struct engine *g, const struct bus_message *m, const struct event *event,
                       const uint64_t *members, size_t n, const struct sink_result *result)
{
    const struct rule *rule = &g->rules[m->rule];
    uint64_t receivers[ENGINE_BATCH_MAX];
    struct signal_message message = {.receivers = receivers};
    if (!rule->signal || !g->env.signal || !has_acted(result, m->kind == SLOT_REPLAY))
        return OK;
    TRY(FAULT_ASKED(SIGNAL_CONSUMER, event->actor));
    rule->signal(event, &message);
    message.n = receivers_of(g, rule, members, n, receivers);
    return message.n > 0 ? signal_publish(g->env.signal, &message, 1) : OK;
}

enum err announce_pages(struct engine *g, uint16_t index, const struct sink_call *calls, size_t n)
{
    const struct rule *rule = &g->rules[index];
    uint64_t receivers[ENGINE_BATCH_MAX];
    struct signal_message messages[WORKER_MESSAGES];
    size_t count = 0, used = 0;
    if (!rule->signal || !g->env.signal)
        return OK;
    CHECK(n <= WORKER_MESSAGES);
    for (size_t i = 0; i < n; i++) {
        const struct sink_call *c = &calls[i];
        CHECK(c->n <= ENGINE_BATCH_MAX - used);
        TRY(FAULT_ASKED(SIGNAL_CONSUMER, c->event->actor));
        messages[count] = (struct signal_message){.receivers = receivers + used};
        rule->signal(c->event, &messages[count]);
        size_t found = has_acted(&c->result, false)
                           ? receivers_of(g, rule, c->members, c->n, receivers + used)
                           : 0;
        messages[count].n = found;
        used += found;
        count += found > 0;
    }
    return count > 0 ? signal_publish(g->env.signal, messages, count) : OK;
}
