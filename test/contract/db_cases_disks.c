/* Line 8 of the contract: full and failing disks. */
#include "db_cases.h"

void a_full_disk_refuses_writes_and_recovers(void **state)
{
    struct world *w = *state;
    struct db_stats s;
    assert_int_equal(add_account(w, 1), OK);
    w->driver->set_full(true);
    struct add adds[3];
    for (size_t i = 0; i < COUNT_OF(adds); i++) {
        add_init(&adds[i], w, 10 + i);
        adds[i].emits = true;
    }
    submit_as_group(w, adds, COUNT_OF(adds));
    for (size_t i = 0; i < COUNT_OF(adds); i++)
        assert_int_equal(adds[i].result, ERR_STORAGE_FULL);
    assert_null(strstr(w->notes, "hook"));
    db_stats(w->db, &s);
    assert_true(s.full);
    assert_int_equal(accounts(w), 1); /* reads go on */
    w->driver->set_full(false);
    assert_int_equal(add_account(w, 2), OK);
    db_stats(w->db, &s);
    assert_false(s.full);
    assert_int_equal(fatal_calls(w), 0);
    reopen(w);
    assert_int_equal(accounts(w), 2);
}

void a_failed_sync_is_final(void **state)
{
    struct world *w = *state;
    assert_int_equal(add_account(w, 1), OK);
    w->driver->set_sync_fails(true);
    struct add adds[4];
    for (size_t i = 0; i < COUNT_OF(adds); i++) {
        add_init(&adds[i], w, 10 + i);
        adds[i].emits = true;
    }
    submit_as_group(w, adds, COUNT_OF(adds));
    assert_int_equal(fatal_calls(w), 1);
    assert_null(strstr(w->notes, "hook"));
    assert_null(strstr(w->notes, "done"));
    for (size_t i = 0; i < COUNT_OF(adds); i++)
        assert_int_equal(adds[i].result, ERR_UNKNOWN_COMMIT);
    /* Also when the disk behaves again: what it holds is unknown. */
    w->driver->set_sync_fails(false);
    assert_int_equal(add_account(w, 20), ERR_STORAGE_FAILED);
    assert_int_equal(fatal_calls(w), 1);
    assert_int_equal(accounts(w), 1);
    /* A new process finds what was acknowledged; the group is there as a whole or not at all. */
    reopen(w);
    assert_true(has_account(w, 1));
    assert_false(has_account(w, 20));
    int64_t n = accounts(w);
    assert_true(n == 1 || n == 5);
}

void queued_jobs_fail_with_the_store(void **state)
{
    struct world *w = *state;
    w->limits.group_max = 2;
    reopen(w);
    w->driver->set_sync_fails(true);
    struct add adds[6];
    for (size_t i = 0; i < COUNT_OF(adds); i++)
        add_init(&adds[i], w, 10 + i);
    submit_as_group(w, adds, COUNT_OF(adds));
    w->driver->set_sync_fails(false);
    assert_int_equal(fatal_calls(w), 1);
    size_t unknown = 0, failed = 0;
    for (size_t i = 0; i < COUNT_OF(adds); i++) {
        assert_int_equal(adds[i].dones, 1);
        unknown += adds[i].result == ERR_UNKNOWN_COMMIT;
        failed += adds[i].result == ERR_STORAGE_FAILED;
    }
    assert_int_equal(unknown, 2);
    assert_int_equal(failed, 4);
}
