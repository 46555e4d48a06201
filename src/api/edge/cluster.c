/* The names of what nodes do. */
#include "api/edge/cluster.h"

#include <stdio.h>

#include "base/check.h"

static const struct {
    enum node_role role;
    const char *name;
} names[] = {{ROLE_API, "api"}, {ROLE_RELAY, "relay"}, {ROLE_WORKER, "worker"}};

const char *role_name(enum node_role role)
{
    for (size_t i = 0; i < COUNT_OF(names); i++)
        if (names[i].role == role)
            return names[i].name;
    return "?";
}

void roles_format(unsigned roles, char out[ROLES_TEXT_MAX])
{
    size_t len = 0;
    out[0] = '\0';
    for (size_t i = 0; i < COUNT_OF(names); i++)
        if (roles & names[i].role)
            len += (size_t)snprintf(out + len, ROLES_TEXT_MAX - len, "%s%s", len ? "," : "",
                                    names[i].name);
}
