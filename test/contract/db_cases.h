/* What the cases of the db contract share: a driver under test, the world of one test, and a job
 * to submit.
 *
 * Jobs run on the driver's thread, so they only take notes; assertions are made on the test's. To
 * put several jobs into one group, a first job holds the writer until all are queued. */
#pragma once

#include <errno.h>
#include <pthread.h>
#include <semaphore.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/check.h"
#include "base/id.h"
#include "port/db.h"

struct store_limits {
    size_t queue_max, group_max;
    int readers;
    int64_t read_wait_ms;
};

struct driver {
    const char *name;
    const char *kind; /* what the test program's argument chooses by */
    enum err (*open)(const char *folder, const struct store_limits *limits, struct id_gen *ids,
                     struct db **out, char detail[TX_DETAIL_MAX]);
    bool parallel;  /* jobs run several at a time: only those with a common key keep an order */
    bool no_backup; /* its own tools do that */
    /* NULL: cannot be arranged for this driver */
    void (*set_full)(bool full);
    void (*set_sync_fails)(bool fails);
    uint64_t (*count_syncs)(void);
};

enum { NOTES_MAX = 4096 };

struct world {
    const struct driver *driver;
    char folder[128];
    struct store_limits limits;
    struct manual_clock clock;
    struct id_gen ids;
    struct db *db;

    pthread_mutex_t lock;
    char notes[NOTES_MAX]; /* what hook and done() said, in order */
    int fatal_calls;
};

int set_up(void **state); /* *state: the driver; then the world */
int tear_down(void **state);

enum err try_open(struct world *w, char detail[TX_DETAIL_MAX]);
void open_store(struct world *w);
void close_store(struct world *w);
void reopen(struct world *w); /* with w->limits as they are now */
void empty_folder(struct world *w);
int fatal_calls(struct world *w);

/* Adds the account `id` named u<id>; then does what `after` says. */
struct add {
    struct db_job job;
    struct world *world;
    uint64_t id;
    bool emits;
    enum err after; /* what run() returns when all went well */
    sem_t *hold;    /* run() waits for it first */
    sem_t *reached; /* run() has begun */
    int runs, dones;
    enum err result;
    char detail[TX_DETAIL_MAX];
    uint64_t syncs_at_done;
    sem_t finished;
};

void add_init(struct add *a, struct world *w, uint64_t id);
enum err add_run(struct tx *tx, struct db_job *job);
void add_done(struct db_job *job, enum err result, const char *detail);
void submit(struct add *a);
void submit_as_group(struct world *w, struct add *adds, size_t n); /* and waits for all */
void await(sem_t *s);

enum err insert_account(struct tx *tx, uint64_t id);
enum err add_account(struct world *w, uint64_t id);

/* tx_fn's: */
enum err count_accounts(struct tx *tx, void *int64);
struct account_question {
    uint64_t id;
    int64_t found;
};
enum err find_account(struct tx *tx, void *account_question);
int64_t accounts(struct world *w);
bool has_account(struct world *w, uint64_t id);

/* An invariant that only whole transactions keep: accounts 1 and 2 have equal counters. */
struct balance {
    struct world *world;
    _Atomic bool stop;
    _Atomic int64_t reads, broken;
};
enum err move_both(struct tx *tx, void *unused);
enum err compare_both(struct tx *tx, void *balance);

/* ---- the cases ---- */

#define DB_CASES(X)                                                                                \
    X(done_comes_after_a_sync)                                                                     \
    X(acknowledged_rows_survive_a_kill)                                                            \
    X(a_failed_job_leaves_nothing_and_harms_no_other)                                              \
    X(a_group_that_fails_altogether_commits_nothing)                                               \
    X(done_follows_the_hook_in_commit_order)                                                       \
    X(order_holds_across_groups)                                                                   \
    X(the_horizon_passes_what_is_committed)                                                        \
    X(every_event_of_a_job_reaches_the_hook)                                                       \
    X(later_jobs_see_what_earlier_ones_wrote)                                                      \
    X(jobs_with_a_common_key_are_told_in_commit_order)                                             \
    X(one_of_many_who_check_then_write_succeeds)                                                   \
    X(each_job_gets_its_own_first_statement)                                                       \
    X(a_first_statement_goes_with_its_job)                                                         \
    X(jobs_that_run_together_are_done_each)                                                        \
    X(a_job_that_is_left_runs_by_itself)                                                           \
    X(a_conflict_between_jobs_run_together_is_one_jobs)                                            \
    X(jobs_that_cannot_run_together_run_apart)                                                     \
    X(a_statement_runs_for_each_row_of_arguments)                                                  \
    X(a_row_is_found_for_each_row_of_arguments)                                                    \
    X(a_column_of_nulls_may_get_values_later)                                                      \
    X(a_key_that_is_taken_fails_all_rows)                                                          \
    X(a_conflict_ends_the_statement_not_the_transaction)                                           \
    X(a_swallowed_failure_does_not_commit)                                                         \
    X(a_read_is_one_snapshot)                                                                      \
    X(a_read_sees_every_done_before_it)                                                            \
    X(done_can_read_its_own_row)                                                                   \
    X(a_read_cannot_write)                                                                         \
    X(reads_nest_until_there_are_no_more_connections)                                              \
    X(a_read_passes_error_and_detail_on)                                                           \
    X(readers_never_see_half_a_transaction)                                                        \
    X(a_full_queue_refuses)                                                                        \
    X(stop_finishes_the_queue_and_refuses_more)                                                    \
    X(done_may_submit)                                                                             \
    X(many_threads_submit_at_once)                                                                 \
    X(a_full_disk_refuses_writes_and_recovers)                                                     \
    X(a_failed_sync_is_final)                                                                      \
    X(queued_jobs_fail_with_the_store)                                                             \
    X(values_come_back_as_they_went_in)                                                            \
    X(text_with_a_nul_is_refused)                                                                  \
    X(parameters_are_bound_by_their_number)                                                        \
    X(a_wrong_number_of_arguments_is_an_error)                                                     \
    X(ids_is_a_table_of_exact_ids)                                                                 \
    X(a_query_can_run_inside_itself)                                                               \
    X(a_large_result_can_be_read_or_left)                                                          \
    X(an_argument_may_be_null_first_and_a_value_later)                                             \
    X(sums_are_numbers)                                                                            \
    X(changed_rows_are_counted_and_returned)                                                       \
    X(an_update_answers_with_the_row_as_it_is_then)                                                \
    X(rows_left_open_do_not_outlive_the_transaction)                                               \
    X(one_number_of_no_row_is_not_found)                                                           \
    X(ids_never_regress_after_a_restart)                                                           \
    X(a_backup_of_a_busy_store_is_whole)                                                           \
    X(a_backup_into_nowhere_leaves_nothing)

#define DB_CASE_DECLARE(name) void name(void **state);
DB_CASES(DB_CASE_DECLARE)
#undef DB_CASE_DECLARE
