/* Events: facts that became true in a transaction. The same struct is what the outbox stores, what
 * the commit hook applies to the views before the answer, and what the engine fans out.
 *
 * A STORED event has an outbox row written in the transaction that made it true; it survives any
 * crash and is delivered at least once. A PASSING event only keeps the caches of this process
 * right: losing it costs nothing, because a process that dies loses those caches too. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/err.h"

enum event_keep { EVENT_STORED, EVENT_PASSING };

/* name, wire name, version, keep                           actor      object     value; then its
 * subject, if it has one.
 *
 * post.liked … post.uncommented tell the caches of this process where a counter stands; like.* and
 * comment.* are the facts, for those who follow them. The latter's data name the post:
 * {"post":"…"}. No account is the subject of its own act: a like of one's own post has no subject.
 * The accounts that *.mentions name are in its data: {"to":["…"]} (TO_LISTED). follows.imported is
 * several follows of one account: whom it follows now is in its data (model/follow_all.h). */
/* clang-format off */
#define EVENT_TABLE(X)                                                                             \
    X(ACCOUNT_CREATED,   "account.created",   1, STORED)  /* account   -          -             */ \
    X(ACCOUNT_UPDATED,   "account.updated",   1, STORED)  /* account   -          -             */ \
    X(ACCOUNT_SUSPENDED, "account.suspended", 1, STORED)  /* account   -          -             */ \
    X(ACCOUNT_RESTORED,  "account.restored",  1, STORED)  /* account   -          -             */ \
    X(ACCOUNT_DELETED,   "account.deleted",   1, STORED)  /* account   -          -             */ \
    X(SESSION_ENDED,     "session.ended",     1, PASSING) /* account|key session|0|key -        */ \
    X(FOLLOW_CREATED,    "follow.created",    2, STORED)  /* follower  followee   -  followee   */ \
    X(FOLLOW_REMOVED,    "follow.removed",    2, STORED)  /* follower  followee   how it ended  */ \
    X(MUTE_CREATED,      "mute.created",      1, STORED)  /* muter     muted      -             */ \
    X(MUTE_REMOVED,      "mute.removed",      1, STORED)  /* muter     muted      -             */ \
    X(BLOCK_CREATED,     "block.created",     1, STORED)  /* blocker   blocked    -             */ \
    X(BLOCK_REMOVED,     "block.removed",     1, STORED)  /* blocker   blocked    -             */ \
    X(POST_CREATED,      "post.created",      1, STORED)  /* author    post       delivery      */ \
    X(POST_EDITED,       "post.edited",       1, STORED)  /* author    post       -             */ \
    X(POST_DELETED,      "post.deleted",      1, STORED)  /* author    post       delivery      */ \
    X(POST_LIKED,        "post.liked",        1, PASSING) /* liker     post       like_count    */ \
    X(POST_UNLIKED,      "post.unliked",      1, PASSING) /* liker     post       like_count    */ \
    X(POST_COMMENTED,    "post.commented",    1, PASSING) /* commenter post       comment_count */ \
    X(POST_UNCOMMENTED,  "post.uncommented",  1, PASSING) /* commenter post       comment_count */ \
    X(AUTHOR_BECAME_CELEBRITY, "author.became_celebrity", 1, STORED) /* author  -  followers */    \
    X(AUTHOR_CEASED_CELEBRITY, "author.ceased_celebrity", 1, STORED) /* author  -  followers */    \
    X(GROUP_CREATED,     "group.created",     1, STORED)  /* group     creator    its kind      */ \
    X(GROUP_MENTIONS,    "group.mentions",    1, STORED)  /* group     author     seq           */ \
    X(GROUP_MESSAGE,     "group.message",     1, STORED)  /* group     author     seq           */ \
    X(GROUP_ENTRY,       "group.entry",       1, STORED)  /* group     author     seq           */ \
    X(GROUP_JOINED,      "group.joined",      1, STORED)  /* group     member     seq           */ \
    X(GROUP_LEFT,        "group.left",        1, STORED)  /* group     member     seq; member   */ \
    X(GROUP_READ,        "group.read",        1, PASSING) /* group     reader     seq           */ \
    X(GROUP_UPDATED,     "group.updated",     1, PASSING) /* group     member|0   -             */ \
    X(LIKE_CREATED,      "like.created",      1, STORED)  /* liker     post       -  its author */ \
    X(LIKE_REMOVED,      "like.removed",      1, STORED)  /* liker     post       -  its author */ \
    X(COMMENT_CREATED,   "comment.created",   1, STORED)  /* commenter comment    -  the post's */ \
    X(COMMENT_DELETED,   "comment.deleted",   1, STORED)  /* commenter comment    -  the post's */ \
    X(POST_MENTIONS,     "post.mentions",     1, STORED)  /* author    post       -             */ \
    X(COMMENT_MENTIONS,  "comment.mentions",  1, STORED)  /* commenter comment    -             */ \
    X(FOLLOWS_IMPORTED,  "follows.imported",  1, STORED)  /* follower  -          how many      */

enum event_type {
#define EVENT_ENUM(name, wire, version, keep) EVENT_##name,
    EVENT_TABLE(EVENT_ENUM)
#undef EVENT_ENUM
    EVENT_TYPE_COUNT
};
/* clang-format on */

/* How a post reaches its readers; decided at posting, stored with the post, never changed. */
enum delivery { DELIVERY_PUSH = 0, DELIVERY_PULL = 1 };

/* How a follow ended: the value of FOLLOW_REMOVED since its version 2. */
enum follow_end {
    FOLLOW_ENDED_UNKNOWN = 0, /* an event of version 1 did not say */
    FOLLOW_ENDED_UNFOLLOW = 1,
    FOLLOW_ENDED_BLOCK = 2,
    FOLLOW_ENDED_ACCOUNT = 3, /* one of the two accounts was deleted */
};

struct post_card;

struct event {
    uint64_t id; /* time-ordered; given by outbox_emit */
    enum event_type type;
    uint16_t version;
    uint64_t actor;   /* whose act it is; events of one actor keep their order */
    uint64_t subject; /* the one other person whom it concerns: the author of the liked post, the
                         followed or mentioned person; 0: none */
    uint64_t object;
    int64_t value;
    struct str data; /* what its consumers need besides: a JSON object of at most EVENT_DATA_MAX
                        bytes, versioned with the type; empty: nothing. Set by the emitter, and for
                        the sinks and audiences of a rule with `reads_data`, during their call. Of
                        a type that is applied by it the emitter's memory lives until the commit
                        hook returns */
    const struct post_card *card; /* POST_CREATED, POST_EDITED: what became true, for the caches.
                                     Lives until the commit hook returns; never stored. */
};

/* Events of one transaction, in the order they were emitted. */
struct event_list {
    struct event *items;
    size_t count;
    size_t capacity;
};
void event_list_add(struct event_list *list, const struct event *e);
void event_list_clear(struct event_list *list);
void event_list_done(struct event_list *list);

const char *event_wire_name(enum event_type type);
uint16_t event_version(enum event_type type);
enum event_keep event_keep(enum event_type type);
bool event_type_parse(struct str wire_name, enum event_type *type);
/* Do the views need its data? Then the commit hook gets it, and whoever applies it again. */
bool event_is_applied_by_data(enum event_type type);

/* The payload column: {"actor":"…","object":"…","value":n,"subject":"…","data":{…}}; the last two
 * only where there is something to say. */
enum {
    EVENT_DATA_MAX = 512,
    EVENT_PAYLOAD_MAX = 176 + EVENT_DATA_MAX, /* four numbers of twenty digits, and their names */
};
void event_payload(const struct event *e, struct buf *out);

/* Why a row could not be read. */
enum event_unread {
    EVENT_READ,
    EVENT_UNKNOWN_TYPE,
    EVENT_UNKNOWN_VERSION, /* a newer one than this program knows */
    EVENT_DAMAGED,
};
const char *event_unread_name(enum event_unread why); /* "UNKNOWN_TYPE" … */

/* Reads a row of any known version and lifts it to the present one: each older version has a
 * function that leads to the next (the table of lifts in event.c). `out->version` is the present
 * one. On failure out->id alone is set: such an event is parked, never guessed. */
enum event_unread event_read(uint64_t id, struct str wire_name, int64_t version, struct str payload,
                             struct event *out);

/* The same with its data, which is a part of `payload`. */
enum event_unread event_read_whole(uint64_t id, struct str wire_name, int64_t version,
                                   struct str payload, struct event *out);

struct tx;
struct id_gen;

/* Makes `e` part of the transaction: gives it its id, unless the caller took one from tx->ids in
 * this run, because a row has to hold it; writes its outbox row when its type is STORED, and adds
 * it to the transaction's list for the commit hook. Defined in pipe/outbox.c, with the rest of the
 * outbox table's SQL. */
enum err outbox_emit(struct tx *tx, struct event e);
enum err outbox_emit_all(struct tx *tx, struct event *events, size_t n); /* … of several */
