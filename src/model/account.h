/* Accounts, sessions and API keys: the rules, as transactions. All functions that take a
 * writable tx may be run again. Text is checked here (lengths, characters, UTF-8), so every door
 * in has the same rules. */
#pragma once

#include "base/arena.h"
#include "base/json_out.h"
#include "port/db.h"

struct follow_policy;

enum account_state { ACCOUNT_ACTIVE = 0, ACCOUNT_SUSPENDED = 1, ACCOUNT_DELETED = 2 };

enum {
    USERNAME_MIN = 3,
    USERNAME_MAX = 30,
    PASSWORD_MIN = 8,
    PASSWORD_MAX = 256,
    DISPLAY_NAME_MAX = 80,
    BIO_MAX = 500,
    URL_MAX = 2000,
    EMAIL_MAX = 254,
    TOKEN_BYTES = 32,
    TOKEN_HASH_BYTES = 32,
    SESSIONS_MAX = 100
};

struct account {
    uint64_t id;
    struct str username, display_name, bio, avatar_url,
        email; /* in the caller's arena; avatar_url and email may be NULL */
    enum account_state state;
    bool celebrity;
    int64_t follower_count, following_count, post_count;
};

/* How `viewer` stands to another account. */
struct relationship {
    bool following, followed_by, blocking, blocked_by, muting;
};

struct account_new {
    struct str username;      /* any case; stored in lower case */
    struct str password_hash; /* {NULL, 0}: no password log-in */
    struct str display_name, bio, avatar_url, email, external_id; /* {NULL, 0}: not given */
    uint64_t id;                                                  /* 0: next id; imports give one */
    int64_t seen_at_ms;
};

/* Writes `username` in lower case to `out` (USERNAME_MAX bytes); false when it breaks the rules. */
bool username_normalize(struct str username, char *out, size_t *len);

/* ERR_CONFLICT: the username (or external id) is taken. ERR_INVALID with detail: a rule is
 * broken. Emits ACCOUNT_CREATED. */
enum err account_create(struct tx *tx, const struct account_new *in, uint64_t *id);
/* deleted: NOT_FOUND */
enum err account_get(struct tx *tx, uint64_t id, struct arena *arena, struct account *out);
enum err account_by_username(struct tx *tx, struct str username, struct arena *arena,
                             struct account *out);
enum err account_by_external_id(struct tx *tx, struct str external_id, uint64_t *id);

/* Only fields with ptr != NULL change; an empty string clears. Emits ACCOUNT_UPDATED. */
struct account_change {
    struct str display_name, bio, avatar_url, email;
};
enum err account_update(struct tx *tx, uint64_t id, const struct account_change *change);

enum err account_password_hash(struct tx *tx, uint64_t id, struct arena *arena, struct str *hash);
/* Ends every session but `keep_session` (0: all). */
enum err account_set_password(struct tx *tx, uint64_t id, struct str hash, uint64_t keep_session);
enum err account_suspend(struct tx *tx, uint64_t id, bool suspended); /* idempotent */
/* Marks it deleted, frees the username, ends its sessions, emits ACCOUNT_DELETED; the purge sink
 * then removes all that is theirs in slices. From this moment nobody sees any of it. */
enum err account_delete(struct tx *tx, uint64_t id);
/* One bounded slice of that removal (at most `max` rows); *more: call again. Keeps all counters
 * right. */
enum err account_purge_slice(struct tx *tx, uint64_t id, size_t max,
                             const struct follow_policy *policy, bool *more);

enum err account_relationship(struct tx *tx, uint64_t viewer, uint64_t other,
                              struct relationship *out);

/* {"id":…,"username":…,"display_name":…,"avatar_url":…}: the fragment inside posts and comments. */
void account_write_brief(struct json_out *j, const struct account *a);
/* The whole account; `relationship` NULL for oneself or anonymous readers; `own` adds email. */
void account_write(struct json_out *j, const struct account *a, const struct relationship *r,
                   bool own);

/* Prefix search by username among active accounts, hiding those in a block with the viewer;
 * usernames above `after`. */
enum err account_search(struct tx *tx, uint64_t viewer, struct str prefix, struct str after,
                        size_t limit, struct json_out *j, size_t *n,
                        char last_username[USERNAME_MAX], size_t *last_len);

/* ---- passwords (argon2id; slow on purpose: never on a loop or in a transaction) ---- */
/* ERR_INVALID: too short, too long */
enum err password_hash(struct str password, struct arena *arena, struct str *hash);
bool password_verify(struct str password, struct str hash);
/* The same cost, always false: for unknown usernames. */
bool password_verify_nothing(struct str password);

/* ---- sessions ---- */
struct session {
    uint64_t id, account;
    int64_t used_at_ms, expires_at_ms;
};
/* A fresh token "fts_…" and its hash, for session_create. Tokens are never stored. */
void token_make(const char *prefix, struct arena *arena, struct str *token,
                uint8_t hash[TOKEN_HASH_BYTES]);
void token_hash(struct str token, uint8_t hash[TOKEN_HASH_BYTES]);
/* beyond SESSIONS_MAX the oldest ends */
enum err session_create(struct tx *tx, uint64_t account, const uint8_t hash[TOKEN_HASH_BYTES],
                        struct str label, int64_t now_ms, int64_t life_ms, uint64_t *id);
/* ERR_UNAUTHENTICATED: unknown, expired, or the account is not active. */
enum err session_find(struct tx *tx, const uint8_t hash[TOKEN_HASH_BYTES], int64_t now_ms,
                      struct session *out);
/* emits SESSION_ENDED; NOT_FOUND */
enum err session_end(struct tx *tx, uint64_t account, uint64_t id);
/* *good: the account is active and these sessions of it have not ended. */
enum err sessions_are_good(struct tx *tx, uint64_t account, const uint64_t *ids, size_t n,
                           int64_t now_ms, bool *good);
enum err session_list(struct tx *tx, uint64_t account, uint64_t current, struct json_out *j);

/* ---- API keys ---- */
enum scope { SCOPE_ACT = 1, SCOPE_ADMIN = 2, SCOPE_ADMIN_READ = 4 }; /* bit set */
bool scopes_parse(struct str text, unsigned *scopes); /* "act admin admin:read", spaces or commas */
void scopes_write(unsigned scopes, struct buf *out);
enum err api_key_create(struct tx *tx, struct str name, unsigned scopes,
                        const uint8_t hash[TOKEN_HASH_BYTES], uint64_t *id);
enum err api_key_find(struct tx *tx, const uint8_t hash[TOKEN_HASH_BYTES], uint64_t *id,
                      unsigned *scopes);
enum err api_key_revoke(struct tx *tx, uint64_t id);
enum err api_key_list(struct tx *tx, struct json_out *j);

/* Everything the account has, as one JSON object, written in pages: call until *more is false.
 * `position` starts at {0}. */
struct export_position {
    int part;
    uint64_t after;
};
enum err account_export(struct tx *tx, uint64_t id, struct export_position *position,
                        struct json_out *j, bool *more);
