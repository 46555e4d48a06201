/* The OpenAPI 3.1 document, rendered once from the route table and the schemas. Nothing about a
 * route is written here: what a route may answer follows from its policy, its flags and its path.
 */
#include <stdio.h>

#include "api/edge/dispatcher.h"
#include "api/edge/handlers.h"
#include "api/edge/schemas.h"
#include "base/check.h"

static const struct {
    enum err kind;
    const char *name, *text;
} problems[] = {
    {ERR_BAD_INPUT, "Malformed", "The request is malformed."},
    {ERR_UNAUTHENTICATED, "Unauthenticated", "A valid token is required."},
    {ERR_FORBIDDEN, "Forbidden", "The caller may not do this."},
    {ERR_NOT_FOUND, "NotFound", "There is no such thing, or none that the caller may see."},
    {ERR_CONFLICT, "Conflict",
     "It conflicts with what is there, or the same request is in progress."},
    {ERR_GONE, "Gone", "It is no longer kept; the detail says what still is."},
    {ERR_TOO_LARGE, "TooLarge", "The body is too large."},
    {ERR_MEDIA_TYPE, "MediaType", "The body is of an unsupported type."},
    {ERR_MISDIRECTED, "Misdirected", "This node has no role that serves it: ask another one."},
    {ERR_INVALID, "Invalid", "The request is well-formed but cannot be carried out as given."},
    {ERR_RATE_LIMITED, "RateLimited", "Too many requests; Retry-After says when to try again."},
    {ERR_UNAVAILABLE, "Unavailable",
     "Overloaded, starting or stopping; Retry-After says when to try again."},
};

/* The next "{…}" of a path, without its braces. */
static bool next_placeholder(struct str *rest, struct str *name)
{
    const char *open = memchr(rest->ptr, '{', rest->len);
    if (!open)
        return false;
    const char *end = rest->ptr + rest->len, *close = memchr(open, '}', (size_t)(end - open));
    CHECK(close);
    *name = (struct str){open + 1, (size_t)(close - open - 1)};
    *rest = (struct str){close, (size_t)(end - close)};
    return true;
}

static bool has_placeholder(const struct route *r)
{
    return memchr(r->path.ptr, '{', r->path.len) != NULL;
}

static bool may_answer(const struct route *r, enum err kind)
{
    bool body = r->request || (r->flags & ROUTE_NDJSON);
    bool tokens = !(r->flags & ROUTE_TOKENLESS);
    switch (kind) {
    case ERR_BAD_INPUT:
        return body || (r->flags & (ROUTE_PAGED | ROUTE_KEYED)) || r->query[0];
    case ERR_UNAUTHENTICATED:
        return tokens || r->rate == RATE_AUTH;
    case ERR_FORBIDDEN:
        return r->policy != POLICY_ANYONE || r->rate == RATE_AUTH;
    case ERR_NOT_FOUND:
        return has_placeholder(r) || r->query[0] || r->handler == groups_create;
    case ERR_CONFLICT:
        return (r->flags & (ROUTE_KEYED | ROUTE_CONFLICTS)) || r->rate == RATE_AUTH;
    case ERR_GONE:
        return (r->flags & ROUTE_MAY_BE_GONE) != 0;
    case ERR_TOO_LARGE:
    case ERR_MEDIA_TYPE:
        return body;
    case ERR_MISDIRECTED:
        return !route_is_everywhere(r);
    case ERR_INVALID:
        return body || (r->flags & ROUTE_KEYED);
    case ERR_RATE_LIMITED:
        return r->rate != RATE_NONE;
    default:
        return r->policy != POLICY_ANYONE || r->mode != MODE_INLINE || r->handler == health_ready;
    }
}

static void write_parameter(struct json_out *j, struct str name, const char *where, bool required,
                            const char *schema, struct str text)
{
    json_object_begin(j);
    json_put(j, "name", str, name);
    json_put(j, "in", str, str_of(where));
    if (required)
        json_put(j, "required", bool, true);
    json_put(j, "description", str, text);
    json_put(j, "schema", raw, str_of(schema));
    json_object_end(j);
}

static void write_parameters(struct json_out *j, const struct route *r)
{
    json_key(j, STR("parameters"));
    json_array_begin(j);
    struct str path = r->path, name;
    while (next_placeholder(&path, &name)) {
        if (str_eq(name, STR("name")))
            write_parameter(j, name, "path", true,
                            "{\"type\":\"string\",\"pattern\":\"^[a-z0-9._-]{1,40}$\"}",
                            STR("a consumer's name"));
        else
            write_parameter(
                j, name, "path", true, "{\"type\":\"string\",\"pattern\":\"^[1-9][0-9]*$\"}",
                str_eq(name, STR("seq")) ? STR("an entry's number") : STR("a decimal id"));
    }
    struct str rest = str_of(r->query), one;
    while (rest.len > 0 && str_split(&rest, ';', &one)) {
        CHECK(str_split(&one, '=', &name));
        write_parameter(j, name, "query", false, "{\"type\":\"string\"}", one);
    }
    if (r->flags & ROUTE_PAGED) {
        write_parameter(j, STR("limit"), "query", false,
                        "{\"type\":\"integer\",\"minimum\":1,\"maximum\":200}",
                        STR("items a page; each list has its own default and maximum"));
        write_parameter(j, STR("cursor"), "query", false, "{\"type\":\"string\"}",
                        STR("next_cursor of the page before"));
    }
    if (r->flags & ROUTE_KEYED)
        write_parameter(j, STR("Idempotency-Key"), "header", false,
                        "{\"type\":\"string\",\"maxLength\":255}",
                        STR("the same key and body within 24 hours are done once"));
    if (!(r->flags & ROUTE_TOKENLESS))
        write_parameter(j, STR("Fantail-Account"), "header", false, "{\"type\":\"string\"}",
                        STR("for API keys with the scope act: the id or @username to act for"));
    json_array_end(j);
}

static void write_content(struct json_out *j, const char *type, const char *schema)
{
    json_key(j, STR("content"));
    json_object_begin(j);
    json_key(j, str_of(type));
    json_object_begin(j);
    json_key(j, STR("schema"));
    json_object_begin(j);
    if (schema) {
        char ref[96];
        CHECK(schema_find(schema));
        snprintf(ref, sizeof ref, "#/components/schemas/%s", schema);
        json_put(j, "$ref", str, str_of(ref));
    } else {
        json_put(j, "type", str, STR("string"));
    }
    json_object_end(j);
    json_object_end(j);
    json_object_end(j);
}

static void write_request_body(struct json_out *j, const struct route *r)
{
    if (!r->request && !(r->flags & ROUTE_NDJSON))
        return;
    json_key(j, STR("requestBody"));
    json_object_begin(j);
    json_put(j, "required", bool, !(r->flags & ROUTE_BODY_OPTIONAL));
    if (r->flags & ROUTE_NDJSON)
        write_content(j, "application/x-ndjson", NULL);
    else
        write_content(j, "application/json", r->request);
    json_object_end(j);
}

static void write_success(struct json_out *j, const struct route *r, int number)
{
    char status[8];
    snprintf(status, sizeof status, "%d", number);
    json_key(j, str_of(status));
    json_object_begin(j);
    json_put(j, "description", str, STR("Done."));
    if (r->response) {
        bool text = strchr(r->response, '/') != NULL; /* a media type instead of a schema */
        const char *schema = r->handler == stream_open ? "Stream" : text ? NULL : r->response;
        write_content(j, text ? r->response : "application/json", schema);
    }
    json_object_end(j);
}

static void write_responses(struct json_out *j, const struct route *r)
{
    char status[8];
    json_key(j, STR("responses"));
    json_object_begin(j);
    write_success(j, r, r->success);
    if (r->flags & ROUTE_EITHER)
        write_success(j, r, r->success == 200 ? 201 : 200);
    for (size_t i = 0; i < COUNT_OF(problems); i++) {
        if (!may_answer(r, problems[i].kind))
            continue;
        char ref[96];
        snprintf(status, sizeof status, "%d", err_http_status(problems[i].kind));
        snprintf(ref, sizeof ref, "#/components/responses/%s", problems[i].name);
        json_key(j, str_of(status));
        json_object_begin(j);
        json_put(j, "$ref", str, str_of(ref));
        json_object_end(j);
    }
    json_object_end(j);
}

static const char *policy_name(enum route_policy policy)
{
    static const char *const names[] = {"", "anyone", "account", "admin_read", "admin"};
    return names[policy];
}

static void write_security(struct json_out *j, const struct route *r)
{
    json_put(j, "x-policy", str, str_of(policy_name(r->policy)));
    if (r->flags & ROUTE_CONTROL)
        json_put(j, "x-control-only", bool, true);
    json_key(j, STR("security"));
    json_array_begin(j);
    if (r->policy == POLICY_ANYONE) {
        json_object_begin(j); /* none is fine, too */
        json_object_end(j);
    }
    if (!(r->flags & ROUTE_TOKENLESS)) {
        bool admin = r->policy == POLICY_ADMIN || r->policy == POLICY_ADMIN_READ;
        json_object_begin(j);
        json_key(j, admin ? STR("api_key") : STR("bearer"));
        json_array_begin(j);
        json_array_end(j);
        json_object_end(j);
    }
    json_array_end(j);
}

static void write_operation(struct json_out *j, const struct route *r)
{
    char method[8];
    snprintf(method, sizeof method, "%s", route_method_name(r->method));
    for (char *m = method; *m; m++)
        *m = (char)(*m - 'A' + 'a');
    json_key(j, str_of(method));
    json_object_begin(j);
    json_put(j, "operationId", str, str_of(r->name));
    json_put(j, "summary", str, str_of(r->summary));
    json_key(j, STR("tags"));
    json_array_begin(j);
    json_str(j, str_of(r->section));
    json_array_end(j);
    write_parameters(j, r);
    write_request_body(j, r);
    write_responses(j, r);
    write_security(j, r);
    json_object_end(j);
}

static void write_paths(struct json_out *j)
{
    json_key(j, STR("paths"));
    json_object_begin(j);
    for (size_t i = 0; i < route_count; i++) {
        bool first = true;
        for (size_t k = 0; k < i; k++)
            first = first && !str_eq(routes[k].path, routes[i].path);
        if (!first)
            continue;
        json_key(j, routes[i].path);
        json_object_begin(j);
        for (size_t k = i; k < route_count; k++) {
            if (str_eq(routes[k].path, routes[i].path))
                write_operation(j, &routes[k]);
        }
        json_object_end(j);
    }
    json_object_end(j);
}

static void write_scheme(struct json_out *j, struct str name, struct str text)
{
    json_key(j, name);
    json_object_begin(j);
    json_put(j, "type", str, STR("http"));
    json_put(j, "scheme", str, STR("bearer"));
    json_put(j, "description", str, text);
    json_object_end(j);
}

static void write_components(struct json_out *j)
{
    json_key(j, STR("components"));
    json_object_begin(j);
    json_key(j, STR("securitySchemes"));
    json_object_begin(j);
    write_scheme(j, STR("bearer"),
                 STR("The token of a session (log in to get one), a JWT of the host product, or an "
                     "API key with the scope act together with Fantail-Account."));
    write_scheme(j, STR("api_key"),
                 STR("An API key with the scope admin, or admin:read to look only."));
    json_object_end(j);
    json_key(j, STR("schemas"));
    json_object_begin(j);
    for (size_t i = 0; i < schema_count; i++) {
        struct buf text;
        buf_init(&text, 0);
        schema_write(&text, schemas[i].json);
        json_key(j, str_of(schemas[i].name));
        json_raw(j, buf_view(&text));
        buf_done(&text);
    }
    json_key(j, STR("StatusNumbers"));
    status_write_schema(j);
    json_object_end(j);
    json_key(j, STR("responses"));
    json_object_begin(j);
    for (size_t i = 0; i < COUNT_OF(problems); i++) {
        json_key(j, str_of(problems[i].name));
        json_object_begin(j);
        json_put(j, "description", str, str_of(problems[i].text));
        write_content(j, "application/problem+json", "Problem");
        json_object_end(j);
    }
    json_object_end(j);
    json_object_end(j);
}

void openapi_render(struct buf *out)
{
    struct json_out json, *j = &json;
    json_out_init(j, out);
    json_object_begin(j);
    json_put(j, "openapi", str, STR("3.1.0"));
    json_key(j, STR("info"));
    json_object_begin(j);
    json_put(j, "title", str, STR("Fantail"));
    json_put(j, "version", str, STR(FANTAIL_VERSION));
    json_put(j, "description", str,
             STR("A feed server. Ids are decimal strings; times are RFC 3339 in UTC with "
                 "milliseconds; every list is cut by cursor; errors are "
                 "application/problem+json."));
    json_key(j, STR("license"));
    json_object_begin(j);
    json_put(j, "name", str, STR("Apache-2.0"));
    json_put(j, "identifier", str, STR("Apache-2.0"));
    json_object_end(j);
    json_object_end(j);
    json_key(j, STR("servers"));
    json_raw(j, STR("[{\"url\":\"/\"}]"));
    write_paths(j);
    write_components(j);
    json_object_end(j);
}

enum err openapi_show(struct call *c, struct tx *tx)
{
    (void)tx;
    buf_str(&c->x->out, buf_view(&c->api->dispatcher->openapi));
    return OK;
}
