/* `fantail demo`: creates a demo world; with --live its people keep acting.
 *
 * The world is loaded as import lines. Signals are taken with sigtimedwait between chunks and acts;
 * live play waits in the same call. */
#include <inttypes.h>
#include <math.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "cmd/command.h"
#include "cmd/import_lines.h"
#include "demo/live.h"
#include "demo/world.h"
#include "ops/progress.h"

enum { PEOPLE_DEFAULT = 2000, SEED_DEFAULT = 1 };

struct loading {
    struct import_lines lines;
    struct progress progress;
    const sigset_t *signals;
    bool interrupted;
};

static bool load_line(void *ctx, struct str line)
{
    struct loading *l = ctx;
    static const struct timespec no_wait = {0, 0};
    if (l->lines.line % 1000 == 0 && sigtimedwait(l->signals, NULL, &no_wait) > 0) {
        l->interrupted = true;
        return false;
    }
    progress_update(&l->progress, l->lines.line);
    return import_lines_add(&l->lines, line);
}

static bool person_exists(struct control *control, const struct demo_world *w, uint32_t person)
{
    int status = 0;
    char target[80];
    snprintf(target, sizeof(target), "/v1/accounts?username=%s", demo_username(w, person));
    json_t *answer = control_call(control, "GET", target, NULL, STR(""), &status);
    const json_t *items = json_object_get(answer, "items");
    bool found = status == 200 && (!items || json_array_size(items) > 0);
    json_decref(answer);
    return found;
}

/* How many of the world's people are in the store. A smaller world is the beginning of a larger
 * one. */
static uint32_t count_existing(struct control *control, const struct demo_world *w, uint32_t people)
{
    uint32_t low = 0, high = people;
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        if (person_exists(control, w, middle))
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

static int load(struct invocation *in, struct control *control, struct demo_world *w,
                const sigset_t *signals)
{
    struct loading l = {.signals = signals};
    struct demo_counts counts;
    demo_world_counts(w, &counts);
    import_lines_init(&l.lines, control);
    progress_init(&l.progress, "making a world",
                  counts.people + counts.follows + counts.posts + counts.likes + counts.comments,
                  PROGRESS_COUNT);
    bool ok = demo_world_write(w, load_line, &l) && import_lines_flush(&l.lines);
    l.progress.done = l.lines.line;
    progress_done(&l.progress);
    if (ok)
        import_lines_summary(&l.lines);
    ok = ok && l.lines.totals[IMPORTED_REJECTED] == 0;
    import_lines_done(&l.lines);
    if (l.interrupted)
        return command_fail(
            in, "interrupted: the world in %s is incomplete; remove the folder and run it again",
            in->settings.data);
    return ok ? EXIT_DONE : EXIT_FAILED;
}

static void print_log_ins(const struct invocation *in, const struct demo_world *w,
                          const struct control *control)
{
    printf("\nYou can log in as:\n");
    for (uint32_t i = 0; i < DEMO_LOGINS; i++)
        printf("  %-8s password %s   (%s, %" PRIu32 " followers)\n", demo_username(w, i),
               DEMO_PASSWORD, demo_name(w, i), demo_followers(w, i));
    for (uint32_t i = DEMO_LOGINS; i < DEMO_LOGINS + DEMO_CELEBRITIES; i++)
        printf("%s @%s (%" PRIu32 " followers)", i == DEMO_LOGINS ? "Most followed:" : " and",
               demo_username(w, i), demo_followers(w, i));
    printf("\n");
    if (control_port(control) > 0)
        printf("Serving on http://localhost:%u until interrupted.\n", control_port(control));
    else if (!control_is_remote(control))
        printf("Now: fantail serve --data %s\n", in->settings.data);
    fflush(stdout);
}

static int run(struct invocation *in)
{
    int64_t people = PEOPLE_DEFAULT, seed = SEED_DEFAULT;
    if (!invocation_number(in, "people", DEMO_PEOPLE_MIN, DEMO_PEOPLE_MAX, &people) ||
        !invocation_number(in, "seed", 0, INT64_MAX, &seed))
        return EXIT_USAGE;
    sigset_t signals;
    sigemptyset(&signals);
    sigaddset(&signals, SIGINT);
    sigaddset(&signals, SIGTERM);
    pthread_sigmask(SIG_BLOCK, &signals, NULL);
    bool live = invocation_has(in, "live");
    struct control *control = control_open(in, live ? CONTROL_SERVE : CONTROL_CREATE);
    if (!control)
        return EXIT_FAILED;
    int64_t now_ms = clock_wall_ms(clock_system());
    struct demo_world *w = demo_world_new((uint64_t)seed, (uint32_t)people, now_ms);
    int code = EXIT_DONE;
    if (!person_exists(control, w, 0)) {
        code = load(in, control, w, &signals);
    } else {
        uint32_t existing = count_existing(control, w, (uint32_t)people);
        demo_world_free(w);
        existing = existing < DEMO_PEOPLE_MIN ? DEMO_PEOPLE_MIN : existing;
        w = demo_world_new((uint64_t)seed, existing, now_ms);
        printf("The demo world is in %s already.\n", in->settings.data);
    }
    if (code == EXIT_DONE) {
        print_log_ins(in, w, control);
        if (live)
            code = demo_live(control, w, &signals);
    }
    demo_world_free(w);
    control_close(control);
    return code;
}

const struct command command_demo = {
    .name = "demo",
    .arguments = "",
    .summary = "make a small, believable world to look around in",
    .about = "Makes 2,000 people with a power-law follow graph, two of them followed by most, and "
             "thirty days of posts, likes and comments, in the data folder or through the server "
             "that runs on it; prints three log-ins. With --live people go on posting, liking, "
             "commenting and following until interrupted; when no server runs, this command then "
             "serves on --listen itself. The celebrity threshold starts at 10,000 followers, more "
             "than this world has people: serve with --celebrity-threshold 1000 "
             "--celebrity-adaptive off before making it, to see the two being pulled.",
    .examples = "  fantail demo && fantail serve\n  fantail demo --live\n"
                "  fantail demo --people 200 --seed 7 --data /tmp/world",
    .options = {{"people", "N", "how many people, 20 to 100,000 (default 2,000)"},
                {"seed", "N", "another world (default 1)"},
                {"live", NULL, "keep it alive until interrupted"}},
    .run = run,
};
