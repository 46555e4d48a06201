/* Requests for the leader that arrive elsewhere, over two real servers: passed on once, with the
 * caller's rights and no more; and what a stranger can do with the way they take: nothing. */
#include "test.h"

#include "pair.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <sys/socket.h>
#include <unistd.h>

#include "api/edge/dispatcher.h"
#include "api/edge/forward.h"
#include "api/edge/proof.h"
#include "base/check.h"

static uint64_t forwarded(const struct member *m)
{
    return atomic_load(&m->cluster.forwarded);
}

static uint64_t failed(const struct member *m)
{
    return atomic_load(&m->cluster.forward_failed);
}

/* How often a node itself has answered a route. */
static uint64_t answered(const struct member *m, const char *route)
{
    uint64_t n = 0;
    for (size_t i = 0; i < route_count; i++) {
        for (int class = 1; class <= 5 && strcmp(routes[i].name, route) == 0; class ++)
            n += atomic_load(&m->api.dispatcher->routes[i].by_class[class]);
    }
    return n;
}

/* ---- passing on ---- */

static void test_the_leader_answers_for_others(void **state)
{
    (void)state;
    assert_int_equal(ask(&pair.second, "GET", "/v1/admin/freshness", pair.reader, NULL), 200);
    assert_true(json_is_array(json_object_get(told.json, "cells")));
    assert_int_equal(forwarded(&pair.second), 1);
    assert_int_equal(answered(&pair.first, "admin_freshness"), 1);
    assert_string_equal(told.type, "application/json");
    /* the leader itself forwards nothing */
    assert_int_equal(ask(&pair.first, "GET", "/v1/admin/freshness", pair.reader, NULL), 200);
    assert_int_equal(forwarded(&pair.first), 0);
    /* a head is asked for as the whole */
    assert_int_equal(ask(&pair.second, "HEAD", "/v1/admin/freshness", pair.reader, NULL), 200);
    assert_int_equal(forwarded(&pair.second), 2);
}

static void test_bodies_and_problems_come_through(void **state)
{
    (void)state;
    assert_int_equal(ask(&pair.second, "PUT", "/v1/admin/lanes", pair.admin,
                         "{\"lane\":\"cleanup\",\"rate\":77}"),
                     200);
    assert_int_equal(told_number(NULL, "rate"), 77);
    assert_int_equal(
        ask(&pair.second, "PUT", "/v1/admin/lanes", pair.admin, "{\"lane\":\"nowhere\"}"), 422);
    assert_string_equal(told.type, "application/problem+json");
    assert_non_null(strstr(told_text(NULL, "detail"), "no such lane"));
    assert_int_equal(ask(&pair.second, "PUT", "/v1/admin/lanes", pair.admin, "{"), 400);
    assert_int_equal(ask(&pair.second, "GET", "/v1/admin/events/4711", pair.reader, NULL), 404);
    assert_int_equal(ask_with(&pair.second, "PUT", "/v1/admin/lanes",
                              "Content-Type: text/plain\r\nAuthorization: Bearer x\r\n", NULL),
                     401);
    assert_int_equal(failed(&pair.second), 0);
}

static void test_the_operators_socket_leads_to_the_leader_too(void **state)
{
    (void)state;
    assert_int_equal(
        ask_control(&pair.second, "PUT", "/v1/admin/lanes", "{\"lane\":\"cleanup\",\"rate\":78}"),
        200);
    assert_int_equal(told_number(NULL, "rate"), 78);
    assert_int_equal(forwarded(&pair.second), 1);
}

static void test_rights_are_those_of_the_caller(void **state)
{
    (void)state;
    const char *change = "{\"lane\":\"cleanup\",\"rate\":79}";
    assert_int_equal(ask(&pair.second, "PUT", "/v1/admin/lanes", NULL, change), 401);
    assert_int_equal(ask(&pair.second, "PUT", "/v1/admin/lanes", pair.reader, change), 403);
    assert_int_equal(ask(&pair.second, "PUT", "/v1/admin/lanes", "fts_nobody", change), 401);
    assert_int_equal(forwarded(&pair.second) + failed(&pair.second), 0);
    assert_int_equal(answered(&pair.first, "admin_lane"), 0);
}

/* ---- no leader ---- */

static void test_no_leader_is_said(void **state)
{
    (void)state;
    pair.leader[0] = '\0';
    assert_int_equal(ask(&pair.second, "GET", "/v1/admin/freshness", pair.reader, NULL), 503);
    assert_string_equal(told.retry_after, "1");
    assert_string_equal(told_text(NULL, "title"), err_title(ERR_NO_LEADER));
    assert_int_equal(failed(&pair.second), 1);
    /* named, but not ready: the request is not sent to itself */
    memcpy(pair.leader, pair.second.address, sizeof pair.leader);
    pair.leader_number = 2;
    assert_int_equal(ask(&pair.second, "GET", "/v1/admin/freshness", pair.reader, NULL), 503);
    assert_int_equal(answered(&pair.second, "admin_freshness"), 2);
}

static void test_a_leader_that_is_gone_is_unavailable(void **state)
{
    (void)state;
    const char *addresses[] = {
        "http://127.0.0.1:1", "nonsense",           "http://",
        "http://:80",         "http://127.0.0.1:0", "http://127.0.0.1:99999"};
    for (size_t i = 0; i < COUNT_OF(addresses); i++) {
        snprintf(pair.leader, sizeof pair.leader, "%s", addresses[i]);
        assert_int_equal(ask(&pair.second, "GET", "/v1/admin/freshness", pair.reader, NULL), 503);
        assert_string_equal(told.retry_after, "1");
        assert_string_equal(told_text(NULL, "title"), err_title(ERR_UNAVAILABLE));
    }
    assert_int_equal(failed(&pair.second), COUNT_OF(addresses));
}

static void test_there_is_no_second_hop(void **state)
{
    (void)state;
    atomic_store(&pair.first.cluster.leads, false);
    memcpy(pair.leader, pair.first.address, sizeof pair.leader);
    pair.leader_number = 1;
    assert_int_equal(ask(&pair.second, "GET", "/v1/admin/freshness", pair.reader, NULL), 503);
    assert_string_equal(told_text(NULL, "title"), err_title(ERR_NO_LEADER));
    assert_string_equal(told.retry_after, "1");
    assert_int_equal(forwarded(&pair.first) + failed(&pair.first), 0);
}

static void test_another_term_is_another_leader(void **state)
{
    (void)state;
    atomic_store(&pair.first.cluster.term, 6);
    assert_int_equal(ask(&pair.second, "GET", "/v1/admin/freshness", pair.reader, NULL), 503);
    assert_string_equal(told_text(NULL, "title"), err_title(ERR_NO_LEADER));
    atomic_store(&pair.second.cluster.term, 6);
    assert_int_equal(ask(&pair.second, "GET", "/v1/admin/freshness", pair.reader, NULL), 200);
}

static void test_a_leader_that_does_not_believe_is_no_answer(void **state)
{
    (void)state;
    static const uint8_t other[32] = "another store's";
    forward_free(pair.second.api.dispatcher->forward);
    pair.second.api.dispatcher->forward = forward_new(other);
    assert_int_equal(ask(&pair.second, "GET", "/v1/admin/freshness", pair.reader, NULL), 503);
    assert_string_equal(told_text(NULL, "title"), err_title(ERR_UNAVAILABLE));
    assert_string_equal(told.forwarded, ""); /* what nodes say to each other stays there */
    assert_int_equal(failed(&pair.second), 1);
}

/* ---- a leader that hangs ---- */

enum { CROWD = 80 };

static int listen_somewhere(void)
{
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t len = sizeof a;
    CHECK(fd >= 0 && bind(fd, (struct sockaddr *)&a, sizeof a) == 0 && listen(fd, 64) == 0);
    CHECK(getsockname(fd, (struct sockaddr *)&a, &len) == 0);
    snprintf(pair.leader, sizeof pair.leader, "http://127.0.0.1:%u", (unsigned)ntohs(a.sin_port));
    return fd;
}

static int send_lines(const char *target, const char *lines)
{
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    struct sockaddr_in a = {.sin_family = AF_INET,
                            .sin_port = htons(http_server_port(pair.second.server)),
                            .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    char text[600];
    int n = snprintf(text, sizeof text,
                     "GET %s HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer %s\r\n%s\r\n", target,
                     pair.reader, lines);
    CHECK(connect(fd, (struct sockaddr *)&a, sizeof a) == 0);
    CHECK(send(fd, text, (size_t)n, MSG_NOSIGNAL) == n);
    return fd;
}

static int wait_status(int fd)
{
    char text[64] = "";
    struct pollfd p = {.fd = fd, .events = POLLIN};
    if (poll(&p, 1, 15000) != 1 || recv(fd, text, sizeof text - 1, 0) < 12)
        return 0;
    return atoi(text + 9);
}

static void test_a_leader_that_hangs_holds_up_few(void **state)
{
    (void)state;
    int listener = listen_somewhere(), crowd[CROWD];
    assert_int_equal(ask(&pair.second, "GET", "/v1/admin/keys", pair.reader, NULL),
                     200); /* known */
    for (int i = 0; i < CROWD; i++)
        crowd[i] = send_lines("/v1/admin/freshness", "");
    /* Two wait for the leader, some in line behind them; more than that are sent away at once. */
    struct pollfd shed[CROWD];
    for (int i = 0; i < CROWD; i++)
        shed[i] = (struct pollfd){.fd = crowd[i], .events = POLLIN};
    int early = 0;
    while (early < CROWD - FORWARD_WAITING_MAX - 2 && poll(shed, CROWD, 10000) > 0)
        for (int i = 0; i < CROWD; i++)
            if (shed[i].fd >= 0 && shed[i].revents) {
                shed[i].fd = -1; /* counted: poll waits for the others alone */
                early++;
            }
    assert_true(early >= CROWD - FORWARD_WAITING_MAX - 2 && early < CROWD);
    /* Slow work of other kinds goes on meanwhile: a log-in that fails has been looked at. */
    assert_int_equal(ask(&pair.second, "POST", "/v1/sessions", NULL,
                         "{\"username\":\"nobody\",\"password\":\"whatever it is\"}"),
                     401);
    /* The leader dies: all callers get an error at once. */
    close(listener);
    for (int i = 0; i < CROWD; i++) {
        assert_int_equal(wait_status(crowd[i]), 503);
        close(crowd[i]);
    }
}

/* ---- strangers ---- */

/* A proof as the second node would write it. */
static void vouch(const char *method, const char *target, const char *body, struct caller caller,
                  int64_t off_ms, char header[PROOF_TEXT_MAX + 32])
{
    struct proofs *p = proofs_new(pair.second.api.secret);
    char proof[PROOF_TEXT_MAX];
    struct vouched v = {.method = str_of(method),
                        .target = str_of(target),
                        .body = str_of(body ? body : ""),
                        .caller = caller,
                        .term = 5,
                        .node = 2};
    proof_write(p, &v, clock_wall_ms(clock_system()) + off_ms, proof);
    snprintf(header, PROOF_TEXT_MAX + 32, FORWARD_HEADER ": %s\r\n", proof);
    proofs_free(p);
}

static const struct caller operator= {.scopes = SCOPE_ADMIN, .control = true};
static const char freshness[] = "/v1/admin/freshness";

static void test_a_proof_is_needed_and_enough(void **state)
{
    (void)state;
    char header[PROOF_TEXT_MAX + 32], lines[2 * sizeof header];
    vouch("GET", freshness, NULL, operator, 0, header);
    assert_int_equal(ask_with(&pair.first, "GET", freshness, header, NULL), 200);
    /* a second time it proves nothing */
    assert_int_equal(ask_with(&pair.first, "GET", freshness, header, NULL), 403);
    assert_string_equal(told.forwarded, "refused");
    /* what else the head claims is not looked at */
    vouch("GET", freshness, NULL, operator, 0, header);
    snprintf(lines, sizeof lines, "%sAuthorization: Bearer fts_x\r\nFantail-Account: 1\r\n",
             header);
    assert_int_equal(ask_with(&pair.first, "GET", freshness, lines, NULL), 200);
    /* a caller without an account stays one */
    vouch("GET", freshness, NULL, (struct caller){0}, 0, header);
    assert_int_equal(ask_with(&pair.first, "GET", freshness, header, NULL), 401);
    vouch("GET", freshness, NULL, (struct caller){.account = 9}, 0, header);
    assert_int_equal(ask_with(&pair.first, "GET", freshness, header, NULL), 403);
    assert_string_equal(told.forwarded, "");
}

static void test_forged_and_stale_proofs_are_refused(void **state)
{
    (void)state;
    char header[PROOF_TEXT_MAX + 32];
    const char *change = "{\"lane\":\"cleanup\",\"rate\":80}";
    const char *forged[] = {
        FORWARD_HEADER ": 1\r\n",
        FORWARD_HEADER ":\r\n",
        FORWARD_HEADER ": refused\r\n",
        FORWARD_HEADER ": 1 1790000000000 00000000000000000000000000000000 5 2 0 0 2 1 "
                       "0000000000000000000000000000000000000000000000000000000000000000\r\n",
    };
    for (size_t i = 0; i < COUNT_OF(forged); i++) {
        assert_int_equal(ask_with(&pair.first, "GET", freshness, forged[i], NULL), 403);
        /* also where a token would do, and where no node leads */
        assert_int_equal(ask_with(&pair.second, "GET", freshness, forged[i], NULL), 403);
    }
    const int64_t off_ms[] = {-PROOF_AGE_MS - 5000, PROOF_AGE_MS + 5000};
    for (size_t i = 0; i < COUNT_OF(off_ms); i++) {
        vouch("GET", freshness, NULL, operator, off_ms[i], header);
        assert_int_equal(ask_with(&pair.first, "GET", freshness, header, NULL), 403);
    }
    vouch("PUT", "/v1/admin/lanes", "{\"lane\":\"cleanup\"}", operator, 0, header);
    assert_int_equal(ask_with(&pair.first, "PUT", "/v1/admin/lanes", header, change), 403);
    vouch("GET", freshness, NULL, operator, 0, header);
    assert_int_equal(ask_with(&pair.first, "GET", "/v1/admin/freshness?x", header, NULL), 403);
    assert_int_equal(ask_with(&pair.first, "PUT", "/v1/admin/lanes", header, change), 403);
    assert_int_equal(ask_with(&pair.first, "GET", "/v1/admin/health", header, NULL), 403);
    assert_int_equal(answered(&pair.second, "admin_freshness"), COUNT_OF(forged));
    assert_int_equal(forwarded(&pair.second) + failed(&pair.second), 0);
}

static void test_only_the_leaders_routes_are_passed_on(void **state)
{
    (void)state;
    char header[PROOF_TEXT_MAX + 32];
    const char *targets[] = {"/v1/admin/keys", "/v1/admin/status", "/v1/me", "/metrics"};
    for (size_t i = 0; i < COUNT_OF(targets); i++) {
        vouch("GET", targets[i], NULL, operator, 0, header);
        assert_int_equal(ask_with(&pair.first, "GET", targets[i], header, NULL), 403);
    }
    const char *backup = "{\"path\":\"/tmp/never\"}";
    vouch("POST", "/v1/admin/backup", backup, operator, 0, header);
    assert_int_equal(ask_with(&pair.first, "POST", "/v1/admin/backup", header, backup), 403);
    vouch("GET", freshness, NULL, operator, 0, header);
    assert_int_equal(ask_with(&pair.second, "GET", freshness, header, NULL), 503); /* leads not */
}

static void test_the_first_of_two_headers_counts(void **state)
{
    (void)state;
    char header[PROOF_TEXT_MAX + 32], lines[2 * sizeof header];
    vouch("GET", freshness, NULL, operator, 0, header);
    snprintf(lines, sizeof lines, FORWARD_HEADER ": 1\r\n%s", header);
    assert_int_equal(ask_with(&pair.first, "GET", freshness, lines, NULL), 403);
    snprintf(lines, sizeof lines, "%s" FORWARD_HEADER ": 1\r\n", header);
    assert_int_equal(ask_with(&pair.first, "GET", freshness, lines, NULL), 200);
}

/* Plays the leader for one request: what it was sent is in `request`. Returns what the caller got.
 */
static void play_leader(int listener, int caller, const char *answer, char request[4096],
                        char got[4096])
{
    struct pollfd p = {.fd = listener, .events = POLLIN};
    assert_int_equal(poll(&p, 1, 15000), 1);
    int fd = accept(listener, NULL, NULL);
    assert_true(fd >= 0);
    size_t n = 0;
    for (request[0] = '\0'; !strstr(request, "\r\n\r\n"); request[n] = '\0') {
        ssize_t more = recv(fd, request + n, 4095 - n, 0);
        assert_true(more > 0);
        n += (size_t)more;
    }
    assert_int_equal(send(fd, answer, strlen(answer), MSG_NOSIGNAL), strlen(answer));
    for (n = 0, got[0] = '\0'; !strstr(got, "{}"); got[n] = '\0') {
        ssize_t more = recv(caller, got + n, 4095 - n, 0);
        assert_true(more > 0);
        n += (size_t)more;
    }
    close(fd);
}

static void test_what_a_caller_sends_does_not_travel(void **state)
{
    (void)state;
    char request[4096], got[4096];
    int listener = listen_somewhere();
    int caller = send_lines("/v1/admin/freshness?x=%0d%0aAuthorization:%20y",
                            "Cookie: a=b\r\nX-Forwarded-For: 1.2.3.4\r\nX-Hop: 1\r\n"
                            "Connection: keep-alive, X-Hop\r\nFantail-Accountx: 1\r\n"
                            "traceparent: 00-ab cd\r\n");
    play_leader(listener, caller,
                "HTTP/1.1 200 OK\r\nSet-Cookie: c=d\r\nConnection: close, X-Hop\r\nX-Hop: 2\r\n"
                "Retry-After: 7\r\nContent-Length: 2\r\n\r\n{}",
                request, got);
    int lines = 0;
    for (const char *at = request; (at = strstr(at, "\r\n")); at += 2)
        lines++;
    assert_int_equal(lines, 4); /* the request, Host, the proof, and the empty one */
    const char *line = "GET /v1/admin/freshness?x=%0d%0aAuthorization:%20y HTTP/1.1\r\n";
    assert_int_equal(strncmp(request, line, strlen(line)), 0);
    assert_null(strstr(request, pair.reader));
    assert_non_null(strstr(request, FORWARD_HEADER ": 1 "));
    assert_non_null(strstr(got, "Retry-After: 7\r\n"));
    assert_null(strstr(got, "Cookie"));
    assert_null(strstr(got, "Hop"));
    close(caller);
    close(listener);
}

static void test_alone_the_header_means_nothing(void **state)
{
    (void)state;
    char lines[400];
    pair.first.api.cluster = NULL;
    assert_int_equal(ask_with(&pair.first, "GET", freshness, FORWARD_HEADER ": 1\r\n", NULL), 401);
    snprintf(lines, sizeof lines, "Authorization: Bearer %s\r\n" FORWARD_HEADER ": 1\r\n",
             pair.reader);
    assert_int_equal(ask_with(&pair.first, "GET", freshness, lines, NULL), 200);
}

static void test_limits_are_counted_where_the_caller_knocks(void **state)
{
    (void)state;
    char header[PROOF_TEXT_MAX + 32];
    struct settings *s = (struct settings *)pair.first.api.settings; /* both nodes' */
    s->rate_read = 1;
    int sent = 0, limited = 0;
    for (; sent < 20; sent++)
        limited += ask(&pair.second, "GET", freshness, pair.reader, NULL) == 429;
    assert_true(limited > 0 && limited < sent);
    assert_true(told.retry_after[0]);
    for (int i = 0; i < 20; i++) {
        vouch("GET", freshness, NULL, operator, 0, header);
        assert_int_equal(ask_with(&pair.first, "GET", freshness, header, NULL), 200);
    }
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, pair_open, pair_close)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_the_leader_answers_for_others),
        TEST(test_bodies_and_problems_come_through),
        TEST(test_the_operators_socket_leads_to_the_leader_too),
        TEST(test_rights_are_those_of_the_caller),
        TEST(test_no_leader_is_said),
        TEST(test_a_leader_that_is_gone_is_unavailable),
        TEST(test_there_is_no_second_hop),
        TEST(test_another_term_is_another_leader),
        TEST(test_a_leader_that_does_not_believe_is_no_answer),
        TEST(test_a_leader_that_hangs_holds_up_few),
        TEST(test_a_proof_is_needed_and_enough),
        TEST(test_forged_and_stale_proofs_are_refused),
        TEST(test_only_the_leaders_routes_are_passed_on),
        TEST(test_the_first_of_two_headers_counts),
        TEST(test_what_a_caller_sends_does_not_travel),
        TEST(test_alone_the_header_means_nothing),
        TEST(test_limits_are_counted_where_the_caller_knocks),
    };
    return cmocka_run_group_tests_name("api/edge/forward", tests, NULL, NULL);
}
