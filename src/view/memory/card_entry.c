/* One allocation per card: a put packs all texts behind the fields, a get copies them as a whole
 * and lets the texts of the copy point there. */
#include "view/memory/card_entry.h"

#include <stdlib.h>
#include <string.h>

/* ---- packing ---- */

/* Copies the text to `to` and lets it point there. A text may be absent: its pointer stays NULL. */
static char *pack(char *to, struct str *text)
{
    if (text->len > 0)
        memcpy(to, text->ptr, text->len);
    if (text->ptr)
        text->ptr = to;
    return to + text->len;
}

static void pack_fragments(char *to, struct str *fragments)
{
    for (size_t i = 0; i < CARD_DIALECTS; i++)
        to = pack(to, &fragments[i]);
}

/* What the entry will have; returns their bytes. */
static size_t choose_fragments(const struct str *present, const struct card_write *attach,
                               struct str all[CARD_DIALECTS])
{
    size_t bytes = 0;
    for (size_t i = 0; i < CARD_DIALECTS; i++) {
        all[i] = !attach                ? (struct str){NULL, 0}
                 : attach->dialect == i ? attach->fragment
                                        : present[i];
        bytes += all[i].len;
    }
    return bytes;
}

struct post_entry *post_entry_new(const struct post_card *card, const struct card_write *attach)
{
    struct str fragments[CARD_DIALECTS];
    size_t bytes = card->caption.len + choose_fragments(card->fragments, attach, fragments);
    struct post_entry *e = malloc(sizeof *e + bytes);
    if (!e)
        return NULL;
    e->base.key = card->id;
    e->bytes = bytes;
    e->card = *card;
    memcpy(e->card.fragments, fragments, sizeof fragments);
    if (attach)
        e->card.author_tickets[attach->dialect] = attach->ticket;
    pack_fragments(pack(e->text, &e->card.caption), e->card.fragments);
    return e;
}

struct account_entry *account_entry_new(const struct account_card *card,
                                        const struct card_write *attach)
{
    struct str fragments[CARD_DIALECTS];
    size_t bytes = card->username.len + card->display_name.len + card->avatar_url.len +
                   choose_fragments(card->fragments, attach, fragments);
    struct account_entry *e = malloc(sizeof *e + bytes);
    if (!e)
        return NULL;
    e->base.key = card->id;
    e->bytes = bytes;
    e->card = *card;
    memcpy(e->card.fragments, fragments, sizeof fragments);
    char *to = pack(e->text, &e->card.username);
    to = pack(pack(to, &e->card.display_name), &e->card.avatar_url);
    pack_fragments(to, e->card.fragments);
    return e;
}

struct group_entry *group_entry_new(const struct group_card *card)
{
    size_t bytes = card->name.len + card->last_client_id.len + card->last_body.len;
    struct group_entry *e = malloc(sizeof *e + bytes);
    if (!e)
        return NULL;
    e->base.key = card->id;
    e->bytes = bytes;
    e->card = *card;
    char *to = pack(e->text, &e->card.name);
    pack(pack(to, &e->card.last_client_id), &e->card.last_body);
    return e;
}

/* ---- getting ---- */

/* The texts lie one behind the other in the copy, as pack() laid them: this one is next. */
static const char *unpack(const char *at, struct str *text)
{
    text->ptr = text->ptr ? at : NULL;
    return at + text->len;
}

static void unpack_fragments(const char *at, struct str *fragments)
{
    for (size_t i = 0; i < CARD_DIALECTS; i++)
        at = unpack(at, &fragments[i]);
}

void post_entry_get(const struct post_entry *e, struct post_card *out, struct arena *arena)
{
    const char *copy = arena_str(arena, (struct str){e->text, e->bytes}).ptr;
    *out = e->card;
    unpack_fragments(unpack(copy, &out->caption), out->fragments);
}

void account_entry_get(const struct account_entry *e, struct account_card *out, struct arena *arena)
{
    const char *copy = arena_str(arena, (struct str){e->text, e->bytes}).ptr;
    *out = e->card;
    const char *at = unpack(unpack(copy, &out->username), &out->display_name);
    unpack_fragments(unpack(at, &out->avatar_url), out->fragments);
}

void group_entry_get(const struct group_entry *e, struct group_card *out, struct arena *arena)
{
    const char *copy = arena_str(arena, (struct str){e->text, e->bytes}).ptr;
    *out = e->card;
    const char *at = unpack(unpack(copy, &out->name), &out->last_client_id);
    unpack(at, &out->last_body);
}

bool account_entry_matches(const struct account_entry *e, const struct account_card *card)
{
    const struct account_card *held = &e->card;
    return str_eq(held->username, card->username) &&
           str_eq(held->display_name, card->display_name) &&
           str_eq(held->avatar_url, card->avatar_url) &&
           !held->avatar_url.ptr == !card->avatar_url.ptr;
}
