/* `fantail config`: what is in force, and where each value comes from. */
#include "cmd/command.h"
#include "cmd/show.h"

static const char *const source_names[] = {
    [FROM_DEFAULT] = "default",
    [FROM_FILE] = "file",
    [FROM_ENVIRONMENT] = "environment",
    [FROM_FLAG] = "command line",
};

static const char text[] =
    "setting               value                       from          what it does\n"
    "<settings {#:-21} {value:-27} {from:-12}  {help}\n>[\nfile: {file}\n]";

static void add_row(void *ctx, const char *name, const char *value, enum setting_source from,
                    const char *help)
{
    bool shown = str_is_utf8(str_of(value));
    json_t *row = json_pack("{s:s, s:s}", "value", shown ? value : "?", "from", source_names[from]);
    if (help)
        json_object_set_new(row, "help", json_string(help));
    json_object_set_new(ctx, name, row);
}

static void add_short_row(void *ctx, const char *name, const char *value, enum setting_source from,
                          const char *help)
{
    (void)help;
    add_row(ctx, name, value, from, NULL);
}

static int run(struct invocation *in)
{
    bool json = invocation_has(in, "json");
    json_t *settings = json_object();
    settings_each(&in->settings, json ? add_short_row : add_row, settings);
    json_t *all = json_pack("{s:o, s:s*}", "settings", settings, "file", in->settings.file);
    if (json)
        show_json(settings);
    else
        show_text(stdout, text, all);
    json_decref(all);
    return EXIT_DONE;
}

const struct command command_config = {
    .name = "config",
    .arguments = "",
    .summary = "print the settings in force and where they come from",
    .about = "A value comes from a flag, else from the environment (FANTAIL_NAME), else from the "
             "file (--config FILE, else DATA/fantail.conf), else it is the default.",
    .examples = "  fantail config\n  FANTAIL_LOOPS=2 fantail config --json",
    .options = {{"json", NULL, "as one JSON object"}},
    .run = run,
};
