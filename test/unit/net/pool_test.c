/* The pool: order, its bound, and its end. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <pthread.h>
#include <semaphore.h>
#include <stdatomic.h>
#include <stdlib.h>

#include "base/check.h"
#include "net/pool.h"

struct gate {
    struct pool_task task;
    sem_t entered, open;
};

static void wait_at_gate(struct pool_task *task)
{
    struct gate *g = CONTAINER_OF(task, struct gate, task);
    sem_post(&g->entered);
    sem_wait(&g->open);
}

static void gate_init(struct gate *g)
{
    *g = (struct gate){.task.run = wait_at_gate};
    sem_init(&g->entered, 0, 0);
    sem_init(&g->open, 0, 0);
}

struct numbered {
    struct pool_task task;
    int number;
};

static int order[100];
static _Atomic int order_len;

static void note_number(struct pool_task *task)
{
    order[atomic_fetch_add(&order_len, 1)] = CONTAINER_OF(task, struct numbered, task)->number;
}

static void the_queue_is_bounded_and_in_order(void **state)
{
    (void)state;
    struct pool *p = pool_new(1, 10, "bounded");
    struct gate gate;
    gate_init(&gate);
    assert_true(pool_submit(p, &gate.task));
    sem_wait(&gate.entered); /* its thread is taken: the rest queues */
    struct numbered tasks[11];
    order_len = 0;
    for (int i = 0; i < 11; i++) {
        tasks[i] = (struct numbered){.task.run = note_number, .number = i};
        assert_int_equal(pool_submit(p, &tasks[i].task), i < 10);
    }
    assert_int_equal(pool_depth(p), 10);
    sem_post(&gate.open);
    pool_free(p); /* runs what is queued */
    assert_int_equal(order_len, 10);
    for (int i = 0; i < 10; i++)
        assert_int_equal(order[i], i);
}

static void no_owner_takes_more_than_its_share_and_owners_take_turns(void **state)
{
    (void)state;
    struct pool *p = pool_new(1, 10, "shares");
    pool_set_share(p, 3);
    struct gate gate;
    gate_init(&gate);
    assert_true(pool_submit(p, &gate.task));
    sem_wait(&gate.entered);
    struct numbered tasks[8];
    const uint64_t owners[] = {7, 7, 7, 7, 8, 9, 8, 7};
    const bool taken[] = {true, true, true, false, true, true, true, false};
    order_len = 0;
    for (int i = 0; i < 8; i++) {
        tasks[i] = (struct numbered){.task.run = note_number, .task.owner = owners[i], .number = i};
        assert_int_equal(pool_submit(p, &tasks[i].task), taken[i]);
    }
    sem_post(&gate.open);
    pool_free(p);
    const int wanted[] = {0, 4, 5, 1, 6, 2};
    assert_int_equal(order_len, COUNT_OF(wanted));
    assert_memory_equal(order, wanted, sizeof wanted);
}

/* Takes three along and runs them. */
static struct pool *taken_from;

static void take_along(struct pool_task *task)
{
    struct pool_task *more[3];
    (void)task;
    size_t n = pool_take(taken_from, more, COUNT_OF(more));
    assert_int_equal(n, 3);
    assert_int_equal(pool_depth(taken_from), 2);
    for (size_t i = 0; i < n; i++)
        more[i]->run(more[i]);
}

static void a_task_takes_the_next_along(void **state)
{
    (void)state;
    struct gate gate;
    struct pool_task taker = {.run = take_along}, *none[1];
    static struct numbered tasks[5];
    gate_init(&gate);
    order_len = 0;
    taken_from = pool_new(1, 10, "step");
    assert_int_equal(pool_take(taken_from, none, 1), 0);
    assert_true(pool_submit(taken_from, &gate.task));
    sem_wait(&gate.entered);
    assert_true(pool_submit(taken_from, &taker));
    for (int i = 0; i < 5; i++) {
        tasks[i] = (struct numbered){.task.run = note_number, .number = i};
        assert_true(pool_submit(taken_from, &tasks[i].task));
    }
    sem_post(&gate.open);
    pool_free(taken_from);
    assert_int_equal(order_len, 5); /* each once, in their order */
    for (int i = 0; i < 5; i++)
        assert_int_equal(order[i], i);
}

static void tasks_run_side_by_side(void **state)
{
    (void)state;
    struct pool *p = pool_new(4, 10, "wide");
    struct gate gates[4];
    for (size_t i = 0; i < COUNT_OF(gates); i++) {
        gate_init(&gates[i]);
        assert_true(pool_submit(p, &gates[i].task));
    }
    for (size_t i = 0; i < COUNT_OF(gates); i++)
        sem_wait(&gates[i].entered); /* all four are inside at once */
    for (size_t i = 0; i < COUNT_OF(gates); i++)
        sem_post(&gates[i].open);
    pool_free(p);
}

enum { SUBMITTERS = 4, TASKS_EACH = 5000 };

struct counted {
    struct pool_task task;
    _Atomic int runs;
};

static struct counted counted[SUBMITTERS][TASKS_EACH];
static struct pool *shared_pool;

static void count_run(struct pool_task *task)
{
    atomic_fetch_add(&CONTAINER_OF(task, struct counted, task)->runs, 1);
}

static void *submit_all(void *arg)
{
    struct counted *mine = arg;
    for (int i = 0; i < TASKS_EACH; i++) {
        mine[i].task.run = count_run;
        while (!pool_submit(shared_pool, &mine[i].task))
            sched_yield();
    }
    return NULL;
}

static void every_task_runs_exactly_once(void **state)
{
    (void)state;
    shared_pool = pool_new(3, 64, "shared");
    pthread_t threads[SUBMITTERS];
    for (size_t i = 0; i < SUBMITTERS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, submit_all, counted[i]), 0);
    for (size_t i = 0; i < SUBMITTERS; i++)
        pthread_join(threads[i], NULL);
    pool_free(shared_pool);
    for (size_t i = 0; i < SUBMITTERS; i++)
        for (size_t k = 0; k < TASKS_EACH; k++)
            assert_int_equal(counted[i][k].runs, 1);
}

static bool resubmit_taken;
static struct pool_task never = {.run = count_run};

static void resubmit(struct pool_task *task)
{
    struct gate *g = CONTAINER_OF(task, struct gate, task);
    sem_post(&g->entered);
    sem_wait(&g->open);
    /* pool_free has begun or is about to: wait until it refuses, as a late producer would. */
    while ((resubmit_taken = pool_submit(shared_pool, &never)) && pool_depth(shared_pool) == 0)
        sched_yield();
}

static void *free_shared(void *arg)
{
    (void)arg;
    pool_free(shared_pool);
    return NULL;
}

static void a_stopping_pool_takes_no_more(void **state)
{
    (void)state;
    shared_pool = pool_new(1, 1, "stopping");
    struct gate gate;
    gate_init(&gate);
    gate.task.run = resubmit;
    struct gate filler;
    gate_init(&filler);
    sem_post(&filler.open);
    assert_true(pool_submit(shared_pool, &gate.task));
    sem_wait(&gate.entered);
    assert_true(pool_submit(shared_pool, &filler.task)); /* full: nothing else fits either way */
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, free_shared, NULL), 0);
    sem_post(&gate.open);
    pthread_join(thread, NULL);
    assert_false(resubmit_taken);
    assert_int_equal(sem_trywait(&filler.entered), 0); /* what was queued ran */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_queue_is_bounded_and_in_order),
        cmocka_unit_test(no_owner_takes_more_than_its_share_and_owners_take_turns),
        cmocka_unit_test(a_task_takes_the_next_along),
        cmocka_unit_test(tasks_run_side_by_side),
        cmocka_unit_test(every_task_runs_exactly_once),
        cmocka_unit_test(a_stopping_pool_takes_no_more),
    };
    return cmocka_run_group_tests_name("net/pool", tests, NULL, NULL);
}
