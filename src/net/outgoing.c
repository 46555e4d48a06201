/* One thread drives libcurl's multi interface: it takes queued requests, waits for sockets and ends
 * finished requests. It reuses handles and their buffers, so that a request costs no allocation in
 * the long run. */
#include "net/outgoing.h"

#include <curl/curl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/check.h"
#include "base/sync.h"

enum {
    POLL_MS = 1000,
    CONNECT_TIMEOUT_MS = 5000,
    DNS_KEEP_S = 60,
    HANDLES_KEPT = 1024,
    MS_A_SECOND = 1000,
};

struct request {
    struct request *next; /* queued, or spare */
    struct request *newer, *older;
    struct outgoing *o;
    CURL *easy;
    struct curl_slist *headers;
    struct buf answer;
    bool too_large;
    bool under_way;
    int64_t timeout_ms;
    outgoing_done done;
    void *ctx;
    struct buf text; /* method, URL and body, each with a NUL at its end */
    size_t url_at, body_at, body_len;
};

struct outgoing {
    struct outgoing_config config;
    CURLM *multi;
    struct thread thread;
    pthread_mutex_t lock;
    struct request *queued, **queued_last; /* under the lock */
    struct request *spare;                 /* under the lock */
    size_t spare_count;
    struct request *newest; /* the thread's own: of those with libcurl */
    _Atomic bool stop;
    _Atomic size_t under_way;
    _Atomic uint64_t sent, answered, failed, unknown;
};

void outgoing_config_default(struct outgoing_config *c)
{
    *c = (struct outgoing_config){
        .connections_max = 256, .per_host_max = 64, .under_way_max = 8192, .answer_max = 64 * 1024};
}

/* ---- requests ---- */

static struct request *request_get(struct outgoing *o)
{
    pthread_mutex_lock(&o->lock);
    struct request *r = o->spare;
    if (r) {
        o->spare = r->next;
        o->spare_count--;
    }
    pthread_mutex_unlock(&o->lock);
    if (r)
        return r;
    r = calloc(1, sizeof *r);
    CHECK(r);
    r->o = o;
    r->easy = curl_easy_init();
    CHECK(r->easy);
    return r;
}

static void request_free(struct request *r)
{
    curl_easy_cleanup(r->easy);
    curl_slist_free_all(r->headers);
    buf_done(&r->answer);
    buf_done(&r->text);
    free(r);
}

static void request_put(struct request *r)
{
    struct outgoing *o = r->o;
    curl_slist_free_all(r->headers);
    r->headers = NULL;
    r->too_large = r->under_way = false;
    buf_clear(&r->answer);
    buf_clear(&r->text);
    pthread_mutex_lock(&o->lock);
    bool keep = o->spare_count < HANDLES_KEPT;
    if (keep) {
        r->next = o->spare;
        o->spare = r;
        o->spare_count++;
    }
    pthread_mutex_unlock(&o->lock);
    if (!keep)
        request_free(r);
}

static size_t on_body(char *bytes, size_t size, size_t n, void *ctx)
{
    struct request *r = ctx;
    if (r->answer.len + size * n > r->o->config.answer_max) {
        r->too_large = true;
        return 0;
    }
    buf_append(&r->answer, bytes, size * n);
    return size * n;
}

static void add_headers(struct request *r, const char *const *headers)
{
    r->headers = curl_slist_append(NULL, "Expect:"); /* no round trip before the body */
    for (; headers && *headers; headers++)
        r->headers = curl_slist_append(r->headers, *headers);
    CHECK(r->headers);
}

static void set_up(struct request *r)
{
    CURL *easy = r->easy;
    curl_easy_reset(easy); /* keeps its connections */
    curl_easy_setopt(easy, CURLOPT_PRIVATE, r);
    curl_easy_setopt(easy, CURLOPT_URL, r->text.ptr + r->url_at);
    curl_easy_setopt(easy, CURLOPT_CUSTOMREQUEST, r->text.ptr);
    curl_easy_setopt(easy, CURLOPT_PROTOCOLS_STR, "http,https");
    curl_easy_setopt(easy, CURLOPT_HTTPHEADER, r->headers);
    if (r->body_len > 0) {
        curl_easy_setopt(easy, CURLOPT_POSTFIELDSIZE_LARGE, (curl_off_t)r->body_len);
        curl_easy_setopt(easy, CURLOPT_POSTFIELDS, r->text.ptr + r->body_at);
    }
    curl_easy_setopt(easy, CURLOPT_WRITEFUNCTION, on_body);
    curl_easy_setopt(easy, CURLOPT_WRITEDATA, r);
    curl_easy_setopt(easy, CURLOPT_NOSIGNAL, 1L);
    curl_easy_setopt(easy, CURLOPT_TIMEOUT_MS, (long)r->timeout_ms);
    curl_easy_setopt(easy, CURLOPT_CONNECTTIMEOUT_MS, (long)CONNECT_TIMEOUT_MS);
    curl_easy_setopt(easy, CURLOPT_DNS_CACHE_TIMEOUT, (long)DNS_KEEP_S);
    curl_easy_setopt(easy, CURLOPT_HTTP_VERSION, (long)CURL_HTTP_VERSION_2TLS);
    /* Over TLS one connection may carry many requests at a time, which beats one more connection.
     * Without TLS, waiting to find out would put one request behind the other. */
    if (strncmp(r->text.ptr + r->url_at, "https:", 6) == 0)
        curl_easy_setopt(easy, CURLOPT_PIPEWAIT, 1L);
}

static void link_in(struct request *r)
{
    r->newer = NULL;
    r->older = r->o->newest;
    if (r->older)
        r->older->newer = r;
    r->o->newest = r;
}

static void take_out(struct request *r)
{
    *(r->newer ? &r->newer->older : &r->o->newest) = r->older;
    if (r->older)
        r->older->newer = r->newer;
}

/* ---- ending ---- */

static enum err meaning_of(struct request *r, CURLcode code)
{
    long sent = 0;
    if (code == CURLE_OK)
        return OK;
    if (r->too_large)
        return ERR_TOO_LARGE;
    if (code == CURLE_URL_MALFORMAT || code == CURLE_UNSUPPORTED_PROTOCOL)
        return ERR_BAD_INPUT;
    curl_easy_getinfo(r->easy, CURLINFO_REQUEST_SIZE, &sent);
    return sent > 0 ? ERR_UNKNOWN_COMMIT : ERR_UNAVAILABLE;
}

static void count(struct outgoing *o, enum err e)
{
    atomic_fetch_add(e == OK                   ? &o->answered
                     : e == ERR_UNKNOWN_COMMIT ? &o->unknown
                                               : &o->failed,
                     1);
}

static void end(struct request *r, enum err e)
{
    struct outgoing *o = r->o;
    struct outgoing_answer answer = {.body = buf_view(&r->answer)};
    long status = 0;
    curl_off_t after_s = 0;
    curl_easy_getinfo(r->easy, CURLINFO_RESPONSE_CODE, &status);
    curl_easy_getinfo(r->easy, CURLINFO_RETRY_AFTER, &after_s);
    answer.status = r->under_way ? (int)status : 0;
    answer.retry_after_ms = r->under_way ? (int64_t)after_s * MS_A_SECOND : 0;
    count(o, e);
    atomic_fetch_sub(&o->under_way, 1);
    r->done(r->ctx, e, &answer);
    request_put(r);
}

/* ---- the thread ---- */

static void begin_queued(struct outgoing *o)
{
    pthread_mutex_lock(&o->lock);
    struct request *list = o->queued, *next;
    o->queued = NULL;
    o->queued_last = &o->queued;
    pthread_mutex_unlock(&o->lock);
    for (struct request *r = list; r; r = next) {
        next = r->next;
        set_up(r);
        r->under_way = true;
        r->next = NULL;
        atomic_fetch_add(&o->sent, 1);
        if (curl_multi_add_handle(o->multi, r->easy) == CURLM_OK)
            link_in(r);
        else
            end(r, ERR_UNAVAILABLE);
    }
}

static void end_finished(struct outgoing *o)
{
    int left;
    CURLMsg *message;
    while ((message = curl_multi_info_read(o->multi, &left))) {
        if (message->msg != CURLMSG_DONE)
            continue;
        struct request *r;
        CURLcode code = message->data.result;
        CURL *easy = message->easy_handle;
        curl_easy_getinfo(easy, CURLINFO_PRIVATE, &r);
        curl_multi_remove_handle(o->multi, easy);
        take_out(r);
        end(r, meaning_of(r, code));
    }
}

static void end_all(struct outgoing *o)
{
    for (struct request *r = o->newest, *older; r; r = older) {
        older = r->older;
        enum err e = meaning_of(r, CURLE_ABORTED_BY_CALLBACK);
        curl_multi_remove_handle(o->multi, r->easy);
        take_out(r);
        end(r, e == ERR_UNAVAILABLE ? ERR_STOPPING : e);
    }
    while (o->queued) {
        struct request *r = o->queued;
        o->queued = r->next;
        end(r, ERR_STOPPING);
    }
}

static void *run(void *arg)
{
    struct outgoing *o = arg;
    while (!atomic_load(&o->stop)) {
        int running;
        begin_queued(o);
        (void)curl_multi_perform(o->multi, &running);
        end_finished(o);
        pthread_mutex_lock(&o->lock);
        bool more = o->queued != NULL;
        pthread_mutex_unlock(&o->lock);
        if (!more)
            (void)curl_multi_poll(o->multi, NULL, 0, POLL_MS, NULL);
    }
    end_all(o);
    return NULL;
}

/* ---- for callers ---- */

static void copy_request(struct request *r, const struct outgoing_request *given)
{
    buf_append(&r->text, given->method, strlen(given->method) + 1);
    r->url_at = r->text.len;
    buf_append(&r->text, given->url, strlen(given->url) + 1);
    r->body_at = r->text.len;
    r->body_len = given->body.len;
    if (given->body.len > 0)
        buf_append(&r->text, given->body.ptr, given->body.len);
    CHECK(!r->text.failed);
    add_headers(r, given->headers);
    r->timeout_ms = given->timeout_ms;
    r->done = given->done;
    r->ctx = given->ctx;
    r->next = NULL;
}

void outgoing_send(struct outgoing *o, const struct outgoing_request *request)
{
    CHECK(request->timeout_ms > 0);
    if (atomic_fetch_add(&o->under_way, 1) >= o->config.under_way_max) {
        atomic_fetch_sub(&o->under_way, 1);
        request->done(request->ctx, ERR_OVERLOADED, &(struct outgoing_answer){0});
        return;
    }
    struct request *r = request_get(o);
    copy_request(r, request);
    pthread_mutex_lock(&o->lock);
    bool first = o->queued == NULL;
    *o->queued_last = r;
    o->queued_last = &r->next;
    pthread_mutex_unlock(&o->lock);
    if (first)
        (void)curl_multi_wakeup(o->multi);
}

void outgoing_stats(struct outgoing *o, struct outgoing_stats *out)
{
    *out = (struct outgoing_stats){.sent = atomic_load(&o->sent),
                                   .answered = atomic_load(&o->answered),
                                   .failed = atomic_load(&o->failed),
                                   .unknown = atomic_load(&o->unknown),
                                   .under_way = atomic_load(&o->under_way)};
}

/* ---- life ---- */

static pthread_once_t global = PTHREAD_ONCE_INIT;

static void init_curl(void)
{
    CHECK(curl_global_init(CURL_GLOBAL_DEFAULT) == CURLE_OK);
}

struct outgoing *outgoing_new(const struct outgoing_config *config)
{
    pthread_once(&global, init_curl);
    struct outgoing *o = calloc(1, sizeof *o);
    CHECK(o);
    o->config = *config;
    o->queued_last = &o->queued;
    o->multi = curl_multi_init();
    CHECK(o->multi);
    curl_multi_setopt(o->multi, CURLMOPT_MAX_TOTAL_CONNECTIONS, (long)config->connections_max);
    curl_multi_setopt(o->multi, CURLMOPT_MAX_HOST_CONNECTIONS, (long)config->per_host_max);
    curl_multi_setopt(o->multi, CURLMOPT_MAXCONNECTS, (long)config->connections_max);
    pthread_mutex_init(&o->lock, NULL);
    if (thread_start(&o->thread, "outgoing", run, o))
        return o;
    curl_multi_cleanup(o->multi);
    free(o);
    return NULL;
}

void outgoing_free(struct outgoing *o)
{
    if (!o)
        return;
    atomic_store(&o->stop, true);
    (void)curl_multi_wakeup(o->multi);
    thread_join(&o->thread);
    while (o->spare) {
        struct request *r = o->spare;
        o->spare = r->next;
        request_free(r);
    }
    curl_multi_cleanup(o->multi);
    pthread_mutex_destroy(&o->lock);
    free(o);
}
