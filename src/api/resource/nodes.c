/* `GET /v1/admin/nodes`: who uses this store. A server that is alone is the only node, and leads.
 */
#include "api/resource/nodes.h"
#include "api/edge/handlers.h"
#include "api/render/render.h"

enum { NODES_LATER = 8 }; /* room for nodes that join between counting and copying */

struct cluster_node *nodes_list(struct cluster *k, struct arena *arena, size_t *n)
{
    size_t room = k->nodes(k->ctx, NULL, 0) + NODES_LATER;
    struct cluster_node *nodes = ARENA_ARRAY(arena, struct cluster_node, room);
    *n = k->nodes(k->ctx, nodes, room);
    if (*n > room)
        *n = room;
    return nodes;
}

enum node_state node_state(const struct cluster_node *node)
{
    if (node->silent_ms > CLUSTER_GONE_MS)
        return NODE_GONE;
    return node->leaving ? NODE_LEAVING : NODE_UP;
}

static const char *node_state_name(enum node_state state)
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

/* The node's own report; nothing when this program does not understand it. */
static void write_report(struct json_out *j, const struct node_report *r)
{
    json_key(j, STR("numbers"));
    json_object_begin(j);
    if (r->known) {
        json_put(j, "views", u64, r->views);
        json_put(j, "bus", u64, r->bus);
        json_put(j, "leads", u64, r->leads);
        json_put(j, "quarantined", u64, r->quarantined);
        json_put(j, "undone", u64, r->undone);
    }
    json_object_end(j);
}

static void write_node(struct json_out *j, const struct cluster_node *node, bool leads, bool self)
{
    const struct str none = {NULL, 0};
    json_object_begin(j);
    json_put(j, "number", u64, node->number);
    render_put_stored(j, "address", node->address[0] ? str_of(node->address) : none);
    write_roles(j, node->roles);
    render_put_stored(j, "version", str_of(node->version));
    json_put(j, "started_at", time, node->started_ms);
    json_put(j, "silent_ms", i64, node->silent_ms);
    json_put(j, "state", str, str_of(node_state_name(node_state(node))));
    json_put(j, "left", bool, node->leaving);
    json_put(j, "leads", bool, leads);
    json_put(j, "self", bool, self);
    write_report(j, &node->report);
    json_object_end(j);
}

static void write_alone(struct call *c)
{
    struct cluster_node self = {.roles = ROLE_ALL, .started_ms = c->api->started_at_ms};
    memcpy(self.version, FANTAIL_VERSION, sizeof FANTAIL_VERSION);
    write_node(&c->json, &self, true, true);
}

static void write_many(struct call *c)
{
    struct cluster *k = c->api->cluster;
    char address[CLUSTER_ADDRESS_MAX] = "";
    uint32_t leader = 0;
    size_t n;
    const struct cluster_node *nodes = nodes_list(k, &c->x->arena, &n);
    k->leader(k->ctx, address, &leader);
    for (size_t i = 0; i < n; i++)
        write_node(&c->json, &nodes[i], address[0] && nodes[i].number == leader,
                   nodes[i].number == k->number);
}

enum err admin_nodes(struct call *c, struct tx *tx)
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
