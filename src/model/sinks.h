/* The sinks that the rule table names: what is done for the members of an event's audience. */
#pragma once

#include "port/rule.h"

/* TO_FOLLOWERS: members are handles of the views. */
enum err sink_push(struct sink_env *env, const struct event *e, const uint64_t *members, size_t n,
                   struct sink_result *result);
enum err sink_pushes(struct sink_env *env, struct sink_call *calls, size_t n);
enum err sink_retract(struct sink_env *env, const struct event *e, const uint64_t *members,
                      size_t n, struct sink_result *result);

/* TO_MEMBERS: the group comes to the top of their inboxes. */
enum err sink_inbox(struct sink_env *env, const struct event *e, const uint64_t *members, size_t n,
                    struct sink_result *result);
enum err sink_inboxes(struct sink_env *env, struct sink_call *calls, size_t n);
/* The same for those who were not here lately: in a large group their inboxes are dropped. */
enum err sink_inbox_rest(struct sink_env *env, const struct event *e, const uint64_t *members,
                         size_t n, struct sink_result *result);

/* TO_ACTOR: members[0] is the actor. */
enum err sink_backfill(struct sink_env *env, const struct event *e, const uint64_t *members,
                       size_t n, struct sink_result *result);
enum err sink_forget(struct sink_env *env, const struct event *e, const uint64_t *members, size_t n,
                     struct sink_result *result);
enum err sink_purge(struct sink_env *env, const struct event *e, const uint64_t *members, size_t n,
                    struct sink_result *result);
enum err sink_mentions(struct sink_env *env, const struct event *e, const uint64_t *members,
                       size_t n, struct sink_result *result);
