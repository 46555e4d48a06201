/* Reading replies. What Redis sends is a peer's bytes: each of these looks at the type first, and
 * takes what is not there (NULL) for one of another type. */
#pragma once

#include <hiredis/hiredis.h>

#include "view/redis/keys.h"

static inline struct str reply_text(const redisReply *r)
{
    bool text = r && (r->type == REDIS_REPLY_STRING || r->type == REDIS_REPLY_STATUS);
    return text ? (struct str){r->str, r->len} : (struct str){NULL, 0};
}

static inline size_t reply_count(const redisReply *r)
{
    return r && r->type == REDIS_REPLY_ARRAY ? r->elements : 0;
}

static inline const redisReply *reply_element(const redisReply *r, size_t i)
{
    return i < reply_count(r) ? r->element[i] : NULL;
}

static inline bool reply_id(const redisReply *r, uint64_t *id) /* 19 digits */
{
    return id_from_digits(reply_text(r), id);
}

/* Ids of an array; at most `max`. */
static inline size_t reply_ids(const redisReply *r, uint64_t *ids, size_t max)
{
    size_t n = 0;
    for (size_t i = 0; i < reply_count(r) && n < max; i++)
        n += reply_id(r->element[i], &ids[n]);
    return n;
}

/* Decimal account ids of an array, from its element `from` on; 0 for an element that is none. */
static inline size_t reply_accounts(const redisReply *r, size_t from, uint64_t *accounts,
                                    size_t max)
{
    size_t n = 0;
    for (; from + n < reply_count(r) && n < max; n++)
        if (!str_parse_u64(reply_text(r->element[from + n]), &accounts[n]))
            accounts[n] = 0;
    return n;
}

/* The head of a list that is ready, as ZRANGE list 0 0 has it (script.c), and its floor. */
static inline bool reply_ready(const redisReply *r, uint64_t *floor)
{
    struct str head = reply_text(reply_element(r, 0));
    return head.len == 1 + ID_DIGITS && head.ptr[0] == 'r' &&
           id_from_digits((struct str){head.ptr + 1, ID_DIGITS}, floor);
}
