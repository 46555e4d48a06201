/* A disk that fails on demand: a VFS that stands in for SQLite's default, passes everything on, and
 * counts and refuses what it is told to. Register it before the first store is opened. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

void sqlite_disk_register(void);

void sqlite_disk_full(bool full);           /* every write fails with SQLITE_FULL */
void sqlite_disk_fail_sync(bool fail);      /* every sync of a log fails with EIO */
void sqlite_disk_fail_file_sync(bool fail); /* every sync of a database file fails with EIO */
uint64_t sqlite_disk_log_syncs(void);       /* successful syncs of logs so far */
