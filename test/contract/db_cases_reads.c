/* Line 6 of the contract: reads; and what is said of backups and of ids after a restart. */
#include "db_cases.h"

/* ---- 6: reads ---- */

struct two_looks {
    struct world *world;
    int64_t first, second;
    enum err written;
};

static enum err look_write_look(struct tx *tx, void *arg)
{
    struct two_looks *t = arg;
    enum err e = count_accounts(tx, &t->first);
    if (e)
        return e;
    t->written = add_account(t->world, 50);
    return count_accounts(tx, &t->second);
}

void a_read_is_one_snapshot(void **state)
{
    struct world *w = *state;
    struct two_looks t = {.world = w};
    assert_int_equal(add_account(w, 1), OK);
    assert_int_equal(db_read(w->db, look_write_look, &t, NULL), OK);
    assert_int_equal(t.written, OK);
    assert_int_equal(t.first, 1);
    assert_int_equal(t.second, 1);
    assert_int_equal(accounts(w), 2);
}

void a_read_sees_every_done_before_it(void **state)
{
    struct world *w = *state;
    for (uint64_t id = 1; id <= 100; id++) {
        assert_int_equal(add_account(w, id), OK);
        assert_true(has_account(w, id));
    }
}

static void read_in_done(struct db_job *job, enum err result, const char *detail)
{
    struct add *a = CONTAINER_OF(job, struct add, job);
    struct account_question q = {.id = a->id};
    enum err e = db_read(a->world->db, find_account, &q, NULL);
    add_done(job, result ? result : e ? e : q.found == 1 ? OK : ERR_NOT_FOUND, detail);
}

void done_can_read_its_own_row(void **state)
{
    struct world *w = *state;
    struct add a;
    add_init(&a, w, 9);
    a.job.done = read_in_done;
    submit(&a);
    await(&a.finished);
    assert_int_equal(a.result, OK);
}

static enum err write_in_read(struct tx *tx, void *arg)
{
    (void)arg;
    return insert_account(tx, 1);
}

void a_read_cannot_write(void **state)
{
    struct world *w = *state;
    assert_int_equal(db_read(w->db, write_in_read, NULL, NULL), ERR_INTERNAL);
    assert_int_equal(accounts(w), 0);
}

static enum err read_in_read(struct tx *tx, void *arg)
{
    struct world *w = arg;
    int64_t outer, inner;
    enum err e = count_accounts(tx, &outer);
    if (!e)
        e = db_read(w->db, count_accounts, &inner, NULL);
    return e ? e : outer == inner ? OK : ERR_INTERNAL;
}

void reads_nest_until_there_are_no_more_connections(void **state)
{
    struct world *w = *state;
    assert_int_equal(db_read(w->db, read_in_read, w, NULL), OK);
    w->limits.readers = 1;
    w->limits.read_wait_ms = 20;
    reopen(w);
    assert_int_equal(db_read(w->db, read_in_read, w, NULL), ERR_OVERLOADED);
    assert_int_equal(accounts(w), 0); /* and the connection is back */
}

static enum err fail_in_read(struct tx *tx, void *arg)
{
    (void)arg;
    return tx_fail(tx, ERR_NOT_FOUND, "no such bird");
}

void a_read_passes_error_and_detail_on(void **state)
{
    struct world *w = *state;
    char detail[TX_DETAIL_MAX];
    assert_int_equal(db_read(w->db, fail_in_read, NULL, detail), ERR_NOT_FOUND);
    assert_string_equal(detail, "no such bird");
}

static void *read_balance(void *arg)
{
    struct balance *b = arg;
    while (!b->stop) {
        if (db_read(b->world->db, compare_both, b, NULL) != OK)
            b->broken++;
        b->reads++;
    }
    return NULL;
}

void readers_never_see_half_a_transaction(void **state)
{
    struct world *w = *state;
    assert_int_equal(add_account(w, 1), OK);
    assert_int_equal(add_account(w, 2), OK);
    struct balance b = {.world = w};
    pthread_t threads[3];
    for (size_t i = 0; i < COUNT_OF(threads); i++)
        pthread_create(&threads[i], NULL, read_balance, &b);
    for (int i = 0; i < 200 || b.reads < 50; i++)
        assert_int_equal(db_write(w->db, move_both, NULL, NULL), OK);
    b.stop = true;
    for (size_t i = 0; i < COUNT_OF(threads); i++)
        pthread_join(threads[i], NULL);
    assert_int_equal(b.broken, 0);
}

/* ---- the driver ---- */

void ids_never_regress_after_a_restart(void **state)
{
    struct world *w = *state;
    struct add a;
    add_init(&a, w, id_next(&w->ids));
    a.emits = true; /* the event's id is above the account's */
    submit(&a);
    await(&a.finished);
    uint64_t last = id_next(&w->ids) - 1;
    close_store(w);
    manual_clock_init(&w->clock, ID_EPOCH_MS + 1000); /* the clock was set back */
    open_store(w);
    assert_true(id_next(&w->ids) >= last);
    assert_true(id_next(&w->ids) > a.id);
}

struct busy_writer {
    struct world *world;
    _Atomic bool stop;
    _Atomic int written;
};

static void *keep_writing(void *arg)
{
    struct busy_writer *b = arg;
    for (uint64_t id = 1000; !b->stop; id++)
        b->written +=
            add_account(b->world, id) == OK && db_write(b->world->db, move_both, NULL, NULL) == OK;
    return NULL;
}

struct backup_progress {
    struct busy_writer *writer;
    int calls, last_done, total;
    bool backwards;
};

/* Something is committed between any two steps of the copy. */
static void on_progress(void *arg, int done, int total)
{
    struct backup_progress *p = arg;
    p->backwards |= done < p->last_done || done > total;
    p->last_done = done;
    p->total = total;
    p->calls++;
    for (int written = p->writer->written; p->writer->written == written;)
        usleep(100);
}

static enum err write_many_pages(struct tx *tx, void *arg)
{
    static char bio[20000];
    (void)arg;
    memset(bio, 'x', sizeof bio);
    enum err e = OK;
    for (uint64_t id = 100; id < 400 && !e; id++) {
        e = insert_account(tx, id);
        if (!e)
            e = tx_exec(tx, "UPDATE accounts SET bio = $2 WHERE id = $1",
                        DB_ARGS(DB_I64(id), DB_TEXT(((struct str){bio, sizeof bio}))), NULL);
    }
    return e;
}

void a_backup_of_a_busy_store_is_whole(void **state)
{
    struct world *w = *state;
    char path[200];
    if (w->driver->no_backup) {
        snprintf(path, sizeof path, "%s/copy", w->folder);
        assert_int_equal(db_backup(w->db, path, NULL, NULL), ERR_INVALID);
        return;
    }
    snprintf(path, sizeof path, "%s/copy", w->folder);
    assert_int_equal(mkdir(path, 0700), 0);
    snprintf(path, sizeof path, "%s/copy/store.db", w->folder);
    assert_int_equal(add_account(w, 1), OK);
    assert_int_equal(add_account(w, 2), OK);
    assert_int_equal(db_write(w->db, write_many_pages, NULL, NULL), OK);

    struct busy_writer b = {.world = w};
    pthread_t thread;
    pthread_create(&thread, NULL, keep_writing, &b);
    while (b.written < 20)
        usleep(100);
    struct backup_progress p = {.writer = &b};
    enum err e = db_backup(w->db, path, on_progress, &p);
    b.stop = true;
    pthread_join(thread, NULL);
    assert_int_equal(e, OK);
    assert_true(p.calls > 1 && !p.backwards && p.last_done == p.total);
    assert_int_equal(db_backup(w->db, path, NULL, NULL), ERR_CONFLICT);

    struct world copy = *w;
    memcpy(copy.folder + strlen(copy.folder), "/copy", sizeof "/copy");
    open_store(&copy);
    assert_in_range(accounts(&copy), 322, accounts(w));
    struct balance balance = {.world = &copy};
    assert_int_equal(db_read(copy.db, compare_both, &balance, NULL), OK);
    assert_int_equal(balance.broken, 0);
    assert_int_equal(add_account(&copy, 5), OK); /* it is a store like any other */
    close_store(&copy);
}

void a_backup_into_nowhere_leaves_nothing(void **state)
{
    struct world *w = *state;
    char path[200];
    snprintf(path, sizeof path, "%s/no/such/folder/copy.db", w->folder);
    assert_int_not_equal(db_backup(w->db, path, NULL, NULL), OK);
    assert_int_equal(add_account(w, 1), OK);
}

/* ---- what nodes that share a store rely on ---- */

static enum err newest_event(struct tx *tx, void *out)
{
    return tx_get_i64(tx, "SELECT max(id) FROM outbox", DB_NO_ARGS, out);
}

void the_horizon_passes_what_is_committed(void **state)
{
    struct world *w = *state;
    struct add a;
    add_init(&a, w, 1);
    a.emits = true;
    submit_as_group(w, &a, 1);
    assert_int_equal(a.result, OK);
    int64_t event = 0;
    uint64_t horizon = 0;
    assert_int_equal(db_read(w->db, newest_event, &event, NULL), OK);
    assert_true(event > 0);
    assert_int_equal(db_horizon(w->db, &horizon), OK);
    if (!w->db->shared)
        assert_true(horizon == UINT64_MAX);
    while (horizon < (uint64_t)event) {
        usleep(1000);
        assert_int_equal(db_horizon(w->db, &horizon), OK);
    }
    int64_t wall_ms = 0, error_us = 0;
    assert_int_equal(db_now(w->db, &wall_ms, &error_us), OK);
    assert_true(wall_ms >= id_time_ms((uint64_t)event));
    assert_true(w->db->shared ? error_us > 0 : error_us == 0);
}
