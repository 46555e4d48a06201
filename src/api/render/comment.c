/* Comments as JSON. */
#include "api/render/render.h"
#include "base/id.h"
#include "model/post.h"

void render_comment(struct json_out *j, const struct comment *c)
{
    json_object_begin(j);
    json_put(j, "id", id, c->id);
    json_put(j, "post_id", id, c->post);
    json_key(j, STR("author"));
    render_account_card(j, &c->author);
    json_put(j, "body", str, c->body);
    json_put(j, "created_at", time, id_time_ms(c->id));
    json_object_end(j);
}
