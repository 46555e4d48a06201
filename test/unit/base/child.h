/* Runs something in a child process and says how it ended: for CHECKs and fault points. */
#pragma once

#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

/* The signal that ended the child, or 0 when it came to its end. Its stderr is thrown away. */
static inline int signal_of(void (*act)(void *arg), void *arg)
{
    pid_t child = fork();
    if (child == 0) {
        int nowhere = open("/dev/null", O_WRONLY | O_CLOEXEC);
        dup2(nowhere, STDERR_FILENO);
        act(arg);
        _exit(0);
    }
    int status = 0;
    if (child < 0 || waitpid(child, &status, 0) != child)
        return -1;
    return WIFSIGNALED(status) ? WTERMSIG(status) : 0;
}
