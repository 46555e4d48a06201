/* The OpenAPI 3.1 document, rendered once from the route table and the schemas. Nothing about a
 * route is written here: what a route may answer follows from its policy, its flags and its path.
 */
#include <stdlib.h>

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

static bool may_answer(const struct route *r, enum err kind)
{
    bool body = r->request || (r->flags & ROUTE_NDJSON);
    bool tokens = !(r->flags & ROUTE_TOKENLESS);
    switch (kind) {
    case ERR_BAD_INPUT:
        return body || r->page.most || (r->flags & ROUTE_KEYED) || r->query[0];
    case ERR_UNAUTHENTICATED:
        return tokens || r->rate == RATE_AUTH;
    case ERR_FORBIDDEN:
        return r->policy != POLICY_ANYONE || r->rate == RATE_AUTH;
    case ERR_NOT_FOUND:
        return memchr(r->path.ptr, '{', r->path.len) || r->query[0] || r->handler == groups_create;
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
        return r->method != HTTP_M_GET;
    case ERR_RATE_LIMITED:
        return r->rate != RATE_NONE;
    default:
        return r->policy != POLICY_ANYONE || r->mode != MODE_INLINE || r->handler == health_ready;
    }
}

/* JSON written with ' for ", as the schemas are. */
static json_t *quoted(const char *text)
{
    struct buf json;
    buf_init(&json, 0);
    schema_write(&json, text);
    json_t *value = json_loadb(json.ptr, json.len, 0, NULL);
    CHECK(value);
    buf_done(&json);
    return value;
}

static void add_parameter(json_t *list, struct str name, const char *where, const char *schema,
                          struct str text)
{
    json_t *required = strcmp(where, "path") == 0 ? json_true() : NULL;
    json_array_append_new(list,
                          json_pack("{s:s%, s:s, s:o*, s:s%, s:o}", "name", name.ptr, name.len,
                                    "in", where, "required", required, "description", text.ptr,
                                    text.len, "schema", quoted(schema)));
}

static json_t *parameters_of(const struct route *r)
{
    json_t *list = json_array();
    struct str path = r->path, query = str_of(r->query), one, name;
    while (str_split(&path, '/', &one)) {
        if (!str_starts(one, STR("{")))
            continue;
        name = (struct str){one.ptr + 1, one.len - 2};
        bool word = str_eq(name, STR("name"));
        add_parameter(list, name, "path",
                      word ? "{'type':'string','pattern':'^[a-z0-9._-]{1,40}$'}"
                           : "{'type':'string','pattern':'^[1-9][0-9]*$'}",
                      word                       ? STR("a consumer's name")
                      : str_eq(name, STR("seq")) ? STR("an entry's number")
                                                 : STR("a decimal id"));
    }
    while (str_split(&query, ';', &one)) {
        CHECK(str_split(&one, '=', &name));
        add_parameter(list, name, "query", "{'type':'string'}", one);
    }
    if (r->page.most) {
        char limit[100];
        snprintf(limit, sizeof limit, "{'type':'integer','minimum':1,'maximum':%zu,'default':%zu}",
                 r->page.most, r->page.usual);
        add_parameter(list, STR("limit"), "query", limit, STR("items a page"));
        add_parameter(list, STR("cursor"), "query", "{'type':'string'}",
                      STR("next_cursor of the page before"));
    }
    if (r->flags & ROUTE_KEYED)
        add_parameter(list, STR("Idempotency-Key"), "header", "{'type':'string','maxLength':255}",
                      STR("the same key and body within 24 hours are done once"));
    if (r->flags & ROUTE_RECORDED)
        add_parameter(list, STR("Fantail-Why"), "header", "{'type':'string','maxLength':200}",
                      STR("why, for the record at /v1/admin/audit"));
    if (!(r->flags & ROUTE_TOKENLESS))
        add_parameter(list, STR("Fantail-Account"), "header", "{'type':'string'}",
                      STR("for API keys with the scope act: the id or @username to act for"));
    return list;
}

/* `schema` NULL: text. */
static json_t *content(const char *type, const char *schema)
{
    CHECK(!schema || schema_find(schema));
    json_t *shape =
        schema ? json_pack("{s:o}", "$ref", json_sprintf("#/components/schemas/%s", schema))
               : json_pack("{s:s}", "type", "string");
    return json_pack("{s:{s:o}}", type, "schema", shape);
}

static json_t *request_body(const struct route *r)
{
    bool lines = r->flags & ROUTE_NDJSON;
    if (!r->request && !lines)
        return NULL;
    return json_pack(
        "{s:b, s:o}", "required", !(r->flags & ROUTE_BODY_OPTIONAL), "content",
        content(lines ? "application/x-ndjson" : "application/json", lines ? NULL : r->request));
}

static void add_response(json_t *responses, int status, json_t *response)
{
    char name[8];
    snprintf(name, sizeof name, "%d", status);
    json_object_set_new(responses, name, response);
}

static json_t *success(const struct route *r)
{
    bool text = r->response && strchr(r->response, '/'); /* a media type instead of a schema */
    const char *schema = r->handler == stream_open ? "Stream" : text ? NULL : r->response;
    return json_pack("{s:s, s:o*}", "description", "Done.", "content",
                     r->response ? content(text ? r->response : "application/json", schema) : NULL);
}

static json_t *responses_of(const struct route *r)
{
    json_t *all = json_object();
    add_response(all, r->success, success(r));
    if (r->flags & ROUTE_EITHER)
        add_response(all, r->success == 200 ? 201 : 200, success(r));
    for (size_t i = 0; i < COUNT_OF(problems); i++)
        if (may_answer(r, problems[i].kind))
            add_response(all, err_http_status(problems[i].kind),
                         json_pack("{s:o}", "$ref",
                                   json_sprintf("#/components/responses/%s", problems[i].name)));
    return all;
}

static json_t *security_of(const struct route *r)
{
    bool admin = r->policy == POLICY_ADMIN || r->policy == POLICY_ADMIN_READ;
    json_t *ways = json_array();
    if (r->policy == POLICY_ANYONE)
        json_array_append_new(ways, json_object()); /* none is fine, too */
    if (!(r->flags & ROUTE_TOKENLESS))
        json_array_append_new(ways, json_pack("{s:[]}", admin ? "api_key" : "bearer"));
    return ways;
}

static json_t *operation(const struct route *r)
{
    static const char *const policies[] = {"", "anyone", "account", "admin_read", "admin"};
    return json_pack("{s:s, s:s, s:[s], s:o, s:o*, s:o, s:s, s:o*, s:o}", "operationId", r->name,
                     "summary", r->summary, "tags", r->section, "parameters", parameters_of(r),
                     "requestBody", request_body(r), "responses", responses_of(r), "x-policy",
                     policies[r->policy], "x-control-only",
                     r->flags & ROUTE_CONTROL ? json_true() : NULL, "security", security_of(r));
}

static json_t *paths(void)
{
    json_t *all = json_object();
    for (const struct route *r = routes; r < routes + route_count; r++) {
        json_t *methods = json_object_getn(all, r->path.ptr, r->path.len);
        if (!methods) {
            methods = json_object();
            json_object_setn_new(all, r->path.ptr, r->path.len, methods);
        }
        char name[8] = "";
        for (const char *m = route_method_name(r->method); *m; m++)
            name[strlen(name)] = (char)(*m - 'A' + 'a');
        json_object_set_new(methods, name, operation(r));
    }
    return all;
}

static json_t *shapes(void)
{
    json_t *all = json_object();
    for (size_t i = 0; i < schema_count; i++) {
        json_t *schema = schema_read(schemas[i].shape);
        if (schemas[i].example && json_object_get(schema, "properties")) /* of a request */
            json_object_set_new(schema, "additionalProperties", json_false());
        json_object_set_new(all, schemas[i].name, schema);
    }
    struct buf numbers;
    struct json_out j;
    buf_init(&numbers, 0);
    json_out_init(&j, &numbers);
    status_write_schema(&j);
    json_object_set_new(all, "StatusNumbers", json_loadb(numbers.ptr, numbers.len, 0, NULL));
    buf_done(&numbers);
    return all;
}

static json_t *components(void)
{
    json_t *responses = json_object();
    for (size_t i = 0; i < COUNT_OF(problems); i++)
        json_object_set_new(responses, problems[i].name,
                            json_pack("{s:s, s:o}", "description", problems[i].text, "content",
                                      content("application/problem+json", "Problem")));
    json_t *schemes = quoted(
        "{'bearer':{'type':'http','scheme':'bearer','description':'The token of a session (log in "
        "to get one), a JWT of the host product, or an API key with the scope act together with "
        "Fantail-Account.'},"
        "'api_key':{'type':'http','scheme':'bearer','description':'An API key with the scope "
        "admin, or admin:read to look only.'}}");
    return json_pack("{s:o, s:o, s:o}", "securitySchemes", schemes, "schemas", shapes(),
                     "responses", responses);
}

void openapi_render(struct buf *out)
{
    json_t *info = quoted(
        "{'title':'Fantail','version':'" FANTAIL_VERSION "','description':'A feed server. Ids are "
        "decimal strings; times are RFC 3339 in UTC with milliseconds; every list is cut by "
        "cursor; errors are application/problem+json.',"
        "'license':{'name':'Apache-2.0','identifier':'Apache-2.0'}}");
    json_t *document =
        json_pack("{s:s, s:o, s:[{s:s}], s:o, s:o}", "openapi", "3.1.0", "info", info, "servers",
                  "url", "/", "paths", paths(), "components", components());
    char *text = document ? json_dumps(document, JSON_COMPACT) : NULL;
    CHECK(text);
    buf_str(out, str_of(text));
    free(text);
    json_decref(document);
}

enum err openapi_show(struct call *c, struct tx *tx)
{
    (void)tx;
    buf_str(&c->x->out, buf_view(&c->api->dispatcher->openapi));
    return OK;
}
