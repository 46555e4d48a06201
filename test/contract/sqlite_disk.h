/* A disk that fails on demand: a VFS that stands in for SQLite's default, passes everything on, and
 * counts and refuses calls on demand. Register it before the first store is opened. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

void sqlite_disk_register(void);

void sqlite_disk_full(bool full);           /* every write fails with SQLITE_FULL */
void sqlite_disk_fail_sync(bool fail);      /* every sync of a log fails with EIO */
void sqlite_disk_fail_file_sync(bool fail); /* every sync of a database file fails with EIO */
uint64_t sqlite_disk_log_syncs(void);       /* successful syncs of logs so far */

enum { DISK_PAUSE_US = 500, DISK_WATCHED_BYTES = 2 << 20, DISK_SLICE_BYTES = 100 * 1024 };
/* The most that was written to a database file without a pause, among the first
 * DISK_WATCHED_BYTES since the last call. */
uint64_t sqlite_disk_file_burst(void);
/* Called after each DISK_SLICE_BYTES written to a database file, on the thread that wrote; NULL: no
 * longer. */
void sqlite_disk_on_file_slice(void (*told)(void *ctx), void *ctx);
