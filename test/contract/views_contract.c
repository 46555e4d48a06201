/* The contracts of port/views.h, graph.h, timelines.h and inboxes.h, line by line, against every
 * driver in the table below. A new
 * driver is one more row: how to open it on a folder of its own, and whether it survives being
 * opened again. */
#include <string.h>

#include "redis_place.h"
#include "view/memory/memory.h"
#include "view/redis/redis.h"
#include "views_cases.h"

static struct views *open_memory(struct place *p)
{
    struct memory_views_config config = {p->path, CAP, PULL_CAP, &p->clock.clock};
    struct views *v = NULL;
    assert_int_equal(views_memory_open(&config, &v), OK);
    return v;
}

static struct views *open_redis(struct place *p, enum redis_kind kind)
{
    struct redis_config config = {.url = redis_place_url(kind),
                                  .store = "contract",
                                  .timeline_cap = CAP,
                                  .pull_cap = PULL_CAP,
                                  .clock = &p->clock.clock};
    struct views *v = NULL;
    assert_int_equal(views_redis_open(&config, &v), OK);
    assert_int_equal(views_loaded(v), OK);
    return v;
}

static struct views *open_single(struct place *p)
{
    return open_redis(p, REDIS_SINGLE);
}
static struct views *open_cluster(struct place *p)
{
    return open_redis(p, REDIS_CLUSTER);
}
static void clear_single(void)
{
    redis_place_clear(REDIS_SINGLE);
}
static void clear_cluster(void)
{
    redis_place_clear(REDIS_CLUSTER);
}

static const struct driver drivers[] = {
    {"memory", open_memory, NULL, false},
    {"redis", open_single, clear_single, true},
    {"redis-cluster", open_cluster, clear_cluster, true},
};

#define VIEWS_CASE_ROW(name) {#name, name},
struct contract_case {
    const char *name;
    CMUnitTestFunction run;
};
static const struct contract_case views_cases[] = {VIEWS_CASES(VIEWS_CASE_ROW)};
static const struct contract_case graph_cases[] = {GRAPH_CASES(VIEWS_CASE_ROW)};
static const struct contract_case timelines_cases[] = {TIMELINES_CASES(VIEWS_CASE_ROW)};
static const struct contract_case inboxes_cases[] = {INBOXES_CASES(VIEWS_CASE_ROW)};

static const struct suite {
    const char *port;
    const struct contract_case *cases;
    size_t n;
} suites[] = {
    {"views", views_cases, COUNT_OF(views_cases)},
    {"graph", graph_cases, COUNT_OF(graph_cases)},
    {"timelines", timelines_cases, COUNT_OF(timelines_cases)},
    {"inboxes", inboxes_cases, COUNT_OF(inboxes_cases)},
};

static int run(const struct suite *s, const struct driver *driver)
{
    enum { CASES_MAX = 64 };
    static struct CMUnitTest tests[CASES_MAX];
    static char names[CASES_MAX][100];
    assert_true(s->n <= CASES_MAX);
    for (size_t i = 0; i < s->n; i++) {
        snprintf(names[i], sizeof names[i], "%s: %s", driver->name, s->cases[i].name);
        tests[i] = (struct CMUnitTest){names[i], s->cases[i].run, set_up, tear_down,
                                       (void *)(uintptr_t)driver};
    }
    return _cmocka_run_group_tests(s->port, tests, s->n, NULL, NULL);
}

/* The arguments: the port, and the driver's name; "views" and "memory" when there are none. */
int main(int argc, char **argv)
{
    const char *port = argc > 1 ? argv[1] : "views", *wanted = argc > 2 ? argv[2] : "memory";
    const struct suite *suite = NULL;
    const struct driver *driver = NULL;
    for (size_t i = 0; i < COUNT_OF(suites); i++)
        if (strcmp(suites[i].port, port) == 0)
            suite = &suites[i];
    for (size_t i = 0; i < COUNT_OF(drivers); i++)
        if (strcmp(drivers[i].name, wanted) == 0)
            driver = &drivers[i];
    if (!suite || !driver) {
        fprintf(stderr, "no such port or driver: %s %s\n", port, wanted);
        return 2;
    }
    return run(suite, driver);
}
