/* The server does the work; a command only looks. So ending the command, by Ctrl-C or because its
 * terminal went away, never ends the work. SIGINT is let in only while the command sleeps, so that
 * no request is cut in half. */
#include "cmd/job_watch.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/select.h>

#include "base/check.h"
#include "base/clock.h"
#include "cmd/link.h"
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

static void job_target(const struct job_family *family, const char *id, char out[120])
{
    snprintf(out, 120, "%s/%.24s", family->path, id);
}

static bool parse_id(struct invocation *in, char out[24])
{
    uint64_t id;
    if (in->argument_count < 2 || !str_parse_u64(str_of(in->arguments[1]), &id)) {
        command_usage(in, "expected: %s ID; 'fantail %s list' shows the ids", in->arguments[0],
                      in->command->name);
        return false;
    }
    snprintf(out, 24, "%llu", (unsigned long long)id);
    return true;
}

/* ---- one look ---- */

static int print_outcome(struct invocation *in, const struct job_family *family, const json_t *job)
{
    char a[SHOWN_MAX], b[SHOWN_MAX], c[SHOWN_MAX], d[SHOWN_MAX], e[SHOWN_MAX];
    uint64_t failed = (uint64_t)answer_int(job, "failed");
    const char *note = answer_text(job, "note");
    if (invocation_has(in, "json")) {
        show_json(job);
        return job_is(job, "done") && failed == 0 ? EXIT_DONE : EXIT_FAILED;
    }
    bool replay = strcmp(family->noun, "replay") == 0;
    uint64_t acted = (uint64_t)answer_int(job, "acted");
    printf("%s %s %s: %s looked at, %s %s", family->noun, answer_text(job, "id"),
           answer_text(job, "state"),
           show_number((uint64_t)answer_int(job, "seen"), family->one, family->many, a),
           show_count(acted, b),
           replay       ? "delivered again"
           : acted == 1 ? "was different"
                        : "were different");
    if (replay)
        printf(", %s already done, %s suppressed, %s failed",
               show_count((uint64_t)answer_int(job, "repeated"), c),
               show_count((uint64_t)answer_int(job, "suppressed"), d), show_count(failed, e));
    printf("%s%s%s\n", note[0] ? " (" : "", note, note[0] ? ")" : "");
    if (failed > 0)
        printf("what failed is on the books: fantail dead groups, fantail dead list\n");
    return job_is(job, "done") && failed == 0 ? EXIT_DONE : EXIT_FAILED;
}

static void leave_open(const struct job_family *family, const struct link *l, const json_t *job)
{
    const char *noun = family->noun, *id = answer_text(job, "id");
    bool paused = job_is(job, "paused");
    fprintf(stderr, "%s %s %s%s. To look again: fantail %s watch %s\n", noun, id,
            paused ? "stays paused" : "goes on",
            paused || link_is_remote(l) ? "" : " when the server runs", noun, id);
    fprintf(stderr, "To %s it: fantail %s %s %s, or cancel %s\n", paused ? "resume" : "stop", noun,
            paused ? "resume" : "pause", id, id);
}

/* Work that began before somebody looked has its pace from its own beginning. */
static void begin_with_job(struct progress *p, const json_t *job)
{
    int64_t created_ms, changed_ms;
    if (time_parse(str_of(answer_text(job, "created_at")), &created_ms) &&
        time_parse(str_of(answer_text(job, "changed_at")), &changed_ms) && changed_ms > created_ms)
        p->began_us -= (changed_ms - created_ms) * 1000;
}

/* ---- watching ---- */

int job_watch(struct invocation *in, struct link *l, const struct job_family *family, json_t *job)
{
    char id[24], target[120], note[200] = "";
    sigset_t interrupt, before;
    struct sigaction action = {.sa_handler = on_interrupt};
    snprintf(id, sizeof id, "%s", answer_text(job, "id"));
    job_target(family, id, target);
    sigemptyset(&interrupt);
    sigaddset(&interrupt, SIGINT);
    pthread_sigmask(SIG_BLOCK, &interrupt, &before);
    sigaction(SIGINT, &action, NULL);
    struct progress p;
    progress_init(&p, family->label, (uint64_t)answer_int(job, "total"), PROGRESS_COUNT);
    begin_with_job(&p, job);
    while (job && is_open(job) && !interrupted) {
        progress_update(&p, (uint64_t)answer_int(job, "seen"));
        const char *said = job_is(job, "paused") ? "paused" : answer_text(job, "note");
        if (strcmp(said, note) != 0) {
            snprintf(note, sizeof note, "%s", said);
            if (note[0])
                fprintf(stderr, "%s%s\n", p.terminal ? "\n" : "", note);
        }
        struct timespec pause = {.tv_nsec = LOOK_EVERY_NS};
        pselect(0, NULL, NULL, NULL, &pause, &before);
        json_decref(job);
        job = link_get(l, target);
    }
    if (job)
        progress_update(&p, (uint64_t)answer_int(job, "seen"));
    progress_done(&p);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    int code = EXIT_FAILED;
    if (job && is_open(job)) {
        leave_open(family, l, job);
        code = EXIT_DONE;
    } else if (job) {
        code = print_outcome(in, family, job);
    }
    json_decref(job);
    return code;
}

int job_watch_id(struct invocation *in, const struct job_family *family)
{
    char id[24], target[120];
    if (!parse_id(in, id))
        return EXIT_USAGE;
    job_target(family, id, target);
    struct link *l = link_open(in, LINK_EXISTING);
    json_t *job = l ? link_get(l, target) : NULL;
    int code = job ? job_watch(in, l, family, job) : EXIT_FAILED;
    link_close(l);
    return code;
}

/* ---- changing and listing ---- */

int job_change_state(struct invocation *in, const struct job_family *family, const char *state)
{
    char id[24], target[120];
    if (!parse_id(in, id))
        return EXIT_USAGE;
    job_target(family, id, target);
    struct link *l = link_open(in, LINK_EXISTING);
    json_t *job = l ? link_send(l, "PUT", target, json_pack("{s:s}", "state", state)) : NULL;
    if (job && invocation_has(in, "json"))
        show_json(job);
    else if (job)
        printf("%s %s is %s\n", family->noun, id, answer_text(job, "state"));
    int code = job ? EXIT_DONE : EXIT_FAILED;
    json_decref(job);
    link_close(l);
    return code;
}

static void print_row(const json_t *job, int64_t now_ms)
{
    char seen[SHOWN_MAX], total[SHOWN_MAX], when[SHOWN_MAX];
    const json_t *spec = json_object_get(job, "spec");
    const char *consumer = answer_text(spec, "consumer"), *kind = answer_text(job, "kind");
    printf("%-20s %-10s %-18s %11s %11s  %-11s %s\n", answer_text(job, "id"),
           answer_text(job, "state"), consumer[0] ? consumer : kind,
           show_count((uint64_t)answer_int(job, "seen"), seen),
           show_count((uint64_t)answer_int(job, "total"), total),
           show_when(answer_text(job, "created_at"), now_ms, when), answer_text(job, "note"));
}

int job_list_all(struct invocation *in, const struct job_family *family)
{
    struct link *l = link_open(in, LINK_EXISTING);
    json_t *answer = l ? link_get(l, family->path) : NULL;
    link_close(l);
    if (!answer)
        return EXIT_FAILED;
    const json_t *items = json_object_get(answer, "items");
    size_t i;
    json_t *job;
    int64_t now_ms = show_now_ms();
    if (invocation_has(in, "json")) {
        show_json(answer);
    } else if (json_array_size(items) == 0) {
        printf("no %ss\n", family->noun);
    } else {
        printf("%-20s %-10s %-18s %11s %11s  %-11s %s\n", "id", "state", "what", "looked at", "of",
               "started", "note");
        json_array_foreach(items, i, job)
        {
            print_row(job, now_ms);
        }
    }
    json_decref(answer);
    return EXIT_DONE;
}
