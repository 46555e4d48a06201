/* The order keys of the inflight set: which work item of a key is at work, which ones wait behind
 * it, and which keys are blocked by a delivery in the delivery store.
 *
 * Of one order key at most one work item is READY or RUNNING; while a key is blocked that one is a
 * retry's. */
#include "base/check.h"
#include "pipe/inflight_lists.h"

/* ---- under the lock ---- */

/* The lane whose order the work item keeps is its rule's own, also in a replay. */
bool inflight_is_ordered(const struct inflight *f, const struct work_item *u)
{
    return u->rule != RULE_NONE && lane_is_ordered(f->rules[u->rule].lane);
}

static struct order_key *key_of(struct inflight *f, const struct work_item *u)
{
    return order_get(&f->order, (uint8_t)f->rules[u->rule].lane,
                     inflight_slot(f, u->slot)->event.actor);
}

/* Decides what a new work item may do. A retry is the delivery that its key waits
 * for. */
void inflight_admit(struct inflight *f, uint32_t item)
{
    struct work_item *u = item_at(f, item);
    if (u->rule == RULE_NONE) {
        inflight_block_item(f, item);
        return;
    }
    if (!inflight_is_ordered(f, u)) {
        inflight_make_ready(f, item);
        return;
    }
    if (inflight_slot(f, u->slot)->ahead) {
        item_set_state(f, u, ITEM_QUEUED);
        push_back(f, &f->later, item);
        return;
    }
    struct order_key *key = key_of(f, u);
    uint8_t kind = inflight_slot(f, u->slot)->kind;
    if (kind == SLOT_RETRY || kind == SLOT_FORCED) {
        CHECK(key->at_work == ORDER_NONE);
        order_block(&f->order, key, true);
        key->at_work = item;
        inflight_make_ready(f, item);
    } else if (key->blocked) {
        key->to_record++;
        inflight_block_item(f, item);
    } else if (key->at_work != ORDER_NONE) {
        item_set_state(f, u, ITEM_QUEUED);
        push_back(f, &key->queue, item);
    } else {
        key->at_work = item;
        inflight_make_ready(f, item);
    }
}

static void block_queue(struct inflight *f, struct order_key *key)
{
    for (uint32_t item; (item = pop_front(f, &key->queue)) != INFLIGHT_NONE; key->to_record++)
        inflight_block_item(f, item);
}

/* A work item leaves: what its key does next. True: another work item is ready now. */
bool inflight_pass_on(struct inflight *f, uint32_t item, enum exit_how how)
{
    struct work_item *u = item_at(f, item);
    if (!inflight_is_ordered(f, u))
        return false;
    struct order_key *key = key_of(f, u);
    if (u->state == ITEM_BLOCKED) {
        CHECK(key->to_record > 0);
        key->to_record--;
        return false;
    }
    CHECK(key->at_work == item);
    key->at_work = ORDER_NONE;
    if (how == EXIT_RECORDED)
        order_block(&f->order, key, true);
    if (key->blocked) {
        block_queue(f, key);
        return false;
    }
    uint32_t next = pop_front(f, &key->queue);
    if (next == INFLIGHT_NONE) {
        order_drop(&f->order, key);
        return false;
    }
    key->at_work = next;
    inflight_make_ready(f, next);
    return true;
}

bool inflight_key_is_busy(struct inflight *f, const struct out_of_band_event *a)
{
    if (a->kind != SLOT_RETRY && a->kind != SLOT_FORCED)
        return false;
    const struct rule *rule = &f->rules[a->rule];
    const struct order_key *key = lane_is_ordered(rule->lane)
                                      ? order_find(&f->order, (uint8_t)rule->lane, a->event.actor)
                                      : NULL;
    return key && key->at_work != ORDER_NONE;
}

/* ---- as the delivery store sees them ---- */

void inflight_block_key(struct inflight *f, enum lane lane, uint64_t key)
{
    pthread_mutex_lock(&f->lock);
    order_block(&f->order, order_get(&f->order, (uint8_t)lane, key), true);
    pthread_mutex_unlock(&f->lock);
}

/* Otherwise what is blocked will be in the delivery store in a moment. */
static bool may_go_on(const struct order_key *key)
{
    return key->blocked && key->to_record == 0 && key->at_work == ORDER_NONE;
}

void inflight_unblock_key(struct inflight *f, enum lane lane, uint64_t key)
{
    pthread_mutex_lock(&f->lock);
    struct order_key *k = order_find(&f->order, (uint8_t)lane, key);
    if (k && may_go_on(k))
        order_drop(&f->order, k);
    pthread_mutex_unlock(&f->lock);
}

struct recheck {
    struct order *order;
    bool (*is_open)(void *ctx, enum lane lane, uint64_t key);
    void *ctx;
};

static bool is_over(void *entry, void *ctx)
{
    struct recheck *r = ctx;
    struct order_key *k = entry;
    bool over = k->blocked && !r->is_open(r->ctx, (enum lane)k->lane, k->key) && may_go_on(k);
    if (over)
        order_block(r->order, k, false);
    return over;
}

void inflight_recheck_keys(struct inflight *f,
                           bool (*is_open)(void *ctx, enum lane lane, uint64_t key), void *ctx)
{
    struct recheck r = {&f->order, is_open, ctx};
    pthread_mutex_lock(&f->lock);
    map_sweep(&f->order.keys, is_over, &r);
    pthread_mutex_unlock(&f->lock);
}
