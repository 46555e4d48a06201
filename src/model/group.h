/* Groups in truth: their members, and the one history that all members agree on.
 *
 * Everything that happens in a group is an entry with a number: messages, edits, deletions, joins,
 * leaves, renames, roles. A writer takes the next number from the group's row, in the transaction
 * that writes the entry, so numbers have no gaps and entries become visible in their order. Joining
 * and leaving take numbers like messages do, so "the members as of number s" are exactly those with
 * joined_seq < s and no left_seq below s: a message and a leave cannot race.
 *
 * A chat of two is a group whose members never change. All functions with a writable tx may be run
 * again; all refuse before their first write where they can. */
#pragma once

#include "base/arena.h"
#include "port/cards.h"
#include "port/db.h"

enum group_kind { GROUP_PLAIN = 0, GROUP_CHAT = 1 };
/* The lower, the higher: the numbers are in the store, and lists are ordered by them. */
enum group_role { GROUP_OWNER = 0, GROUP_ADMIN = 1, GROUP_MEMBER = 2 };
enum group_history { GROUP_HISTORY_JOINED = 0, GROUP_HISTORY_ALL = 1 };
enum group_entry_kind {
    ENTRY_MESSAGE = 0,
    ENTRY_EDIT = 1,
    ENTRY_DELETE = 2,
    ENTRY_MODERATION = 3, /* a deletion by another member than the author */
    ENTRY_JOIN = 4,
    ENTRY_LEAVE = 5,
    ENTRY_RENAME = 6,
    ENTRY_ROLE = 7,
    ENTRY_HISTORY = 8
};

enum {
    GROUP_NAME_MAX_CHARS = 100,
    GROUP_MEMBERS_MAX = 1000000,
    GROUP_FIRST_MEMBERS_MAX = 1000,   /* with the creation */
    GROUPS_OF_ACCOUNT_MAX = 10000,    /* the chats among them */
    INVITATIONS_OF_ACCOUNT_MAX = 1000 /* open ones */
};
enum {
    MESSAGE_MAX_CHARS = 10000,
    MESSAGE_CLIENT_ID_MAX = 64, /* printable ASCII */
    MESSAGE_MENTIONS_MAX = 50
};

/* A group as one of its members stands to it. Texts are in the caller's arena. */
struct group {
    uint64_t id;
    enum group_kind kind;
    struct str name; /* "" of a chat */
    enum group_history history;
    int64_t member_count, seq, messages, last_seq;
    uint64_t last_id;
    /* the member's own */
    enum group_role role;
    int64_t joined_seq, read_seq, read_count;
    int64_t left_seq; /* 0: is a member */
    uint64_t joined_id;
    bool muted, archived;
    /* of a chat: the other one; id 0 when there is none, or it is hidden */
    struct account_card peer;
};

struct group_entry {
    uint64_t group, author;
    int64_t seq;
    enum group_entry_kind kind;
    struct str client_id;                /* {NULL, 0}: none */
    struct str body;                     /* {NULL, 0}: none, deleted, or not for this reader */
    int64_t target_seq;                  /* 0: none */
    uint64_t subject;                    /* 0: none */
    int64_t created_at_ms, edited_at_ms; /* edited_at 0: never */
    bool deleted;                        /* of an edit: its message was */
};

/* ---- groups ---- */

struct group_new {
    uint64_t owner;
    struct str name;
    enum group_history history;
    const uint64_t *members; /* besides the owner; repetitions do not count */
    size_t member_count;
};
/* ERR_NOT_FOUND: a member is no active account. ERR_FORBIDDEN: a block lies between one and the
 * owner. ERR_CONFLICT: one of them has too many groups. ERR_INVALID: the name, too many members. */
enum err group_create(struct tx *tx, const struct group_new *in, struct arena *arena,
                      struct group *out);
/* ERR_NOT_FOUND unless the account is a member. */
enum err group_get(struct tx *tx, uint64_t id, uint64_t account, struct arena *arena,
                   struct group *out);
/* The same, also for a former member: left_seq is set. */
enum err group_get_or_left(struct tx *tx, uint64_t id, uint64_t account, struct arena *arena,
                           struct group *out);

struct group_change {
    struct str name; /* {NULL, 0}: stays */
    bool set_history, set_muted, set_archived;
    enum group_history history;
    bool muted, archived; /* of the member alone */
};
/* Name and history by owner and admins: ERR_FORBIDDEN. */
enum err group_update(struct tx *tx, uint64_t id, uint64_t account,
                      const struct group_change *change, struct arena *arena, struct group *out);

const char *group_role_name(enum group_role role);
bool group_role_parse(struct str text, enum group_role *role);
const char *group_history_name(enum group_history history);
bool group_history_parse(struct str text, enum group_history *history);

/* ---- members ---- */

struct member_wish {
    bool set_role;
    enum group_role role;
    bool invite; /* ask, instead of adding at once */
};
enum member_outcome { MEMBER_UNCHANGED, MEMBER_CHANGED, MEMBER_JOINED, MEMBER_INVITED };
/* Makes `account` a member, invites it, or gives it a role; `actor` = `account`: accepts an
 * invitation, or steps down. ERR_NOT_FOUND: no such group for the actor, or no such account.
 * ERR_FORBIDDEN: the actor's role does not allow it, a block lies between the two, it is a chat.
 * ERR_CONFLICT: the group is full, or the account has too many groups or invitations. */
enum err group_member_put(struct tx *tx, uint64_t group, uint64_t actor, uint64_t account,
                          const struct member_wish *wish, enum member_outcome *outcome);
/* Leaves, declines, or is removed by a member with a higher role. An owner who leaves passes the
 * group on to the oldest admin, else to the oldest member. */
enum err group_member_remove(struct tx *tx, uint64_t group, uint64_t actor, uint64_t account);
struct group_member {
    struct account_card account;
    enum group_role role;
    int64_t joined_seq;
    uint64_t joined_id; /* 0: invited, not yet a member */
};
/* One member, or an invited person. ERR_NOT_FOUND: neither. */
enum err group_member_get(struct tx *tx, uint64_t group, uint64_t account, struct arena *arena,
                          struct group_member *out);
/* Owner, admins, members, each in the order of joining. `after`: 0, or *next of the page before;
 * *next 0: no more. */
enum err group_member_list(struct tx *tx, uint64_t group, uint64_t viewer, uint64_t after,
                           size_t limit, struct arena *arena, struct group_member *out, size_t *n,
                           uint64_t *next);
struct group_invitation {
    uint64_t group, invited_by;
    struct str name;
    int64_t member_count, created_at_ms;
};
/* The account's open invitations by falling group id. */
enum err group_invitation_list(struct tx *tx, uint64_t account, uint64_t below, size_t limit,
                               struct arena *arena, struct group_invitation *out, size_t *n);
/* Ends at most `max` memberships and invitations of a deleted account; its messages stay. */
enum err group_purge_slice(struct tx *tx, uint64_t account, size_t max, size_t *found);

/* ---- messages ---- */

struct message_new {
    uint64_t group, author;
    struct str client_id; /* {NULL, 0}: none */
    struct str body;
    const uint64_t *mentions; /* members; repetitions do not count */
    size_t mention_count;
    bool checked; /* message_check has passed it */
};
/* What needs no store: `says` gets the detail and need be no transaction. */
enum err message_check(struct tx *says, const struct message_new *in);
/* Four statements, one of them to wait for. *repeated: the author sent
 * it before with this client_id, and *out is that message as it is now; ERR_INVALID when with
 * another body. ERR_NOT_FOUND: not a member. ERR_FORBIDDEN: a chat with a block in it. */
enum err message_send(struct tx *tx, const struct message_new *in, struct arena *arena,
                      struct group_entry *out, bool *repeated);
/* The same for as many of them as can go together, which taken[i] says; the others have had nothing
 * done for them and are message_send's. Five statements, or six with many events. */
enum err message_send_all(struct tx *tx, const struct message_new *in, size_t n,
                          struct arena *arena, struct group_entry *out, bool *taken);
/* By its author. ERR_CONFLICT: it is deleted. The same body again changes nothing. */
enum err message_edit(struct tx *tx, uint64_t group, int64_t seq, uint64_t editor, struct str body,
                      struct arena *arena, struct group_entry *out);
/* By its author, by the owner or an admin. Erases the text; *out is what is left of the message.
 * Deleting again: ERR_NOT_FOUND. */
enum err message_delete(struct tx *tx, uint64_t group, int64_t seq, uint64_t editor,
                        struct arena *arena, struct group_entry *out);
/* A message as it is now, for its author, wherever that is by now: what was answered before.
 * ERR_NOT_FOUND: not theirs. */
enum err message_again(struct tx *tx, uint64_t group, int64_t seq, uint64_t author,
                       struct arena *arena, struct group_entry *out);
/* The accounts that a message mentions. */
enum err message_mentioned(struct tx *tx, uint64_t group, int64_t seq,
                           uint64_t out[MESSAGE_MENTIONS_MAX], size_t *n);

/* Entries by number. `after` ≥ 0: those above it; −1: the last ones below `before`. Always in
 * rising order. Members read from their joining on, or all where the group's history is open; who
 * left reads up to that. Long texts make a page shorter than its limit. `next`: pass it as `after`
 * (or `before`) to go on; 0: no more for now. */
struct log_range {
    int64_t after, before;
    size_t limit;
};
struct log_page {
    struct group_entry *entries; /* in the arena, as their texts are */
    size_t count;
    int64_t next;
};
enum err group_log_read(struct tx *tx, uint64_t group, uint64_t reader,
                        const struct log_range *range, struct arena *arena, struct log_page *out);
const char *group_entry_kind_name(enum group_entry_kind kind);

/* ---- inside the model ---- */

/* The columns of a group as a member (m) stands to it (g), with the other one of a chat (p). */
#define GROUP_COLUMNS                                                                              \
    "g.id, g.kind, g.name, g.history, g.member_count, g.seq, g.messages, g.last_seq, g.last_id, "  \
    "m.role, m.joined_seq, m.joined_id, m.left_seq, m.read_seq, m.read_count, m.muted, "           \
    "m.archived, p.id, p.username, p.display_name, p.avatar_url"
/* Only of a chat is the other one looked for: a group may have a million others. */
#define GROUP_PEER                                                                                 \
    "LEFT JOIN accounts p ON p.state = 0 AND p.id = CASE WHEN g.kind = 1 THEN "                    \
    "(SELECT o.account_id FROM group_members o WHERE o.group_id = g.id "                           \
    "AND o.account_id <> m.account_id LIMIT 1) END "
enum { GROUP_COLUMN_COUNT = 21 };
void group_read_columns(struct db_rows *rows, struct arena *arena, struct group *out);

/* The next entry: takes the number, writes the row, emits the event. `out` gets its number and the
 * event's id. */
struct group_append {
    uint64_t group, author;
    enum group_entry_kind kind;
    struct str body;
    int64_t target_seq;
    uint64_t subject;
    int64_t members; /* how many more there are with it */
};
struct group_appended {
    int64_t seq, messages, at_ms;
    uint64_t event;
};
enum err group_append(struct tx *tx, const struct group_append *in, struct group_appended *out);
/* The rows of a member who joins a group that is being made, as its entry `seq`. */
enum err group_first_member(struct tx *tx, uint64_t group, uint64_t account, enum group_role role,
                            uint64_t author, int64_t seq, int64_t now_ms);
/* ERR_CONFLICT: the account is in as many groups as it may be. */
enum err group_check_room(struct tx *tx, uint64_t account);
