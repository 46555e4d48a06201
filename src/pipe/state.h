/* The engine's inside, shared by its files: engine.c owns the whole and lead.c
 * its life among other nodes; relay.c, worker.c with audience.c, deliver_once.c and
 * outcome.c, recorder.c, watermark.c and sample.c own a step each. Nothing outside pipe/ includes
 * this.
 *
 * Who touches what: the parts named after a step belong to that step (one
 * caller each); everything else is shared, and has its own lock or is atomic.
 * No lock is held while another is taken, or while anything outside is called.
 */
#pragma once

#include <stdatomic.h>

#include "base/log.h"
#include "pipe/commit_queue.h"
#include "pipe/dedup.h"
#include "pipe/engine.h"
#include "pipe/inflight.h"
#include "pipe/lane.h"
#include "pipe/outbox.h"
#include "pipe/recorder.h"
#include "pipe/replay.h"

enum {
    ENGINE_BATCH_MAX = 2048,       /* members in a call of a sink */
    ENGINE_RULES_PER_TYPE = 16,    /* rules on one event type */
    ENGINE_UNDONE_MAX = 1 << 19,   /* beyond it events wait in the outbox table */
    ENGINE_COUNTS_MAX = 256,       /* consumer × type × lane that ever had a delivery recorded */
    RELAY_BATCH = OUTBOX_READ_MAX, /* events in one relay step */
    WORKER_MESSAGES = 32,          /* messages in one worker step, when they are small */
    ENGINE_LOOK_US = 250 * 1000,   /* of shared pools: in case the bus could not wake them */
    WORKER_MEMBERS = 500,          /* members in one worker step, about */
    LOG_AGAIN_US = 60 * 1000 * 1000, /* a failure that lasts is logged once a minute */
};

/* Deliveries in a lane since the start. */
struct lane_work {
    _Atomic uint64_t delivered, repeated, skipped, failed;
};

struct engine_lane {
    _Alignas(64) struct lane_gate gate;
    struct breaker breaker;
    struct lane_work own, told; /* by this node's workers; by those of others, while it leads */
    _Atomic int64_t log_after_us;
};

struct relay {
    uint64_t taken;     /* id of the last live event taken in turn */
    uint64_t recovered; /* rows up to this id were there at the start */
    uint64_t ahead_after,
        ahead; /* live events in (ahead_after, ahead] are taken already; 0: none */
    uint64_t lane_held[LANE_COUNT];  /* what the lane held when it was full; 0: it
                                        was not */
    struct bucket rates[LANE_COUNT]; /* shared: how much all nodes together may begin */
    int64_t read_after_us;           /* not before: the last read failed */
    int64_t poll_after_us;
    int64_t ask_after_us;        /* shared: when the horizon is asked for next */
    int64_t moved_us;            /* … when it last let new events through */
    _Atomic uint64_t horizon;    /* … as last asked for; all below that is there was read */
    _Atomic uint64_t last_event; /* … the last one taken, or there when this node began to lead */
    _Atomic int64_t looked_us;   /* … when the table was last read up to the horizon in vain;
                                    INT64_MIN: there was something */
    int64_t log_after_us;
    uint64_t found[EVENT_TYPE_COUNT]; /* rows there at the start, not yet taken */
    size_t count;
    struct inflight_start starts[RELAY_BATCH];
    struct outbox_slice slice;
    size_t traced;
    struct trace_record trace[2 * RELAY_BATCH];
};

struct watermark {
    _Atomic uint64_t saved; /* the watermark in truth */
    uint64_t trimmed;       /* no settled row at or below it is left */
    int64_t save_after_us;  /* when the watermark is saved next */
    int64_t clean_after_us; /* when closed deliveries and old dedup entries go next */
    int64_t log_after_us;
    _Atomic bool trim_again; /* rows were settled below that */
    uint64_t safe; /* remote views: everything up to here is in a copy of them that was saved */
};

struct timers {
    _Atomic uint64_t fired;
    _Atomic int64_t next_ms;
    _Atomic int64_t log_after_us;
    struct hist late_us;
};

/* outside.c. The step's own, but for what the lock is over. */
struct outside {
    pthread_mutex_t lock;
    struct outside_item *first, **last; /* all of whose calls have ended; under the lock */
    struct outside_item *newest;        /* of all that are under way */
    size_t lanes[LANE_COUNT];
    _Atomic size_t calls; /* under way, by lane and in all */
    _Atomic bool draining;
};
void outside_init(struct outside *o);
void outside_done(struct outside *o);

/* What truth counts, as of the last sample. */
struct truth_counts {
    struct delivery_count deliveries[ENGINE_COUNTS_MAX];
    size_t delivery_count;
    struct outbox_totals outbox;
};

struct engine {
    struct engine_config config;
    const struct rule *rules;
    size_t rule_count;
    struct sink_env env;
    struct bus *bus;
    fan_out_observer observer;
    void *observer_ctx;
    engine_wake wake;
    void *wake_ctx;

    uint16_t rules_on[EVENT_TYPE_COUNT][ENGINE_RULES_PER_TYPE]; /* indices into `rules` */
    uint16_t rules_on_count[EVENT_TYPE_COUNT];
    bool has_dedup;                  /* a rule asks for one */
    bool observed[EVENT_TYPE_COUNT]; /* a rule on it is */

    _Atomic bool paused, guarded_expansion, guarded_bulk;
    _Atomic bool asleep[ENGINE_SLEEPERS]; /* by sleeper: its step returned a later time */

    /* shared: who enters here finds the parts below as they are; who begins or ends to lead has it
     * alone */
    pthread_rwlock_t life;
    _Atomic bool leads, must_resign;
    _Atomic int64_t lead_until_us;
    _Atomic uint64_t term;      /* that it leads in, or led last */
    _Atomic uint64_t seen_term; /* the newest it knows of */
    pthread_mutex_t save_lock;  /* of the views: see engine_save_views */
    engine_applier apply;
    void *apply_ctx;
    int64_t jobs_after_us; /* when the jobs are read next, also without a signal */
    _Atomic uint64_t stale, reports, reports_unmatched, unknown_rules;

    struct commit_queue commit_queue;
    struct inflight inflight;
    struct recorder recorder;
    struct trace trace;
    struct engine_lane lanes[LANE_COUNT];
    _Atomic uint64_t offered[EVENT_TYPE_COUNT]; /* live, or found in the table at the start */
    _Atomic uint64_t taken[EVENT_TYPE_COUNT];
    _Atomic uint64_t oldest_found; /* id of the first row found at the start; 0: none */
    _Atomic uint64_t events_taken;
    _Atomic uint64_t events_unwanted; /* of these, done at once: no rule wants them */
    _Atomic uint64_t bus_duplicates, dedup_duplicates, dedup_unknown, resent, late;
    _Atomic uint64_t released; /* released events under way or not yet settled */
    pthread_mutex_t dedup_lock;
    struct dedup dedup;
    pthread_mutex_t counts_lock;
    struct truth_counts counts;
    struct freshness *freshness;
    struct replays *replays;
    struct relay relay;
    struct watermark watermark;
    struct timers timers;
    struct outside outside;
};

void engine_wake_up(struct engine *g, enum engine_sleeper who);
/* Wakes those who work on the lane's pool, and no others: a fan-out wakes its workers once a page,
 * and threads without work that wake as often take the cores from it. */
void engine_wake_lane(struct engine *g, enum lane lane);

/* True when it is time to log again something that keeps failing; moves the
 * time. */
bool engine_may_log(_Atomic int64_t *log_after_us, int64_t now_us);
/* Logs a failure, unless one was logged a moment ago. For one caller. */
void engine_complain(int64_t *log_after_us, int64_t now_us, const char *message,
                     struct log_field field);

/* Lowers a step's next time. */
static inline void due_by(int64_t *due_us, int64_t at_us)
{
    *due_us = at_us < *due_us ? at_us : *due_us;
}

static inline bool engine_lane_is_guarded(struct engine *g, enum lane lane)
{
    return lane_rows[lane].large && atomic_load(&g->guarded_expansion);
}

static inline bool is_retry(uint8_t kind)
{
    return kind == SLOT_RETRY || kind == SLOT_FORCED;
}

/* Its breaker is open, or an operator stopped it. */
bool engine_lane_is_stopped(struct engine *g, enum lane lane);

/* May a message come twice, or be with another worker, too? */
static inline bool engine_may_repeat(const struct engine *g)
{
    return !g->bus->exact || g->config.shared;
}

/* ---- lead.c ---- */

/* Around everything that touches inflight, delivery store, relay, watermark or replays; not to be
 * nested. A process that is alone needs no lock: it leads from engine_recover to its end. */
static inline void engine_enter(struct engine *g)
{
    if (g->config.shared)
        pthread_rwlock_rdlock(&g->life);
}
static inline void engine_exit(struct engine *g)
{
    if (g->config.shared)
        pthread_rwlock_unlock(&g->life);
}
/* For the steps of a leader. False: this node does not lead, or should not; the step has nothing to
 * do until *again_us, and did not enter. */
bool engine_enter_leading(struct engine *g, int64_t *again_us);
/* A step of a leader as a whole: enters, calls, exits. `asleep`: what to say when it has nothing to
 * do; NULL: nothing wakes it. */
int64_t engine_lead_step(struct engine *g, _Atomic bool *asleep, int64_t (*step)(struct engine *g));
/* Works. When that finds nothing to do, it says that it sleeps and looks once more: a thread that
 * brings work after that look sees the flag and wakes it. `work` is true when it did something,
 * else *due_us is when it wants to be called again. */
int64_t engine_work_step(struct engine *g, enum engine_sleeper who,
                         bool (*work)(struct engine *g, int64_t now_us, int64_t *due_us));
/* … asked for again in the middle of a step, before anything is sent. */
bool engine_may_lead(struct engine *g);
/* For callers that only look, and never wait. False: it does not lead, and was not entered. */
bool engine_peek(struct engine *g);
/* False: a work item of this term is a former leader's. Learns of new ones. */
bool engine_knows_term(struct engine *g, uint64_t term);
/* A leader's write: shared, it happens only while its term is the one in truth. Takes the engine as
 * a context, so that it can be handed on. */
enum err engine_write(void *engine, tx_fn run, void *arg);
/* Makes what the workers did to remote views safe. OK at once for views that are not. */
enum err engine_save_views(struct engine *g);

/* ---- engine.c ---- */

/* Sets everything by what is found in truth: at the start, or when this node begins to lead. */
enum err engine_read_truth(struct engine *g);

/* ---- finish.c ---- */

/* The name of the work item that a message stands for. */
struct inflight_exit exit_of(const struct bus_message *m, enum exit_how how);
/* Its row for the delivery store. */
struct delivery_record record_of(const struct engine *g, const struct bus_message *m,
                                 enum record_kind kind);
/* The last steps when an event has left the inflight set. */
void engine_finished(struct engine *g, const struct inflight_exit *x, int64_t now_us);

/* ---- recorder.c ---- */

/* Reads what is due next, and which order keys wait behind deliveries in the delivery store. */
enum err recorder_recover(struct engine *g);
/* Nothing of it was written: messages that waited for it end all the same. */
void recorder_forget(struct engine *g);
/* As engine_deliveries_changed, from inside. */
void engine_stir_recorder(struct engine *g);

/* ---- relay.c ---- */

void relay_init(struct relay *r);
/* Shared: does the lane's work begin only when the relay lets it, for all nodes together? */
bool relay_limits(struct engine *g, enum lane lane);

/* ---- relay_take.c ---- */

/* Takes at most `max` events into relay.starts; true when it got any further. */
bool relay_take(struct engine *g, size_t max, int64_t now_us, int64_t *due_us);
/* Notes an event for this step's batch, unless no rule wants it. */
void relay_consider(struct engine *g, const struct event *e, int64_t started_us, uint32_t mask,
                    bool fresh);
/* Events for which no rule is left are taken out of the batch. */
void relay_drop_outdone(struct engine *g);
/* Bit i: the i-th rule on the event's type wants it; again: as far as it is not in the slice's
 * records. */
uint32_t relay_wanted_by(struct engine *g, const struct event *e);
uint32_t relay_wanted_again(struct engine *g, const struct event *e, uint32_t mask,
                            enum outbox_state state, const struct outbox_slice *slice);
/* Shared: brings the views up to date with the slice. */
enum err relay_apply_slice(struct engine *g);
/* Up to where the table must be read before the queue may be trusted to be without gaps. */
uint64_t relay_table_end(struct engine *g);
bool relay_may_read(struct relay *r, int64_t now_us, int64_t *due_us);
void relay_read_failed(struct relay *r, enum err e, int64_t now_us, int64_t *due_us);

/* ---- watermark.c ---- */

void watermark_init(struct watermark *m);

/* ---- audience.c ---- */

/* The message's event for its rule: with its data, when the rule reads it. `memory` holds that. */
enum err audience_event(struct engine *g, const struct bus_message *m,
                        char memory[EVENT_PAYLOAD_MAX], struct event *out);
/* Reads the message's page; *cursor is where the walk goes on. */
enum err audience_page(struct engine *g, const struct bus_message *m, const struct event *event,
                       struct audience_cursor *cursor, uint64_t *members, size_t *n);
/* Is the page the last one of this message's walk? */
bool audience_is_last(const struct bus_message *m, const struct audience_cursor *cursor);
/* How many members the walk that begins with this page is expected to meet, and how many of them
 * were active lately; 0: not known. Looks at the views once more: for a walk's first page alone. */
struct audience_estimate {
    uint32_t members, active;
    uint32_t audience; /* with those whom no walk meets */
};
struct audience_estimate audience_estimate(struct engine *g, const struct bus_message *m,
                                           const struct event *event,
                                           const struct audience_cursor *cursor,
                                           const uint64_t *members, size_t n);
/* Has this message of the small lane turned out to be a large fan-out? */
bool audience_is_large(const struct engine *g, const struct bus_message *m,
                       const struct audience_cursor *cursor);

/* ---- deliver_once.c ---- */

/* The known state of the duplicate memory; and its update when a transaction has committed. */
struct dedup engine_dedup(struct engine *g);
void engine_keep_dedup(struct engine *g, const struct dedup *found);
void sink_result_add(struct sink_result *to, const struct sink_result *from);
struct delivered {
    struct sink_result result;
    size_t duplicates; /* members that a dedup memory knows */
};
/* dedup_claim for a message; one that an operator ordered claims an unknown outcome, too, once. */
enum err claim_once(struct tx *tx, struct dedup *d, const struct bus_message *m,
                    const char *consumer, const struct dedup_key *key, int64_t now_ms,
                    enum dedup_answer *answer);
/* Calls the sink for the members, behind the consumer's dedup memory when it has one.
 */
enum err deliver_once(struct engine *g, const struct bus_message *m, const struct event *event,
                      const uint64_t *members, size_t n, struct delivered *out);

/* ---- announce.c ---- */

/* Signals the members of a page that was delivered as `result` says, if the rule wants that. */
enum err announce_page(struct engine *g, const struct bus_message *m, const struct event *event,
                       const uint64_t *members, size_t n, const struct sink_result *result);
/* The same for several pages of one rule that were delivered together; at most WORKER_MESSAGES. */
enum err announce_pages(struct engine *g, uint16_t rule, const struct sink_call *calls, size_t n);

/* ---- sample.c ---- */

/* The age of an event by its id; 0 for id 0 and for the future. */
int64_t engine_age_ms(struct engine *g, uint64_t id);
/* Events queued or found and not yet taken, by type; the id of the oldest;
 * 0: none. */
uint64_t engine_pending(struct engine *g, enum event_type type);
uint64_t engine_oldest_pending(struct engine *g);
