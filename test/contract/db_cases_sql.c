/* What port/db.h says of SQL: values, parameters, id lists, rows, conflicts. */
#include "db_cases.h"

static enum err check_values(struct tx *tx, void *arg)
{
    (void)arg;
    static const char blob[] = "a\0b\xff";
    enum err e =
        tx_exec(tx,
                "INSERT INTO accounts (id, username, display_name, bio, email, seen_at) "
                "VALUES ($1, $2, $3, $4, $5, $6)",
                DB_ARGS(DB_I64(INT64_MAX), DB_TEXT(STR("grüße")), DB_TEXT(((struct str){NULL, 0})),
                        DB_TEXT(STR("it's \"quoted\" $1")), DB_NULL, DB_I64(INT64_MIN)),
                NULL);
    if (!e)
        e = tx_exec(tx, "INSERT INTO api_keys (id, name, key_hash, scopes) VALUES ($1, $2, $3, $4)",
                    DB_ARGS(DB_I64(1), DB_TEXT(STR("")), DB_BLOB(((struct str){blob, 4})),
                            DB_TEXT(STR("act"))),
                    NULL);
    struct db_rows rows;
    if (!e)
        e = tx_query(tx,
                     "SELECT a.id, username, display_name, bio, email, seen_at, key_hash, k.name, "
                     "revoked_at "
                     "FROM accounts a, api_keys k WHERE a.id = $1",
                     DB_ARGS(DB_I64(INT64_MAX)), &rows);
    if (e)
        return e;
    bool ok = db_next(&rows) && db_id(&rows, 0) == INT64_MAX &&
              str_eq(db_text(&rows, 1), STR("grüße")) && db_text(&rows, 2).ptr &&
              db_text(&rows, 2).len == 0 && !db_is_null(&rows, 2) &&
              str_eq(db_text(&rows, 3), STR("it's \"quoted\" $1")) && db_is_null(&rows, 4) &&
              !db_text(&rows, 4).ptr && db_i64(&rows, 4) == 0 && db_i64(&rows, 5) == INT64_MIN &&
              str_eq(db_text(&rows, 6), ((struct str){blob, 4})) && db_text(&rows, 7).ptr &&
              db_is_null(&rows, 8) && !db_next(&rows) && !db_next(&rows);
    e = db_rows_done(&rows);
    return e ? e : ok ? OK : ERR_INVALID;
}

void values_come_back_as_they_went_in(void **state)
{
    struct world *w = *state;
    assert_int_equal(db_write(w->db, check_values, NULL, NULL), OK);
}

static enum err bind_nul(struct tx *tx, void *arg)
{
    (void)arg;
    enum err e = insert_account(tx, 1);
    if (e)
        return e;
    return tx_exec(tx, "UPDATE accounts SET bio = $1", DB_ARGS(DB_TEXT(((struct str){"a\0b", 3}))),
                   NULL);
}

void text_with_a_nul_is_refused(void **state)
{
    struct world *w = *state;
    assert_int_equal(db_write(w->db, bind_nul, NULL, NULL), ERR_INVALID);
    assert_int_equal(accounts(w), 0);
}

static enum err swap_parameters(struct tx *tx, void *arg)
{
    int64_t *got = arg;
    enum err e = tx_get_i64(tx, "SELECT $2 - $1", DB_ARGS(DB_I64(1), DB_I64(10)), &got[0]);
    if (!e)
        e = tx_get_i64(tx, "SELECT $3 * 100 + $1 * 10 + $2 + $1",
                       DB_ARGS(DB_I64(1), DB_I64(2), DB_I64(3)), &got[1]);
    if (!e)
        e = tx_get_i64(
            tx,
            "SELECT $11 + $1 + $2 * 0 + $3 * 0 + $4 * 0 + $5 * 0 + $6 * 0 + $7 * 0 + $8 * 0 "
            "+ $9 * 0 + $10 * 0",
            DB_ARGS(DB_I64(1), DB_I64(2), DB_I64(3), DB_I64(4), DB_I64(5), DB_I64(6), DB_I64(7),
                    DB_I64(8), DB_I64(9), DB_I64(10), DB_I64(1100)),
            &got[2]);
    return e;
}

void parameters_are_bound_by_their_number(void **state)
{
    struct world *w = *state;
    int64_t got[3] = {0};
    assert_int_equal(db_read(w->db, swap_parameters, got, NULL), OK);
    assert_int_equal(got[0], 9);
    assert_int_equal(got[1], 313);
    assert_int_equal(got[2], 1101);
}

static enum err too_few_arguments(struct tx *tx, void *arg)
{
    int64_t n;
    (void)arg;
    return tx_get_i64(tx, "SELECT $1 + $2", DB_ARGS(DB_I64(1)), &n);
}

void a_wrong_number_of_arguments_is_an_error(void **state)
{
    struct world *w = *state;
    assert_int_equal(db_read(w->db, too_few_arguments, NULL, NULL), ERR_INTERNAL);
}

struct id_lists {
    uint64_t ids[1000];
    size_t n;
    int64_t joined, within, both;
};

static enum err use_ids(struct tx *tx, void *arg)
{
    struct id_lists *l = arg;
    static const uint64_t two[] = {2, UINT64_C(9007199254740993)};
    enum err e = tx_get_i64(tx, "SELECT count(*) FROM ids($1) AS i JOIN accounts a ON a.id = i.id",
                            DB_ARGS(DB_IDS(l->ids, l->n)), &l->joined);
    if (!e)
        e = tx_get_i64(tx, "SELECT count(*) FROM accounts WHERE id IN (SELECT id FROM ids($1))",
                       DB_ARGS(DB_IDS(l->ids, l->n)), &l->within);
    if (!e)
        e = tx_get_i64(tx,
                       "SELECT count(*) FROM accounts WHERE id IN (SELECT id FROM ids($3)) "
                       "AND id IN (SELECT id FROM ids($1)) AND id <> $2",
                       DB_ARGS(DB_IDS(l->ids, l->n), DB_I64(0), DB_IDS(two, 2)), &l->both);
    return e;
}

void ids_is_a_table_of_exact_ids(void **state)
{
    struct world *w = *state;
    /* Neighbours that are equal as doubles, and the greatest id. */
    static const uint64_t ids[] = {1, 2, UINT64_C(9007199254740992), UINT64_C(9007199254740993),
                                   INT64_MAX};
    for (size_t i = 0; i < COUNT_OF(ids); i++)
        assert_int_equal(add_account(w, ids[i]), OK);
    struct id_lists l = {.ids = {2, UINT64_C(9007199254740993), INT64_MAX, 77}, .n = 4};
    assert_int_equal(db_read(w->db, use_ids, &l, NULL), OK);
    assert_int_equal(l.joined, 3);
    assert_int_equal(l.within, 3);
    assert_int_equal(l.both, 2);
    l.n = 0;
    assert_int_equal(db_read(w->db, use_ids, &l, NULL), OK);
    assert_int_equal(l.joined + l.within + l.both, 0);
    for (size_t i = 0; i < COUNT_OF(l.ids); i++)
        l.ids[i] = i + 1;
    l.n = COUNT_OF(l.ids);
    assert_int_equal(db_read(w->db, use_ids, &l, NULL), OK);
    assert_int_equal(l.joined, 2);
    assert_int_equal(l.both, 1);
}

/* Reads ids($1) with one list while the same text runs with another inside the loop. */
static enum err nest_ids(struct tx *tx, void *arg)
{
    static const char sql[] = "SELECT id FROM ids($1) ORDER BY id";
    static const uint64_t outer_ids[] = {1, 2, 3}, inner_ids[] = {10, 20};
    uint64_t *sum = arg;
    struct db_rows outer;
    enum err e = tx_query(tx, sql, DB_ARGS(DB_IDS(outer_ids, 3)), &outer);
    while (!e && db_next(&outer)) {
        struct db_rows inner;
        e = tx_query(tx, sql, DB_ARGS(DB_IDS(inner_ids, 2)), &inner);
        while (!e && db_next(&inner))
            *sum += db_id(&outer, 0) * db_id(&inner, 0);
        if (!e)
            e = db_rows_done(&inner);
    }
    enum err ended = db_rows_done(&outer);
    return e ? e : ended;
}

void a_query_can_run_inside_itself(void **state)
{
    struct world *w = *state;
    uint64_t sum = 0;
    for (int i = 0; i < 3; i++)
        assert_int_equal(db_read(w->db, nest_ids, &sum, NULL), OK);
    assert_int_equal(sum, 3 * 180);
}

enum { LARGE = 20000 };

static enum err fill_follows(struct tx *tx, void *arg)
{
    (void)arg;
    enum err e = OK;
    for (int i = 0; i < LARGE && !e; i++)
        e = tx_exec(tx,
                    "INSERT INTO follows (follower_id, followee_id, created_at) VALUES (1, $1, 0)",
                    DB_ARGS(DB_I64(i)), NULL);
    return e;
}

struct large_read {
    int64_t seen, in_order, left_at, nested;
};

static enum err read_follows(struct tx *tx, void *arg)
{
    struct large_read *l = arg;
    static const char sql[] =
        "SELECT followee_id FROM follows WHERE follower_id = $1 ORDER BY followee_id";
    struct db_rows rows;
    enum err e = tx_query(tx, sql, DB_ARGS(DB_I64(1)), &rows);
    while (!e && db_next(&rows)) {
        l->in_order += db_i64(&rows, 0) == l->seen++;
        if (l->seen == LARGE / 2)
            e = tx_get_i64(tx, "SELECT COUNT(*) FROM follows", DB_NO_ARGS, &l->nested);
    }
    if (!e)
        e = db_rows_done(&rows);
    if (!e)
        e = tx_query(tx, sql, DB_ARGS(DB_I64(1)), &rows);
    while (!e && l->left_at < 10 && db_next(&rows))
        l->left_at++;
    return e ? e : db_rows_done(&rows);
}

void a_large_result_can_be_read_or_left(void **state)
{
    struct world *w = *state;
    struct large_read l = {0};
    assert_int_equal(db_write(w->db, fill_follows, NULL, NULL), OK);
    assert_int_equal(db_read(w->db, read_follows, &l, NULL), OK);
    assert_int_equal(l.seen, LARGE);
    assert_int_equal(l.in_order, LARGE);
    assert_int_equal(l.left_at, 10);
    assert_int_equal(l.nested, LARGE);
}

static enum err set_email(struct tx *tx, uint64_t id, struct db_value email, struct db_value seen)
{
    return tx_exec(tx, "UPDATE accounts SET email = $2, seen_at = COALESCE($3, 7) WHERE id = $1",
                   DB_ARGS(DB_I64(id), email, seen), NULL);
}

static enum err give_values_late(struct tx *tx, void *arg)
{
    (void)arg;
    enum err e = OK;
    for (uint64_t id = 1; id <= 3 && !e; id++)
        e = insert_account(tx, id);
    if (!e)
        e = set_email(tx, 1, DB_NULL, DB_NULL);
    if (!e)
        e = set_email(tx, 2, DB_TEXT(STR("a@b")), DB_NULL);
    if (!e)
        e = set_email(tx, 3, DB_NULL, DB_I64(9));
    int64_t n = 0;
    if (!e)
        e = tx_get_i64(tx,
                       "SELECT COUNT(*) FROM accounts WHERE (id = 1 AND email IS NULL "
                       "AND seen_at = 7) OR (id = 2 AND email = 'a@b' AND seen_at = 7) "
                       "OR (id = 3 AND email IS NULL AND seen_at = 9)",
                       DB_NO_ARGS, &n);
    return e ? e : n == 3 ? OK : ERR_INVALID;
}

void an_argument_may_be_null_first_and_a_value_later(void **state)
{
    struct world *w = *state;
    assert_int_equal(db_write(w->db, give_values_late, NULL, NULL), OK);
}

static enum err sum_counts(struct tx *tx, void *arg)
{
    int64_t *sums = arg;
    enum err e = OK;
    for (uint64_t id = 1; id <= 3 && !e; id++)
        e = insert_account(tx, id);
    if (!e)
        e = tx_exec(tx, "UPDATE accounts SET post_count = $1 WHERE id = 1",
                    DB_ARGS(DB_I64(INT64_C(9000000000000000001))), NULL);
    if (!e)
        e = tx_exec(tx, "UPDATE accounts SET post_count = $1 WHERE id = 2",
                    DB_ARGS(DB_I64(INT64_C(-9000000000000020000))), NULL);
    if (!e)
        e = tx_get_i64(tx, "SELECT SUM(post_count) FROM accounts", DB_NO_ARGS, &sums[0]);
    if (!e)
        e = tx_get_i64(tx, "SELECT SUM(post_count) FROM accounts WHERE id = 2", DB_NO_ARGS,
                       &sums[1]);
    if (!e)
        e = tx_get_i64(tx, "SELECT SUM(post_count) FROM accounts WHERE id = 3", DB_NO_ARGS,
                       &sums[2]);
    if (!e)
        e = tx_get_i64(tx, "SELECT SUM(post_count) FROM accounts WHERE id = 4", DB_NO_ARGS,
                       &sums[3]);
    return e;
}

void sums_are_numbers(void **state)
{
    struct world *w = *state;
    int64_t sums[4] = {1, 1, 1, 1};
    assert_int_equal(db_write(w->db, sum_counts, sums, NULL), OK);
    assert_int_equal(sums[0], -19999);
    assert_int_equal(sums[1], INT64_C(-9000000000000020000));
    assert_int_equal(sums[2], 0);
    assert_int_equal(sums[3], 0);
}

static enum err change_rows(struct tx *tx, void *arg)
{
    int64_t *changed = arg;
    enum err e = OK;
    for (uint64_t id = 1; id <= 4 && !e; id++)
        e = insert_account(tx, id);
    if (!e)
        e = tx_exec(tx, "UPDATE accounts SET bio = 'x' WHERE id > $1", DB_ARGS(DB_I64(1)),
                    &changed[0]);
    if (!e)
        e = tx_exec(tx,
                    "INSERT INTO accounts (id, username) VALUES (1, 'z') ON CONFLICT DO NOTHING",
                    DB_NO_ARGS, &changed[1]);
    if (!e)
        e = tx_exec(tx, "DELETE FROM accounts WHERE id = $1", DB_ARGS(DB_I64(99)), &changed[2]);
    if (!e)
        e = tx_get_i64(
            tx,
            "UPDATE accounts SET post_count = post_count + 5 WHERE id = $1 RETURNING post_count",
            DB_ARGS(DB_I64(2)), &changed[3]);
    return e;
}

void changed_rows_are_counted_and_returned(void **state)
{
    struct world *w = *state;
    int64_t changed[4] = {-1, -1, -1, -1};
    assert_int_equal(db_write(w->db, change_rows, changed, NULL), OK);
    assert_int_equal(changed[0], 3);
    assert_int_equal(changed[1], 0);
    assert_int_equal(changed[2], 0);
    assert_int_equal(changed[3], 5);
}

static enum err leave_rows_open(struct tx *tx, void *arg)
{
    (void)arg;
    struct db_rows rows;
    enum err e = tx_query(tx, "SELECT id FROM accounts", DB_NO_ARGS, &rows);
    if (!e)
        db_next(&rows);
    return e ? e : insert_account(tx, 100);
}

void rows_left_open_do_not_outlive_the_transaction(void **state)
{
    struct world *w = *state;
    assert_int_equal(add_account(w, 1), OK);
    assert_int_equal(add_account(w, 2), OK);
    assert_int_equal(db_write(w->db, leave_rows_open, NULL, NULL), OK);
    assert_int_equal(accounts(w), 3);
    assert_int_equal(db_write(w->db, leave_rows_open, NULL, NULL), ERR_CONFLICT);
}

static enum err find_nothing(struct tx *tx, void *arg)
{
    return tx_get_i64(tx, "SELECT id FROM accounts WHERE id = 12345", DB_NO_ARGS, arg);
}

void one_number_of_no_row_is_not_found(void **state)
{
    struct world *w = *state;
    int64_t n;
    assert_int_equal(db_read(w->db, find_nothing, &n, NULL), ERR_NOT_FOUND);
}

static const struct db_update count_posts =
    DB_UPDATE("accounts", "post_count = post_count + $2", "AND state = $3", "post_count, id");

static enum err update_and_read(struct tx *tx, void *arg)
{
    int64_t *got = arg;
    TRY(insert_account(tx, 1));
    TRY(insert_account(tx, 2));
    TRY(tx_update_numbers(tx, &count_posts, DB_ARGS(DB_I64(2), DB_I64(3), DB_I64(0)), got, 2));
    TRY(tx_update_numbers(tx, &count_posts, DB_ARGS(DB_I64(2), DB_I64(4), DB_I64(0)), got, 2));
    int64_t none[2] = {-1, -1};
    enum err wrong_state =
        tx_update_numbers(tx, &count_posts, DB_ARGS(DB_I64(1), DB_I64(1), DB_I64(1)), none, 2);
    enum err no_row =
        tx_update_numbers(tx, &count_posts, DB_ARGS(DB_I64(9), DB_I64(1), DB_I64(0)), none, 2);
    bool refused = wrong_state == ERR_NOT_FOUND && no_row == ERR_NOT_FOUND && none[0] == -1;
    TRY(tx_get_i64(tx, "SELECT SUM(post_count) FROM accounts", DB_NO_ARGS, &got[2]));
    return refused ? OK : ERR_INVALID;
}

void an_update_answers_with_the_row_as_it_is_then(void **state)
{
    struct world *w = *state;
    int64_t got[3] = {0};
    assert_int_equal(db_write(w->db, update_and_read, got, NULL), OK);
    assert_int_equal(got[0], 7);
    assert_int_equal(got[1], 2);
    assert_int_equal(got[2], 7); /* nobody else's row */
}
