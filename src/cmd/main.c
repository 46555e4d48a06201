/* The program: wires the commands and nothing else.
 *
 * SIGPIPE is ignored, so that a peer that goes away is an error where it is written to. For the
 * output of a command that means: work ends in order, and the process then dies of SIGPIPE like any
 * other tool whose reader has gone. */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

#include <openssl/crypto.h>
#include <sodium.h>

#include "base/check.h"
#include "cmd/commands.h"

static const struct command *const commands[] = {
    &command_serve,   &command_demo,    &command_status,  &command_plan,   &command_check,
    &command_explain, &command_event,   &command_dead,    &command_replay, &command_rebuild,
    &command_key,     &command_backup,  &command_restore, &command_import, &command_bench,
    &command_config,  &command_version, &command_migrate, &command_copy,
};

int main(int argc, char **argv)
{
    signal(SIGPIPE, SIG_IGN);
    if (sodium_init() < 0 || OPENSSL_init_crypto(OPENSSL_INIT_NO_ATEXIT, NULL) != 1) {
        fprintf(stderr, "fantail: the cryptographic libraries do not start\n");
        return EXIT_FAILED;
    }
    int code = command_run(commands, COUNT_OF(commands), argc - 1, argv + 1);
    errno = 0;
    if (fflush(stdout) != 0 || ferror(stdout)) {
        if (errno == EPIPE || errno == 0) {
            signal(SIGPIPE, SIG_DFL);
            raise(SIGPIPE);
        }
        fprintf(stderr, "fantail: cannot write the output: %s\n", strerror(errno));
        code = code == EXIT_DONE ? EXIT_FAILED : code;
    }
    return code;
}
