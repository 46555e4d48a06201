/* The runner: due times, wake-ups that come at the worst moment, and an end that is bounded. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdatomic.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "ops/runner.h"

static int64_t now_us(void)
{
    return clock_mono_us(clock_system());
}

/* Waits for a condition that another thread makes true; false after ten seconds. */
static bool await(_Atomic int *value, int at_least)
{
    int64_t until = now_us() + 10 * 1000 * 1000;
    while (atomic_load(value) < at_least) {
        if (now_us() > until)
            return false;
        sched_yield();
    }
    return true;
}

static void end(struct runner *r)
{
    assert_true(runner_stop(r, 10000));
    runner_free(r);
}

static int64_t count_and_sleep(void *ctx)
{
    _Atomic int *count = ctx;
    atomic_fetch_add(count, 1);
    return INT64_MAX;
}

static void a_sleeping_step_runs_when_woken(void **state)
{
    (void)state;
    _Atomic int count = 0;
    struct runner *r = runner_new();
    assert_true(runner_add(r, "test", count_and_sleep, &count, 1, 0));
    assert_true(await(&count, 1));
    for (int i = 2; i <= 100; i++) {
        runner_wake(r);
        assert_true(await(&count, i));
    }
    end(r);
}

struct handshake {
    sem_t inside, go;
    _Atomic int count;
};

static int64_t stop_inside(void *ctx)
{
    struct handshake *h = ctx;
    if (atomic_fetch_add(&h->count, 1) == 0) {
        sem_post(&h->inside);
        sem_wait(&h->go);
    }
    return INT64_MAX;
}

static void a_wake_during_the_step_is_not_lost(void **state)
{
    (void)state;
    struct handshake h = {0};
    sem_init(&h.inside, 0, 0);
    sem_init(&h.go, 0, 0);
    struct runner *r = runner_new();
    assert_true(runner_add(r, "test", stop_inside, &h, 1, 0));
    sem_wait(&h.inside);
    runner_wake(r);
    sem_post(&h.go);
    assert_true(await(&h.count, 2));
    end(r);
    sem_destroy(&h.inside);
    sem_destroy(&h.go);
}

/* A queue of length one between this thread and the step: each item must be met, however the
 * wake-up and the falling asleep interleave. */
struct box {
    _Atomic int given, taken;
};

static int64_t take(void *ctx)
{
    struct box *b = ctx;
    atomic_store(&b->taken, atomic_load(&b->given));
    return INT64_MAX;
}

static void no_wake_is_lost_in_many(void **state)
{
    (void)state;
    struct box b = {0};
    struct runner *r = runner_new();
    assert_true(runner_add(r, "test", take, &b, 1, 0));
    for (int i = 1; i <= 20000; i++) {
        atomic_store(&b.given, i);
        runner_wake(r);
        assert_true(await(&b.taken, i));
    }
    end(r);
}

struct timed {
    _Atomic int count;
    int64_t called_us[3];
};

static int64_t thrice(void *ctx)
{
    struct timed *t = ctx;
    int n = atomic_load(&t->count);
    t->called_us[n] = now_us();
    atomic_store(&t->count, n + 1);
    return n < 2 ? t->called_us[n] + 20000 : INT64_MAX;
}

static void a_step_is_called_when_due_and_not_before(void **state)
{
    (void)state;
    struct timed t = {0};
    struct runner *r = runner_new();
    assert_true(runner_add(r, "test", thrice, &t, 1, 0));
    assert_true(await(&t.count, 3));
    end(r);
    assert_true(t.called_us[1] - t.called_us[0] >= 20000);
    assert_true(t.called_us[2] - t.called_us[1] >= 20000);
    assert_int_equal(atomic_load(&t.count), 3);
}

static int64_t at_once(void *ctx)
{
    atomic_fetch_add((_Atomic int *)ctx, 1);
    return 0;
}

static void a_step_that_is_due_runs_again_without_sleep(void **state)
{
    (void)state;
    _Atomic int count = 0;
    struct runner *r = runner_new();
    assert_true(runner_add(r, "test", at_once, &count, 2, 0));
    assert_true(await(&count, 1000));
    end(r);
}

static int64_t note_niceness(void *ctx)
{
    atomic_store((_Atomic int *)ctx, 100 + getpriority(PRIO_PROCESS, (id_t)syscall(SYS_gettid)));
    return INT64_MAX;
}

static void threads_get_their_niceness_alone(void **state)
{
    (void)state;
    _Atomic int seen = 0;
    int own = getpriority(PRIO_PROCESS, 0);
    struct runner *r = runner_new();
    assert_true(runner_add(r, "test", note_niceness, &seen, 1, 5));
    assert_true(await(&seen, 1));
    end(r);
    int expected = own + 5 > 19 ? 19 : own + 5;
    assert_int_equal(atomic_load(&seen) - 100, expected);
    assert_int_equal(getpriority(PRIO_PROCESS, 0), own);
}

/* In µs; 0: this kernel has no slices of threads' own. */
static int slice_us(void)
{
    struct {
        uint32_t size, policy;
        uint64_t flags;
        int32_t nice;
        uint32_t priority;
        uint64_t slice_ns, deadline_ns, period_ns;
    } now = {.size = sizeof now};
    assert_int_equal(syscall(SYS_sched_getattr, 0, &now, sizeof now, 0), 0);
    return (int)(now.slice_ns / 1000);
}

static int64_t note_slice(void *ctx)
{
    atomic_store((_Atomic int *)ctx, 1 + slice_us());
    return INT64_MAX;
}

/* So that a thread which wakes up for a request need not wait for it. */
static void a_nice_thread_has_a_long_slice(void **state)
{
    (void)state;
    _Atomic int nice = 0, plain = 0;
    struct runner *r = runner_new();
    assert_true(runner_add(r, "nice", note_slice, &nice, 1, 5));
    assert_true(runner_add(r, "plain", note_slice, &plain, 1, 0));
    assert_true(await(&nice, 1) && await(&plain, 1));
    end(r);
    assert_int_equal(atomic_load(&plain) - 1, slice_us());
    if (slice_us() > 0)
        assert_int_equal(atomic_load(&nice) - 1, 100 * 1000);
}

static void stopping_does_not_wait_for_ever(void **state)
{
    (void)state;
    struct handshake h = {0};
    sem_init(&h.inside, 0, 0);
    sem_init(&h.go, 0, 0);
    struct runner *r = runner_new();
    assert_true(runner_add(r, "test", stop_inside, &h, 1, 0));
    sem_wait(&h.inside);
    assert_false(runner_stop(r, 20));
    sem_post(&h.go);
    end(r);
    assert_int_equal(atomic_load(&h.count), 1);
    sem_destroy(&h.inside);
    sem_destroy(&h.go);
}

static void threads_have_a_limit(void **state)
{
    (void)state;
    _Atomic int count = 0;
    struct runner *r = runner_new();
    assert_false(runner_add(r, "test", count_and_sleep, &count, RUNNER_THREADS_MAX + 1, 0));
    end(r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_sleeping_step_runs_when_woken),
        cmocka_unit_test(a_wake_during_the_step_is_not_lost),
        cmocka_unit_test(no_wake_is_lost_in_many),
        cmocka_unit_test(a_step_is_called_when_due_and_not_before),
        cmocka_unit_test(a_step_that_is_due_runs_again_without_sleep),
        cmocka_unit_test(threads_get_their_niceness_alone),
        cmocka_unit_test(a_nice_thread_has_a_long_slice),
        cmocka_unit_test(stopping_does_not_wait_for_ever),
        cmocka_unit_test(threads_have_a_limit),
    };
    return cmocka_run_group_tests_name("ops/runner", tests, NULL, NULL);
}
