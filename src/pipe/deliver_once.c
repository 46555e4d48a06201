/* Acting once: the sink, and before it the consumer's dedup memory.
 *
 * An effect in truth is claimed, done and confirmed in one transaction: it happens exactly once. An
 * effect outside is claimed in one transaction, done, and confirmed in another. If the process dies
 * in between, the outcome is unknown: the claim says so, and the delivery becomes a dead letter for
 * an operator to decide. The engine never repeats it blindly. */
#include "base/fault.h"
#include "base/hash.h"
#include "pipe/state.h"

struct acting {
    struct engine *g;
    const struct bus_message *m;
    const struct event *event;
    const struct rule *rule;
    uint64_t member;
    struct dedup_key key;
    struct dedup dedup;
    int64_t now_ms;
    enum dedup_answer answer;
    struct sink_result result;
};

struct dedup engine_dedup(struct engine *g)
{
    pthread_mutex_lock(&g->dedup_lock);
    struct dedup now = g->dedup;
    pthread_mutex_unlock(&g->dedup_lock);
    return now;
}

void engine_keep_dedup(struct engine *g, const struct dedup *found)
{
    pthread_mutex_lock(&g->dedup_lock);
    if (!g->dedup.ready || found->newest_ms > g->dedup.newest_ms)
        g->dedup = *found;
    pthread_mutex_unlock(&g->dedup_lock);
}

/* All copies of a message, also those that come back later, are one order. */
static uint64_t order_of(const struct bus_message *m)
{
    return hash_u64(m->slot ^ hash_u64(m->term ^ hash_u64(m->owner)));
}

enum err claim_once(struct tx *tx, struct dedup *d, const struct bus_message *m,
                    const char *consumer, const struct dedup_key *key, int64_t now_ms,
                    enum dedup_answer *answer)
{
    TRY(dedup_claim(tx, d, consumer, key, now_ms, answer));
    return *answer == DEDUP_UNKNOWN && m->kind == SLOT_FORCED
               ? dedup_claim_by_order(tx, consumer, key, order_of(m), answer)
               : OK;
}

static enum err run_claim(struct tx *tx, void *arg)
{
    struct acting *a = arg;
    a->dedup = engine_dedup(a->g);
    TRY(dedup_begin(tx, &a->dedup, a->now_ms));
    return claim_once(tx, &a->dedup, a->m, a->rule->consumer, &a->key, a->now_ms, &a->answer);
}

static enum err run_confirm(struct tx *tx, void *arg)
{
    struct acting *a = arg;
    return dedup_confirm(tx, a->rule->consumer, &a->key);
}

static enum err run_give_back(struct tx *tx, void *arg)
{
    struct acting *a = arg;
    return dedup_give_back(tx, a->rule->consumer, &a->key);
}

static enum err run_in_truth(struct tx *tx, void *arg)
{
    struct acting *a = arg;
    a->result = (struct sink_result){0};
    TRY(run_claim(tx, a));
    if (a->answer != DEDUP_NEW)
        return OK;
    TRY(a->rule->tx_sink(tx, &a->g->env, a->event, a->member, &a->result));
    return dedup_confirm(tx, a->rule->consumer, &a->key);
}

static enum err act_in_truth(struct acting *a)
{
    enum err e = db_write(a->g->env.db, run_in_truth, a, NULL);
    if (e) /* a lost reply of our own store: trying again finds out */
        return e == ERR_UNKNOWN_COMMIT ? ERR_UNAVAILABLE : e;
    engine_keep_dedup(a->g, &a->dedup);
    /* A claim from a time when this consumer acted outside. */
    return a->answer == DEDUP_UNKNOWN ? ERR_UNKNOWN_COMMIT : OK;
}

static enum err act_outside(struct acting *a)
{
    struct db *db = a->g->env.db;
    enum err e = db_write(db, run_claim, a, NULL);
    if (e)
        return e == ERR_UNKNOWN_COMMIT ? ERR_UNAVAILABLE : e;
    engine_keep_dedup(a->g, &a->dedup);
    if (a->answer == DEDUP_UNKNOWN)
        return ERR_UNKNOWN_COMMIT;
    if (a->answer == DEDUP_DONE)
        return OK;
    FAULT(dedup_after_claim);
    e = a->rule->sink(&a->g->env, a->event, &a->member, 1, &a->result);
    if (e && err_class(e) != ERR_CLASS_RECONCILE) {
        /* Should this fail the claim stays, and the next try finds an unknown
         * outcome. */
        (void)db_write(db, run_give_back, a, NULL);
        return e;
    }
    if (e)
        return ERR_UNKNOWN_COMMIT;
    FAULT(dedup_before_confirm);
    /* Should this fail the act has happened all the same; only a repeated
     * delivery would ask. */
    (void)db_write(db, run_confirm, a, NULL);
    return OK;
}

void sink_result_add(struct sink_result *to, const struct sink_result *from)
{
    to->delivered += from->delivered;
    to->repeated += from->repeated;
    to->skipped += from->skipped;
    to->skipped_as = from->skipped_as ? from->skipped_as : to->skipped_as;
    to->again |= from->again;
    to->retry_after_ms =
        from->retry_after_ms > to->retry_after_ms ? from->retry_after_ms : to->retry_after_ms;
}

static enum err act_once(struct engine *g, const struct bus_message *m, const struct event *event,
                         uint64_t member, struct delivered *out)
{
    const struct rule *rule = &g->rules[m->rule];
    struct acting a = {.g = g,
                       .m = m,
                       .event = event,
                       .rule = rule,
                       .member = member,
                       .now_ms = clock_wall_ms(g->env.clock)};
    dedup_key_of(rule, event, member, &a.key);
    enum err e = rule->tx_sink ? act_in_truth(&a) : act_outside(&a);
    if (e == ERR_UNKNOWN_COMMIT)
        atomic_fetch_add(&g->dedup_unknown, 1);
    if (!e && a.answer == DEDUP_DONE) {
        out->duplicates++;
        atomic_fetch_add(&g->dedup_duplicates, 1);
    }
    sink_result_add(&out->result, &a.result);
    return e;
}

enum err deliver_once(struct engine *g, const struct bus_message *m, const struct event *event,
                      const uint64_t *members, size_t n, struct delivered *out)
{
    const struct rule *rule = &g->rules[m->rule];
    *out = (struct delivered){0};
    if (n == 0)
        return OK;
    enum err e = FAULT_ASKED(rule->consumer, m->event.actor);
    if (e)
        return e;
    FAULT(batch_before_sink);
    bool rest = rule->rest_sink && m->cursor.part == AUDIENCE_REST;
    if (rule->dedup == DEDUP_OFF)
        e = (rest ? rule->rest_sink : rule->sink)(&g->env, event, members, n, &out->result);
    else
        for (size_t i = 0; i < n && !e; i++)
            e = act_once(g, m, event, members[i], out);
    FAULT(batch_after_sink);
    return e;
}
