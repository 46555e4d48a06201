/* Lines 2 to 5 and 7 of the contract: durability, groups, order, limits and the end. */
#include <signal.h>
#include <sys/wait.h>

#include "db_cases.h"

/* ---- 2: durable ---- */

void done_comes_after_a_sync(void **state)
{
    struct world *w = *state;
    for (uint64_t id = 1; id <= 5; id++) {
        uint64_t before = w->driver->count_syncs();
        struct add a;
        add_init(&a, w, id);
        submit(&a);
        await(&a.finished);
        assert_int_equal(a.result, OK);
        assert_true(a.syncs_at_done > before);
    }
}

/* Writes accounts for ever and reports each acknowledged one through the pipe. */
static void write_until_killed(struct world *w, int out)
{
    char detail[TX_DETAIL_MAX];
    w->db = NULL;
    if (try_open(w, detail) != OK)
        _exit(1);
    for (uint64_t id = 1;; id++)
        if (add_account(w, id) != OK || write(out, &id, sizeof id) != sizeof id)
            _exit(1);
}

void acknowledged_rows_survive_a_kill(void **state)
{
    struct world *w = *state;
    close_store(w);
    for (int round = 0; round < 3; round++) {
        empty_folder(w);
        int pipes[2];
        assert_int_equal(pipe(pipes), 0);
        pid_t child = fork();
        assert_true(child >= 0);
        if (child == 0)
            write_until_killed(w, pipes[1]);
        close(pipes[1]);
        uint64_t last = 0;
        while (last < 20u + 7u * (unsigned)round)
            assert_int_equal(read(pipes[0], &last, sizeof last), sizeof last);
        kill(child, SIGKILL);
        int status;
        assert_int_equal(waitpid(child, &status, 0), child);
        assert_true(WIFSIGNALED(status));
        while (read(pipes[0], &last, sizeof last) == sizeof last)
            ;
        close(pipes[0]);
        open_store(w);
        for (uint64_t id = 1; id <= last; id++)
            assert_true(has_account(w, id));
        assert_in_range(accounts(w), last, last + 1);
        close_store(w);
    }
}

/* ---- 3, 4, 5: groups ---- */

void a_failed_job_leaves_nothing_and_harms_no_other(void **state)
{
    struct world *w = *state;
    struct add adds[5];
    for (size_t i = 0; i < COUNT_OF(adds); i++) {
        add_init(&adds[i], w, i + 1);
        adds[i].emits = true;
    }
    adds[1].after = ERR_INVALID;
    adds[3].after = ERR_NOT_FOUND;
    submit_as_group(w, adds, COUNT_OF(adds));

    assert_int_equal(adds[0].result, OK);
    assert_int_equal(adds[1].result, ERR_INVALID);
    assert_string_equal(adds[1].detail, "job 2");
    assert_int_equal(adds[2].result, OK);
    assert_int_equal(adds[3].result, ERR_NOT_FOUND);
    assert_int_equal(adds[4].result, OK);
    assert_int_equal(accounts(w), 3);
    assert_false(has_account(w, 2));
    assert_false(has_account(w, 4));
    /* Their outbox rows are gone too, and the hook never got them. */
    assert_null(strstr(w->notes, "hook(2)"));
    assert_null(strstr(w->notes, "hook(4)"));
    for (size_t i = 0; i < COUNT_OF(adds); i++)
        assert_int_equal(adds[i].dones, 1);
}

void a_group_that_fails_altogether_commits_nothing(void **state)
{
    struct world *w = *state;
    struct db_stats before, after;
    struct add adds[3];
    for (size_t i = 0; i < COUNT_OF(adds); i++) {
        add_init(&adds[i], w, i + 1);
        adds[i].after = ERR_INVALID;
    }
    db_stats(w->db, &before);
    submit_as_group(w, adds, COUNT_OF(adds));
    db_stats(w->db, &after);
    assert_int_equal(accounts(w), 0);
    assert_int_equal(after.failures - before.failures, 3);
}

void done_follows_the_hook_in_commit_order(void **state)
{
    struct world *w = *state;
    struct add adds[4];
    for (size_t i = 0; i < COUNT_OF(adds); i++) {
        add_init(&adds[i], w, i + 1);
        adds[i].emits = i != 1; /* no events: no hook */
    }
    submit_as_group(w, adds, COUNT_OF(adds));
    /* A driver may give the hook a whole group at once. */
    static const char *const orders[][2] = {{"hook(1)", "hook(3)"}, {"hook(3)", "hook(4)"},
                                            {"hook(1)", "done(1)"}, {"hook(3)", "done(3)"},
                                            {"hook(4)", "done(4)"}, {"done(1)", "done(2)"},
                                            {"done(2)", "done(3)"}, {"done(3)", "done(4)"}};
    for (size_t i = 0; i < COUNT_OF(orders); i++) {
        const char *first = strstr(w->notes, orders[i][0]);
        assert_non_null(first);
        assert_non_null(strstr(first, orders[i][1]));
    }
    assert_int_equal(strlen(w->notes), 7 * strlen("hook(1) "));
}

void order_holds_across_groups(void **state)
{
    struct world *w = *state;
    w->limits.group_max = 3;
    reopen(w);
    struct add adds[10];
    for (size_t i = 0; i < COUNT_OF(adds); i++)
        add_init(&adds[i], w, i + 1);
    submit_as_group(w, adds, COUNT_OF(adds));
    assert_string_equal(w->notes, "done(1) done(2) done(3) done(4) done(5) done(6) done(7) done(8) "
                                  "done(9) done(10) ");
    struct db_stats s;
    db_stats(w->db, &s);
    assert_true(s.commits >= 4);
    assert_int_equal(s.transactions, 11);
}

static enum err emit_many(struct tx *tx, struct db_job *job)
{
    struct add *a = CONTAINER_OF(job, struct add, job);
    for (uint64_t i = 0; i < 100; i++) { /* more than a small list holds */
        enum err e =
            outbox_emit(tx, (struct event){.type = EVENT_POST_LIKED, .actor = a->id, .object = i});
        if (e)
            return e;
    }
    return OK;
}

void every_event_of_a_job_reaches_the_hook(void **state)
{
    struct world *w = *state;
    struct add a;
    add_init(&a, w, 7);
    a.job.run = emit_many;
    submit(&a);
    await(&a.finished);
    size_t hooks = 0;
    for (const char *p = w->notes; (p = strstr(p, "hook(7)")); p++)
        hooks++;
    assert_int_equal(hooks, 100);
}

static enum err count_then_add(struct tx *tx, struct db_job *job)
{
    struct add *a = CONTAINER_OF(job, struct add, job);
    int64_t n;
    enum err e = tx_get_i64(tx, "SELECT count(*) FROM accounts", DB_NO_ARGS, &n);
    if (!e)
        e = insert_account(tx, a->id);
    if (!e && n != (int64_t)a->id - 1)
        return tx_fail(tx, ERR_INTERNAL, "saw %lld", (long long)n);
    return e;
}

void later_jobs_see_what_earlier_ones_wrote(void **state)
{
    struct world *w = *state;
    struct add adds[20];
    for (size_t i = 0; i < COUNT_OF(adds); i++) {
        add_init(&adds[i], w, i + 1);
        adds[i].job.run = count_then_add;
    }
    submit_as_group(w, adds, COUNT_OF(adds));
    for (size_t i = 0; i < COUNT_OF(adds); i++)
        assert_int_equal(adds[i].result, OK);
}

enum { RIVALS = 6, ROUNDS = 25 };

struct rival {
    struct world *world;
    uint64_t id;
    int failed, won;
};

static void run_rivals(struct world *w, void *(*start)(void *), struct rival rivals[RIVALS])
{
    pthread_t threads[RIVALS];
    for (size_t i = 0; i < RIVALS; i++) {
        rivals[i] = (struct rival){.world = w, .id = 100 + i};
        pthread_create(&threads[i], NULL, start, &rivals[i]);
    }
    for (size_t i = 0; i < RIVALS; i++)
        pthread_join(threads[i], NULL);
}

/* The event's actor says how often account 1 was counted. The object is the key that all share. */
static enum err count_up(struct tx *tx, void *arg)
{
    (void)arg;
    int64_t count;
    enum err e = tx_get_i64(tx,
                            "UPDATE accounts SET follower_count = follower_count + 1 WHERE id = 1 "
                            "RETURNING follower_count",
                            DB_NO_ARGS, &count);
    return e ? e
             : outbox_emit(
                   tx,
                   (struct event){.type = EVENT_POST_LIKED, .actor = (uint64_t)count, .object = 1});
}

static void *count_up_often(void *arg)
{
    struct rival *r = arg;
    for (int i = 0; i < ROUNDS; i++)
        r->failed += db_write(r->world->db, count_up, NULL, NULL) != OK;
    return NULL;
}

void jobs_with_a_common_key_are_told_in_commit_order(void **state)
{
    struct world *w = *state;
    assert_int_equal(add_account(w, 1), OK);
    struct rival rivals[RIVALS];
    run_rivals(w, count_up_often, rivals);
    for (size_t i = 0; i < RIVALS; i++)
        assert_int_equal(rivals[i].failed, 0);
    const char *at = w->notes;
    for (int i = 1; i <= RIVALS * ROUNDS; i++) {
        char expected[24];
        snprintf(expected, sizeof expected, "hook(%d) ", i);
        at = strstr(at, "hook(");
        assert_non_null(at);
        assert_memory_equal(at, expected, strlen(expected));
        at++;
    }
}

/* No row that two of them write in common: only what they read forbids the second. */
static enum err like_unless_liked(struct tx *tx, void *arg)
{
    struct rival *r = arg;
    int64_t likes;
    r->won = 0;
    enum err e = tx_get_i64(tx, "SELECT COUNT(*) FROM likes WHERE post_id = 5", DB_NO_ARGS, &likes);
    if (e || likes > 0)
        return e;
    r->won = 1;
    return tx_exec(tx, "INSERT INTO likes (post_id, account_id, created_at) VALUES (5, $1, 0)",
                   DB_ARGS(DB_I64(r->id)), NULL);
}

static void *like_once(void *arg)
{
    struct rival *r = arg;
    r->failed = db_write(r->world->db, like_unless_liked, r, NULL) != OK;
    return NULL;
}

static enum err forget_likes(struct tx *tx, void *arg)
{
    (void)arg;
    return tx_exec(tx, "DELETE FROM likes WHERE post_id = 5", DB_NO_ARGS, NULL);
}

void one_of_many_who_check_then_write_succeeds(void **state)
{
    struct world *w = *state;
    for (int round = 0; round < ROUNDS; round++) {
        struct rival rivals[RIVALS];
        int won = 0, failed = 0;
        assert_int_equal(db_write(w->db, forget_likes, NULL, NULL), OK);
        run_rivals(w, like_once, rivals);
        for (size_t i = 0; i < RIVALS; i++) {
            won += rivals[i].won;
            failed += rivals[i].failed;
        }
        assert_int_equal(won, 1);
        assert_int_equal(failed, 0);
    }
}

static enum err conflict_then_go_on(struct tx *tx, void *arg)
{
    enum err *seen = arg;
    enum err e = insert_account(tx, 1);
    if (e)
        return e;
    seen[0] = insert_account(tx, 1); /* primary key */
    seen[1] = tx_exec(tx, "INSERT INTO accounts (id, username) VALUES (2, 'u1')", DB_NO_ARGS, NULL);
    seen[2] = insert_account(tx, 3);
    return OK;
}

void a_conflict_ends_the_statement_not_the_transaction(void **state)
{
    struct world *w = *state;
    enum err seen[3] = {OK, OK, ERR_INTERNAL};
    char detail[TX_DETAIL_MAX];
    assert_int_equal(db_write(w->db, conflict_then_go_on, seen, detail), OK);
    assert_int_equal(seen[0], ERR_CONFLICT);
    assert_int_equal(seen[1], ERR_CONFLICT);
    assert_int_equal(seen[2], OK);
    assert_int_equal(accounts(w), 2);
    assert_string_equal(detail, "");
}

static enum err ignore_a_failed_statement(struct tx *tx, void *arg)
{
    (void)arg;
    enum err e = insert_account(tx, 1);
    if (e)
        return e;
    tx_exec(tx, "INSERT INTO no_such_table (id) VALUES (1)", DB_NO_ARGS, NULL);
    return OK;
}

void a_swallowed_failure_does_not_commit(void **state)
{
    struct world *w = *state;
    char detail[TX_DETAIL_MAX];
    assert_int_equal(db_write(w->db, ignore_a_failed_statement, NULL, detail), ERR_INTERNAL);
    assert_non_null(strstr(detail, "no_such_table"));
    assert_int_equal(accounts(w), 0);
    assert_int_equal(add_account(w, 1), OK);
}

/* ---- 7: limits, threads, the end ---- */

void a_full_queue_refuses(void **state)
{
    struct world *w = *state;
    w->limits.queue_max = 3;
    reopen(w);
    sem_t hold, reached;
    sem_init(&hold, 0, 0);
    sem_init(&reached, 0, 0);
    struct add first, adds[4];
    add_init(&first, w, 100);
    first.hold = &hold;
    first.reached = &reached;
    submit(&first);
    await(&reached);
    for (size_t i = 0; i < COUNT_OF(adds); i++)
        add_init(&adds[i], w, i + 1);
    for (size_t i = 0; i < 3; i++)
        submit(&adds[i]);
    assert_int_equal(db_submit(w->db, &adds[3].job), ERR_OVERLOADED);
    struct db_stats s;
    db_stats(w->db, &s);
    assert_int_equal(s.queue_depth, 3);
    assert_int_equal(s.queue_limit, 3);
    sem_post(&hold);
    await(&first.finished);
    for (size_t i = 0; i < 3; i++)
        await(&adds[i].finished);
    assert_int_equal(adds[3].runs + adds[3].dones, 0);
    submit(&adds[3]); /* there is room again */
    await(&adds[3].finished);
    assert_int_equal(accounts(w), 5);
}

void stop_finishes_the_queue_and_refuses_more(void **state)
{
    struct world *w = *state;
    sem_t hold, reached;
    sem_init(&hold, 0, 0);
    sem_init(&reached, 0, 0);
    struct add adds[40], late;
    for (size_t i = 0; i < COUNT_OF(adds); i++)
        add_init(&adds[i], w, i + 1);
    adds[0].hold = &hold;
    adds[0].reached = &reached;
    for (size_t i = 0; i < COUNT_OF(adds); i++)
        submit(&adds[i]);
    await(&reached);
    sem_post(&hold);
    db_stop(w->db);
    for (size_t i = 0; i < COUNT_OF(adds); i++) {
        assert_int_equal(adds[i].dones, 1);
        assert_int_equal(adds[i].result, OK);
    }
    add_init(&late, w, 99);
    assert_int_equal(db_submit(w->db, &late.job), ERR_STOPPING);
    assert_int_equal(late.dones, 0);
    assert_int_equal(add_account(w, 99), ERR_STOPPING);
    db_stop(w->db); /* once more changes nothing */
    reopen(w);
    assert_int_equal(accounts(w), 40);
}

struct chain {
    struct add add;
    uint64_t left;
    enum err refused;
};

static void submit_next(struct db_job *job, enum err result, const char *detail)
{
    struct add *a = CONTAINER_OF(job, struct add, job);
    struct chain *c = CONTAINER_OF(a, struct chain, add);
    if (result == OK && --c->left > 0) {
        a->id++;
        c->refused = db_submit(a->world->db, job);
        if (c->refused == OK)
            return;
    }
    add_done(job, result, detail);
}

void done_may_submit(void **state)
{
    struct world *w = *state;
    struct chain c = {.left = 50};
    add_init(&c.add, w, 1);
    c.add.job.done = submit_next;
    submit(&c.add);
    await(&c.add.finished);
    assert_int_equal(c.refused, OK);
    assert_int_equal(accounts(w), 50);
}

enum { THREADS = 4, PER_THREAD = 150 };

struct submitter {
    struct world *world;
    uint64_t first;
    int failed;
};

static void *submit_many(void *arg)
{
    struct submitter *s = arg;
    for (uint64_t i = 0; i < PER_THREAD; i++)
        s->failed += add_account(s->world, s->first + i) != OK;
    return NULL;
}

void many_threads_submit_at_once(void **state)
{
    struct world *w = *state;
    pthread_t threads[THREADS];
    struct submitter submitters[THREADS];
    for (size_t i = 0; i < THREADS; i++) {
        submitters[i] = (struct submitter){w, 1 + i * 1000, 0};
        pthread_create(&threads[i], NULL, submit_many, &submitters[i]);
    }
    for (size_t i = 0; i < THREADS; i++) {
        pthread_join(threads[i], NULL);
        assert_int_equal(submitters[i].failed, 0);
    }
    assert_int_equal(accounts(w), THREADS * PER_THREAD);
    struct db_stats s;
    db_stats(w->db, &s);
    assert_int_equal(s.transactions, THREADS * PER_THREAD);
    assert_true(s.commits <= s.transactions);
    assert_int_equal(s.queue_depth, 0);
}
