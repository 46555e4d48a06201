/* What monitors ask of the process: alive, ready. Whether what it shows is fresh is another
 * question: /v1/admin/health. */
#include "api/handlers.h"

HANDLER(health_live)
{
    (void)tx;
    json_object_begin(&c->json);
    json_put(&c->json, "status", str, STR("ok"));
    json_object_end(&c->json);
    return OK;
}

HANDLER(health_ready)
{
    (void)tx;
    bool ready = atomic_load(&c->api->ready);
    c->status = ready ? 200 : 503;
    json_object_begin(&c->json);
    json_put(&c->json, "status", str, ready ? STR("ready") : STR("starting"));
    json_object_end(&c->json);
    return OK;
}
