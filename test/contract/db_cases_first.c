/* Jobs that name their first statements: however the driver runs them, each job gets its own
 * answer, and a failed job counts nothing. */
#include "db_cases.h"

enum { PEOPLE = 5, JOBS = 24, NOBODY = 99 };

static const char count_sql[] =
    "UPDATE accounts SET post_count = post_count + 1 WHERE id = $1 AND state = 0 "
    "AND username <> $2 AND COALESCE($3, 0) = 0 RETURNING post_count, id, $2";

struct counting {
    struct add add; /* of a post with the add's id + 1000 */
    uint64_t author;
    char word[24]; /* comes back with the answer */
    bool refuses;  /* before it runs any statement */
    int64_t count;
};

static enum err ask(struct tx *tx, struct counting *c, uint64_t *id)
{
    struct db_rows rows;
    struct str word = str_of(c->word);
    enum err e = tx_query(tx, count_sql, DB_ARGS(DB_I64(c->author), DB_TEXT(word), DB_NULL), &rows);
    if (e)
        return e;
    c->count = 0;
    if (db_next(&rows)) {
        c->count = db_i64(&rows, 0);
        *id = str_eq(db_text(&rows, 2), word) ? db_id(&rows, 1) : 0;
    }
    bool more = db_next(&rows);
    e = db_rows_done(&rows);
    return !e && more ? ERR_INTERNAL : e;
}

static enum err count_run(struct tx *tx, struct db_job *job)
{
    struct counting *c = CONTAINER_OF(job, struct counting, add.job);
    uint64_t id = 0;
    c->add.runs++;
    if (c->refuses)
        return tx_fail(tx, ERR_INVALID, "job %llu", (unsigned long long)c->add.id);
    enum err e = ask(tx, c, &id);
    if (e)
        return e;
    if (c->count == 0)
        return tx_fail(tx, ERR_NOT_FOUND, "job %llu", (unsigned long long)c->add.id);
    if (id != c->author)
        return tx_fail(tx, ERR_INTERNAL, "somebody else's answer");
    e = tx_exec(tx, "INSERT INTO posts (id, author_id, caption, delivery) VALUES ($1, $2, $3, $4)",
                DB_ARGS(DB_I64(c->add.id + 1000), DB_I64(c->author), DB_TEXT(STR("x")), DB_I64(0)),
                NULL);
    return e ? e
             : outbox_emit(tx, (struct event){.type = EVENT_POST_CREATED,
                                              .actor = c->add.id,
                                              .object = c->add.id + 1000});
}

static void make_people(struct world *w)
{
    for (uint64_t id = 1; id <= PEOPLE; id++)
        assert_int_equal(add_account(w, id), OK);
}

static void count_init(struct counting *c, struct world *w, uint64_t id, uint64_t author)
{
    *c = (struct counting){.author = author};
    add_init(&c->add, w, id);
    c->add.job.run = count_run;
    snprintf(c->word, sizeof c->word, "job %llu", (unsigned long long)id);
    c->add.job.first =
        (struct db_statement){count_sql, {DB_I64(author), DB_TEXT(str_of(c->word)), DB_NULL}, 3};
}

static void submit_all(struct world *w, struct counting *jobs, size_t n)
{
    sem_t hold, reached;
    struct add first;
    sem_init(&hold, 0, 0);
    sem_init(&reached, 0, 0);
    add_init(&first, w, 0);
    first.hold = &hold;
    first.reached = &reached;
    submit(&first);
    await(&reached);
    for (size_t i = 0; i < n; i++)
        submit(&jobs[i].add);
    sem_post(&hold);
    await(&first.finished);
    for (size_t i = 0; i < n; i++)
        await(&jobs[i].add.finished);
}

struct number {
    const char *sql;
    uint64_t id;
    int64_t found;
};

static enum err read_number(struct tx *tx, void *arg)
{
    struct number *n = arg;
    return tx_get_i64(tx, n->sql, DB_ARGS(DB_I64(n->id)), &n->found);
}

static void assert_counts(struct world *w, uint64_t author, int64_t expected)
{
    struct number counter = {"SELECT post_count FROM accounts WHERE id = $1", author, -1};
    struct number rows = {"SELECT count(*) FROM posts WHERE author_id = $1", author, -1};
    assert_int_equal(db_read(w->db, read_number, &counter, NULL), OK);
    assert_int_equal(db_read(w->db, read_number, &rows, NULL), OK);
    assert_int_equal(counter.found, expected);
    assert_int_equal(rows.found, expected);
}

/* Several of one person, in no order, and one of a person who is not there. */
void each_job_gets_its_own_first_statement(void **state)
{
    struct world *w = *state;
    struct counting jobs[JOBS];
    bool told[PEOPLE + 1][JOBS + 1] = {{false}};
    int64_t expected[PEOPLE + 1] = {0};
    make_people(w);
    for (uint64_t i = 0; i < JOBS; i++) {
        count_init(&jobs[i], w, i + 1, i == 7 ? NOBODY : 1 + i * 7 % PEOPLE);
        if (i != 7)
            expected[jobs[i].author]++;
    }
    submit_all(w, jobs, JOBS);
    for (size_t i = 0; i < JOBS; i++) {
        assert_int_equal(jobs[i].add.dones, 1);
        assert_int_equal(jobs[i].add.result, i == 7 ? ERR_NOT_FOUND : OK);
        if (i == 7)
            continue;
        assert_in_range(jobs[i].count, 1, expected[jobs[i].author]);
        assert_false(told[jobs[i].author][jobs[i].count]); /* no job counts twice */
        told[jobs[i].author][jobs[i].count] = true;
    }
    for (uint64_t id = 1; id <= PEOPLE; id++)
        assert_counts(w, id, expected[id]);
}

/* Refused before its first statement was asked for: as if it had never been run. */
void a_first_statement_goes_with_its_job(void **state)
{
    struct world *w = *state;
    struct counting jobs[PEOPLE];
    make_people(w);
    for (uint64_t i = 0; i < PEOPLE; i++)
        count_init(&jobs[i], w, i + 1, i + 1);
    jobs[2].refuses = true;
    submit_all(w, jobs, PEOPLE);
    for (uint64_t i = 0; i < PEOPLE; i++) {
        assert_int_equal(jobs[i].add.dones, 1);
        assert_int_equal(jobs[i].add.result, i == 2 ? ERR_INVALID : OK);
        assert_counts(w, i + 1, i == 2 ? 0 : 1);
    }
    assert_string_equal(jobs[2].add.detail, "job 3");
    assert_null(strstr(w->notes, "hook(3)"));
    assert_non_null(strstr(w->notes, "hook(4)"));
}
