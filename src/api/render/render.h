/* Drawing what the model found as JSON, one file per noun. Each function writes one value; a list
 * is the caller's. Nothing here reads truth or views: a second dialect of the API is another set of
 * these functions over the same structs. */
#pragma once

#include "base/json_out.h"

struct account;
struct account_card;
struct api_key;
struct arena;
struct cards;
struct check_difference;
struct check_result;
struct delivery_row;
struct freshness_headline;
struct overload_guard;
struct comment;
struct explained_events;
struct explanation;
struct export_row;
struct feed_item;
struct group;
struct group_entry;
struct group_invitation;
struct group_member;
struct import_result;
struct inbox_item;
struct relationship;
struct session;

/* {"id","username","display_name","avatar_url"} */
void render_account_card(struct json_out *j, const struct account_card *a);
/* The same members in an open object. */
void render_account_card_members(struct json_out *j, const struct account_card *a);
/* The whole account; `relationship` NULL for oneself or anonymous readers; `own` adds email. */
void render_account(struct json_out *j, const struct account *a, const struct relationship *r,
                    bool own);
void render_session(struct json_out *j, const struct session *s, bool current);
void render_api_key(struct json_out *j, const struct api_key *k);
/* {"account":{…},"sessions":[…],…}: the name of a part, and one of its rows */
const char *render_export_name(int part);
void render_export_row(struct json_out *j, int part, const struct export_row *row);

/* {"id","author":{…},"caption","media":[],"like_count","comment_count","liked","created_at",
 * "edited_at"} */
void render_post(struct json_out *j, const struct feed_item *item, struct arena *arena);
/* Posts of an open array; attaches to their cards what it had to draw anew. */
void render_posts(struct json_out *j, const struct feed_item *items, size_t n, struct cards *cards,
                  struct arena *arena);
/* {"id","post_id","author":{…},"body","created_at"} */
void render_comment(struct json_out *j, const struct comment *c);

/* {"id","kind","name","history","member_count","seq","created_at","role","muted","archived",
 * "read_seq","joined_seq","peer"} */
void render_group(struct json_out *j, const struct group *g);
void render_group_member(struct json_out *j, const struct group_member *m);
void render_group_invitation(struct json_out *j, const struct group_invitation *i);
/* {"group_id","seq","kind","client_id","author_id","body","created_at","edited_at","deleted"}, and
 * "target_seq" or "subject_id" where there is one */
void render_group_entry(struct json_out *j, const struct group_entry *e);
/* {"group":{…},"unread","mentions","last_message":{…}|null,"activity_at"} */
void render_inbox_item(struct json_out *j, const struct inbox_item *item);

void render_difference(struct json_out *j, const struct check_difference *d);
/* The members of an open object. */
void render_check_counts(struct json_out *j, const struct check_result *r);
void render_explanation(struct json_out *j, const struct explanation *s,
                        const struct explained_events *events);
/* {"accounts","follows",…,"errors":[{"line","detail"}]} */
void render_import(struct json_out *j, const struct import_result *r);

/* engine.c */
/* A row of the delivery store. */
void render_delivery(struct json_out *j, const struct delivery_row *row);
/* "headline":{"worst_ms","consumer","type","lane","late_means","green","late","behind","stopped",
 * "dead"} */
void render_headline(struct json_out *j, const struct freshness_headline *headline);
/* "overload_guard":{"level","why","free_bytes"}; NULL: level 0 and null. */
void render_overload_guard(struct json_out *j, const struct overload_guard *guard);

/* A text, a time or an id that may be missing. */
void render_put_text(struct json_out *j, const char *key, const char *text_or_null);
/* Bytes of a stored row, which may be damaged: null when they are no text. */
/* {NULL, 0}: null */
void render_put_str(struct json_out *j, const char *key, struct str text);
void render_put_stored(struct json_out *j, const char *key, struct str bytes);
void render_put_time(struct json_out *j, const char *key, int64_t ms_or_0);
void render_put_id(struct json_out *j, const char *key, uint64_t id_or_0);

/* "12 s", "3 min": for sentences. */
void render_span_text(int64_t ms, char out[32]);
