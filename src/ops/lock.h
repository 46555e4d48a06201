/* The data folder belongs to one process at a time: an flock on DATA/lock, which the kernel
 * releases however its holder ends. The file contains the holder's process id, for the message that
 * the next process prints. */
#pragma once

#include <stdint.h>

#include "base/err.h"

struct data_lock {
    int fd;
};

/* Creates the folder (mode 0700) when it is missing. On failure `why` says so:
 * ERR_CONFLICT "another server (pid 123) uses ./data"; ERR_UNAVAILABLE: cannot be created or
 * written. */
enum err data_lock_take(struct data_lock *lock, const char *folder, char why[300]);
void data_lock_release(struct data_lock *lock);
