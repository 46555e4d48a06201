/* The embedded driver of the db port: SQLite in the data folder, WAL, synchronous=FULL, one
 * writer thread with group commit, a pool of reader connections. */
#pragma once

#include "base/clock.h"
#include "port/db.h"

struct sqlite_config {
    const char *path;        /* the file; "data/fantail.db" */
    int readers;             /* connections for db_read */
    size_t queue_max;        /* jobs waiting for the writer */
    size_t group_max;        /* jobs in one COMMIT */
    int64_t read_wait_ms;    /* how long db_read waits for a connection before ERR_OVERLOADED */
    int64_t cache_bytes;     /* page cache per connection */
    int64_t wal_limit_bytes; /* checkpoint (on its own thread) when the WAL is larger */
};
void sqlite_config_default(struct sqlite_config *c);

/* Opens or creates the store, brings its schema up to date and starts the threads. On failure
 * *out is untouched and `detail` says why. */
enum err db_sqlite_open(const struct sqlite_config *config, struct id_gen *ids, struct clock *clock,
                        struct db **out, char detail[TX_DETAIL_MAX]);

/* Which schema the file has (0: there is no store yet) and which one opening would bring it to.
 * Changes nothing. */
enum err db_sqlite_schema(const char *path, int *present, int *wanted, char detail[TX_DETAIL_MAX]);
