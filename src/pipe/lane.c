/* Gates: a count of places and a token bucket for each lane. */
#include "pipe/lane.h"

#include "base/check.h"
#include "base/sync.h"

static uint32_t rate_of(enum lane lane, uint32_t rate)
{
    return rate == LANE_DEFAULT_RATE ? lane_rows[lane].rate : rate;
}

void lane_gate_init(struct lane_gate *gate, enum lane lane, uint32_t concurrency, uint32_t rate,
                    int64_t now_us)
{
    *gate = (struct lane_gate){.busy = 0};
    lock_init_spinning(&gate->lock);
    bucket_init(&gate->bucket, rate_of(lane, rate), LANE_BURST_PARTS, now_us);
    lane_gate_set(gate, lane, concurrency, rate, now_us);
}

void lane_gate_done(struct lane_gate *gate)
{
    pthread_mutex_destroy(&gate->lock);
}

static void divide(struct lane_gate *gate, enum lane lane)
{
    uint32_t all = gate->concurrency, nodes = gate->nodes;
    if (nodes > 1 && lane_rows[lane].pool == POOL_VIEWS) {
        gate->places = all / nodes + (gate->rank < all % nodes);
        gate->places = gate->places ? gate->places : 1;
    } else {
        gate->places = all;
    }
}

void lane_gate_share(struct lane_gate *gate, enum lane lane, uint32_t rank, uint32_t nodes)
{
    pthread_mutex_lock(&gate->lock);
    gate->rank = rank;
    gate->nodes = nodes;
    divide(gate, lane);
    pthread_mutex_unlock(&gate->lock);
}

void lane_gate_set(struct lane_gate *gate, enum lane lane, uint32_t concurrency, uint32_t rate,
                   int64_t now_us)
{
    pthread_mutex_lock(&gate->lock);
    gate->concurrency = concurrency ? concurrency : lane_rows[lane].concurrency;
    divide(gate, lane);
    bucket_set_rate(&gate->bucket, rate_of(lane, rate), now_us);
    pthread_mutex_unlock(&gate->lock);
}

uint32_t lane_gate_enter(struct lane_gate *gate, int64_t now_us, uint32_t want, int64_t *due_us)
{
    pthread_mutex_lock(&gate->lock);
    uint32_t granted = 0;
    if (gate->busy < gate->places)
        granted = bucket_take(&gate->bucket, now_us, want, due_us);
    if (granted)
        gate->busy++;
    pthread_mutex_unlock(&gate->lock);
    return granted;
}

bool lane_gate_leave(struct lane_gate *gate, uint32_t unused)
{
    pthread_mutex_lock(&gate->lock);
    CHECK(gate->busy > 0);
    bool was_full = gate->busy >= gate->places;
    gate->busy--;
    bucket_give_back(&gate->bucket, unused);
    pthread_mutex_unlock(&gate->lock);
    return was_full;
}

void lane_gate_look(struct lane_gate *gate, uint32_t *concurrency, uint32_t *rate, uint32_t *busy)
{
    pthread_mutex_lock(&gate->lock);
    *concurrency = gate->concurrency;
    *rate = (uint32_t)gate->bucket.rate;
    *busy = gate->busy;
    pthread_mutex_unlock(&gate->lock);
}
