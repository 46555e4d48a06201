/* Runs a row: options become members of a request, the request becomes one answer (of as many
 * slices as it takes), the answer becomes text or JSON. An option that another operation of the
 * command takes is refused, because it would seem to narrow this one and does not. */
#include "cmd/operate.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "cmd/show.h"
#include "ops/progress.h"

enum { MEMBER_MAX = 40, RESUME_MAX = 120, VERBS_MAX = 200 };

/* ---- options ---- */

static const char *member_name(const struct command_option *o, char out[MEMBER_MAX])
{
    snprintf(out, MEMBER_MAX, "%s", o->member ? o->member : o->name);
    for (char *p = out; *p; p++)
        *p = *p == '-' ? '_' : *p;
    return out;
}

static bool add_moment(const struct invocation *in, const struct command_option *o,
                       const char *value, json_t *members, const char *member)
{
    char moment[SHOWN_MAX];
    if (!show_parse_moment(value, moment)) {
        command_usage(in,
                      "--%s: '%.60s' is no moment: write 2026-11-15T08:00:00Z, or 2h for two hours "
                      "ago (s, m, h, d)",
                      o->name, value);
        return false;
    }
    json_object_set_new(members, member, json_string(moment));
    return true;
}

static void add_list(json_t *members, const char *member, const char *value)
{
    struct str rest = str_of(value), one;
    json_t *list = json_object_get(members, member);
    if (!list) {
        list = json_array();
        json_object_set_new(members, member, list);
    }
    while (str_split(&rest, ',', &one)) {
        one = str_trim(one);
        if (one.len > 0)
            json_array_append_new(list, json_stringn(one.ptr, one.len));
    }
}

/* Puts the option's value into the members. False: a message was printed. */
static bool add_option(const struct invocation *in, const struct command_option *o,
                       const char *value, json_t *members)
{
    char member[MEMBER_MAX];
    int64_t number = 0;
    const char *before;
    member_name(o, member);
    switch (o->kind) {
    case OPTION_LOCAL:
        return true;
    case OPTION_NUMBER:
        if (!invocation_number(in, o->name, o->min, o->max, &number))
            return false;
        json_object_set_new(members, member, json_integer(number));
        return true;
    case OPTION_TRUE:
        json_object_set_new(members, member, json_true());
        return true;
    case OPTION_MOMENT:
        return add_moment(in, o, value, members, member);
    case OPTION_LIST:
        add_list(members, member, value);
        return true;
    case OPTION_WORDS:
        before = answer_text(members, member);
        json_object_set_new(members, member,
                            json_sprintf("%s%s%s", before, before[0] ? " " : "", value));
        return true;
    default:
        json_object_set_new(members, member, json_string(value));
        return true;
    }
}

static const struct command_option *option_row(const struct invocation *in, const char *name)
{
    const struct command_option *o = in->command->options;
    while (o->name && strcmp(o->name, name) != 0)
        o++;
    return o->name ? o : NULL;
}

static bool takes(const struct operation *op, const struct command_option *o)
{
    char verb[32];
    snprintf(verb, sizeof verb, "%.20s ", op->verb ? op->verb : "");
    return !o->of || strstr(o->of, verb);
}

/* What must be given is. */
static bool asks_enough(const struct invocation *in, const struct operation *op, bool filters)
{
    bool all = invocation_has(in, "all");
    if (op->needs && !invocation_has(in, op->needs)) {
        const struct command_option *o = option_row(in, op->needs);
        CHECK(o);
        command_usage(in, "--%s %s is required: %s", o->name, o->value, o->help);
        return false;
    }
    if (op->filtered && filters == all) {
        command_usage(in,
                      all ? "give either a filter or --all, not both"
                          : "give a filter such as --reason or --event, or --all for every one");
        return false;
    }
    return true;
}

/* Fills the arguments into the target. False: a message was printed. */
static bool fill_target(const struct invocation *in, const struct operation *op, struct buf *out)
{
    int used = op->verb ? 1 : 0;
    for (const char *t = op->target; *t; t++) {
        if (*t != '{') {
            buf_append(out, t, 1);
            continue;
        }
        int number = t[1] - '0';
        bool id = t[2] == ':';
        uint64_t parsed;
        used = number + 1;
        if (number >= in->argument_count) {
            command_usage(in, "expected: %s ID; 'fantail %s list' shows the ids", op->verb,
                          in->command->name);
            return false;
        }
        if (id && !str_parse_u64(str_of(in->arguments[number]), &parsed)) {
            command_usage(in, "'%s' is not the id of %s %s", in->arguments[number],
                          strchr("aeiou", in->command->name[0]) ? "an" : "a", in->command->name);
            return false;
        }
        control_encode(out, in->arguments[number]);
        t = strchr(t, '}');
        CHECK(t);
    }
    if (in->argument_count <= used)
        return true;
    command_usage(in, "unexpected argument '%s'", in->arguments[used]);
    return false;
}

json_t *operate_members(const struct invocation *in, const struct operation *op)
{
    json_t *members = op->members ? json_loads(op->members, 0, NULL) : json_object();
    bool ok = true, filters = false;
    CHECK(members);
    for (int i = 0; ok && i < in->option_count; i++) {
        const struct command_option *o = option_row(in, in->options[i].name);
        filters = filters || o->kind == OPTION_FILTER;
        ok = takes(op, o);
        if (!ok)
            command_usage(in, "'%s %s' takes no --%s", in->command->name, op->verb, o->name);
        else
            ok = add_option(in, o, in->options[i].value, members);
    }
    struct buf target; /* only to see whether the arguments fit */
    buf_init(&target, 0);
    ok = ok && asks_enough(in, op, filters) && fill_target(in, op, &target);
    buf_done(&target);
    if (ok)
        return members;
    json_decref(members);
    return NULL;
}

/* ---- the request ---- */

static void add_query(struct buf *target, const json_t *members)
{
    const char *name;
    json_t *value;
    const char *separator = "?";
    json_object_foreach((json_t *)(uintptr_t)members, name, value)
    {
        buf_printf(target, "%s%s=", separator, name);
        if (json_is_string(value))
            control_encode(target, json_string_value(value));
        else
            buf_printf(target, "%lld", (long long)json_integer_value(value));
        separator = "&";
    }
}

/* One request. NULL: a message was printed. */
static json_t *ask_once(struct control *c, const struct operation *op, struct str path,
                        const json_t *members)
{
    bool query = strcmp(op->method, "GET") == 0;
    struct buf target;
    buf_init(&target, 0);
    buf_str(&target, path);
    if (query)
        add_query(&target, members);
    buf_append(&target, "", 1);
    bool body = !query && json_object_size(members) > 0;
    json_t *answer = control_send(c, op->method, target.ptr, body ? json_deep_copy(members) : NULL);
    buf_done(&target);
    return answer;
}

/* ---- slices ---- */

/* Numbers are summed, arrays joined, objects added member by member; of texts the last one stays,
 * of "first" the first one. */
static void add_slice(json_t *total, const json_t *slice)
{
    const char *name;
    json_t *value;
    json_object_foreach((json_t *)(uintptr_t)slice, name, value)
    {
        json_t *before = json_object_get(total, name);
        bool same = before && json_typeof(before) == json_typeof(value);
        if (same && json_is_integer(value))
            json_integer_set(before, json_integer_value(before) + json_integer_value(value));
        else if (same && json_is_array(value))
            json_array_extend(before, value);
        else if (same && json_is_object(value))
            add_slice(before, value);
        else if (!json_is_string(before) || (json_is_string(value) && strcmp(name, "first") != 0))
            json_object_set(total, name, value);
    }
}

/* Takes the position of the next slice out of this one. False: this was the last one. */
static bool goes_on(const struct operation *op, json_t *slice, json_t *asked)
{
    const char *next = op->next ? answer_text(slice, op->next) : "";
    bool more = next[0] && strcmp(next, "0") != 0 && !json_is_true(json_object_get(slice, "end"));
    if (more)
        json_object_set_new(asked, op->resume, json_string(next));
    return more;
}

json_t *operate_ask(struct invocation *in, struct control *c, const struct operation *op,
                    const json_t *members, uint64_t total)
{
    struct buf path;
    struct progress bar;
    json_t *asked = json_deep_copy(members), *sum = json_object();
    int64_t wanted = answer_int(members, "limit"), had = 0;
    bool more = true, ok;
    buf_init(&path, 0);
    ok = fill_target(in, op, &path);
    progress_init(&bar, op->label ? op->label : "", total, PROGRESS_COUNT);
    while (ok && more && (!op->slice_max || had < wanted)) {
        int64_t left = wanted - had;
        if (op->slice_max)
            json_object_set_new(asked, "limit",
                                json_integer(left < op->slice_max ? left : op->slice_max));
        json_t *slice = ask_once(c, op, buf_view(&path), asked);
        ok = slice != NULL;
        more = ok && goes_on(op, slice, asked) && !ferror(stdout);
        if (ok && op->take)
            op->take(in, sum, slice);
        add_slice(sum, slice);
        json_decref(slice);
        had = (int64_t)json_array_size(json_object_get(sum, "items"));
        if (op->next && op->label && (more || total))
            progress_update(&bar, (uint64_t)answer_int(sum, op->counted));
    }
    if (bar.shown_us)
        progress_done(&bar);
    if (!ok && op->counted && answer_int(sum, op->counted) > 0)
        fprintf(stderr, "%lld done before it failed; run the same command again for the rest\n",
                (long long)answer_int(sum, op->counted));
    buf_done(&path);
    json_decref(asked);
    if (ok)
        return sum;
    json_decref(sum);
    return NULL;
}

/* ---- the answer ---- */

void operate_show(struct invocation *in, const struct operation *op, const json_t *members,
                  json_t *answer)
{
    if (invocation_has(in, "json")) {
        show_json(op->slice_max ? json_object_get(answer, "items") : answer);
        return;
    }
    json_object_set(answer, "asked", (json_t *)(uintptr_t)members);
    show_text(stdout, op->text, answer);
    if (op->note)
        show_text(stderr, op->note, answer);
}

static int run_operation(struct invocation *in, const struct operation *op)
{
    if (op->run)
        return op->run(in, op);
    json_t *members = operate_members(in, op);
    if (!members)
        return EXIT_USAGE;
    int code = EXIT_FAILED;
    struct control *c = control_open(in, op->create ? CONTROL_CREATE : CONTROL_EXISTING);
    json_t *answer = c ? operate_ask(in, c, op, members, 0) : NULL;
    if (answer && op->then) {
        code = op->then(in, c, op, answer);
    } else if (answer) {
        operate_show(in, op, members, answer);
        json_decref(answer);
        code = EXIT_DONE;
    }
    control_close(c);
    json_decref(members);
    return code;
}

int operate(struct invocation *in)
{
    const struct operation *op = in->command->operations;
    char verbs[VERBS_MAX];
    struct buf said = buf_over(verbs, sizeof verbs - 1);
    if (!op->verb)
        return run_operation(in, op);
    for (; op->verb; op++) {
        if (strcmp(op->verb, in->arguments[0]) == 0)
            return run_operation(in, op);
        buf_printf(&said, "%s%s",
                   op == in->command->operations ? ""
                   : op[1].verb                  ? ", "
                                                 : " or ",
                   op->verb);
    }
    return command_usage(in, "'%s' is not %.*s", in->arguments[0], STR_ARG(buf_view(&said)));
}
