/* Many at once: one statement for many rows of arguments, and jobs that run as one. Whatever the
 * driver makes of it, the outcome is that of one after the other. */
#include "db_cases.h"

/* ---- one statement for each row ---- */

enum { EACH = 300 };

static const char insert_sql[] =
    "INSERT INTO accounts (id, username, display_name, email, seen_at) VALUES "
    "($1, $2, 'it''s $1 (', $3, 7)";

static struct str name_of(uint64_t id, char out[24])
{
    return (struct str){out, (size_t)snprintf(out, 24, "u%llu", (unsigned long long)id)};
}

/* Accounts 1 … n; every third has an email. */
static enum err insert_each(struct tx *tx, size_t n)
{
    static struct db_value rows[EACH * 3];
    static char names[EACH][24];
    for (size_t i = 0; i < n; i++) {
        struct str name = name_of(i + 1, names[i]);
        rows[i * 3] = DB_I64(i + 1);
        rows[i * 3 + 1] = DB_TEXT(name);
        rows[i * 3 + 2] = i % 3 == 0 ? DB_TEXT(name) : DB_NULL;
    }
    return tx_exec_each(tx, insert_sql, rows, 3, n);
}

static enum err change_each(struct tx *tx, void *arg)
{
    int64_t *found = arg;
    struct db_value rows[EACH * 2];
    for (size_t i = 0; i < EACH; i++) {
        rows[i * 2] = DB_I64(i + 1);
        rows[i * 2 + 1] = DB_I64(i * 10);
    }
    TRY(insert_each(tx, EACH));
    TRY(tx_exec_each(tx, "UPDATE accounts SET post_count = $2 + seen_at WHERE id = $1 AND $2 > 0",
                     rows, 2, EACH));
    TRY(tx_exec_each(tx, "DELETE FROM accounts WHERE id = $1 AND post_count > 1000 + $2 * 0", rows,
                     2, EACH));
    TRY(tx_exec_each(tx, "DELETE FROM accounts WHERE id = $1 AND post_count = $2", rows, 2, 0));
    return tx_get_numbers(tx,
                          "SELECT COUNT(*), COALESCE(SUM(post_count), 0), COUNT(email), "
                          "SUM(CASE WHEN display_name = 'it''s $1 (' THEN 1 ELSE 0 END) "
                          "FROM accounts WHERE username = email OR email IS NULL",
                          DB_NO_ARGS, found, 4);
}

void a_statement_runs_for_each_row_of_arguments(void **state)
{
    struct world *w = *state;
    int64_t found[4];
    assert_int_equal(db_write(w->db, change_each, found, NULL), OK);
    assert_int_equal(found[0], 100); /* 0, 10 + 7 … 990 + 7 */
    assert_int_equal(found[1], 99 * 100 / 2 * 10 + 99 * 7);
    assert_int_equal(found[2], 34);
    assert_int_equal(found[3], 100);
}

struct seen {
    uint64_t id;
    char name[24];
};

static void read_seen(struct db_rows *rows, void *out)
{
    struct seen *s = out;
    struct str name = db_text(rows, 1);
    s->id = db_id(rows, 0);
    snprintf(s->name, sizeof s->name, "%.*s", STR_ARG(name));
}

struct looking {
    struct seen seen[EACH];
    bool found[EACH];
    size_t count;
};

/* Backwards, and every second for somebody who is not there. */
static enum err look_each(struct tx *tx, void *arg)
{
    struct looking *l = arg;
    struct db_value rows[EACH * 2];
    static char names[EACH][24];
    TRY(insert_each(tx, EACH));
    for (size_t i = 0; i < l->count; i++) {
        uint64_t id = EACH - i;
        rows[i * 2] = DB_I64(id);
        rows[i * 2 + 1] = i % 2 ? DB_TEXT(STR("nobody")) : DB_TEXT(name_of(id, names[i]));
        l->found[i] = i % 2;
    }
    return tx_get_row_each(tx, "SELECT id, username FROM accounts WHERE id = $1 AND username = $2",
                           rows, 2, l->count, read_seen, l->seen, sizeof *l->seen, l->found);
}

void a_row_is_found_for_each_row_of_arguments(void **state)
{
    struct world *w = *state;
    struct looking *l = calloc(1, sizeof *l);
    l->count = EACH;
    assert_int_equal(db_write(w->db, look_each, l, NULL), OK);
    for (size_t i = 0; i < EACH; i++) {
        char name[24];
        assert_int_equal(l->found[i], i % 2 == 0);
        if (!l->found[i])
            continue;
        name_of(EACH - i, name);
        assert_int_equal(l->seen[i].id, EACH - i);
        assert_string_equal(l->seen[i].name, name);
    }
    free(l);
}

static enum err give_emails_late(struct tx *tx, void *arg)
{
    int64_t *found = arg;
    struct db_value rows[4 * 2];
    static const char sql[] = "UPDATE accounts SET email = $2 WHERE id = $1";
    TRY(insert_each(tx, 4));
    for (size_t i = 0; i < 4; i++) {
        rows[i * 2] = DB_I64(i + 1);
        rows[i * 2 + 1] = DB_NULL;
    }
    TRY(tx_exec_each(tx, sql, rows, 2, 4));
    TRY(tx_get_i64(tx, "SELECT COUNT(email) FROM accounts", DB_NO_ARGS, &found[0]));
    rows[5] = DB_TEXT(STR(""));
    TRY(tx_exec_each(tx, sql, rows, 2, 4));
    TRY(tx_get_i64(tx, "SELECT COUNT(email) FROM accounts WHERE id = 3", DB_NO_ARGS, &found[1]));
    rows[5] = DB_NULL;
    TRY(tx_exec_each(tx, sql, rows, 2, 4));
    return tx_get_i64(tx, "SELECT COUNT(email) FROM accounts", DB_NO_ARGS, &found[2]);
}

void a_column_of_nulls_may_get_values_later(void **state)
{
    struct world *w = *state;
    int64_t found[3] = {-1, -1, -1};
    assert_int_equal(db_write(w->db, give_emails_late, found, NULL), OK);
    assert_int_equal(found[0], 0);
    assert_int_equal(found[1], 1);
    assert_int_equal(found[2], 0);
}

static enum err take_a_key(struct tx *tx, void *arg)
{
    (void)arg;
    TRY(insert_account(tx, 3));
    return insert_each(tx, 5);
}

void a_key_that_is_taken_fails_all_rows(void **state)
{
    struct world *w = *state;
    assert_int_equal(db_write(w->db, take_a_key, NULL, NULL), ERR_CONFLICT);
    assert_int_equal(accounts(w), 0);
}

/* ---- jobs as one ---- */

enum { JOBS = 20 };

/* Counts the account it is about, once for each of the jobs. */
struct visit {
    struct add add;  /* of a post with the add's id + 1000 */
    bool left;       /* together leaves it */
    bool refused;    /* and run() refuses it */
    enum err breaks; /* together fails when it meets it */
    uint64_t post;
    int64_t number;
    bool counted; /* by together */
};

static struct visit *visit_of(struct db_job *job)
{
    return CONTAINER_OF(job, struct visit, add.job);
}

static enum err count_visits(struct tx *tx, int64_t n, int64_t *last)
{
    return tx_get_i64(tx,
                      "UPDATE accounts SET post_count = post_count + $1 WHERE id = 1 "
                      "RETURNING post_count",
                      DB_ARGS(DB_I64(n)), last);
}

static enum err emit_visit(struct tx *tx, const struct visit *v)
{
    return outbox_emit(
        tx,
        (struct event){.type = EVENT_POST_CREATED, .actor = v->add.id, .object = v->add.id + 1000});
}

static const char post_sql[] =
    "INSERT INTO posts (id, author_id, caption, delivery) VALUES ($1, $2, 'x', 0)";

static enum err visit_run(struct tx *tx, struct db_job *job)
{
    struct visit *v = visit_of(job);
    v->add.runs++;
    v->counted = false;
    if (v->refused)
        return tx_fail(tx, ERR_INVALID, "job %llu", (unsigned long long)v->add.id);
    TRY(count_visits(tx, 1, &v->number));
    TRY(tx_exec(tx, post_sql, DB_ARGS(DB_I64(v->post), DB_I64(1)), NULL));
    return emit_visit(tx, v);
}

static enum err visit_together(struct tx *tx, struct db_job *const *jobs, size_t n, bool *taken)
{
    struct db_value rows[JOBS * 2];
    size_t count = 0;
    int64_t last;
    for (size_t i = 0; i < n; i++) {
        struct visit *v = visit_of(jobs[i]);
        if (v->breaks)
            return v->breaks;
        taken[i] = v->counted = !v->left;
        rows[count * 2] = DB_I64(v->post);
        rows[count * 2 + 1] = DB_I64(1);
        count += taken[i];
    }
    if (count == 0)
        return OK;
    TRY(count_visits(tx, (int64_t)count, &last));
    for (size_t i = n; i-- > 0;)
        if (taken[i])
            visit_of(jobs[i])->number = last--;
    TRY(tx_exec_each(tx, post_sql, rows, 2, count));
    for (size_t i = 0; i < n; i++)
        if (taken[i])
            TRY(emit_visit(tx, visit_of(jobs[i])));
    return OK;
}

static void visit_init(struct visit *v, struct world *w, uint64_t id)
{
    *v = (struct visit){.post = id + 1000};
    add_init(&v->add, w, id);
    v->add.job.run = visit_run;
    v->add.job.together = visit_together;
}

static void submit_visits(struct world *w, struct visit *visits, size_t n)
{
    sem_t hold, reached;
    struct add first;
    assert_int_equal(add_account(w, 1), OK);
    sem_init(&hold, 0, 0);
    sem_init(&reached, 0, 0);
    add_init(&first, w, 0);
    first.hold = &hold;
    first.reached = &reached;
    submit(&first);
    await(&reached);
    for (size_t i = 0; i < n; i++)
        submit(&visits[i].add);
    sem_post(&hold);
    await(&first.finished);
    for (size_t i = 0; i < n; i++)
        await(&visits[i].add.finished);
}

struct sums {
    int64_t counted, posts, events;
};

static enum err read_sums(struct tx *tx, void *arg)
{
    struct sums *s = arg;
    TRY(tx_get_i64(tx, "SELECT post_count FROM accounts WHERE id = 1", DB_NO_ARGS, &s->counted));
    TRY(tx_get_i64(tx, "SELECT COUNT(*) FROM posts WHERE author_id = 1", DB_NO_ARGS, &s->posts));
    return tx_get_i64(tx, "SELECT COUNT(*) FROM outbox", DB_NO_ARGS, &s->events);
}

/* Those that were done have the numbers 1 … n, each once; nothing is left of the others. */
static void assert_visits(struct world *w, const struct visit *visits, size_t n, int64_t done)
{
    bool given[JOBS + 1] = {false};
    struct sums sums;
    for (size_t i = 0; i < n; i++) {
        char note[40];
        assert_int_equal(visits[i].add.dones, 1);
        snprintf(note, sizeof note, "hook(%llu)", (unsigned long long)visits[i].add.id);
        if (visits[i].add.result) {
            assert_null(strstr(w->notes, note));
            continue;
        }
        assert_non_null(strstr(w->notes, note));
        assert_in_range(visits[i].number, 1, done);
        assert_false(given[visits[i].number]);
        given[visits[i].number] = true;
    }
    assert_int_equal(db_read(w->db, read_sums, &sums, NULL), OK);
    assert_int_equal(sums.counted, done);
    assert_int_equal(sums.posts, done);
}

void jobs_that_run_together_are_done_each(void **state)
{
    struct world *w = *state;
    struct visit visits[JOBS];
    for (size_t i = 0; i < JOBS; i++)
        visit_init(&visits[i], w, i + 10);
    submit_visits(w, visits, JOBS);
    for (size_t i = 0; i < JOBS; i++)
        assert_int_equal(visits[i].add.result, OK);
    assert_visits(w, visits, JOBS, JOBS);
}

/* The first is left, too: the events of the others must find a place. */
void a_job_that_is_left_runs_by_itself(void **state)
{
    struct world *w = *state;
    struct visit visits[JOBS];
    for (size_t i = 0; i < JOBS; i++) {
        visit_init(&visits[i], w, i + 10);
        visits[i].left = i % 4 == 0;
        visits[i].refused = i % 8 == 0;
    }
    submit_visits(w, visits, JOBS);
    for (size_t i = 0; i < JOBS; i++) {
        assert_int_equal(visits[i].add.result, i % 8 == 0 ? ERR_INVALID : OK);
        if (i % 4 == 0)
            assert_true(visits[i].add.runs > 0);
    }
    assert_string_equal(visits[8].add.detail, "job 18");
    assert_visits(w, visits, JOBS, JOBS - 3);
}

/* Found out when the rows are written: only the second of the two fails. */
void a_conflict_between_jobs_run_together_is_one_jobs(void **state)
{
    struct world *w = *state;
    struct visit visits[JOBS];
    for (size_t i = 0; i < JOBS; i++)
        visit_init(&visits[i], w, i + 10);
    visits[9].post = visits[4].post;
    submit_visits(w, visits, JOBS);
    for (size_t i = 0; i < JOBS; i++)
        if (i != 4 && i != 9)
            assert_int_equal(visits[i].add.result, OK);
    assert_int_equal(
        (visits[4].add.result == ERR_CONFLICT) + (visits[9].add.result == ERR_CONFLICT), 1);
    assert_int_equal((visits[4].add.result == OK) + (visits[9].add.result == OK), 1);
    assert_visits(w, visits, JOBS, JOBS - 1);
}

void jobs_that_cannot_run_together_run_apart(void **state)
{
    struct world *w = *state;
    struct visit visits[JOBS];
    for (size_t i = 0; i < JOBS; i++)
        visit_init(&visits[i], w, i + 10);
    visits[13].breaks = ERR_INVALID;
    submit_visits(w, visits, JOBS);
    for (size_t i = 0; i < JOBS; i++)
        assert_int_equal(visits[i].add.result, OK);
    assert_visits(w, visits, JOBS, JOBS);
}
