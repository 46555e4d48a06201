/* One store a test: a folder for SQLite, a schema for PostgreSQL. */
#include "group_place.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/check.h"
#include "db/postgres.h"
#include "db/sqlite.h"
#include "model/account.h"
#include "postgres_server.h"

static bool postgres;

bool group_place_choose(int count, char **arguments)
{
    postgres = count > 1 && strcmp(arguments[1], "postgres") == 0;
    return !postgres || postgres_server_start();
}

static void tell(void *ctx, const struct event *events, size_t n)
{
    struct group_place *p = ctx;
    for (size_t i = 0; i < n; i++) {
        if (events[i].type >= EVENT_GROUP_CREATED && events[i].type <= EVENT_GROUP_READ)
            event_list_add(&p->told, &events[i]);
    }
}

static enum err make_people(struct tx *tx, void *arg)
{
    struct group_place *p = arg;
    enum err e = OK;
    for (int i = 0; i < PLACE_PEOPLE && !e; i++) {
        char name[20];
        snprintf(name, sizeof name, "person%d", i);
        e = account_create(tx, &(struct account_new){.username = str_of(name)}, &p->people[i]);
    }
    return e;
}

void group_place_open(struct group_place *p)
{
    static int made;
    char detail[TX_DETAIL_MAX] = "", path[100], url[300];
    enum err e;
    *p = (struct group_place){0};
    id_gen_init(&p->ids, clock_system(), 1);
    if (postgres) {
        struct postgres_config config;
        snprintf(p->folder, sizeof p->folder, "groups%d_%d", (int)getpid(), ++made);
        postgres_server_make_schema(p->folder);
        postgres_server_url(p->folder, 0, url, sizeof url);
        postgres_config_default(&config);
        config.url = url;
        e = db_postgres_open(&config, &p->ids, clock_system(), &p->db, detail);
    } else {
        struct sqlite_config config;
        snprintf(p->folder, sizeof p->folder, "/tmp/fantail-groups-XXXXXX");
        CHECK(mkdtemp(p->folder));
        snprintf(path, sizeof path, "%s/store.db", p->folder);
        sqlite_config_default(&config);
        config.path = path;
        e = db_sqlite_open(&config, &p->ids, clock_system(), &p->db, detail);
    }
    if (e)
        fail_msg("%s", detail);
    p->db->on_commit = tell;
    p->db->on_commit_ctx = p;
    group_place_write(p, make_people, p, OK);
}

void group_place_close(struct group_place *p)
{
    db_stop(p->db);
    db_free(p->db);
    event_list_done(&p->told);
    static const char *const files[] = {"/store.db", "/store.db-wal", "/store.db-shm", ""};
    for (size_t i = 0; i < COUNT_OF(files) && !postgres; i++) {
        char path[100];
        snprintf(path, sizeof path, "%s%s", p->folder, files[i]);
        remove(path);
    }
}

enum err group_place_try(struct group_place *p, tx_fn run, void *arg)
{
    char detail[TX_DETAIL_MAX] = "";
    enum err e = db_write(p->db, run, arg, detail);
    if (e && err_class(e) != ERR_CLASS_CLIENT)
        fail_msg("%s: %s", err_name(e), detail);
    return e;
}

void group_place_write(struct group_place *p, tx_fn run, void *arg, enum err expected)
{
    enum err e = group_place_try(p, run, arg);
    if (e != expected)
        fail_msg("got %s, wanted %s", err_name(e), err_name(expected));
}

struct question {
    const char *sql;
    int64_t argument, answer;
};

static enum err ask(struct tx *tx, void *arg)
{
    struct question *q = arg;
    return tx_get_i64(tx, q->sql, DB_ARGS(DB_I64(q->argument)), &q->answer);
}

int64_t group_place_ask(struct group_place *p, const char *sql, int64_t argument)
{
    struct question q = {.sql = sql, .argument = argument};
    char detail[TX_DETAIL_MAX] = "";
    enum err e = db_read(p->db, ask, &q, detail);
    if (e)
        fail_msg("%s: %s", sql, detail);
    return q.answer;
}
