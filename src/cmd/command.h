/* A command of the program: one table row with its words, its options and its function. Parsing,
 * --help, "did you mean" and exit codes are the same for all of them. */
#pragma once

#include <limits.h>
#include <stdbool.h>
#include <stddef.h>

#include "ops/settings.h"

/* 0: done. 1: it could not be done, or differences were found. 2: the command line is wrong. */
enum { EXIT_DONE = 0, EXIT_FAILED = 1, EXIT_USAGE = 2 };

struct invocation;

/* What becomes of an option's value. All but LOCAL are members of the request (cmd/operate.h). */
enum option_kind {
    OPTION_LOCAL,  /* the command reads it */
    OPTION_TEXT,   /* text as it is */
    OPTION_FILTER, /* the same; it narrows what the operation is about */
    OPTION_NUMBER, /* a whole number from min to max */
    OPTION_TRUE,   /* a switch */
    OPTION_MOMENT, /* a time, or how long ago */
    OPTION_WORDS,  /* may be repeated: joined with spaces */
    OPTION_LIST,   /* may be repeated, or hold commas: an array */
};

struct command_option {
    const char *name;  /* without dashes */
    const char *value; /* its name in the help; NULL: a switch */
    const char *help;
    enum option_kind kind;
    const char *of; /* the verbs that take it, with a space after each; NULL: all */
    int64_t min, max;
    const char *member; /* of the request; NULL: its name, with '_' for '-' */
};

struct operation;

enum { COMMAND_OPTIONS_MAX = 16, INVOCATION_OPTIONS_MAX = 32 };

struct command {
    const char *name;
    const char *arguments; /* for the usage line: "USER POST"; "" when none */
    const char *summary;   /* one line */
    const char *about;     /* paragraphs of the help */
    const char *examples;
    int arguments_min, arguments_max;
    struct command_option options[COMMAND_OPTIONS_MAX + 1]; /* ends with name NULL */
    bool raw;                                               /* parses all arguments but settings
                                                               itself */
    const struct operation *operations;                     /* cmd/operate.h; NULL: run */
    int (*run)(struct invocation *in);
};

/* One call of a command: settings, options and arguments taken apart. */
struct invocation {
    const struct command *command;
    struct settings settings;
    char **arguments; /* argument_count of them, then NULL */
    int argument_count;
    struct {
        const char *name;
        const char *value;
    } options[INVOCATION_OPTIONS_MAX];
    int option_count;
};

/* Runs argv[0] as a command with the rest; returns the exit code. */
int command_run(const struct command *const *commands, size_t n, int argc, char **argv);

bool invocation_has(const struct invocation *in, const char *option);
/* The last value given; NULL: not given. */
const char *invocation_value(const struct invocation *in, const char *option);
/* A whole number within bounds. False: a message was printed, return EXIT_USAGE. */
bool invocation_number(const struct invocation *in, const char *option, int64_t min, int64_t max,
                       int64_t *out);

/* FOLDER/FILE; false: it is too long, a message was printed, return EXIT_FAILED. */
bool command_path(const struct invocation *in, const char *folder, const char *file,
                  char out[PATH_MAX]);

/* "fantail status: …" on stderr; returns EXIT_FAILED. */
int command_fail(const struct invocation *in, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
/* The same, with a pointer to the help; returns EXIT_USAGE. */
int command_usage(const struct invocation *in, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* The commands that are no rows of cmd/operator.c. */
extern const struct command command_serve;
extern const struct command command_demo;
extern const struct command command_plan;
extern const struct command command_backup;
extern const struct command command_restore;
extern const struct command command_migrate;
extern const struct command command_copy;
extern const struct command command_import;
extern const struct command command_bench;
extern const struct command command_config;
extern const struct command command_version;
