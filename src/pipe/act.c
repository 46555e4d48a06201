/* Acting once: the sink, and before it the consumer's inbox.
 *
 * An effect in truth is claimed, done and confirmed in one transaction: it
 * happens exactly once. An effect outside is claimed in one transaction, done,
 * and confirmed in another. If the process dies in between, nobody knows
 * whether it happened: the claim says so, and the delivery becomes a dead
 * letter for a person to decide. It is never done again blindly. */
#include "base/fault.h"
#include "pipe/state.h"

struct acting {
    struct engine *g;
    const struct bus_message *m;
    const struct rule *rule;
    uint64_t member;
    struct inbox_key key;
    struct inbox_ring ring;
    int64_t now_ms;
    enum inbox_answer answer;
    struct sink_result result;
};

static enum err claim(struct tx *tx, struct acting *a)
{
    pthread_mutex_lock(&a->g->ring_lock);
    a->ring = a->g->ring;
    pthread_mutex_unlock(&a->g->ring_lock);
    enum err e = OK;
    if (!a->ring.ready || a->now_ms >= a->ring.present_until_ms)
        e = inbox_turn(tx, &a->ring, a->now_ms);
    return e ? e : inbox_claim(tx, &a->ring, a->rule->consumer, &a->key, a->now_ms, &a->answer);
}

static void keep_ring(struct acting *a)
{
    pthread_mutex_lock(&a->g->ring_lock);
    if (!a->g->ring.ready || a->ring.present_until_ms > a->g->ring.present_until_ms)
        a->g->ring = a->ring;
    pthread_mutex_unlock(&a->g->ring_lock);
}

static enum err run_claim(struct tx *tx, void *arg)
{
    return claim(tx, arg);
}

static enum err run_confirm(struct tx *tx, void *arg)
{
    struct acting *a = arg;
    return inbox_confirm(tx, a->rule->consumer, &a->key);
}

static enum err run_give_back(struct tx *tx, void *arg)
{
    struct acting *a = arg;
    return inbox_give_back(tx, a->rule->consumer, &a->key);
}

/* An operator ordered it although nobody knows whether it happened. */
static bool is_ordered_again(const struct acting *a)
{
    return a->answer == INBOX_UNKNOWN && a->m->kind == SEAT_FORCED;
}

static enum err run_in_truth(struct tx *tx, void *arg)
{
    struct acting *a = arg;
    a->result = (struct sink_result){0};
    enum err e = claim(tx, a);
    if (e || (a->answer != INBOX_NEW && !is_ordered_again(a)))
        return e;
    e = a->rule->tx_sink(tx, &a->g->env, &a->m->event, a->member, &a->result);
    return e ? e : inbox_confirm(tx, a->rule->consumer, &a->key);
}

static enum err act_in_truth(struct acting *a)
{
    enum err e = db_write(a->g->env.db, run_in_truth, a, NULL);
    if (e) /* a lost reply of our own store: trying again finds out */
        return e == ERR_UNKNOWN_COMMIT ? ERR_UNAVAILABLE : e;
    keep_ring(a);
    /* A claim from a time when this consumer acted outside. */
    return a->answer == INBOX_UNKNOWN && !is_ordered_again(a) ? ERR_UNKNOWN_COMMIT : OK;
}

static enum err act_outside(struct acting *a)
{
    struct db *db = a->g->env.db;
    enum err e = db_write(db, run_claim, a, NULL);
    if (e)
        return e == ERR_UNKNOWN_COMMIT ? ERR_UNAVAILABLE : e;
    keep_ring(a);
    if (a->answer == INBOX_UNKNOWN && !is_ordered_again(a))
        return ERR_UNKNOWN_COMMIT;
    if (a->answer == INBOX_DONE)
        return OK;
    a->answer = INBOX_NEW;
    FAULT(inbox_after_claim);
    e = a->rule->sink(&a->g->env, &a->m->event, &a->member, 1, &a->result);
    if (e && err_class(e) != ERR_CLASS_RECONCILE) {
        /* Should this fail the claim stays, and the next try finds an unknown
         * outcome. */
        (void)db_write(db, run_give_back, a, NULL);
        return e;
    }
    if (e)
        return ERR_UNKNOWN_COMMIT;
    FAULT(inbox_before_confirm);
    /* Should this fail the act has happened all the same; only a repeated
     * delivery would ask. */
    (void)db_write(db, run_confirm, a, NULL);
    return OK;
}

static void add_result(struct sink_result *to, const struct sink_result *from)
{
    to->delivered += from->delivered;
    to->repeated += from->repeated;
    to->skipped += from->skipped;
    to->skipped_as = from->skipped_as ? from->skipped_as : to->skipped_as;
    to->again |= from->again;
    to->retry_after_ms =
        from->retry_after_ms > to->retry_after_ms ? from->retry_after_ms : to->retry_after_ms;
}

static enum err act_once(struct engine *g, const struct bus_message *m, uint64_t member,
                         struct act *out)
{
    const struct rule *rule = &g->rules[m->rule];
    struct acting a = {
        .g = g, .m = m, .rule = rule, .member = member, .now_ms = clock_wall_ms(g->env.clock)};
    inbox_key_of(rule, &m->event, member, &a.key);
    enum err e = rule->tx_sink ? act_in_truth(&a) : act_outside(&a);
    if (e == ERR_UNKNOWN_COMMIT)
        atomic_fetch_add(&g->inbox_unknown, 1);
    if (!e && a.answer == INBOX_DONE) {
        out->duplicates++;
        atomic_fetch_add(&g->inbox_duplicates, 1);
    }
    add_result(&out->result, &a.result);
    return e;
}

enum err act(struct engine *g, const struct bus_message *m, const uint64_t *members, size_t n,
             struct act *out)
{
    const struct rule *rule = &g->rules[m->rule];
    *out = (struct act){0};
    if (n == 0)
        return OK;
    enum err e = FAULT_ASKED(rule->consumer, m->event.actor);
    if (e)
        return e;
    FAULT(batch_before_sink);
    bool rest = rule->rest_sink && m->cursor.part == AUDIENCE_REST;
    if (rule->inbox == INBOX_OFF)
        e = (rest ? rule->rest_sink : rule->sink)(&g->env, &m->event, members, n, &out->result);
    else
        for (size_t i = 0; i < n && !e; i++)
            e = act_once(g, m, members[i], out);
    FAULT(batch_after_sink);
    return e;
}
