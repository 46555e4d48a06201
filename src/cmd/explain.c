/* `fantail explain USER POST`: why a post is or is not in somebody's feed. */
#include <stdio.h>
#include <stdlib.h>

#include "base/check.h"
#include "cmd/commands.h"
#include "cmd/link.h"

/* One fact: a text, or an object of named values. */
static void print_fact(const json_t *fact)
{
    if (json_is_string(fact)) {
        printf("  - %s\n", json_string_value(fact));
        return;
    }
    printf("  -");
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)(uintptr_t)fact, key, value)
    {
        char *text =
            json_is_string(value) ? NULL : json_dumps(value, JSON_ENCODE_ANY | JSON_COMPACT);
        printf(" %s: %s", key, text ? text : json_string_value(value));
        free(text);
    }
    printf("\n");
}

static void print_answer(const json_t *answer)
{
    printf("%s: %s\n",
           json_is_true(json_object_get(answer, "visible")) ? "in the feed" : "not in the feed",
           answer_text(answer, "verdict"));
    const json_t *facts = json_object_get(answer, "facts");
    size_t i;
    json_t *fact;
    json_array_foreach(facts, i, fact)
    {
        print_fact(fact);
    }
}

static int run(struct invocation *in)
{
    struct link *l = link_open(in, LINK_EXISTING);
    if (!l)
        return EXIT_FAILED;
    struct buf target;
    buf_init(&target, 0);
    buf_printf(&target, "/v1/admin/explain?user=");
    link_encode(&target, in->arguments[0]);
    buf_printf(&target, "&post=");
    link_encode(&target, in->arguments[1]);
    buf_append(&target, "", 1);
    json_t *answer = link_get(l, target.ptr);
    if (answer && invocation_has(in, "json")) {
        json_dumpf(answer, stdout, JSON_INDENT(2));
        printf("\n");
    } else if (answer) {
        print_answer(answer);
    }
    int code = answer ? EXIT_DONE : EXIT_FAILED;
    json_decref(answer);
    buf_done(&target);
    link_close(l);
    return code;
}

const struct command command_explain = {
    .name = "explain",
    .arguments = "USER POST",
    .summary = "say why a post is or is not in somebody's feed",
    .about =
        "USER is an account's name or id, POST a post's id. Prints the verdict and every fact that "
        "was\n"
        "looked at: pushed or pulled, followed, muted, blocked, deleted, delivered or on its way.",
    .examples = "  fantail explain ada 7266382940364193792",
    .arguments_min = 2,
    .arguments_max = 2,
    .options = {{"json", NULL, "as one JSON object"}},
    .run = run,
};
