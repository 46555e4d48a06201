/* The engine as operators see it: the freshness headline, the overload guard, deliveries; and
 * values that may be missing. */
#include <stdio.h>

#include "api/render/render.h"
#include "ops/overload_guard.h"
#include "pipe/engine.h"

void render_put_text(struct json_out *j, const char *key, const char *text_or_null)
{
    json_key(j, str_of(key));
    text_or_null ? json_str(j, str_of(text_or_null)) : json_nil(j);
}

void render_put_str(struct json_out *j, const char *key, struct str text)
{
    json_key(j, str_of(key));
    text.ptr ? json_str(j, text) : json_nil(j);
}

void render_put_stored(struct json_out *j, const char *key, struct str bytes)
{
    json_key(j, str_of(key));
    (bytes.ptr && str_is_utf8(bytes)) ? json_str(j, bytes) : json_nil(j);
}

void render_put_time(struct json_out *j, const char *key, int64_t ms_or_0)
{
    json_key(j, str_of(key));
    ms_or_0 ? json_time(j, ms_or_0) : json_nil(j);
}

void render_put_id(struct json_out *j, const char *key, uint64_t id_or_0)
{
    json_key(j, str_of(key));
    id_or_0 ? json_id(j, id_or_0) : json_nil(j);
}

void render_span_text(int64_t ms, char out[32])
{
    int64_t s = ms / 1000;
    if (ms < 1000)
        snprintf(out, 32, "%lld ms", (long long)ms);
    else if (s < 120)
        snprintf(out, 32, "%lld s", (long long)s);
    else if (s < 7200)
        snprintf(out, 32, "%lld min", (long long)(s / 60));
    else if (s < 172800)
        snprintf(out, 32, "%lld h", (long long)(s / 3600));
    else
        snprintf(out, 32, "%lld days", (long long)(s / 86400));
}

void render_overload_guard(struct json_out *j, const struct overload_guard *guard)
{
    int level = guard ? overload_guard_level(guard) : 0;
    char why[120] = "";
    if (level > 0)
        overload_guard_why(guard, why);
    json_key(j, STR("overload_guard"));
    json_object_begin(j);
    json_put(j, "level", i64, level);
    render_put_text(j, "why", level > 0 ? why : NULL);
    json_put_if(guard, j, "free_bytes", i64, atomic_load(&guard->free_bytes));
    json_object_end(j);
}

void render_headline(struct json_out *j, const struct freshness_headline *h)
{
    json_key(j, STR("headline"));
    json_object_begin(j);
    json_put(j, "worst_ms", i64, h->worst_ms);
    render_put_text(j, "consumer", h->consumer);
    render_put_text(j, "type", h->type);
    render_put_text(j, "lane", h->lane);
    render_put_text(j, "late_means", h->late_means);
    json_put(j, "green", u64, h->green);
    json_put(j, "late", u64, h->late);
    json_put(j, "behind", u64, h->behind);
    json_put(j, "stopped", u64, h->stopped);
    json_put(j, "dead", u64, h->dead);
    json_object_end(j);
}

/* ---- deliveries ---- */

/* "ms reason\n" for each try, the oldest first. */
static void write_history(struct json_out *j, struct str history)
{
    struct str line, at;
    int64_t at_ms;
    json_key(j, STR("history"));
    json_array_begin(j);
    while (str_split(&history, '\n', &line)) {
        if (!str_split(&line, ' ', &at) || !str_parse_i64(at, &at_ms))
            continue;
        json_object_begin(j);
        json_put(j, "at", time, at_ms);
        json_put(j, "reason", str, line);
        json_object_end(j);
    }
    json_array_end(j);
}

static const char *part_name(uint16_t part)
{
    return part == AUDIENCE_ACTIVE ? "active" : part == AUDIENCE_REST ? "rest" : "all";
}

static void write_actor(struct json_out *j, const struct delivery_row *row)
{
    struct event e;
    bool read = event_read(row->event_id, row->type, row->version, row->payload, &e) == EVENT_READ;
    render_put_id(j, "key", read ? e.actor : row->order_key);
}

void render_delivery(struct json_out *j, const struct delivery_row *row)
{
    json_object_begin(j);
    json_put(j, "id", id, row->delivery);
    json_put(j, "event", id, row->event_id);
    render_put_stored(j, "type", row->type);
    json_put(j, "version", i64, row->version);
    render_put_stored(j, "payload", row->payload);
    json_put_if(row->consumer.len > 0, j, "consumer", str, row->consumer);
    json_put(j, "lane", str, row->lane);
    json_put(j, "state", str, str_of(delivery_state_name(row->state)));
    json_put(j, "tries", u64, row->tries);
    json_put(j, "reason", str, row->reason);
    render_put_stored(j, "detail", row->detail);
    bool timed = row->state == DELIVERY_DELAYED || row->state == DELIVERY_RETRYING;
    render_put_time(j, "due_at", timed ? row->due_ms : 0);
    json_put(j, "opened_at", time, row->opened_ms);
    json_put(j, "changed_at", time, row->changed_ms);
    write_actor(j, row);
    render_put_id(j, "waits_in_order_of", row->order_key);
    json_key(j, STR("cursor"));
    json_object_begin(j);
    json_put(j, "part", str, str_of(part_name(row->part)));
    json_put(j, "after", id, row->after);
    render_put_id(j, "until", row->until);
    json_object_end(j);
    json_put(j, "members", u64, row->members);
    render_put_id(j, "replay", row->replay);
    write_history(j, row->history);
    json_object_end(j);
}
