/* The page at /docs: the route table as something to read. docs.html is the page, without scripts
 * or anything fetched from elsewhere; its comments say where the version and a section's routes go.
 */
#include "api/edge/dispatcher.h"
#include "api/edge/handlers.h"
#include "api/edge/schemas.h"
#include "base/check.h"

extern const char docs_page[]; /* docs.html */

static void put(struct buf *out, const char *text)
{
    buf_str(out, str_of(text));
}

static void put_escaped(struct buf *out, struct str text)
{
    static const char special[] = "<>&\"";
    static const char *const escaped[] = {"&lt;", "&gt;", "&amp;", "&quot;"};
    for (size_t i = 0; i < text.len; i++) {
        const char *found = strchr(special, text.ptr[i]);
        if (found)
            put(out, escaped[found - special]);
        else
            buf_append(out, &text.ptr[i], 1);
    }
}

static void put_parameters(struct buf *out, const struct route *r)
{
    struct str rest = str_of(r->query), one;
    bool any = rest.len > 0 || r->page.most;
    if (!any)
        return;
    put(out, "<dt>Query</dt><dd>");
    while (rest.len > 0 && str_split(&rest, ';', &one)) {
        struct str name;
        CHECK(str_split(&one, '=', &name));
        buf_printf(out, "<code>%.*s</code> ", STR_ARG(name));
        put_escaped(out, one);
        put(out, "<br>");
    }
    if (r->page.most)
        buf_printf(out,
                   "<code>limit</code> items a page: %zu unless given, at most %zu<br>"
                   "<code>cursor</code> <code>next_cursor</code> of the page before",
                   r->page.usual, r->page.most);
    put(out, "</dd>");
}

static void put_request(struct buf *out, const struct route *r)
{
    if (r->flags & ROUTE_NDJSON)
        put(out, "<dt>Body</dt><dd>NDJSON, one object a line</dd>");
    else if (r->request)
        buf_printf(out, "<dt>Body</dt><dd>%s%s</dd>", r->request,
                   r->flags & ROUTE_BODY_OPTIONAL ? ", may be left out" : "");
    if (r->flags & ROUTE_KEYED)
        put(out, "<dt>Retries</dt><dd>takes <code>Idempotency-Key</code></dd>");
}

/* The address to call: ids as $ID, query parameters with their own names in capitals as values. */
static void put_address(struct buf *out, const struct route *r)
{
    put(out, " \"http://localhost:8080");
    for (size_t i = 0; i < r->path.len; i++) {
        if (r->path.ptr[i] == '{') {
            put(out, "$"); /* "{id}" is $ID, "{name}" is $NAME */
            while (r->path.ptr[++i] != '}')
                buf_printf(out, "%c", r->path.ptr[i] - 'a' + 'A');
        } else {
            buf_append(out, &r->path.ptr[i], 1);
        }
    }
    struct str rest = str_of(r->query), one, name;
    for (char joint = '?'; rest.len > 0 && str_split(&rest, ';', &one); joint = '&') {
        CHECK(str_split(&one, '=', &name));
        buf_printf(out, "%s%.*s=", joint == '?' ? "?" : "&amp;", STR_ARG(name));
        for (size_t i = 0; i < name.len; i++)
            buf_printf(out, "%c", name.ptr[i] == '_' ? '_' : name.ptr[i] - 'a' + 'A');
    }
    put(out, "\"");
}

static void put_example(struct buf *out, const struct route *r)
{
    const struct schema *request = schema_find(r->request);
    put(out, "<pre>curl");
    if (r->flags & ROUTE_CONTROL)
        put(out, " --unix-socket DATA/control.sock");
    if (r->method != HTTP_M_GET)
        buf_printf(out, " -X %s", route_method_name(r->method));
    put_address(out, r);
    if (r->policy != POLICY_ANYONE && !(r->flags & ROUTE_CONTROL))
        put(out, " \\\n     -H &quot;Authorization: Bearer $TOKEN&quot;");
    if (request && request->example) {
        struct buf body;
        buf_init(&body, 0);
        schema_write(&body, request->example);
        put(out, " \\\n     -H 'Content-Type: application/json' \\\n     -d '");
        put_escaped(out, buf_view(&body));
        put(out, "'");
        buf_done(&body);
    }
    if (r->flags & ROUTE_NDJSON)
        put(out, " \\\n     --data-binary @people.ndjson -H 'Content-Type: application/x-ndjson'");
    put(out, "</pre>");
}

static void put_route(struct buf *out, const struct route *r)
{
    buf_printf(out,
               "<details id=\"%s\"><summary><span class=\"method\">%s</span><span class=\"path\">",
               r->name, route_method_name(r->method));
    put_escaped(out, r->path);
    put(out, "</span><span class=\"what\">");
    put_escaped(out, str_of(r->summary));
    put(out, "</span></summary><div class=\"more\"><dl>");
    buf_printf(out, "<dt>Who may</dt><dd>%s%s</dd>", route_policy_text(r->policy),
               r->flags & ROUTE_CONTROL ? ", through the control socket only" : "");
    put_parameters(out, r);
    put_request(out, r);
    buf_printf(out, "<dt>Answer</dt><dd>%d%s%s%s</dd></dl>", r->success,
               !(r->flags & ROUTE_EITHER) ? ""
               : r->success == 200        ? " or 201"
                                          : " or 200",
               r->response ? " " : "", r->response ? r->response : "");
    put_example(out, r);
    put(out, "</div></details>\n");
}

static size_t put_section(struct buf *out, struct str section)
{
    size_t shown = 0;
    for (const struct route *r = routes; r < routes + route_count; r++) {
        if (!str_eq(section, str_of(r->section)))
            continue;
        put_route(out, r);
        shown++;
    }
    return shown;
}

/* What the types of problems lead to. */
static void put_problems(struct buf *out)
{
    for (int e = 1; e < ERR_COUNT; e++) {
        char code[ERR_CODE_MAX];
        err_code((enum err)e, code);
        buf_printf(out, "<dt id=\"problem-%s\">%s</dt><dd>%d: %s</dd>\n", code, code,
                   err_http_status((enum err)e), err_title((enum err)e));
    }
    put(out, "<dt id=\"problem-" HTTP_PROBLEM_CODE "\">" HTTP_PROBLEM_CODE "</dt>"
             "<dd>what HTTP itself refuses, by the status</dd>\n");
}

void docs_render(struct buf *out)
{
    const char *at = docs_page, *mark;
    size_t shown = 0;
    while ((mark = strstr(at, "<!--"))) {
        buf_append(out, at, (size_t)(mark - at));
        at = strstr(mark, "-->");
        CHECK(at);
        struct str rest = {mark + 4, (size_t)(at - mark - 4)}, word;
        CHECK(str_split(&rest, ' ', &word));
        if (str_eq(word, STR("version")))
            put(out, FANTAIL_VERSION);
        else if (str_eq(word, STR("problems")))
            put_problems(out);
        else
            shown += put_section(out, rest);
        at += 3;
    }
    put(out, at);
    CHECK(shown == route_count); /* every section of the table is on the page */
}

enum err docs_show(struct call *c, struct tx *tx)
{
    (void)tx;
    c->x->content_type = STR("text/html; charset=utf-8");
    buf_str(&c->x->head,
            STR("Content-Security-Policy: default-src 'none'; style-src 'unsafe-inline'\r\n"));
    buf_str(&c->x->out, buf_view(&c->api->dispatcher->docs));
    return OK;
}
