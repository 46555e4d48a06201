/* GET /v1/stream: joins the caller's stream to the hub. live.h defines its events, net/stream.h how
 * they are sent.
 *
 * A stream lives no longer than the token that opened it, and not for ever in any case: a client
 * that comes back is authenticated again, by any node. */
#include "net/stream.h"
#include "api/edge/handlers.h"
#include "live/live.h"
#include "net/frame.h"

static int64_t lifetime_ms(const struct call *c)
{
    int64_t life_ms = c->api->settings->stream_life_ms, until_ms = c->caller.expires_at_ms;
    if (until_ms) {
        int64_t left_ms = until_ms - clock_wall_ms(c->api->clock);
        life_ms = left_ms < life_ms ? left_ms : life_ms;
    }
    return life_ms > 0 ? life_ms : 1;
}

enum err stream_open(struct call *c, struct tx *tx)
{
    (void)tx;
    if (!c->api->live)
        return ERR_UNAVAILABLE;
    struct stream *s = stream_new(&encoding_sse, 0, lifetime_ms(c));
    uint64_t grant = c->caller.session ? c->caller.session : c->caller.key;
    enum err e = live_join(c->api->live, c->caller.account, grant, s);
    if (e) {
        stream_unref(s);
        if (e != ERR_RATE_LIMITED)
            return e;
        buf_str(&c->x->head, STR("Retry-After: 5\r\n"));
        return call_fail(c, e, "one person has at most %lld streams open at a time",
                         (long long)c->api->settings->streams_person);
    }
    c->stream = s;
    return OK;
}
