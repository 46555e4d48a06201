/* `fantail config`: what is in force, and where each value comes from. */
#include <stdio.h>
#include <string.h>

#include "base/json_out.h"
#include "cmd/commands.h"

static const char *const source_names[] = {
    [FROM_DEFAULT] = "default",
    [FROM_FILE] = "file",
    [FROM_ENVIRONMENT] = "environment",
    [FROM_FLAG] = "command line",
};

struct width {
    int name, value;
};

static void measure(void *ctx, const char *name, const char *value, enum setting_source from,
                    const char *help)
{
    struct width *w = ctx;
    (void)from;
    (void)help;
    if ((int)strlen(name) > w->name)
        w->name = (int)strlen(name);
    if ((int)strlen(value) > w->value)
        w->value = (int)strlen(value);
}

static void print_row(void *ctx, const char *name, const char *value, enum setting_source from,
                      const char *help)
{
    const struct width *w = ctx;
    printf("%-*s  %-*s  %-12s  %s\n", w->name, name, w->value, value, source_names[from], help);
}

static void write_row(void *ctx, const char *name, const char *value, enum setting_source from,
                      const char *help)
{
    struct json_out *j = ctx;
    (void)help;
    json_key(j, str_of(name));
    json_object_begin(j);
    json_put(j, "value", str, str_is_utf8(str_of(value)) ? str_of(value) : STR("?"));
    json_put(j, "from", str, str_of(source_names[from]));
    json_object_end(j);
}

static int run(struct invocation *in)
{
    if (invocation_has(in, "json")) {
        struct buf out;
        struct json_out j;
        buf_init(&out, 0);
        json_out_init(&j, &out);
        json_object_begin(&j);
        settings_each(&in->settings, write_row, &j);
        json_object_end(&j);
        printf("%.*s\n", STR_ARG(buf_view(&out)));
        buf_done(&out);
        return EXIT_DONE;
    }
    struct width w = {0, 0};
    settings_each(&in->settings, measure, &w);
    printf("%-*s  %-*s  %-12s  %s\n", w.name, "setting", w.value, "value", "from", "what it does");
    settings_each(&in->settings, print_row, &w);
    if (in->settings.file)
        printf("\nfile: %s\n", in->settings.file);
    return EXIT_DONE;
}

const struct command command_config = {
    .name = "config",
    .arguments = "",
    .summary = "print the settings in force and where they come from",
    .about =
        "A value comes from a flag, else from the environment (FANTAIL_NAME), else from the file\n"
        "(--config FILE, else DATA/fantail.conf), else it is the default.",
    .examples = "  fantail config\n  FANTAIL_LOOPS=2 fantail config --json",
    .options = {{"json", NULL, "as one JSON object"}},
    .run = run,
};
