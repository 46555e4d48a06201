/* Gates: a count of places and a token bucket for each lane. Tokens are kept in
 * millionths, so that microseconds times batches per second add up exactly,
 * without drift at any rate. */
#include "pipe/lane.h"

#include "base/check.h"
#include "base/sync.h"

#define TOKEN INT64_C(1000000)

static int64_t bucket_size(const struct lane_gate *gate)
{
    int64_t size = gate->rate * TOKEN / LANE_BURST_PARTS;
    return size < TOKEN ? TOKEN : size;
}

static void fill(struct lane_gate *gate, int64_t now_us)
{
    int64_t size = bucket_size(gate);
    int64_t elapsed_us = now_us - gate->filled_us;
    if (elapsed_us <= 0)
        return;
    gate->filled_us = now_us;
    /* An hour fills any bucket, and keeps the product far from overflow. */
    if (elapsed_us > INT64_C(3600000000))
        elapsed_us = INT64_C(3600000000);
    int64_t gained = elapsed_us * (int64_t)gate->rate;
    gate->tokens_millionth =
        gained >= size - gate->tokens_millionth ? size : gate->tokens_millionth + gained;
}

void lane_gate_init(struct lane_gate *gate, enum lane lane, uint32_t concurrency, uint32_t rate,
                    int64_t now_us)
{
    *gate = (struct lane_gate){.filled_us = now_us};
    lock_init_spinning(&gate->lock);
    lane_gate_set(gate, lane, concurrency, rate, now_us);
    gate->tokens_millionth = bucket_size(gate);
}

void lane_gate_done(struct lane_gate *gate)
{
    pthread_mutex_destroy(&gate->lock);
}

void lane_gate_set(struct lane_gate *gate, enum lane lane, uint32_t concurrency, uint32_t rate,
                   int64_t now_us)
{
    pthread_mutex_lock(&gate->lock);
    fill(gate, now_us); /* what has passed so far counts at the old rate */
    gate->concurrency = concurrency ? concurrency : lane_rows[lane].concurrency;
    gate->rate = rate == LANE_DEFAULT_RATE ? lane_rows[lane].rate : rate;
    if (gate->tokens_millionth > bucket_size(gate))
        gate->tokens_millionth = bucket_size(gate);
    pthread_mutex_unlock(&gate->lock);
}

static uint32_t take_tokens(struct lane_gate *gate, int64_t now_us, uint32_t want, int64_t *due_us)
{
    if (gate->rate == 0)
        return want;
    fill(gate, now_us);
    if (gate->tokens_millionth < TOKEN) {
        int64_t lacking = TOKEN - gate->tokens_millionth;
        int64_t due = gate->filled_us + (lacking + gate->rate - 1) / gate->rate;
        if (due < *due_us)
            *due_us = due;
        return 0;
    }
    int64_t whole = gate->tokens_millionth / TOKEN;
    uint32_t taken = whole < want ? (uint32_t)whole : want;
    gate->tokens_millionth -= taken * TOKEN;
    return taken;
}

uint32_t lane_gate_enter(struct lane_gate *gate, int64_t now_us, uint32_t want, int64_t *due_us)
{
    pthread_mutex_lock(&gate->lock);
    uint32_t granted = 0;
    if (gate->busy < gate->concurrency)
        granted = take_tokens(gate, now_us, want, due_us);
    if (granted)
        gate->busy++;
    pthread_mutex_unlock(&gate->lock);
    return granted;
}

bool lane_gate_leave(struct lane_gate *gate, uint32_t unused)
{
    pthread_mutex_lock(&gate->lock);
    CHECK(gate->busy > 0);
    bool was_full = gate->busy >= gate->concurrency;
    gate->busy--;
    if (gate->rate) {
        gate->tokens_millionth += unused * TOKEN;
        if (gate->tokens_millionth > bucket_size(gate))
            gate->tokens_millionth = bucket_size(gate);
    }
    pthread_mutex_unlock(&gate->lock);
    return was_full;
}

void lane_gate_look(struct lane_gate *gate, uint32_t *concurrency, uint32_t *rate, uint32_t *busy)
{
    pthread_mutex_lock(&gate->lock);
    *concurrency = gate->concurrency;
    *rate = gate->rate;
    *busy = gate->busy;
    pthread_mutex_unlock(&gate->lock);
}
