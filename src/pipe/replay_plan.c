/* The dry run: the walk of a replay, with counting in place of acting. It takes no ring and claims
 * nothing, so it can run at any time, on any node, in a read. */
#include <stdio.h>

#include "pipe/replay_walk.h"

enum { ROWS_A_READ = 128 };

static const char *channel_of(const struct rule *rule)
{
    switch (rule->effect) {
    case EFFECT_VIEWS:
        return "views";
    case EFFECT_TRUTH:
        return "truth";
    case EFFECT_OUTSIDE:
        break;
    }
    return rule->channel;
}

static size_t find_channel(const struct replay_plan *plan, const char *channel)
{
    size_t i = 0;
    while (i < plan->channel_count && strcmp(plan->channels[i].channel, channel) != 0)
        i++;
    return i;
}

/* The channels of all the consumer's rules, in the order of the table: one that would not be used
 * at all is shown with zeros. What does not fit into the list still counts in the sums. */
static void list_channels(const struct replay_spec *spec, const struct rule *rules, size_t n,
                          struct replay_plan *plan)
{
    for (size_t i = 0; i < n && plan->channel_count < REPLAY_CHANNELS_MAX; i++) {
        const char *channel = channel_of(&rules[i]);
        if (strcmp(rules[i].consumer, spec->consumer) != 0 ||
            (spec->type[0] && strcmp(event_wire_name(rules[i].on), spec->type) != 0) ||
            find_channel(plan, channel) < plan->channel_count)
            continue;
        snprintf(plan->channels[plan->channel_count].channel, sizeof plan->channels[0].channel,
                 "%s", channel);
        plan->channel_count++;
    }
}

static void count_channel(struct replay_plan *plan, const char *channel, bool acts)
{
    size_t i = find_channel(plan, channel);
    if (i == plan->channel_count)
        return;
    plan->channels[i].would_act += acts;
    plan->channels[i].suppressed += !acts;
}

static enum err count_rule(struct tx *tx, const struct replay_spec *spec, const struct rule *rule,
                           const struct event *e, struct replay_plan *plan)
{
    if (!replay_allows(spec, rule)) {
        plan->suppressed++;
        count_channel(plan, channel_of(rule), false);
        return OK;
    }
    if (rule->dedup != DEDUP_OFF && !rule_walks(rule)) {
        struct dedup_key key;
        enum dedup_answer answer;
        dedup_key_of(rule, e, audience_only(rule->audience, e), &key);
        enum err error = dedup_look(tx, rule->consumer, &key, &answer);
        if (error)
            return error;
        plan->remembered += answer == DEDUP_DONE;
        plan->unknown += answer == DEDUP_UNKNOWN;
        if (answer != DEDUP_NEW)
            return OK;
    }
    plan->would_act++;
    plan->members += !rule_walks(rule);
    count_channel(plan, channel_of(rule), true);
    return OK;
}

static enum err count_found(struct tx *tx, const struct replay_spec *spec, const struct rule *rules,
                            size_t n, const struct replay_found *found, struct replay_plan *plan)
{
    if (!replay_is_settled(found, plan->settled_after, plan->settled_through)) {
        plan->undone += found->kind == REPLAY_UNDONE;
        plan->unreadable += found->kind == REPLAY_UNREADABLE;
        return OK;
    }
    plan->events++;
    plan->first = plan->first ? plan->first : found->event.id;
    plan->last = found->event.id;
    enum err e = OK;
    unsigned ordinal = 0;
    for (size_t i = 0; !e && i < n; i++) {
        if (rules[i].on != found->event.type)
            continue;
        if (found->rule_mask >> ordinal & 1)
            e = count_rule(tx, spec, &rules[i], &found->event, plan);
        ordinal++;
    }
    return e;
}

enum err replay_plan_slice(struct tx *tx, const struct replay_spec *spec, const struct rule *rules,
                           size_t n, size_t max_rows, struct replay_plan *plan)
{
    struct replay_found found[ROWS_A_READ];
    struct replay_plan so_far = *plan;
    uint64_t after, last;
    replay_range(spec, INT64_MAX, &after, &last);
    if (so_far.position < after)
        so_far.position = after;
    if (so_far.channel_count == 0)
        list_channels(spec, rules, n, &so_far);
    enum err e = OK;
    for (size_t left = max_rows; !e && left > 0 && !so_far.end;) {
        size_t count, slice = left < ROWS_A_READ ? left : ROWS_A_READ;
        e = replay_walk(tx, spec, rules, n, so_far.position, last, found, slice, &count,
                        &so_far.position, &so_far.end);
        for (size_t i = 0; !e && i < count; i++)
            e = count_found(tx, spec, rules, n, &found[i], &so_far);
        left -= slice;
    }
    if (!e)
        *plan = so_far;
    return e;
}
