/* The invalidation listener when connections are lost, servers hang, die and are replaced, and when
 * many ask, read and change at once: nobody may be told that a page is the same when it may not be.
 */
#include <signal.h>
#include <stdatomic.h>
#include <string.h>
#include <time.h>

#include "base/check.h"
#include "base/rand.h"
#include "card_writes.h"
#include "traced_page.h"

/* ---- connections and servers ---- */

/* Ids of the connections that the invalidation listener hears of, or of the invalidation listener's
 * own, at one server. */
static size_t find_clients(struct fixture *f, size_t host, bool own, long long *ids, size_t max)
{
    redisReply *reply = servers_ask(&f->servers, host, "CLIENT LIST");
    size_t n = 0;
    char *save, *line = strtok_r(reply->str, "\n", &save);
    for (; line && n < max; line = strtok_r(NULL, "\n", &save)) {
        const char *redir = strstr(line, " redir=");
        long long to = redir ? atoll(redir + 7) : -1;
        if (to > 0)
            ids[n++] = own ? to : atoll(line + 3);
    }
    freeReplyObject(reply);
    return n;
}

static size_t kill_clients(struct fixture *f, bool own)
{
    size_t killed = 0;
    for (size_t host = 0; host < f->servers.url.host_count; host++) {
        long long ids[64];
        size_t n = find_clients(f, host, own, ids, COUNT_OF(ids));
        for (size_t i = 0; i < n && (!own || i < 1); i++) {
            char command[60];
            snprintf(command, sizeof command, "CLIENT KILL ID %lld", ids[i]);
            freeReplyObject(servers_ask(&f->servers, host, command));
            killed++;
        }
    }
    return killed;
}

static void a_lost_connection_makes_everything_worthless(void **state)
{
    struct fixture *f = *state;
    for (int own = 0; own <= 1; own++) {
        struct read_trace t, next;
        struct invalidation_stats before, after;
        note(f, &t);
        assert_true(ask(f->w));
        invalidation_stats(f->w, &before);
        assert_true(kill_clients(f, own) > 0);
        cards_post_gone(f->other.c, ELSEWHERE);
        cards_post_gone(f->other.c, FIRST);
        (void)ask(f->w);
        assert_false(same(f, &t));
        invalidation_stats(f->w, &after);
        assert_true(after.lost > before.lost);
        put_card(&f->other, FIRST, AUTHOR, 1); /* a tombstone stays */
        note(f, &next);
        assert_false(same(f, &t));
        assert_true(ask(f->w));
        assert_true(same(f, &next));
    }
}

static void without_a_connection_nothing_can_be_said(void **state)
{
    struct fixture *f = *state;
    struct invalidation *w;
    struct redis_config config = {.url = "redis://127.0.0.1:1", .clock = clock_system()};
    assert_false(ask(f->w));
    assert_int_equal(invalidation_redis_open(&config, &w), OK);
    assert_false(ask(w));
    invalidation_free(w);
    config.url = "no url";
    assert_int_equal(invalidation_redis_open(&config, &w), ERR_BAD_INPUT);
}

static void a_silent_server_is_given_up_in_time(void **state)
{
    struct fixture *f = *state;
    struct read_trace t, next;
    struct question late = {
        .q.done = on_done, .lock = PTHREAD_MUTEX_INITIALIZER, .told = PTHREAD_COND_INITIALIZER};
    note(f, &t);
    stop_server(f);
    int64_t began = now_ms();
    invalidation_ask(f->w, &late.q);
    (void)ask(f->w); /* waits for two round trips, the second without that server */
    assert_false(await(&late));
    assert_true(now_ms() - began <= INVALIDATION_ASK_MS + 4000); /* of a busy machine */
    assert_false(same(f, &t));
    go_on(f);
    note(f, &next);
    assert_false(same(f, &t));
    assert_true(ask(f->w));
    assert_true(same(f, &next));
}

static void who_still_asks_at_the_end_is_told(void **state)
{
    struct fixture *f = *state;
    struct read_trace t;
    struct question q[2] = {A_QUESTION, A_QUESTION};
    note(f, &t);
    stop_server(f);
    invalidation_ask(f->w, &q[0].q);
    invalidation_ask(f->w, &q[1].q);
    assert_int_equal(q[0].answers + q[1].answers, 0);
    close_process(&f->mine);
    invalidation_free(f->w);
    go_on(f);
    assert_false(await(&q[0]));
    assert_false(await(&q[1]));
    f->config.invalidation = NULL;
    assert_int_equal(invalidation_redis_open(&f->config, &f->w), OK);
    open_process(&f->config, &f->mine);
}

static void a_server_that_dies_takes_everything_along(void **state)
{
    struct fixture *f = *state;
    struct read_trace t;
    note(f, &t);
    kill(servers_pid(&f->servers, viewers_host(f)), SIGKILL);
    (void)ask(f->w);
    assert_false(same(f, &t));
    (void)ask(f->w);
    assert_false(same(f, &t));
    if (!f->servers.url.cluster)
        return;
    struct read_trace next; /* a replica takes over, and is listened to */
    note(f, &next);
    assert_true(ask(f->w));
    assert_true(same(f, &next));
    apply(&f->other,
          (struct view_change){.kind = VIEW_MUTE, .on = true, .account = VIEWER, .other = AUTHOR});
    assert_true(ask(f->w));
    assert_false(same(f, &next));
}

/* The port that the server follows; 0: it is a master. */
static int follows(struct fixture *f, size_t host)
{
    redisReply *reply = servers_ask(&f->servers, host, "INFO replication");
    const char *port = strstr(reply->str, "\nmaster_port:");
    int n = port ? atoi(port + strlen("\nmaster_port:")) : 0;
    freeReplyObject(reply);
    return n;
}

/* It lives on and answers, and changes go to another. */
static void a_master_that_is_replaced_does_not_count(void **state)
{
    struct fixture *f = *state;
    struct read_trace t, next;
    size_t master = viewers_host(f);
    int64_t until = now_ms() + PATIENCE_MS;
    note(f, &t);
    assert_true(ask(f->w));
    assert_true(same(f, &t));
    servers_replicate(&f->servers);
    for (size_t i = 0; i < f->servers.url.host_count; i++)
        if (follows(f, i) == f->servers.url.hosts[master].port)
            freeReplyObject(servers_ask(&f->servers, i, "CLUSTER FAILOVER"));
    while (!follows(f, master) && now_ms() < until)
        a_moment();
    assert_true(follows(f, master));
    assert_false(ask(f->w));
    assert_false(same(f, &t));
    note(f, &next);
    assert_true(ask(f->w));
    assert_true(same(f, &next));
    deliver(&f->other, AUTHOR, POST(10), false);
    assert_true(ask(f->w));
    assert_false(same(f, &next));
}

/* ---- many at once ---- */

enum { ASKERS = 64, TIMES = 50 };

static void *ask_often(void *arg)
{
    struct invalidation *w = arg;
    for (int i = 0; i < TIMES; i++)
        if (!ask(w))
            return arg;
    return NULL;
}

static void many_who_ask_share_their_round_trips(void **state)
{
    struct fixture *f = *state;
    struct read_trace t;
    struct invalidation_stats before, after;
    pthread_t threads[ASKERS];
    note(f, &t);
    invalidation_stats(f->w, &before);
    for (int i = 0; i < ASKERS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, ask_often, f->w), 0);
    for (int i = 0; i < ASKERS; i++) {
        void *failed;
        pthread_join(threads[i], &failed);
        assert_null(failed);
    }
    invalidation_stats(f->w, &after);
    assert_int_equal(after.asked - before.asked, ASKERS * TIMES);
    assert_true((after.round_trips - before.round_trips) * 4 < ASKERS * TIMES);
    assert_true(same(f, &t));
}

/* ---- at random ---- */

enum { POSTS = 24, ON_A_PAGE = 3, READERS = 3, WRITERS = 2, KEPT = 16, RANDOM_MS = 3000 };

struct crowd {
    struct fixture *f;
    _Atomic uint32_t written[POSTS]; /* at least this version is there: the change has returned */
    _Atomic bool stop;
    _Atomic uint64_t right, changed, wrong;
};

struct member {
    struct crowd *crowd;
    unsigned number;
};

struct kept {
    struct read_trace trace;
    unsigned posts[ON_A_PAGE];
    uint32_t versions[ON_A_PAGE];
};

static void *change_at_random(void *arg)
{
    struct member *m = arg;
    struct crowd *c = m->crowd;
    struct rand rand;
    rand_seed(&rand, 100 + m->number);
    while (!atomic_load(&c->stop)) {
        unsigned at = (unsigned)(rand_u64(&rand) % (POSTS / WRITERS)) * WRITERS + m->number;
        uint32_t version = atomic_load(&c->written[at]) + 1;
        put_card(m->number ? &c->f->mine : &c->f->other, POST(100 + at), AUTHOR, version);
        atomic_store(&c->written[at], version);
        nanosleep(&(struct timespec){.tv_nsec = (long)(rand_u64(&rand) % 1000000)}, NULL);
    }
    return NULL;
}

static bool keep_page(struct crowd *c, struct rand *rand, struct kept *k)
{
    uint64_t ids[ON_A_PAGE];
    struct post_card cards[ON_A_PAGE];
    enum card_state states[ON_A_PAGE];
    struct arena arena;
    arena_init(&arena);
    for (int i = 0; i < ON_A_PAGE; i++) {
        k->posts[i] = (unsigned)(rand_u64(rand) % POSTS);
        ids[i] = POST(100 + k->posts[i]);
    }
    invalidation_begin(c->f->w, &k->trace);
    cards_posts(c->f->mine.c, ids, ON_A_PAGE, cards, states, &arena);
    invalidation_end(c->f->w, &k->trace);
    for (int i = 0; i < ON_A_PAGE; i++)
        k->versions[i] = cards[i].like_count;
    arena_done(&arena);
    return k->trace.whole;
}

static void check_page(struct crowd *c, const struct kept *k)
{
    uint32_t before[ON_A_PAGE];
    for (int i = 0; i < ON_A_PAGE; i++)
        before[i] = atomic_load(&c->written[k->posts[i]]);
    if (!ask(c->f->w) || !same(c->f, &k->trace)) {
        atomic_fetch_add(&c->changed, 1);
        return;
    }
    bool wrong = false;
    for (int i = 0; i < ON_A_PAGE; i++)
        wrong |= k->versions[i] < before[i];
    atomic_fetch_add(wrong ? &c->wrong : &c->right, 1);
}

static void *read_at_random(void *arg)
{
    struct member *m = arg;
    struct crowd *c = m->crowd;
    struct kept *kept = calloc(KEPT, sizeof *kept);
    struct rand rand;
    rand_seed(&rand, 200 + m->number);
    while (!atomic_load(&c->stop)) {
        struct kept *k = &kept[rand_u64(&rand) % KEPT];
        if (k->trace.whole)
            check_page(c, k);
        if (!k->trace.whole || !same(c->f, &k->trace))
            (void)keep_page(c, &rand, k);
    }
    free(kept);
    return NULL;
}

static void no_page_is_the_same_after_a_change(void **state)
{
    struct fixture *f = *state;
    struct read_trace t;
    struct crowd c = {.f = f};
    struct member members[READERS + WRITERS];
    pthread_t threads[READERS + WRITERS];
    for (unsigned i = 0; i < POSTS; i++)
        put_card(&f->other, POST(100 + i), AUTHOR, 0);
    note(f, &t);
    for (unsigned i = 0; i < READERS + WRITERS; i++) {
        members[i] = (struct member){&c, i};
        assert_int_equal(pthread_create(&threads[i], NULL,
                                        i < WRITERS ? change_at_random : read_at_random,
                                        &members[i]),
                         0);
    }
    int64_t until = now_ms() + RANDOM_MS;
    for (int round = 0; now_ms() < until; round++) {
        a_moment();
        if (round % 100 == 50) /* connections come and go */
            (void)kill_clients(f, round % 200 == 50);
    }
    atomic_store(&c.stop, true);
    for (size_t i = 0; i < READERS + WRITERS; i++)
        pthread_join(threads[i], NULL);
    assert_int_equal(c.wrong, 0);
    assert_true(c.right > 100);
    assert_true(c.changed > 100);
}

int main(int argc, char **argv)
{
    if (argc < 2 || !servers_are_known()) {
        fprintf(stderr, "to be run by script/servers\n");
        return 2;
    }
    servers_script = argv[1];
#define CASE(name, kind)                                                                           \
    {                                                                                              \
#name " (" kind ")", name, set_up, tear_down, (void *)(uintptr_t)kind                      \
    }
#define BOTH(name) CASE(name, "redis"), CASE(name, "redis-cluster")
    const struct CMUnitTest tests[] = {
        BOTH(a_lost_connection_makes_everything_worthless),
        CASE(without_a_connection_nothing_can_be_said, "redis"),
        BOTH(a_silent_server_is_given_up_in_time),
        BOTH(who_still_asks_at_the_end_is_told),
        BOTH(many_who_ask_share_their_round_trips),
        BOTH(no_page_is_the_same_after_a_change),
        CASE(a_master_that_is_replaced_does_not_count, "redis-cluster"),
        BOTH(a_server_that_dies_takes_everything_along),
    };
    return cmocka_run_group_tests_name("redis invalidation, trouble", tests, NULL, NULL);
}
