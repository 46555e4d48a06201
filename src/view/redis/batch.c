/* Queueing commands and reading their replies. Commands are written in Redis's own form into one
 * buffer as they are queued; batch_flush.c sends them. */
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/log.h"
#include "view/redis/batch_state.h"

struct batch *batch_new(struct connections *l, void *owner)
{
    struct batch *b = calloc(1, sizeof *b);
    CHECK(b);
    b->connections = l;
    b->owner = owner;
    buf_init(&b->text, BATCH_BYTES_MAX);
    arena_init(&b->replies);
    b->in = malloc(BATCH_READ_BYTES);
    CHECK(b->in);
    return b;
}

void *batch_owner(const struct batch *b)
{
    return b->owner;
}

void batch_reset(struct batch *b)
{
    arena_reset(&b->replies);
    b->count = 0;
    b->not_replicated = b->tracked = b->unheard = b->started = false;
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
    arena_done(&b->replies);
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

static struct command *begin(struct batch *b, uint16_t slot)
{
    CHECK(b->count < BATCH_COMMANDS_MAX);
    if (b->count == b->commands_max) {
        b->commands_max = b->commands_max ? b->commands_max * 2 : 64;
        b->commands = realloc(b->commands, b->commands_max * sizeof *b->commands);
        CHECK(b->commands);
    }
    b->commands[b->count++] = (struct command){.at = b->text.len, .slot = slot, .node = -1};
    return last_of(b);
}

/* Everything since begin() is the command. */
static size_t end(struct batch *b)
{
    last_of(b)->len = (uint32_t)(b->text.len - last_of(b)->at);
    return b->count - 1;
}

static void append_number(struct batch *b, uint64_t n, bool negative)
{
    char digits[24], *at = digits + sizeof digits;
    do
        *--at = (char)('0' + n % 10);
    while ((n /= 10) > 0);
    if (negative)
        *--at = '-';
    batch_append_arg(&b->text, (struct str){at, (size_t)(digits + sizeof digits - at)});
}

static void append_id(struct batch *b, uint64_t id)
{
    char digits[ID_DIGITS];
    id_digits(id, digits);
    batch_append_arg(&b->text, (struct str){digits, sizeof digits});
}

static uint64_t value_at(const struct arg *a, size_t i)
{
    return a->list ? ((const uint64_t *)a->list)[i] : a->value;
}

static void append_one(struct batch *b, const struct arg *a, size_t i)
{
    switch (a->kind) {
    case ARG_TEXT:
        batch_append_arg(&b->text, a->text);
        break;
    case ARG_KEY:
        if (b->invalidation)
            invalidation_note(b->invalidation, key_text(&a->key));
        batch_append_arg(&b->text, key_text(&a->key));
        break;
    case ARG_SIGNED:
        append_number(b, (int64_t)a->value < 0 ? -a->value : a->value, (int64_t)a->value < 0);
        break;
    case ARG_NUMBER:
        append_number(b, value_at(a, i), false);
        break;
    case ARG_ID:
        append_id(b, value_at(a, i));
        break;
    case ARG_POST:
        append_number(b, id_score(value_at(a, i)), false);
        append_id(b, value_at(a, i));
        break;
    case ARG_ENTRY: {
        const struct inbox_entry *entry = (const struct inbox_entry *)a->list + i;
        append_number(b, event_score(entry->activity), false);
        append_id(b, entry->group);
        break;
    }
    case ARG_EDGE:
    case ARG_BACK: {
        const struct edge_event *edge = (const struct edge_event *)a->list + i;
        append_number(b, event_score(edge->event), false);
        if (a->kind == ARG_EDGE)
            append_number(b, edge->other, false);
        else
            append_id(b, edge->other);
        break;
    }
    }
}

/* `word` and what belongs to it, then the arguments. */
static void append(struct batch *b, const struct str *words, size_t count, const struct arg *args,
                   size_t n)
{
    size_t argc = count;
    for (size_t i = 0; i < n; i++)
        argc += args[i].kind >= ARG_POST ? 2 * args[i].count : args[i].count;
    batch_append_count(&b->text, '*', argc);
    for (size_t i = 0; i < count; i++)
        batch_append_arg(&b->text, words[i]);
    for (size_t i = 0; i < n; i++)
        for (size_t k = 0; k < args[i].count; k++)
            append_one(b, &args[i], k);
}

size_t batch_queue(struct batch *b, const char *word, const struct arg *args, size_t n)
{
    size_t key = 0;
    while (key < n && args[key].kind != ARG_KEY)
        key++;
    begin(b, key < n ? args[key].key.slot : 0);
    append(b, &(struct str){word, strlen(word)}, 1, args, n);
    return end(b);
}

size_t batch_queue_script(struct batch *b, enum script_id id, const struct arg *args, size_t n)
{
    char keys = '0';
    for (size_t i = 0; i < n && args[i].kind == ARG_KEY; i++)
        keys++;
    CHECK(keys > '0' && keys <= '9');
    begin(b, args[0].key.slot);
    append(b, (struct str[]){STR("EVALSHA"), script_name(id), {&keys, 1}}, 3, args, n);
    return end(b);
}

size_t batch_transaction(struct batch *b, uint16_t slot)
{
    begin(b, slot)->leads = 1;
    append(b, &STR("MULTI"), 1, NULL, 0);
    return end(b);
}

void batch_queue_also(struct batch *b, const char *word, const struct arg *args, size_t n)
{
    append(b, &(struct str){word, strlen(word)}, 1, args, n);
    last_of(b)->leads++;
}

void batch_commit(struct batch *b)
{
    append(b, &STR("EXEC"), 1, NULL, 0);
    end(b);
}

void batch_at_node(struct batch *b, size_t command, unsigned node)
{
    b->commands[command].node = (int16_t)node;
}

void batch_invalidation(struct batch *b)
{
    struct invalidation *w = connections_invalidation(b->connections);
    CHECK(b->count == 0);
    b->invalidation = invalidation_traces(w) ? w : NULL;
    b->tracked = b->invalidation != NULL;
}

void batch_track(struct batch *b)
{
    b->tracked = true;
}

bool batch_is_heard_of(const struct batch *b)
{
    return b->tracked && !b->unheard;
}

bool batch_is_traced(const struct batch *b)
{
    return invalidation_traces(b->invalidation);
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
    return reply_text(batch_reply(b, command));
}

static bool all_good(const struct batch *b, const char *but)
{
    for (size_t i = 0; i < b->count; i++) {
        const redisReply *r = b->commands[i].reply;
        if (!r || r->type != REDIS_REPLY_ERROR || (but && batch_error_is(r, but)))
            continue;
        log_error("Redis answers with an error", LOG_STR("error", ((struct str){r->str, r->len})));
        err_cause_set(r->str);
        return false;
    }
    return true;
}

bool batch_all_good(const struct batch *b)
{
    return all_good(b, NULL);
}

void batch_spoil(struct batch *b)
{
    b->unheard = true;
    invalidation_spoil(b->invalidation);
}

enum err batch_flush(struct batch *b, unsigned how)
{
    enum err e = batch_send(b, how);
    bool failed = e != OK;
    for (size_t i = 0; b->tracked && !failed && i < b->count; i++)
        failed = batch_failed(b, i);
    if (failed)
        batch_spoil(b);
    if (!e && how & (FLUSH_GOOD | FLUSH_PUSHED) &&
        !all_good(b, how & FLUSH_PUSHED ? "WRONGTYPE" : NULL))
        e = ERR_UNAVAILABLE;
    return e;
}
