/* The driver of the db port for many nodes: PostgreSQL 13 or newer, through libpq.
 *
 * Its promises beside port/db.h, and where a network and several writers change them:
 *  - Several jobs run at a time, each writer on a connection of its own; run() is called on any of
 *    the writers' threads, the commit hook and done() on a thread of their own, which may wait:
 *    meanwhile the writers run jobs that share no actor or object. Every transaction is
 *    SERIALIZABLE: check-then-write code behaves as if jobs ran one after the other.
 *  - Order. For jobs whose events share an actor or an object, hook and done() are called in the
 *    order of their commits. For others they are called in any order; with writers = 1 in the order
 *    of submission for all jobs with events. This holds within one process: other nodes' events
 *    arrive by other means. So a job sees what an earlier one wrote once that one's done() was
 *    called.
 *  - A transaction is run again after a serialization failure, a deadlock or a lost connection, a
 *    bounded number of times; then its job ends as ERR_UNAVAILABLE.
 *  - When many jobs wait, a writer runs several in one transaction (at most group_max): one COMMIT
 *    for all, and hot rows are not fought over. A job's failure stays its own.
 *  - A lost answer to COMMIT is looked up by the transaction's id, and after a crash of the server
 *    by its outbox row. Only when its fate stays unknown for lookup_ms (the server is gone, or it
 *    crashed and the transaction stored no event) the job ends as ERR_UNKNOWN_COMMIT.
 *  - Ids, those of events too, are given before COMMIT: an event with a lower id may become visible
 *    after one with a higher id, from another writer or another node.
 *  - A server that is away or silent means ERR_UNAVAILABLE (ERR_TIMEOUT for a statement that the
 *    server itself gave up) within the timeouts below; while it is known to be away calls fail at
 *    once. `fatal` is called only when the server says that its data are damaged.
 *  - db_backup answers ERR_INVALID: POSTGRES_BACKUP_ADVICE says what to do instead.
 *
 * The URL must lead to the server itself or to a pooler in session mode: prepared statements and
 * settings belong to connections.
 *
 * Distribution. Tables of a person begin their primary keys with that person's id, and no
 * transaction needs a join across people that an index of those keys does not serve: sessions
 * (account_id), follows (follower_id), blocks (blocker_id), mutes (muter_id), idempotency
 * (account_id). accounts is distributed by its own id. What belongs to a post begins with the
 * post's id: likes, post_versions; comments and posts are found by their own ids. What belongs to a
 * group begins with the group's id: group_members, group_log; what belongs to a person in it with
 * that person's: group_invitations, group_mentions; chats with the lower id of the two. Reference
 * or local tables: meta, api_keys, event_counts, delivery_counts, inbox_*, jobs, subscribers,
 * outbox, deliveries. */
#pragma once

#include "base/clock.h"
#include "port/db.h"

#define POSTGRES_BACKUP_ADVICE "use pg_dump (or your provider's backups) for a PostgreSQL store"

struct postgres_config {
    const char *url;              /* postgresql://user@host/database, or any libpq string */
    int writers;                  /* connections and threads for writes */
    int readers;                  /* connections for db_read */
    size_t queue_max;             /* jobs waiting for a writer */
    size_t group_max;             /* jobs in one COMMIT, when so many wait */
    int64_t connect_timeout_ms;   /* for one try to connect */
    int64_t statement_timeout_ms; /* for one statement, and for a silent server */
    int64_t read_wait_ms;         /* how long db_read waits for a connection: ERR_OVERLOADED */
    int64_t retry_ms;             /* how long a job outlasts a server that is away */
    int64_t lookup_ms;            /* how long the fate of a lost COMMIT is looked for */
};
void postgres_config_default(struct postgres_config *c);

/* Connects, creates the tables or brings them up to date, and starts the threads. Waits are of real
 * threads and sockets, so the clock is not asked. On failure *out is untouched and `detail` says
 * why. */
enum err db_postgres_open(const struct postgres_config *config, struct id_gen *ids,
                          struct clock *clock, struct db **out, char detail[TX_DETAIL_MAX]);

/* Which schema the database has (0: no tables yet) and which one opening would bring it to. Changes
 * nothing. */
enum err db_postgres_schema(const struct postgres_config *config, int *present, int *wanted,
                            char detail[TX_DETAIL_MAX]);
