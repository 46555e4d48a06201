/* A batch of commands: queued by slot, sent to all nodes at once, answered together.
 *
 * Every command must be one that can be run again: a batch that lost a connection sends what was
 * not answered once more. Commands of one slot are run in the order in which they were queued.
 * Belongs to one thread. */
#pragma once

#include "base/buf.h"
#include "view/redis/connections.h"
#include "view/redis/keys.h"

struct batch;
struct script;

enum { BATCH_COMMANDS_MAX = 8192, BATCH_BYTES_MAX = 64 << 20 };

struct batch *batch_new(struct connections *l);
void batch_free(struct batch *b);
void batch_reset(struct batch *b); /* forgets commands and replies */

/* batch_begin, `argc` times batch_arg…, and the command is queued; its number is returned. */
size_t batch_begin(struct batch *b, uint16_t slot, unsigned argc);
void batch_arg(struct batch *b, struct str s);
void batch_key(struct batch *b, const struct key *k); /* an argument that is a key */
void batch_arg_u64(struct batch *b, uint64_t n);
void batch_arg_i64(struct batch *b, int64_t n);

/* Several commands that nothing comes between (MULTI … EXEC): batch_transaction, for each of them
 * batch_also and its arguments, batch_commit. They count as one, answered by an array, or by an
 * error while the slot is on its way to another node. */
size_t batch_transaction(struct batch *b, uint16_t slot);
void batch_also(struct batch *b, unsigned argc);
void batch_commit(struct batch *b);

/* The two arguments that call a script: EVALSHA and its name. Then come the number of keys, the
 * keys, the rest. A node that does not know the script is told. */
void batch_arg_script(struct batch *b, const struct script *s);

/* To a node of its own choice, whatever the slot map says: for what every node is asked. */
void batch_at_node(struct batch *b, size_t command, unsigned node);
/* Nodes that have a replica tell when it has what this batch wrote, within a moment; a removal
 * that was answered should survive the master. */
void batch_replicate(struct batch *b);
bool batch_is_replicated(const struct batch *b); /* after the flush: did every one say so? */

/* For those who can do without an answer: a node that is known to be away, or not ready, is not
 * waited for. */
void batch_hurry(struct batch *b);

/* Before the first command: this batch only reads what a page is made of, and names its keys by
 * batch_key. If the calling thread has a trace they are noted there, and read over connections that
 * the invalidation listener hears of. What cannot be heard of, or is answered by an error, makes
 * the trace not whole. */
void batch_invalidation(struct batch *b);

/* OK: every command has a reply, which may be an error. ERR_UNAVAILABLE: some could not be
 * answered in time; they may have been run nevertheless. */
enum err batch_flush(struct batch *b);
/* As batch_flush; an error reply other than `but` (may be NULL) is logged and is
 * ERR_UNAVAILABLE. */
enum err batch_flush_good(struct batch *b, const char *but);
size_t batch_count(const struct batch *b);

/* The replies, valid until batch_reset. Each looks at the type first: what Redis sends is a peer's
 * bytes. */
const redisReply *batch_reply(const struct batch *b, size_t command);
bool batch_failed(const struct batch *b, size_t command); /* the reply is an error */
int64_t batch_integer(const struct batch *b, size_t command, int64_t otherwise);
struct str batch_text(const struct batch *b, size_t command);
/* Logs the first reply that is an error other than `but` (may be NULL). False: there was one. */
bool batch_all_good(const struct batch *b, const char *but);
