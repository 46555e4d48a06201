/* Named points at which a test can make the process die (kill -9 of itself). In builds without
 * -Dfaults=true FAULT() is nothing.
 *
 * FANTAIL_FAULT=name:3 kills at the third time the point is reached. The table is the list that
 * the crash tests walk; a FAULT() with a name that is not in it does not compile. */
#pragma once

#include <stdint.h>

#include "base/err.h"

/* clang-format off */
#define FAULT_TABLE(X)                                                                       \
    X(db_before_commit)      /* the group is written, COMMIT not yet called */               \
    X(db_after_commit)       /* durable, not answered */                                    \
    X(outbox_after_commit)   /* durable and applied to the views, not handed to the relay */ \
    X(answer_before_send)    /* the answer is rendered, not sent */                          \
    X(relay_before_publish)  /* taken from the outbox, not on the bus */                     \
    X(relay_after_publish)                                                                   \
    X(batch_before_sink)     /* audience known, nothing delivered */                         \
    X(batch_after_sink)      /* delivered, not acknowledged */                               \
    X(done_before_watermark) /* all delivered, the watermark not yet moved */                \
    X(done_after_watermark)                                                                  \
    X(backfill_before_merge)                                                                 \
    X(rebuild_before_install)                                                                \
    X(snapshot_before_write)                                                                 \
    X(snapshot_half_written)                                                                 \
    X(snapshot_before_rename)                                                                \
    X(snapshot_after_rename)                                                                 \
    X(outbox_before_trim)    /* a snapshot covers these rows, not yet deleted */             \
    X(purge_between_slices)  /* an account's things are half removed */                      \
    X(keeper_before_crossing)                                                                \
    X(record_before_commit)  /* failures known in memory, not recorded */                    \
    X(record_after_commit)   /* recorded, their messages not acknowledged */                 \
    X(retry_before_publish)  /* claimed as due, not on the bus */                            \
    X(retry_after_done)      /* retried with success, not recorded */                        \
    X(redrive_between_slices)                                                                \
    X(replay_before_begin)   /* events read, none handed to the engine */                    \
    X(replay_before_save)    /* delivered, the position not yet saved */                     \
    X(replay_after_save)                                                                     \
    X(rebuild_between_slices)                                                                \
    X(dedup_after_claim)     /* claimed, not acted */                                        \
    X(dedup_before_confirm)  /* acted, not confirmed */                                      \
    X(timer_before_fire)     /* due, still in its table */                                   \
    X(timer_after_fire)      /* its event is committed, nothing else was done */

enum fault_point {
#define FAULT_ENUM(name) FAULT_##name,
    FAULT_TABLE(FAULT_ENUM)
#undef FAULT_ENUM
    FAULT_COUNT
};
/* clang-format on */

const char *fault_name(enum fault_point point);
void fault_reached(enum fault_point point);

/* Makes deliveries of a consumer fail, while the program runs: in such builds the file named by
 * FANTAIL_FAIL is read, again and again; a line "timelines UNAVAILABLE" makes every delivery
 * of that consumer fail with that error, "timelines UNAVAILABLE 42" only those of events of
 * actor 42. */
enum err fault_asked(const char *consumer, uint64_t actor);

#ifdef FANTAIL_FAULTS
#define FAULT(name)                  fault_reached(FAULT_##name)
#define FAULT_ASKED(consumer, actor) fault_asked(consumer, actor)
#else
#define FAULT(name)                  ((void)FAULT_##name)
#define FAULT_ASKED(consumer, actor) OK
#endif
