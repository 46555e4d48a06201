/* The lock file stays when its holder ends: removing it would let two processes hold locks on two
 * files of the same name. Only the flock counts; the process id inside is for people. */
#include "ops/lock.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

enum { WHY_MAX = 300 };

static enum err fail(char *why, const char *what, const char *path)
{
    snprintf(why, WHY_MAX, "%s %.200s: %s", what, path, strerror(errno));
    return ERR_UNAVAILABLE;
}

/* Makes the folder and those above it. */
static enum err make_folder(const char *folder, char *why)
{
    char path[PATH_MAX];
    if (snprintf(path, sizeof(path), "%s", folder) >= (int)sizeof(path)) {
        errno = ENAMETOOLONG;
        return fail(why, "cannot create the data folder", folder);
    }
    for (char *p = path + 1; *p; p++) {
        if (*p != '/')
            continue;
        *p = '\0';
        if (mkdir(path, 0777) != 0 && errno != EEXIST)
            return fail(why, "cannot create the folder", path);
        *p = '/';
    }
    if (mkdir(path, 0700) != 0 && errno != EEXIST)
        return fail(why, "cannot create the data folder", folder);
    struct stat st;
    if (stat(path, &st) == 0 && !S_ISDIR(st.st_mode)) {
        errno = ENOTDIR;
        return fail(why, "cannot use the data folder", folder);
    }
    return OK;
}

enum err data_lock_take(struct data_lock *lock, const char *folder, char why[WHY_MAX])
{
    enum err e = make_folder(folder, why);
    if (e)
        return e;
    char path[PATH_MAX];
    if (snprintf(path, sizeof(path), "%s/lock", folder) >= (int)sizeof(path)) {
        errno = ENAMETOOLONG;
        return fail(why, "cannot use the data folder", folder);
    }
    int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (fd < 0)
        return fail(why, "cannot write to the data folder:", path);
    if (flock(fd, LOCK_EX | LOCK_NB) != 0) {
        char holder[32] = "";
        ssize_t n = pread(fd, holder, sizeof(holder) - 1, 0);
        close(fd);
        long pid = n > 0 ? strtol(holder, NULL, 10) : 0;
        snprintf(why, WHY_MAX, "another server (pid %ld) uses %.200s", pid, folder);
        return ERR_CONFLICT;
    }
    char text[32];
    int len = snprintf(text, sizeof(text), "%ld\n", (long)getpid());
    if (ftruncate(fd, 0) != 0 || pwrite(fd, text, (size_t)len, 0) != len) {
        e = fail(why, "cannot write to the data folder:", path);
        close(fd);
        return e;
    }
    lock->fd = fd;
    return OK;
}

void data_lock_release(struct data_lock *lock)
{
    if (lock->fd >= 0)
        close(lock->fd);
    lock->fd = -1;
}
