/* The world of one test: a folder, a store in it, a clock that stands still, and notes of what hook
 * and done() said, in their order. */
#include "db_cases.h"

#include <ftw.h>

static void note(struct world *w, const char *format, ...) __attribute__((format(printf, 2, 3)));
static void note(struct world *w, const char *format, ...)
{
    pthread_mutex_lock(&w->lock);
    size_t used = strlen(w->notes);
    va_list args;
    va_start(args, format);
    vsnprintf(w->notes + used, NOTES_MAX - used, format, args);
    va_end(args);
    pthread_mutex_unlock(&w->lock);
}

static void on_commit(void *ctx, const struct event *events, size_t n)
{
    for (size_t i = 0; i < n; i++)
        note(ctx, "hook(%llu) ", (unsigned long long)events[i].actor);
}

static void on_fatal(void *ctx, const char *why)
{
    struct world *w = ctx;
    pthread_mutex_lock(&w->lock);
    w->fatal_calls += why && *why ? 1 : 100;
    pthread_mutex_unlock(&w->lock);
}

int fatal_calls(struct world *w)
{
    pthread_mutex_lock(&w->lock);
    int calls = w->fatal_calls;
    pthread_mutex_unlock(&w->lock);
    return calls;
}

enum err try_open(struct world *w, char detail[TX_DETAIL_MAX])
{
    id_gen_init(&w->ids, &w->clock.clock, 1);
    enum err e = w->driver->open(w->folder, &w->limits, &w->ids, &w->db, detail);
    if (e)
        return e;
    w->db->on_commit = on_commit;
    w->db->on_commit_ctx = w;
    w->db->fatal = on_fatal;
    w->db->fatal_ctx = w;
    return OK;
}

void open_store(struct world *w)
{
    char detail[TX_DETAIL_MAX];
    enum err e = try_open(w, detail);
    if (e)
        fail_msg("open: %s %s", err_name(e), detail);
}

void close_store(struct world *w)
{
    if (!w->db)
        return;
    db_stop(w->db);
    db_free(w->db);
    w->db = NULL;
}

void reopen(struct world *w)
{
    close_store(w);
    open_store(w);
}

int set_up(void **state)
{
    struct world *w = calloc(1, sizeof *w);
    CHECK(w);
    w->driver = *state;
    snprintf(w->folder, sizeof w->folder, "/tmp/fantail-db-XXXXXX");
    CHECK(mkdtemp(w->folder));
    w->limits = (struct store_limits){1000, 64, 3, 2000};
    manual_clock_init(&w->clock, ID_EPOCH_MS + 1000000);
    pthread_mutex_init(&w->lock, NULL);
    open_store(w);
    *state = w;
    return 0;
}

static int remove_entry(const char *path, const struct stat *st, int kind, struct FTW *ftw)
{
    (void)st, (void)kind, (void)ftw;
    return remove(path);
}

static void remove_folder(struct world *w)
{
    nftw(w->folder, remove_entry, 8, FTW_DEPTH | FTW_PHYS);
}

void empty_folder(struct world *w)
{
    remove_folder(w);
    assert_int_equal(mkdir(w->folder, 0700), 0);
}

int tear_down(void **state)
{
    struct world *w = *state;
    close_store(w);
    remove_folder(w);
    pthread_mutex_destroy(&w->lock);
    free(w);
    return 0;
}

enum err insert_account(struct tx *tx, uint64_t id)
{
    char name[24];
    int n = snprintf(name, sizeof name, "u%llu", (unsigned long long)id);
    return tx_exec(tx, "INSERT INTO accounts (id, username) VALUES ($1, $2)",
                   DB_ARGS(DB_I64(id), DB_TEXT(((struct str){name, (size_t)n}))), NULL);
}

enum err add_run(struct tx *tx, struct db_job *job)
{
    struct add *a = CONTAINER_OF(job, struct add, job);
    a->runs++;
    if (a->reached)
        sem_post(a->reached);
    if (a->hold)
        while (sem_wait(a->hold) != 0 && errno == EINTR)
            ;
    enum err e = a->id ? insert_account(tx, a->id) : OK;
    if (e)
        return e;
    if (a->emits)
        e = outbox_emit(tx, (struct event){.type = EVENT_ACCOUNT_CREATED, .actor = a->id});
    if (e)
        return e;
    return a->after ? tx_fail(tx, a->after, "job %llu", (unsigned long long)a->id) : OK;
}

void add_done(struct db_job *job, enum err result, const char *detail)
{
    struct add *a = CONTAINER_OF(job, struct add, job);
    a->dones++;
    a->result = result;
    snprintf(a->detail, sizeof a->detail, "%s", detail);
    if (a->world->driver->count_syncs)
        a->syncs_at_done = a->world->driver->count_syncs();
    if (a->id)
        note(a->world, result ? "failed(%llu) " : "done(%llu) ", (unsigned long long)a->id);
    sem_post(&a->finished);
}

void add_init(struct add *a, struct world *w, uint64_t id)
{
    *a = (struct add){.job = {.run = add_run, .done = add_done}, .world = w, .id = id};
    sem_init(&a->finished, 0, 0);
}

void await(sem_t *s)
{
    while (sem_wait(s) != 0)
        assert_int_equal(errno, EINTR);
}

void submit(struct add *a)
{
    assert_int_equal(db_submit(a->world->db, &a->job), OK);
}

/* Makes all of them one group: a first job holds the writer until they are queued. */
void submit_as_group(struct world *w, struct add *adds, size_t n)
{
    sem_t hold, reached;
    sem_init(&hold, 0, 0);
    sem_init(&reached, 0, 0);
    struct add first;
    add_init(&first, w, 0);
    first.hold = &hold;
    first.reached = &reached;
    submit(&first);
    await(&reached);
    for (size_t i = 0; i < n; i++)
        submit(&adds[i]);
    sem_post(&hold);
    await(&first.finished);
    for (size_t i = 0; i < n; i++)
        await(&adds[i].finished);
}

enum err count_accounts(struct tx *tx, void *arg)
{
    return tx_get_i64(tx, "SELECT count(*) FROM accounts", DB_NO_ARGS, arg);
}

int64_t accounts(struct world *w)
{
    int64_t n = -1;
    assert_int_equal(db_read(w->db, count_accounts, &n, NULL), OK);
    return n;
}

enum err find_account(struct tx *tx, void *arg)
{
    struct account_question *q = arg;
    return tx_get_i64(tx, "SELECT count(*) FROM accounts WHERE id = $1", DB_ARGS(DB_I64(q->id)),
                      &q->found);
}

bool has_account(struct world *w, uint64_t id)
{
    struct account_question q = {.id = id};
    assert_int_equal(db_read(w->db, find_account, &q, NULL), OK);
    return q.found == 1;
}

static enum err write_account(struct tx *tx, void *arg)
{
    return insert_account(tx, *(uint64_t *)arg);
}

enum err add_account(struct world *w, uint64_t id)
{
    return db_write(w->db, write_account, &id, NULL);
}

enum err move_both(struct tx *tx, void *arg)
{
    (void)arg;
    enum err e = tx_exec(tx, "UPDATE accounts SET follower_count = follower_count + 1 WHERE id = 1",
                         DB_NO_ARGS, NULL);
    return e ? e
             : tx_exec(tx, "UPDATE accounts SET follower_count = follower_count + 1 WHERE id = 2",
                       DB_NO_ARGS, NULL);
}

enum err compare_both(struct tx *tx, void *arg)
{
    struct balance *b = arg;
    int64_t one, two;
    enum err e =
        tx_get_i64(tx, "SELECT follower_count FROM accounts WHERE id = 1", DB_NO_ARGS, &one);
    if (!e)
        e = tx_get_i64(tx, "SELECT follower_count FROM accounts WHERE id = 2", DB_NO_ARGS, &two);
    if (!e && one != two)
        b->broken++;
    return e;
}
