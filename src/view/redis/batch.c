/* Queueing commands and reading their replies. Commands are written in Redis's own form into one
 * buffer as they are queued; how they are sent is told in batch_flush.c. */
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/log.h"
#include "view/redis/batch_state.h"
#include "view/redis/script.h"
#include "view/redis/slot.h"

struct batch *batch_new(struct connections *l)
{
    struct batch *b = calloc(1, sizeof *b);
    CHECK(b);
    b->connections = l;
    buf_init(&b->text, BATCH_BYTES_MAX);
    b->in = malloc(BATCH_READ_BYTES);
    CHECK(b->in);
    return b;
}

void batch_reset(struct batch *b)
{
    for (size_t i = 0; i < b->count; i++)
        if (b->commands[i].reply)
            freeReplyObject(b->commands[i].reply);
    b->count = 0;
    b->replicate = b->hurry = b->not_replicated = false;
    b->invalidation = NULL;
    buf_clear(&b->text);
}

void batch_free(struct batch *b)
{
    if (!b)
        return;
    batch_reset(b);
    for (size_t i = 0; i < REDIS_NODES_MAX; i++) {
        if (!b->lanes[i])
            continue;
        buf_done(&b->lanes[i]->out);
        free(b->lanes[i]->queue);
        free(b->lanes[i]);
    }
    buf_done(&b->text);
    free(b->commands);
    free(b->in);
    free(b);
}

/* ---- queueing ---- */

/* "*3\r\n" or "$3\r\n" */
void batch_append_count(struct buf *b, char kind, size_t n)
{
    char digits[24], *at = digits + sizeof digits;
    *--at = '\n';
    *--at = '\r';
    do
        *--at = (char)('0' + n % 10);
    while ((n /= 10) > 0);
    *--at = kind;
    buf_append(b, at, (size_t)(digits + sizeof digits - at));
}

void batch_append_arg(struct buf *b, struct str s)
{
    batch_append_count(b, '$', s.len);
    buf_append(b, s.ptr, s.len);
    buf_append(b, "\r\n", 2);
}

static struct command *last_of(struct batch *b)
{
    return &b->commands[b->count - 1];
}

size_t batch_begin(struct batch *b, uint16_t slot, unsigned argc)
{
    CHECK(b->count < BATCH_COMMANDS_MAX);
    if (b->count == b->commands_max) {
        b->commands_max = b->commands_max ? b->commands_max * 2 : 64;
        b->commands = realloc(b->commands, b->commands_max * sizeof *b->commands);
        CHECK(b->commands);
    }
    b->commands[b->count++] = (struct command){.at = b->text.len, .slot = slot, .node = -1};
    batch_append_count(&b->text, '*', argc);
    last_of(b)->len = (uint32_t)(b->text.len - last_of(b)->at);
    return b->count - 1;
}

void batch_arg(struct batch *b, struct str s)
{
    batch_append_arg(&b->text, s);
    last_of(b)->len = (uint32_t)(b->text.len - last_of(b)->at);
}

void batch_key(struct batch *b, const struct key *k)
{
    if (b->invalidation)
        invalidation_note(b->invalidation, key_text(k));
    batch_arg(b, key_text(k));
}

size_t batch_transaction(struct batch *b, uint16_t slot)
{
    size_t command = batch_begin(b, slot, 1);
    batch_arg(b, STR("MULTI"));
    last_of(b)->leads = 1;
    return command;
}

void batch_also(struct batch *b, unsigned argc)
{
    batch_append_count(&b->text, '*', argc);
    last_of(b)->leads++;
}

void batch_commit(struct batch *b)
{
    batch_append_count(&b->text, '*', 1);
    batch_arg(b, STR("EXEC"));
}

void batch_arg_u64(struct batch *b, uint64_t n)
{
    char digits[20], *at = digits + sizeof digits;
    do
        *--at = (char)('0' + n % 10);
    while ((n /= 10) > 0);
    batch_arg(b, (struct str){at, (size_t)(digits + sizeof digits - at)});
}

void batch_arg_i64(struct batch *b, int64_t n)
{
    char digits[24];
    int len = snprintf(digits, sizeof digits, "%lld", (long long)n);
    batch_arg(b, (struct str){digits, (size_t)len});
}

void batch_arg_script(struct batch *b, const struct script *s)
{
    batch_arg(b, STR("EVALSHA"));
    batch_arg(b, script_name(s));
}

void batch_at_node(struct batch *b, size_t command, unsigned node)
{
    b->commands[command].node = (int16_t)node;
}

void batch_replicate(struct batch *b)
{
    b->replicate = true;
}

void batch_hurry(struct batch *b)
{
    b->hurry = true;
}

void batch_invalidation(struct batch *b)
{
    struct invalidation *w = connections_invalidation(b->connections);
    CHECK(b->count == 0);
    b->invalidation = invalidation_traces(w) ? w : NULL;
}

bool batch_is_replicated(const struct batch *b)
{
    return !b->not_replicated;
}

size_t batch_count(const struct batch *b)
{
    return b->count;
}

/* ---- replies ---- */

bool batch_error_is(const redisReply *r, const char *word)
{
    size_t n = strlen(word);
    return r->len >= n && memcmp(r->str, word, n) == 0 && (r->len == n || r->str[n] == ' ');
}

const redisReply *batch_reply(const struct batch *b, size_t command)
{
    CHECK(command < b->count && b->commands[command].reply);
    return b->commands[command].reply;
}

bool batch_failed(const struct batch *b, size_t command)
{
    return batch_reply(b, command)->type == REDIS_REPLY_ERROR;
}

int64_t batch_integer(const struct batch *b, size_t command, int64_t otherwise)
{
    const redisReply *r = batch_reply(b, command);
    return r->type == REDIS_REPLY_INTEGER ? r->integer : otherwise;
}

struct str batch_text(const struct batch *b, size_t command)
{
    const redisReply *r = batch_reply(b, command);
    return r->type == REDIS_REPLY_STRING || r->type == REDIS_REPLY_STATUS
               ? (struct str){r->str, r->len}
               : (struct str){NULL, 0};
}

bool batch_all_good(const struct batch *b, const char *but)
{
    for (size_t i = 0; i < b->count; i++) {
        const redisReply *r = b->commands[i].reply;
        if (!r || r->type != REDIS_REPLY_ERROR || (but && batch_error_is(r, but)))
            continue;
        log_error("Redis answers with an error", LOG_STR("error", ((struct str){r->str, r->len})));
        return false;
    }
    return true;
}

enum err batch_flush_good(struct batch *b, const char *but)
{
    enum err e = batch_flush(b);
    return !e && !batch_all_good(b, but) ? ERR_UNAVAILABLE : e;
}
