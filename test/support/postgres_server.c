/* The server's processes are the postmaster, which is our child, and its children, each of which
 * leads a session of its own: so signals go to all of them by number, found in /proc.
 *
 * The server ends with stop() or the program's regular end (atexit). When the program is killed,
 * the kernel sends the postmaster SIGQUIT, its immediate shutdown, as it asked for; and a second
 * child of ours, which waits for nothing else, sees the end of a pipe and removes the folder. */
#include "postgres_server.h"

#include <arpa/inet.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <glob.h>
#include <libpq-fe.h>
#include <pwd.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/check.h"
#include "base/clock.h"

enum { START_MS = 30000, CLEAN_MS = 5000, CHILDREN_MAX = 256 };

static struct {
    char programs[200]; /* the folder of initdb and postgres */
    char folder[64];
    int port;
    pid_t pid, owner, cleaner;
    int cleaner_pipe; /* its end is the program's */
    uid_t user;
    gid_t group;
} server;

/* ---- processes ---- */

static void become_unprivileged(void)
{
    if (geteuid() != 0)
        return;
    CHECK(setgid(server.group) == 0 && setuid(server.user) == 0);
}

static pid_t spawn(const char *const arguments[], const char *log)
{
    pid_t pid = fork();
    CHECK(pid >= 0);
    if (pid > 0)
        return pid;
    become_unprivileged();
    prctl(PR_SET_PDEATHSIG, SIGQUIT);
    int out = open(log, O_WRONLY | O_CREAT | O_APPEND, 0600);
    int in = open("/dev/null", O_RDONLY);
    if (out < 0 || in < 0 || dup2(in, 0) < 0 || dup2(out, 1) < 0 || dup2(out, 2) < 0 ||
        chdir(server.folder) != 0)
        _exit(126);
    for (int fd = 3; fd < 256; fd++)
        close(fd);
    execv(arguments[0], (char *const *)(uintptr_t)arguments);
    _exit(127);
}

static size_t list_children(pid_t *out)
{
    size_t n = 0;
    DIR *all = opendir("/proc");
    CHECK(all);
    for (struct dirent *d; n < CHILDREN_MAX && (d = readdir(all));) {
        char path[300], line[512];
        int parent = 0;
        pid_t pid = (pid_t)atoi(d->d_name);
        snprintf(path, sizeof path, "/proc/%s/stat", d->d_name);
        FILE *f = pid > 0 ? fopen(path, "r") : NULL;
        if (!f)
            continue;
        char *end = fgets(line, sizeof line, f) ? strrchr(line, ')') : NULL;
        if (end && sscanf(end + 1, " %*c %d", &parent) == 1 && parent == server.pid)
            out[n++] = pid;
        fclose(f);
    }
    closedir(all);
    return n;
}

static void wait_for_end(pid_t child)
{
    while (waitpid(child, NULL, 0) < 0 && errno == EINTR)
        ;
}

void postgres_server_signal(int number)
{
    pid_t children[CHILDREN_MAX];
    if (number == SIGKILL)
        kill(server.pid, SIGSTOP); /* it would start new ones meanwhile */
    size_t n = list_children(children);
    for (size_t i = 0; i < n; i++)
        kill(children[i], number);
    kill(server.pid, number);
    if (number != SIGKILL)
        return;
    wait_for_end(server.pid);
    server.pid = 0;
    for (size_t i = 0; i < n; i++)
        while (kill(children[i], 0) == 0)
            usleep(1000);
}

/* ---- cleaning ---- */

static int remove_entry(const char *path, const struct stat *st, int kind, struct FTW *ftw)
{
    (void)st, (void)kind, (void)ftw;
    return remove(path);
}

static void clean_after(int end_of_program)
{
    char byte, pid_file[100];
    setsid();
    int nowhere = open("/dev/null", O_RDWR);
    for (int fd = 0; fd < 3; fd++)
        dup2(nowhere, fd);
    while (read(end_of_program, &byte, 1) < 0 && errno == EINTR)
        ;
    /* The server removes this file when it has ended. */
    snprintf(pid_file, sizeof pid_file, "%s/data/postmaster.pid", server.folder);
    for (int i = 0; i < CLEAN_MS / 10 && access(pid_file, F_OK) == 0 && getppid() == 1; i++)
        usleep(10000);
    nftw(server.folder, remove_entry, 16, FTW_DEPTH | FTW_PHYS);
    _exit(0);
}

static void start_cleaner(void)
{
    int ends[2];
    CHECK(pipe2(ends, O_CLOEXEC) == 0);
    server.cleaner = fork();
    CHECK(server.cleaner >= 0);
    if (server.cleaner == 0) {
        close(ends[1]);
        clean_after(ends[0]);
    }
    close(ends[0]);
    server.cleaner_pipe = ends[1];
}

/* ---- starting ---- */

static bool find_programs(void)
{
    glob_t found = {0};
    bool ok = glob("/usr/lib/postgresql/*/bin/postgres", 0, NULL, &found) == 0;
    if (ok) {
        const char *newest = found.gl_pathv[found.gl_pathc - 1];
        snprintf(server.programs, sizeof server.programs, "%.*s",
                 (int)(strrchr(newest, '/') - newest), newest);
    }
    globfree(&found);
    return ok;
}

static int free_port(void)
{
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t n = sizeof a;
    int s = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    CHECK(s >= 0 && bind(s, (struct sockaddr *)&a, n) == 0);
    CHECK(getsockname(s, (struct sockaddr *)&a, &n) == 0);
    close(s);
    return ntohs(a.sin_port);
}

static bool is_up(void)
{
    char url[300];
    snprintf(url, sizeof url, "host=127.0.0.1 port=%d user=fantail dbname=postgres", server.port);
    PGconn *c = PQconnectdb(url);
    bool up = PQstatus(c) == CONNECTION_OK;
    PQfinish(c);
    return up;
}

static void show_log(void)
{
    char path[100], line[300];
    snprintf(path, sizeof path, "%s/log", server.folder);
    FILE *f = fopen(path, "r");
    while (f && fgets(line, sizeof line, f))
        fprintf(stderr, "# postgres: %s", line);
    if (f)
        fclose(f);
}

static bool run_server(void)
{
    char program[260], data[100], port[16], log[100];
    snprintf(program, sizeof program, "%s/postgres", server.programs);
    snprintf(data, sizeof data, "%s/data", server.folder);
    snprintf(log, sizeof log, "%s/log", server.folder);
    snprintf(port, sizeof port, "%d", server.port);
    const char *arguments[] = {program,
                               "-D",
                               data,
                               "-k",
                               server.folder,
                               "-p",
                               port,
                               "-c",
                               "listen_addresses=127.0.0.1",
                               "-c",
                               "max_connections=200",
                               "-c",
                               "shared_buffers=64MB",
                               "-c",
                               "fsync=on",
                               "-c",
                               "unix_socket_permissions=0777",
                               NULL};
    server.pid = spawn(arguments, log);
    int64_t end = clock_mono_ms(clock_system()) + START_MS;
    while (!is_up()) {
        if (clock_mono_ms(clock_system()) > end || waitpid(server.pid, NULL, WNOHANG) != 0) {
            show_log();
            return false;
        }
        usleep(20000);
    }
    return true;
}

void postgres_server_restart(void)
{
    CHECK(server.pid == 0);
    CHECK(run_server());
}

static bool make_cluster(void)
{
    char program[260], data[100], log[100];
    snprintf(program, sizeof program, "%s/initdb", server.programs);
    snprintf(data, sizeof data, "%s/data", server.folder);
    snprintf(log, sizeof log, "%s/log", server.folder);
    const char *arguments[] = {program,     "-D",    data, "-U",   "fantail",
                               "-A",        "trust", "-E", "UTF8", "--locale=C.UTF-8",
                               "--no-sync", NULL};
    int status = -1;
    pid_t pid = spawn(arguments, log);
    while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
        ;
    if (status != 0)
        show_log();
    return status == 0;
}

static void choose_user(void)
{
    static const char *const names[] = {"postgres", "nobody"};
    for (size_t i = 0; geteuid() == 0 && i < COUNT_OF(names) && !server.user; i++) {
        const struct passwd *p = getpwnam(names[i]);
        if (p) {
            server.user = p->pw_uid;
            server.group = p->pw_gid;
        }
    }
}

bool postgres_server_start(void)
{
    if (server.pid)
        return true;
    if (!find_programs()) {
        fprintf(stderr, "# there is no PostgreSQL server on this machine\n");
        return false;
    }
    choose_user();
    snprintf(server.folder, sizeof server.folder, "/tmp/fantail-postgres-XXXXXX");
    CHECK(mkdtemp(server.folder));
    if (geteuid() == 0)
        CHECK(chown(server.folder, server.user, server.group) == 0);
    server.owner = getpid();
    start_cleaner();
    atexit(postgres_server_stop);
    if (!make_cluster())
        return false;
    for (int tries = 0; tries < 3; tries++) { /* another process may take the port first */
        server.port = free_port();
        if (run_server())
            return true;
        wait_for_end(server.pid);
        server.pid = 0;
    }
    return false;
}

void postgres_server_stop(void)
{
    if (server.owner != getpid())
        return;
    if (server.pid) {
        postgres_server_signal(SIGCONT); /* a test that failed may have left it stopped */
        kill(server.pid, SIGQUIT);
        wait_for_end(server.pid);
    }
    server.pid = server.owner = 0;
    close(server.cleaner_pipe);
    wait_for_end(server.cleaner);
}

/* ---- what is in it ---- */

int postgres_server_port(void)
{
    return server.port;
}

void postgres_server_url(const char *name, int port, char *out, size_t size)
{
    snprintf(out, size, "postgresql://fantail@127.0.0.1:%d/postgres?options=-csearch_path%%3D%s",
             port ? port : server.port, name);
}

int64_t postgres_server_run(const char *schema, const char *sql)
{
    char url[300];
    postgres_server_url(schema, 0, url, sizeof url);
    PGconn *c = PQconnectdb(url);
    PGresult *r = PQexec(c, sql);
    ExecStatusType status = PQresultStatus(r);
    if (status != PGRES_COMMAND_OK && status != PGRES_TUPLES_OK)
        fprintf(stderr, "# %s: %s\n", sql, PQerrorMessage(c));
    CHECK(status == PGRES_COMMAND_OK || status == PGRES_TUPLES_OK);
    int64_t answer = PQntuples(r) ? strtoll(PQgetvalue(r, 0, 0), NULL, 10) : 0;
    PQclear(r);
    PQfinish(c);
    return answer;
}

void postgres_server_make_schema(const char *name)
{
    char sql[120];
    snprintf(sql, sizeof sql, "CREATE SCHEMA %s", name);
    postgres_server_run("public", sql);
}
