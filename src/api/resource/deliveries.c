/* The delivery store for operators: deliveries that did not simply succeed, to group, retry,
 * discard or release.
 *
 * Changes go by filter and in slices: each slice is one transaction, a request does a number of
 * them and answers where to continue. A client that calls again with `next` until it is null has
 * changed everything that matched; one that stops before has changed a part, each row of it wholly.
 * `next` also carries how many were changed and when the first call came, so that the spacing of a
 * re-drive at a rate goes on from request to request. */
#include <stdio.h>

#include "api/edge/handlers.h"
#include "api/render/render.h"
#include "base/check.h"
#include "base/fault.h"
#include "base/id.h"

enum {
    DELIVERIES_LIMIT_MAX = 200,
    GROUPS_MAX = 200,
    SLICE_ROWS = 1000,
    REQUEST_ROWS = 20000,
    REDRIVE_RATE_DEFAULT = 500,
    REDRIVE_RATE_MAX = 1000000,
    WHY_MAX = DELIVERY_DETAIL_MAX - 1,
};

/* ---- showing ---- */

struct listing {
    struct json_out *j;
    size_t limit, shown;
    uint64_t last;
    bool more;
};

static void visit_row(void *ctx, const struct delivery_row *row)
{
    struct listing *l = ctx;
    if (l->shown == l->limit) {
        l->more = true;
        return;
    }
    render_delivery(l->j, row);
    l->last = row->delivery;
    l->shown++;
}

static enum err parse_state(struct call *c, enum err kind, struct str text,
                            struct delivery_filter *f)
{
    if (!text.ptr || delivery_state_parse(text, &f->state))
        return OK;
    return call_fail(c, kind,
                     "state must be delayed, retrying, waiting, dead, done, discarded, dropped, "
                     "parked or released");
}

/* What narrows a selection, besides the state. */
static const struct {
    const char *name;
    size_t offset;
    bool is_id, in_query;
} filters[] = {
    {"reason", offsetof(struct delivery_filter, reason), false, true},
    {"consumer", offsetof(struct delivery_filter, consumer), false, true},
    {"type", offsetof(struct delivery_filter, type), false, true},
    {"delivery", offsetof(struct delivery_filter, delivery), true, false},
    {"event", offsetof(struct delivery_filter, event), true, true},
    {"key", offsetof(struct delivery_filter, key), true, true},
};

static enum err read_query(struct call *c, struct delivery_filter *f)
{
    struct str state;
    enum err e = call_query_text(c, "state", &state);
    if (!e)
        e = parse_state(c, ERR_BAD_INPUT, state, f);
    for (size_t i = 0; i < COUNT_OF(filters) && !e; i++) {
        void *out = (char *)f + filters[i].offset;
        if (filters[i].in_query)
            e = filters[i].is_id ? call_query_id(c, filters[i].name, out)
                                 : call_query_text(c, filters[i].name, out);
    }
    return e;
}

enum err deliveries_list(struct call *c, struct tx *tx)
{
    struct delivery_filter filter = {0};
    struct listing l = {.j = &c->json};
    uint64_t below, go_on_below = 0;
    TRY(read_query(c, &filter));
    TRY(call_page(c, DELIVERIES_LIMIT_MAX, &l.limit, &below));
    call_list_begin(c);
    TRY(delivery_store_list(tx, &filter, below, l.limit + 1, visit_row, &l, &go_on_below));
    /* a page may have few rows, or none, and not be the last: a rare one is far down */
    call_list_end(c, l.more ? l.last : go_on_below);
    return OK;
}

enum err deliveries_groups(struct call *c, struct tx *tx)
{
    struct delivery_group *groups = ARENA_ARRAY(&c->x->arena, struct delivery_group, GROUPS_MAX);
    size_t n = 0;
    TRY(delivery_store_group(tx, groups, GROUPS_MAX, &n));
    struct json_out *j = &c->json;
    call_list_begin(c);
    for (size_t i = 0; i < n; i++) {
        const struct delivery_group *g = &groups[i];
        json_object_begin(j);
        json_put(j, "state", str, str_of(delivery_state_name(g->state)));
        json_put(j, "reason", str, str_of(g->reason));
        render_put_text(j, "consumer", g->consumer[0] ? g->consumer : NULL);
        json_put(j, "type", str, str_of(g->type));
        json_put(j, "count", u64, g->count);
        json_put(j, "oldest_event", id, g->oldest_event);
        json_put(j, "newest_event", id, g->newest_event);
        json_put(j, "oldest_at", time, id_time_ms(g->oldest_event));
        json_put(j, "newest_at", time, id_time_ms(g->newest_event));
        json_object_end(j);
    }
    call_list_end(c, 0);
    return OK;
}

/* ---- changing ---- */

/* `next` comes back from a client: sums of it must stay far from overflow. */
#define NEXT_CHANGED_MAX (UINT64_C(1) << 40)
#define NEXT_START_MAX   (INT64_C(1) << 50)

enum change { REDRIVE, DISCARD, RELEASE };

struct change_run {
    enum change what;
    struct delivery_filter filter;
    struct delivery_slice slice; /* up to where it is committed */
    struct delivery_slice attempt;
    struct str why;
    int64_t rate, start_ms, now_ms;
    uint64_t changed; /* by this request and those before it */
};

/* "after:changed:start": what the next request needs to go on. */
static enum err read_next(struct call *c, struct change_run *run)
{
    struct str text = {NULL, 0}, after, changed;
    TRY(call_body_text(c, "next", false, &text));
    if (!text.ptr)
        return OK;
    if (str_split(&text, ':', &after) && str_parse_u64(after, &run->slice.after) &&
        run->slice.after <= INT64_MAX && str_split(&text, ':', &changed) &&
        str_parse_u64(changed, &run->changed) && run->changed <= NEXT_CHANGED_MAX &&
        str_parse_i64(text, &run->start_ms) && run->start_ms >= 0 &&
        run->start_ms <= NEXT_START_MAX)
        return OK;
    return call_fail(c, ERR_INVALID,
                     "next is malformed: send the next of the last answer unchanged");
}

/* A misspelt field must not be taken for a wider selection. */
static enum err check_fields(struct call *c)
{
    static const char *const others[] = {"state", "all", "next", "rate", "why"};
    const char *name;
    json_t *value;
    json_object_foreach(c->body, name, value)
    {
        bool known = false;
        for (size_t i = 0; i < COUNT_OF(others); i++)
            known |= strcmp(name, others[i]) == 0;
        for (size_t i = 0; i < COUNT_OF(filters); i++)
            known |= strcmp(name, filters[i].name) == 0;
        if (!known)
            return call_fail(c, ERR_INVALID,
                             "unknown field \"%.40s\"; known: state, reason, consumer, type, "
                             "delivery, event, key, all, next, rate, why",
                             name);
    }
    return OK;
}

/* Nor must one whose value got lost on the way. */
static enum err check_not_empty(struct call *c, const char *name)
{
    const json_t *value = json_object_get(c->body, name);
    const char *text = json_is_string(value) ? json_string_value(value) : "some";
    if (text[0] && strcmp(text, "0") != 0)
        return OK;
    return call_fail(c, ERR_INVALID, "%s must not be empty: leave it out to match any", name);
}

static enum err read_filter(struct call *c, struct delivery_filter *f)
{
    struct str state = {NULL, 0};
    bool all = false;
    enum err e = check_fields(c);
    if (!e)
        e = call_body_text(c, "state", false, &state);
    if (!e)
        e = parse_state(c, ERR_INVALID, state, f);
    for (size_t i = 0; i < COUNT_OF(filters) && !e; i++) {
        void *out = (char *)f + filters[i].offset;
        e = filters[i].is_id ? call_body_id(c, filters[i].name, out)
                             : call_body_text(c, filters[i].name, false, out);
    }
    if (!e)
        e = call_body_flag(c, "all", &all);
    if (!e)
        e = check_not_empty(c, "state");
    for (size_t i = 0; i < COUNT_OF(filters) && !e; i++)
        e = check_not_empty(c, filters[i].name);
    if (e)
        return e;
    bool any = f->delivery || f->event || f->key || f->reason.len || f->consumer.len || f->type.len;
    if (!any && !all)
        return call_fail(
            c, ERR_INVALID,
            "the selection is empty: give delivery, event, key, reason, consumer or type, or "
            "\"all\": true for every delivery");
    if (any && all)
        return call_fail(c, ERR_INVALID, "give a filter or \"all\": true, not both");
    return OK;
}

static enum err check_state(struct call *c, enum change what, enum delivery_state state)
{
    if (state == 0)
        return OK;
    if (what == REDRIVE && state != DELIVERY_DEAD)
        return call_fail(c, ERR_INVALID, "state must be dead: only dead letters can be re-driven");
    if (what == RELEASE && state != DELIVERY_PARKED)
        return call_fail(c, ERR_INVALID,
                         "state must be parked: only parked events can be released");
    if (what == DISCARD && state != DELIVERY_DEAD && state != DELIVERY_DELAYED &&
        state != DELIVERY_WAITING && state != DELIVERY_PARKED)
        return call_fail(
            c, ERR_INVALID,
            "state must be dead, delayed, waiting or parked: no other delivery can be discarded");
    return OK;
}

/* It may be run again, and begins each time where the last slice ended. */
static enum err change_slice(struct tx *tx, void *arg)
{
    struct change_run *run = arg;
    struct delivery_slice *s = &run->attempt;
    *s = (struct delivery_slice){.after = run->slice.after, .max = SLICE_ROWS};
    switch (run->what) {
    case REDRIVE:
        return delivery_store_redrive(tx, &run->filter, s, run->start_ms, run->rate, run->changed,
                                      run->now_ms);
    case DISCARD:
        return delivery_store_discard(tx, &run->filter, s, run->why, run->now_ms);
    case RELEASE:
        break;
    }
    return delivery_store_release(tx, &run->filter, s, run->now_ms);
}

static enum err commit_slice(struct call *c, struct change_run *run)
{
    enum err e = db_write(c->api->db, change_slice, run, c->detail);
    if (!e) {
        run->slice = run->attempt;
        run->changed += run->slice.changed;
    }
    return e;
}

static enum err change(struct call *c, struct change_run *run)
{
    int64_t now_ms = clock_wall_ms(c->api->clock);
    run->now_ms = run->start_ms = now_ms;
    enum err e = read_filter(c, &run->filter);
    if (!e)
        e = check_state(c, run->what, run->filter.state);
    if (!e)
        e = read_next(c, run);
    if (e)
        return e;
    uint64_t before = run->changed;
    size_t looked_at = 0;
    while (!e && !run->slice.end && looked_at < REQUEST_ROWS) {
        e = commit_slice(c, run);
        looked_at += SLICE_ROWS;
        if (!run->slice.end)
            FAULT(redrive_between_slices);
    }
    if (run->changed > before)
        engine_deliveries_changed(c->api->engine);
    if (e)
        return e;
    struct json_out *j = &c->json;
    json_object_begin(j);
    json_put(j, "changed", u64, run->changed - before);
    json_key(j, STR("next"));
    if (run->slice.end) {
        json_nil(j);
    } else {
        char next[80];
        snprintf(next, sizeof next, "%llu:%llu:%lld", (unsigned long long)run->slice.after,
                 (unsigned long long)run->changed, (long long)run->start_ms);
        json_str(j, str_of(next));
    }
    json_object_end(j);
    return OK;
}

enum err deliveries_redrive(struct call *c, struct tx *tx)
{
    (void)tx;
    struct change_run run = {.what = REDRIVE, .rate = REDRIVE_RATE_DEFAULT};
    TRY(call_body_number(c, "rate", 0, REDRIVE_RATE_MAX, &run.rate));
    return change(c, &run);
}

enum err deliveries_discard(struct call *c, struct tx *tx)
{
    (void)tx;
    struct change_run run = {.what = DISCARD};
    TRY(call_body_text(c, "why", false, &run.why));
    run.why = str_trim(run.why);
    if (run.why.len == 0 || run.why.len > WHY_MAX)
        return call_fail(c, ERR_INVALID,
                         "why is missing: say in at most %d bytes why these are given up; it is "
                         "recorded with each",
                         WHY_MAX);
    return change(c, &run);
}

enum err deliveries_release(struct call *c, struct tx *tx)
{
    (void)tx;
    struct change_run run = {.what = RELEASE};
    return change(c, &run);
}
