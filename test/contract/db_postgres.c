/* The schema of a folder is named in a file in it: an emptied folder is a new store. */
#include "db_postgres.h"

#include "db/postgres.h"
#include "postgres_server.h"

static char present[40]; /* the schema that was opened last */

static void schema_of(const char *folder, char name[40])
{
    static int made;
    char path[300];
    snprintf(path, sizeof path, "%s/schema", folder);
    FILE *f = fopen(path, "r");
    if (f) {
        CHECK(fscanf(f, "%39s", name) == 1);
        fclose(f);
        return;
    }
    snprintf(name, 40, "w%d_%d", (int)getpid(), ++made);
    postgres_server_make_schema(name);
    f = fopen(path, "w");
    CHECK(f);
    fprintf(f, "%s\n", name);
    fclose(f);
}

static enum err open_with(int writers, const char *folder, const struct store_limits *limits,
                          struct id_gen *ids, struct db **out, char detail[TX_DETAIL_MAX])
{
    char url[300];
    schema_of(folder, present);
    postgres_server_url(present, 0, url, sizeof url);
    struct postgres_config config;
    postgres_config_default(&config);
    config.url = url;
    config.writers = writers;
    config.readers = limits->readers;
    config.queue_max = limits->queue_max;
    config.group_max = limits->group_max;
    config.read_wait_ms = limits->read_wait_ms;
    return db_postgres_open(&config, ids, clock_system(), out, detail);
}

enum err postgres_open_one(const char *folder, const struct store_limits *limits,
                           struct id_gen *ids, struct db **out, char detail[TX_DETAIL_MAX])
{
    return open_with(1, folder, limits, ids, out, detail);
}

enum err postgres_open_many(const char *folder, const struct store_limits *limits,
                            struct id_gen *ids, struct db **out, char detail[TX_DETAIL_MAX])
{
    return open_with(4, folder, limits, ids, out, detail);
}

void postgres_set_full(bool full)
{
    postgres_server_run(
        present, full ? "CREATE FUNCTION full_disk() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN "
                        "RAISE EXCEPTION 'could not extend file' USING ERRCODE = '53100'; END $$;"
                        "CREATE TRIGGER full_disk BEFORE INSERT ON accounts "
                        "FOR EACH ROW EXECUTE FUNCTION full_disk()"
                      : "DROP TRIGGER full_disk ON accounts; DROP FUNCTION full_disk");
}
