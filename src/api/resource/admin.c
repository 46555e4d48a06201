/* What operators ask, and the command line through the control socket. Everything here works in
 * bounded slices: a check or an import of a large store is many calls, so that none holds a thread,
 * a snapshot or the writer for long. */
#include <stdio.h>
#include <sys/stat.h>

#include "api/edge/auth.h"
#include "api/edge/cluster.h"
#include "api/edge/handlers.h"
#include "api/render/render.h"
#include "api/resource/status.h"
#include "base/id.h"
#include "model/feed.h"
#include "model/import.h"
#include "model/post.h"
#include "model/truth.h"
#include "pipe/lane_overrides.h"

enum {
    KEYS_LISTED_MAX = 1000,
    KEY_DAYS_MAX = 3650,
    KEY_RATE_MAX = 1000000,
    DAY_MS = 24 * 60 * 60 * 1000,
    CHECK_LIMIT_DEFAULT = 100,
    CHECK_LIMIT_MAX = 1000,
    CHECK_DEPTH_DEFAULT = 200,
    CHECK_DEPTH_MAX = 100000,
    LANE_CONCURRENCY_MAX = 1000,
    LANE_RATE_MAX = 1000000,
    BACKUP_PATH_MAX = 4000,
};

/* ---- keys ---- */

struct new_key {
    struct str name;
    struct api_key_grant grant;
    uint8_t hash[TOKEN_HASH_BYTES];
};

static enum err create_key(struct tx *tx, void *arg)
{
    struct new_key *k = arg;
    return api_key_create(tx, k->name, k->hash, &k->grant);
}

enum err admin_keys_create(struct call *c, struct tx *tx)
{
    (void)tx;
    struct new_key key = {.name = {NULL, 0}};
    struct str scopes = {NULL, 0}, token;
    TRY(call_body_text(c, "name", true, &key.name));
    TRY(call_body_text(c, "scopes", true, &scopes));
    if (!scopes_parse(scopes, &key.grant.scopes))
        return call_fail(c, ERR_INVALID, "scopes must list one or more of: act, admin, admin:read");
    int64_t days = 0;
    TRY(call_body_number(c, "days", 1, KEY_DAYS_MAX, &days));
    TRY(call_body_number(c, "rate", 1, KEY_RATE_MAX, &key.grant.rate));
    if (days)
        key.grant.expires_at_ms = clock_wall_ms(c->api->clock) + days * DAY_MS;
    token_make("ftk_", &c->x->arena, &token, key.hash);
    TRY(db_write(c->api->db, create_key, &key, c->detail));
    struct buf text;
    buf_init(&text, 0);
    scopes_write(key.grant.scopes, &text);
    json_object_begin(&c->json);
    json_put(&c->json, "id", id, key.grant.id);
    json_put(&c->json, "name", str, key.name);
    json_put(&c->json, "scopes", str, buf_view(&text));
    json_put(&c->json, "key", str, token);
    json_object_end(&c->json);
    buf_done(&text);
    return OK;
}

enum err admin_keys_list(struct call *c, struct tx *tx)
{
    size_t n;
    struct api_key *found = ARENA_ARRAY(&c->x->arena, struct api_key, KEYS_LISTED_MAX);
    TRY(api_key_list(tx, &c->x->arena, found, KEYS_LISTED_MAX, &n));
    call_list_begin(c);
    for (size_t i = 0; i < n; i++)
        render_api_key(&c->json, &found[i]);
    call_list_end(c, 0);
    return OK;
}

enum err admin_keys_revoke(struct call *c, struct tx *tx)
{
    return api_key_revoke(tx, c->params[0]);
}

/* ---- accounts and posts ---- */

enum err admin_suspend(struct call *c, struct tx *tx)
{
    return account_suspend(tx, c->params[0], true);
}

enum err admin_restore(struct call *c, struct tx *tx)
{
    return account_suspend(tx, c->params[0], false);
}

enum err admin_post_delete(struct call *c, struct tx *tx)
{
    return post_delete(tx, c->params[0], 0, clock_wall_ms(c->api->clock));
}

/* ---- truth ---- */

/* Only the leader knows whether everything is delivered; without a leader the answer is no. */
static bool is_drained(struct call *c)
{
    if (!c->api->cluster || atomic_load(&c->api->cluster->leads))
        return engine_drained(c->api->engine);
    json_t *answer = status_ask_engine(c);
    bool drained = json_is_true(json_object_get(json_object_get(answer, "engine"), "drained"));
    json_decref(answer);
    return drained;
}

static void write_difference(void *arg, const struct check_difference *d)
{
    render_difference(arg, d);
}

enum err admin_check(struct call *c, struct tx *tx)
{
    (void)tx;
    struct api *api = c->api;
    uint64_t from = 0;
    int64_t limit = CHECK_LIMIT_DEFAULT, depth = CHECK_DEPTH_DEFAULT;
    bool repair = false;
    TRY(call_body_id(c, "from", &from));
    TRY(call_body_number(c, "limit", 1, CHECK_LIMIT_MAX, &limit));
    TRY(call_body_number(c, "depth", 1, CHECK_DEPTH_MAX, &depth));
    TRY(call_body_flag(c, "repair", &repair));
    struct check_result r = {0};
    struct json_out *j = &c->json;
    bool drained = is_drained(c);
    json_object_begin(j);
    json_key(j, STR("differences"));
    json_array_begin(j);
    TRY(truth_check(api->db, api->views, api->cards, from, (size_t)limit, (size_t)depth, repair,
                    (struct check_report){write_difference, j}, &r));
    json_array_end(j);
    render_check_counts(j, &r);
    json_put(j, "drained", bool, drained);
    json_put_if(r.next_account, j, "next", id, r.next_account);
    json_object_end(j);
    return OK;
}

/* A number that is no account's id may still be a username. */
enum err account_look_up(struct tx *tx, struct str name, struct arena *arena, struct account *out)
{
    uint64_t id;
    if (id_parse(name, &id) && account_get(tx, id, arena, out) == OK)
        return OK;
    if (name.len > 0 && name.ptr[0] == '@')
        name = (struct str){name.ptr + 1, name.len - 1};
    return account_by_username(tx, name, arena, out);
}

/* ---- the store ---- */

enum err admin_backup(struct call *c, struct tx *tx)
{
    (void)tx;
    struct str path = {NULL, 0};
    struct stat there;
    TRY(call_body_text(c, "path", true, &path));
    if (c->api->cluster)
        return call_fail(c, ERR_INVALID,
                         "back up a shared store with PostgreSQL's own tools, such as pg_dump");
    if (path.len < 2 || path.ptr[0] != '/' || path.len > BACKUP_PATH_MAX)
        return call_fail(c, ERR_INVALID, "path must be absolute, and at most %d bytes long",
                         BACKUP_PATH_MAX);
    path = arena_str(&c->x->arena, path);
    if (lstat(path.ptr, &there) == 0)
        return call_fail(c, ERR_CONFLICT, "path exists already: name a new file");
    int64_t began_us = clock_mono_us(c->api->clock);
    enum err e = db_backup(c->api->db, path.ptr, NULL, NULL);
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
    struct arena *arena;
    struct import_result result;
};

static enum err run_import(struct tx *tx, void *arg)
{
    struct import *m = arg;
    return import_chunk(tx, m->ndjson, m->first_line, &m->policy, m->arena, &m->result);
}

/* Lines of one transaction. Where there is one writer other people's writes wait for it. In a
 * shared store fan-out waits for it, and accounts and follows go together: the more of them, the
 * less each costs. Any other line is several round trips. */
enum { IMPORT_LINES_MAX = 4000, IMPORT_LINES_EMBEDDED = 1000, SINGLE_LINE_WEIGHT = 4 };

static size_t line_weight(struct str line)
{
    return memmem(line.ptr, line.len, "\"follow\"", 8) ||
                   memmem(line.ptr, line.len, "\"username\"", 10)
               ? 1
               : SINGLE_LINE_WEIGHT;
}

/* The first lines of the text, of at most so much weight; *lines: how many. */
static struct str take_lines(struct str *text, size_t max, uint64_t *lines)
{
    struct str taken = *text, line;
    size_t weight = 0;
    taken.len = 0;
    for (*lines = 0; weight < max && str_split(text, '\n', &line); (*lines)++) {
        taken.len = (size_t)(line.ptr + line.len - taken.ptr);
        weight += line_weight(line);
    }
    return taken;
}

static void add_result(struct import_result *total, const struct import_result *more)
{
    total->accounts += more->accounts;
    total->follows += more->follows;
    total->posts += more->posts;
    total->likes += more->likes;
    total->comments += more->comments;
    total->repeated += more->repeated;
    total->rejected += more->rejected;
    for (size_t i = 0; i < more->error_count && total->error_count < IMPORT_ERRORS_MAX; i++)
        total->errors[total->error_count++] = more->errors[i];
}

/* In several transactions. An error leaves those before it in the store. */
static enum err import_lines(struct call *c, struct import *m)
{
    struct import_result total = {0};
    struct str rest = m->ndjson;
    size_t max = c->api->db->shared ? IMPORT_LINES_MAX : IMPORT_LINES_EMBEDDED;
    uint64_t lines;
    while (m->ndjson = take_lines(&rest, max, &lines), lines > 0) {
        TRY(db_write(c->api->db, run_import, m, c->detail));
        add_result(&total, &m->result);
        m->first_line += lines;
    }
    m->result = total;
    return OK;
}

static size_t count_lines(struct str text)
{
    size_t lines = 0;
    struct str line;
    while (str_split(&text, '\n', &line))
        lines += line.len > 0;
    return lines;
}

enum err admin_import(struct call *c, struct tx *tx)
{
    (void)tx;
    struct import m = {
        .ndjson = c->x->body,
        .first_line = 1,
        .arena = &c->x->arena,
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
        return call_fail(c, ERR_TOO_LARGE, "the body has more than %d lines: send smaller chunks",
                         IMPORT_LINES_MAX);
    TRY(import_hash_passwords(c->x->body, &c->x->arena, &m.ndjson));
    TRY(import_lines(c, &m));
    render_import(&c->json, &m.result);
    return OK;
}

/* ---- views and lanes ---- */

enum err admin_save(struct call *c, struct tx *tx)
{
    (void)tx;
    /* A save reports a loss only once, and the engine must get that report. */
    if (c->api->views->remote)
        return call_fail(c, ERR_INVALID,
                         "shared views need no save by hand: the leader saves its position as it "
                         "settles events");
    uint64_t position = engine_settled_through(c->api->engine);
    TRY(views_save(c->api->views, position));
    struct view_stats s;
    views_stats(c->api->views, &s);
    json_object_begin(&c->json);
    json_put(&c->json, "position", id, position);
    json_put(&c->json, "bytes", i64, s.save_bytes);
    json_put(&c->json, "took_ms", i64, s.save_took_ms);
    json_object_end(&c->json);
    return OK;
}

static enum err keep_lane(struct tx *tx, void *arg)
{
    return lane_override_keep(tx, arg);
}

static enum err forget_lane(struct tx *tx, void *arg)
{
    return lane_override_forget(tx, *(const enum lane *)arg);
}

/* `keep`: as the lane is now, also after the next start; false: no more. */
static enum err keep_or_forget(struct call *c, enum lane lane, const struct lane_stats *now)
{
    bool keep = false;
    struct lane_override o = {.lane = lane,
                              .concurrency = now->concurrency,
                              .rate = now->rate,
                              .stopped = now->breaker.state == BREAKER_BY_HAND};
    if (!c->body || !json_object_get(c->body, "keep"))
        return OK;
    TRY(call_body_flag(c, "keep", &keep));
    return keep ? db_write(c->api->db, keep_lane, &o, c->detail)
                : db_write(c->api->db, forget_lane, &lane, c->detail);
}

enum err admin_lane(struct call *c, struct tx *tx)
{
    (void)tx;
    struct str name = {NULL, 0};
    TRY(call_body_text(c, "lane", true, &name));
    enum lane lane;
    if (!lane_parse(name, &lane))
        return call_fail(c, ERR_INVALID, "there is no such lane; GET /v1/admin/status lists them");
    struct engine_stats s;
    engine_stats(c->api->engine, &s);
    int64_t concurrency = s.lanes[lane].concurrency, rate = s.lanes[lane].rate;
    bool stopped = s.lanes[lane].breaker.state != BREAKER_CLOSED, was_stopped = stopped;
    bool asked = c->body && json_is_boolean(json_object_get(c->body, "stopped"));
    TRY(call_body_number(c, "concurrency", 1, LANE_CONCURRENCY_MAX, &concurrency));
    TRY(call_body_number(c, "rate", 0, LANE_RATE_MAX, &rate));
    TRY(call_body_flag(c, "stopped", &stopped));
    if (c->body && (json_object_get(c->body, "concurrency") || json_object_get(c->body, "rate")))
        engine_set_lane(c->api->engine, lane, (uint32_t)concurrency, (uint32_t)rate);
    if (asked && (stopped || was_stopped))
        engine_stop_lane(c->api->engine, lane, stopped);
    engine_stats(c->api->engine, &s);
    TRY(keep_or_forget(c, lane, &s.lanes[lane]));
    status_write_lane(&c->json, &s.lanes[lane]);
    return OK;
}
