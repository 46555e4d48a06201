/* The program: wires the commands and nothing else.
 *
 * SIGPIPE is ignored, so that a peer that goes away is an error where it is written to. For the
 * output of a command that means: work ends in order, and the process then dies of SIGPIPE like any
 * other tool whose reader has gone. */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <openssl/crypto.h>
#include <sodium.h>

#include "base/check.h"
#include "cmd/command.h"
#include "cmd/operate.h"

/* The rows of cmd/operator.c stand after the first two. */
static const struct command *const others[] = {
    &command_serve,   &command_demo,   &command_plan,    &command_backup,
    &command_restore, &command_import, &command_copy,    &command_migrate,
    &command_bench,   &command_config, &command_version,
};

enum { COMMANDS_MAX = 64, BEFORE_OPERATORS = 2, OUTPUT_BUFFER = 1024 * 1024 };

static size_t list_commands(const struct command *out[COMMANDS_MAX])
{
    size_t n = 0;
    CHECK(COUNT_OF(others) + operator_command_count <= COMMANDS_MAX);
    for (size_t i = 0; i < COUNT_OF(others); i++) {
        for (size_t k = 0; i == BEFORE_OPERATORS && k < operator_command_count; k++)
            out[n++] = &operator_commands[k];
        out[n++] = others[i];
    }
    return n;
}

/* Every user of the machine can read the words of a process: those that the command works with are
 * copies, and what the system shows has no password. The copies live as long as the process. */
static char **take_words(int argc, char **argv)
{
    char **words = calloc((size_t)argc + 1, sizeof *words);
    CHECK(words);
    for (int i = 0; i < argc; i++) {
        words[i] = strdup(argv[i]);
        CHECK(words[i]);
        settings_hide_passwords(argv[i]);
    }
    return words;
}

static char output[OUTPUT_BUFFER];

int main(int argc, char **argv)
{
    signal(SIGPIPE, SIG_IGN);
    if (!isatty(STDOUT_FILENO)) /* so that the flush below is what fails, and says why */
        setvbuf(stdout, output, _IOFBF, sizeof output);
    if (sodium_init() < 0 || OPENSSL_init_crypto(OPENSSL_INIT_NO_ATEXIT, NULL) != 1) {
        fprintf(stderr, "fantail: the cryptographic libraries do not start\n");
        return EXIT_FAILED;
    }
    const struct command *commands[COMMANDS_MAX];
    static char **words;
    words = take_words(argc, argv);
    int code = command_run(commands, list_commands(commands), argc - 1, words + 1);
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
