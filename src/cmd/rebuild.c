/* `fantail rebuild timelines | inboxes | counters`: make again what is derived, from truth, online.
 */
#include <stdio.h>
#include <string.h>

#include "cmd/commands.h"
#include "cmd/job_watch.h"
#include "cmd/link.h"
#include "cmd/show.h"

enum { RATE_MAX = 1000000 };

static const struct job_family rebuilds = {.path = "/v1/admin/rebuilds",
                                           .noun = "rebuild",
                                           .label = "rebuilding",
                                           .one = "account",
                                           .many = "accounts"};

static int start(struct invocation *in)
{
    int64_t rate = -1;
    const char *user = invocation_value(in, "user");
    if (!user)
        user = invocation_value(in, "account");
    if (!invocation_number(in, "rate", 0, RATE_MAX, &rate))
        return EXIT_USAGE;
    struct link *l = link_open(in, LINK_EXISTING);
    if (!l)
        return EXIT_FAILED;
    json_t *body = json_pack("{s:s}", "what", in->arguments[0]);
    if (user)
        json_object_set_new(body, "user", json_string(user));
    if (rate >= 0)
        json_object_set_new(body, "rate", json_integer((json_int_t)rate));
    json_t *job = link_send(l, "POST", "/v1/admin/rebuilds", body);
    int code = job ? EXIT_DONE : EXIT_FAILED;
    if (job && !invocation_has(in, "detach")) {
        code = job_watch(in, l, &rebuilds, job);
    } else if (job) {
        if (invocation_has(in, "json"))
            show_json(job);
        else
            printf("rebuild %s runs%s: fantail rebuild watch %s\n", answer_text(job, "id"),
                   link_is_remote(l) ? "" : " when the server does", answer_text(job, "id"));
        json_decref(job);
    }
    link_close(l);
    return code;
}

static int run(struct invocation *in)
{
    const char *what = in->arguments[0];
    if (strcmp(what, "pause") == 0)
        return job_change_state(in, &rebuilds, "paused");
    if (strcmp(what, "resume") == 0)
        return job_change_state(in, &rebuilds, "running");
    if (strcmp(what, "cancel") == 0)
        return job_change_state(in, &rebuilds, "cancelled");
    if (strcmp(what, "watch") == 0)
        return job_watch_id(in, &rebuilds);
    if (in->argument_count > 1)
        return command_usage(in, "unexpected argument '%s'", in->arguments[1]);
    if (strcmp(what, "list") == 0)
        return job_list_all(in, &rebuilds);
    if (strcmp(what, "timelines") == 0 || strcmp(what, "counters") == 0 ||
        strcmp(what, "inboxes") == 0)
        return start(in);
    return command_usage(
        in, "'%s' is not timelines, inboxes, counters, list, watch, pause, resume or cancel", what);
}

const struct command command_rebuild = {
    .name = "rebuild",
    .arguments =
        "timelines | inboxes | counters | list | watch ID | pause ID | resume ID | cancel ID",
    .summary = "make timelines, inboxes or counters again from truth, online",
    .about =
        "Walks accounts by id and makes what is derived of each anew: home timelines from posts "
        "and\n"
        "follows, inboxes from groups and their members, counters from what they count. The server "
        "goes on\n"
        "meanwhile. It rests while the store is at risk, goes on after a restart, and shows how "
        "far "
        "it is\n"
        "(Ctrl-C leaves it running).\n"
        "'fantail check' says whether there is anything to rebuild.",
    .examples = "  fantail rebuild timelines\n  fantail rebuild inboxes --account ada\n"
                "  fantail rebuild timelines --rate 100 --detach\n  fantail rebuild list",
    .arguments_min = 1,
    .arguments_max = 2,
    .options = {{"user", "USER", "one account, by name or id"},
                {"account", "USER", "the same"},
                {"rate", "N", "accounts a second (default 500); 0: no limit"},
                {"detach", NULL, "do not wait for the end"},
                {"json", NULL, "as JSON"}},
    .run = run,
};
