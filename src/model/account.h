/* Accounts, sessions and API keys: the rules, as transactions. All functions that take a
 * writable tx may be run again. Text is checked here (lengths, characters, UTF-8), so every door
 * in has the same rules. */
#pragma once

#include "base/arena.h"
#include "port/cards.h"
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
    EXTERNAL_ID_MAX = 255,
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
/* Would people take its owner for the operator, or a program for a word of its own? In lower case.
 */
bool username_is_reserved(struct str username);

/* ERR_CONFLICT: the username (or external id) is taken. ERR_INVALID with detail: a rule is
 * broken. Emits ACCOUNT_CREATED. */
enum err account_create(struct tx *tx, const struct account_new *in, uint64_t *id);
/* As many of these as can go together, which taken[i] says; the ids are set. The caller has looked:
 * no name and no id is there already, or twice among them, and they have no external id. Nothing is
 * done for the others, which are account_create's. A few statements for all. */
enum err account_create_all(struct tx *tx, struct account_new *in, size_t n, bool *taken,
                            struct arena *arena);
/* deleted: NOT_FOUND */
enum err account_get(struct tx *tx, uint64_t id, struct arena *arena, struct account *out);
enum err account_by_username(struct tx *tx, struct str username, struct arena *arena,
                             struct account *out);
enum err account_by_external_id(struct tx *tx, struct str external_id, uint64_t *id);
/* Before an account is made for an external id. ERR_FORBIDDEN: one that had it was deleted, and it
 * may not return; if it may, the deletion is forgotten. */
enum err account_return(struct tx *tx, struct str external_id, bool allowed);

/* Only fields with ptr != NULL change; an empty string clears. Emits ACCOUNT_UPDATED. */
struct account_change {
    struct str display_name, bio, avatar_url, email;
};
enum err account_update(struct tx *tx, uint64_t id, const struct account_change *change);

enum err account_password_hash(struct tx *tx, uint64_t id, struct arena *arena, struct str *hash);
/* Ends every session but `keep_session` (0: all). */
enum err account_set_password(struct tx *tx, uint64_t id, struct str hash, uint64_t keep_session);
enum err account_suspend(struct tx *tx, uint64_t id, bool suspended); /* idempotent */
/* Marks it deleted, frees the username, keeps a hash of the external id (account_return), ends its
 * sessions, emits ACCOUNT_DELETED; the purge sink then removes its rows in slices. From this moment
 * no read shows any of it. */
enum err account_delete(struct tx *tx, uint64_t id);
/* One bounded slice of that removal (at most `max` rows); *more: call again. Keeps all counters
 * right. */
enum err account_purge_slice(struct tx *tx, uint64_t id, size_t max,
                             const struct follow_policy *policy, bool *more);

enum err account_relationship(struct tx *tx, uint64_t viewer, uint64_t other,
                              struct relationship *out);

/* What a list shows of an account. ACCOUNT_CARD_COLUMNS of `accounts a`, read from column `first`
 * on; the texts go into the arena. */
#define ACCOUNT_CARD_COLUMNS "a.id, a.username, a.display_name, a.avatar_url"
void account_card_read(struct db_rows *rows, int first, struct arena *arena,
                       struct account_card *out);
/* Reads and ends rows that begin with these columns; *n: at most `max`. */
enum err account_cards_read(struct db_rows *rows, struct arena *arena, struct account_card *out,
                            size_t max, size_t *n);

static inline struct account_card account_card_of(const struct account *a)
{
    return (struct account_card){.id = a->id,
                                 .username = a->username,
                                 .display_name = a->display_name,
                                 .avatar_url = a->avatar_url};
}

/* Prefix search by username among active accounts, hiding those in a block with the viewer;
 * usernames above `after`, in order. */
enum err account_search(struct tx *tx, uint64_t viewer, struct str prefix, struct str after,
                        size_t limit, struct arena *arena, struct account_card *out, size_t *n);

/* ---- passwords (argon2id; slow on purpose: never on a loop or in a transaction) ---- */
/* Is it one of those that are guessed first, in whatever case? model/guessed_passwords.def */
bool password_is_common(struct str password);
/* ERR_INVALID: too short, too long */
enum err password_hash(struct str password, struct arena *arena, struct str *hash);
/* Whatever the password and the hash are ({NULL, 0}: there is none), it takes as long. */
bool password_verify(struct str password, struct str hash);
/* The same cost, always false: for unknown usernames. */
bool password_verify_nothing(struct str password);

/* ---- sessions ---- */
struct session {
    uint64_t id, account;
    int64_t used_at_ms, expires_at_ms;
    struct str label; /* in lists alone */
};
/* A fresh token "fts_…" and its hash, for session_create. Tokens are never stored. */
void token_make(const char *prefix, struct arena *arena, struct str *token,
                uint8_t hash[TOKEN_HASH_BYTES]);
void token_hash(struct str token, uint8_t hash[TOKEN_HASH_BYTES]);
/* How long a session lives: unused, and at most. */
struct session_terms {
    int64_t life_ms, age_ms;
};
/* When one that was made then and used now ends, unless it is used again. */
int64_t session_expires_ms(int64_t made_ms, int64_t used_ms, struct session_terms terms);
/* beyond SESSIONS_MAX the oldest ends */
enum err session_create(struct tx *tx, uint64_t account, const uint8_t hash[TOKEN_HASH_BYTES],
                        struct str label, int64_t now_ms, struct session_terms terms, uint64_t *id);
/* ERR_UNAUTHENTICATED: unknown, expired, or the account is not active. */
enum err session_find(struct tx *tx, const uint8_t hash[TOKEN_HASH_BYTES], int64_t now_ms,
                      struct session *out);
/* emits SESSION_ENDED; NOT_FOUND */
enum err session_end(struct tx *tx, uint64_t account, uint64_t id);
/* *good: the account is active, and each of these is a session of it that has not ended, or an API
 * key that was not revoked. */
enum err grants_are_good(struct tx *tx, uint64_t account, const uint64_t *ids, size_t n,
                         int64_t now_ms, bool *good);
/* newest first */
enum err session_list(struct tx *tx, uint64_t account, struct arena *arena,
                      struct session out[SESSIONS_MAX], size_t *n);

/* ---- API keys ---- */
enum scope { SCOPE_ACT = 1, SCOPE_ADMIN = 2, SCOPE_ADMIN_READ = 4 }; /* bit set */
bool scopes_parse(struct str text, unsigned *scopes); /* "act admin admin:read", spaces or commas */
void scopes_write(unsigned scopes, struct buf *out);
/* What a key allows. */
struct api_key_grant {
    uint64_t id;
    unsigned scopes;
    int64_t expires_at_ms; /* 0: never */
    int64_t rate;          /* requests a second on each node; 0: no limit */
};
/* Sets grant->id. */
enum err api_key_create(struct tx *tx, struct str name, const uint8_t hash[TOKEN_HASH_BYTES],
                        struct api_key_grant *grant);
/* ERR_UNAUTHENTICATED: unknown, revoked or expired. */
enum err api_key_find(struct tx *tx, const uint8_t hash[TOKEN_HASH_BYTES], int64_t now_ms,
                      struct api_key_grant *out);
enum err api_key_revoke(struct tx *tx, uint64_t id);
struct api_key {
    uint64_t id;
    struct str name, scopes;
    int64_t revoked_at_ms; /* 0: in force */
    int64_t expires_at_ms; /* 0: never */
    int64_t rate;          /* 0: no limit */
};
/* The newest ones, at most `max`. */
enum err api_key_list(struct tx *tx, struct arena *arena, struct api_key *out, size_t max,
                      size_t *n);

/* ---- export ---- */

/* Everything that an account has besides its profile, part by part, each in the order of its key
 * and in pages, so that neither a transaction nor a query grows with the size of an account. */
enum export_part {
    EXPORT_SESSIONS,  /* id, text: label, at: used */
    EXPORT_FOLLOWING, /* id: the followee, at: since */
    EXPORT_FOLLOWERS,
    EXPORT_BLOCKS,
    EXPORT_MUTES,
    EXPORT_POSTS,    /* id, text: caption, counts: likes, comments */
    EXPORT_COMMENTS, /* id, other: post, text: body */
    EXPORT_LIKES,    /* id: post, at: since */
    EXPORT_GROUPS,   /* id, other: the joining, text: name, counts[0]: role */
    EXPORT_PARTS
};
struct export_row {
    uint64_t id, other;
    struct str text;
    int64_t at_ms, counts[2];
};
enum { EXPORT_PAGE = 500 };
/* The rows with keys above `after`; fewer than EXPORT_PAGE: the part ends with them. */
enum err account_export(struct tx *tx, uint64_t id, enum export_part part, uint64_t after,
                        struct arena *arena, struct export_row out[EXPORT_PAGE], size_t *n);
