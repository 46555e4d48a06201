/* Cached fields that a page is drawn from: posts, their authors, and which posts a person likes;
 * groups, and what a group is to one of its members.
 * Bounded; a driver may evict anything at any time, except that a post is gone: that mark stays for
 * TOMBSTONE_MS. Two drivers: in memory, Redis.
 *
 * Filling races with changing. So a reader takes a ticket *before* it reads truth and hands it
 * in with what it found; when the key was changed in between, the driver ignores the fill. A change
 * (applied after COMMIT) always wins over a fill that read before it.
 *
 * A card also carries fragments: what a renderer drew from the card's texts, one for each dialect
 * of the API. A driver does not look into them. Drawing a page then copies bytes instead of
 * escaping them again. A renderer begins a fragment with a version of its own, and draws anew what
 * it does not know.
 *
 * The contract, checked line by line in test/contract/cards_contract.c:
 *  1. A get after a put returns the fields that were put, or nothing (evicted), never something
 *     else.
 *  2. A fill with a ticket older than a change of the same key is ignored.
 *  3. After CARD_POST_GONE, no get finds the post: it reports CARD_GONE or CARD_MISSING, and no put
 *     brings it back for TOMBSTONE_MS.
 *  4. liked() answers for all ids given or says ERR_NEEDS_TRUTH.
 *  5. Memory stays under the stated budget.
 *  6. Every change (of a post, its counters, its being gone, an account, a like), also of what is
 *     not cached, gives its key another ticket before it returns; a fill, an attachment or an
 *     eviction does not. So equal tickets mean: nothing was changed that a get could show.
 *  7. write() does what its items say, in their order; a driver whose cards other processes change,
 *     too, sends them all at once.
 *  8. While suspect() is on no get finds anything and no fill is taken. Changes are written as
 * ever.
 *  9. A get returns, per dialect, the fragment that was attached last, or none. Each dialect has
 * its own.
 * 10. A fragment never outlives the texts it was drawn from: an attachment names the card it was
 *     drawn from and is ignored unless the driver holds exactly those texts; every put of other
 *     texts takes the fragments away. Counters are no part of a fragment and leave it alone.
 *     A post's fragment may tell of its author, too: it is attached with the author's ticket, taken
 *     before the author's card was read, and found only while that ticket is the same.
 * 11. A fragment may be lost at any time without harm; a driver may keep none at all.
 * 12. A member's card is found only while nothing was changed that it tells of: neither the
 *     membership (CARD_FORGET_MEMBER), nor all memberships of the group (CARD_FORGET_MEMBERS), nor
 *     the account of a chat's other member. Of one that is out of date `peer` is still told.
 *     Shared drivers keep no cards of groups and members: others would have to tell of changes. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/arena.h"
#include "base/err.h"
#include "base/str.h"

#define TOMBSTONE_MS (INT64_C(7) * 24 * 3600 * 1000)

enum { CARD_DIALECTS = 2 }; /* which renderer has which number: api/render/fragment.h */

struct cards;

typedef uint64_t card_ticket;

/* Texts are copied by a put, and are in the arena after a get. A put takes no fragments. */
struct post_card {
    uint64_t id;
    uint64_t author;
    uint32_t like_count;
    uint32_t comment_count;
    int64_t edited_at_ms; /* 0: never */
    uint8_t delivery;
    struct str caption;
    struct str fragments[CARD_DIALECTS];       /* {NULL, 0}: none */
    card_ticket author_tickets[CARD_DIALECTS]; /* with which they were attached */
};

/* What is shown of an account beside what it wrote. */
struct account_card {
    uint64_t id;
    struct str username, display_name, avatar_url; /* avatar_url {NULL, 0}: none */
    struct str fragments[CARD_DIALECTS];
};

/* A group as all its members see it, with its last message. Kinds are those of model/group.h. */
struct group_card {
    uint64_t id;
    uint8_t kind, history;
    bool has_last, last_deleted;
    int64_t member_count, seq, messages, last_seq;
    uint64_t last_id, last_author;
    int64_t last_created_at_ms, last_edited_at_ms;
    struct str name;
    struct str last_client_id, last_body; /* {NULL, 0}: none */
};

/* What a group is to one of its members. */
struct member_card {
    uint64_t group; /* 0 after a get: not cached, or out of date */
    uint64_t peer;  /* of a chat: the other one */
    uint64_t joined_id;
    int64_t joined_seq, read_seq, read_count, mentions;
    int64_t deleted;                         /* messages above the mark */
    card_ticket members_ticket, peer_ticket; /* cards_members_key(group), peer */
    uint8_t role;
    bool muted, archived;
    bool left;        /* not a member, and nothing else holds */
    bool peer_hidden; /* nothing is shown of the other one */
    bool stale;       /* of a fill: `peer` alone is known */
};

enum card_state { CARD_MISSING, CARD_FOUND, CARD_GONE };

/* One of many things to be written at once. */
enum card_write_kind {
    /* fills: what a reader found in truth */
    CARD_FILL_POST,    /* ticket, post */
    CARD_FILL_ACCOUNT, /* ticket, account */
    CARD_FILL_LIKES,   /* ticket, viewer, ids (falling), count, floor: complete above it; 0: all */
    CARD_FILL_GROUP,   /* ticket, group */
    CARD_FILL_MEMBERS, /* ticket (of cards_inbox_key), viewer, members, count */
    /* changes: what a transaction made true; they replace what is there, in commit order */
    CARD_CHANGE_POST,    /* post */
    CARD_POST_GONE,      /* id */
    CARD_FORGET_POST,    /* id: it changed, how is not known here */
    CARD_POST_COUNTS,    /* id, likes, comments; -1 leaves one as it is */
    CARD_FORGET_ACCOUNT, /* id */
    CARD_LIKE,           /* viewer, id, on */
    CARD_FORGET_GROUP,   /* id */
    CARD_FORGET_MEMBER,  /* viewer, id: what this group is to this member */
    CARD_FORGET_MEMBERS, /* id: what this group is to any of its members */
    /* attachments: what a renderer drew */
    CARD_ATTACH_POST,    /* post as it was got, dialect, fragment, ticket of the author */
    CARD_ATTACH_ACCOUNT, /* account as it was got, dialect, fragment */
};

struct card_write {
    enum card_write_kind kind;
    bool on;
    uint8_t dialect;
    card_ticket ticket;
    uint64_t id, viewer;
    int64_t likes, comments;
    const struct post_card *post;
    const struct account_card *account;
    const struct group_card *group;
    const struct member_card *members;
    struct str fragment; /* at least one byte */
    const uint64_t *ids;
    size_t count;
    uint64_t floor;
};

struct card_stats {
    uint64_t post_hits, post_misses, posts, accounts, like_sets, groups, member_sets, tombstones;
    uint64_t bytes, bytes_max;
};

struct cards_ops {
    uint64_t (*tickets)(struct cards *c, const uint64_t *keys, size_t n, card_ticket *out);
    void (*posts)(struct cards *c, const uint64_t *ids, size_t n, struct post_card *out,
                  enum card_state *state, struct arena *arena);
    void (*accounts)(struct cards *c, const uint64_t *ids, size_t n, struct account_card *out,
                     struct arena *arena);
    enum err (*liked)(struct cards *c, uint64_t viewer, const uint64_t *ids, size_t n, bool *out);
    void (*groups)(struct cards *c, const uint64_t *ids, size_t n, struct group_card *out,
                   struct arena *arena);
    void (*members)(struct cards *c, uint64_t account, const uint64_t *groups, size_t n,
                    struct member_card *out);
    void (*write)(struct cards *c, const struct card_write *writes, size_t n);
    void (*suspect)(struct cards *c, bool on);
    void (*stats)(struct cards *c, struct card_stats *out);
    void (*free)(struct cards *c);
};

struct cards {
    const struct cards_ops *ops;
    bool shared; /* other processes change the same cards: the number of changes is not known, and
                    cards_tickets never returns the same twice */
};

/* A person's likes are another thing than the person's card: ids leave the top bit free. */
static inline uint64_t cards_likes_key(uint64_t viewer)
{
    return viewer | UINT64_C(1) << 63;
}

/* What the groups of an account are to it, and what a group is to its members: people and groups
 * have their ids from one source, so the latter is no account's likes. */
static inline uint64_t cards_inbox_key(uint64_t account)
{
    return ~account;
}
static inline uint64_t cards_members_key(uint64_t group)
{
    return group | UINT64_C(1) << 63;
}

/* A key is the id of a post, an account or a group, or one of the above; take its ticket before
 * reading truth. Returns the number of changes of whatever key, as of before the tickets were
 * taken: as long as it stays the same no ticket becomes another, and no get tells of another state.
 * n may be 0. */
static inline uint64_t cards_tickets(struct cards *c, const uint64_t *keys, size_t n,
                                     card_ticket *out)
{
    return c->ops->tickets(c, keys, n, out);
}

static inline void cards_posts(struct cards *c, const uint64_t *ids, size_t n,
                               struct post_card *out, enum card_state *state, struct arena *arena)
{
    c->ops->posts(c, ids, n, out, state, arena);
}

/* out[i].id is 0 when the account is not cached. */
static inline void cards_accounts(struct cards *c, const uint64_t *ids, size_t n,
                                  struct account_card *out, struct arena *arena)
{
    c->ops->accounts(c, ids, n, out, arena);
}

static inline enum err cards_liked(struct cards *c, uint64_t viewer, const uint64_t *ids, size_t n,
                                   bool *out)
{
    return c->ops->liked(c, viewer, ids, n, out);
}

/* out[i].id is 0 when the group is not cached. */
static inline void cards_groups(struct cards *c, const uint64_t *ids, size_t n,
                                struct group_card *out, struct arena *arena)
{
    c->ops->groups(c, ids, n, out, arena);
}

static inline void cards_members(struct cards *c, uint64_t account, const uint64_t *groups,
                                 size_t n, struct member_card *out)
{
    c->ops->members(c, account, groups, n, out);
}

/* Nothing that is pointed to is needed afterwards. */
static inline void cards_write(struct cards *c, const struct card_write *writes, size_t n)
{
    c->ops->write(c, writes, n);
}

/* What the cards hold may be out of date: no get finds it until this is off again. */
static inline void cards_suspect(struct cards *c, bool on)
{
    c->ops->suspect(c, on);
}

static inline void cards_stats(struct cards *c, struct card_stats *out)
{
    c->ops->stats(c, out);
}
static inline void cards_free(struct cards *c)
{
    c->ops->free(c);
}
