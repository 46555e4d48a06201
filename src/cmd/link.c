/* Commands are short: one connection, one request at a time, generous timeouts (a check of a large
 * store or a backup takes long). The socket of an app opened in process lies in a fresh folder
 * under TMPDIR that only this user can enter, so that no other process meets it. */
#include "cmd/link.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/check.h"
#include "cmd/app.h"
#include "net/http_client.h"
#include "ops/progress.h"

enum { ANSWER_MAX = 64 * 1024 * 1024, FOLDER_MAX = 80 };

static const int64_t call_timeout_ms = INT64_C(3600) * 1000;

struct link {
    const struct invocation *in;
    struct http_client *client;
    struct app *app;         /* NULL: another process serves */
    char folder[FOLDER_MAX]; /* the socket's, when it was made for it; else "" */
    char socket[CONTROL_PATH_MAX];
    int socket_fd; /* see app_control_path */
    struct buf answer;
};

static void show_loading(void *ctx, uint64_t done, uint64_t total)
{
    struct progress *p = ctx;
    p->total = total;
    progress_update(p, done);
}

static bool store_exists(const char *folder)
{
    char path[4096];
    struct stat st;
    return snprintf(path, sizeof(path), "%s/" STORE_FILE, folder) < (int)sizeof(path) &&
           stat(path, &st) == 0;
}

static struct http_client *find_server(const char *folder)
{
    char path[CONTROL_PATH_MAX];
    int fd;
    if (!app_control_path(folder, path, &fd))
        return NULL;
    struct http_client *client = http_client_unix(path);
    if (fd >= 0)
        close(fd);
    return client;
}

/* A command that serves does so in the data folder, like the server; others hide. */
static bool choose_socket(struct link *l, enum link_mode mode)
{
    if (mode == LINK_SERVE)
        return app_control_path(l->in->settings.data, l->socket, &l->socket_fd);
    const char *tmp = getenv("TMPDIR");
    int n =
        snprintf(l->folder, sizeof(l->folder), "%s/fantail-XXXXXX", tmp && tmp[0] ? tmp : "/tmp");
    if (n >= (int)sizeof(l->folder))
        snprintf(l->folder, sizeof(l->folder), "/tmp/fantail-XXXXXX");
    if (!mkdtemp(l->folder)) {
        command_fail(l->in, "cannot make a folder %s: %s", l->folder, strerror(errno));
        l->folder[0] = '\0';
        return false;
    }
    snprintf(l->socket, sizeof(l->socket), "%s/control", l->folder);
    return true;
}

static bool open_here(struct link *l, enum link_mode mode)
{
    const struct settings *s = &l->in->settings;
    char why[300], host[256];
    uint16_t port = 0;
    struct progress p;
    progress_init(&p, "loading", 0, PROGRESS_COUNT);
    enum err e = app_open(s, show_loading, &p, &l->app, why);
    if (p.total > 0)
        progress_done(&p);
    bool serve = !e && mode == LINK_SERVE && settings_split_address(s->listen, host, &port);
    if (!e && !choose_socket(l, mode))
        return false;
    if (!e)
        e = app_listen(l->app, serve ? host : NULL, port, l->socket, why);
    if (!e && !app_start_workers(l->app)) {
        snprintf(why, sizeof(why), "cannot start threads");
        e = ERR_UNAVAILABLE;
    }
    if (e) {
        command_fail(l->in, "%s", why);
        return false;
    }
    l->client = http_client_unix(l->socket);
    return l->client != NULL;
}

struct link *link_open(const struct invocation *in, enum link_mode mode)
{
    struct link *l = calloc(1, sizeof(*l));
    CHECK(l);
    l->in = in;
    l->socket_fd = -1;
    buf_init(&l->answer, ANSWER_MAX);
    l->client = find_server(in->settings.data);
    bool ok = l->client != NULL;
    if (!ok && mode == LINK_EXISTING && !store_exists(in->settings.data))
        command_fail(in, "there is no store in %s (see --data)", in->settings.data);
    else if (!ok)
        ok = open_here(l, mode);
    if (ok)
        return l;
    link_close(l);
    return NULL;
}

void link_close(struct link *l)
{
    if (!l)
        return;
    if (l->client)
        http_client_free(l->client);
    if (l->app)
        app_close(l->app, 1000);
    if (l->socket_fd >= 0)
        close(l->socket_fd);
    if (l->folder[0]) {
        unlink(l->socket);
        rmdir(l->folder);
    }
    buf_done(&l->answer);
    free(l);
}

bool link_is_remote(const struct link *l)
{
    return l->app == NULL;
}

uint16_t link_port(const struct link *l)
{
    return l->app ? app_port(l->app) : 0;
}

static void report(struct link *l, int status, const json_t *problem)
{
    const char *detail = answer_text(problem, "detail");
    const char *title = answer_text(problem, "title");
    if (detail[0])
        command_fail(l->in, "%s", detail);
    else if (title[0])
        command_fail(l->in, "%s", title);
    else
        command_fail(l->in, "the server answered %d", status);
}

json_t *link_call(struct link *l, const char *method, const char *target, const char *headers,
                  struct str body, int *status)
{
    int answered = 0;
    enum err e = http_client_call(l->client, method, target, headers, body, &answered, &l->answer,
                                  call_timeout_ms);
    if (e) {
        command_fail(l->in, "the server on %s %s", l->in->settings.data,
                     e == ERR_TIMEOUT          ? "does not answer"
                     : e == ERR_TOO_LARGE      ? "answers more than fits"
                     : e == ERR_UNKNOWN_COMMIT ? "went away; what was asked may have been done"
                                               : "went away");
        return NULL;
    }
    json_error_t parse;
    json_t *answer = l->answer.len > 0
                         ? json_loadb(l->answer.ptr, l->answer.len, JSON_REJECT_DUPLICATES, &parse)
                         : json_object();
    bool fine = answered >= 200 && answered < 300;
    if (status)
        *status = answered;
    if (!fine && !status)
        report(l, answered, answer);
    else if (!answer)
        command_fail(l->in, "the server's answer to %s %s is not JSON", method, target);
    if (answer && (fine || status))
        return answer;
    json_decref(answer);
    return NULL;
}

json_t *link_get(struct link *l, const char *target)
{
    return link_call(l, "GET", target, NULL, STR(""), NULL);
}

json_t *link_send(struct link *l, const char *method, const char *target, json_t *body)
{
    char *text = body ? json_dumps(body, JSON_COMPACT) : NULL;
    json_t *answer = link_call(
        l, method, target, text ? "Content-Type: application/json\r\n" : NULL, str_of(text), NULL);
    free(text);
    json_decref(body);
    return answer;
}

int64_t answer_int(const json_t *object, const char *key)
{
    const json_t *value = json_object_get(object, key);
    if (json_is_string(value)) {
        int64_t number = 0;
        return str_parse_i64(str_of(json_string_value(value)), &number) ? number : 0;
    }
    return json_is_real(value) ? (int64_t)json_real_value(value) : json_integer_value(value);
}

const char *answer_text(const json_t *object, const char *key)
{
    const char *text = json_string_value(json_object_get(object, key));
    return text ? text : "";
}

void link_encode(struct buf *target, const char *text)
{
    for (const unsigned char *p = (const unsigned char *)text; *p; p++) {
        bool plain = (*p >= 'a' && *p <= 'z') || (*p >= 'A' && *p <= 'Z') ||
                     (*p >= '0' && *p <= '9') || strchr("-._~", *p);
        if (plain)
            buf_append(target, p, 1);
        else
            buf_printf(target, "%%%02X", *p);
    }
}
