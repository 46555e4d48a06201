/* Posts, likes, comments. */
#pragma once

#include "base/arena.h"
#include "port/cards.h"
#include "port/db.h"

enum { CAPTION_MAX_CHARS = 2200, COMMENT_MAX_CHARS = 2200, POST_EDITS_MAX = 50 };

struct post_new {
    uint64_t author;
    struct str caption;
    uint64_t id;                      /* 0: next id; imports give one */
    bool checked;                     /* post_check has passed it */
    struct account_card *author_card; /* gets the author as of this transaction; NULL: not asked */
};

/* Names the first statement of a job that runs post_create with author_card. */
void post_first_statement(struct db_job *job, uint64_t author);
/* What needs no store: `says` gets the detail and need be no transaction. */
enum err post_check(struct tx *says, const struct post_new *in);
/* Decides push or pull from the author's class, stores it, counts it, emits POST_CREATED with
 * the card (in `arena`). */
enum err post_create(struct tx *tx, const struct post_new *in, struct arena *arena,
                     struct post_card *out);
/* ERR_NOT_FOUND when missing, deleted, its author hidden, or a block lies between author and
 * viewer (0: anonymous). */
enum err post_get(struct tx *tx, uint64_t id, uint64_t viewer, struct arena *arena,
                  struct post_card *out);
/* Keeps the former caption in post_versions. ERR_FORBIDDEN: not the author's. */
enum err post_edit(struct tx *tx, uint64_t id, uint64_t editor, struct str caption, int64_t now_ms,
                   struct arena *arena, struct post_card *out);
/* Soft. By the author, or by an admin (editor 0). Deleting again: ERR_NOT_FOUND. */
enum err post_delete(struct tx *tx, uint64_t id, uint64_t editor, int64_t now_ms);

enum err post_like(struct tx *tx, uint64_t id, uint64_t viewer, bool on, int64_t now_ms,
                   bool *changed);
/* Without a look at who may see it: for an account that goes. */
enum err post_unlike(struct tx *tx, uint64_t id, uint64_t account, bool *changed);
/* By falling account id. */
enum err post_likes(struct tx *tx, uint64_t id, uint64_t viewer, uint64_t below, size_t limit,
                    struct arena *arena, struct account_card *out, size_t *n);

struct comment {
    uint64_t id, post;
    struct account_card author;
    struct str body;
};
/* `id`: 0: the next one; imports give one. */
enum err comment_create(struct tx *tx, uint64_t id, uint64_t post, uint64_t author, struct str body,
                        struct arena *arena, struct comment *out);
/* ERR_NOT_FOUND when it or its post is not there for this viewer. */
enum err comment_get(struct tx *tx, uint64_t id, uint64_t viewer, struct arena *arena,
                     struct comment *out);
/* oldest first */
enum err comment_list(struct tx *tx, uint64_t post, uint64_t viewer, uint64_t after, size_t limit,
                      struct arena *arena, struct comment *out, size_t *n);
/* The comment came (+1) or went (-1): moves the post's counter and emits both, where it stands now
 * and the fact. ERR_NOT_FOUND: the post is gone. */
enum err comment_count(struct tx *tx, uint64_t id, uint64_t post, uint64_t author, int64_t delta);
/* By its author or by the post's author. */
enum err comment_delete(struct tx *tx, uint64_t id, uint64_t editor, int64_t now_ms);

/* Ids of the author's posts below `below`, newest first, for profiles. */
enum err posts_by_author(struct tx *tx, uint64_t author, uint64_t below, size_t limit,
                         uint64_t *ids, size_t *n);

/* Reads the cards of `ids` from truth; missing and deleted ones are left out (state CARD_GONE). */
enum err posts_load(struct tx *tx, const uint64_t *ids, size_t n, struct arena *arena,
                    struct post_card *out, enum card_state *state);
