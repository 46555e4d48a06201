/* The views contract (port/views.h), line by line, against every engine in the table below. A new
 * engine is one more row: how to open it on a folder of its own, and whether it survives being
 * opened again. */
#include "view/memory/memory.h"
#include "views_cases.h"

static struct views *open_memory(struct place *p)
{
    struct memory_views_config config = {p->path, CAP, PULL_CAP, &p->clock.clock};
    struct views *v = NULL;
    assert_int_equal(views_memory_open(&config, &v), OK);
    return v;
}

static const struct engine engines[] = {
    {"memory", open_memory},
};

#define VIEWS_CASE_ROW(name) {#name, name},
static const struct {
    const char *name;
    CMUnitTestFunction run;
} cases[] = {VIEWS_CASES(VIEWS_CASE_ROW)};

int main(void)
{
    static struct CMUnitTest tests[COUNT_OF(engines) * COUNT_OF(cases)];
    static char names[COUNT_OF(tests)][100];
    for (size_t i = 0; i < COUNT_OF(tests); i++) {
        const struct engine *engine = &engines[i / COUNT_OF(cases)];
        snprintf(names[i], sizeof names[i], "%s: %s", engine->name,
                 cases[i % COUNT_OF(cases)].name);
        tests[i] = (struct CMUnitTest){names[i], cases[i % COUNT_OF(cases)].run, set_up, tear_down,
                                       (void *)(uintptr_t)engine};
    }
    return cmocka_run_group_tests_name("views", tests, NULL, NULL);
}
