/* Groups and inboxes of a whole driver against naive models, in random histories.
 *
 * The first model knows what each call does and is compared after each. The second knows only truth
 * (who is in which group, what was last said) and lets deliveries come late, twice and out of
 * order, drops people of large groups who have not been here lately, and rebuilds; when everything
 * is delivered, every inbox that is there must say what truth says. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/check.h"
#include "base/rand.h"
#include "redis_place.h"
#include "view/memory/memory.h"
#include "view/redis/redis.h"

/* Activities stay below 4,096: that much of an id every driver keeps. */
enum { PEOPLE = 14, GROUPS = 9, STEPS = 450, GROUP_BASE = 5000 };

static struct manual_clock the_clock;
static uint64_t histories = 300;
static bool in_memory = true;
static enum redis_kind redis_kind;

static struct views *open_views(void)
{
    struct views *v = NULL;
    struct memory_views_config memory = {NULL, 10, 10, &the_clock.clock};
    if (in_memory) {
        assert_int_equal(views_memory_open(&memory, &v), OK);
        return v;
    }
    struct redis_config config = {.url = redis_place_url(redis_kind),
                                  .timeline_cap = 10,
                                  .pull_cap = 10,
                                  .clock = &the_clock.clock};
    redis_place_clear(redis_kind);
    assert_int_equal(views_redis_open(&config, &v), OK);
    assert_int_equal(views_loaded(v), OK);
    return v;
}

static uint64_t account_id(size_t person)
{
    return 1000 + 7 * (uint64_t)person;
}

static uint64_t group_id(size_t group)
{
    return GROUP_BASE + 3 * (uint64_t)group;
}

static void apply(struct views *v, enum view_change_kind kind, bool on, size_t person, size_t group,
                  uint64_t event)
{
    struct view_change c = {kind, on, account_id(person), group_id(group), 0, event};
    assert_int_equal(views_apply(v, &c, 1), OK);
}

static void account(struct views *v, size_t person, bool ready)
{
    struct view_change c = {VIEW_ACCOUNT, ready, account_id(person), 0, the_clock.wall_ms, 0};
    assert_int_equal(views_apply(v, &c, 1), OK);
}

static size_t handles(struct views *v, size_t group, uint64_t *out)
{
    struct audience_cursor c = {.part = AUDIENCE_ALL};
    size_t n;
    assert_int_equal(graph_audience(v->graph, group_id(group), &c, out, PEOPLE, &n), OK);
    return n;
}

/* ---- what each call does ---- */

enum state { DROPPED, BUILDING, READY };

static struct person {
    enum state state;
    unsigned builders;
    bool spoiled, member[GROUPS], left[GROUPS];
    uint64_t activity[GROUPS];
} people[PEOPLE];
static uint64_t events;

/* No two groups have the same. */
static uint64_t activity_of(uint64_t event, size_t group)
{
    return event * GROUPS + group;
}

static bool raise_to(struct person *p, size_t group, uint64_t activity)
{
    if (p->state == DROPPED || p->activity[group] >= activity)
        return false;
    p->activity[group] = activity;
    p->left[group] = false;
    return true;
}

static void forget(struct person *p)
{
    memset(p->activity, 0, sizeof p->activity);
    memset(p->left, 0, sizeof p->left);
    p->spoiled = p->builders > 0;
    p->state = p->builders > 0 ? BUILDING : DROPPED;
}

static void end_one(struct person *p)
{
    if (--p->builders == 0 && p->state == BUILDING)
        forget(p);
}

static void compare(struct views *v, size_t who, uint64_t below, size_t max)
{
    const struct person *p = &people[who];
    struct inbox_entry out[GROUPS + 1];
    size_t n, expected = 0;
    enum err e = inboxes_read(v->inboxes, account_id(who), below, out, max, &n);
    assert_int_equal(e, p->state == READY ? OK : ERR_NEEDS_TRUTH);
    if (e)
        return;
    for (size_t g = 0; g < GROUPS; g++)
        expected += p->activity[g] > 0 && p->activity[g] < below;
    assert_int_equal(n, expected < max ? expected : max);
    for (size_t i = 0; i < n; i++) {
        size_t g = (out[i].group - GROUP_BASE) / 3;
        assert_true(g < GROUPS && out[i].activity < (i > 0 ? out[i - 1].activity : below));
        assert_int_equal(out[i].activity, p->activity[g]);
    }
}

static void compare_members(struct views *v, size_t group)
{
    uint64_t ids[PEOPLE];
    size_t n, at = 0;
    enum err e = graph_neighbours(v->graph, group_id(group), true, 0, ids, PEOPLE, &n);
    for (size_t i = 0; i < PEOPLE; i++)
        if (people[i].member[group])
            assert_int_equal(at < n ? ids[at++] : 0, account_id(i));
    assert_int_equal(n, at);
    assert_true(e == OK || (e == ERR_NOT_FOUND && at == 0));
}

static void step_push(struct views *v, struct rand *r, size_t group, uint64_t activity)
{
    uint64_t members[PEOPLE];
    size_t n = handles(v, group, members), changed, expected = 0;
    bool exact = true;
    for (size_t i = 0; i + 1 < n && rand_below(r, 2); i++) { /* in any order, and twice */
        uint64_t other = members[i + 1];
        members[i + 1] = members[i];
        members[i] = other;
    }
    assert_int_equal(inboxes_push_one(v->inboxes, group_id(group), activity, members, n, &changed),
                     OK);
    for (size_t i = 0; i < PEOPLE; i++) {
        exact &= in_memory || !people[i].spoiled;
        expected += people[i].member[group] && raise_to(&people[i], group, activity);
    }
    if (exact) /* what a rebuild without a result collects is nobody's business */
        assert_int_equal(changed, expected);
}

static void step_end(struct views *v, struct rand *r, size_t who)
{
    struct person *p = &people[who];
    struct inbox_entry entries[GROUPS];
    uint64_t read[GROUPS] = {0}, event = events;
    size_t n = 0, from = rand_below(r, GROUPS);
    for (size_t i = 0; i < GROUPS; i++) {
        size_t g = (from + i * 2) % GROUPS; /* each once: their number is odd */
        uint64_t less = 1 + rand_below(r, 9);
        if (event <= less || rand_below(r, 3) == 0)
            continue;
        event -= less;
        read[g] = activity_of(event, g);
        entries[n++] = (struct inbox_entry){group_id(g), read[g]};
    }
    bool good = p->state == READY || (p->state == BUILDING && !p->spoiled);
    assert_int_equal(inboxes_end(v->inboxes, account_id(who), entries, n),
                     good ? OK : ERR_CONFLICT);
    if (p->state == BUILDING && !p->spoiled) {
        for (size_t g = 0; g < GROUPS; g++) {
            if (!p->left[g])
                raise_to(p, g, read[g]);
            p->left[g] = false;
        }
        p->state = READY;
    }
    end_one(p);
}

static void step_rebuild(struct views *v, struct rand *r, size_t who)
{
    struct person *p = &people[who];
    uint64_t id = account_id(who);
    switch (rand_below(r, 5)) {
    case 0:
        if (p->state == READY && p->builders == 0) {
            assert_int_equal(inboxes_anew(v->inboxes, id), OK);
            forget(p);
            p->state = BUILDING;
            p->builders = 1;
        } else {
            assert_int_equal(inboxes_anew(v->inboxes, id), ERR_CONFLICT);
        }
        return;
    case 1:
        if (p->builders > 0) {
            (void)inboxes_give_up(v->inboxes, id);
            end_one(p);
        }
        return;
    case 2:
    case 3:
        if (p->builders > 0) {
            step_end(v, r, who);
            return;
        }
    /* fall through */
    default:
        assert_int_equal(inboxes_begin(v->inboxes, id), p->state == READY ? ERR_CONFLICT : OK);
        if (p->state != READY) {
            p->state = BUILDING;
            p->builders++;
        }
    }
}

static void random_step(struct views *v, struct rand *r)
{
    size_t who = rand_below(r, PEOPLE), group = rand_below(r, GROUPS);
    struct person *p = &people[who];
    uint64_t some = 1 + rand_below(r, ++events), event = activity_of(events, group);
    uint64_t late = rand_below(r, 3) ? event : activity_of(some, group);
    switch (rand_below(r, 12)) {
    case 0:
    case 1:
        apply(v, VIEW_MEMBER, true, who, group, event);
        p->member[group] = true;
        raise_to(p, group, event);
        return;
    case 2:
        apply(v, VIEW_MEMBER, false, who, group, event);
        p->member[group] = false;
        p->activity[group] = 0;
        p->left[group] = p->state == BUILDING;
        return;
    case 3:
        apply(v, VIEW_MESSAGE, true, who, group, late);
        raise_to(p, group, late);
        return;
    case 4:
    case 5:
    case 6:
    case 7:
        step_push(v, r, group, late);
        return;
    case 8: {
        uint64_t members[PEOPLE];
        size_t n = rand_below(r, 4) ? 0 : handles(v, group, members);
        assert_int_equal(inboxes_drop(v->inboxes, members, n), OK);
        for (size_t i = 0; n > 0 && i < PEOPLE; i++)
            if (people[i].member[group] && people[i].state != DROPPED)
                forget(&people[i]);
        return;
    }
    default:
        step_rebuild(v, r, who);
    }
}

static void random_histories_agree_call_by_call(void **state)
{
    (void)state;
    for (uint64_t seed = 0; seed < histories; seed++) {
        struct rand r;
        rand_seed(&r, seed);
        manual_clock_init(&the_clock, INT64_C(1800000000000));
        struct views *v = open_views();
        memset(people, 0, sizeof people);
        events = 0;
        for (size_t i = 0; i < PEOPLE; i++) {
            people[i].state = rand_below(&r, 4) ? READY : DROPPED;
            account(v, i, people[i].state == READY);
        }
        for (int step = 0; step < STEPS; step++) {
            random_step(v, &r);
            compare(v, rand_below(&r, PEOPLE),
                    rand_below(&r, 2) ? UINT64_MAX : 1 + rand_below(&r, events * GROUPS),
                    rand_below(&r, GROUPS + 1));
            compare_members(v, rand_below(&r, GROUPS));
        }
        size_t memberships = 0;
        for (size_t i = 0; i < PEOPLE; i++) {
            compare(v, i, UINT64_MAX, GROUPS);
            for (size_t g = 0; g < GROUPS; g++)
                memberships += people[i].member[g];
        }
        struct view_stats s;
        views_stats(v, &s);
        assert_int_equal(s.memberships, memberships);
        assert_int_equal(s.accounts, PEOPLE);
        views_free(v);
    }
}

/* ---- truth, and deliveries that come late ---- */

enum { TASKS = 4000 };

static struct {
    uint64_t joined[PEOPLE][GROUPS]; /* 0: is no member */
    uint64_t last[GROUPS];
    struct task {
        size_t group;
        uint64_t event;
        struct audience_cursor cursor;
    } tasks[TASKS];
    size_t task_count;
    bool building[PEOPLE];
    struct inbox_entry read[PEOPLE][GROUPS];
    size_t read_count[PEOPLE];
} truth;

static bool is_large(size_t group)
{
    return group < 3;
}

static uint64_t true_activity(size_t who, size_t group)
{
    uint64_t joined = truth.joined[who][group];
    return joined == 0 ? 0 : joined > truth.last[group] ? joined : truth.last[group];
}

static int by_falling_activity(const void *a, const void *b)
{
    const struct inbox_entry *x = a, *y = b;
    return x->activity > y->activity ? -1 : x->activity < y->activity;
}

static void read_truth(size_t who)
{
    size_t n = 0;
    for (size_t g = 0; g < GROUPS; g++)
        if (true_activity(who, g) > 0)
            truth.read[who][n++] = (struct inbox_entry){group_id(g), true_activity(who, g)};
    qsort(truth.read[who], n, sizeof truth.read[who][0], by_falling_activity);
    truth.read_count[who] = n;
}

/* Does one page of a task; puts the continuation back; sometimes does it twice. */
static void do_task(struct views *v, struct rand *r, size_t which)
{
    struct task t = truth.tasks[which];
    uint64_t members[PEOPLE];
    size_t n, changed;
    truth.tasks[which] = truth.tasks[--truth.task_count];
    if (rand_below(r, 8) == 0 && truth.task_count + 2 < TASKS)
        truth.tasks[truth.task_count++] = t;
    assert_int_equal(graph_audience(v->graph, group_id(t.group), &t.cursor, members, 3, &n), OK);
    if (!t.cursor.end)
        truth.tasks[truth.task_count++] = t;
    if (is_large(t.group) && t.cursor.part == AUDIENCE_REST)
        assert_int_equal(inboxes_drop(v->inboxes, members, n), OK);
    else
        assert_int_equal(
            inboxes_push_one(v->inboxes, group_id(t.group), t.event, members, n, &changed), OK);
}

static void send(struct views *v, size_t who, size_t group)
{
    if (truth.joined[who][group] == 0)
        return;
    uint64_t event = truth.last[group] = ++events;
    apply(v, VIEW_MESSAGE, true, who, group, event);
    for (int part = AUDIENCE_ACTIVE; part <= AUDIENCE_REST; part++) {
        assert_true(truth.task_count < TASKS);
        truth.tasks[truth.task_count++] = (struct task){
            group,
            event,
            {(enum audience_part)part, the_clock.wall_ms - 60000, the_clock.wall_ms, 0, false}};
    }
}

static void truth_step(struct views *v, struct rand *r)
{
    size_t who = rand_below(r, PEOPLE), group = rand_below(r, GROUPS), n;
    bool wrapped;
    the_clock.wall_ms += 1000;
    switch (rand_below(r, 9)) {
    case 0:
    case 1:
        if (truth.joined[who][group] == 0) {
            truth.joined[who][group] = ++events;
            apply(v, VIEW_MEMBER, true, who, group, events);
        } else if (rand_below(r, 3) == 0) {
            truth.joined[who][group] = 0;
            apply(v, VIEW_MEMBER, false, who, group, ++events);
        }
        return;
    case 2:
    case 3:
        send(v, who, group);
        return;
    case 4: {
        struct view_change c = {VIEW_LAST_SEEN, true, account_id(who), 0, the_clock.wall_ms, 0};
        assert_int_equal(views_apply(v, &c, 1), OK);
        return;
    }
    case 5:
        if (rand_below(r, 10) == 0)
            assert_int_equal(
                timelines_sweep(v->timelines, the_clock.wall_ms - 90000, 100, &n, &wrapped), OK);
        return;
    default: /* a rebuild, in two halves */
        if (truth.building[who]) {
            enum err e =
                inboxes_end(v->inboxes, account_id(who), truth.read[who], truth.read_count[who]);
            assert_true(e == OK || e == ERR_CONFLICT);
            truth.building[who] = false;
        } else if (inboxes_begin(v->inboxes, account_id(who)) == OK) {
            truth.building[who] = true;
            read_truth(who);
        }
    }
}

/* What is there is right; a group too many is one that its owner is not in. */
static bool inbox_is_true(struct views *v, size_t who)
{
    struct inbox_entry out[GROUPS + 1];
    size_t n, found = 0, expected = 0;
    if (inboxes_read(v->inboxes, account_id(who), UINT64_MAX, out, GROUPS + 1, &n) ==
        ERR_NEEDS_TRUTH)
        return false;
    for (size_t i = 0; i < n; i++) {
        uint64_t activity = true_activity(who, (out[i].group - GROUP_BASE) / 3);
        found += activity > 0;
        assert_true(activity == 0 || activity == out[i].activity);
    }
    for (size_t g = 0; g < GROUPS; g++)
        expected += true_activity(who, g) > 0;
    assert_int_equal(found, expected);
    return true;
}

static void late_deliveries_end_in_the_true_inbox(void **state)
{
    (void)state;
    size_t there = 0;
    for (uint64_t seed = 0; seed < histories * 2; seed++) {
        struct rand r;
        rand_seed(&r, seed);
        manual_clock_init(&the_clock, INT64_C(1800000000000));
        memset(&truth, 0, sizeof truth);
        events = 0;
        struct views *v = open_views();
        for (size_t i = 0; i < PEOPLE; i++)
            account(v, i, true);
        for (int step = 0; step < STEPS; step++) {
            truth_step(v, &r);
            for (uint64_t k = rand_below(&r, 5); k > 0 && truth.task_count > 0; k--)
                do_task(v, &r, rand_below(&r, truth.task_count));
        }
        while (truth.task_count > 0)
            do_task(v, &r, rand_below(&r, truth.task_count));
        for (size_t who = 0; who < PEOPLE; who++)
            there += inbox_is_true(v, who);
        views_free(v);
    }
    assert_true(there > histories * 2 * PEOPLE / 8); /* it was about something */
}

/* The driver's name is the argument; memory when there is none. */
int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(random_histories_agree_call_by_call),
        cmocka_unit_test(late_deliveries_end_in_the_true_inbox),
    };
    if (argc > 1) {
        in_memory = false;
        histories = 4;
        redis_kind = strcmp(argv[1], "redis") == 0 ? REDIS_SINGLE : REDIS_CLUSTER;
    }
    return cmocka_run_group_tests(tests, NULL, NULL);
}
