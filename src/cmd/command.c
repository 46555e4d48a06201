/* Parses a command line. ops/settings.c reads the options that are settings first; the rest is
 * matched with the command's own options. An option that matches neither is refused, with the
 * nearest name of both. */
#include "cmd/command.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/log.h"
#include "cmd/operate.h"
#include "ops/nearest.h"

enum { NAMES_MAX = SETTING_COUNT + COMMAND_OPTIONS_MAX + 2 };
enum { HELP_WIDTH = 100, HELP_COLUMN = 26, SETTING_COLUMN = 32 };

int command_fail(const struct invocation *in, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    fprintf(stderr, "fantail %s: ", in->command->name);
    vfprintf(stderr, format, args);
    fputc('\n', stderr);
    va_end(args);
    return EXIT_FAILED;
}

int command_usage(const struct invocation *in, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    fprintf(stderr, "fantail %s: ", in->command->name);
    vfprintf(stderr, format, args);
    fprintf(stderr, "\nSee: fantail %s --help\n", in->command->name);
    va_end(args);
    return EXIT_USAGE;
}

bool command_path(const struct invocation *in, const char *folder, const char *file,
                  char out[PATH_MAX])
{
    if (snprintf(out, PATH_MAX, "%s/%s", folder, file) < PATH_MAX)
        return true;
    command_fail(in, "the path %s is longer than %d bytes", folder, PATH_MAX - 1);
    return false;
}

bool invocation_has(const struct invocation *in, const char *option)
{
    for (int i = 0; i < in->option_count; i++)
        if (strcmp(in->options[i].name, option) == 0)
            return true;
    return false;
}

const char *invocation_value(const struct invocation *in, const char *option)
{
    for (int i = in->option_count - 1; i >= 0; i--)
        if (strcmp(in->options[i].name, option) == 0)
            return in->options[i].value;
    return NULL;
}

bool invocation_number(const struct invocation *in, const char *option, int64_t min, int64_t max,
                       int64_t *out)
{
    const char *text = invocation_value(in, option);
    if (!text)
        return true;
    int64_t number;
    if (!str_parse_i64(str_of(text), &number) || number < min || number > max) {
        command_usage(in, "--%s: '%.80s' is not a whole number from %lld to %lld", option, text,
                      (long long)min, (long long)max);
        return false;
    }
    *out = number;
    return true;
}

/* ---- help ---- */

static void print_option(const char *name, const char *value, const char *help)
{
    char left[80];
    snprintf(left, sizeof(left), "--%s%s%s", name, value ? " " : "", value ? value : "");
    printf("  %-*s  %s\n", HELP_COLUMN, left, help);
}

static void print_settings(void)
{
    struct settings s;
    settings_default(&s);
    for (enum setting_id i = 0; i < SETTING_COUNT; i++) {
        char left[120];
        snprintf(left, sizeof(left), "--%s %s", settings_name(i),
                 s.given[i][0] ? s.given[i] : "TEXT");
        printf("  %-*s  %s\n", SETTING_COLUMN, left, settings_help(i));
    }
    settings_done(&s);
}

/* Each line of `text`, broken at spaces where it is wider than HELP_WIDTH. */
static void print_wrapped(struct str text)
{
    struct str line;
    while (str_split(&text, '\n', &line)) {
        while (line.len > HELP_WIDTH) {
            size_t cut = HELP_WIDTH;
            while (cut > 0 && line.ptr[cut] != ' ')
                cut--;
            printf("%.*s\n", (int)cut, line.ptr);
            line = (struct str){line.ptr + cut + 1, line.len - cut - 1};
        }
        printf("%.*s\n", STR_ARG(line));
    }
}

static void print_help(const struct command *c)
{
    printf("fantail %s: %s\n\nusage: fantail %s%s%s%s\n\n", c->name, c->summary, c->name,
           c->options[0].name ? " [options]" : " [settings]", c->arguments[0] ? " " : "",
           c->arguments);
    print_wrapped(str_of(c->about));
    if (c->options[0].name)
        printf("\noptions:\n");
    for (const struct command_option *o = c->options; o->name; o++)
        print_option(o->name, o->value, o->help);
    if (strcmp(c->name, "serve") == 0) {
        printf("\nsettings, with their defaults (also FANTAIL_NAME in the environment, or "
               "'name = value' in a file):\n");
        print_settings();
        printf("  %-*s  %s\n", SETTING_COLUMN, "--config FILE",
               "read settings from FILE instead of DATA/fantail.conf");
    } else {
        printf("\nAll settings are options, too, such as --data DIR (default ./data): "
               "see fantail serve --help.\n");
    }
    if (c->examples)
        printf("\nexamples:\n%s\n", c->examples);
}

static void print_overview(const struct command *const *commands, size_t n)
{
    printf("Fantail " FANTAIL_VERSION ": a feed server. One post goes in, everyone who should see "
           "it gets it.\n\nusage: fantail COMMAND [options]\n\ncommands:\n");
    for (size_t i = 0; i < n; i++)
        printf("  %-10s %s\n", commands[i]->name, commands[i]->summary);
    printf("\n'fantail COMMAND --help' tells more. To look around:\n"
           "  fantail demo       make a small world in ./data\n"
           "  fantail serve      and serve it on http://localhost:8080\n");
}

/* ---- options ---- */

static const struct command_option *find_option(const struct command *c, struct str name)
{
    for (const struct command_option *o = c->options; o->name; o++)
        if (str_eq(name, str_of(o->name)))
            return o;
    return NULL;
}

static int refuse_option(const struct invocation *in, struct str name)
{
    const char *names[NAMES_MAX];
    size_t n = 0;
    for (const struct command_option *o = in->command->options; o->name; o++)
        names[n++] = o->name;
    for (enum setting_id i = 0; i < SETTING_COUNT; i++)
        names[n++] = settings_name(i);
    names[n++] = "config";
    names[n++] = "help";
    char typed[64];
    snprintf(typed, sizeof(typed), "%.*s", STR_ARG(name));
    const char *near = nearest_word(typed, names, n);
    return near ? command_usage(in, "there is no option --%s; did you mean --%s?", typed, near)
                : command_usage(in, "there is no option --%s", typed);
}

static int parse_option(struct invocation *in, char **rest, int left, int *used)
{
    const char *text = rest[0] + 2;
    struct str name = {text, strcspn(text, "=")};
    const struct command_option *o = find_option(in->command, name);
    *used = 1;
    if (!o)
        return refuse_option(in, name);
    const char *value = text[name.len] == '=' ? text + name.len + 1 : NULL;
    if (!o->value && value)
        return command_usage(in, "--%s takes no value", o->name);
    if (o->value && !value) {
        if (left < 2)
            return command_usage(in, "--%s needs a value (%s)", o->name, o->value);
        value = rest[1];
        *used = 2;
    }
    if (in->option_count == INVOCATION_OPTIONS_MAX)
        return command_usage(in, "more than %d options", INVOCATION_OPTIONS_MAX);
    in->options[in->option_count].name = o->name;
    in->options[in->option_count].value = value;
    in->option_count++;
    return EXIT_DONE;
}

/* Sorts arguments that are no setting into options and arguments (kept at the front of `rest`). */
static int parse_rest(struct invocation *in, char **rest, int count)
{
    in->arguments = rest;
    in->argument_count = 0;
    bool ended = false;
    for (int i = 0, used = 1; i < count; i += used) {
        used = 1;
        if (!ended && strcmp(rest[i], "--") == 0) {
            ended = true;
        } else if (!ended && rest[i][0] == '-' && rest[i][1] != '\0') {
            if (rest[i][1] != '-')
                return command_usage(in, "options begin with two dashes: '%s'", rest[i]);
            int code = parse_option(in, rest + i, count - i, &used);
            if (code != EXIT_DONE)
                return code;
        } else {
            rest[in->argument_count++] = rest[i];
        }
    }
    if (in->argument_count < in->command->arguments_min)
        return command_usage(in, "expected: %s", in->command->arguments);
    if (in->argument_count > in->command->arguments_max)
        return command_usage(in, "unexpected argument '%s'", rest[in->command->arguments_max]);
    rest[in->argument_count] = NULL;
    return EXIT_DONE;
}

static void warn_unknown(void *ctx, const char *variable)
{
    (void)ctx;
    log_warn("an environment variable names no setting", LOG_CSTR("variable", variable));
}

/* The server logs its work; other commands only failures, unless asked for more. */
static void set_log_level(const struct invocation *in)
{
    enum log_level level = LOG_INFO;
    log_level_parse(str_of(in->settings.log_level), &level);
    if (strcmp(in->command->name, "serve") != 0 &&
        in->settings.from[SETTING_ID_log_level] == FROM_DEFAULT)
        level = LOG_WARN;
    log_set_level(level);
}

static int run_command(const struct command *c, int argc, char **argv)
{
    for (int i = 0; i < argc && strcmp(argv[i], "--") != 0; i++) {
        if (strcmp(argv[i], "--help") == 0 || strcmp(argv[i], "-h") == 0) {
            print_help(c);
            return EXIT_DONE;
        }
    }
    struct invocation in = {.command = c};
    char **rest = calloc((size_t)argc + 1, sizeof(*rest));
    CHECK(rest);
    int count = 0;
    char why[300];
    if (settings_load(&in.settings, argc, argv, rest, &count, why) != OK) {
        free(rest);
        return command_usage(&in, "%s", why);
    }
    set_log_level(&in);
    settings_unknown_environment(warn_unknown, NULL);
    int code = EXIT_DONE;
    if (c->raw) {
        in.arguments = rest;
        in.argument_count = count;
    } else {
        code = parse_rest(&in, rest, count);
    }
    if (code == EXIT_DONE)
        code = c->operations ? operate(&in) : c->run(&in);
    settings_done(&in.settings);
    free(rest);
    return code;
}

int command_run(const struct command *const *commands, size_t n, int argc, char **argv)
{
    bool help = argc > 0 && (strcmp(argv[0], "help") == 0 || strcmp(argv[0], "--help") == 0 ||
                             strcmp(argv[0], "-h") == 0);
    const char *name = argc == 0 ? NULL : help && argc > 1 ? argv[1] : argv[0];
    if (argc == 0 || (help && argc == 1)) {
        print_overview(commands, n);
        return argc == 0 ? EXIT_USAGE : EXIT_DONE;
    }
    if (strcmp(name, "--version") == 0)
        name = "version";
    for (size_t i = 0; i < n; i++) {
        if (strcmp(commands[i]->name, name) != 0)
            continue;
        if (!help)
            return run_command(commands[i], argc - 1, argv + 1);
        print_help(commands[i]);
        return EXIT_DONE;
    }
    const char *names[64];
    CHECK(n <= COUNT_OF(names));
    for (size_t i = 0; i < n; i++)
        names[i] = commands[i]->name;
    const char *near = nearest_word(name, names, n);
    fprintf(stderr, "fantail: there is no command '%s'", name);
    if (near)
        fprintf(stderr, "; did you mean '%s'?", near);
    fprintf(stderr, "\nSee: fantail help\n");
    return EXIT_USAGE;
}
