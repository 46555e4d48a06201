/* Long work of the server, seen from the command line: replays and rebuilds.
 *
 * The server does the work; a command only looks. So ending the command, by Ctrl-C or because its
 * terminal went away, never ends the work. SIGINT is let in only while the command sleeps, so that
 * no request is cut in half. The command's name is the job's noun, and its plural is in the path.
 */
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/select.h>

#include "base/clock.h"
#include "cmd/operate.h"
#include "cmd/show.h"
#include "ops/progress.h"

enum { LOOK_EVERY_NS = 200 * 1000 * 1000 };

static volatile sig_atomic_t interrupted;

static void on_interrupt(int signal)
{
    (void)signal;
    interrupted = 1;
}

static bool job_is(const json_t *job, const char *state)
{
    return strcmp(answer_text(job, "state"), state) == 0;
}

static bool is_open(const json_t *job)
{
    return job_is(job, "running") || job_is(job, "paused");
}

static void leave_open(const struct invocation *in, const struct control *c, const json_t *job)
{
    const char *noun = in->command->name, *id = answer_text(job, "id");
    bool paused = job_is(job, "paused");
    fprintf(stderr, "%s %s %s%s. To look again: fantail %s watch %s\n", noun, id,
            paused ? "stays paused" : "goes on",
            paused || control_is_remote(c) ? "" : " when the server runs", noun, id);
    fprintf(stderr, "To %s it: fantail %s %s %s, or cancel %s\n", paused ? "resume" : "stop", noun,
            paused ? "resume" : "pause", id, id);
}

/* The pace of earlier work counts from its own beginning. */
static void begin_with_job(struct progress *p, const json_t *job)
{
    int64_t created_ms, changed_ms;
    if (time_parse(str_of(answer_text(job, "created_at")), &created_ms) &&
        time_parse(str_of(answer_text(job, "changed_at")), &changed_ms) && changed_ms > created_ms)
        p->began_us -= (changed_ms - created_ms) * 1000;
}

static void show_progress(struct progress *p, const json_t *job, char note[200])
{
    progress_update(p, (uint64_t)answer_int(job, "seen"));
    const char *said = job_is(job, "paused") ? "paused" : answer_text(job, "note");
    if (!is_open(job) || strcmp(said, note) == 0)
        return;
    snprintf(note, 200, "%s", said);
    if (note[0])
        fprintf(stderr, "%s%s\n", p->terminal ? "\n" : "", note);
}

/* Until it ends, SIGINT comes, or the server is gone (NULL). Takes `job`. */
static json_t *look_on(struct invocation *in, struct control *c, const char *label, json_t *job)
{
    char target[120], note[200] = "";
    sigset_t interrupt, before;
    struct sigaction action = {.sa_handler = on_interrupt};
    struct progress p;
    snprintf(target, sizeof target, "/v1/admin/%ss/%.24s", in->command->name,
             answer_text(job, "id"));
    sigemptyset(&interrupt);
    sigaddset(&interrupt, SIGINT);
    pthread_sigmask(SIG_BLOCK, &interrupt, &before);
    sigaction(SIGINT, &action, NULL);
    progress_init(&p, label, (uint64_t)answer_int(job, "total"), PROGRESS_COUNT);
    begin_with_job(&p, job);
    show_progress(&p, job, note);
    while (job && is_open(job) && !interrupted) {
        struct timespec pause = {.tv_nsec = LOOK_EVERY_NS};
        pselect(0, NULL, NULL, NULL, &pause, &before);
        json_decref(job);
        job = control_get(c, target);
        if (job)
            show_progress(&p, job, note);
    }
    progress_done(&p);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return job;
}

int job_watch(struct invocation *in, struct control *c, const struct operation *op, json_t *job)
{
    int code = EXIT_FAILED;
    job = look_on(in, c, op->label, job);
    if (job && is_open(job)) {
        leave_open(in, c, job);
        code = EXIT_DONE;
    } else if (job) {
        operate_show(in, op, NULL, job);
        code = job_is(job, "done") && answer_int(job, "failed") == 0 ? EXIT_DONE : EXIT_FAILED;
    }
    json_decref(job);
    return code;
}

int job_follow(struct invocation *in, struct control *c, const struct operation *op, json_t *job)
{
    const char *noun = in->command->name, *id = answer_text(job, "id");
    if (!invocation_has(in, "detach"))
        return job_watch(in, c, op, job);
    if (invocation_has(in, "json"))
        show_json(job);
    else
        printf("%s %s runs%s: fantail %s watch %s\n", noun, id,
               control_is_remote(c) ? "" : " when the server does", noun, id);
    json_decref(job);
    return EXIT_DONE;
}
