/* The fixture of tests with two nodes: see pair.h. Both share the world's engine, which is all that
 * the API asks of it: which node answers is seen in who counted the request. */
#include "test.h"

#include "pair.h"

#include <unistd.h>

#include "base/check.h"
#include "world.h"

enum { PATIENCE_MS = 20000 };

struct pair pair;
struct told told;

static struct world w;
static struct settings settings;
static struct celebrity_keeper keeper;

struct world *pair_world(void)
{
    return &w;
}

static void leader_is(void *ctx, char address[CLUSTER_ADDRESS_MAX], uint32_t *number)
{
    (void)ctx;
    memcpy(address, pair.leader, CLUSTER_ADDRESS_MAX);
    *number = pair.leader_number;
}

static size_t nodes_are(void *ctx, struct cluster_node *out, size_t max)
{
    (void)ctx;
    for (size_t i = 0; i < pair.node_count && i < max; i++)
        out[i] = pair.nodes[i];
    return pair.node_count;
}

static void open_member(struct member *m, uint32_t number)
{
    char why[200] = "";
    m->cluster.roles = ROLE_ALL;
    m->cluster.number = number;
    m->cluster.leader = leader_is;
    m->cluster.nodes = nodes_are;
    m->cluster.db_kind = "postgresql";
    m->cluster.views_kind = "redis";
    m->cluster.bus_kind = "amqp";
    atomic_store(&m->cluster.term, 5);
    m->api.settings = &settings;
    m->api.clock = clock_system();
    m->api.db = w.db;
    m->api.views = w.views;
    m->api.cards = w.cards;
    m->api.engine = w.engine;
    m->api.keeper = &keeper;
    m->api.cluster = &m->cluster;
    m->api.started_at_ms = clock_wall_ms(m->api.clock);
    atomic_store(&m->api.ready, true);
    if (api_open(&m->api, why) != OK)
        fail_msg("%s", why);
    m->api.pool = pool_new(2, 256, "reader");
    api_start_pools(&m->api);
    m->api.forwarding = pool_new(FORWARD_THREADS, FORWARD_WAITING_MAX, "forward");
    snprintf(m->control, sizeof m->control, "%s/control-%u", w.folder, (unsigned)number);
    struct http_config config;
    http_config_default(&config);
    config.loops = 1;
    config.listen_port = 0;
    config.control_path = m->control;
    config.handler = api_handle;
    config.handler_ctx = &m->api;
    if (http_server_start(&config, &m->server, why) != OK)
        fail_msg("%s", why);
    m->api.http = m->server;
    snprintf(m->address, sizeof m->address, "http://127.0.0.1:%u",
             (unsigned)http_server_port(m->server));
}

static void close_member(struct member *m)
{
    http_server_stop(m->server, 1000);
    pool_free(m->api.pool);
    api_stop_pools(&m->api);
    pool_free(m->api.forwarding);
    http_server_free(m->server);
    api_close(&m->api);
    unlink(m->control);
}

static void make_key(const char *scopes, char out[80])
{
    char body[100];
    snprintf(body, sizeof body, "{\"name\":\"k\",\"scopes\":\"%s\"}", scopes);
    assert_int_equal(ask_control(&pair.first, "POST", "/v1/admin/keys", body), 201);
    snprintf(out, 80, "%s", told_text(NULL, "key"));
}

int pair_open(void **state)
{
    (void)state;
    memset(&pair, 0, sizeof pair);
    buf_init(&told.body, 0);
    settings_default(&settings);
    world_open(&w, 1000);
    world_start(&w, 100);
    CHECK(celebrity_keeper_init(&keeper, w.db, clock_system(), false, 1000, 10, 100000, 1000) ==
          OK);
    open_member(&pair.first, 1);
    open_member(&pair.second, 2);
    atomic_store(&pair.first.cluster.leads, true);
    memcpy(pair.leader, pair.first.address, sizeof pair.leader);
    pair.leader_number = 1;
    make_key("admin", pair.admin);
    make_key("admin:read", pair.reader);
    return 0;
}

int pair_close(void **state)
{
    (void)state;
    close_member(&pair.second);
    close_member(&pair.first);
    celebrity_keeper_done(&keeper);
    world_stop(&w);
    world_close(&w);
    settings_done(&settings);
    json_decref(told.json);
    buf_done(&told.body);
    memset(&told, 0, sizeof told);
    return 0;
}

static void keep_header(const struct http_client *c, const char *name, char *out, size_t size)
{
    struct str value = http_client_header(c, name);
    snprintf(out, size, "%.*s", STR_ARG(value));
}

static int call(struct http_client *c, const char *method, const char *target, const char *headers,
                const char *body)
{
    char lines[1200];
    assert_non_null(c);
    snprintf(lines, sizeof lines, "%s%s", headers,
             body ? "Content-Type: application/json\r\n" : "");
    json_decref(told.json);
    told.json = NULL;
    enum err e = http_client_call(c, method, target, lines, str_of(body ? body : ""), &told.status,
                                  &told.body, PATIENCE_MS);
    assert_int_equal(e, OK);
    buf_append(&told.body, "", 1);
    told.json = json_loads(told.body.ptr, 0, NULL);
    keep_header(c, "retry-after", told.retry_after, sizeof told.retry_after);
    keep_header(c, "content-type", told.type, sizeof told.type);
    keep_header(c, "fantail-forwarded", told.forwarded, sizeof told.forwarded);
    http_client_free(c);
    return told.status;
}

int ask_with(struct member *m, const char *method, const char *target, const char *headers,
             const char *body)
{
    return call(http_client_tcp("127.0.0.1", http_server_port(m->server)), method, target, headers,
                body);
}

int ask(struct member *m, const char *method, const char *target, const char *token,
        const char *body)
{
    char headers[200] = "";
    if (token)
        snprintf(headers, sizeof headers, "Authorization: Bearer %s\r\n", token);
    return ask_with(m, method, target, headers, body);
}

int ask_control(struct member *m, const char *method, const char *target, const char *body)
{
    return call(http_client_unix(m->control), method, target, "", body);
}

static const json_t *found(const char *object, const char *key)
{
    const json_t *at = object ? json_object_get(told.json, object) : told.json;
    const json_t *value = json_object_get(at, key);
    if (!value)
        fail_msg("no %s in %.300s", key, told.body.ptr);
    return value;
}

int64_t told_number(const char *object, const char *key)
{
    return json_integer_value(found(object, key));
}

const char *told_text(const char *object, const char *key)
{
    const char *text = json_string_value(found(object, key));
    return text ? text : "";
}
