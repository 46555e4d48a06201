/* The table of routes, and the trie that finds a row.
 *
 * The trie is built once from the table: one node per path segment, literals as a short list of
 * siblings, at most one child for a number ({id}, {account}, {seq}) or a {name}. Numbers are digits
 * and no literal is, and where a {name} may stand no literal does, so a walk never has to go back:
 * it costs one comparison per sibling of each segment, and nothing grows with what a peer sends. */
#include "api/edge/routes.h"

#include <pthread.h>
#include <stdio.h>

#include "api/edge/handlers.h"
#include "base/check.h"
#include "base/id.h"
#include "model/feed.h"
#include "model/inbox.h"

/* The table's short words. */
#define KEYED               ROUTE_KEYED
#define BODY_OPTIONAL       ROUTE_BODY_OPTIONAL
#define NDJSON              ROUTE_NDJSON
#define NO_TOKEN            ROUTE_TOKENLESS
#define CONTROL             ROUTE_CONTROL
#define GROWS               ROUTE_GROWS
#define BULK                ROUTE_BULK
#define LEADER              ROUTE_AT_LEADER
#define CONFLICTS           ROUTE_CONFLICTS
#define MAY_BE_GONE         ROUTE_MAY_BE_GONE
#define EITHER              ROUTE_EITHER
#define RECORDED            ROUTE_RECORDED
#define ROUTE               ROUTE_ROW
#define PREPARE(name)       .prepare = (name),
#define RENDER(name)        .render = (name),
#define FIRST(name)         .first_statement = (name),
#define TOGETHER(name)      .together = (name),
#define REPEAT(name)        .repeat = (name),
#define LIMIT(name)         .limit = &(name),
#define PAGE(usual_, most_) .page = {usual_, most_},
#define STEP(name)          .in_step = (name),

const struct route routes[] = {
#include "api/edge/routes.def"
};

const size_t route_count = COUNT_OF(routes);
_Static_assert(COUNT_OF(routes) <= ROUTES_MAX, "raise ROUTES_MAX");

/* ---- the trie ---- */

enum { NODES_MAX = 224, METHODS = HTTP_M_OTHER };

struct node {
    struct str text;      /* the literal; {NULL, 0} for an {id} or a {name} */
    int16_t next_sibling; /* among literals; 0: last */
    int16_t first_child;  /* literals; 0: none */
    int16_t id_child;     /* 0: none */
    int16_t name_child;   /* 0: none */
    uint16_t methods;
    const struct route *by_method[METHODS];
};

static struct node nodes[NODES_MAX];
static int16_t node_count;
static pthread_once_t built = PTHREAD_ONCE_INIT;

static int16_t node_add(struct str text)
{
    CHECK(node_count < NODES_MAX);
    nodes[node_count].text = text;
    return node_count++;
}

static int16_t literal_child(const struct node *parent, struct str segment)
{
    for (int16_t i = parent->first_child; i; i = nodes[i].next_sibling) {
        if (str_eq(nodes[i].text, segment))
            return i;
    }
    return 0;
}

/* Takes "/segment" off the front. False at the end, and when what is left does not begin with '/'.
 */
static bool next_segment(struct str *rest, struct str *segment)
{
    if (rest->len == 0 || rest->ptr[0] != '/')
        return false;
    const char *begin = rest->ptr + 1;
    const char *slash = memchr(begin, '/', rest->len - 1);
    size_t len = slash ? (size_t)(slash - begin) : rest->len - 1;
    *segment = (struct str){begin, len};
    *rest = (struct str){begin + len, rest->len - 1 - len};
    return true;
}

static int16_t node_for(int16_t parent, struct str segment)
{
    if (str_eq(segment, STR("{name}"))) {
        if (!nodes[parent].name_child)
            nodes[parent].name_child = node_add((struct str){NULL, 0});
        return nodes[parent].name_child;
    }
    if (str_starts(segment, STR("{"))) {
        if (!nodes[parent].id_child)
            nodes[parent].id_child = node_add((struct str){NULL, 0});
        return nodes[parent].id_child;
    }
    int16_t child = literal_child(&nodes[parent], segment);
    if (!child) {
        child = node_add(segment);
        nodes[child].next_sibling = nodes[parent].first_child;
        nodes[parent].first_child = child;
    }
    return child;
}

static void build(void)
{
    node_add((struct str){NULL, 0}); /* the root; index 0 means "none" everywhere else */
    for (size_t i = 0; i < route_count; i++) {
        const struct route *r = &routes[i];
        int16_t at = 0;
        struct str rest = r->path, segment;
        while (next_segment(&rest, &segment))
            at = node_for(at, segment);
        CHECK(at != 0 && !nodes[at].by_method[r->method]);
        nodes[at].by_method[r->method] = r;
        nodes[at].methods |= (uint16_t)(1u << r->method | 1u << HTTP_M_OPTIONS);
        if (r->method == HTTP_M_GET)
            nodes[at].methods |= (uint16_t)(1u << HTTP_M_HEAD);
    }
}

static bool parse_id_segment(struct str segment, uint64_t *id)
{
    return segment.len > 0 && segment.ptr[0] != '0' && id_parse(segment, id);
}

bool route_is_name(struct str segment)
{
    for (size_t i = 0; i < segment.len; i++) {
        char b = segment.ptr[i];
        if (!((b >= 'a' && b <= 'z') || (b >= '0' && b <= '9') || b == '.' || b == '_' || b == '-'))
            return false;
    }
    return segment.len > 0 && segment.len <= ROUTE_NAME_MAX;
}

bool routes_match(enum http_method method, struct str path, struct route_match *out)
{
    pthread_once(&built, build);
    *out = (struct route_match){0};
    int16_t at = 0;
    struct str rest = path, segment;
    while (next_segment(&rest, &segment)) {
        int16_t child = literal_child(&nodes[at], segment);
        if (!child && nodes[at].id_child && out->param_count < CALL_PARAMS_MAX) {
            uint64_t id;
            if (!parse_id_segment(segment, &id))
                return false;
            out->params[out->param_count++] = id;
            child = nodes[at].id_child;
        }
        if (!child && nodes[at].name_child && route_is_name(segment)) {
            out->name = segment;
            child = nodes[at].name_child;
        }
        if (!child)
            return false;
        at = child;
    }
    if (rest.len > 0 || at == 0 || !nodes[at].methods)
        return false;
    out->methods = nodes[at].methods;
    enum http_method looked_up = method == HTTP_M_HEAD ? HTTP_M_GET : method;
    if ((int)looked_up < METHODS)
        out->route = nodes[at].by_method[looked_up];
    return true;
}

/* ---- names ---- */

const char *route_method_name(enum http_method method)
{
    static const char *const names[] = {"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"};
    return (size_t)method < COUNT_OF(names) ? names[method] : "OTHER";
}

size_t routes_methods_text(unsigned methods, char out[ROUTE_METHODS_TEXT_MAX])
{
    size_t len = 0;
    for (int m = HTTP_M_GET; m < METHODS; m++) {
        if (!(methods & 1u << m))
            continue;
        int n = snprintf(out + len, ROUTE_METHODS_TEXT_MAX - len, "%s%s", len ? ", " : "",
                         route_method_name((enum http_method)m));
        CHECK(n > 0 && (size_t)n < ROUTE_METHODS_TEXT_MAX - len);
        len += (size_t)n;
    }
    return len;
}

bool route_is_everywhere(const struct route *route)
{
    return !str_starts(route->path, STR("/v1/")) || str_starts(route->path, STR("/v1/admin/"));
}

const char *route_policy_text(enum route_policy policy)
{
    static const char *const texts[] = {
        [POLICY_ANYONE] = "anyone",
        [POLICY_ACCOUNT] = "an account",
        [POLICY_ADMIN_READ] = "an API key with admin:read or admin",
        [POLICY_ADMIN] = "an API key with admin",
    };
    return texts[policy];
}
