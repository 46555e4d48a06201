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
                     SCHEMA_VERSION);
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
                     SCHEMA_VERSION);
}

static void a_newer_schema_is_refused(void **state)
{
    struct store *s = *state;
    store_open(s);
    store_close(s);
    store_run_raw(s, "UPDATE meta SET value = '99' WHERE name = 'schema'");
    refuses(s, ERR_STORAGE_FAILED, "newer version (schema 99, this program knows 4)");
    assert_int_equal(store_ask_raw(s, "SELECT value FROM meta WHERE name = 'schema'"), 99);
}

static void an_unknown_old_schema_is_refused(void **state)
{
    struct store *s = *state;
    store_open(s);
    store_close(s);
    store_run_raw(s, "UPDATE meta SET value = '0' WHERE name = 'schema'");
    refuses(s, ERR_STORAGE_FAILED, "no way from there");
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

/* ---- migrations, with made-up ones ---- */

static enum err prepare(struct store *s, const struct migration *migrations, size_t n, char *detail)
{
    struct connection c;
    enum err e = connection_open(&c, &s->config, CONNECTION_WRITER, detail);
    if (e)
        return e;
    e = schema_prepare(&c, s->path, migrations, n, detail);
    connection_close(&c, true);
    return e;
}

static const struct migration good[] = {
    {SCHEMA_VERSION + 1, "ALTER TABLE posts ADD COLUMN mood TEXT; UPDATE posts SET mood = 'calm'"},
    {SCHEMA_VERSION + 2, "CREATE TABLE birds (id INTEGER PRIMARY KEY)"},
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
                         SCHEMA_VERSION + 2);
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
                     SCHEMA_VERSION + 2);
}

static void a_failed_migration_leaves_the_former_version(void **state)
{
    static const struct migration bad[] = {
        {SCHEMA_VERSION + 1,
         "CREATE TABLE birds (id INTEGER PRIMARY KEY); INSERT INTO nowhere VALUES (1)"},
    };
    struct store *s = *state;
    char detail[TX_DETAIL_MAX];
    store_open(s);
    store_close(s);
    assert_int_not_equal(prepare(s, bad, 1, detail), OK);
    assert_non_null(strstr(detail, "migration to schema 5"));
    assert_int_equal(store_ask_raw(s, "SELECT count(*) FROM sqlite_schema WHERE name = 'birds'"),
                     0);
    store_open(s);
}

/* A store of schema 2 that is brought up to date has the same tables as a new one. */
static void schema_2_becomes_the_newest(void **state)
{
    static const char look[] = "SELECT count(*) FROM fresh f JOIN sqlite_schema s "
                               "ON s.name = f.name AND s.sql IS f.sql";
    struct store *s = *state;
    store_open(s);
    store_close(s);
    store_run_raw(s, "CREATE TABLE fresh AS SELECT name, sql FROM sqlite_schema "
                     "WHERE tbl_name IN ('leases', 'nodes') OR tbl_name LIKE 'group%' "
                     "OR tbl_name = 'chats';"
                     "DROP TABLE leases; DROP TABLE nodes; DROP TABLE groups; "
                     "DROP TABLE group_members; DROP TABLE group_invitations; "
                     "DROP TABLE group_log; DROP TABLE group_mentions; DROP TABLE chats;"
                     "UPDATE meta SET value = '2' WHERE name = 'schema'");
    int64_t wanted = store_ask_raw(s, "SELECT count(*) FROM fresh");
    assert_true(wanted >= 12);
    assert_int_equal(store_ask_raw(s, look), 0);
    int present, known;
    char detail[TX_DETAIL_MAX];
    assert_int_equal(db_sqlite_schema(s->path, &present, &known, detail), OK);
    assert_int_equal(present, 2);
    assert_int_equal(known, SCHEMA_VERSION);
    store_open(s);
    store_close(s);
    assert_int_equal(store_ask_raw(s, look), wanted);
    assert_int_equal(db_sqlite_schema(s->path, &present, &known, detail), OK);
    assert_int_equal(present, SCHEMA_VERSION);
    assert_int_equal(db_sqlite_schema("/tmp/fantail-no-such.db", &present, &known, detail), OK);
    assert_int_equal(present, 0);
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
        STORE_TEST(schema_2_becomes_the_newest),
        STORE_TEST(every_table_with_ids_raises_the_generator),
        STORE_TEST(a_wild_id_does_not_end_time),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
