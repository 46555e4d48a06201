/* The inside of the Redis page source, shared by its two files: page_source.c reads candidates,
 * page_fill.c what a page shows of them. */
#pragma once

#include "base/map.h"
#include "port/page_source.h"
#include "view/redis/cards_driver.h"
#include "view/redis/driver.h"

enum {
    AUTHORS_KNOWN = 1 << 15,   /* posts whose author is remembered */
    CANDIDATES_AT_ONCE = 1500, /* a batch has room for the commands that so many cost a cluster */
    PULLED_MAX = 256,          /* lists for one viewer, and for all together */
    LISTS_MAX = 2048,
    NO_RELATION = UINT16_MAX,
};

struct redis_pages {
    struct page_source source;
    struct redis_views *views;
    struct redis_cards *cards;
    struct invalidation *invalidation;
    pthread_mutex_t lock; /* of what follows */
    struct known_author {
        uint64_t post, author;
    } known[AUTHORS_KNOWN];
};

/* What is read once for all pages that show it. */
struct page_post {
    uint64_t id, author; /* 0: not known yet */
    enum card_state state;
    struct post_card card;
};

struct page_account {
    uint64_t id;
    bool found, hidden;
    struct account_card card;
};

/* An author on a page. */
struct page_relation {
    uint32_t account; /* index */
    bool visible;
};

struct page_reader {
    struct page_read *read;
    bool alive; /* nothing stands against it so far */
    bool has_mutes;
    uint64_t *ids;
    size_t n;
    uint32_t *posts;      /* index, by candidate */
    uint16_t *relation;   /* index, by candidate */
    uint64_t *author_ids; /* by relation */
    struct page_relation *relations;
    size_t relation_count, asked;        /* relations that were asked before this round */
    size_t top, pulled, mutes, complete; /* commands */
    size_t followed, muted, hidden, liked;
    uint64_t *authors; /* whose lists are pulled */
    size_t author_count;
};

struct page_step {
    struct redis_pages *pages;
    struct arena *arena;
    struct batch *views, *cards; /* batches */
    bool traced;
    struct page_reader *readers;
    size_t n;
    struct map post_index, account_index; /* id → index */
    struct page_post *posts;
    struct page_account *accounts;
    uint64_t *account_ids;
    size_t post_count, account_count, accounts_asked;
    size_t hidden; /* the command, when there is one copy of that set */
};

/* Index by id; entries of the two maps above. */
struct page_index {
    uint64_t id;
    uint32_t at;
    bool fresh;
};

/* Notes the key in the reader's trace, if there is one. */
static inline void page_note(const struct page_step *s, const struct page_reader *p, struct key k)
{
    if (p->read->trace)
        invalidation_note_in(s->pages->invalidation, p->read->trace, key_text(&k));
}

/* ---- page_fill.c ---- */

void page_fill(struct page_step *s);
