/* `GET /v1/admin/audit`: what operators did. api/edge/acts.c records it. */
#include "api/edge/handlers.h"
#include "model/operator_act.h"

enum { ACTS_LIMIT_MAX = 200 };

enum err acts_list(struct call *c, struct tx *tx)
{
    size_t limit, n;
    uint64_t below;
    TRY(call_page(c, ACTS_LIMIT_MAX, &limit, &below));
    struct operator_act *acts = ARENA_ARRAY(&c->x->arena, struct operator_act, limit);
    TRY(operator_act_list(tx, below, &c->x->arena, acts, limit, &n));
    call_list_begin(c);
    for (size_t i = 0; i < n; i++) {
        json_object_begin(&c->json);
        json_put(&c->json, "id", id, acts[i].id);
        json_put(&c->json, "at", time, acts[i].at_ms);
        json_put(&c->json, "who", str, acts[i].who);
        json_put(&c->json, "act", str, acts[i].act);
        json_put(&c->json, "target", str, acts[i].target);
        json_put(&c->json, "request", str, acts[i].request);
        json_put(&c->json, "why", str, acts[i].why);
        json_object_end(&c->json);
    }
    call_list_end(c, n == limit ? acts[n - 1].id : 0);
    return OK;
}
