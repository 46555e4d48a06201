/* Replays: events that were delivered once are delivered again to one consumer, under their own
 * ids, in a lane and at a rate of their own.
 *
 * A replay walks the outbox by id through the range it was asked for and hands each matching,
 * settled event to the engine, which keeps them in the order of the consumer's own lane: a replayed
 * event of a key waits for live ones of that key that are under way, and live ones wait for it.
 * Events that are not settled are passed over: they are delivered anyhow. Outside effects happen
 * only on the channels that were allowed by name. Duplicates are recognised by the consumer's
 * dedup memory; a consumer without one is idempotent.
 *
 * It rests while live freshness is over its target and goes on by itself. Its position is saved
 * after everything up to it is done or in the delivery store, so a restart repeats at most one
 * window of REPLAY_WINDOW events. */
#pragma once

#include "base/clock.h"
#include "pipe/dedup.h"
#include "pipe/jobs.h"
#include "port/rule.h"

enum { REPLAY_WINDOW = 256, REPLAY_RATE_DEFAULT = 1000, REPLAY_CHANNELS_MAX = 8 };

struct replay_spec {
    char consumer[40];      /* required */
    char type[40];          /* "": every type the consumer has a rule on */
    int64_t from_ms, to_ms; /* by the time of the event; 0: from the oldest kept; up to now */
    uint64_t key;           /* the event's actor; 0: any */
    char dead_reason[40]; /* only events that have a dead delivery of this consumer for this reason;
                             "*": for any;
                             "": no matter */
    char allow[REPLAY_CHANNELS_MAX][24]; /* channels that may be used */
    size_t allow_count;
    bool accept_duplicates;
};
/* JSON ⇄ spec:
 * {"consumer":"timelines","type":"post.created","from":"2026-11-15T08:00:00Z","to":"…",
 * "key":"42","dead_reason":"*","allow":["email"],"accept_duplicates":true}, all but the consumer
 * optional. ERR_INVALID: `why` names the field and what is allowed, with the consumers, types or
 * channels there are when the name is unknown. What was written is read again as the same, and is
 * shorter than JOB_SPEC_MAX. */
enum err replay_spec_parse(struct str json, const struct rule *rules, size_t n,
                           struct replay_spec *out, char why[200]);
void replay_spec_write(const struct replay_spec *spec, struct buf *out);

/* The ids that its times mean: after < id ≤ last. */
void replay_range(const struct replay_spec *spec, int64_t now_ms, uint64_t *after, uint64_t *last);
/* Fills in what job_create needs. `total`: the plan's events, for the estimate. A spec without an
 * end gets one here: now. */
void replay_job_init(struct job *job, const struct replay_spec *spec, int64_t rate, uint64_t total,
                     int64_t now_ms);

/* May it be started? ERR_CONFLICT: the range reaches back further than the consumer's duplicate
 * memory (which ends at now - dedup_ms for consumers with a dedup memory), unless accepted; `why`
 * has both times and says how to accept. OK: `why` is a remark for the operator (the range begins
 * before the oldest event that is kept: what is gone is gone), or "". `oldest_kept_ms`: of the
 * outbox's first row; 0: it is empty. */
enum err replay_check(const struct replay_spec *spec, const struct rule *rules, size_t n,
                      int64_t dedup_ms, int64_t oldest_kept_ms, int64_t now_ms, char why[300]);

/* The dry run, in slices: call until `end`. Counts what start would do, for each event and rule of
 * the consumer. What a TO_ACTOR rule's dedup memory remembers is looked up; of a walk with a dedup
 * memory nothing is known without walking its audience, so each event counts as one that would act,
 * and its dedup memory decides, member by member, when it does. Of a spec without an end each slice
 * sees what is there by then: give it one first, so that plan and start mean the same events. */
struct replay_plan {
    uint64_t position; /* in and out; begin with 0 */
    /* In: the engine is done with the events between these two, though their rows do not say so
     * yet (engine_unsaved). */
    uint64_t settled_after, settled_through;
    bool end;
    uint64_t events; /* that match, settled */
    uint64_t undone; /* that match and are under way: left to the live engine */
    uint64_t
        unreadable; /* that match by their type and cannot be read: passed over, a failure each */
    uint64_t remembered; /* already in the dedup memory */
    uint64_t unknown;    /* claimed in the dedup memory and never confirmed: not acted on */
    uint64_t suppressed; /* outside effects on channels not allowed */
    uint64_t would_act;
    struct {
        char channel[24]; /* "views", "truth", or the outside channel */
        uint64_t would_act, suppressed;
    } channels[REPLAY_CHANNELS_MAX];
    size_t channel_count;
    uint64_t first, last; /* ids of the first and last that match; 0: none */
    uint64_t members;     /* of would_act: TO_ACTOR rules one each; walks are not counted here */
};
/* Looks at no more than `max_rows` rows of the outbox. On failure the plan is as it was. */
enum err replay_plan_slice(struct tx *tx, const struct replay_spec *spec, const struct rule *rules,
                           size_t n, size_t max_rows, struct replay_plan *plan);

/* What the replays need from the engine. */
struct replay_host {
    void *ctx;
    /* Begins the event for the rules in `rule_mask` (bit: the n-th rule on its type), as part of
     * the job. False: no room now. The engine reports the outcome by replays_told, exactly once,
     * from any thread, also before begin returns. */
    bool (*begin)(void *ctx, uint64_t job, const struct event *e, uint32_t rule_mask);
    bool (*live_is_late)(void *ctx);
    void (*unsaved)(void *ctx, uint64_t *after, uint64_t *through); /* NULL: none are */
    bool (*guarded)(void *ctx);                                     /* the store is at risk: rest */
    void (*wake)(void *ctx);                            /* replays_step should be called soon */
    enum err (*write)(void *ctx, tx_fn run, void *arg); /* how jobs are written; NULL: db_write */
};

struct replays;
struct replays *replays_new(struct db *db, struct clock *clock, const struct rule *rules,
                            size_t rule_count, struct replay_host host);
void replays_free(struct replays *r);
/* At the start, before anything is delivered: what earlier jobs were allowed. Their deliveries on
 * the delivery store may be due at once, and one that is not allowed ends without having acted. */
enum err replays_recover(struct replays *r);
/* How replays_new left it. The caller has it alone. */
void replays_forget(struct replays *r);
/* One bounded work item (blocking SQL); when to call again (monotonic µs). One caller. */
int64_t replays_step(struct replays *r);
/* The engine is done with an event of a job. Any thread. `failed`: part of it is in the delivery
 * store. `what->seen` is not looked at: an event is one. Of a job that was cancelled meanwhile:
 * nothing happens. */
void replays_told(struct replays *r, uint64_t job, uint64_t event, const struct job_counts *what);
/* A job was created, resumed, paused or cancelled: look now. Any thread. */
void replays_poke(struct replays *r);
/* May this rule act in this job? Any thread. Anything but an outside effect: yes. An outside one:
 * when its channel was allowed; never in a job that is not known, because it was cancelled or is
 * not among the newest. Jobs that ended are known for a while, because
 * their failed deliveries are still tried again from the delivery store. */
bool replays_allow(struct replays *r, uint64_t job, const struct rule *rule);
