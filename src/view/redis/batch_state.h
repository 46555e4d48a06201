/* The inside of a batch, shared by its two files: batch.c queues commands and reads replies,
 * batch_flush.c sends and receives. */
#pragma once

#include "base/arena.h"
#include "view/redis/batch.h"

enum { BATCH_READ_BYTES = 64 * 1024 };

struct command {
    size_t at; /* in b->text */
    uint32_t len;
    uint16_t slot;
    int16_t node; /* -1: the node that serves the slot */
    bool asking;  /* the node serves the slot only after ASKING */
    bool done;
    bool refused;  /* a part of this transaction was: the whole is sent again */
    uint8_t leads; /* replies that come before the one that counts */
    redisReply *reply;
};

/* One node's share of a round. */
struct lane {
    struct connection *c;
    redisReplyObjectFunctions *makes; /* the connection's own way to make replies */
    struct buf out;
    size_t sent;
    int32_t *queue; /* commands in the order in which they will be answered */
    size_t queued, answered, queue_max;
    int64_t moved_at_ms;
    bool failed, silent;
};

struct batch {
    struct connections *connections;
    struct buf text;
    struct command *commands;
    size_t count, commands_max;
    void *owner;
    bool not_replicated;
    struct invalidation *invalidation; /* keys are noted there; NULL: nowhere */
    bool needs_scripts[REDIS_NODES_MAX];
    struct lane *lanes[REDIS_NODES_MAX];
    unsigned used[REDIS_NODES_MAX]; /* nodes with a share in this round */
    size_t used_count;
    struct arena replies;    /* all of them, until batch_reset */
    bool tracked;            /* read over connections that the invalidation listener hears of … */
    bool unheard;            /* … or it was not possible */
    bool started, left_over; /* the first round is on its way, and what it could not reach */
    int64_t down_for_ms;
    char *in;
};

/* "*3\r\n" or "$3\r\n", and an argument. */
void batch_append_count(struct buf *b, char kind, size_t n);
void batch_append_arg(struct buf *b, struct str s);
/* Is the reply an error that begins with this word? */
bool batch_error_is(const redisReply *r, const char *word);
/* Something was read that the invalidation listener will not hear of. */
void batch_spoil(struct batch *b);
/* ---- batch_flush.c ---- */

/* Sends all that has no reply yet, as `how` says; errors as batch_flush. */
enum err batch_send(struct batch *b, unsigned how);
