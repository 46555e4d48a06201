/* `fantail replay plan | start`: delivers events again, after a plan has counted the effects. A
 * start plans first, with the same selection, and sends the counts along. */
#include <stdio.h>

#include "base/check.h"
#include "base/clock.h"
#include "cmd/operate.h"
#include "cmd/show.h"

/* [{"channel":"views","would_act":…}] becomes {"views":{"would_act":…}}, which adds up. */
void replay_take_slice(struct invocation *in, json_t *total, json_t *slice)
{
    (void)in;
    (void)total;
    json_t *channels = json_object(), *one;
    size_t i;
    json_array_foreach(json_object_get(slice, "channels"), i, one)
    {
        json_object_set(channels, answer_text(one, "channel"), one);
        json_object_del(one, "channel");
    }
    json_object_set_new(slice, "channels", channels);
}

/* Without --to it ends now, so that plan and start mean the same events. NULL: a message was
 * printed. */
static json_t *selection(const struct invocation *in, const struct operation *op)
{
    char now[TIME_TEXT_LEN + 1] = "";
    json_t *members = operate_members(in, op);
    time_format(show_now_ms(), now);
    if (members && !json_object_get(members, "to"))
        json_object_set_new(members, "to", json_string(now));
    return members;
}

static const struct operation *planning(const struct invocation *in)
{
    const struct operation *op = in->command->operations;
    while (op->run != replay_plan)
        op++;
    return op;
}

int replay_plan(struct invocation *in, const struct operation *op)
{
    json_t *members = selection(in, op);
    if (!members)
        return EXIT_USAGE;
    struct control *c = control_open(in, CONTROL_EXISTING);
    json_t *plan = c ? operate_ask(in, c, op, members, 0) : NULL;
    int code = plan ? EXIT_DONE : EXIT_FAILED;
    if (plan)
        operate_show(in, op, members, plan);
    if (plan && answer_text(plan, "refused")[0])
        code = command_fail(in, "this replay would be refused: %s", answer_text(plan, "refused"));
    json_decref(plan);
    control_close(c);
    json_decref(members);
    return code;
}

/* Takes `plan`. */
static int begin(struct invocation *in, struct control *c, const struct operation *op,
                 json_t *members, json_t *plan)
{
    json_int_t events = answer_int(plan, "events");
    bool refused = answer_text(plan, "refused")[0] != '\0';
    if (!invocation_has(in, "json"))
        operate_show(in, planning(in), members, plan);
    json_decref(plan);
    if (events == 0 && !refused) {
        fprintf(stderr, "nothing matches: no replay was started\n");
        return EXIT_DONE;
    }
    json_object_set_new(members, "total", json_integer(events));
    json_t *job = operate_ask(in, c, op, members, 0);
    return job ? job_follow(in, c, op, job) : EXIT_FAILED;
}

int replay_start(struct invocation *in, const struct operation *op)
{
    json_t *members = selection(in, op);
    if (!members)
        return EXIT_USAGE;
    json_t *selected = json_copy(members);
    json_object_del(selected, "rate");
    struct control *c = control_open(in, CONTROL_EXISTING);
    json_t *plan = c ? operate_ask(in, c, planning(in), selected, 0) : NULL;
    int code = plan ? begin(in, c, op, members, plan) : EXIT_FAILED;
    control_close(c);
    json_decref(selected);
    json_decref(members);
    return code;
}
