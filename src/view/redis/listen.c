/* Being told of changes.
 *
 * Redis tells whoever has read a key that it was changed (watch.h), so views here tell nobody by
 * themselves: a node reads the inboxes and timelines of the people it listens to in a trace, and
 * looks whether the trace is still the same. That works for changes by any node, and needs no list
 * of who listens where.
 *
 * What is in truth alone, a read mark for one, changes no key. For that each account has a key that
 * is written for the sake of the news and says nothing. It is read along with the inbox, also when
 * it does not exist, and goes by itself after a while, which is one more look in vain. */
#include "view/redis/engine.h"
#include "view/redis/watch.h"

enum { TOUCH_A_FLUSH = 1024, TOUCH_KEEP_MS = 30000 };

enum err redis_listen(struct views *v, uint64_t account, bool on)
{
    (void)v, (void)account, (void)on;
    return ERR_METHOD;
}

void queue_touch_read(struct batch *b, uint64_t account)
{
    struct key k;
    key_of_account(&k, KEY_TOUCH, account);
    batch_begin(b, k.slot, 2);
    batch_arg(b, STR("EXISTS"));
    batch_key(b, &k);
}

static enum err touch_some(struct batch *b, const uint64_t *accounts, size_t n)
{
    batch_reset(b);
    for (size_t i = 0; i < n; i++) {
        struct key k;
        key_of_account(&k, KEY_TOUCH, accounts[i]);
        batch_begin(b, k.slot, 5);
        batch_arg(b, STR("SET"));
        batch_arg(b, key_text(&k));
        batch_arg(b, STR("1"));
        batch_arg(b, STR("PX"));
        batch_arg_u64(b, TOUCH_KEEP_MS);
    }
    enum err e = batch_flush(b);
    return !e && !batch_all_good(b, NULL) ? ERR_UNAVAILABLE : e;
}

enum err redis_touch(struct views *v, const uint64_t *accounts, size_t n)
{
    struct redis_views *r = redis_of(v);
    struct batch *b = batch_borrow(r);
    enum err e = OK;
    for (size_t from = 0; !e && from < n; from += TOUCH_A_FLUSH)
        e = touch_some(b, accounts + from, n - from < TOUCH_A_FLUSH ? n - from : TOUCH_A_FLUSH);
    batch_return(r, b);
    return e;
}
