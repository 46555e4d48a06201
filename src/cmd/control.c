/* Commands are short: one connection, one request at a time, generous timeouts (a check of a large
 * store or a backup takes long). The socket of a runtime opened in process lies in a fresh folder
 * under TMPDIR that only this user can enter, so that no other process meets it. */
#include "cmd/control.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/check.h"
#include "net/http_client.h"
#include "node/runtime.h"
#include "ops/progress.h"

enum { ANSWER_MAX = 64 * 1024 * 1024, FOLDER_MAX = 80 };

static const int64_t call_timeout_ms = INT64_C(3600) * 1000;

struct control {
    const struct invocation *in;
    struct http_client *client;
    struct runtime *runtime; /* NULL: another process serves */
    char folder[FOLDER_MAX]; /* the socket's, when it was made for it; else "" */
    char socket[PATH_MAX];
    struct buf answer;
};

static bool store_exists(const struct invocation *in)
{
    char path[PATH_MAX];
    return command_path(in, in->settings.data, STORE_FILE, path) && access(path, F_OK) == 0;
}

/* A command that serves does so in the data folder, like the server; others hide. */
static bool choose_socket(struct control *c, enum control_mode mode)
{
    if (mode == CONTROL_SERVE)
        return true; /* c->socket is the folder's already */
    const char *tmp = getenv("TMPDIR");
    int n =
        snprintf(c->folder, sizeof(c->folder), "%s/fantail-XXXXXX", tmp && tmp[0] ? tmp : "/tmp");
    if (n >= (int)sizeof(c->folder))
        snprintf(c->folder, sizeof(c->folder), "/tmp/fantail-XXXXXX");
    if (!mkdtemp(c->folder)) {
        command_fail(c->in, "cannot make the folder %s for a socket: %s", c->folder,
                     strerror(errno));
        c->folder[0] = '\0';
        return false;
    }
    snprintf(c->socket, sizeof(c->socket), "%s/control", c->folder);
    return true;
}

static bool open_here(struct control *c, enum control_mode mode)
{
    const struct settings *s = &c->in->settings;
    char why[300], host[256];
    uint16_t port = 0;
    struct progress p;
    progress_init(&p, "loading", 0, PROGRESS_COUNT);
    enum err e = runtime_open(s, progress_follow, &p, &c->runtime, why);
    if (p.total > 0)
        progress_done(&p);
    bool serve = !e && mode == CONTROL_SERVE && settings_split_address(s->listen, host, &port);
    if (!e && !choose_socket(c, mode))
        return false;
    if (!e)
        e = runtime_listen(c->runtime, serve ? host : NULL, port, c->socket, why);
    if (!e && !runtime_start_workers(c->runtime)) {
        snprintf(why, sizeof(why), "cannot start threads");
        e = ERR_UNAVAILABLE;
    }
    if (e) {
        command_fail(c->in, "%s", why);
        return false;
    }
    c->client = http_client_unix(c->socket);
    return c->client != NULL;
}

struct control *control_open(const struct invocation *in, enum control_mode mode)
{
    struct control *c = calloc(1, sizeof(*c));
    CHECK(c);
    c->in = in;
    buf_init(&c->answer, ANSWER_MAX);
    bool named = command_path(in, in->settings.data, CONTROL_FILE, c->socket);
    c->client = named ? http_client_unix(c->socket) : NULL;
    bool ok = c->client != NULL;
    if (named && !ok && mode == CONTROL_EXISTING && !store_exists(in))
        command_fail(in, "there is no store in %s; name its folder with --data", in->settings.data);
    else if (named && !ok)
        ok = open_here(c, mode);
    if (ok)
        return c;
    control_close(c);
    return NULL;
}

void control_close(struct control *c)
{
    if (!c)
        return;
    if (c->client)
        http_client_free(c->client);
    if (c->runtime)
        runtime_close(c->runtime, 1000);
    if (c->folder[0]) {
        unlink(c->socket);
        rmdir(c->folder);
    }
    buf_done(&c->answer);
    free(c);
}

bool control_is_remote(const struct control *c)
{
    return c->runtime == NULL;
}

uint16_t control_port(const struct control *c)
{
    return c->runtime ? runtime_port(c->runtime) : 0;
}

static void report(struct control *c, int status, const json_t *problem)
{
    const char *detail = answer_text(problem, "detail");
    const char *title = answer_text(problem, "title");
    if (detail[0])
        command_fail(c->in, "%s", detail);
    else if (title[0])
        command_fail(c->in, "%s", title);
    else
        command_fail(c->in, "the server answered with status %d and no reason; see its log",
                     status);
}

json_t *control_call(struct control *c, const char *method, const char *target, const char *headers,
                     struct str body, int *status)
{
    int answered = 0;
    enum err e = http_client_call(c->client, method, target, headers, body, &answered, &c->answer,
                                  call_timeout_ms);
    if (e) {
        command_fail(c->in, "the server on %s %s", c->in->settings.data,
                     e == ERR_TIMEOUT          ? "did not answer within an hour"
                     : e == ERR_TOO_LARGE      ? "answered more than 64 MiB; narrow the request"
                     : e == ERR_UNKNOWN_COMMIT ? "closed the connection; it may or may not have "
                                                 "done what was asked: look before you repeat it"
                                               : "closed the connection; see its log");
        return NULL;
    }
    json_error_t parse;
    json_t *answer = c->answer.len > 0
                         ? json_loadb(c->answer.ptr, c->answer.len, JSON_REJECT_DUPLICATES, &parse)
                         : json_object();
    bool fine = answered >= 200 && answered < 300;
    if (status)
        *status = answered;
    if (!fine && !status)
        report(c, answered, answer);
    else if (!answer)
        command_fail(c->in, "the server's answer to %s %s is not JSON", method, target);
    if (answer && (fine || status))
        return answer;
    json_decref(answer);
    return NULL;
}

json_t *control_get(struct control *c, const char *target)
{
    return control_call(c, "GET", target, NULL, STR(""), NULL);
}

json_t *control_send(struct control *c, const char *method, const char *target, json_t *body)
{
    char *text = body ? json_dumps(body, JSON_COMPACT) : NULL;
    json_t *answer = control_call(
        c, method, target, text ? "Content-Type: application/json\r\n" : NULL, str_of(text), NULL);
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

void control_encode(struct buf *target, const char *text)
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
