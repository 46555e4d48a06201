/* Opening: what is made of an empty folder, and what is refused with which words. */
#include "store.h"

#include <fcntl.h>
#include <sys/wait.h>

static void refuses(struct store *s, enum err kind, const char *words)
{
    char detail[TX_DETAIL_MAX];
    assert_int_equal(store_try_open(s, detail), kind);
    assert_null(s->db);
    if (!strstr(detail, words))
        fail_msg("\"%s\" does not say \"%s\"", detail, words);
}

static void an_empty_folder_becomes_a_store(void **state)
{
    struct store *s = *state;
    store_open(s);
    store_close(s);
    assert_int_equal(store_ask_raw(s, "SELECT value FROM meta WHERE name = 'schema'"),
                     schema_version());
    assert_int_equal(store_ask_raw(s, "SELECT count(*) FROM outbox"), 0);
    assert_int_equal(store_ask_raw(s, "SELECT journal_mode = 'wal' FROM pragma_journal_mode"), 1);
    assert_int_equal(access(s->path, F_OK), 0);
    char log[120];
    snprintf(log, sizeof log, "%s-wal", s->path);
    store_open(s); /* and again */
    store_close(s);
    assert_int_not_equal(access(log, F_OK), 0); /* a clean end leaves one file */
}

/* A crash may leave the file with its header and without tables. */
static void a_half_made_store_is_finished(void **state)
{
    struct store *s = *state;
    store_run_raw(s, "PRAGMA journal_mode = WAL");
    store_open(s);
    store_close(s);
    assert_int_equal(store_ask_raw(s, "SELECT value FROM meta WHERE name = 'schema'"),
                     schema_version());
}

static void a_newer_schema_is_refused(void **state)
{
    struct store *s = *state;
    store_open(s);
    store_close(s);
    store_run_raw(s, "UPDATE meta SET value = '99' WHERE name = 'schema'");
    refuses(s, ERR_STORAGE_FAILED, "newer version (schema 99, this program knows ");
    assert_int_equal(store_ask_raw(s, "SELECT value FROM meta WHERE name = 'schema'"), 99);
}

static void an_unknown_old_schema_is_refused(void **state)
{
    struct store *s = *state;
    store_open(s);
    store_close(s);
    store_run_raw(s, "UPDATE meta SET value = '0' WHERE name = 'schema'");
    refuses(s, ERR_STORAGE_FAILED, "unknown schema");
}

static void another_programs_database_is_refused(void **state)
{
    struct store *s = *state;
    store_run_raw(s, "CREATE TABLE songs (name TEXT)");
    refuses(s, ERR_STORAGE_FAILED, "another program");
    assert_int_equal(store_ask_raw(s, "SELECT count(*) FROM sqlite_schema"), 1);
}

static void something_else_is_not_a_database(void **state)
{
    struct store *s = *state;
    int file = open(s->path, O_WRONLY | O_CREAT, 0600);
    for (int i = 0; i < 100; i++)
        assert_int_equal(write(file, "These are not the pages you look for.\n", 38), 38);
    close(file);
    refuses(s, ERR_STORAGE_FAILED, "not a database");
}

static void a_missing_folder_is_said(void **state)
{
    struct store *s = *state;
    s->config.path = "/tmp/fantail-no-such-folder/store.db";
    refuses(s, ERR_STORAGE_FAILED, "No such file or directory");
    s->config.path = s->folder; /* a folder is not a file */
    refuses(s, ERR_STORAGE_FAILED, "cannot open");
}

/* In a child that is not root: root may write everywhere. */
static void try_unwritable_places(struct store *s)
{
    if (geteuid() == 0 && setuid(65534) != 0)
        _exit(1);
    char detail[TX_DETAIL_MAX];
    if (chmod(s->path, 0400) != 0 || store_try_open(s, detail) != ERR_STORAGE_FAILED ||
        !strstr(detail, "cannot be written"))
        _exit(2);
    char log[120];
    snprintf(log, sizeof log, "%s-wal", s->path);
    if (access(log, F_OK) == 0) /* refusing leaves nothing behind */
        _exit(5);
    if (chmod(s->path, 0600) != 0 || chmod(s->folder, 0500) != 0 ||
        store_try_open(s, detail) != ERR_STORAGE_FAILED || !strstr(detail, "cannot be written"))
        _exit(3);
    if (chmod(s->folder, 0700) != 0 || open(log, O_RDONLY | O_CREAT, 0400) < 0 ||
        store_try_open(s, detail) != ERR_STORAGE_FAILED || !strstr(detail, "cannot be written"))
        _exit(4);
    _exit(0);
}

static void an_unwritable_place_is_said(void **state)
{
    struct store *s = *state;
    store_open(s);
    store_close(s);
    if (geteuid() == 0) {
        assert_int_equal(chown(s->folder, 65534, 65534), 0);
        assert_int_equal(chown(s->path, 65534, 65534), 0);
    }
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0)
        try_unwritable_places(s);
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
}

/* ---- steps, with made-up ones behind the real ones ---- */

static enum err prepare(struct store *s, const char *const *more, size_t n, char *detail)
{
    struct schema_step steps[64];
    struct connection c;
    memcpy(steps, schema_steps, schema_step_count * sizeof *steps);
    for (size_t i = 0; i < n; i++)
        steps[schema_step_count + i] =
            (struct schema_step){schema_version() + 1 + (int)i, more[i], NULL};
    enum err e = connection_open(&c, &s->config, CONNECTION_WRITER, detail);
    if (e)
        return e;
    e = schema_prepare(&c, s->path, steps, schema_step_count + n, detail);
    connection_close(&c, true);
    return e;
}

static const char *const good[] = {
    "ALTER TABLE posts ADD COLUMN mood TEXT; UPDATE posts SET mood = 'calm'",
    "CREATE TABLE birds (id INTEGER PRIMARY KEY)",
};

static void migrations_run_once_and_in_order(void **state)
{
    struct store *s = *state;
    char detail[TX_DETAIL_MAX];
    store_open(s);
    store_close(s);
    store_run_raw(s, "INSERT INTO posts (id, author_id, caption, delivery) VALUES (1, 1, 'x', 0)");
    assert_int_equal(prepare(s, good, 1, detail), OK);
    assert_int_equal(store_ask_raw(s, "SELECT mood = 'calm' FROM posts"), 1);
    for (int i = 0; i < 2; i++) { /* the first is done already, the second time both are */
        assert_int_equal(prepare(s, good, 2, detail), OK);
        assert_int_equal(store_ask_raw(s, "SELECT value FROM meta WHERE name = 'schema'"),
                         schema_version() + 2);
        assert_int_equal(store_ask_raw(s, "SELECT count(*) FROM birds"), 0);
    }
    refuses(s, ERR_STORAGE_FAILED, "newer version");
}

static void a_new_store_is_brought_to_the_last_version(void **state)
{
    struct store *s = *state;
    char detail[TX_DETAIL_MAX];
    assert_int_equal(prepare(s, good, 2, detail), OK);
    assert_int_equal(store_ask_raw(s, "SELECT value FROM meta WHERE name = 'schema'"),
                     schema_version() + 2);
}

static void a_failed_migration_leaves_the_former_version(void **state)
{
    static const char *const bad[] = {
        "CREATE TABLE birds (id INTEGER PRIMARY KEY); INSERT INTO nowhere VALUES (1)"};
    struct store *s = *state;
    char detail[TX_DETAIL_MAX];
    store_open(s);
    store_close(s);
    assert_int_not_equal(prepare(s, bad, 1, detail), OK);
    char words[40];
    snprintf(words, sizeof words, "migration to schema %d", schema_version() + 1);
    assert_non_null(strstr(detail, words));
    assert_int_equal(store_ask_raw(s, "SELECT count(*) FROM sqlite_schema WHERE name = 'birds'"),
                     0);
    store_open(s);
}

/* ---- old stores ---- */

static char *read_file(const char *name)
{
    char path[300];
    snprintf(path, sizeof path, "%s/%s", OLD_STORES, name);
    FILE *f = fopen(path, "r");
    assert_non_null(f);
    char *text = calloc(1, 1 << 16);
    assert_in_range(fread(text, 1, (1 << 16) - 1, f), 1000, (1 << 16) - 2);
    fclose(f);
    return text;
}

/* What a store had that a program of that version made. */
static void make_old_store(struct store *s, int version)
{
    char name[40], mark[200];
    snprintf(name, sizeof name, "sqlite_%d.sql", version);
    snprintf(mark, sizeof mark,
             "PRAGMA application_id = 0x46616e54; INSERT INTO meta VALUES ('schema', '%d');"
             "INSERT INTO outbox (id, type, version, payload) VALUES (7, 'x', 1, '{}')",
             version);
    char *tables = read_file(name);
    store_run_raw(s, tables);
    store_run_raw(s, mark);
    free(tables);
}

/* Columns of all tables, and the indexes: what is in one store alone. */
#define COLUMNS(of)                                                                                \
    "SELECT m.name, p.cid, p.name, p.type, p.\"notnull\", p.dflt_value, p.pk FROM " of             \
    ".sqlite_schema m, pragma_table_info(m.name, '" of "') p WHERE m.type = 'table' "
#define INDEXES(of)                                                                                \
    "SELECT name, 0, tbl_name, sql, 0, 0, 0 FROM " of ".sqlite_schema WHERE type = 'index' "

static int64_t differences(struct store *s, const char *other)
{
    sqlite3 *db;
    sqlite3_stmt *statement;
    char attach[200];
    snprintf(attach, sizeof attach, "ATTACH '%s' AS other", other);
    assert_int_equal(sqlite3_open(s->path, &db), SQLITE_OK);
    assert_int_equal(sqlite3_exec(db, attach, NULL, NULL, NULL), SQLITE_OK);
    assert_int_equal(
        sqlite3_prepare_v2(db,
                           "WITH a AS (" COLUMNS("main") "UNION ALL " INDEXES(
                               "main") "), "
                                       "b AS (" COLUMNS("other") "UNION ALL " INDEXES(
                                           "other") ") "
                                                    "SELECT (SELECT count(*) FROM (SELECT * FROM a "
                                                    "EXCEPT SELECT * FROM b))"
                                                    "+ (SELECT count(*) FROM (SELECT * FROM b "
                                                    "EXCEPT SELECT * FROM a)), "
                                                    "(SELECT count(*) FROM a)",
                           -1, &statement, NULL),
        SQLITE_OK);
    assert_int_equal(sqlite3_step(statement), SQLITE_ROW);
    int64_t n = sqlite3_column_int64(statement, 0);
    assert_in_range(sqlite3_column_int64(statement, 1), 50, 1000);
    sqlite3_finalize(statement);
    sqlite3_close(db);
    return n;
}

/* A store that any version made becomes what a new one is, and keeps what it had. */
static void an_old_store_becomes_what_a_new_one_is(void **state)
{
    static const int versions[] = {1, 4};
    struct store *s = *state;
    char fresh[120], detail[TX_DETAIL_MAX];
    int present, known;
    snprintf(fresh, sizeof fresh, "%s/fresh.db", s->folder);
    const char *path = s->config.path;
    s->config.path = fresh;
    store_open(s);
    store_close(s);
    s->config.path = path;
    for (size_t i = 0; i < COUNT_OF(versions); i++) {
        make_old_store(s, versions[i]);
        assert_int_equal(db_sqlite_schema(s->path, &present, &known, detail), OK);
        assert_int_equal(present, versions[i]);
        assert_int_equal(known, schema_version());
        if (versions[i] < known)
            assert_true(differences(s, fresh) > 0);
        store_open(s);
        store_close(s);
        assert_int_equal(differences(s, fresh), 0);
        assert_int_equal(store_ask_raw(s, "SELECT state FROM outbox WHERE id = 7"), 0);
        assert_int_equal(db_sqlite_schema(s->path, &present, &known, detail), OK);
        assert_int_equal(present, schema_version());
        assert_int_equal(unlink(s->path), 0);
    }
    assert_int_equal(unlink(fresh), 0);
    assert_int_equal(db_sqlite_schema(fresh, &present, &known, detail), OK);
    assert_int_equal(present, 0);
}

/* Until schema 5 the duplicate memory was a ring of tables. */
static void what_the_duplicate_memory_held_is_kept(void **state)
{
    struct store *s = *state;
    make_old_store(s, 4);
    store_run_raw(s, "INSERT INTO inbox_slots VALUES (2, 0, 100, 5000), (3, 100, 200, 7000);"
                     "INSERT INTO inbox_2 VALUES ('mail', '1:1', 1, 50), ('sms', '1:1', 0, 60);"
                     "INSERT INTO inbox_3 VALUES ('mail', '2:1', 0, 150)");
    store_open(s);
    store_close(s);
    assert_int_equal(store_ask_raw(s, "SELECT count(*) FROM dedup"), 3);
    assert_int_equal(store_ask_raw(s, "SELECT at FROM dedup WHERE consumer = 'mail' "
                                      "AND key = '1:1' AND state = 1"),
                     50);
    assert_int_equal(store_ask_raw(s, "SELECT at FROM dedup WHERE consumer = 'mail' "
                                      "AND key = '2:1' AND state = 0"),
                     150);
    assert_int_equal(store_ask_raw(s, "SELECT keep FROM dedup_retention WHERE retention = 7000"),
                     7000);
}

/* Until schema 7 whole answers were kept under keys, and refusals too. */
static void what_keys_made_is_kept_and_what_they_answered_is_not(void **state)
{
    struct store *s = *state;
    make_old_store(s, 4);
    store_run_raw(s, "INSERT INTO idempotency VALUES "
                     "(1, 'posts_create 0', 'k', x'00', 201, '{\"id\":\"12\",\"author\":{}}', 5),"
                     "(1, 'messages_send 9', 'k', x'00', 201, '34', 5),"
                     "(1, 'posts_delete 12', 'k', x'00', 204, '', 5),"
                     "(1, 'posts_create 0', 'l', x'00', 422, '{\"type\":\"about:blank\"}', 5)");
    store_open(s);
    store_close(s);
    assert_int_equal(store_ask_raw(s, "SELECT count(*) FROM idempotency WHERE key = 'k'"), 3);
    assert_int_equal(store_ask_raw(s, "SELECT count(*) FROM idempotency WHERE key = 'l'"), 0);
    static const struct {
        const char *route;
        int object;
    } kept[] = {{"posts_create 0", 12}, {"messages_send 9", 34}, {"posts_delete 12", 0}};
    for (size_t i = 0; i < COUNT_OF(kept); i++) {
        char sql[120];
        snprintf(sql, sizeof sql, "SELECT object_id FROM idempotency WHERE route = '%s'",
                 kept[i].route);
        assert_int_equal(store_ask_raw(s, sql), kept[i].object);
    }
}

/* The list of tables that copying goes by is what is in the store. */
static void the_list_of_tables_is_the_stores(void **state)
{
    static const char *const types[] = {
        [SCHEMA_NUMBER] = "INTEGER", [SCHEMA_TEXT] = "TEXT", [SCHEMA_BYTES] = "BLOB"};
    struct store *s = *state;
    char sql[300];
    store_open(s);
    store_close(s);
    assert_int_equal(store_ask_raw(s, "SELECT count(*) FROM sqlite_schema WHERE type = 'table' "
                                      "AND name NOT LIKE 'sqlite%'"),
                     schema_table_count);
    for (size_t i = 0; i < schema_table_count; i++) {
        const struct schema_table *t = &schema_tables[i];
        snprintf(sql, sizeof sql, "SELECT count(*) FROM pragma_table_info('%s')", t->name);
        assert_int_equal(store_ask_raw(s, sql), t->column_count);
        for (size_t k = 0; k < t->column_count; k++) {
            snprintf(sql, sizeof sql,
                     "SELECT count(*) FROM pragma_table_info('%s') "
                     "WHERE cid = %zu AND name = '%s' AND type = '%s'",
                     t->name, k, t->columns[k].name, types[t->columns[k].kind]);
            assert_int_equal(store_ask_raw(s, sql), 1);
        }
    }
}

/* ---- ids ---- */

static void every_table_with_ids_raises_the_generator(void **state)
{
    static const char *const inserts[] = {
        "INSERT INTO accounts (id, username) VALUES (%llu, 'a')",
        "INSERT INTO posts (id, author_id, caption, delivery) VALUES (%llu, 1, 'x', 0)",
        "INSERT INTO comments (id, post_id, author_id, body) VALUES (%llu, 1, 1, 'x')",
        "INSERT INTO outbox (id, type, version, payload) VALUES (%llu, 'x', 1, '{}')",
        "INSERT INTO sessions VALUES (1, %llu, 'x', '', 0, 0)",
        "INSERT INTO api_keys (id, name, key_hash, scopes) VALUES (%llu, 'x', 'x', '')",
        "INSERT INTO groups (id, kind, name, created_by) VALUES (%llu, 0, 'x', 1)",
        "INSERT INTO meta (name, value) VALUES ('done_through', '%llu')",
    };
    struct store *s = *state;
    store_open(s);
    store_close(s);
    for (size_t i = 0; i < COUNT_OF(inserts); i++) {
        unsigned long long stored = id_at(ID_EPOCH_MS + 5000000 + (int64_t)i * 1000000, 1, 5);
        char sql[200];
        snprintf(sql, sizeof sql, inserts[i], stored);
        store_run_raw(s, sql);
        store_open(s); /* its clock stands before all of them */
        assert_true(id_next(&s->ids) > stored);
        store_close(s);
    }
}

static void a_wild_id_does_not_end_time(void **state)
{
    struct store *s = *state;
    store_open(s);
    store_close(s);
    store_run_raw(
        s, "INSERT INTO accounts (id, username) VALUES (9223372036854775807, 'a');"
           "INSERT INTO accounts (id, username) VALUES (4194304000, 'b');"
           "INSERT INTO meta VALUES ('odd', '9223372036854775806'), ('text', 'x'), ('zero', '')");
    store_open(s);
    uint64_t id = id_next(&s->ids);
    assert_true(id > 4194304000u);
    assert_true(id_time_ms(id) <= s->clock.wall_ms);
}

int main(void)
{
#define STORE_TEST(f) cmocka_unit_test_setup_teardown(f, store_set_up, store_tear_down)
    const struct CMUnitTest tests[] = {
        STORE_TEST(an_empty_folder_becomes_a_store),
        STORE_TEST(a_half_made_store_is_finished),
        STORE_TEST(a_newer_schema_is_refused),
        STORE_TEST(an_unknown_old_schema_is_refused),
        STORE_TEST(another_programs_database_is_refused),
        STORE_TEST(something_else_is_not_a_database),
        STORE_TEST(a_missing_folder_is_said),
        STORE_TEST(an_unwritable_place_is_said),
        STORE_TEST(migrations_run_once_and_in_order),
        STORE_TEST(a_new_store_is_brought_to_the_last_version),
        STORE_TEST(a_failed_migration_leaves_the_former_version),
        STORE_TEST(an_old_store_becomes_what_a_new_one_is),
        STORE_TEST(what_the_duplicate_memory_held_is_kept),
        STORE_TEST(what_keys_made_is_kept_and_what_they_answered_is_not),
        STORE_TEST(the_list_of_tables_is_the_stores),
        STORE_TEST(every_table_with_ids_raises_the_generator),
        STORE_TEST(a_wild_id_does_not_end_time),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
