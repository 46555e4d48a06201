/* The sinks: they deliver an event to the members of its audience. Each rule of rules.def names a
 * sink, which declares it here; the forms for several calls at a time and for a rest are named
 * below. */
#pragma once

#include "port/rule.h"

#define RULE(sink_, ...)                                                                           \
    enum err sink_(struct sink_env *env, const struct event *e, const uint64_t *members, size_t n, \
                   struct sink_result *result);
#define TX_RULE(sink_, ...)                                                                        \
    enum err sink_(struct tx *tx, struct sink_env *env, const struct event *e, uint64_t member,    \
                   struct sink_result *result);
#define OUTSIDE_RULE(outside_, ...) void outside_(struct sink_env *env, struct outside_call *call);
#define AUDIENCE(name)              extern const struct audience name;
#include "model/rules.def"
#undef RULE
#undef TX_RULE
#undef OUTSIDE_RULE
#undef AUDIENCE

enum err sink_pushes(struct sink_env *env, struct sink_call *calls, size_t n);
enum err sink_inboxes(struct sink_env *env, struct sink_call *calls, size_t n);
/* For inactive members: in a large group their inboxes are dropped. */
enum err sink_inbox_rest(struct sink_env *env, const struct event *e, const uint64_t *members,
                         size_t n, struct sink_result *result);
