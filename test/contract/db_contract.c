/* The contract of port/db.h, line by line, against every engine. An engine is a row in `engines`:
 * how to open a store in a folder, and how to make its disk fail where that can be done. */
#include "db/sqlite.h"
#include "db_cases.h"
#include "sqlite_disk.h"

static enum err open_sqlite(const char *folder, const struct store_limits *limits,
                            struct id_gen *ids, struct db **out, char detail[TX_DETAIL_MAX])
{
    char path[300];
    snprintf(path, sizeof path, "%s/store.db", folder);
    struct sqlite_config config;
    sqlite_config_default(&config);
    config.path = path;
    config.readers = limits->readers;
    config.queue_max = limits->queue_max;
    config.group_max = limits->group_max;
    config.read_wait_ms = limits->read_wait_ms;
    config.cache_bytes = 4 << 20;
    return db_sqlite_open(&config, ids, clock_system(), out, detail);
}

static const struct engine engines[] = {
    {"sqlite", open_sqlite, sqlite_disk_full, sqlite_disk_fail_sync, sqlite_disk_log_syncs},
};

#define DB_CASE_ROW(name) {#name, name},
static const struct {
    const char *name;
    CMUnitTestFunction run;
} cases[] = {DB_CASES(DB_CASE_ROW)};

int main(void)
{
    sqlite_disk_register();
    static struct CMUnitTest tests[COUNT_OF(engines) * COUNT_OF(cases)];
    static char names[COUNT_OF(tests)][100];
    for (size_t i = 0; i < COUNT_OF(tests); i++) {
        const struct engine *engine = &engines[i / COUNT_OF(cases)];
        snprintf(names[i], sizeof names[i], "%s: %s", engine->name,
                 cases[i % COUNT_OF(cases)].name);
        tests[i] = (struct CMUnitTest){names[i], cases[i % COUNT_OF(cases)].run, set_up, tear_down,
                                       (void *)(uintptr_t)engine};
    }
    return cmocka_run_group_tests_name("db", tests, NULL, NULL);
}
