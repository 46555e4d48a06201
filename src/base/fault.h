/* Named points at which a test can make the process die (kill -9 of itself). In builds without
 * -Dfaults=true FAULT() is nothing.
 *
 * FANTAIL_FAULT=name:3 kills at the third time the point is reached. The table is the list that
 * the crash tests walk; a FAULT() with a name that is not in it does not compile. */
#pragma once

/* clang-format off */
#define FAULT_TABLE(X)                                                                       \
    X(db_before_commit)      /* the group is written, COMMIT not yet called */               \
    X(db_after_commit)       /* durable, nobody told */                                      \
    X(outbox_after_commit)   /* durable and applied to the views, not handed to the relay */ \
    X(answer_before_send)    /* the answer is rendered, not sent */                          \
    X(relay_before_publish)  /* taken from the outbox, not on the bus */                     \
    X(relay_after_publish)                                                                   \
    X(batch_before_sink)     /* audience known, nothing delivered */                         \
    X(batch_after_sink)      /* delivered, not acknowledged */                               \
    X(done_before_mark)      /* everything delivered, the mark not yet moved */              \
    X(done_after_mark)                                                                       \
    X(backfill_before_merge)                                                                 \
    X(rebuild_before_install)                                                                \
    X(snapshot_before_write)                                                                 \
    X(snapshot_half_written)                                                                 \
    X(snapshot_before_rename)                                                                \
    X(snapshot_after_rename)                                                                 \
    X(outbox_before_trim)    /* a snapshot covers these rows, not yet deleted */             \
    X(purge_between_slices)  /* an account's things are half removed */                      \
    X(keeper_before_crossing)

enum fault_point {
#define FAULT_ENUM(name) FAULT_##name,
    FAULT_TABLE(FAULT_ENUM)
#undef FAULT_ENUM
    FAULT_COUNT
};
/* clang-format on */

const char *fault_name(enum fault_point point);
void fault_reached(enum fault_point point);

#ifdef FANTAIL_FAULTS
#define FAULT(name) fault_reached(FAULT_##name)
#else
#define FAULT(name) ((void)FAULT_##name)
#endif
