/* `fantail config`: the value of each setting, and where it comes from. Passwords of URLs are not
 * shown. */
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

static int run(struct invocation *in)
{
    const struct settings *s = &in->settings;
    bool json = invocation_has(in, "json");
    json_t *rows = json_object();
    for (enum setting_id i = 0; i < SETTING_COUNT; i++) {
        char value[PATH_MAX];
        settings_shown(s, i, value, sizeof(value));
        json_object_set_new(
            rows, settings_name(i),
            json_pack("{s:s, s:s, s:s*}", "value", str_is_utf8(str_of(value)) ? value : "?", "from",
                      source_names[s->from[i]], "help", json ? NULL : settings_help(i)));
    }
    json_t *all = json_pack("{s:o, s:s*}", "settings", rows, "file", s->file);
    if (json)
        show_json(rows);
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
