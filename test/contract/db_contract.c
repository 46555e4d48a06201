/* The contract of port/db.h, line by line, against every driver. A driver is a row in `drivers`:
 * how to open a store in a folder, and how to make its disk fail where that can be done. The
 * argument is the kind of driver to run (by default the embedded one): others need a server. */
#include "db/sqlite.h"
#include "db_cases.h"
#include "db_postgres.h"
#include "postgres_server.h"
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

static const struct driver drivers[] = {
    {.name = "sqlite",
     .kind = "sqlite",
     .open = open_sqlite,
     .set_full = sqlite_disk_full,
     .set_sync_fails = sqlite_disk_fail_sync,
     .count_syncs = sqlite_disk_log_syncs},
    {.name = "postgres, one writer",
     .kind = "postgres",
     .open = postgres_open_one,
     .no_backup = true,
     .set_full = postgres_set_full},
    {.name = "postgres, four writers",
     .kind = "postgres",
     .open = postgres_open_many,
     .no_backup = true,
     .parallel = true,
     .set_full = postgres_set_full},
};

#define DB_CASE_ROW(name) {#name, name},
static const struct {
    const char *name;
    CMUnitTestFunction run;
} cases[] = {DB_CASES(DB_CASE_ROW)};

/* What cannot be arranged for a driver, or is not promised by it. */
static bool applies(CMUnitTestFunction run, const struct driver *driver)
{
    if (run == done_comes_after_a_sync)
        return driver->count_syncs != NULL;
    if (run == a_full_disk_refuses_writes_and_recovers)
        return driver->set_full != NULL;
    if (run == a_failed_sync_is_final || run == queued_jobs_fail_with_the_store)
        return driver->set_sync_fails != NULL;
    if (run == done_follows_the_hook_in_commit_order || run == order_holds_across_groups ||
        run == later_jobs_see_what_earlier_ones_wrote || run == a_full_queue_refuses)
        return !driver->parallel;
    return true;
}

static struct CMUnitTest tests[COUNT_OF(drivers) * COUNT_OF(cases)];
static char names[COUNT_OF(tests)][120];

static size_t list_tests(const char *kind)
{
    size_t n = 0;
    for (size_t i = 0; i < COUNT_OF(tests); i++) {
        const struct driver *driver = &drivers[i / COUNT_OF(cases)];
        if (strcmp(driver->kind, kind) != 0 || !applies(cases[i % COUNT_OF(cases)].run, driver))
            continue;
        snprintf(names[n], sizeof names[n], "%s: %s", driver->name,
                 cases[i % COUNT_OF(cases)].name);
        tests[n] = (struct CMUnitTest){names[n], cases[i % COUNT_OF(cases)].run, set_up, tear_down,
                                       (void *)(uintptr_t)driver};
        n++;
    }
    return n;
}

int main(int count, char **arguments)
{
    const char *kind = count > 1 ? arguments[1] : "sqlite";
    if (strcmp(kind, "postgres") == 0 && !postgres_server_start())
        return 1;
    sqlite_disk_register();
    size_t n = list_tests(kind);
    CHECK(n > 0);
    return _cmocka_run_group_tests("db", tests, n, NULL, NULL);
}
