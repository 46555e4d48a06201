/* The views contract (port/views.h), line by line, against every engine in the table below. A new
 * engine is one more row: how to open it on a folder of its own, and whether it survives being
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

static const struct engine engines[] = {
    {"memory", open_memory, NULL, false},
    {"redis", open_single, clear_single, true},
    {"redis-cluster", open_cluster, clear_cluster, true},
};

#define VIEWS_CASE_ROW(name) {#name, name},
static const struct {
    const char *name;
    CMUnitTestFunction run;
} cases[] = {VIEWS_CASES(VIEWS_CASE_ROW)};

/* The engine's name is the argument; "memory" when there is none. */
int main(int argc, char **argv)
{
    static struct CMUnitTest tests[COUNT_OF(cases)];
    static char names[COUNT_OF(tests)][100];
    const char *wanted = argc > 1 ? argv[1] : "memory";
    const struct engine *engine = NULL;
    for (size_t i = 0; i < COUNT_OF(engines); i++)
        if (strcmp(engines[i].name, wanted) == 0)
            engine = &engines[i];
    if (!engine) {
        fprintf(stderr, "no such engine: %s\n", wanted);
        return 2;
    }
    for (size_t i = 0; i < COUNT_OF(tests); i++) {
        snprintf(names[i], sizeof names[i], "%s: %s", engine->name, cases[i].name);
        tests[i] = (struct CMUnitTest){names[i], cases[i].run, set_up, tear_down,
                                       (void *)(uintptr_t)engine};
    }
    return cmocka_run_group_tests_name("views", tests, NULL, NULL);
}
