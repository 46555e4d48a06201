/* Every SQL text of the program is accepted by PostgreSQL with the tables of schema/postgres.sql:
 * names, functions, syntax and the types of columns. (That they mean the same there is shown by the
 * tests that run them.) The arguments are a command that prints the texts, and what it wants. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/check.h"
#include "base/id.h"
#include "db/postgres_driver.h"
#include "postgres_server.h"

static const char *printer, *root;

static void make_tables(const char *url)
{
    struct postgres_config config;
    struct id_gen ids;
    struct db *db;
    char detail[TX_DETAIL_MAX];
    postgres_config_default(&config);
    config.url = url;
    id_gen_init(&ids, clock_system(), 1);
    enum err e = db_postgres_open(&config, &ids, clock_system(), &db, detail);
    if (e)
        fail_msg("%s", detail);
    db_free(db);
}

static bool is_accepted(PGconn *c, const char *text)
{
    struct buf sql;
    buf_init(&sql, 0);
    pg_statement_rewrite(text, &sql);
    PGresult *r = PQprepare(c, "", sql.ptr, 0, NULL);
    bool ok = PQresultStatus(r) == PGRES_COMMAND_OK;
    if (!ok)
        fprintf(stderr, "# %s\n# %s\n", text, PQresultErrorMessage(r));
    PQclear(r);
    buf_done(&sql);
    return ok;
}

static void postgres_accepts_every_text(void **state)
{
    (void)state;
    char url[300], command[600];
    postgres_server_make_schema("texts");
    postgres_server_url("texts", 0, url, sizeof url);
    make_tables(url);
    snprintf(command, sizeof command, "'%s' '%s'", printer, root);
    FILE *texts = popen(command, "r");
    assert_non_null(texts);
    PGconn *c = PQconnectdb(url);
    char *text = NULL;
    size_t room = 0, count = 0, refused = 0;
    while (getdelim(&text, &room, '\0', texts) > 0) {
        count++;
        refused += !is_accepted(c, text);
    }
    free(text);
    PQfinish(c);
    assert_int_equal(pclose(texts), 0);
    assert_int_equal(refused, 0);
    assert_true(count > 200);
}

int main(int count, char **arguments)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(postgres_accepts_every_text)};
    CHECK(count == 3);
    printer = arguments[1];
    root = arguments[2];
    if (!postgres_server_start())
        return 1;
    return cmocka_run_group_tests_name("sql", tests, NULL, NULL);
}
