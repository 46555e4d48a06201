/* Accounts, sessions and API keys as JSON. */
#include "model/account.h"
#include "api/render/render.h"
#include "base/id.h"

void render_account_card_members(struct json_out *j, const struct account_card *a)
{
    json_put(j, "id", id, a->id);
    json_put(j, "username", str, a->username);
    json_put(j, "display_name", str, a->display_name);
    render_put_str(j, "avatar_url", a->avatar_url);
}

void render_account_card(struct json_out *j, const struct account_card *a)
{
    json_object_begin(j);
    render_account_card_members(j, a);
    json_object_end(j);
}

void render_account(struct json_out *j, const struct account *a, const struct relationship *r,
                    bool own)
{
    struct account_card card = account_card_of(a);
    json_object_begin(j);
    render_account_card_members(j, &card);
    json_put(j, "bio", str, a->bio);
    json_put(j, "follower_count", i64, a->follower_count);
    json_put(j, "following_count", i64, a->following_count);
    json_put(j, "post_count", i64, a->post_count);
    json_put(j, "created_at", time, id_time_ms(a->id));
    if (own) {
        render_put_str(j, "email", a->email);
    }
    if (r) {
        json_key(j, STR("relationship"));
        json_object_begin(j);
        json_put(j, "following", bool, r->following);
        json_put(j, "followed_by", bool, r->followed_by);
        json_put(j, "blocking", bool, r->blocking);
        json_put(j, "muting", bool, r->muting);
        json_object_end(j);
    }
    json_object_end(j);
}

void render_session(struct json_out *j, const struct session *s, bool current)
{
    json_object_begin(j);
    json_put(j, "id", id, s->id);
    json_put(j, "label", str, s->label);
    json_put(j, "created_at", time, id_time_ms(s->id));
    json_put(j, "used_at", time, s->used_at_ms);
    json_put(j, "expires_at", time, s->expires_at_ms);
    json_put(j, "current", bool, current);
    json_object_end(j);
}

void render_api_key(struct json_out *j, const struct api_key *k)
{
    json_object_begin(j);
    json_put(j, "id", id, k->id);
    json_put(j, "name", str, k->name);
    json_put(j, "scopes", str, k->scopes);
    json_put(j, "created_at", time, id_time_ms(k->id));
    render_put_time(j, "revoked_at", k->revoked_at_ms);
    render_put_time(j, "expires_at", k->expires_at_ms);
    json_put_if(k->rate, j, "rate", i64, k->rate);
    json_object_end(j);
}
