/* Reads the setting freshness-targets. An entry that names no rule is an error, not ignored: a
 * misspelt target would be one that is missed in silence. */
#include "node/targets.h"

#include <stdio.h>

#include "ops/settings.h"

enum { SPAN_TEXT_MAX = 32, ENTRY_SHOWN = 80 };

static bool is_named(const struct rule *rule, struct str consumer, struct str type)
{
    return str_eq(consumer, str_of(rule->consumer)) &&
           (type.len == 0 || str_eq(type, str_of(event_wire_name(rule->on))));
}

static enum err refuse(char why[200], struct str entry, const char *wrong)
{
    int shown = entry.len < ENTRY_SHOWN ? (int)entry.len : ENTRY_SHOWN;
    snprintf(why, 200, "freshness-targets: '%.*s' %s", shown, entry.ptr, wrong);
    return ERR_INVALID;
}

static enum err set_entry(struct str entry, const struct rule *rules, size_t n, struct freshness *f,
                          char why[200])
{
    struct str span = entry, type, consumer;
    char text[SPAN_TEXT_MAX];
    int64_t target_ms = 0;
    bool found = false;
    if (!str_split(&span, '=', &type) || span.len == 0 || type.len == 0)
        return refuse(why, entry, "is not CONSUMER[:TYPE]=SPAN, such as timelines=3s");
    str_copy(text, sizeof text, span);
    if (span.len >= sizeof text || !settings_parse_span(text, &target_ms) || target_ms <= 0)
        return refuse(why, entry, "has no span above 0, such as 3s");
    (void)str_split(&type, ':', &consumer);
    for (size_t i = 0; i < n; i++) {
        if (!is_named(&rules[i], consumer, type))
            continue;
        freshness_set_target(f, i, target_ms);
        found = true;
    }
    return found ? OK : refuse(why, entry, "names no consumer, or no event that it consumes");
}

enum err targets_set(const char *text, const struct rule *rules, size_t n, struct freshness *f,
                     char why[200])
{
    struct str rest = str_of(text), entry;
    while (str_split(&rest, ',', &entry))
        TRY(set_entry(entry, rules, n, f, why));
    return OK;
}
