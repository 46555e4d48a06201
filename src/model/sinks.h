/* What is done for the members of an event's audience. Each rule of rules.def names a sink, which
 * is declared here by that; the forms for several calls at a time and for a rest are named below.
 */
#pragma once

#include "port/rule.h"

/* TO_FOLLOWERS: members are handles of the views. TO_ACTOR: members[0] is the actor. */
#define RULE(sink_, ...)                                                                           \
    enum err sink_(struct sink_env *env, const struct event *e, const uint64_t *members, size_t n, \
                   struct sink_result *result);
#include "model/rules.def"
#undef RULE

enum err sink_pushes(struct sink_env *env, struct sink_call *calls, size_t n);
enum err sink_inboxes(struct sink_env *env, struct sink_call *calls, size_t n);
/* For those who were not here lately: in a large group their inboxes are dropped. */
enum err sink_inbox_rest(struct sink_env *env, const struct event *e, const uint64_t *members,
                         size_t n, struct sink_result *result);
