/* Every handler that the route table names, by the file it lives in. */
#pragma once

#include "api/api.h"

#define HANDLER(name) enum err name(struct call *c, struct tx *tx)

/* clang-format off */

/* accounts.c */
/* {"account":…,"token":…}, 201: the answer of signing up and logging in */
void call_signed_in(struct call *c, const struct account *account, struct str token);
HANDLER(accounts_create);      /* SLOW  POST   /v1/accounts */
HANDLER(accounts_find);        /* READ  GET    /v1/accounts?username= | ?q= (prefix) */
HANDLER(accounts_show);        /* READ  GET    /v1/accounts/{id} */
HANDLER(me_show);              /* READ  GET    /v1/me */
HANDLER(me_update);            /* WRITE PATCH  /v1/me */
HANDLER(me_delete);            /* WRITE DELETE /v1/me */
HANDLER(me_password);          /* SLOW  PUT    /v1/me/password */
HANDLER(me_export);            /* SLOW  GET    /v1/me/export */
/* sessions.c */
HANDLER(sessions_create);      /* SLOW  POST   /v1/sessions */
HANDLER(sessions_list);        /* READ  GET    /v1/sessions */
HANDLER(sessions_end);         /* WRITE DELETE /v1/sessions/{id} */
HANDLER(sessions_end_current); /* WRITE DELETE /v1/sessions/current */
/* graph.c */
/* The account, for a caller who may know of it: ERR_NOT_FOUND when it is not active or blocks the
 * caller. */
enum err call_find_account(struct call *c, struct tx *tx, uint64_t id, struct account *account,
                           struct relationship *relationship);
HANDLER(follow_put);           /* WRITE PUT    /v1/accounts/{id}/follow: answers the account */
HANDLER(follow_delete);
HANDLER(block_put);
HANDLER(block_delete);
HANDLER(mute_put);
HANDLER(mute_delete);
HANDLER(followers_list);       /* READ  GET    /v1/accounts/{id}/followers */
HANDLER(following_list);
HANDLER(blocks_list); /* READ  GET    /v1/me/blocks */
HANDLER(mutes_list);  /* READ  GET    /v1/me/mutes */
/* posts.c */
void posts_open(struct call *c);    /* names the opening of posts_create */
void messages_open(struct call *c); /* … and of messages_send */
HANDLER(posts_create);         /* WRITE POST   /v1/posts */
HANDLER(posts_show);           /* READ  GET    /v1/posts/{id} */
HANDLER(posts_update);         /* WRITE PATCH  /v1/posts/{id} */
HANDLER(posts_delete);         /* WRITE DELETE /v1/posts/{id} */
HANDLER(posts_by_account);     /* READ  GET    /v1/accounts/{id}/posts */
HANDLER(like_put);             /* WRITE PUT    /v1/posts/{id}/like: answers the post */
HANDLER(like_delete);
HANDLER(likes_list);           /* READ  GET    /v1/posts/{id}/likes */
/* comments.c */
HANDLER(comments_create);      /* WRITE POST   /v1/posts/{id}/comments */
HANDLER(comments_list);        /* READ  GET    /v1/posts/{id}/comments */
HANDLER(comments_delete);      /* WRITE DELETE /v1/comments/{id} */
/* feed.c */
HANDLER(feed_show);            /* INLINE GET   /v1/feed */
/* groups.c */
/* An array of ids; absent: *n is 0. In the request's arena. */
enum err call_body_ids(struct call *c, const char *name, size_t max, const uint64_t **ids,
                       size_t *n);
HANDLER(groups_create);        /* WRITE POST   /v1/groups */
HANDLER(groups_show);          /* READ  GET    /v1/groups/{id} */
HANDLER(groups_update);        /* WRITE PATCH  /v1/groups/{id} */
HANDLER(members_list);         /* READ  GET    /v1/groups/{id}/members */
HANDLER(members_put);          /* WRITE PUT    /v1/groups/{id}/members/{account} */
HANDLER(members_delete);       /* WRITE DELETE /v1/groups/{id}/members/{account} */
HANDLER(invitations_list);     /* READ  GET    /v1/groups/invitations */
HANDLER(chat_put);             /* WRITE PUT    /v1/accounts/{id}/chat */
/* group_messages.c */
HANDLER(messages_send);        /* WRITE POST   /v1/groups/{id}/messages */
HANDLER(messages_list);        /* READ  GET    /v1/groups/{id}/messages?after=|before= */
HANDLER(messages_edit);        /* WRITE PATCH  /v1/groups/{id}/messages/{seq} */
HANDLER(messages_delete);      /* WRITE DELETE /v1/groups/{id}/messages/{seq} */
/* The answer of a send or an edit once more, from what was kept of it under an Idempotency-Key. */
enum err messages_again(struct call *c, struct tx *tx, struct str kept);
/* inbox.c */
HANDLER(inbox_show);           /* INLINE GET   /v1/inbox: always on a blocking thread */
HANDLER(read_put);             /* WRITE PUT    /v1/groups/{id}/read {"seq"} */
/* stream.c */
HANDLER(stream_open);          /* INLINE GET   /v1/stream: an answer that does not end */
/* admin.c: what the command line uses, too */
/* An account by id, @username or username. */
enum err account_look_up(struct tx *tx, struct str name, struct arena *arena, struct account *out);
HANDLER(admin_keys_create);    /* SLOW  POST   /v1/admin/keys {"name","scopes"} → {"id","key",…} */
HANDLER(admin_keys_list);      /* READ  GET    /v1/admin/keys */
HANDLER(admin_keys_revoke);    /* WRITE DELETE /v1/admin/keys/{id} */
HANDLER(admin_suspend);        /* WRITE PUT    /v1/admin/accounts/{id}/suspension */
HANDLER(admin_restore);        /* WRITE DELETE /v1/admin/accounts/{id}/suspension */
HANDLER(admin_post_delete);    /* WRITE DELETE /v1/admin/posts/{id} */
HANDLER(
    admin_check); /* SLOW  POST   /v1/admin/check {"from","limit","depth","repair"}: one slice */
HANDLER(admin_explain);        /* SLOW  GET    /v1/admin/explain?user=ID|NAME&post=ID */
HANDLER(admin_backup);         /* SLOW  POST   /v1/admin/backup {"path"}: control socket only */
HANDLER(admin_import);         /* SLOW  POST   /v1/admin/import?first_line=N, one NDJSON chunk */
HANDLER(admin_save);           /* SLOW  POST   /v1/admin/save: save the views now */
HANDLER(admin_lane);           /* SLOW  PUT    /v1/admin/lanes {"lane","concurrency",…} */
/* nodes.c */
HANDLER(admin_nodes);          /* SLOW  GET    /v1/admin/nodes: who uses this store */
/* status.c */
HANDLER(admin_engine);         /* SLOW  GET    /v1/admin/engine: the leader's engine */
HANDLER(admin_groups_hot);     /* SLOW  GET    /v1/admin/groups/hot: of this node */
HANDLER(admin_status);         /* SLOW  GET    /v1/admin/status: engine, views, db, http as JSON */
/* freshness.c */
HANDLER(admin_freshness);      /* SLOW  GET    /v1/admin/freshness */
HANDLER(admin_health);         /* SLOW  GET    /v1/admin/health: which truth is stale, in words */
/* events.c */
HANDLER(admin_event_show);     /* READ  GET    /v1/admin/events/{id}: one event's whole story */
/* deliveries.c */
HANDLER(deliveries_list);      /* READ  GET    /v1/admin/deliveries */
HANDLER(deliveries_groups);    /* READ  GET    /v1/admin/deliveries/groups */
HANDLER(deliveries_redrive);   /* SLOW  POST   /v1/admin/deliveries/redrive {filter,"rate"} */
HANDLER(deliveries_discard);   /* SLOW  POST   /v1/admin/deliveries/discard {filter,"why"} */
HANDLER(deliveries_release);   /* SLOW  POST   /v1/admin/deliveries/release {filter} */
/* jobs.c */
HANDLER(replays_list);         /* READ  GET    /v1/admin/replays */
HANDLER(replays_show);         /* READ  GET    /v1/admin/replays/{id} */
HANDLER(replays_plan);         /* SLOW  POST   /v1/admin/replays/plan: one slice */
HANDLER(replays_create);       /* SLOW  POST   /v1/admin/replays {spec, "rate", "total"} */
HANDLER(replays_change);       /* SLOW  PUT    /v1/admin/replays/{id} {"state"} */
HANDLER(rebuilds_list);        /* READ  GET    /v1/admin/rebuilds */
HANDLER(rebuilds_show);        /* READ  GET    /v1/admin/rebuilds/{id} */
HANDLER(rebuilds_create);      /* SLOW  POST   /v1/admin/rebuilds {"what","user","rate"} */
HANDLER(rebuilds_change);      /* SLOW  PUT    /v1/admin/rebuilds/{id} {"state"} */
/* consumers.c: other systems that follow our events */
HANDLER(events_follow);        /* INLINE GET   /v1/events: always on a blocking thread */
HANDLER(consumers_list);       /* READ  GET    /v1/events/consumers */
HANDLER(consumers_save);       /* WRITE PUT    /v1/events/consumers/{name} {"cursor","rewind"} */
HANDLER(consumers_delete);     /* WRITE DELETE /v1/events/consumers/{name} */
/* health.c */
HANDLER(health_live);          /* INLINE GET   /healthz */
HANDLER(health_ready);         /* INLINE GET   /readyz */
/* metrics.c */
HANDLER(metrics_show);         /* INLINE GET   /metrics */
/* openapi.c */
HANDLER(openapi_show);         /* INLINE GET   /openapi.json */
HANDLER(docs_show);            /* INLINE GET   /docs */
