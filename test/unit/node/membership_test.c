/* Two nodes of one store, with real engines and views in memory of their own, a clock that is moved
 * by hand, and steps that the test calls: numbers and reports, trust in the views, quarantine, and
 * yielding. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/check.h"
#include "crew.h"
#include "model/views_state.h"
#include "node/membership.h"
#include "view/memory/memory.h"

enum { NODES = 2, TICK_MS = 100 };

struct member {
    struct membership m;
    struct cluster cluster;
    struct views *views;
    const struct views_ops *real; /* of the views: what lies under the test's own */
    struct views_ops ops;
    struct cards *cards;
    struct invalidation invalidation;
    struct bus bus;
    bool suspect, away, bus_away; /* away: the views do not answer */
    int cleared;
    int64_t beat_us, views_us, lead_us;
    bool rests; /* none of its steps run */
};

struct place {
    struct crew crew;
    struct member nodes[NODES];
    int64_t paused_ms; /* in membership_views_lost */
    int failing;       /* pauses until the store can be written again */
};

static struct place *here;

/* ---- the parts ---- */

static struct member *member_of(struct views *v)
{
    for (int i = 0; i < NODES; i++)
        if (here->nodes[i].views == v)
            return &here->nodes[i];
    fail_msg("views of nobody");
    return NULL;
}

static enum err is_complete(struct views *v, bool *complete)
{
    struct member *n = member_of(v);
    return n->away ? ERR_UNAVAILABLE : n->real->is_complete(v, complete);
}

static enum err clear(struct views *v)
{
    struct member *n = member_of(v);
    n->cleared++;
    return n->real->clear(v);
}

static void suspect_views(struct views *v, bool on)
{
    struct member *n = member_of(v);
    n->suspect = on;
    n->real->suspect(v, on);
}

static void suspect_kept(struct invalidation *i, bool on)
{
    struct member *n = CONTAINER_OF(i, struct member, invalidation);
    assert_int_equal(n->suspect, on); /* after the views, and the same */
}

static bool is_connected(struct bus *b)
{
    return !CONTAINER_OF(b, struct member, bus)->bus_away;
}

static const struct invalidation_ops invalidation_table = {.suspect = suspect_kept};
static const struct bus_ops bus_table = {.is_connected = is_connected};

/* The time that a caller waits passes for all, and no node beats meanwhile. */
static void pause_all(void *ctx, int64_t ms)
{
    struct place *p = ctx;
    p->paused_ms += ms;
    manual_clock_advance(&p->crew.clock, ms);
    if (p->failing > 0 && --p->failing == 0)
        p->crew.faults->writes_fail = OK;
}

static void join(struct place *p, int i, unsigned roles)
{
    struct member *n = &p->nodes[i];
    char why[300] = "", address[32];
    snprintf(address, sizeof address, "http://node:%d", i);
    struct membership_config config = {.control = p->crew.db,
                                       .clock = &p->crew.clock.clock,
                                       .cluster = &n->cluster,
                                       .token = 100 + (uint64_t)i,
                                       .roles = roles,
                                       .address = address};
    if (membership_join(&n->m, &config, why) != OK)
        fail_msg("%s", why);
    membership_attach(&n->m, &(struct membership_parts){.db = p->crew.db,
                                                        .views = n->views,
                                                        .cards = n->cards,
                                                        .invalidation = &n->invalidation,
                                                        .bus = &n->bus,
                                                        .engine = p->crew.nodes[i].engine,
                                                        .pause = pause_all,
                                                        .pause_ctx = p});
    n->beat_us = n->views_us = n->lead_us = 0;
}

static void add(struct place *p, int i)
{
    struct member *n = &p->nodes[i];
    struct memory_views_config config = {
        .timeline_cap = 100, .pull_cap = 100, .clock = &p->crew.clock.clock};
    assert_int_equal(views_memory_open(&config, &n->views), OK);
    n->real = n->views->ops;
    n->ops = *n->real;
    n->ops.is_complete = is_complete;
    n->ops.clear = clear;
    n->ops.suspect = suspect_views;
    n->views->ops = &n->ops;
    assert_int_equal(views_loaded(n->views), OK);
    n->cards = cards_memory_new(1 << 20, &p->crew.clock.clock);
    n->invalidation.ops = &invalidation_table;
    n->bus.ops = &bus_table;
    crew_add(&p->crew, i);
    join(p, i, ROLE_ALL);
}

static int set_up(void **state)
{
    struct place *p = here = calloc(1, sizeof *p);
    crew_init(&p->crew, NULL);
    for (int i = 0; i < NODES; i++)
        add(p, i);
    *state = p;
    return 0;
}

static int tear_down(void **state)
{
    struct place *p = *state;
    for (int i = 0; i < NODES; i++) {
        struct member *n = &p->nodes[i];
        membership_done(&n->m);
        crew_kill(&p->crew, i);
        n->views->ops = n->real;
        views_free(n->views);
        cards_free(n->cards);
    }
    crew_done(&p->crew);
    free(p);
    return 0;
}

/* ---- time ---- */

static bool leads(struct place *p, int i)
{
    return engine_leads(p->crew.nodes[i].engine);
}

static void run(struct place *p, int i)
{
    struct member *n = &p->nodes[i];
    int64_t now_us = p->crew.clock.mono_us;
    if (n->rests)
        return;
    if (now_us >= n->beat_us)
        n->beat_us = membership_beat_step(&n->m);
    if (now_us >= n->lead_us)
        n->lead_us = leadership_step(&n->m.leadership);
    if (now_us >= n->views_us)
        n->views_us = membership_views_step(&n->m);
    membership_decide_trust(&n->m);
    assert_false(leads(p, 0) && leads(p, 1));
}

static void pass(struct place *p, int64_t ms)
{
    for (int64_t until_us = p->crew.clock.mono_us + ms * 1000; p->crew.clock.mono_us < until_us;) {
        for (int i = 0; i < NODES; i++)
            run(p, i);
        manual_clock_advance(&p->crew.clock, TICK_MS);
    }
}

/* ---- numbers and reports ---- */

static void each_has_a_number_and_keeps_it(void **state)
{
    struct place *p = *state;
    assert_int_equal(p->nodes[0].cluster.number, 1);
    assert_int_equal(p->nodes[1].cluster.number, 2);
    membership_done(&p->nodes[0].m);
    join(p, 0, ROLE_ALL);
    assert_int_equal(p->nodes[0].cluster.number, 1);
}

/* Ends the process: what it said about its end is its exit code. */
static int code_of_a_beat(struct place *p, int i)
{
    fflush(NULL);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        (void)membership_beat_step(&p->nodes[i].m);
        _exit(EXIT_SUCCESS);
    }
    int status = 0;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    return WEXITSTATUS(status);
}

/* A copied data folder, or a restart while the old process hangs: ids must not be made twice. */
static void who_loses_its_number_to_another_process_ends(void **state)
{
    struct place *p = *state;
    assert_int_equal(code_of_a_beat(p, 0), EXIT_SUCCESS);
    plain_db_run(p->crew.store, "UPDATE nodes SET started_at = started_at + 1 WHERE number = 1");
    assert_int_equal(code_of_a_beat(p, 0), EXIT_FAILURE);
    assert_int_equal(code_of_a_beat(p, 1), EXIT_SUCCESS);
}

static void each_knows_what_the_other_said(void **state)
{
    struct place *p = *state;
    struct cluster_node seen[NODES + 1];
    crew_commit(&p->crew, EVENT_POST_CREATED, 1);
    pass(p, 3000);
    assert_true(leads(p, 0));
    struct cluster *k = &p->nodes[1].cluster;
    assert_int_equal(k->nodes(k->ctx, seen, NODES + 1), NODES);
    assert_string_equal(seen[0].address, "http://node:0");
    assert_true(seen[0].report.known && seen[0].report.leads && !seen[1].report.leads);
    assert_true(seen[1].report.views && seen[1].report.bus && !seen[1].report.quarantined);
    struct engine_stats stats;
    engine_stats(p->crew.nodes[0].engine, &stats);
    assert_int_equal(membership_undone(&p->nodes[1].m), stats.undone);
    assert_int_equal(atomic_load(&k->db_state), PART_UP);
    assert_int_equal(atomic_load(&k->views_state), PART_UP);
    membership_leave(&p->nodes[0].m);
    p->nodes[0].rests = true;
    pass(p, 2000);
    k->nodes(k->ctx, seen, NODES);
    assert_true(seen[0].leaving);
    assert_true(leads(p, 1)); /* the lease was given back */
}

/* ---- trust ---- */

static void views_are_trusted_only_for_a_while_after_a_look(void **state)
{
    struct place *p = *state;
    struct member *n = &p->nodes[0];
    pass(p, 1000);
    assert_false(n->suspect);
    n->rests = true;
    int64_t looked_us = atomic_load(&n->m.trusted_us);
    p->crew.clock.mono_us = looked_us + MEMBER_TRUST_MS * INT64_C(1000);
    membership_decide_trust(&n->m);
    assert_false(n->suspect);
    p->crew.clock.mono_us++;
    membership_decide_trust(&n->m);
    assert_true(n->suspect);
    assert_int_equal(atomic_load(&n->cluster.views_state), PART_SUSPECT);
    n->rests = false;
    pass(p, 1000);
    assert_false(n->suspect);
}

static void after_a_loss_no_node_trusts_the_views(void **state)
{
    struct place *p = *state;
    pass(p, 1000);
    p->nodes[0].rests = p->nodes[1].rests = true; /* the other node does not notice */
    membership_views_lost(&p->nodes[1].m);
    assert_in_range(p->paused_ms, MEMBER_SUSPECT_MS, MEMBER_SUSPECT_MS + 100);
    for (int i = 0; i < NODES; i++) {
        membership_decide_trust(&p->nodes[i].m);
        assert_true(p->nodes[i].suspect);
    }
    /* Truth has spoken of it for long: the next loss has nothing to wait for. */
    p->paused_ms = 0;
    membership_views_lost(&p->nodes[1].m);
    assert_int_equal(p->paused_ms, 0);
    /* The leader loads them once for both, and all trust them again. */
    p->nodes[0].rests = p->nodes[1].rests = false;
    pass(p, 8000);
    int leader = leads(p, 0) ? 0 : 1;
    assert_true(leads(p, leader));
    assert_int_equal(p->nodes[leader].cleared, 1);
    assert_int_equal(p->nodes[1 - leader].cleared, 0);
    assert_false(p->nodes[0].suspect || p->nodes[1].suspect);
    /* A loss after a load counts from when it was seen. */
    membership_views_lost(&p->nodes[1].m);
    assert_in_range(p->paused_ms, MEMBER_SUSPECT_MS, MEMBER_SUSPECT_MS + 100);
}

/* By the real clock: the other tests only count what would be waited. */
static void who_loses_a_change_waits(void **state)
{
    struct place *p = *state;
    pass(p, 1000);
    p->nodes[0].m.parts.pause = NULL;
    int64_t began_ms = clock_mono_ms(clock_system());
    membership_views_lost(&p->nodes[0].m);
    assert_true(clock_mono_ms(clock_system()) - began_ms >= MEMBER_SUSPECT_MS);
}

static void a_loss_is_told_however_long_it_takes(void **state)
{
    struct place *p = *state;
    pass(p, 1000);
    p->crew.faults->writes_fail = ERR_UNAVAILABLE;
    p->failing = 7;
    membership_views_lost(&p->nodes[0].m);
    assert_true(p->nodes[0].suspect);
    assert_int_equal(
        crew_ask(&p->crew, "SELECT COUNT(*) FROM meta WHERE name = 'views_lost' AND value = 1"), 1);
    assert_true(p->paused_ms >= MEMBER_SUSPECT_MS);
}

static void views_that_are_not_complete_are_loaded_by_the_leader(void **state)
{
    struct place *p = *state;
    pass(p, 1000);
    assert_true(leads(p, 0));
    assert_int_equal(p->nodes[0].real->clear(p->nodes[0].views), OK); /* as after a flush */
    pass(p, 2000);
    assert_int_equal(p->nodes[0].cleared, 1);
    assert_int_equal(atomic_load(&p->nodes[0].cluster.views_lost), 1);
    assert_int_equal(atomic_load(&p->nodes[0].cluster.views_state), PART_UP);
    assert_false(p->nodes[0].suspect || p->nodes[1].suspect);
}

static enum err run_look(struct tx *tx, void *arg)
{
    uint64_t *counts = arg;
    return views_state_read(tx, &counts[0], &counts[1]);
}

/* It may have written what the next leader's clearing should have taken away. */
static void a_load_in_a_term_that_is_over_is_a_loss(void **state)
{
    struct place *p = *state;
    uint64_t before[2], after[2];
    pass(p, 1000);
    p->nodes[0].rests = p->nodes[1].rests = true;
    membership_views_lost(&p->nodes[0].m);
    plain_db_run(p->crew.store, "UPDATE leases SET term = term + 1, holder = 7, beat = beat + 1");
    assert_int_equal(plain_db_look(p->crew.store, run_look, before), OK);
    assert_true(leads(p, 0)); /* it does not know yet */
    (void)membership_views_step(&p->nodes[0].m);
    assert_int_equal(p->nodes[0].cleared, 1);
    assert_int_equal(plain_db_look(p->crew.store, run_look, after), OK);
    assert_int_equal(after[0], before[0] + 1);
    assert_int_equal(after[1], before[1]);
}

/* ---- quarantine ---- */

static bool is_quarantined(struct place *p, int i)
{
    return atomic_load(&p->nodes[i].cluster.quarantined);
}

static void who_alone_lacks_the_views_is_quarantined(void **state)
{
    struct place *p = *state;
    pass(p, 2000);
    p->nodes[1].away = true;
    pass(p, MEMBER_QUARANTINE_MS - 500);
    assert_false(is_quarantined(p, 1)); /* a moment is no reason */
    pass(p, 1500);
    assert_true(is_quarantined(p, 1));
    assert_int_equal(atomic_load(&p->nodes[1].cluster.views_state), PART_AWAY);
    assert_false(is_quarantined(p, 0));
    p->nodes[1].away = false;
    pass(p, 1500);
    assert_false(is_quarantined(p, 1));
}

static void when_no_node_has_them_none_is_quarantined(void **state)
{
    struct place *p = *state;
    pass(p, 2000);
    p->nodes[0].away = p->nodes[1].away = true;
    pass(p, 20000);
    assert_false(is_quarantined(p, 0) || is_quarantined(p, 1));
    assert_true(leads(p, 0) || leads(p, 1)); /* there is no better node */
}

static void who_cannot_beat_is_quarantined(void **state)
{
    struct place *p = *state;
    pass(p, 2000);
    p->crew.faults->writes_fail = ERR_UNAVAILABLE;
    pass(p, NODE_GIVE_UP_MS - 2000);
    assert_false(is_quarantined(p, 0));
    assert_int_equal(atomic_load(&p->nodes[0].cluster.db_state), PART_AWAY);
    pass(p, 3000);
    assert_true(is_quarantined(p, 0) && is_quarantined(p, 1));
    p->crew.faults->writes_fail = OK;
    pass(p, 2000);
    assert_false(is_quarantined(p, 0) || is_quarantined(p, 1));
}

static void a_report_that_is_not_understood_quarantines_no_node(void **state)
{
    struct place *p = *state;
    pass(p, 2000);
    assert_int_equal(leadership_end(&p->nodes[0].m.leadership), OK);
    p->nodes[0].rests = true;
    p->nodes[1].away = true;
    for (int i = 0; i < 10; i++) { /* a newer program, which means something else by its words */
        plain_db_run(p->crew.store,
                     "UPDATE nodes SET beat = beat + 1, body = 'views=1 bus=1 leads=0 "
                     "quarantined=0 undone=0 v=2' WHERE number = 1");
        pass(p, 1000);
    }
    assert_false(is_quarantined(p, 1));
    for (int i = 0; i < 10; i++) { /* the version before */
        plain_db_run(p->crew.store, "UPDATE nodes SET beat = beat + 1, body = "
                                    "'views=1 bus=1 leads=0 aside=0 undone=0' WHERE number = 1");
        pass(p, 1000);
    }
    assert_true(is_quarantined(p, 1));
}

static void a_leader_without_a_bus_yields_to_one_that_has_it(void **state)
{
    struct place *p = *state;
    pass(p, 2000);
    assert_true(leads(p, 0));
    p->nodes[0].bus_away = true;
    pass(p, 4000);
    assert_true(leads(p, 1));
    assert_false(is_quarantined(p, 0)); /* it still takes writes */
    assert_int_equal(atomic_load(&p->nodes[0].cluster.bus_state), PART_AWAY);
}

static void a_node_without_the_role_never_leads(void **state)
{
    struct place *p = *state;
    membership_done(&p->nodes[0].m);
    join(p, 0, ROLE_API | ROLE_WORKER);
    p->nodes[1].rests = true;
    pass(p, 10000);
    assert_false(leads(p, 0));
}

#define CASE(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(each_has_a_number_and_keeps_it),
        CASE(who_loses_its_number_to_another_process_ends),
        CASE(each_knows_what_the_other_said),
        CASE(views_are_trusted_only_for_a_while_after_a_look),
        CASE(after_a_loss_no_node_trusts_the_views),
        CASE(who_loses_a_change_waits),
        CASE(a_loss_is_told_however_long_it_takes),
        CASE(views_that_are_not_complete_are_loaded_by_the_leader),
        CASE(a_load_in_a_term_that_is_over_is_a_loss),
        CASE(who_alone_lacks_the_views_is_quarantined),
        CASE(when_no_node_has_them_none_is_quarantined),
        CASE(who_cannot_beat_is_quarantined),
        CASE(a_report_that_is_not_understood_quarantines_no_node),
        CASE(a_leader_without_a_bus_yields_to_one_that_has_it),
        CASE(a_node_without_the_role_never_leads),
    };
    return cmocka_run_group_tests_name("node/membership", tests, NULL, NULL);
}
