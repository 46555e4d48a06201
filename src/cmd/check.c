/* `fantail check`: compares feeds, inboxes, counters and the graph with truth, a slice of accounts
 * at a time. Differences are printed as they are found, so that a store full of them needs no
 * memory here. */
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "cmd/operate.h"
#include "cmd/show.h"

enum { DIFFERENCES_SHOWN = 50, DRAIN_TRIES = 200 };

/* Additions may lag while something is under way: wait a little, then compare anyway and say so.
 * False: the server does not answer. */
static bool await_drained(struct control *c, uint64_t *accounts)
{
    for (int tries = 0; tries < DRAIN_TRIES; tries++) {
        json_t *status = control_get(c, "/v1/admin/status");
        if (!status)
            return false;
        bool drained = json_is_true(json_object_get(json_object_get(status, "engine"), "drained"));
        *accounts = (uint64_t)answer_int(json_object_get(status, "views"), "accounts");
        json_decref(status);
        if (drained)
            return true;
        struct timespec pause = {.tv_nsec = 50 * 1000 * 1000};
        nanosleep(&pause, NULL);
    }
    fprintf(stderr, "note: the server is busy; feeds may lack posts that are still in flight\n");
    return true;
}

/* The account's id as where to begin. False: a message was printed. */
static bool begin_at(struct invocation *in, struct control *c, const char *user, json_t *members)
{
    uint64_t id;
    if (str_parse_u64(str_of(user), &id)) {
        json_object_set_new(members, "from", json_string(user));
        return true;
    }
    struct buf target;
    buf_init(&target, 0);
    buf_printf(&target, "/v1/accounts?username=");
    control_encode(&target, user[0] == '@' ? user + 1 : user);
    buf_append(&target, "", 1);
    json_t *found = control_get(c, target.ptr);
    buf_done(&target);
    const json_t *items = json_object_get(found, "items");
    json_t *account = items ? json_array_get(items, 0) : found;
    bool is_there = answer_text(account, "id")[0] != '\0';
    if (is_there)
        json_object_set(members, "from", json_object_get(account, "id"));
    else if (found)
        command_fail(in, "there is no account '%s'", user);
    json_decref(found);
    return is_there;
}

void check_take_slice(struct invocation *in, json_t *total, json_t *slice)
{
    json_t *differences = json_object_get(slice, "differences"), *one;
    size_t i;
    int64_t before = answer_int(total, "found");
    json_object_set_new(slice, "found", json_integer((json_int_t)json_array_size(differences)));
    if (invocation_has(in, "json"))
        return;
    json_array_foreach(differences, i, one)
    {
        if (before + (int64_t)i < DIFFERENCES_SHOWN)
            show_text(stdout, "{.}\n", one);
    }
    json_array_clear(differences);
}

static int conclude(struct invocation *in, const struct operation *op, const json_t *members,
                    json_t *total)
{
    int64_t found = answer_int(total, "found");
    if (found > DIFFERENCES_SHOWN && !invocation_has(in, "json"))
        printf("(%lld more differences are not shown; see --json)\n",
               (long long)(found - DIFFERENCES_SHOWN));
    json_object_del(total, "next");
    operate_show(in, op, members, total);
    json_decref(total);
    return found == 0 ? EXIT_DONE : EXIT_FAILED;
}

int check_run(struct invocation *in, const struct operation *op)
{
    const char *user = invocation_value(in, "user");
    if (user && invocation_has(in, "all"))
        return command_usage(in, "give either --all or --user, not both");
    json_t *members = operate_members(in, op);
    if (!members)
        return EXIT_USAGE;
    struct operation one = *op;
    uint64_t accounts = 0;
    struct control *c = control_open(in, CONTROL_EXISTING);
    bool ok = c && await_drained(c, &accounts);
    if (ok && user) {
        ok = begin_at(in, c, user, members);
        json_object_set_new(members, "limit", json_integer(1));
        one.next = NULL;
        one.label = NULL;
    }
    json_t *total = ok ? operate_ask(in, c, &one, members, accounts) : NULL;
    int code = total ? conclude(in, op, members, total) : EXIT_FAILED;
    control_close(c);
    json_decref(members);
    return code;
}
