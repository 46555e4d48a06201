/* `fantail key create | list | revoke`: API keys for servers and operators. */
#include <stdio.h>
#include <string.h>

#include "cmd/commands.h"
#include "cmd/link.h"

static int create(struct invocation *in)
{
    struct buf scopes;
    buf_init(&scopes, 1024);
    for (int i = 0; i < in->option_count; i++)
        if (strcmp(in->options[i].name, "scope") == 0)
            buf_printf(&scopes, "%s%s", scopes.len > 0 ? " " : "", in->options[i].value);
    if (scopes.len == 0 || scopes.failed) {
        buf_done(&scopes);
        return command_usage(in, "give at least one --scope: act, admin or admin:read");
    }
    const char *name = invocation_value(in, "name");
    struct link *l = link_open(in, LINK_CREATE);
    json_t *answer = l ? link_send(l, "POST", "/v1/admin/keys",
                                   json_pack("{s:s, s:s%}", "name", name ? name : "command line",
                                             "scopes", scopes.ptr, scopes.len))
                       : NULL;
    if (answer) {
        printf("%s\n", answer_text(answer, "key"));
        fprintf(stderr, "key %s with the scopes '%.*s': it is shown this once only.\n",
                answer_text(answer, "id"), STR_ARG(buf_view(&scopes)));
    }
    json_decref(answer);
    link_close(l);
    buf_done(&scopes);
    return answer ? EXIT_DONE : EXIT_FAILED;
}

static int list(struct invocation *in)
{
    struct link *l = link_open(in, LINK_EXISTING);
    json_t *answer = l ? link_get(l, "/v1/admin/keys") : NULL;
    link_close(l);
    if (!answer)
        return EXIT_FAILED;
    if (invocation_has(in, "json")) {
        json_dumpf(answer, stdout, JSON_INDENT(2));
        printf("\n");
        json_decref(answer);
        return EXIT_DONE;
    }
    const json_t *items = json_is_array(answer) ? answer : json_object_get(answer, "items");
    if (json_array_size(items) == 0)
        printf("no keys\n");
    else
        printf("%-20s  %-20s  %-24s  %s\n", "id", "scopes", "created", "name");
    size_t i;
    json_t *key;
    json_array_foreach(items, i, key)
    {
        char joined[200] = "";
        const json_t *scopes = json_object_get(key, "scopes");
        for (size_t k = 0; k < json_array_size(scopes); k++)
            snprintf(joined + strlen(joined), sizeof(joined) - strlen(joined), "%s%s", k ? " " : "",
                     json_string_value(json_array_get(scopes, k)));
        bool revoked = json_is_string(json_object_get(key, "revoked_at"));
        printf("%-20s  %-20s  %-24s  %s%s\n", answer_text(key, "id"),
               json_is_string(scopes) ? json_string_value(scopes) : joined,
               answer_text(key, "created_at"), answer_text(key, "name"),
               revoked ? " (revoked)" : "");
    }
    json_decref(answer);
    return EXIT_DONE;
}

static int revoke(struct invocation *in)
{
    char target[80];
    uint64_t id;
    if (!str_parse_u64(str_of(in->arguments[1]), &id))
        return command_usage(in, "'%s' is not the id of a key", in->arguments[1]);
    snprintf(target, sizeof(target), "/v1/admin/keys/%llu", (unsigned long long)id);
    struct link *l = link_open(in, LINK_EXISTING);
    json_t *answer = l ? link_send(l, "DELETE", target, NULL) : NULL;
    if (answer)
        printf("revoked\n");
    json_decref(answer);
    link_close(l);
    return answer ? EXIT_DONE : EXIT_FAILED;
}

static int run(struct invocation *in)
{
    const char *what = in->arguments[0];
    bool wants_id = strcmp(what, "revoke") == 0;
    if (in->argument_count != (wants_id ? 2 : 1))
        return command_usage(in, wants_id ? "expected: revoke ID" : "unexpected argument");
    if (strcmp(what, "create") == 0)
        return create(in);
    if (strcmp(what, "list") == 0)
        return list(in);
    if (wants_id)
        return revoke(in);
    return command_usage(in, "'%s' is not create, list or revoke", what);
}

const struct command command_key = {
    .name = "key",
    .arguments = "create | list | revoke ID",
    .summary = "create, list and revoke API keys",
    .about = "A key is sent as 'Authorization: Bearer KEY'. Scopes:\n"
             "  act         act for the account named in the Fantail-Account header\n"
             "  admin       everything under /v1/admin\n"
             "  admin:read  look only\n"
             "The key is printed once, on standard output, and stored only as a hash.",
    .examples = "  fantail key create --scope act --scope admin --name backend\n"
                "  fantail key list\n  fantail key revoke 7266382940364193792",
    .arguments_min = 1,
    .arguments_max = 2,
    .options = {{"scope", "SCOPE", "act, admin or admin:read; may be repeated"},
                {"name", "NAME", "what it is for"},
                {"json", NULL, "list: as JSON"}},
    .run = run,
};
