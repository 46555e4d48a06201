/* `fantail serve`: from settings to a server, until a signal. The first SIGTERM or SIGINT drains; a
 * second one ends at once, which is safe: everything acknowledged is durable. Signals are taken
 * with sigwait on the main thread, so no handler ever interrupts anything. */
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "base/log.h"
#include "cmd/command.h"
#include "node/runtime.h"
#include "ops/progress.h"

enum { WHY_MAX = 300, OTHER_DESCRIPTORS = 256, FORCED_EXIT = 130 };

/* What an idle server has open, with room for a few dozen connections. */
enum { DESCRIPTORS_BASE = 64, DESCRIPTORS_PER_LOOP = 8, DESCRIPTORS_PER_READER = 4 };

struct loading {
    int64_t shown_us;
};

static void log_loading(void *ctx, uint64_t done, uint64_t total)
{
    struct loading *l = ctx;
    int64_t now_us = clock_mono_us(clock_system());
    if (now_us - l->shown_us < 1000000)
        return;
    l->shown_us = now_us;
    log_info("loading the views from the store", LOG_INT("done", done), LOG_INT("total", total));
}

/* Each connection takes a descriptor; systems start processes with few. False: not even an idle
 * server gets along with what the system allows. */
static bool raise_descriptor_limit(const struct settings *s, char *why)
{
    struct rlimit limit;
    rlim_t wanted = (rlim_t)s->connections_max + OTHER_DESCRIPTORS;
    rlim_t least = DESCRIPTORS_BASE + DESCRIPTORS_PER_LOOP * (rlim_t)runtime_loops(s) +
                   DESCRIPTORS_PER_READER * (rlim_t)(s->readers + SLOW_THREADS);
    if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur >= wanted)
        return true;
    if (limit.rlim_max != RLIM_INFINITY && limit.rlim_max < least) {
        snprintf(why, WHY_MAX,
                 "the system allows %llu open files, and the server needs at least %llu (%llu for "
                 "connections-max): raise the limit, with ulimit -n or LimitNOFILE=",
                 (unsigned long long)limit.rlim_max, (unsigned long long)least,
                 (unsigned long long)wanted);
        return false;
    }
    limit.rlim_cur =
        limit.rlim_max == RLIM_INFINITY || limit.rlim_max >= wanted ? wanted : limit.rlim_max;
    if (setrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur < wanted)
        log_warn("the system allows fewer open files than connections-max asks for",
                 LOG_INT("allowed", limit.rlim_cur), LOG_INT("wanted", wanted));
    return true;
}

static void greet(struct runtime *runtime, const struct settings *s, const char *host,
                  int64_t took_us)
{
    uint16_t port = runtime_port(runtime);
    log_info("listening", LOG_CSTR("host", host), LOG_INT("port", port), LOG_CSTR("data", s->data),
             LOG_INT("accounts", runtime_account_count(runtime)),
             LOG_INT("ready_ms", took_us / 1000));
    if (!isatty(STDOUT_FILENO))
        return;
    char accounts[32];
    bool local = strcmp(host, "127.0.0.1") == 0 || strcmp(host, "0.0.0.0") == 0 ||
                 strcmp(host, "::1") == 0 || strcmp(host, "::") == 0;
    bool six = !local && strchr(host, ':');
    progress_print_count(runtime_account_count(runtime), accounts);
    printf("Fantail " FANTAIL_VERSION
           " serves http://%s%s%s:%u from %s (%s accounts), ready in %.2f s\n",
           six ? "[" : "", local ? "localhost" : host, six ? "]" : "", port, s->data, accounts,
           (double)took_us / 1e6);
    fflush(stdout);
}

static void *force_on_signal(void *arg)
{
    int signal_number;
    sigwait(arg, &signal_number);
    log_warn("a second signal: ending at once", LOG_INT("signal", signal_number));
    _exit(FORCED_EXIT);
}

static void stop(struct runtime *runtime, const struct settings *s, sigset_t *signals)
{
    pthread_t forcing;
    bool watched = pthread_create(&forcing, NULL, force_on_signal, signals) == 0;
    runtime_close(runtime, s->drain_grace_ms);
    if (watched) {
        pthread_cancel(forcing); /* sigwait is a cancellation point */
        pthread_join(forcing, NULL);
    }
}

static int run(struct invocation *in)
{
    const struct settings *s = &in->settings;
    int64_t began_us = clock_mono_us(clock_system());
    char why[WHY_MAX], host[256], control[PATH_MAX];
    uint16_t port = 0;
    sigset_t signals;
    sigemptyset(&signals);
    sigaddset(&signals, SIGTERM);
    sigaddset(&signals, SIGINT);
    /* Before the first thread, so that all of them inherit it. */
    pthread_sigmask(SIG_BLOCK, &signals, NULL);
    if (!raise_descriptor_limit(s, why))
        return command_fail(in, "%s", why);
    settings_split_address(s->listen, host, &port);

    if (!command_path(in, s->data, CONTROL_FILE, control))
        return EXIT_FAILED;
    struct runtime *runtime = NULL;
    struct loading loading = {began_us};
    if (runtime_open(s, log_loading, &loading, &runtime, why) != OK)
        return command_fail(in, "%s", why);
    enum err e = runtime_listen(runtime, host, port, control, why);
    if (!e && !runtime_start_workers(runtime)) {
        snprintf(why, sizeof(why), "cannot start threads");
        e = ERR_UNAVAILABLE;
    }
    if (e) {
        runtime_close(runtime, 0);
        return command_fail(in, "%s", why);
    }
    greet(runtime, s, host, clock_mono_us(clock_system()) - began_us);
    int signal_number = 0;
    sigwait(&signals, &signal_number);
    log_info("stopping", LOG_INT("signal", signal_number));
    stop(runtime, s, &signals);
    log_info("stopped", LOG_CSTR("data", s->data));
    return EXIT_DONE;
}

const struct command command_serve = {
    .name = "serve",
    .arguments = "",
    .summary = "run the server",
    .about = "Serves the HTTP API from the store in the data folder, which it creates when it is "
             "missing. Logs are JSON lines on standard error. SIGTERM or Ctrl-C drains and ends; a "
             "second one ends at once. Everything that was acknowledged is on disk either way.",
    .examples = "  fantail serve\n  fantail serve --data /var/lib/fantail --listen 0.0.0.0:8080\n"
                "  FANTAIL_SIGN_UP=off fantail serve",
    .run = run,
};
