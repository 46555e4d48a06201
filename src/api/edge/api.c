/* The API's life, and what handlers use to read a request and shape its answer. */
#include "api/edge/api.h"

#include <sodium.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include "api/edge/auth.h"
#include "api/edge/cursor.h"
#include "api/edge/dispatcher.h"
#include "api/edge/forward.h"
#include "api/edge/guessing.h"
#include "api/edge/page_cache.h"
#include "api/edge/request.h"
#include "api/edge/routes.h"
#include "api/edge/schemas.h"
#include "base/check.h"
#include "base/id.h"
#include "base/log.h"
#include "net/limits.h"
#include "ops/hot_keys.h"

enum { KEYS_IN_PROGRESS_MAX = 1 << 16, LIMIT_ENTRIES_MAX = 1 << 17, LINK_QUERY_MAX = 1024 };

/* ---- life ---- */

/* What the schema of each route's body names. A shape that is no list of fields is open. */
static void read_fields(struct dispatcher *d)
{
    for (size_t i = 0; i < route_count; i++) {
        const struct schema *schema = schema_find(routes[i].request);
        json_t *shape = schema ? schema_read(schema->shape) : NULL;
        d->fields[i] = json_incref(json_object_get(shape, "properties"));
        json_decref(shape);
    }
}

static struct dispatcher *dispatcher_new(bool log_requests)
{
    struct dispatcher *d = calloc(1, sizeof *d);
    CHECK(d);
    d->log_requests = log_requests;
    pthread_mutex_init(&d->ages_lock, NULL);
    d->keys = idempotency_new(KEYS_IN_PROGRESS_MAX);
    read_fields(d);
    buf_init(&d->openapi, 0);
    buf_init(&d->docs, 0);
    openapi_render(&d->openapi);
    docs_render(&d->docs);
    return d;
}

static void dispatcher_free(struct dispatcher *d)
{
    if (!d)
        return;
    idempotency_free(d->keys);
    for (size_t i = 0; i < route_count; i++)
        json_decref(d->fields[i]);
    forward_free(d->forward);
    pthread_mutex_destroy(&d->ages_lock);
    buf_done(&d->openapi);
    buf_done(&d->docs);
    free(d);
}

/* The secret is made once and lives in truth, so that cursors outlive a restart. */
static enum err read_or_make_secret(struct tx *tx, void *arg)
{
    uint8_t *secret = arg;
    uint8_t fresh[CURSOR_SECRET_BYTES];
    char hex[2 * CURSOR_SECRET_BYTES];
    randombytes_buf(fresh, sizeof fresh);
    str_hex(fresh, sizeof fresh, hex);
    TRY(tx_exec(tx,
                "INSERT INTO meta (name, value) VALUES ('secret', $1) "
                "ON CONFLICT (name) DO NOTHING",
                DB_ARGS(DB_TEXT(((struct str){hex, sizeof hex}))), NULL));
    struct db_rows rows = tx_rows(tx, "SELECT value FROM meta WHERE name = 'secret'", DB_NO_ARGS);
    bool good = false;
    if (db_next(&rows)) {
        struct str text = db_text(&rows, 0);
        size_t n = 0;
        good =
            sodium_hex2bin(secret, CURSOR_SECRET_BYTES, text.ptr, text.len, NULL, &n, NULL) == 0 &&
            n == CURSOR_SECRET_BYTES;
    }
    TRY(db_rows_done(&rows));
    return good ? OK : tx_fail(tx, ERR_INTERNAL, "the stored secret is damaged");
}

enum err api_open(struct api *api, char why[200])
{
    _Static_assert(sizeof api->secret == CURSOR_SECRET_BYTES, "one secret");
    const struct settings *s = api->settings;
    CHECK(sodium_init() >= 0);
    json_object_seed(0); /* before threads race to do it */
    char detail[TX_DETAIL_MAX] = "";
    enum err e = db_write(api->db, read_or_make_secret, api->secret, detail);
    if (e) {
        snprintf(why, 200, "%s", detail[0] ? detail : err_title(e));
        return e;
    }
    struct auth_config config = {
        .db = api->db,
        .views = api->views,
        .clock = api->clock,
        .jwt_key = s->jwt_key,
        .jwt_issuer = s->jwt_issuer,
        .jwt_audience = s->jwt_audience,
        .sessions = api_session_terms(api),
        .jwt_waive = s->jwt_waive,
        .jwt_return = s->jwt_return,
        .admit = api_admit_subject,
        .admit_ctx = api,
    };
    TRY(auth_new(&config, &api->auth, why));
    enum log_level level = LOG_INFO;
    log_level_parse(str_of(s->log_level), &level);
    api->limits = limits_new(api->clock, LIMIT_ENTRIES_MAX);
    api->guessing = guessing_new(api->clock, s->login_tries);
    if (!api->views->remote || api->invalidation) /* else no page can be validated */
        api->pages =
            page_cache_new((size_t)s->page_cache_bytes, api->views, api->cards, api->invalidation);
    api->dispatcher = dispatcher_new(level == LOG_DEBUG);
    api->dispatcher->forward = forward_new(api->secret);
    api->hot_groups = hot_keys_new(clock_mono_us(api->clock));
    return OK;
}

void api_close(struct api *api)
{
    auth_free(api->auth);
    limits_free(api->limits);
    guessing_free(api->guessing);
    page_cache_free(api->pages);
    dispatcher_free(api->dispatcher);
    hot_keys_free(api->hot_groups);
    api->auth = NULL;
    api->limits = NULL;
    api->guessing = NULL;
    api->pages = NULL;
    api->dispatcher = NULL;
    api->hot_groups = NULL;
}

struct session_terms api_session_terms(const struct api *api)
{
    return (struct session_terms){api->settings->session_life_ms, api->settings->session_age_ms};
}

/* ---- for handlers ---- */

enum err call_fail(struct call *c, enum err kind, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    vsnprintf(c->detail, sizeof c->detail, format, args);
    va_end(args);
    return kind;
}

enum err call_checked(struct call *c, const struct tx *says, enum err e)
{
    return e ? call_fail(c, e, "%s", says->detail) : OK;
}

/* NULL: absent, or null. */
static const json_t *body_field(const struct call *c, const char *name)
{
    const json_t *value = c->body ? json_object_get(c->body, name) : NULL;
    return json_is_null(value) ? NULL : value;
}

enum err call_body_text(struct call *c, const char *name, bool required, struct str *out)
{
    const json_t *value = body_field(c, name);
    if (!value)
        return required ? call_fail(c, ERR_INVALID, "%s is missing", name) : OK;
    if (!json_is_string(value))
        return call_fail(c, ERR_INVALID, "%s must be a string", name);
    /* The parser has refused invalid UTF-8 and NUL. */
    *out = (struct str){json_string_value(value), json_string_length(value)};
    return OK;
}

enum err call_body_number(struct call *c, const char *name, int64_t min, int64_t max, int64_t *out)
{
    const json_t *value = body_field(c, name);
    if (!value)
        return OK;
    if (!json_is_integer(value) || json_integer_value(value) < min ||
        json_integer_value(value) > max)
        return call_fail(c, ERR_INVALID, "%s must be a whole number from %lld to %lld", name,
                         (long long)min, (long long)max);
    *out = json_integer_value(value);
    return OK;
}

enum err call_body_flag(struct call *c, const char *name, bool *out)
{
    const json_t *value = body_field(c, name);
    if (!value)
        return OK;
    if (!json_is_boolean(value))
        return call_fail(c, ERR_INVALID, "%s must be true or false", name);
    *out = json_is_true(value);
    return OK;
}

enum err call_body_id(struct call *c, const char *name, uint64_t *out)
{
    struct str text = {NULL, 0};
    TRY(call_body_text(c, name, false, &text));
    return (text.ptr && !str_eq(text, STR("0")) && !id_parse(text, out))
               ? call_fail(c, ERR_INVALID, "%s must be an id", name)
               : OK;
}

enum err call_body_ids(struct call *c, const char *name, size_t max, const uint64_t **ids,
                       size_t *n)
{
    const json_t *value = body_field(c, name);
    *n = 0;
    if (!value)
        return OK;
    if (!json_is_array(value))
        return call_fail(c, ERR_INVALID, "%s must be an array of ids", name);
    size_t count = json_array_size(value);
    if (count > max)
        return call_fail(c, ERR_INVALID, "%s holds more than %zu ids", name, max);
    uint64_t *list = ARENA_ARRAY(&c->x->arena, uint64_t, count + 1);
    for (size_t i = 0; i < count; i++) {
        const json_t *item = json_array_get(value, i);
        struct str text = {json_string_value(item), json_string_length(item)};
        if (!text.ptr || !id_parse(text, &list[i]))
            return call_fail(c, ERR_INVALID, "%s must be an array of ids", name);
    }
    *ids = list;
    *n = count;
    return OK;
}

enum err call_query_text(struct call *c, const char *name, struct str *out)
{
    *out = (struct str){NULL, 0};
    struct str text;
    if (!http_query(c->x, str_of(name), &text))
        return OK;
    if (!text.ptr || !str_is_utf8(text) || memchr(text.ptr, '\0', text.len))
        return call_fail(c, ERR_BAD_INPUT, "%s is malformed: it must be percent-encoded UTF-8",
                         name);
    if (text.len > 0)
        *out = text;
    return OK;
}

enum err call_query_id(struct call *c, const char *name, uint64_t *out)
{
    struct str text;
    TRY(call_query_text(c, name, &text));
    return (text.ptr && !id_parse(text, out))
               ? call_fail(c, ERR_BAD_INPUT, "%s must be an id", name)
               : OK;
}

enum err call_query_number(struct call *c, const char *name, int64_t min, int64_t max, int64_t *out)
{
    struct str text;
    uint64_t n;
    TRY(call_query_text(c, name, &text));
    if (!text.ptr)
        return OK;
    if (!str_parse_u64(text, &n) || n > (uint64_t)max || (int64_t)n < min)
        return call_fail(c, ERR_BAD_INPUT, "%s must be a number from %lld to %lld", name,
                         (long long)min, (long long)max);
    *out = (int64_t)n;
    return OK;
}

static uint32_t list_of(const struct call *c)
{
    return cursor_list(c->route->name, c->params[0]);
}

enum err call_page(struct call *c, size_t room, size_t *limit, uint64_t *position)
{
    const struct route_page *page = &c->route->page;
    struct str text;
    CHECK(page->most <= room);
    *limit = page->usual;
    *position = UINT64_MAX;
    if (http_query(c->x, STR("limit"), &text)) {
        uint64_t n = 0;
        if (!text.ptr || !str_parse_u64(text, &n) || n < 1 || n > page->most)
            return call_fail(c, ERR_BAD_INPUT, "limit must be a number from 1 to %zu", page->most);
        *limit = (size_t)n;
    }
    if (http_query(c->x, STR("cursor"), &text)) {
        const char *why = "cursor is malformed";
        if (!text.ptr ||
            cursor_read(c->api->secret, text, list_of(c), c->caller.account, position, &why) != OK)
            return call_fail(c, ERR_BAD_INPUT, "%s", why);
    }
    return OK;
}

void call_list_begin(struct call *c)
{
    json_object_begin(&c->json);
    json_key(&c->json, STR("items"));
    json_array_begin(&c->json);
}

/* Link: <path?the same query with the new cursor>; rel="next". What a peer sent goes back only as
 * far as it is harmless inside the angle brackets. */
void call_link_next(struct call *c, struct str cursor)
{
    struct buf *head = &c->x->head;
    buf_str(head, STR("Link: <"));
    buf_str(head, c->x->path); /* it matched a route: nothing but our own words, digits and names */
    buf_str(head, STR("?"));
    struct str rest = c->x->query, pair;
    while (rest.len <= LINK_QUERY_MAX && str_split(&rest, '&', &pair)) {
        if (pair.len == 0 || str_starts(pair, STR("cursor=")))
            continue;
        for (size_t i = 0; i < pair.len; i++) {
            unsigned char b = (unsigned char)pair.ptr[i];
            if (b > ' ' && b < 0x7f && b != '<' && b != '>' && b != '"')
                buf_append(head, &b, 1);
            else
                buf_printf(head, "%%%02X", b);
        }
        buf_str(head, STR("&"));
    }
    buf_str(head, STR("cursor="));
    buf_str(head, cursor);
    buf_str(head, STR(">; rel=\"next\"\r\n"));
}

void call_list_end(struct call *c, uint64_t next_position)
{
    json_array_end(&c->json);
    json_key(&c->json, STR("next_cursor"));
    if (next_position) {
        char text[CURSOR_TEXT_LEN];
        struct cursor cursor = {list_of(c), next_position, c->caller.account};
        cursor_write(c->api->secret, &cursor, text);
        struct str view = {text, sizeof text};
        json_str(&c->json, view);
        call_link_next(c, view);
    } else {
        json_nil(&c->json);
    }
    json_object_end(&c->json);
}
