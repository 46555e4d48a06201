/* What operators ask, and the command line through the control socket. Everything here works in
 * bounded slices: a check or an import of a large store is many calls, so that none holds a thread,
 * a snapshot or the writer for long. */
#include <stdio.h>
#include <sys/stat.h>

#include "api/auth.h"
#include "api/edge.h"
#include "api/handlers.h"
#include "api/page_cache.h"
#include "base/id.h"
#include "model/feed.h"
#include "model/import.h"
#include "model/post.h"
#include "model/truth.h"

enum {
    CHECK_LIMIT_DEFAULT = 100,
    CHECK_LIMIT_MAX = 1000,
    CHECK_DEPTH_DEFAULT = 200,
    CHECK_DEPTH_MAX = 100000,
    LANE_CONCURRENCY_MAX = 1000,
    LANE_RATE_MAX = 1000000,
    BACKUP_PATH_MAX = 4000,
};

/* ---- reading bodies ---- */

/* A whole number; absent: *out stays. */
static enum err body_number(struct call *c, const char *name, int64_t min, int64_t max,
                            int64_t *out)
{
    const json_t *value = c->body ? json_object_get(c->body, name) : NULL;
    if (!value || json_is_null(value))
        return OK;
    if (!json_is_integer(value) || json_integer_value(value) < min ||
        json_integer_value(value) > max)
        return call_fail(c, ERR_INVALID, "%s must be a whole number from %lld to %lld", name,
                         (long long)min, (long long)max);
    *out = json_integer_value(value);
    return OK;
}

static enum err body_flag(struct call *c, const char *name, bool *out)
{
    const json_t *value = c->body ? json_object_get(c->body, name) : NULL;
    if (!value || json_is_null(value))
        return OK;
    if (!json_is_boolean(value))
        return call_fail(c, ERR_INVALID, "%s must be true or false", name);
    *out = json_is_true(value);
    return OK;
}

static enum err body_id(struct call *c, const char *name, uint64_t *out)
{
    struct str text = {NULL, 0};
    enum err e = call_body_text(c, name, false, &text);
    if (!e && text.ptr && !str_eq(text, STR("0")) && !id_parse(text, out))
        e = call_fail(c, ERR_INVALID, "%s must be an id", name);
    return e;
}

/* ---- status ---- */

static void write_lane(struct json_out *j, const struct lane_stats *l)
{
    json_object_begin(j);
    json_put(j, "name", str, str_of(l->name));
    json_put(j, "backlog", u64, l->backlog);
    json_put(j, "in_flight", u64, l->in_flight);
    json_put(j, "delivered", u64, l->delivered);
    json_put(j, "repeated", u64, l->repeated);
    json_put(j, "failed", u64, l->failed);
    json_put(j, "oldest_age_ms", i64, l->oldest_age_ms);
    json_put(j, "concurrency", u64, l->concurrency);
    json_put(j, "rate", u64, l->rate);
    json_object_end(j);
}

static void write_engine(struct json_out *j, struct api *api)
{
    struct engine_stats s;
    engine_stats(api->engine, &s);
    json_key(j, STR("engine"));
    json_object_begin(j);
    json_put(j, "drained", bool, engine_drained(api->engine));
    json_put(j, "done_through", id, s.done_through);
    json_put(j, "events_taken", u64, s.events_taken);
    json_put(j, "events_done", u64, s.events_done);
    json_put(j, "undone", u64, s.undone);
    json_put(j, "oldest_undone_ms", i64, s.oldest_undone_ms);
    json_key(j, STR("lanes"));
    json_array_begin(j);
    for (size_t i = 0; i < LANE_COUNT; i++)
        write_lane(j, &s.lanes[i]);
    json_array_end(j);
    json_object_end(j);
}

static void write_views(struct json_out *j, struct api *api)
{
    struct view_stats s;
    views_stats(api->views, &s);
    json_key(j, STR("views"));
    json_object_begin(j);
    json_put(j, "accounts", u64, s.accounts);
    json_put(j, "follows", u64, s.follows);
    json_put(j, "timelines", u64, s.timelines);
    json_put(j, "entries", u64, s.entries);
    json_put(j, "dropped", u64, s.dropped);
    json_put(j, "pull_lists", u64, s.pull_lists);
    json_put(j, "bytes", u64, s.bytes);
    json_put(j, "saved_position", id, s.saved_position);
    json_key(j, STR("saved_at"));
    if (s.saved_at_ms)
        json_time(j, s.saved_at_ms);
    else
        json_nil(j);
    json_put(j, "save_took_ms", i64, s.save_took_ms);
    json_put(j, "save_bytes", i64, s.save_bytes);
    json_object_end(j);
}

static void write_cards(struct json_out *j, struct api *api)
{
    struct card_stats s;
    cards_stats(api->cards, &s);
    uint64_t asked = s.post_hits + s.post_misses;
    json_key(j, STR("cards"));
    json_object_begin(j);
    json_put(j, "post_hits", u64, s.post_hits);
    json_put(j, "post_misses", u64, s.post_misses);
    json_put(j, "hit_rate", f64, asked ? (double)s.post_hits / (double)asked : 0.0);
    json_put(j, "posts", u64, s.posts);
    json_put(j, "accounts", u64, s.accounts);
    json_put(j, "like_sets", u64, s.like_sets);
    json_put(j, "tombstones", u64, s.tombstones);
    json_put(j, "bytes", u64, s.bytes);
    json_put(j, "bytes_max", u64, s.bytes_max);
    json_object_end(j);
}

static void write_pages(struct json_out *j, struct api *api)
{
    struct page_cache_stats s;
    page_cache_stats(api->pages, &s);
    uint64_t asked = s.hits + s.misses;
    json_key(j, STR("pages"));
    json_object_begin(j);
    json_put(j, "hits", u64, s.hits);
    json_put(j, "misses", u64, s.misses);
    json_put(j, "hit_rate", f64, asked ? (double)s.hits / (double)asked : 0.0);
    json_put(j, "pages", u64, s.pages);
    json_put(j, "bytes", u64, s.bytes);
    json_put(j, "bytes_max", u64, s.bytes_max);
    json_object_end(j);
}

static void write_db(struct json_out *j, struct api *api)
{
    struct db_stats s;
    db_stats(api->db, &s);
    json_key(j, STR("db"));
    json_object_begin(j);
    json_put(j, "commits", u64, s.commits);
    json_put(j, "transactions", u64, s.transactions);
    json_put(j, "failures", u64, s.failures);
    json_put(j, "queue_depth", u64, s.queue_depth);
    json_put(j, "queue_limit", u64, s.queue_limit);
    json_put(j, "wal_bytes", u64, s.wal_bytes);
    json_put(j, "file_bytes", u64, s.file_bytes);
    json_put(j, "full", bool, s.full);
    json_object_end(j);
}

static void write_http(struct json_out *j, struct api *api)
{
    struct http_stats s = {0};
    if (api->http)
        http_server_stats(api->http, &s);
    json_key(j, STR("http"));
    json_object_begin(j);
    json_put(j, "connections", u64, s.connections);
    json_put(j, "accepted", u64, s.accepted);
    json_put(j, "refused", u64, s.refused);
    json_put(j, "requests", u64, s.requests);
    json_put(j, "bad_requests", u64, s.bad_requests);
    json_put(j, "bytes_in", u64, s.bytes_in);
    json_put(j, "bytes_out", u64, s.bytes_out);
    json_put(j, "timeouts", u64, s.timeouts);
    json_put(j, "shed", u64, atomic_load(&api->edge->shed));
    json_put(j, "limited", u64, atomic_load(&api->edge->limited));
    json_put(j, "replayed", u64, atomic_load(&api->edge->replayed));
    json_put(j, "reads_waiting", u64, pool_depth(api->pool));
    json_put(j, "slow_waiting", u64, pool_depth(api->slow));
    json_object_end(j);
}

HANDLER(admin_status)
{
    (void)tx;
    struct api *api = c->api;
    struct json_out *j = &c->json;
    json_object_begin(j);
    json_put(j, "version", str, STR(FANTAIL_VERSION));
    json_put(j, "ready", bool, atomic_load(&api->ready));
    json_put(j, "started_at", time, api->started_at_ms);
    json_put(j, "uptime_ms", i64, clock_wall_ms(api->clock) - api->started_at_ms);
    write_engine(j, api);
    write_views(j, api);
    write_cards(j, api);
    write_pages(j, api);
    write_db(j, api);
    write_http(j, api);
    struct auth_stats auth;
    auth_stats(api->auth, &auth);
    json_key(j, STR("auth"));
    json_object_begin(j);
    json_put(j, "hits", u64, auth.hits);
    json_put(j, "misses", u64, auth.misses);
    json_put(j, "refused", u64, auth.refused);
    json_object_end(j);
    json_key(j, STR("audit"));
    json_object_begin(j);
    json_put(j, "feeds", i64, atomic_load(&api->audited));
    json_put(j, "drift", i64, atomic_load(&api->audit_drift));
    json_object_end(j);
    json_key(j, STR("celebrity"));
    json_object_begin(j);
    json_put(j, "threshold", i64, celebrity_threshold(api->keeper));
    json_put(j, "adaptive", bool, api->settings->celebrity_adaptive);
    json_object_end(j);
    json_object_end(j);
    return OK;
}

/* ---- keys ---- */

struct new_key {
    struct str name;
    unsigned scopes;
    uint8_t hash[TOKEN_HASH_BYTES];
    uint64_t id;
};

static enum err create_key(struct tx *tx, void *arg)
{
    struct new_key *k = arg;
    return api_key_create(tx, k->name, k->scopes, k->hash, &k->id);
}

HANDLER(admin_keys_create)
{
    (void)tx;
    struct new_key key = {.name = {NULL, 0}};
    struct str scopes = {NULL, 0}, token;
    enum err e = call_body_text(c, "name", true, &key.name);
    if (!e)
        e = call_body_text(c, "scopes", true, &scopes);
    if (e)
        return e;
    if (!scopes_parse(scopes, &key.scopes))
        return call_fail(c, ERR_INVALID, "scopes must be of act, admin, admin:read");
    token_make("ftk_", &c->x->arena, &token, key.hash);
    e = db_write(c->api->db, create_key, &key, c->detail);
    if (e)
        return e;
    struct buf text;
    buf_init(&text, 0);
    scopes_write(key.scopes, &text);
    json_object_begin(&c->json);
    json_put(&c->json, "id", id, key.id);
    json_put(&c->json, "name", str, key.name);
    json_put(&c->json, "scopes", str, buf_view(&text));
    json_put(&c->json, "key", str, token);
    json_object_end(&c->json);
    buf_done(&text);
    return OK;
}

HANDLER(admin_keys_list)
{
    call_list_begin(c);
    enum err e = api_key_list(tx, &c->json);
    if (!e)
        call_list_end(c, 0);
    return e;
}

HANDLER(admin_keys_revoke)
{
    return api_key_revoke(tx, c->params[0]);
}

/* ---- accounts and posts ---- */

HANDLER(admin_suspend)
{
    return account_suspend(tx, c->params[0], true);
}

HANDLER(admin_restore)
{
    return account_suspend(tx, c->params[0], false);
}

HANDLER(admin_post_delete)
{
    return post_delete(tx, c->params[0], 0, clock_wall_ms(c->api->clock));
}

/* ---- truth ---- */

HANDLER(admin_check)
{
    (void)tx;
    struct api *api = c->api;
    uint64_t from = 0;
    int64_t limit = CHECK_LIMIT_DEFAULT, depth = CHECK_DEPTH_DEFAULT;
    bool repair = false;
    enum err e = body_id(c, "from", &from);
    if (!e)
        e = body_number(c, "limit", 1, CHECK_LIMIT_MAX, &limit);
    if (!e)
        e = body_number(c, "depth", 1, CHECK_DEPTH_MAX, &depth);
    if (!e)
        e = body_flag(c, "repair", &repair);
    if (e)
        return e;
    struct check_result r = {0};
    struct json_out *j = &c->json;
    bool drained = engine_drained(api->engine);
    json_object_begin(j);
    json_key(j, STR("differences"));
    json_array_begin(j);
    e = truth_check(api->db, api->views, api->cards, from, (size_t)limit, (size_t)depth, repair, j,
                    &r);
    if (e)
        return e;
    json_array_end(j);
    json_put(j, "feeds", u64, r.feeds);
    json_put(j, "feed_errors", u64, r.feed_errors);
    json_put(j, "counters", u64, r.counters);
    json_put(j, "counter_errors", u64, r.counter_errors);
    json_put(j, "edges", u64, r.edges);
    json_put(j, "edge_errors", u64, r.edge_errors);
    json_put(j, "repaired", u64, r.repaired);
    json_put(j, "drained", bool, drained);
    json_key(j, STR("next"));
    if (r.next_account)
        json_id(j, r.next_account);
    else
        json_nil(j);
    json_object_end(j);
    return OK;
}

struct lookup {
    struct str user;
    struct arena *arena;
    struct account account;
};

/* An id, @username or username. A number that is no account's id may still be somebody's name. */
static enum err look_up(struct tx *tx, void *arg)
{
    struct lookup *l = arg;
    struct str name = l->user;
    uint64_t id;
    if (id_parse(name, &id) && account_get(tx, id, l->arena, &l->account) == OK)
        return OK;
    if (name.len > 0 && name.ptr[0] == '@')
        name = (struct str){name.ptr + 1, name.len - 1};
    return account_by_username(tx, name, l->arena, &l->account);
}

HANDLER(admin_explain)
{
    (void)tx;
    struct api *api = c->api;
    struct lookup l = {.arena = &c->x->arena};
    struct str text;
    uint64_t post;
    if (!http_query(c->x, STR("user"), &l.user) || !l.user.ptr)
        return call_fail(c, ERR_BAD_INPUT, "user is missing: an account id or a username");
    if (!http_query(c->x, STR("post"), &text) || !text.ptr || !id_parse(text, &post))
        return call_fail(c, ERR_BAD_INPUT, "post is missing or not an id");
    enum err e = db_read(api->db, look_up, &l, c->detail);
    if (!e)
        e = truth_explain(api->db, api->views, api->cards, l.account.id, post, &c->json);
    return e;
}

/* ---- the store ---- */

HANDLER(admin_backup)
{
    (void)tx;
    struct str path = {NULL, 0};
    struct stat there;
    enum err e = call_body_text(c, "path", true, &path);
    if (e)
        return e;
    if (path.len < 2 || path.ptr[0] != '/' || path.len > BACKUP_PATH_MAX)
        return call_fail(c, ERR_INVALID, "path must be absolute");
    path = arena_str(&c->x->arena, path);
    if (lstat(path.ptr, &there) == 0)
        return call_fail(c, ERR_CONFLICT, "path exists already");
    int64_t began_us = clock_mono_us(c->api->clock);
    e = db_backup(c->api->db, path.ptr, NULL, NULL);
    if (e)
        return call_fail(c, e, "the backup could not be written");
    json_object_begin(&c->json);
    json_put(&c->json, "path", str, path);
    json_put(&c->json, "bytes", i64, stat(path.ptr, &there) == 0 ? (int64_t)there.st_size : 0);
    json_put(&c->json, "took_ms", i64, (clock_mono_us(c->api->clock) - began_us) / 1000);
    json_object_end(&c->json);
    return OK;
}

struct import {
    struct str ndjson;
    uint64_t first_line;
    struct follow_policy policy;
    struct import_result result;
    struct buf errors;
};

static enum err run_import(struct tx *tx, void *arg)
{
    struct import *m = arg;
    struct json_out errors;
    m->result = (struct import_result){0};
    buf_clear(&m->errors);
    json_out_init(&errors, &m->errors);
    json_array_begin(&errors);
    enum err e = import_chunk(tx, m->ndjson, m->first_line, &m->policy, &m->result, &errors);
    if (!e)
        json_array_end(&errors);
    return e;
}

/* A chunk is one transaction, and other people's writes wait for it. */
enum { IMPORT_LINES_MAX = 2000 };

static size_t count_lines(struct str text)
{
    size_t lines = 0;
    struct str line;
    while (str_split(&text, '\n', &line))
        lines += line.len > 0;
    return lines;
}

HANDLER(admin_import)
{
    (void)tx;
    struct import m = {
        .ndjson = c->x->body,
        .first_line = 1,
        .policy = {.celebrity_threshold = celebrity_threshold(c->api->keeper),
                   .max_following = c->api->settings->max_following},
    };
    struct str text;
    if (http_query(c->x, STR("first_line"), &text) &&
        (!text.ptr || !str_parse_u64(text, &m.first_line)))
        return call_fail(c, ERR_BAD_INPUT, "first_line must be a number");
    if (!str_is_utf8(m.ndjson))
        return call_fail(c, ERR_BAD_INPUT, "the body is not valid UTF-8");
    if (count_lines(m.ndjson) > IMPORT_LINES_MAX)
        return call_fail(c, ERR_TOO_LARGE, "at most %d lines a request", IMPORT_LINES_MAX);
    buf_init(&m.errors, 0);
    enum err e = import_hash_passwords(c->x->body, &c->x->arena, &m.ndjson);
    if (!e)
        e = db_write(c->api->db, run_import, &m, c->detail);
    if (!e) {
        struct json_out *j = &c->json;
        json_object_begin(j);
        json_put(j, "accounts", u64, m.result.accounts);
        json_put(j, "follows", u64, m.result.follows);
        json_put(j, "posts", u64, m.result.posts);
        json_put(j, "likes", u64, m.result.likes);
        json_put(j, "comments", u64, m.result.comments);
        json_put(j, "repeated", u64, m.result.repeated);
        json_put(j, "rejected", u64, m.result.rejected);
        json_put(j, "errors", raw, buf_view(&m.errors));
        json_object_end(j);
    }
    buf_done(&m.errors);
    return e;
}

/* ---- views and lanes ---- */

HANDLER(admin_save)
{
    (void)tx;
    uint64_t position = engine_done_through(c->api->engine);
    enum err e = views_save(c->api->views, position);
    if (e)
        return e;
    struct view_stats s;
    views_stats(c->api->views, &s);
    json_object_begin(&c->json);
    json_put(&c->json, "position", id, position);
    json_put(&c->json, "bytes", i64, s.save_bytes);
    json_put(&c->json, "took_ms", i64, s.save_took_ms);
    json_object_end(&c->json);
    return OK;
}

HANDLER(admin_lane)
{
    (void)tx;
    struct str name = {NULL, 0};
    enum err e = call_body_text(c, "lane", true, &name);
    if (e)
        return e;
    size_t lane = 0;
    while (lane < LANE_COUNT && !str_eq(name, str_of(lane_name((enum lane)lane))))
        lane++;
    if (lane == LANE_COUNT)
        return call_fail(c, ERR_INVALID, "there is no such lane");
    struct engine_stats s;
    engine_stats(c->api->engine, &s);
    int64_t concurrency = s.lanes[lane].concurrency, rate = s.lanes[lane].rate;
    e = body_number(c, "concurrency", 1, LANE_CONCURRENCY_MAX, &concurrency);
    if (!e)
        e = body_number(c, "rate", 0, LANE_RATE_MAX, &rate);
    if (e)
        return e;
    engine_set_lane(c->api->engine, (enum lane)lane, (uint32_t)concurrency, (uint32_t)rate);
    engine_stats(c->api->engine, &s);
    write_lane(&c->json, &s.lanes[lane]);
    return OK;
}
