/* A real store in a temporary folder for the tests of the API: SQLite, its ids and a clock moved by
 * hand. Everything is removed when the test ends. */
#include "store.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "db/sqlite.h"

void store_open(struct store *s)
{
    memset(s, 0, sizeof *s);
    manual_clock_init(&s->clock, STORE_BEGAN_MS);
    manual_clock_advance(&s->clock, 1000);
    id_gen_init(&s->ids, &s->clock.clock, 0);
    snprintf(s->folder, sizeof s->folder, "/tmp/fantail-test-XXXXXX");
    CHECK(mkdtemp(s->folder));
    char path[100], detail[TX_DETAIL_MAX] = "";
    snprintf(path, sizeof path, "%s/fantail.db", s->folder);
    struct sqlite_config config;
    sqlite_config_default(&config);
    config.path = path;
    CHECK(db_sqlite_open(&config, &s->ids, &s->clock.clock, &s->db, detail) == OK);
}

void store_close(struct store *s)
{
    db_stop(s->db);
    db_free(s->db);
    static const char *const files[] = {"fantail.db", "fantail.db-wal", "fantail.db-shm"};
    for (size_t i = 0; i < COUNT_OF(files); i++) {
        char path[100];
        snprintf(path, sizeof path, "%s/%s", s->folder, files[i]);
        remove(path);
    }
    remove(s->folder);
}

struct question {
    const char *sql;
    int64_t number;
};

static enum err ask(struct tx *tx, void *arg)
{
    struct question *q = arg;
    return tx_get_i64(tx, q->sql, DB_NO_ARGS, &q->number);
}

int64_t store_number(struct store *s, const char *sql)
{
    struct question q = {sql, -1};
    return db_read(s->db, ask, &q, NULL) == OK ? q.number : -1;
}
