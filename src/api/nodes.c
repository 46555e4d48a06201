/* `GET /v1/admin/nodes`: who uses this store. A server that is alone is the only node, and leads.
 */
#include "api/nodes.h"
#include "api/cluster.h"
#include "api/handlers.h"

enum { NODES_LATER = 8 }; /* room for nodes that join between counting and copying */

struct node *nodes_list(struct cluster *k, struct arena *arena, size_t *n)
{
    size_t room = node_watch_list(k->watch, NULL, 0) + NODES_LATER;
    struct node *nodes = ARENA_ARRAY(arena, struct node, room);
    *n = node_watch_list(k->watch, nodes, room);
    if (*n > room)
        *n = room;
    return nodes;
}

enum node_state node_state(const struct node *node)
{
    if (node->silent_ms > NODE_GONE_MS)
        return NODE_GONE;
    return node->leaving ? NODE_LEAVING : NODE_UP;
}

const char *node_state_name(enum node_state state)
{
    static const char *const names[] = {
        [NODE_UP] = "up", [NODE_LEAVING] = "leaving", [NODE_GONE] = "gone"};
    return names[state];
}

static void write_roles(struct json_out *j, unsigned roles)
{
    json_key(j, STR("roles"));
    json_array_begin(j);
    for (unsigned bit = 1; bit <= ROLE_ALL; bit <<= 1) {
        if (roles & bit)
            json_str(j, str_of(role_name((enum node_role)bit)));
    }
    json_array_end(j);
}

static bool is_key(struct str s)
{
    for (size_t i = 0; i < s.len; i++) {
        if (!((s.ptr[i] >= 'a' && s.ptr[i] <= 'z') || (s.ptr[i] >= '0' && s.ptr[i] <= '9') ||
              s.ptr[i] == '_'))
            return false;
    }
    return s.len > 0;
}

/* "key=value key=value": numbers as numbers. Another version may have written it, so that what is
 * no such pair is left out. */
static void write_numbers(struct json_out *j, struct str body)
{
    json_key(j, STR("numbers"));
    json_object_begin(j);
    struct str pair, key;
    while (str_split(&body, ' ', &pair)) {
        int64_t number;
        if (!memchr(pair.ptr, '=', pair.len) || !str_split(&pair, '=', &key) || !is_key(key) ||
            !str_is_utf8(pair))
            continue;
        json_key(j, key);
        if (str_parse_i64(pair, &number))
            json_i64(j, number);
        else
            json_str(j, pair);
    }
    json_object_end(j);
}

static void write_node(struct json_out *j, const struct node *node, bool leads, bool self)
{
    const struct str none = {NULL, 0};
    json_object_begin(j);
    json_put(j, "number", u64, node->number);
    status_put_stored(j, "address", node->address[0] ? str_of(node->address) : none);
    write_roles(j, node->roles);
    status_put_stored(j, "version", str_of(node->version));
    json_put(j, "started_at", time, node->started_ms);
    json_put(j, "silent_ms", i64, node->silent_ms);
    json_put(j, "state", str, str_of(node_state_name(node_state(node))));
    json_put(j, "left", bool, node->leaving);
    json_put(j, "leads", bool, leads);
    json_put(j, "self", bool, self);
    write_numbers(j, str_of(node->body));
    json_object_end(j);
}

static void write_alone(struct call *c)
{
    struct node self = {.roles = ROLE_ALL, .started_ms = c->api->started_at_ms};
    memcpy(self.version, FANTAIL_VERSION, sizeof FANTAIL_VERSION);
    write_node(&c->json, &self, true, true);
}

static void write_many(struct call *c)
{
    struct cluster *k = c->api->cluster;
    char address[CLUSTER_ADDRESS_MAX] = "";
    uint32_t leader = 0;
    size_t n;
    const struct node *nodes = nodes_list(k, &c->x->arena, &n);
    k->leader(k->ctx, address, &leader);
    for (size_t i = 0; i < n; i++)
        write_node(&c->json, &nodes[i], address[0] && nodes[i].number == leader,
                   nodes[i].number == k->number);
}

HANDLER(admin_nodes)
{
    (void)tx;
    call_list_begin(c);
    if (c->api->cluster)
        write_many(c);
    else
        write_alone(c);
    call_list_end(c, 0);
    return OK;
}
