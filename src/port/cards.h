/* Cached rows that a page is drawn from: posts, the account fragment of a post's author, and
 * which posts a person likes. Bounded; anything may be evicted at any time, except that a post
 * is gone: that mark stays for TOMBSTONE_MS. Two engines: in memory, Redis.
 *
 * Filling races with changing. So a reader takes a ticket *before* it reads truth and hands it
 * in with what it found; when the key was changed in between, the put is ignored. A change
 * (apply after COMMIT) always wins over a fill that read before it.
 *
 * The contract, checked line by line in test/contract/cards_contract.c:
 *  1. get after put returns what was put, or nothing (evicted), never something else.
 *  2. A put with a ticket older than a change of the same key is ignored.
 *  3. After post_gone(id) returned, no get finds the post: it reports CARD_GONE or CARD_MISSING,
 *     and no put brings it back for TOMBSTONE_MS.
 *  4. liked() answers for all ids given or says ERR_NEEDS_TRUTH.
 *  5. Memory stays under the stated budget.
 *  6. Every change (of a post, its counters, its being gone, an account, a like), also of what is
 *     not cached, gives its key another ticket before it returns; a fill or an eviction does not.
 *     So equal tickets mean: nothing was changed that a get could show.
 *  7. write() does what its items say, in their order; one that other processes change, too, sends
 *     them all at once.
 *  8. Of shared cards: while doubt() is on no get finds anything and no fill is taken. Changes are
 *     written as ever. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/arena.h"
#include "base/err.h"
#include "base/str.h"

#define TOMBSTONE_MS (INT64_C(7) * 24 * 3600 * 1000)

struct cards;

struct post_card {
    uint64_t id;
    uint64_t author;
    uint32_t like_count;
    uint32_t comment_count;
    int64_t edited_at_ms; /* 0: never */
    uint8_t delivery;
    struct str
        caption_json; /* escaped, without the quotes; copied by put, in the arena after get */
};

enum card_state { CARD_MISSING, CARD_FOUND, CARD_GONE };

typedef uint64_t card_ticket;

/* One of many things to be written at once. Those above the line are fills and name a ticket; those
 * below are changes. */
enum card_write_kind {
    CARD_FILL_POST,    /* ticket, card */
    CARD_FILL_ACCOUNT, /* ticket, id, json */
    /* ---- */
    CARD_CHANGE_POST,    /* card */
    CARD_POST_GONE,      /* id */
    CARD_FORGET_POST,    /* id: somebody changed it, how is not known here */
    CARD_POST_COUNTS,    /* id, likes, comments; -1 leaves one as it is */
    CARD_FORGET_ACCOUNT, /* id */
    CARD_LIKE,           /* viewer, id, on */
};

struct card_write {
    enum card_write_kind kind;
    bool on;
    card_ticket ticket;
    uint64_t id, viewer;
    int64_t likes, comments;
    const struct post_card *card;
    struct str json;
};

struct card_stats {
    uint64_t post_hits, post_misses, posts, accounts, like_sets, tombstones, bytes, bytes_max;
};

struct cards_ops {
    uint64_t (*tickets)(struct cards *c, const uint64_t *keys, size_t n, card_ticket *out);
    void (*posts)(struct cards *c, const uint64_t *ids, size_t n, struct post_card *out,
                  enum card_state *state, struct arena *arena);
    void (*put_post)(struct cards *c, card_ticket ticket, const struct post_card *card,
                     bool change);
    void (*post_gone)(struct cards *c, uint64_t id);
    void (*post_counts)(struct cards *c, uint64_t id, int64_t likes, int64_t comments);
    void (*accounts)(struct cards *c, const uint64_t *ids, size_t n, struct str *json,
                     struct arena *arena);
    void (*put_account)(struct cards *c, card_ticket ticket, uint64_t id, struct str json);
    void (*forget_account)(struct cards *c, uint64_t id);
    enum err (*liked)(struct cards *c, uint64_t viewer, const uint64_t *ids, size_t n, bool *out);
    void (*put_likes)(struct cards *c, card_ticket ticket, uint64_t viewer, const uint64_t *ids,
                      size_t n, uint64_t floor);
    void (*like)(struct cards *c, uint64_t viewer, uint64_t post, bool on);
    void (*write)(struct cards *c, const struct card_write *writes, size_t n);
    void (*doubt)(struct cards *c, bool on); /* of shared cards; NULL elsewhere */
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

/* `key`: the post id, the account id, or cards_likes_key(viewer). Take it before reading truth. */
static inline card_ticket cards_ticket(struct cards *c, uint64_t key)
{
    card_ticket ticket;
    (void)c->ops->tickets(c, &key, 1, &ticket);
    return ticket;
}

/* Many tickets at once. Returns the number of changes of whatever key, as of before the tickets
 * were taken: as long as it stays the same no ticket becomes another, and no get tells of
 * another state. n may be 0. */
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

/* A fill: what a reader found in truth. */
static inline void cards_put_post(struct cards *c, card_ticket ticket, const struct post_card *card)
{
    c->ops->put_post(c, ticket, card, false);
}

/* A change: what a transaction made true. Replaces what is there; invalidates tickets. */
static inline void cards_change_post(struct cards *c, const struct post_card *card)
{
    c->ops->put_post(c, 0, card, true);
}

static inline void cards_post_gone(struct cards *c, uint64_t id)
{
    c->ops->post_gone(c, id);
}

/* New counters of a post, in commit order; -1 leaves one as it is. */
static inline void cards_post_counts(struct cards *c, uint64_t id, int64_t likes, int64_t comments)
{
    c->ops->post_counts(c, id, likes, comments);
}

/* json[i]: {"id":…,"username":…,"display_name":…,"avatar_url":…}, or {NULL, 0} when not cached. */
static inline void cards_accounts(struct cards *c, const uint64_t *ids, size_t n, struct str *json,
                                  struct arena *arena)
{
    c->ops->accounts(c, ids, n, json, arena);
}

static inline void cards_put_account(struct cards *c, card_ticket ticket, uint64_t id,
                                     struct str json)
{
    c->ops->put_account(c, ticket, id, json);
}

static inline void cards_forget_account(struct cards *c, uint64_t id)
{
    c->ops->forget_account(c, id);
}

static inline enum err cards_liked(struct cards *c, uint64_t viewer, const uint64_t *ids, size_t n,
                                   bool *out)
{
    return c->ops->liked(c, viewer, ids, n, out);
}

/* The viewer's newest liked post ids (falling), complete above `floor` (0: all there are). */
static inline void cards_put_likes(struct cards *c, card_ticket ticket, uint64_t viewer,
                                   const uint64_t *ids, size_t n, uint64_t floor)
{
    c->ops->put_likes(c, ticket, viewer, ids, n, floor);
}

/* A change: the viewer likes the post now, or no longer. */
static inline void cards_like(struct cards *c, uint64_t viewer, uint64_t post, bool on)
{
    c->ops->like(c, viewer, post, on);
}

/* Many at once; nothing that is pointed to is needed afterwards. */
static inline void cards_write(struct cards *c, const struct card_write *writes, size_t n)
{
    c->ops->write(c, writes, n);
}

/* A change of a post that is not known in full: what is cached of it goes. */
static inline void cards_forget_post(struct cards *c, uint64_t id)
{
    c->ops->write(c, &(struct card_write){.kind = CARD_FORGET_POST, .id = id}, 1);
}

/* What the cards hold may be out of date, and is not looked at until this is off again. */
static inline void cards_doubt(struct cards *c, bool on)
{
    if (c->ops->doubt)
        c->ops->doubt(c, on);
}

static inline void cards_stats(struct cards *c, struct card_stats *out)
{
    c->ops->stats(c, out);
}
static inline void cards_free(struct cards *c)
{
    c->ops->free(c);
}
