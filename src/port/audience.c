/* Audiences that need nothing but the event and the views. */
#include "base/check.h"
#include "port/rule.h"
#include "port/views.h"

static void read_graph(struct sink_env *env, const struct event *const *events,
                       struct audience_page *pages, size_t n)
{
    for (size_t i = 0; i < n; i++)
        pages[i].author = events[i]->actor;
    graph_audiences(env->views->graph, pages, n);
}

static enum err graph_extent_of(struct sink_env *env, const struct event *event, uint64_t after,
                                uint64_t *passed, uint64_t *all)
{
    return graph_extent(env->views->graph, event->actor, after, passed, all);
}

static void give_one(struct audience_page *page, uint64_t account)
{
    page->n = account != 0;
    if (account)
        page->members[0] = account;
    page->cursor.end = true;
    page->error = OK;
}

static void give_actor(struct sink_env *env, const struct event *const *events,
                       struct audience_page *pages, size_t n)
{
    (void)env;
    for (size_t i = 0; i < n; i++)
        give_one(&pages[i], events[i]->actor);
}

static void give_subject(struct sink_env *env, const struct event *const *events,
                         struct audience_page *pages, size_t n)
{
    (void)env;
    for (size_t i = 0; i < n; i++)
        give_one(&pages[i], events[i]->subject);
}

/* The text behind {"to":[, where the list begins; empty: there is none. */
static struct str list_of(struct str data)
{
    static const char name[] = "\"to\":[";
    const char *at = data.len > 0 ? memmem(data.ptr, data.len, name, sizeof name - 1) : NULL;
    if (!at)
        return (struct str){0};
    at += sizeof name - 1;
    return (struct str){at, data.len - (size_t)(at - data.ptr)};
}

/* The next number of the list; false: it ends here. */
static bool take_listed(struct str *list, uint64_t *account)
{
    size_t n = 0;
    while (list->len > 0 && (list->ptr[0] == ',' || list->ptr[0] == '"')) {
        list->ptr++;
        list->len--;
    }
    while (n < list->len && list->ptr[n] >= '0' && list->ptr[n] <= '9')
        n++;
    struct str digits = {list->ptr, n};
    list->ptr += n;
    list->len -= n;
    return n > 0 && str_parse_u64(digits, account);
}

/* `after` counts the members already given. */
static void give_listed(struct sink_env *env, const struct event *const *events,
                        struct audience_page *pages, size_t n)
{
    (void)env;
    for (size_t i = 0; i < n; i++) {
        struct audience_page *page = &pages[i];
        struct str list = list_of(events[i]->data);
        uint64_t account, at = 0;
        page->n = 0;
        page->error = OK;
        while (page->n < page->max && take_listed(&list, &account))
            if (at++ >= page->cursor.after)
                page->members[page->n++] = account;
        page->cursor.after = at > page->cursor.after ? at : page->cursor.after;
        page->cursor.end = !take_listed(&list, &account);
    }
}

uint64_t audience_only(const struct audience *audience, const struct event *e)
{
    uint64_t account = 0;
    struct audience_page page = {.members = &account, .max = 1};
    CHECK(audience->single);
    audience->pages(NULL, &e, &page, 1);
    return account;
}

const struct audience audience_followers = {.name = "followers",
                                            .pages = read_graph,
                                            .extent = graph_extent_of,
                                            .handles = true,
                                            .parts = true};
const struct audience audience_members = {.name = "members",
                                          .pages = read_graph,
                                          .extent = graph_extent_of,
                                          .handles = true,
                                          .parts = true};
const struct audience audience_actor = {.name = "actor", .pages = give_actor, .single = true};
const struct audience audience_subject = {.name = "subject", .pages = give_subject, .single = true};
const struct audience audience_listed = {.name = "listed", .pages = give_listed};
