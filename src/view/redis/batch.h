/* A batch of commands: queued by slot, sent to all nodes at once, answered together.
 *
 * Every command must be one that can be run again: a batch that lost a connection sends what was
 * not answered once more. Commands of one slot are run in the order in which they were queued.
 * Belongs to one thread. */
#pragma once

#include "base/buf.h"
#include "base/check.h"
#include "port/inboxes.h"
#include "view/redis/connections.h"
#include "view/redis/reply.h"
#include "view/redis/script.h"

struct batch;

enum { BATCH_COMMANDS_MAX = 8192, BATCH_BYTES_MAX = 64 << 20 };

struct batch *batch_new(struct connections *l, void *owner);
void *batch_owner(const struct batch *b);
void batch_free(struct batch *b);
void batch_reset(struct batch *b); /* forgets commands and replies */

/* What a command is given: one argument, or several of a kind. */
enum arg_kind {
    ARG_TEXT,
    ARG_KEY,
    ARG_SIGNED,
    ARG_NUMBER,
    ARG_ID,    /* 19 digits */
    ARG_POST,  /* two arguments: score and 19 digits */
    ARG_ENTRY, /* of an inbox, two arguments: activity's score and group */
    ARG_EDGE,  /* two arguments: its event's score and the other account */
    ARG_BACK,  /* the same, with the other in 19 digits */
};

/* An edge of an account whose event is known. */
struct edge_event {
    uint64_t other, event;
};

struct arg {
    enum arg_kind kind;
    size_t count;
    const void *list; /* NULL: the one below */
    union {
        struct str text;
        struct key key;
        uint64_t value;
    };
};

#define arg_str(s)        ((struct arg){.kind = ARG_TEXT, .count = 1, .text = (s)})
#define arg_text(cstring) arg_str(str_of(cstring))
#define arg_key(k)        ((struct arg){.kind = ARG_KEY, .count = 1, .key = (k)})
#define arg_signed(n)     ((struct arg){.kind = ARG_SIGNED, .count = 1, .value = (uint64_t)(n)})
#define arg_number(n)     ((struct arg){.kind = ARG_NUMBER, .count = 1, .value = (n)})
#define arg_id(id)        ((struct arg){.kind = ARG_ID, .count = 1, .value = (id)})
#define arg_post(id)      ((struct arg){.kind = ARG_POST, .count = 1, .value = (id)})
#define arg_numbers(l, n) ((struct arg){.kind = ARG_NUMBER, .count = (n), .list = (l)})
#define arg_ids(l, n)     ((struct arg){.kind = ARG_ID, .count = (n), .list = (l)})
#define arg_posts(l, n)   ((struct arg){.kind = ARG_POST, .count = (n), .list = (l)})
#define arg_entries(l, n) ((struct arg){.kind = ARG_ENTRY, .count = (n), .list = (l)})
#define arg_edges(l, n)   ((struct arg){.kind = ARG_EDGE, .count = (n), .list = (l)})
#define arg_back(l, n)    ((struct arg){.kind = ARG_BACK, .count = (n), .list = (l)})
/* Keys: of an account, and of the bucket that knows it. */
#define arg_account(kind, account) arg_key(key_of_account((kind), (account)))
#define arg_people(account)        arg_key(key_of_people(account))

/* A list of arguments and its length. */
#define ARGS(...) (struct arg[]){__VA_ARGS__}, COUNT_OF(((struct arg[]){__VA_ARGS__}))

/* Queues a command, in the slot of its first key, and returns its number. batch_queue_script calls
 * a script: the keys come first; a node that does not know the script gets it. */
size_t batch_queue(struct batch *b, const char *word, const struct arg *args, size_t n);
size_t batch_queue_script(struct batch *b, enum script_id id, const struct arg *args, size_t n);
#define batch_command(b, word, ...) batch_queue((b), (word), ARGS(__VA_ARGS__))
#define batch_script(b, id, ...)    batch_queue_script((b), (id), ARGS(__VA_ARGS__))

/* Several commands that nothing comes between (MULTI … EXEC): batch_transaction, batch_also for
 * each of them, batch_commit. They count as one, answered by an array, or by an error while the
 * slot is on its way to another node. */
size_t batch_transaction(struct batch *b, uint16_t slot);
void batch_queue_also(struct batch *b, const char *word, const struct arg *args, size_t n);
#define batch_also(b, word, ...) batch_queue_also((b), (word), ARGS(__VA_ARGS__))
void batch_commit(struct batch *b);

/* To a node of its own choice, whatever the slot map says: for what every node is asked. */
void batch_at_node(struct batch *b, size_t command, unsigned node);
/* Before the first command: this batch only reads what a page is made of. If the calling thread has
 * a trace the keys are noted there, and read over connections that the invalidation listener
 * follows. A read that it cannot follow, or that fails, makes the trace not whole. */
void batch_invalidation(struct batch *b);
bool batch_is_traced(const struct batch *b); /* are they noted? */
/* The same for a caller that notes the keys itself, in traces of its own. After the flush: will the
 * invalidation listener hear of all that was read? */
void batch_track(struct batch *b);
bool batch_is_heard_of(const struct batch *b);

/* How to flush. */
enum {
    FLUSH_WAIT = 0,      /* for a failover, if it must be */
    FLUSH_HURRY = 1,     /* a node that is known to be away, or not ready, is not waited for */
    FLUSH_REPLICATE = 2, /* nodes that have a replica answer when it has what this batch wrote, or
                            after a moment: a removal that was answered should survive the master */
    FLUSH_GOOD = 4,      /* an error reply is logged and is ERR_UNAVAILABLE */
    FLUSH_PUSHED = 8,    /* as FLUSH_GOOD, but for WRONGTYPE: what is dropped is no sorted set */
};

/* OK: every command has a reply, which may be an error. ERR_UNAVAILABLE: some could not be
 * answered in time; they may have been run nevertheless. */
enum err batch_flush(struct batch *b, unsigned how);
/* Sends what is queued and returns; a batch_flush with the same `how` must follow, and reads the
 * replies. So that several batches are on their way at once. */
void batch_start(struct batch *b, unsigned how);
bool batch_is_replicated(const struct batch *b); /* after FLUSH_REPLICATE: did every one say so? */
size_t batch_count(const struct batch *b);

/* The replies, valid until batch_reset. */
const redisReply *batch_reply(const struct batch *b, size_t command);
bool batch_failed(const struct batch *b, size_t command); /* the reply is an error */
int64_t batch_integer(const struct batch *b, size_t command, int64_t otherwise);
struct str batch_text(const struct batch *b, size_t command);
bool batch_all_good(const struct batch *b); /* logs the first reply that is an error */
