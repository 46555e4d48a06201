/* The page at /docs: the route table as something to read. One file of HTML without scripts or
 * anything fetched from elsewhere; light or dark as the reader's system is. */
#include "api/edge/dispatcher.h"
#include "api/edge/handlers.h"
#include "api/edge/schemas.h"
#include "base/check.h"

/* The order of the page; every section of the table is here. */
static const struct {
    const char *tag, *text;
} sections[] = {
    {"Accounts", "People sign up, show themselves, and can take everything with them."},
    {"Sessions", "Logging in answers an opaque token, which is stored only as a hash."},
    {"Graph", "Following, blocking and muting take effect at the next read. Doing one twice is "
              "doing it once."},
    {"Posts",
     "A post is answered when it is durable. A deleted one is gone from every read at once."},
    {"Comments", "Oldest first."},
    {"Feed", "The newest posts by the people you follow now and by yourself, minus deleted, "
             "blocked and muted, "
             "newest first, to any depth."},
    {"Groups", "Everyone in a group agrees on one history: every entry has the next number, and a "
               "gap between two numbers is a range to ask for. A chat is a group of two."},
    {"Stream",
     "One connection that says what is new, as Server-Sent Events, so that nobody has to "
     "ask every few seconds. Live events hold no content: <code>group</code> names a "
     "group and its newest number, <code>feed</code> a new post, <code>read</code> how far "
     "another device has read. After <code>hello</code>, and after each reconnection, read "
     "what was missed: the numbers of a group have no gaps."},
    {"Events", "For other systems, such as search, analytics or a CRM: every stored event in "
               "order, at least once, "
               "each consumer at its own position."},
    {"Administration",
     "For operators: an API key with the scope <code>admin</code>, or <code>admin:read</code> to "
     "look only, or the control socket in the data folder."},
    {"Server", "What monitors and tools ask."},
};

static const char style[] =
    ":root{color-scheme:light "
    "dark;--ink:#1d2329;--soft:#5b6670;--line:#dfe4e8;--paper:#fff;--tint:#f5f7f8;"
    "--accent:#0b6e5f}"
    "@media(prefers-color-scheme:dark){:root{--ink:#e4e8eb;--soft:#98a4ad;--line:#323a41;--paper:#"
    "14181b;"
    "--tint:#1c2226;--accent:#5fd0bb}}"
    "*{box-sizing:border-box}html{scroll-behavior:smooth}"
    "body{margin:0;color:var(--ink);background:var(--paper);font:16px/1.6 "
    "system-ui,-apple-system,'Segoe UI',"
    "Roboto,'Noto Sans',sans-serif}"
    ".page{display:grid;grid-template-columns:13rem "
    "minmax(0,1fr);gap:3rem;max-width:68rem;margin:0 auto;"
    "padding:2.5rem 1.5rem 6rem}"
    "nav{position:sticky;top:2.5rem;align-self:start;font-size:.95rem}"
    "nav a{display:block;padding:.2rem 0;color:var(--soft);text-decoration:none}"
    "nav a:hover,a{color:var(--accent)}nav "
    "strong{display:block;font-size:1.25rem;margin-bottom:.75rem}"
    "h1{font-size:2rem;line-height:1.2;margin:0 0 .5rem}h2{font-size:1.35rem;margin:3rem 0 .25rem}"
    "p{max-width:44rem;margin:.5rem 0}.lead{color:var(--soft)}"
    "code,pre,.path{font-family:ui-monospace,SFMono-Regular,Menlo,Consolas,'Liberation "
    "Mono',monospace;"
    "font-size:.875rem}"
    "code{background:var(--tint);padding:.1em .3em;border-radius:3px}"
    "pre{background:var(--tint);border:1px solid var(--line);border-radius:6px;padding:.75rem "
    "1rem;margin:.75rem 0 0;"
    "overflow-x:auto;line-height:1.5}"
    "details{border-bottom:1px solid var(--line)}"
    "summary{display:grid;grid-template-columns:4.5rem minmax(0,1fr);gap:0 .5rem;padding:.6rem "
    "0;cursor:pointer;"
    "list-style:none}summary::-webkit-details-marker{display:none}"
    "summary:hover .path{color:var(--accent)}summary:focus-visible{outline:2px solid "
    "var(--accent);outline-offset:2px}"
    ".method{font-weight:650;font-size:.8rem;letter-spacing:.03em;padding-top:.15rem}"
    ".what{grid-column:2;color:var(--soft);font-size:.95rem}.path{overflow-wrap:anywhere}"
    ".more{padding:0 0 1.25rem 5rem}"
    "dl{display:grid;grid-template-columns:max-content minmax(0,1fr);gap:.3rem "
    "1.25rem;margin:0;font-size:.95rem}"
    "dt{color:var(--soft)}dd{margin:0}"
    "@media(max-width:46rem){.page{display:block;padding-top:1.5rem}nav{position:static;columns:2;"
    "margin-bottom:2rem}"
    "nav strong{column-span:all}.more{padding-left:0}}";

static void put(struct buf *out, const char *text)
{
    buf_str(out, str_of(text));
}

static void put_escaped(struct buf *out, struct str text)
{
    for (size_t i = 0; i < text.len; i++) {
        switch (text.ptr[i]) {
        case '<':
            put(out, "&lt;");
            break;
        case '>':
            put(out, "&gt;");
            break;
        case '&':
            put(out, "&amp;");
            break;
        case '"':
            put(out, "&quot;");
            break;
        default:
            buf_append(out, &text.ptr[i], 1);
        }
    }
}

/* A row of the description list; what follows is its value. */
static void put_term(struct buf *out, const char *term)
{
    buf_printf(out, "<dt>%s</dt><dd>", term);
}

static void put_parameters(struct buf *out, const struct route *r)
{
    struct str rest = str_of(r->query), one;
    bool any = rest.len > 0 || (r->flags & ROUTE_PAGED);
    if (!any)
        return;
    put_term(out, "Query");
    while (rest.len > 0 && str_split(&rest, ';', &one)) {
        struct str name;
        CHECK(str_split(&one, '=', &name));
        buf_printf(out, "<code>%.*s</code> ", STR_ARG(name));
        put_escaped(out, one);
        put(out, "<br>");
    }
    if (r->flags & ROUTE_PAGED)
        put(out, "<code>limit</code> items a page<br>"
                 "<code>cursor</code> <code>next_cursor</code> of the page before");
    put(out, "</dd>");
}

static void put_request(struct buf *out, const struct route *r)
{
    if (r->flags & ROUTE_NDJSON) {
        put_term(out, "Body");
        put(out, "NDJSON, one object a line</dd>");
    } else if (r->request) {
        put_term(out, "Body");
        buf_printf(out, "%s%s</dd>", r->request,
                   r->flags & ROUTE_BODY_OPTIONAL ? ", may be left out" : "");
    }
    if (r->flags & ROUTE_KEYED) {
        put_term(out, "Retries");
        put(out, "takes <code>Idempotency-Key</code></dd>");
    }
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
    put_term(out, "Who may");
    buf_printf(out, "%s%s</dd>", route_policy_text(r->policy),
               r->flags & ROUTE_CONTROL ? ", through the control socket only" : "");
    put_parameters(out, r);
    put_request(out, r);
    put_term(out, "Answer");
    buf_printf(out, "%d%s%s%s</dd></dl>", r->success,
               !(r->flags & ROUTE_EITHER) ? ""
               : r->success == 200        ? " or 201"
                                          : " or 200",
               r->response ? " " : "", r->response ? r->response : "");
    put_example(out, r);
    put(out, "</div></details>\n");
}

static void put_conventions(struct buf *out)
{
    put(out, "<h1>Fantail API</h1><p class=\"lead\">Version " FANTAIL_VERSION
             ". The same as a machine-readable document: <a "
             "href=\"/openapi.json\">/openapi.json</a>.</p>"
             "<h2 id=\"conventions\">Conventions</h2>"
             "<p>Bodies are JSON. Ids are decimal strings. Times are RFC 3339 in UTC with "
             "milliseconds.</p>"
             "<p>Send a token as <code>Authorization: Bearer TOKEN</code>: the one that logging in "
             "answers, a JWT of the "
             "host product, or an API key. A key with the scope <code>act</code> acts for the "
             "account that the header "
             "<code>Fantail-Account</code> names, by id or as <code>@username</code>.</p>"
             "<p>Every list is <code>{\"items\":[…],\"next_cursor\":…}</code>, with a "
             "<code>Link</code> header to the next "
             "page. A cursor belongs to its list and its caller, and never skips or repeats.</p>"
             "<p>Writes marked so take <code>Idempotency-Key</code>: the same key and body within "
             "24 hours are done once, and "
             "answered again with <code>Idempotent-Replayed: true</code>.</p>"
             "<p>Errors are <code>application/problem+json</code>. 429 and 503 say in "
             "<code>Retry-After</code> when to try "
             "again; answers to writes tell in <code>RateLimit-*</code> what is left.</p>");
}

void docs_render(struct buf *out)
{
    put(out,
        "<!doctype html><html lang=\"en\"><head><meta charset=\"utf-8\"><title>Fantail API</title>"
        "<meta name=\"viewport\" content=\"width=device-width,initial-scale=1\"><style>");
    put(out, style);
    put(out, "</style></head><body><div class=\"page\"><nav><strong>Fantail</strong>"
             "<a href=\"#conventions\">Conventions</a>");
    for (size_t s = 0; s < COUNT_OF(sections); s++)
        buf_printf(out, "<a href=\"#%s\">%s</a>", sections[s].tag, sections[s].tag);
    put(out, "</nav><main>");
    put_conventions(out);
    size_t shown = 0;
    for (size_t s = 0; s < COUNT_OF(sections); s++) {
        buf_printf(out, "<section><h2 id=\"%s\">%s</h2><p class=\"lead\">%s</p>\n", sections[s].tag,
                   sections[s].tag, sections[s].text);
        for (size_t i = 0; i < route_count; i++) {
            if (strcmp(routes[i].section, sections[s].tag) != 0)
                continue;
            put_route(out, &routes[i]);
            shown++;
        }
        put(out, "</section>");
    }
    CHECK(shown == route_count);
    put(out, "</main></div></body></html>\n");
}

enum err docs_show(struct call *c, struct tx *tx)
{
    (void)tx;
    c->x->content_type = STR("text/html; charset=utf-8");
    buf_str(&c->x->head,
            STR("Content-Security-Policy: default-src 'none'; style-src 'unsafe-inline'\r\n"
                "X-Content-Type-Options: nosniff\r\n"));
    buf_str(&c->x->out, buf_view(&c->api->dispatcher->docs));
    return OK;
}
