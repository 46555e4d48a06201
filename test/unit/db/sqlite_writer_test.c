/* The writer's groups: what becomes of the others when one job fails, and where SQLite takes the
 * whole transaction away (a statement that finds the store full makes it roll back everything;
 * max_page_count brings that about without a full disk). */
#include "store.h"

struct write {
    struct db_job job;
    uint64_t id;
    size_t bytes;                         /* of the bio */
    enum err refuse_before, refuse_after; /* writing */
    int runs, dones;
    int64_t heard; /* events that the hook had got when it was done */
    enum err result;
    sem_t *hold, *reached, finished;
};

static char filler[1 << 20];
static int64_t hooked_events, hook_calls;

static enum err write_run(struct tx *tx, struct db_job *job)
{
    struct write *w = CONTAINER_OF(job, struct write, job);
    w->runs++;
    if (w->reached) {
        sem_post(w->reached);
        sem_wait(w->hold);
        return OK;
    }
    if (w->refuse_before)
        return w->refuse_before;
    char name[24];
    int n = snprintf(name, sizeof name, "u%llu", (unsigned long long)w->id);
    enum err e = tx_exec(tx, "INSERT INTO accounts (id, username, bio) VALUES ($1, $2, $3)",
                         DB_ARGS(DB_I64(w->id), DB_TEXT(((struct str){name, (size_t)n})),
                                 DB_TEXT(((struct str){filler, w->bytes}))),
                         NULL);
    if (e)
        return e;
    e = outbox_emit(tx, (struct event){.type = EVENT_ACCOUNT_CREATED, .actor = w->id});
    return e ? e : w->refuse_after;
}

static void write_done(struct db_job *job, enum err result, const char *detail)
{
    struct write *w = CONTAINER_OF(job, struct write, job);
    (void)detail;
    w->dones++;
    w->heard = hooked_events;
    w->result = result;
    sem_post(&w->finished);
}

static void write_init(struct write *w, uint64_t id, size_t bytes)
{
    *w = (struct write){.job = {.run = write_run, .done = write_done}, .id = id, .bytes = bytes};
    sem_init(&w->finished, 0, 0);
}

static void write_as_group(struct store *s, struct write *writes, size_t n)
{
    sem_t hold, reached;
    sem_init(&hold, 0, 0);
    sem_init(&reached, 0, 0);
    struct write first;
    write_init(&first, 0, 0);
    first.hold = &hold;
    first.reached = &reached;
    assert_int_equal(db_submit(s->db, &first.job), OK);
    sem_wait(&reached);
    for (size_t i = 0; i < n; i++)
        assert_int_equal(db_submit(s->db, &writes[i].job), OK);
    sem_post(&hold);
    sem_wait(&first.finished);
    for (size_t i = 0; i < n; i++)
        sem_wait(&writes[i].finished);
}

static enum err limit_pages(struct tx *tx, void *arg)
{
    (void)arg;
    int64_t pages, limit;
    enum err e = tx_get_i64(tx, "PRAGMA page_count", DB_NO_ARGS, &pages);
    if (e)
        return e;
    char *sql = arg;
    snprintf(sql, 64, "PRAGMA max_page_count = %lld", (long long)pages + 20);
    return tx_get_i64(tx, sql, DB_NO_ARGS, &limit);
}

static enum err lift_limit(struct tx *tx, void *arg)
{
    return tx_get_i64(tx, "PRAGMA max_page_count = 1000000", DB_NO_ARGS, arg);
}

static void count_events(void *ctx, const struct event *events, size_t n)
{
    (void)ctx, (void)events;
    hooked_events += (int64_t)n;
    hook_calls++;
}

static void open_hooked(struct store *s)
{
    memset(filler, 'x', sizeof filler);
    store_open(s);
    hooked_events = hook_calls = 0;
    s->db->on_commit = count_events;
}

static void open_with_limit(struct store *s, char *sql)
{
    open_hooked(s);
    assert_int_equal(db_write(s->db, limit_pages, sql, NULL), OK);
}

static void the_others_run_again_without_the_one_that_lost_it_all(void **state)
{
    struct store *s = *state;
    char sql[64];
    open_with_limit(s, sql);
    struct write writes[5];
    for (size_t i = 0; i < COUNT_OF(writes); i++)
        write_init(&writes[i], i + 1, i == 2 ? sizeof filler : 10);
    write_as_group(s, writes, COUNT_OF(writes));
    for (size_t i = 0; i < COUNT_OF(writes); i++) {
        assert_int_equal(writes[i].dones, 1);
        assert_int_equal(writes[i].result, i == 2 ? ERR_STORAGE_FULL : OK);
    }
    assert_int_equal(writes[0].runs, 2);
    assert_int_equal(writes[2].runs, 1);
    assert_int_equal(writes[3].runs, 1);
    assert_int_equal(hooked_events, 4); /* each once, although two ran twice */
    struct db_stats stats;
    db_stats(s->db, &stats);
    assert_true(stats.full);
    store_close(s);
    assert_int_equal(store_ask_raw(s, "SELECT count(*) FROM accounts"), 4);
    assert_int_equal(store_ask_raw(s, "SELECT count(*) FROM outbox"), 4);
    assert_int_equal(s->fatal_calls, 0);
}

static void a_group_of_losers_gives_up_and_recovers(void **state)
{
    struct store *s = *state;
    char sql[64];
    open_with_limit(s, sql);
    struct write writes[8];
    for (size_t i = 0; i < COUNT_OF(writes); i++)
        write_init(&writes[i], i + 1, sizeof filler);
    write_as_group(s, writes, COUNT_OF(writes));
    int runs = 0;
    for (size_t i = 0; i < COUNT_OF(writes); i++) {
        assert_int_equal(writes[i].dones, 1);
        assert_int_equal(writes[i].result, ERR_STORAGE_FULL);
        runs += writes[i].runs;
    }
    assert_in_range(runs, 1, 8);
    assert_int_equal(hooked_events, 0);

    int64_t limit;
    assert_int_equal(db_write(s->db, lift_limit, &limit, NULL), OK);
    struct write after;
    write_init(&after, 100, sizeof filler);
    write_as_group(s, &after, 1);
    assert_int_equal(after.result, OK);
    struct db_stats stats;
    db_stats(s->db, &stats);
    assert_false(stats.full);
    assert_int_equal(s->fatal_calls, 0);
}

/* Goes on after the failure as if nothing had happened; must not write into a transaction of its
 * own. */
/* ---- jobs that fail by themselves ---- */

enum { OTHERS = 5 };

static void expect_all_but(struct write *writes, size_t n, size_t failed, enum err result)
{
    for (size_t i = 0; i < n; i++) {
        assert_int_equal(writes[i].dones, 1);
        assert_int_equal(writes[i].result, i == failed ? result : OK);
    }
}

static void who_fails_before_writing_costs_the_others_nothing(void **state)
{
    struct store *s = *state;
    open_hooked(s);
    struct write writes[OTHERS];
    for (size_t i = 0; i < OTHERS; i++)
        write_init(&writes[i], i + 1, 10);
    writes[2].refuse_before = ERR_FORBIDDEN;
    write_as_group(s, writes, OTHERS);
    expect_all_but(writes, OTHERS, 2, ERR_FORBIDDEN);
    for (size_t i = 0; i < OTHERS; i++)
        assert_int_equal(writes[i].runs, 1);
    assert_int_equal(hook_calls, 1); /* of the whole group, before any done() */
    for (size_t i = 0; i < OTHERS; i++)
        assert_int_equal(writes[i].heard, OTHERS - 1);
    store_close(s);
    assert_int_equal(store_ask_raw(s, "SELECT count(*) FROM accounts"), OTHERS - 1);
}

static void what_a_failed_job_wrote_is_undone_and_nothing_else(void **state)
{
    struct store *s = *state;
    open_hooked(s);
    uint64_t id = 1;
    for (int round = 0; round < 3; round++) { /* from the second on, each job is guarded */
        struct write writes[OTHERS];
        for (size_t i = 0; i < OTHERS; i++)
            write_init(&writes[i], id++, 10);
        writes[2].refuse_after = ERR_INVALID;
        write_as_group(s, writes, OTHERS);
        expect_all_but(writes, OTHERS, 2, ERR_INVALID);
        assert_int_equal(writes[0].runs, round == 0 ? 2 : 1);
        assert_int_equal(writes[4].runs, 1);
        assert_int_equal(hooked_events, (round + 1) * (OTHERS - 1));
    }
    store_close(s);
    assert_int_equal(store_ask_raw(s, "SELECT count(*) FROM accounts"), 3 * (OTHERS - 1));
    assert_int_equal(store_ask_raw(s, "SELECT count(*) FROM outbox"), 3 * (OTHERS - 1));
    assert_int_equal(store_ask_raw(s, "SELECT count(*) FROM accounts WHERE id IN (3, 8, 13)"), 0);
    assert_int_equal(s->fatal_calls, 0);
}

/* A conflict undoes its own statement alone, so a job may go on from it, and may fail without
 * having written. */
static void a_conflict_is_no_writing(void **state)
{
    struct store *s = *state;
    open_hooked(s);
    struct write first, writes[3];
    write_init(&first, 2, 10);
    write_as_group(s, &first, 1);
    for (size_t i = 0; i < COUNT_OF(writes); i++)
        write_init(&writes[i], i + 1, 10);
    write_as_group(s, writes, COUNT_OF(writes));
    expect_all_but(writes, COUNT_OF(writes), 1, ERR_CONFLICT);
    for (size_t i = 0; i < COUNT_OF(writes); i++)
        assert_int_equal(writes[i].runs, 1);
    store_close(s);
    assert_int_equal(store_ask_raw(s, "SELECT count(*) FROM accounts"), 3);
}

static enum err ignore_full(struct tx *tx, void *arg)
{
    (void)arg;
    tx_exec(tx, "INSERT INTO accounts (id, username, bio) VALUES (1, 'a', $1)",
            DB_ARGS(DB_TEXT(((struct str){filler, sizeof filler}))), NULL);
    tx_exec(tx, "INSERT INTO accounts (id, username) VALUES (2, 'b')", DB_NO_ARGS, NULL);
    return OK;
}

static void nothing_is_written_after_the_transaction_is_gone(void **state)
{
    struct store *s = *state;
    char sql[64];
    open_with_limit(s, sql);
    assert_int_equal(db_write(s->db, ignore_full, NULL, NULL), ERR_STORAGE_FULL);
    store_close(s);
    assert_int_equal(store_ask_raw(s, "SELECT count(*) FROM accounts"), 0);
}

static enum err end_transaction(struct tx *tx, void *arg)
{
    (void)arg;
    return tx_exec(tx, "ROLLBACK", DB_NO_ARGS, NULL);
}

static void a_job_that_ends_the_transaction_fails_alone(void **state)
{
    struct store *s = *state;
    store_open(s);
    assert_int_not_equal(db_write(s->db, end_transaction, NULL, NULL), OK);
    struct write after;
    write_init(&after, 1, 1);
    write_as_group(s, &after, 1);
    assert_int_equal(after.result, OK);
    assert_int_equal(s->fatal_calls, 0);
}

int main(void)
{
#define STORE_TEST(f) cmocka_unit_test_setup_teardown(f, store_set_up, store_tear_down)
    const struct CMUnitTest tests[] = {
        STORE_TEST(who_fails_before_writing_costs_the_others_nothing),
        STORE_TEST(what_a_failed_job_wrote_is_undone_and_nothing_else),
        STORE_TEST(a_conflict_is_no_writing),
        STORE_TEST(the_others_run_again_without_the_one_that_lost_it_all),
        STORE_TEST(a_group_of_losers_gives_up_and_recovers),
        STORE_TEST(nothing_is_written_after_the_transaction_is_gone),
        STORE_TEST(a_job_that_ends_the_transaction_fails_alone),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
