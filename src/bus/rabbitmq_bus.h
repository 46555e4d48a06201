/* The RabbitMQ driver's insides, shared by the port (rabbitmq.c: what callers do) and the I/O
 * thread (rabbitmq_io.c: what goes over the network). */
#pragma once

#include <pthread.h>
#include <stdatomic.h>

#include "base/rand.h"
#include "base/sync.h"
#include "bus/rabbitmq_lane.h"
#include "bus/rabbitmq_link.h"
#include "bus/rabbitmq_window.h"

/* Two connections: a broker that runs out of memory stops reading from publishers, and acks must
 * still get through then. */
enum rabbitmq_side { SIDE_OUT, SIDE_IN, SIDE_COUNT };

/* Channels. Out: CHANNEL_PUBLISH with confirms, CHANNEL_ASK for questions. In: CHANNEL_DECLARE, and
 * one for each lane, numbered from CHANNEL_LANE, because one ack can cover all deliveries of a
 * channel. */
enum { CHANNEL_PUBLISH = 1, CHANNEL_ASK = 2, CHANNEL_DECLARE = 1, CHANNEL_LANE = 2 };

/* A delivery of which not all frames have come. */
struct rabbitmq_arriving {
    enum { ARRIVING_NOTHING, ARRIVING_HEADER, ARRIVING_BODY } state;
    uint64_t delivery;
    uint64_t size, got;
    uint8_t bytes[RABBITMQ_WIRE_SIZE];
};

/* A quiet lane's, on the lane's channel. */
enum rabbitmq_consumer {
    CONSUMER_NONE,    /* and no channel */
    CONSUMER_RUNS,    /* as far as we are concerned */
    CONSUMER_CLOSING, /* its channel, until the broker has answered */
};

struct rabbitmq_routes {
    struct rabbitmq_route lane;
    struct rabbitmq_route delay[RABBITMQ_STEPS];
};

struct bus_rabbitmq {
    struct bus bus;
    /* fixed after the start */
    struct rabbitmq_topology topology;
    struct rabbitmq_address address;
    struct clock *clock;
    void (*on_ready)(void *context, uint16_t lane);
    void *context;
    uint32_t quiet; /* a bit for each lane */
    bool publish_only;
    char node[64];
    /* under the lock */
    pthread_mutex_t lock;
    pthread_cond_t room; /* in the window */
    struct rabbitmq_window window;
    struct rabbitmq_lane *lanes;
    uint32_t room_waiters;
    int64_t progress_us; /* when the window was last empty, or a confirm came */
    uint64_t reconnects;
    uint32_t listened; /* of the quiet lanes, those that are wanted … */
    uint32_t hushed;   /* … and those that were not since the I/O thread last looked */
    bool is_open[SIDE_COUNT];
    bool stopping;
    /* waking the I/O thread */
    _Atomic bool asleep;
    int wake_fd;
    /* the I/O thread's own */
    struct thread thread;
    struct rabbitmq_link links[SIDE_COUNT];
    bool unread[SIDE_COUNT]; /* frames may be there, whatever the socket says */
    int64_t retry_us[SIDE_COUNT];
    unsigned failures[SIDE_COUNT];
    int64_t ask_us; /* when the queues are counted next */
    int64_t log_after_us, refused_log_after_us;
    uint64_t refused; /* messages that could not be read, since the start */
    uint32_t woken;   /* a bit for each lane that has something for its takers */
    struct rand rand;
    /* by lane */
    struct rabbitmq_routes routes[BUS_LANES_MAX];
    struct rabbitmq_arriving arriving[BUS_LANES_MAX];
    enum rabbitmq_consumer consumers[BUS_LANES_MAX];
};

/* Connects both sides for the first time. */
enum err rabbitmq_io_connect(struct bus_rabbitmq *b, char detail[RABBITMQ_DETAIL_SIZE]);
enum err rabbitmq_io_start(struct bus_rabbitmq *b);
/* Sends waiting messages for a moment, then closes. */
void rabbitmq_io_stop(struct bus_rabbitmq *b);
/* Without the lock: there is something to do, unless the thread is awake anyway. */
void rabbitmq_io_wake(struct bus_rabbitmq *b);
/* The I/O thread, under the lock: every ack that the lane owes. */
void rabbitmq_send_acks(struct bus_rabbitmq *b, size_t lane);

/* Quiet lanes (rabbitmq_listen.c). The port's: */
void rabbitmq_listen(struct bus *bus, uint16_t lane, bool on);
/* Under the lock: may the lane be taken from? */
bool rabbitmq_is_heard(const struct bus_rabbitmq *b, uint16_t lane);
/* The I/O thread, under the lock: makes it so on an open link; the link broke. */
bool rabbitmq_listen_has_work(const struct bus_rabbitmq *b);
void rabbitmq_listen_turn(struct bus_rabbitmq *b);
void rabbitmq_listen_lost(struct bus_rabbitmq *b);
/* The I/O thread: is this frame of the lane's channel to be looked at? */
bool rabbitmq_listen_passes(struct bus_rabbitmq *b, size_t lane, const amqp_frame_t *frame);

/* The I/O thread: a frame came. In: false when the broker disregards the prefetch. */
void rabbitmq_receive_out(struct bus_rabbitmq *b, const amqp_frame_t *frame);
bool rabbitmq_receive_in(struct bus_rabbitmq *b, const amqp_frame_t *frame);

/* Is there a second connection at all? */
static inline bool rabbitmq_takes(const struct bus_rabbitmq *b)
{
    return !b->publish_only || b->quiet;
}
/* The network's time is the system's, whatever clock the callers have. */
static inline int64_t rabbitmq_mono_us(void)
{
    return clock_mono_us(clock_system());
}
/* Are the lane's acks worth a frame? Those of a busy lane gather first. */
static inline bool rabbitmq_acks_are_urgent(struct rabbitmq_lane *l)
{
    return l->acks_count && (l->acks_count * 2 >= l->prefetch || atomic_load(&l->queue.ready) == 0);
}
/* Under the lock: sends a copy through the delay queue of `step`, and acks the delivery when the
 * copy is safe. False: no room for it now. */
bool rabbitmq_forward(struct bus_rabbitmq *b, struct rabbitmq_lane *l, struct lane_slot *s,
                      int step, int64_t now_us, int64_t due_ms);
