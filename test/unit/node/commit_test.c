/* Where the commit hook may wait, and where not. What it does is shown by the tests of the API and
 * of the cluster; that a shared store lets it wait, by db/postgres_apply. */
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "child.h"
#include "node/commit.h"
#include "plain_db.h"

struct wiring {
    struct api api;
    bool alone;
};

static void wire(void *arg)
{
    struct wiring *w = arg;
    struct membership membership = {0};
    struct commit commit = {0};
    commit_init(&commit, &w->api, w->alone ? NULL : &membership);
    commit_done(&commit);
}

/* A hook that waits for other servers would hold up the one writer of a store that is alone. */
static void only_a_shared_store_gets_a_hook_that_waits(void **state)
{
    struct manual_clock clock;
    struct id_gen ids;
    (void)state;
    manual_clock_init(&clock, INT64_C(1800000000000));
    id_gen_init(&ids, &clock.clock, 1);
    struct plain_db *store = plain_db_new(&clock.clock, &ids);
    struct wiring w = {.api.db = plain_db_port(store), .alone = true};
    assert_int_equal(signal_of(wire, &w), 0);
    w.alone = false;
    assert_int_equal(signal_of(wire, &w), SIGABRT);
    w.api.db->shared = true;
    assert_int_equal(signal_of(wire, &w), 0);
    w.alone = true; /* the views of one process, and the store of many */
    assert_int_equal(signal_of(wire, &w), SIGABRT);
    w.api.db->shared = false;
    plain_db_free(store);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(only_a_shared_store_gets_a_hook_that_waits),
    };
    return cmocka_run_group_tests_name("node/commit", tests, NULL, NULL);
}
