/* `/v1/events`: other systems follow our events, each at its own pace.
 *
 * Reading changes nothing. A consumer reads a page, deals with it, and saves the id of the last
 * event that it is done with; after a crash it reads on from there and meets some events again: at
 * least once, in order, and the id identifies a repeated one. A cursor is simply such an id, so
 * that an operator can compare it with anything else.
 *
 * Events are CloudEvents 1.0 in JSON. `sequence` is the id with leading zeros, as its extension
 * wants it: in order as a text, too. */
#include <sodium.h>
#include <stdio.h>

#include "api/edge/handlers.h"
#include "api/render/render.h"
#include "api/resource/status.h"
#include "base/id.h"
#include "model/subscriber.h"

enum {
    EVENTS_LIMIT_DEFAULT = 100,
    EVENTS_LIMIT_MAX = 1000,
    EVENTS_LOOKED_AT_MAX = 5000, /* rows a request reads when it asks for some types only */
    TYPES_MAX = 16,
    SOURCE_BYTES = 8,
};

_Static_assert((int)SUBSCRIBER_NAME_MAX == (int)ROUTE_NAME_MAX, "a consumer's name fits a path");

static const struct str batch_type = {"application/cloudevents-batch+json", 34};

struct page {
    struct call *call;
    struct json_out *j;
    struct str types[TYPES_MAX]; /* none: every one */
    size_t type_count;
    size_t limit, looked_at_max;
    size_t looked_at, told;
    uint64_t position; /* of the last one looked at */
    uint64_t horizon;  /* events above it may still be joined by earlier ones: not told yet */
    bool full;         /* there are more events */
    size_t head_mark;  /* header lines before the page's own */
    char source[40];
};

/* ---- one event ---- */

/* Names this store among others: events of two stores must not be taken for the same. */
static void write_source(struct call *c, char out[40])
{
    static const char context[] = "fantail event source 1";
    uint8_t hash[crypto_generichash_BYTES_MIN];
    char hex[2 * SOURCE_BYTES];
    crypto_generichash(hash, sizeof hash, (const uint8_t *)context, sizeof context, c->api->secret,
                       sizeof c->api->secret);
    str_hex(hash, SOURCE_BYTES, hex);
    snprintf(out, 40, "urn:fantail:%.*s", (int)sizeof hex, hex);
}

/* Data, or the payload of what this program cannot read: passed on as it is, the other side may
 * know better. */
static void write_json(struct json_out *j, struct str payload)
{
    json_t *parsed = json_loadb(payload.ptr, payload.len, JSON_DECODE_ANY, NULL);
    json_key(j, STR("data"));
    if (parsed)
        json_raw(j, payload);
    else if (str_is_utf8(payload))
        json_str(j, payload);
    else
        json_nil(j);
    json_decref(parsed);
}

/* What an event is about, by how its type begins. */
static const struct {
    const char *begins, *kind;
    bool object; /* false: its actor */
} subjects[] = {{"post.", "posts", true},
                {"like.", "posts", true},
                {"comment.", "comments", true},
                {"group.", "groups", false},
                {"", "accounts", false}};

static void write_read(struct json_out *j, const struct event *e)
{
    char subject[40];
    size_t i = 0;
    while (!str_starts(str_of(event_wire_name(e->type)), str_of(subjects[i].begins)))
        i++;
    snprintf(subject, sizeof subject, "%s/%llu", subjects[i].kind,
             (unsigned long long)(subjects[i].object ? e->object : e->actor));
    json_put(j, "subject", str, str_of(subject));
    json_put(j, "dataversion", i64, e->version);
    json_key(j, STR("data"));
    json_object_begin(j);
    json_put(j, "actor", id, e->actor);
    render_put_id(j, "object", e->object);
    json_put(j, "value", i64, e->value);
    if (e->subject)
        json_put(j, "subject", id, e->subject);
    if (e->data.len > 0)
        write_json(j, e->data);
    json_object_end(j);
}

static void write_event(struct page *p, const struct stored_event *stored)
{
    struct json_out *j = p->j;
    char sequence[24];
    struct event e;
    snprintf(sequence, sizeof sequence, "%020llu", (unsigned long long)stored->id);
    json_object_begin(j);
    json_put(j, "specversion", str, STR("1.0"));
    json_put(j, "id", id, stored->id);
    json_put(j, "source", str, str_of(p->source));
    render_put_stored(j, "type", stored->type);
    json_put(j, "time", time, id_time_ms(stored->id));
    json_put(j, "datacontenttype", str, STR("application/json"));
    json_put(j, "sequence", str, str_of(sequence));
    if (event_read_whole(stored->id, stored->type, stored->version, stored->payload, &e) ==
        EVENT_READ) {
        write_read(j, &e);
    } else {
        json_put(j, "dataversion", i64, stored->version);
        write_json(j, stored->payload);
    }
    json_object_end(j);
}

static bool is_wanted(const struct page *p, struct str type)
{
    for (size_t i = 0; i < p->type_count; i++) {
        if (str_eq(p->types[i], type))
            return true;
    }
    return p->type_count == 0;
}

static void visit_event(void *ctx, const struct stored_event *stored)
{
    struct page *p = ctx;
    if (stored->id > p->horizon)
        return; /* ids rise: nor will be those that follow */
    if (p->told == p->limit || p->looked_at == p->looked_at_max) {
        p->full = true;
        return;
    }
    p->looked_at++;
    p->position = stored->id;
    if (is_wanted(p, stored->type)) {
        write_event(p, stored);
        p->told++;
    }
}

/* ---- reading the request ---- */

static enum err read_types(struct call *c, struct page *p)
{
    struct str rest, type;
    TRY(call_query_text(c, "types", &rest));
    while (str_split(&rest, ',', &type)) {
        enum event_type known;
        if (p->type_count == TYPES_MAX)
            return call_fail(c, ERR_BAD_INPUT, "types lists more than %d types", TYPES_MAX);
        if (!event_type_parse(type, &known) || event_keep(known) != EVENT_STORED)
            return call_fail(c, ERR_BAD_INPUT, "there are no stored events of type '%.*s'",
                             (int)(type.len < 60 ? type.len : 60), type.ptr);
        p->types[p->type_count++] = type;
    }
    p->looked_at_max = p->type_count ? EVENTS_LOOKED_AT_MAX : p->limit;
    return OK;
}

/* Where to begin: the cursor, else the consumer's own position, else the oldest that is kept. */
static enum err read_position(struct call *c, struct tx *tx, struct subscriber *consumer,
                              uint64_t *position)
{
    struct str name, cursor;
    enum err e = call_query_text(c, "consumer", &name);
    if (!e)
        e = call_query_text(c, "cursor", &cursor);
    if (e)
        return e;
    bool saved = false;
    if (name.ptr) {
        if (!route_is_name(name))
            return call_fail(c, ERR_BAD_INPUT,
                             "consumer must be 1 to %d of a-z, 0-9, dot, underscore and hyphen",
                             SUBSCRIBER_NAME_MAX);
        e = subscriber_get(tx, name, consumer);
        saved = e == OK;
        if (e && e != ERR_NOT_FOUND)
            return e;
        snprintf(consumer->name, sizeof consumer->name, "%.*s", STR_ARG(name));
    }
    if (cursor.ptr) {
        if (!str_parse_u64(cursor, position) || *position > INT64_MAX)
            return call_fail(c, ERR_BAD_INPUT, "cursor must be the id of an event, or 0");
        return stored_events_reach(tx, *position);
    }
    if (saved) {
        *position = consumer->position;
        return stored_events_reach(tx, *position);
    }
    uint64_t oldest;
    return stored_events_bounds(tx, position, &oldest);
}

/* ---- answers ---- */

static const char *consumer_verdict(const struct subscriber *s, int64_t behind_ms, bool lost,
                                    int64_t now_ms)
{
    if (lost)
        return "lost";
    if (behind_ms <= SUBSCRIBER_TARGET_MS)
        return "green";
    return now_ms - s->changed_ms <= SUBSCRIBER_TARGET_MS ? "late" : "stopped";
}

struct consumer_report {
    struct subscriber subscriber;
    struct subscriber_lag lag;
    bool gone; /* what it has not read is no longer there */
    uint64_t position;
    bool rewind; /* what its save began with */
};

static enum err read_lag(struct tx *tx, struct consumer_report *r)
{
    const struct subscriber *s = &r->subscriber;
    TRY(subscriber_lag(tx, s->position, &r->lag));
    bool saved = s->created_ms != 0; /* one that never saved a position has lost nothing */
    enum err e = saved ? stored_events_reach(tx, s->position) : OK;
    r->gone = e == ERR_GONE;
    return r->gone ? OK : e;
}

static void write_consumer(struct call *c, const struct consumer_report *r)
{
    struct json_out *j = &c->json;
    const struct subscriber *s = &r->subscriber;
    const struct subscriber_lag *lag = &r->lag;
    int64_t now_ms = clock_wall_ms(c->api->clock);
    char unread[32];
    int64_t behind_ms = lag->oldest_unread ? now_ms - id_time_ms(lag->oldest_unread) : 0;
    snprintf(unread, sizeof unread, "%llu%s", (unsigned long long)lag->unread,
             lag->unread == SUBSCRIBER_COUNTED_MAX ? "+" : "");
    json_object_begin(j);
    json_put(j, "name", str, str_of(s->name));
    render_put_id(j, "position", s->position);
    json_put(j, "behind_ms", i64, behind_ms > 0 ? behind_ms : 0);
    json_put(j, "behind_at_least", u64, lag->unread);
    json_put(j, "unread", str, str_of(unread));
    json_put(j, "target_ms", i64, SUBSCRIBER_TARGET_MS);
    json_put(j, "verdict", str, str_of(consumer_verdict(s, behind_ms, r->gone, now_ms)));
    render_put_time(j, "created_at", s->created_ms);
    render_put_time(j, "changed_at", s->changed_ms);
    json_object_end(j);
}

static enum err show_consumer(struct call *c, struct tx *tx, const struct subscriber *s)
{
    struct consumer_report report = {.subscriber = *s};
    TRY(read_lag(tx, &report));
    write_consumer(c, &report);
    return OK;
}

static bool wants_batch(const struct call *c)
{
    struct str rest = http_header(c->x, STR("accept")), one, kind;
    while (str_split(&rest, ',', &one)) {
        one = str_trim(one);
        if (str_split(&one, ';', &kind) && str_eq_nocase(str_trim(kind), batch_type))
            return true;
    }
    return false;
}

static enum err follow(struct tx *tx, void *arg)
{
    struct page p = *(const struct page *)arg;
    struct call *c = p.call;
    buf_clear(&c->x->out);
    c->x->head.len = p.head_mark;
    json_out_init(&c->json, &c->x->out);
    struct subscriber consumer = {.name = ""};
    int64_t limit = EVENTS_LIMIT_DEFAULT;
    enum err e = call_query_number(c, "limit", 1, EVENTS_LIMIT_MAX, &limit);
    p.limit = (size_t)limit;
    if (!e)
        e = read_types(c, &p);
    if (!e)
        e = read_position(c, tx, &consumer, &p.position);
    if (e)
        return e;
    write_source(c, p.source);
    bool batch = wants_batch(c);
    if (!batch)
        call_list_begin(c);
    else
        json_array_begin(p.j);
    TRY(stored_events_after(tx, p.position, p.looked_at_max + 1, visit_event, &p));
    json_array_end(p.j);
    char next[24];
    snprintf(next, sizeof next, "%llu", (unsigned long long)p.position);
    if (p.full || batch) /* a batch has no other place for it */
        call_link_next(c, str_of(next));
    if (batch) {
        c->x->content_type = batch_type;
        http_add_header(c->x, "Fantail-Next-Cursor", "%s", next);
        return OK;
    }
    json_put(p.j, "next_cursor", str, str_of(next));
    json_put(p.j, "more", bool, p.full);
    json_key(p.j, STR("consumer"));
    if (consumer.name[0])
        TRY(show_consumer(c, tx, &consumer));
    else
        json_nil(p.j);
    json_object_end(p.j);
    return OK;
}

/* Where several nodes write, an event may become visible after one with a higher id. A page ends
 * below the store's horizon, which is read before the page's snapshot is taken: a consumer that
 * continues after the last event of a page has missed none. */
enum err events_follow(struct call *c, struct tx *tx)
{
    (void)tx;
    if (!c->blocking)
        return ERR_NEEDS_TRUTH;
    struct page p = {.call = c, .j = &c->json, .head_mark = c->x->head.len};
    char detail[TX_DETAIL_MAX] = "";
    enum err e = db_horizon(c->api->db, &p.horizon);
    if (!e)
        e = db_read(c->api->db, follow, &p, detail);
    if (e && !c->detail[0])
        snprintf(c->detail, sizeof c->detail, "%s", detail);
    return e;
}

enum err consumers_list(struct call *c, struct tx *tx)
{
    struct subscriber *list = ARENA_ARRAY(&c->x->arena, struct subscriber, SUBSCRIBERS_MAX);
    size_t n;
    enum err e = subscriber_list(tx, list, &n);
    call_list_begin(c);
    for (size_t i = 0; i < n && !e; i++)
        e = show_consumer(c, tx, &list[i]);
    if (!e)
        call_list_end(c, 0);
    return e;
}

enum err consumers_prepare(struct call *c)
{
    struct consumer_report *r = c->work = ARENA_NEW(&c->x->arena, struct consumer_report);
    struct str cursor = {NULL, 0};
    TRY(call_body_text(c, "cursor", true, &cursor));
    TRY(call_body_flag(c, "rewind", &r->rewind));
    if (!str_parse_u64(cursor, &r->position) || r->position > INT64_MAX)
        return call_fail(c, ERR_INVALID,
                         "cursor must be the id of the last event that was dealt with, or \"0\"");
    return OK;
}

enum err consumers_save(struct call *c, struct tx *tx)
{
    struct consumer_report *r = c->work;
    TRY(subscriber_save(tx, c->name, r->position, r->rewind, clock_wall_ms(c->api->clock),
                        &r->subscriber));
    return read_lag(tx, r);
}

void consumers_render(struct call *c)
{
    write_consumer(c, c->work);
}

enum err consumers_delete(struct call *c, struct tx *tx)
{
    return subscriber_delete(tx, c->name);
}
