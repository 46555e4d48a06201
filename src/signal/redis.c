/* The signal between nodes, over Redis: one stream, which is cut off at its old end. Every node
 * that holds connections reads all of it, because no node knows where a person is connected; what
 * it costs is eight bytes a receiver. An entry holds the messages of one publish(), as binary text.
 *
 * A consumer begins at an entry of its own, a mark without messages, so that there is always a last
 * entry that it knows. Each read waits behind that entry for the next ones, and then looks whether
 * the known entry is still there. If it is, nothing behind it was cut off before the read: entries
 * leave in their order. If not, the consumer was too late, or the stream is another one (a flush, a
 * replica that did not have it all): something may be missing, and the consumer begins anew. */
#include "signal/redis.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "view/redis/client.h"

enum {
    KEEP_ENTRIES = 4096,
    READ_ENTRIES = 64,
    ENTRY_ID_MAX = 48,
    ENTRY_BYTES_MAX = 1 << 20,
    MESSAGES_MAX = 1024,
};

/* The fields of an entry: its messages, and a random number. A stream that was lost begins anew and
 * may give an id of the old one again, within a millisecond. */
#define FIELD_MESSAGES "m"
#define FIELD_NONCE    "n"

struct redis_signal {
    struct signal signal;
    struct client client;
    /* the consumer's */
    char last[ENTRY_ID_MAX]; /* the last entry that was read; "": none yet … */
    uint64_t last_nonce;     /* … and its random number */
    uint64_t *receivers;     /* of the entry that is being read */
    size_t receivers_cap;
};

/* ---- entries ---- */

struct head {
    uint64_t kind, key;
    int64_t seq;
    uint64_t n;
};

static void write_messages(struct buf *out, const struct signal_message *messages, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        const struct signal_message *m = &messages[i];
        struct head head = {m->kind, m->key, m->seq, m->n};
        buf_str(out, (struct str){(const char *)&head, sizeof head});
        if (m->n > 0)
            buf_str(out, (struct str){(const char *)m->receivers, m->n * sizeof *m->receivers});
    }
}

static void reserve(struct redis_signal *s, size_t n)
{
    if (n <= s->receivers_cap)
        return;
    s->receivers = realloc(s->receivers, n * sizeof *s->receivers);
    CHECK(s->receivers); /* no more than Redis has just sent */
    s->receivers_cap = n;
}

/* Text is not aligned: the receivers are copied out. False: this is not what we write. */
static bool pass_on(struct redis_signal *s, struct str text)
{
    struct signal_message messages[MESSAGES_MAX];
    size_t n = 0, taken = 0;
    reserve(s, text.len / sizeof(uint64_t) + 1);
    while (text.len > 0 && n < MESSAGES_MAX) {
        struct head head;
        if (text.len < sizeof head)
            return false;
        memcpy(&head, text.ptr, sizeof head);
        text = (struct str){text.ptr + sizeof head, text.len - sizeof head};
        if (head.n > text.len / sizeof(uint64_t) || head.kind == 0 || head.kind >= SIGNAL_KINDS)
            return false;
        size_t bytes = (size_t)head.n * sizeof(uint64_t);
        messages[n++] = (struct signal_message){(enum signal_kind)head.kind, head.key, head.seq,
                                                s->receivers + taken, (size_t)head.n};
        memcpy(s->receivers + taken, text.ptr, bytes);
        taken += (size_t)head.n;
        text = (struct str){text.ptr + bytes, text.len - bytes};
    }
    if (n > 0 && s->signal.received)
        s->signal.received(s->signal.received_ctx, messages, n);
    return text.len == 0;
}

static void queue_entry(struct batch *b, struct str text, uint64_t nonce)
{
    batch_command(b, "XADD", arg_key(SIGNAL_KEY), arg_text("MAXLEN"), arg_text("~"),
                  arg_number(KEEP_ENTRIES), arg_text("*"), arg_text(FIELD_MESSAGES), arg_str(text),
                  arg_text(FIELD_NONCE), arg_number(nonce));
}

/* ---- publishing ---- */

static enum err publish(struct signal *base, const struct signal_message *messages, size_t n)
{
    struct redis_signal *s = CONTAINER_OF(base, struct redis_signal, signal);
    if (n == 0)
        return OK;
    BORROWED struct batch *b = batch_borrow(&s->client);
    for (size_t from = 0, some; from < n; from += some) {
        struct buf text;
        buf_init(&text, ENTRY_BYTES_MAX);
        some = n - from < MESSAGES_MAX ? n - from : MESSAGES_MAX;
        write_messages(&text, messages + from, some);
        queue_entry(b, buf_view(&text), client_random(&s->client));
        bool failed = text.failed;
        buf_done(&text);
        if (failed)
            return ERR_TOO_LARGE;
    }
    return batch_flush(b, FLUSH_GOOD);
}

/* ---- consuming ---- */

static bool note_last(struct redis_signal *s, struct str id, uint64_t nonce)
{
    if (id.len == 0 || id.len >= sizeof s->last)
        return false;
    memcpy(s->last, id.ptr, id.len);
    s->last[id.len] = '\0';
    s->last_nonce = nonce;
    return true;
}

static bool read_nonce(const redisReply *entry, uint64_t *nonce)
{
    return str_parse_u64(reply_text(reply_element(reply_element(entry, 1), 3)), nonce);
}

static enum err begin(struct redis_signal *s)
{
    BORROWED struct batch *b = batch_borrow(&s->client);
    uint64_t nonce = client_random(&s->client);
    queue_entry(b, STR(""), nonce);
    enum err e = batch_flush(b, FLUSH_HURRY | FLUSH_GOOD);
    return !e && !note_last(s, batch_text(b, 0), nonce) ? ERR_UNAVAILABLE : e;
}

/* [[key, [[id, [field, text, field, nonce]], …]]] or nil. False: not what we write; it counts as
 * missed. */
static bool read_entries(struct redis_signal *s, const redisReply *r)
{
    const redisReply *entries = reply_element(reply_element(r, 0), 1);
    bool good = true;
    for (size_t i = 0; i < reply_count(entries); i++) {
        const redisReply *entry = entries->element[i];
        uint64_t nonce;
        good &= read_nonce(entry, &nonce) &&
                pass_on(s, reply_text(reply_element(reply_element(entry, 1), 1))) &&
                note_last(s, reply_text(reply_element(entry, 0)), nonce);
    }
    return good;
}

static enum err read_on(struct redis_signal *s, int64_t wait_ms, bool *missed)
{
    BORROWED struct batch *b = batch_borrow(&s->client);
    batch_command(b, "XREAD", arg_text("COUNT"), arg_number(READ_ENTRIES), arg_text("BLOCK"),
                  arg_number((uint64_t)(wait_ms > 0 ? wait_ms : 1)), arg_text("STREAMS"),
                  arg_key(SIGNAL_KEY), arg_text(s->last));
    batch_command(b, "XRANGE", arg_key(SIGNAL_KEY), arg_text(s->last), arg_text(s->last));
    TRY(batch_flush(b, FLUSH_HURRY | FLUSH_GOOD));
    uint64_t nonce;
    const redisReply *known = reply_element(batch_reply(b, 1), 0);
    *missed = !read_nonce(known, &nonce) || nonce != s->last_nonce;
    if (!*missed)
        *missed = !read_entries(s, batch_reply(b, 0));
    return OK;
}

static enum err consume(struct signal *base, int64_t wait_ms, bool *missed)
{
    struct redis_signal *s = CONTAINER_OF(base, struct redis_signal, signal);
    *missed = false;
    if (s->last[0])
        TRY(read_on(s, wait_ms, missed));
    else
        *missed = true;
    if (!*missed)
        return OK;
    s->last[0] = '\0';
    return begin(s);
}

static void reset(struct signal *base)
{
    CONTAINER_OF(base, struct redis_signal, signal)->last[0] = '\0';
}

/* ---- life ---- */

static void redis_free(struct signal *base)
{
    struct redis_signal *s = CONTAINER_OF(base, struct redis_signal, signal);
    client_close(&s->client);
    free(s->receivers);
    free(s);
}

static const struct signal_ops redis_ops = {
    .publish = publish, .consume = consume, .reset = reset, .free = redis_free};

enum err signal_redis_open(const struct redis_config *config, struct signal **out)
{
    struct redis_signal *s = calloc(1, sizeof *s);
    CHECK(s);
    enum err e = client_open(&s->client, config);
    if (e) {
        free(s);
        return e;
    }
    s->signal.ops = &redis_ops;
    s->signal.remote = true;
    *out = &s->signal;
    return OK;
}
