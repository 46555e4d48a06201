/* What monitors ask of the process: alive, ready. Whether what it shows is fresh is another
 * question: /v1/admin/health.
 *
 * Ready means: send it requests. A node of many that is quarantined is not; one whose views, bus or
 * leader are away is, because reads and writes go on without them. The answer names each all the
 * same, so that who looks at a node sees at once what it lacks. */
#include "api/edge/cluster.h"
#include "api/edge/handlers.h"
#include "api/resource/status.h"

enum err health_live(struct call *c, struct tx *tx)
{
    (void)tx;
    json_object_begin(&c->json);
    json_put(&c->json, "status", str, STR("ok"));
    json_object_end(&c->json);
    return OK;
}

static void write_dependencies(struct json_out *j, struct cluster *k)
{
    char address[CLUSTER_ADDRESS_MAX] = "";
    uint32_t number = 0;
    k->leader(k->ctx, address, &number);
    json_key(j, STR("dependencies"));
    json_object_begin(j);
    json_put(j, "db", str, str_of(part_state_name(atomic_load(&k->db_state))));
    json_put(j, "views", str, str_of(part_state_name(atomic_load(&k->views_state))));
    json_put(j, "bus", str, str_of(part_state_name(atomic_load(&k->bus_state))));
    json_put(j, "leader", str, address[0] ? STR("known") : STR("none"));
    json_object_end(j);
}

enum err health_ready(struct call *c, struct tx *tx)
{
    (void)tx;
    struct cluster *cluster = c->api->cluster;
    bool started = atomic_load(&c->api->ready);
    bool quarantined = cluster && atomic_load(&cluster->quarantined);
    c->status = started && !quarantined ? 200 : 503;
    json_object_begin(&c->json);
    json_put(&c->json, "status", str,
             !started      ? STR("starting")
             : quarantined ? STR("quarantined")
                           : STR("ready"));
    if (cluster)
        write_dependencies(&c->json, cluster);
    json_object_end(&c->json);
    return OK;
}
