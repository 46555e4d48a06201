/* What one node of many shows and refuses: the nodes, the leader, what it lacks, and what it does
 * not do. */
#include "test.h"

#include "pair.h"

#include "api/edge/dispatcher.h"
#include "base/check.h"
#include "world.h"

/* ---- nodes ---- */

static struct cluster_node *join(unsigned roles, const char *address)
{
    struct cluster_node *n = &pair.nodes[pair.node_count++];
    *n = (struct cluster_node){.number = (uint32_t)pair.node_count,
                               .roles = roles,
                               .started_ms = 1790000000000,
                               .version = "1"};
    snprintf(n->address, sizeof n->address, "%s", address);
    return n;
}

static void all_silent_for(int64_t ms)
{
    for (size_t i = 0; i < pair.node_count; i++)
        pair.nodes[i].silent_ms = ms;
}

static size_t items_told(void)
{
    return json_array_size(json_object_get(told.json, "items"));
}

static const json_t *node_at(size_t i)
{
    const json_t *node = json_array_get(json_object_get(told.json, "items"), i);
    assert_non_null(node);
    return node;
}

static const char *text_of(const json_t *node, const char *key)
{
    const char *text = json_string_value(json_object_get(node, key));
    return text ? text : "";
}

static void test_shows_who_is_there(void **state)
{
    (void)state;
    join(ROLE_API | ROLE_RELAY, "http://10.0.0.1:8080")->report =
        (struct node_report){.known = true, .views = true, .quarantined = true, .undone = 12};
    join(ROLE_WORKER, "");
    assert_int_equal(ask(&pair.second, "GET", "/v1/admin/nodes", NULL, NULL), 401);
    assert_int_equal(ask(&pair.second, "GET", "/v1/admin/nodes", pair.reader, NULL), 200);
    assert_int_equal(json_array_size(json_object_get(told.json, "items")), 2);
    const json_t *first = node_at(0), *second = node_at(1);
    assert_int_equal(json_integer_value(json_object_get(first, "number")), 1);
    assert_string_equal(text_of(first, "address"), "http://10.0.0.1:8080");
    assert_string_equal(text_of(first, "state"), "up");
    assert_true(json_is_true(json_object_get(first, "leads")));
    assert_true(json_is_false(json_object_get(second, "leads")));
    assert_true(json_is_false(json_object_get(first, "self")));
    assert_true(json_is_true(json_object_get(second, "self")));
    assert_true(json_is_null(json_object_get(second, "address")));
    const json_t *numbers = json_object_get(first, "numbers");
    assert_int_equal(json_integer_value(json_object_get(numbers, "undone")), 12);
    assert_int_equal(json_integer_value(json_object_get(numbers, "views")), 1);
    assert_int_equal(json_integer_value(json_object_get(numbers, "bus")), 0);
    assert_int_equal(json_integer_value(json_object_get(numbers, "quarantined")), 1);
    /* nothing is made up for one that was not understood */
    assert_int_equal(json_object_size(json_object_get(second, "numbers")), 0);
    char *roles = json_dumps(json_object_get(first, "roles"), JSON_COMPACT);
    assert_string_equal(roles, "[\"api\",\"relay\"]");
    free(roles);
    /* they are silent for a while; then no node leads */
    all_silent_for(CLUSTER_GONE_MS + 1);
    pair.leader[0] = '\0';
    assert_int_equal(ask(&pair.second, "GET", "/v1/admin/nodes", pair.reader, NULL), 200);
    assert_string_equal(text_of(node_at(0), "state"), "gone");
    assert_true(json_is_false(json_object_get(node_at(0), "leads")));
}

static void test_alone_there_is_one_and_it_leads(void **state)
{
    (void)state;
    pair.first.api.cluster = NULL;
    assert_int_equal(ask(&pair.first, "GET", "/v1/admin/nodes", pair.reader, NULL), 200);
    assert_int_equal(json_array_size(json_object_get(told.json, "items")), 1);
    assert_true(json_is_true(json_object_get(node_at(0), "leads")));
    assert_string_equal(text_of(node_at(0), "version"), FANTAIL_VERSION);
    assert_int_equal(ask(&pair.first, "GET", "/v1/admin/status", pair.reader, NULL), 200);
    assert_true(json_is_null(json_object_get(told.json, "cluster")));
    assert_true(json_is_object(json_object_get(told.json, "engine")));
    assert_int_equal(ask(&pair.first, "GET", "/readyz", NULL, NULL), 200);
    assert_string_equal(told.body.ptr, "{\"status\":\"ready\"}");
}

/* ---- status ---- */

static void test_status_shows_the_leaders_engine_and_the_nodes_own_rest(void **state)
{
    (void)state;
    assert_int_equal(ask(&pair.second, "GET", "/v1/admin/status", pair.reader, NULL), 200);
    assert_int_equal(told_number("cluster", "node"), 2);
    assert_int_equal(told_number("cluster", "leader"), 1);
    assert_int_equal(told_number("cluster", "term"), 5);
    assert_true(json_is_array(json_object_get(json_object_get(told.json, "engine"), "lanes")));
    assert_true(json_is_object(json_object_get(told.json, "headline")));
    const json_t *parts = json_object_get(json_object_get(told.json, "cluster"), "parts");
    assert_string_equal(text_of(json_object_get(parts, "views"), "kind"), "redis");
    assert_string_equal(text_of(json_object_get(parts, "views"), "state"), "up");
    assert_int_equal(atomic_load(&pair.second.cluster.forwarded), 1);
    /* without a leader everything else is still told */
    pair.leader[0] = '\0';
    atomic_store(&pair.second.cluster.views_state, PART_SUSPECT);
    assert_int_equal(ask(&pair.second, "GET", "/v1/admin/status", pair.reader, NULL), 200);
    assert_true(json_is_null(json_object_get(told.json, "engine")));
    assert_true(json_is_null(json_object_get(told.json, "headline")));
    assert_true(json_is_object(json_object_get(told.json, "http")));
    parts = json_object_get(json_object_get(told.json, "cluster"), "parts");
    assert_string_equal(text_of(json_object_get(parts, "views"), "state"), "suspect");
}

static void test_a_check_asks_the_leader_whether_all_is_delivered(void **state)
{
    (void)state;
    world_drain(pair_world());
    assert_int_equal(ask(&pair.second, "POST", "/v1/admin/check", pair.admin, "{}"), 200);
    assert_true(json_is_true(json_object_get(told.json, "drained")));
    pair.leader[0] = '\0';
    assert_int_equal(ask(&pair.second, "POST", "/v1/admin/check", pair.admin, "{}"), 200);
    assert_true(json_is_false(json_object_get(told.json, "drained")));
}

/* The engine alone gets the result of a save of shared views. */
static void test_shared_views_are_not_saved_by_hand(void **state)
{
    (void)state;
    struct views *views = pair_world()->views;
    assert_int_equal(ask(&pair.first, "POST", "/v1/admin/save", pair.admin, NULL), 200);
    views->remote = true;
    assert_int_equal(ask(&pair.first, "POST", "/v1/admin/save", pair.admin, NULL), 422);
    views->remote = false;
}

/* ---- ready, or not ---- */

static void test_ready_names_what_is_missing(void **state)
{
    (void)state;
    struct cluster *k = &pair.second.cluster;
    assert_int_equal(ask(&pair.second, "GET", "/readyz", NULL, NULL), 200);
    assert_string_equal(told_text("dependencies", "bus"), "up");
    assert_string_equal(told_text("dependencies", "leader"), "known");
    /* none of these keeps requests away */
    pair.leader[0] = '\0';
    atomic_store(&k->bus_state, PART_AWAY);
    atomic_store(&k->views_state, PART_AWAY);
    assert_int_equal(ask(&pair.second, "GET", "/readyz", NULL, NULL), 200);
    assert_string_equal(told_text("dependencies", "bus"), "away");
    assert_string_equal(told_text("dependencies", "views"), "away");
    assert_string_equal(told_text("dependencies", "leader"), "none");
    atomic_store(&k->quarantined, true);
    assert_int_equal(ask(&pair.second, "GET", "/readyz", NULL, NULL), 503);
    assert_string_equal(told_text(NULL, "status"), "quarantined");
    atomic_store(&pair.second.api.ready, false);
    assert_int_equal(ask(&pair.second, "GET", "/readyz", NULL, NULL), 503);
    assert_string_equal(told_text(NULL, "status"), "starting");
    assert_int_equal(ask(&pair.second, "GET", "/healthz", NULL, NULL), 200);
}

static void test_a_node_that_is_quarantined_begins_no_writes(void **state)
{
    (void)state;
    const char *account = "{\"username\":\"ada\",\"password\":\"correct horse battery\"}";
    atomic_store(&pair.second.cluster.quarantined, true);
    assert_int_equal(ask(&pair.second, "POST", "/v1/accounts", NULL, account), 503);
    assert_string_equal(told.retry_after, "1");
    assert_int_equal(ask(&pair.second, "GET", "/v1/accounts?username=ada", NULL, NULL), 200);
    assert_int_equal(items_told(), 0);
    /* what the leader does is not this node's to refuse */
    assert_int_equal(
        ask(&pair.second, "PUT", "/v1/admin/lanes", pair.admin, "{\"lane\":\"cleanup\"}"), 200);
    atomic_store(&pair.second.cluster.quarantined, false);
    assert_int_equal(ask(&pair.second, "POST", "/v1/accounts", NULL, account), 201);
    assert_int_equal(ask(&pair.second, "GET", "/v1/accounts?username=ada", NULL, NULL), 200);
    assert_int_equal(items_told(), 1);
}

static void test_a_node_without_the_role_sends_people_elsewhere(void **state)
{
    (void)state;
    pair.second.cluster.roles = ROLE_WORKER;
    const char *elsewhere[] = {"/v1/feed", "/v1/accounts?username=ada", "/v1/events",
                               "/v1/events/consumers", "/v1/me"};
    for (size_t i = 0; i < COUNT_OF(elsewhere); i++) {
        assert_int_equal(ask(&pair.second, "GET", elsewhere[i], pair.admin, NULL), 421);
        assert_non_null(strstr(told_text(NULL, "detail"), "role api"));
    }
    assert_int_equal(ask(&pair.second, "POST", "/v1/sessions", NULL, "{}"), 421);
    const char *here[] = {"/healthz",         "/readyz",         "/metrics",
                          "/v1/admin/status", "/v1/admin/nodes", "/v1/admin/freshness"};
    for (size_t i = 0; i < COUNT_OF(here); i++)
        assert_int_equal(ask(&pair.second, "GET", here[i], pair.admin, NULL), 200);
    /* and it answers what others pass on to it */
    pair.first.cluster.roles = ROLE_RELAY;
    assert_int_equal(ask(&pair.second, "GET", "/v1/admin/health", pair.admin, NULL), 200);
}

static void test_every_route_is_of_one_kind(void **state)
{
    (void)state;
    size_t at_leader = 0;
    for (size_t i = 0; i < route_count; i++) {
        const struct route *r = &routes[i];
        if (!(r->flags & ROUTE_AT_LEADER))
            continue;
        at_leader++;
        /* a leader without the role api answers them all the same, and only to operators */
        assert_true(route_is_everywhere(r));
        assert_true(r->policy == POLICY_ADMIN || r->policy == POLICY_ADMIN_READ);
        /* a body is passed on as JSON, a key would be looked up twice, a file is of one machine,
         * and a transaction that has begun cannot find that another node leads */
        assert_false(r->flags & (ROUTE_NDJSON | ROUTE_KEYED | ROUTE_CONTROL));
        assert_true(r->mode == MODE_SLOW || r->mode == MODE_READ);
    }
    assert_in_range(at_leader, 10, route_count);
}

/* ---- metrics ---- */

static bool metric(const char *name)
{
    char line[100];
    snprintf(line, sizeof line, "\nfantail_%s", name);
    return strstr(told.body.ptr, line) != NULL;
}

static void test_metrics_leave_out_what_is_not_known(void **state)
{
    (void)state;
    const char *leaders[] = {"events_undone ",         "worst_visible_lag_seconds ",
                             "freshness_age_seconds{", "event_states{",
                             "blocked_keys ",          "deliveries{",
                             "lane_backlog{",          "reports_total "};
    const char *everybodys[] = {
        "http_requests_total ",  "db_commits_total ", "node_leads ",     "term 5",
        "forwarded_total ",      "views_lost_total ", "bus_connected 1", "nodes{state=\"up\"} 0",
        "overload_guard_level ", "card_hits_total ",  "view_entries ",   "audit_drift "};
    engine_sample_step(pair_world()->engine);
    assert_int_equal(ask(&pair.first, "GET", "/metrics", NULL, NULL), 200);
    assert_true(metric("node_leads 1"));
    for (size_t i = 0; i < COUNT_OF(leaders); i++)
        if (!metric(leaders[i]))
            fail_msg("no %s", leaders[i]);
    assert_int_equal(ask(&pair.second, "GET", "/metrics", NULL, NULL), 200);
    assert_true(metric("node_leads 0"));
    for (size_t i = 0; i < COUNT_OF(leaders); i++)
        assert_false(metric(leaders[i]));
    for (size_t i = 0; i < COUNT_OF(everybodys); i++)
        if (!metric(everybodys[i]))
            fail_msg("no %s", everybodys[i]);
    atomic_store(&pair.second.cluster.views_state, PART_AWAY);
    atomic_store(&pair.second.cluster.bus_state, PART_AWAY);
    assert_int_equal(ask(&pair.second, "GET", "/metrics", NULL, NULL), 200);
    assert_false(metric("view_entries "));
    assert_true(metric("bus_connected 0") && metric("views_trusted 0") && metric("db_reachable 1"));
    /* alone there are no nodes to speak of */
    pair.first.api.cluster = NULL;
    assert_int_equal(ask(&pair.first, "GET", "/metrics", NULL, NULL), 200);
    assert_false(metric("node_leads") || metric("nodes{"));
    assert_true(metric("events_undone "));
}

/* ---- events for others ---- */

static uint64_t horizon;

static enum err fake_horizon(struct db *db, uint64_t *id)
{
    (void)db;
    *id = horizon;
    return OK;
}

static void test_events_are_told_as_far_as_none_can_come_between(void **state)
{
    (void)state;
    struct world *w = pair_world();
    const struct db_ops *ops = w->db->ops;
    struct db_ops shared = *ops;
    shared.horizon = fake_horizon;
    uint64_t ada = world_account(w, "ada");
    world_post(w, ada, "one");
    world_post(w, ada, "two");
    assert_int_equal(ask(&pair.second, "GET", "/v1/events", pair.reader, NULL), 200);
    size_t all = items_told();
    assert_true(all >= 3);
    const json_t *items = json_object_get(told.json, "items");
    char id[24];
    snprintf(id, sizeof id, "%s", text_of(json_array_get(items, all - 2), "id"));
    w->db->ops = &shared;
    w->db->shared = true;
    CHECK(str_parse_u64(str_of(id), &horizon));
    assert_int_equal(ask(&pair.second, "GET", "/v1/events", pair.reader, NULL), 200);
    assert_int_equal(items_told(), all - 1);
    assert_string_equal(told_text(NULL, "next_cursor"), id);
    assert_true(json_is_false(json_object_get(told.json, "more")));
    horizon--; /* the one above it again: the cursor stays below what is held back */
    assert_int_equal(ask(&pair.second, "GET", "/v1/events", pair.reader, NULL), 200);
    assert_int_equal(items_told(), all - 2);
    horizon = UINT64_MAX;
    char target[60];
    snprintf(target, sizeof target, "/v1/events?cursor=%s", id);
    assert_int_equal(ask(&pair.second, "GET", target, pair.reader, NULL), 200);
    assert_int_equal(items_told(), 1);
    w->db->ops = ops;
    w->db->shared = false;
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, pair_open, pair_close)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_shows_who_is_there),
        TEST(test_alone_there_is_one_and_it_leads),
        TEST(test_status_shows_the_leaders_engine_and_the_nodes_own_rest),
        TEST(test_a_check_asks_the_leader_whether_all_is_delivered),
        TEST(test_shared_views_are_not_saved_by_hand),
        TEST(test_ready_names_what_is_missing),
        TEST(test_a_node_that_is_quarantined_begins_no_writes),
        TEST(test_a_node_without_the_role_sends_people_elsewhere),
        cmocka_unit_test(test_every_route_is_of_one_kind),
        TEST(test_metrics_leave_out_what_is_not_known),
        TEST(test_events_are_told_as_far_as_none_can_come_between),
    };
    return cmocka_run_group_tests_name("api/edge/cluster", tests, NULL, NULL);
}
