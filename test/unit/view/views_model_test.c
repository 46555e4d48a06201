/* The whole driver against naive models, in random histories.
 *
 * The first model knows what each call does and is compared after each. The second knows only truth
 * (who follows whom, who posted what) and lets deliveries come late, twice and out of order, as the
 * pipeline may; when everything is delivered, feeds must equal truth above their floors. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/check.h"
#include "base/rand.h"
#include "port/event.h"
#include "redis_place.h"
#include "view/memory/memory.h"
#include "view/redis/redis.h"

enum { PEOPLE = 24, IDS = 1200, CAP = 35, PULL_CAP = 6, STEPS = 500 };

static struct manual_clock the_clock;
static uint64_t histories = 40;
static bool exact = true; /* every timeline is trimmed at once; otherwise it may hold more */
static enum redis_kind redis_kind;

static struct views *open_redis(void)
{
    struct redis_config config = {.url = redis_place_url(redis_kind),
                                  .timeline_cap = CAP,
                                  .pull_cap = PULL_CAP,
                                  .clock = &the_clock.clock};
    struct views *v = NULL;
    redis_place_clear(redis_kind);
    assert_int_equal(views_redis_open(&config, &v), OK);
    assert_int_equal(views_loaded(v), OK);
    return v;
}

static struct views *open_views(void)
{
    if (!exact)
        return open_redis();
    struct memory_views_config config = {NULL, CAP, PULL_CAP, &the_clock.clock};
    struct views *v = NULL;
    assert_int_equal(views_memory_open(&config, &v), OK);
    return v;
}

static uint64_t account_id(size_t person)
{
    return 1000 + 7 * (uint64_t)person;
}

static void apply(struct views *v, enum view_change_kind kind, bool on, size_t person,
                  uint64_t other, int64_t value)
{
    struct view_change c = {kind, on, account_id(person), other, value};
    assert_int_equal(views_apply(v, &c, 1), OK);
}

/* ---- what each call does ---- */

struct id_set {
    bool has[IDS];
    uint64_t floor;
    size_t cap;
};

static size_t set_count(const struct id_set *s)
{
    size_t n = 0;
    for (size_t i = 0; i < IDS; i++)
        n += s->has[i];
    return n;
}

static void set_trim(struct id_set *s)
{
    for (size_t i = 0; i <= s->floor && i < IDS; i++)
        s->has[i] = false;
    for (size_t i = 0, n = set_count(s); n > s->cap; i++)
        if (s->has[i]) {
            s->has[i] = false;
            s->floor = i;
            n--;
        }
}

static void set_add(struct id_set *s, uint64_t id)
{
    if (id > s->floor)
        s->has[id] = true;
    set_trim(s);
}

enum state { DROPPED, BUILDING, READY };

struct person {
    enum state state;
    struct id_set timeline, pull;
    bool has_pull, hidden, follows[PEOPLE], mutes[PEOPLE];
    int64_t seen_ms;
};

static struct person people[PEOPLE];

static void model_drop(struct person *p)
{
    memset(p->timeline.has, 0, sizeof p->timeline.has);
    p->timeline.floor = 0;
    p->state = DROPPED;
}

static void compare_home(struct views *v, size_t who, uint64_t below, size_t max)
{
    const struct person *p = &people[who];
    uint64_t ids[IDS], floor, expected_floor = p->timeline.floor;
    size_t n, at = 0;
    assert_int_equal(timelines_home(v->timelines, account_id(who), below, ids, max, &n, &floor),
                     OK);
    if (p->state != READY) {
        assert_int_equal(n, 0);
        assert_int_equal(floor, UINT64_MAX);
        return;
    }
    bool all[IDS];
    memcpy(all, p->timeline.has, sizeof all);
    for (size_t a = 0; a < PEOPLE; a++) {
        if (!p->follows[a] || !people[a].has_pull || p->mutes[a] || people[a].hidden)
            continue;
        for (size_t i = 0; i < IDS; i++)
            all[i] |= people[a].pull.has[i];
        if (people[a].pull.floor > expected_floor)
            expected_floor = people[a].pull.floor;
    }
    for (uint64_t i = below < IDS ? below : IDS; i-- > expected_floor + 1 && at < max;)
        if (all[i])
            assert_int_equal(at < n ? ids[at++] : 0, i);
    if (!exact) { /* what was not trimmed yet is complete, too */
        assert_true(floor <= expected_floor && n <= max && n >= at);
        return;
    }
    /* Pages end where the floor is, even if more was asked for. */
    assert_int_equal(n, at);
    assert_int_equal(floor, expected_floor);
}

static void compare_graph(struct views *v, size_t who, int64_t since_ms)
{
    uint64_t authors[PEOPLE], members[PEOPLE];
    bool out[PEOPLE];
    size_t n, expected = 0;
    for (size_t a = 0; a < PEOPLE; a++)
        authors[a] = account_id(a);
    assert_int_equal(graph_visible(v->graph, account_id(who), authors, PEOPLE, out), OK);
    for (size_t a = 0; a < PEOPLE; a++)
        assert_int_equal(out[a], a == who || (people[who].follows[a] && !people[who].mutes[a] &&
                                              !people[a].hidden));
    struct audience_cursor c = {AUDIENCE_ACTIVE, since_ms, the_clock.wall_ms, 0, false};
    assert_int_equal(graph_audience(v->graph, account_id(who), &c, members, PEOPLE, &n), OK);
    assert_true(c.end);
    for (size_t f = 0; f < PEOPLE; f++)
        expected +=
            people[f].follows[who] && people[f].state != DROPPED && people[f].seen_ms >= since_ms;
    assert_int_equal(n, expected);
    for (int followers = 0; followers < 2; followers++) {
        assert_int_equal(graph_neighbours(v->graph, account_id(who), followers, account_id(3),
                                          members, PEOPLE, &n),
                         OK);
        size_t at = 0;
        for (size_t o = 4; o < PEOPLE; o++)
            if (followers ? people[o].follows[who] : people[who].follows[o])
                assert_int_equal(members[at++], account_id(o));
        assert_int_equal(n, at);
    }
}

static size_t some_falling(struct rand *r, uint64_t *ids, size_t max)
{
    size_t n = 0;
    for (uint64_t id = 1 + rand_below(r, IDS - 1); id > 0 && n < max;) {
        ids[n++] = id;
        uint64_t less = 1 + rand_below(r, 9);
        id = id > less ? id - less : 0;
    }
    return n;
}

static void random_step(struct views *v, struct rand *r)
{
    size_t a = rand_below(r, PEOPLE), b = rand_below(r, PEOPLE);
    uint64_t id = 1 + rand_below(r, IDS - 1), ids[CAP * 2], members[PEOPLE];
    bool on = rand_below(r, 3) > 0;
    struct person *p = &people[a];
    size_t n = 0, changed = 0, expected = 0;
    switch (rand_below(r, 11)) {
    case 0:
        apply(v, VIEW_FOLLOW, on, a, account_id(b), 0);
        p->follows[b] = on && a != b;
        break;
    case 1:
        apply(v, VIEW_MUTE, on, a, account_id(b), 0);
        p->mutes[b] = on;
        break;
    case 2:
        on = !on;
        apply(v, VIEW_HIDE, on, a, 0, 0);
        p->hidden = on;
        break;
    case 3:
        the_clock.wall_ms += 1000;
        apply(v, VIEW_LAST_SEEN, true, a, 0, the_clock.wall_ms);
        p->seen_ms = the_clock.wall_ms;
        break;
    case 4:
    case 5: {
        bool pulled = rand_below(r, 2);
        apply(v, VIEW_POST, on, a, id, pulled ? DELIVERY_PULL : DELIVERY_PUSH);
        if (!on) {
            p->timeline.has[id] = p->pull.has[id] = false;
            break;
        }
        if (p->state != DROPPED)
            set_add(&p->timeline, id);
        if (pulled) {
            p->has_pull = true;
            set_add(&p->pull, id);
        }
        break;
    }
    default: {
        struct audience_cursor c = {.part = AUDIENCE_ALL};
        bool retracts = rand_below(r, 5) == 0;
        assert_int_equal(graph_audience(v->graph, account_id(b), &c, members, PEOPLE, &n), OK);
        assert_int_equal(retracts ? timelines_retract(v->timelines, id, members, n, &changed)
                                  : timelines_push_one(v->timelines, id, members, n, &changed),
                         OK);
        for (size_t f = 0; f < PEOPLE; f++) {
            struct person *q = &people[f];
            if (!q->follows[b] || q->state == DROPPED)
                continue;
            bool before = q->timeline.has[id];
            if (retracts)
                q->timeline.has[id] = false;
            else
                set_add(&q->timeline, id);
            expected += before != q->timeline.has[id];
        }
        if (exact)
            assert_int_equal(changed, expected);
        break;
    }
    case 8: {
        uint64_t floor = rand_below(r, 3) ? 0 : rand_below(r, IDS / 2);
        n = some_falling(r, ids, COUNT_OF(ids));
        if (p->state == READY) {
            assert_int_equal(timelines_begin(v->timelines, account_id(a)), ERR_CONFLICT);
            break;
        }
        if (p->state == DROPPED) {
            assert_int_equal(timelines_begin(v->timelines, account_id(a)), OK);
            p->state = BUILDING;
            break;
        }
        assert_int_equal(timelines_end(v->timelines, account_id(a), ids, n, floor), OK);
        p->state = READY;
        p->timeline.floor = floor > p->timeline.floor ? floor : p->timeline.floor;
        for (size_t i = 0; i < n; i++)
            p->timeline.has[ids[i]] = true;
        set_trim(&p->timeline);
        break;
    }
    case 9: {
        uint64_t floor = rand_below(r, 3) ? 0 : rand_below(r, IDS / 2);
        n = some_falling(r, ids, COUNT_OF(ids));
        assert_int_equal(
            on ? timelines_backfill(v->timelines, account_id(a), account_id(b), ids, n, floor)
               : timelines_forget(v->timelines, account_id(a), account_id(b), ids, n),
            OK);
        if (p->state == DROPPED || p->follows[b] != on)
            break;
        if (on && floor > p->timeline.floor)
            p->timeline.floor = floor;
        for (size_t i = 0; i < n; i++)
            p->timeline.has[ids[i]] = on;
        set_trim(&p->timeline);
        break;
    }
    case 10: {
        int64_t before = the_clock.wall_ms - (int64_t)rand_below(r, 200) * 1000;
        bool wrapped = false;
        if (rand_below(r, 6))
            break;
        assert_int_equal(timelines_sweep(v->timelines, before, 10000, &n, &wrapped), OK);
        assert_true(wrapped);
        for (size_t f = 0; f < PEOPLE; f++)
            if (people[f].state == READY && people[f].seen_ms < before) {
                model_drop(&people[f]);
                expected++;
            }
        assert_int_equal(n, expected);
        break;
    }
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
        for (size_t i = 0; i < PEOPLE; i++) {
            bool ready = rand_below(&r, 4) > 0;
            apply(v, VIEW_ACCOUNT, ready, i, 0, the_clock.wall_ms);
            people[i].state = ready ? READY : DROPPED;
            people[i].seen_ms = the_clock.wall_ms;
            people[i].timeline.cap = CAP;
            people[i].pull.cap = PULL_CAP;
        }
        for (int step = 0; step < STEPS; step++) {
            random_step(v, &r);
            size_t who = rand_below(&r, PEOPLE);
            compare_home(v, who, rand_below(&r, 2) ? UINT64_MAX : rand_below(&r, IDS),
                         rand_below(&r, 60));
            compare_graph(v, rand_below(&r, PEOPLE),
                          the_clock.wall_ms - (int64_t)rand_below(&r, 300) * 1000);
        }
        struct view_stats s;
        views_stats(v, &s);
        size_t entries = 0;
        for (size_t i = 0; i < PEOPLE; i++) {
            compare_home(v, i, UINT64_MAX, IDS);
            entries += set_count(&people[i].timeline);
        }
        if (exact)
            assert_int_equal(s.entries, entries);
        else
            assert_true(s.entries >= entries);
        views_free(v);
    }
}

/* ---- truth, and deliveries that come late ---- */

enum { POSTS = 300, TASKS = 2000 };

static struct {
    struct {
        size_t author;
        bool pulled, deleted;
    } posts[POSTS]; /* id = index + 1 */
    size_t post_count;
    bool follows[PEOPLE][PEOPLE];
    struct task {
        enum { FAN_OUT, RETRACT, BACKFILL, FORGET } kind;
        size_t person, author;
        uint64_t post;
        struct audience_cursor cursor;
    } tasks[TASKS];
    size_t task_count;
    bool building[PEOPLE];
    uint64_t read_ids[PEOPLE][POSTS],
        read_floor[PEOPLE]; /* what a rebuild under way read from truth */
    size_t read_count[PEOPLE];
} truth;

static void plan(struct task t)
{
    assert_true(truth.task_count < TASKS);
    truth.tasks[truth.task_count++] = t;
}

/* Pushed posts that belong into `who`'s timeline, newest first; at most `limit`, then *floor says
 * below what. */
static size_t truth_read(size_t who, bool (*belongs)(size_t who, size_t author), size_t limit,
                         uint64_t *ids, uint64_t *floor)
{
    size_t n = 0;
    *floor = 0;
    for (size_t i = truth.post_count; i > 0; i--) {
        if (truth.posts[i - 1].deleted || !belongs(who, truth.posts[i - 1].author) ||
            (truth.posts[i - 1].pulled && truth.posts[i - 1].author != who))
            continue;
        if (n == limit) {
            *floor = i;
            break;
        }
        ids[n++] = i;
    }
    return n;
}

static bool own_or_followed(size_t who, size_t author)
{
    return who == author || truth.follows[who][author];
}

static size_t only_author;

static bool by_that_author(size_t who, size_t author)
{
    (void)who;
    return author == only_author;
}

/* Does one page of a task; puts the continuation back; sometimes does it twice. */
static void do_task(struct views *v, struct rand *r, size_t which)
{
    struct task t = truth.tasks[which];
    truth.tasks[which] = truth.tasks[--truth.task_count];
    if (rand_below(r, 8) == 0)
        plan(t);
    uint64_t ids[POSTS], members[PEOPLE], floor;
    size_t n, changed;
    if (t.kind == FAN_OUT || t.kind == RETRACT) {
        assert_int_equal(graph_audience(v->graph, account_id(t.author), &t.cursor, members, 3, &n),
                         OK);
        if (!t.cursor.end)
            plan(t);
        if (t.kind == RETRACT)
            assert_int_equal(timelines_retract(v->timelines, t.post, members, n, &changed), OK);
        else if (!truth.posts[t.post - 1].deleted)
            assert_int_equal(timelines_push_one(v->timelines, t.post, members, n, &changed), OK);
        return;
    }
    only_author = t.author;
    if (t.kind == BACKFILL) {
        n = truth_read(t.person, by_that_author, 20, ids, &floor);
        assert_int_equal(timelines_backfill(v->timelines, account_id(t.person),
                                            account_id(t.author), ids, n, floor),
                         OK);
    } else {
        n = truth_read(t.person, by_that_author, POSTS, ids, &floor);
        assert_int_equal(
            timelines_forget(v->timelines, account_id(t.person), account_id(t.author), ids, n), OK);
    }
}

static void truth_step(struct views *v, struct rand *r)
{
    size_t a = rand_below(r, PEOPLE), b = rand_below(r, PEOPLE), n;
    the_clock.wall_ms += 1000;
    switch (rand_below(r, 8)) {
    case 0:
    case 1: {
        if (truth.post_count == POSTS)
            return;
        bool pulled = a < 3;
        uint64_t id = ++truth.post_count;
        truth.posts[id - 1].author = a;
        truth.posts[id - 1].pulled = pulled;
        apply(v, VIEW_POST, true, a, id, pulled ? DELIVERY_PULL : DELIVERY_PUSH);
        for (int part = AUDIENCE_ACTIVE; !pulled && part <= AUDIENCE_REST; part++)
            plan((struct task){.kind = FAN_OUT,
                               .author = a,
                               .post = id,
                               .cursor = {(enum audience_part)part, the_clock.wall_ms - 100000,
                                          the_clock.wall_ms, 0, false}});
        return;
    }
    case 2:
        if (truth.post_count > 0) {
            uint64_t id = 1 + rand_below(r, truth.post_count);
            size_t author = truth.posts[id - 1].author;
            truth.posts[id - 1].deleted = true;
            apply(v, VIEW_POST, false, author, id, 0);
            plan((struct task){.kind = RETRACT, .author = author, .post = id});
        }
        return;
    case 3:
        if (a != b) {
            truth.follows[a][b] = !truth.follows[a][b];
            apply(v, VIEW_FOLLOW, truth.follows[a][b], a, account_id(b), 0);
            plan((struct task){
                .kind = truth.follows[a][b] ? BACKFILL : FORGET, .person = a, .author = b});
        }
        return;
    case 4:
        apply(v, VIEW_LAST_SEEN, true, a, 0, the_clock.wall_ms);
        return;
    case 5: { /* a sweep, rarely */
        bool wrapped;
        if (rand_below(r, 10) == 0)
            assert_int_equal(
                timelines_sweep(v->timelines, the_clock.wall_ms - 50000, 10, &n, &wrapped), OK);
        return;
    }
    default: /* a rebuild, in two halves */
        if (truth.building[a]) {
            assert_int_equal(timelines_end(v->timelines, account_id(a), truth.read_ids[a],
                                           truth.read_count[a], truth.read_floor[a]),
                             OK);
            truth.building[a] = false;
        } else if (timelines_begin(v->timelines, account_id(a)) == OK) {
            truth.building[a] = true;
            truth.read_count[a] = truth_read(a, own_or_followed, rand_below(r, 2) ? 10 : POSTS,
                                             truth.read_ids[a], &truth.read_floor[a]);
        }
        return;
    }
}

static void feed_equals_truth(struct views *v, size_t who)
{
    uint64_t ids[POSTS], floor;
    size_t n, at = 0;
    assert_int_equal(
        timelines_home(v->timelines, account_id(who), UINT64_MAX, ids, POSTS, &n, &floor), OK);
    if (floor == UINT64_MAX)
        return;
    for (uint64_t id = truth.post_count; id > floor; id--) {
        size_t author = truth.posts[id - 1].author;
        if (truth.posts[id - 1].deleted || !own_or_followed(who, author))
            continue;
        while (at < n && ids[at] > id) { /* too much may be there, if a reader would filter it */
            size_t other = truth.posts[ids[at] - 1].author;
            assert_true(truth.posts[ids[at] - 1].deleted || !own_or_followed(who, other));
            at++;
        }
        assert_true(at < n);
        assert_int_equal(ids[at++], id);
    }
}

static void late_deliveries_end_in_the_true_feed(void **state)
{
    (void)state;
    for (uint64_t seed = 0; seed < histories * 3; seed++) {
        struct rand r;
        rand_seed(&r, seed);
        manual_clock_init(&the_clock, INT64_C(1800000000000));
        memset(&truth, 0, sizeof truth);
        struct views *v = open_views();
        for (size_t i = 0; i < PEOPLE; i++)
            apply(v, VIEW_ACCOUNT, true, i, 0, the_clock.wall_ms);
        for (int step = 0; step < STEPS; step++) {
            truth_step(v, &r);
            for (uint64_t k = rand_below(&r, 4); k > 0 && truth.task_count > 0; k--)
                do_task(v, &r, rand_below(&r, truth.task_count));
        }
        while (truth.task_count > 0)
            do_task(v, &r, rand_below(&r, truth.task_count));
        for (size_t who = 0; who < PEOPLE; who++)
            feed_equals_truth(v, who);
        views_free(v);
    }
}

/* The driver's name is the argument; memory when there is none. */
int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(random_histories_agree_call_by_call),
        cmocka_unit_test(late_deliveries_end_in_the_true_feed),
    };
    if (argc > 1) {
        exact = false;
        histories = 6;
        redis_kind = strcmp(argv[1], "redis") == 0 ? REDIS_SINGLE : REDIS_CLUSTER;
    }
    return cmocka_run_group_tests(tests, NULL, NULL);
}
