/* librabbitmq does the handshake, the calls while setting up, and the decoding of incoming frames.
 * Sending is ours (rabbitmq_frames.h), and so are heartbeats: the library would write one between
 * two halves of a frame of ours, so heartbeats are switched off in it after the login.
 *
 * Every wait has a limit: a broker that accepts connections and says nothing holds the thread up
 * for CONNECT_MS, then RPC_MS. */
#include "bus/rabbitmq_link.h"

#include <amqp_tcp_socket.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>

#include "base/check.h"
#include "base/clock.h"

enum { CONNECT_MS = 3000, RPC_MS = 5000, CLOSE_MS = 500 };
enum { CHANNELS_MAX = 64, FRAME_SIZE = 131072 };
enum { REPLY_NO_ACCESS = 403, REPLY_PRECONDITION = 406, REPLY_NOT_ALLOWED = 530 };

static struct timeval timeval_of(int ms)
{
    return (struct timeval){.tv_sec = ms / 1000, .tv_usec = ms % 1000 * 1000};
}

/* ---- the address ---- */

enum err rabbitmq_address_init(struct rabbitmq_address *a, const char *url, uint32_t heartbeat_s,
                               char detail[RABBITMQ_DETAIL_SIZE])
{
    *a = (struct rabbitmq_address){.text = strdup(url), .heartbeat_s = heartbeat_s};
    CHECK(a->text);
    amqp_default_connection_info(&a->info);
    bool parsed = amqp_parse_url(a->text, &a->info) == AMQP_STATUS_OK;
    if (parsed && !a->info.ssl)
        return OK;
    snprintf(detail, RABBITMQ_DETAIL_SIZE, "%s",
             parsed ? "amqps is not supported: use amqp in a trusted network, or a tunnel"
                    : "the broker's URL should look like amqp://user:password@host:port/vhost");
    rabbitmq_address_done(a);
    return ERR_BAD_INPUT;
}

void rabbitmq_address_done(struct rabbitmq_address *a)
{
    if (a->text)
        explicit_bzero(a->text, strlen(a->text));
    free(a->text);
    a->text = NULL;
}

/* ---- opening ---- */

const amqp_channel_close_t *rabbitmq_link_closing(const amqp_method_t *method)
{
    _Static_assert(sizeof(amqp_channel_close_t) == sizeof(amqp_connection_close_t), "the same");
    bool closes =
        method->id == AMQP_CONNECTION_CLOSE_METHOD || method->id == AMQP_CHANNEL_CLOSE_METHOD;
    return closes ? method->decoded : NULL;
}

static enum err err_of_code(uint16_t code)
{
    switch (code) {
    case REPLY_NO_ACCESS:
        return ERR_UNAUTHENTICATED;
    case REPLY_PRECONDITION:
        return ERR_CONFLICT;
    case REPLY_NOT_ALLOWED:
        return ERR_BAD_INPUT;
    default:
        return ERR_UNAVAILABLE;
    }
}

static enum err outcome_of(amqp_rpc_reply_t reply, const char *what,
                           char detail[RABBITMQ_DETAIL_SIZE])
{
    if (reply.reply_type == AMQP_RESPONSE_NORMAL)
        return OK;
    if (reply.reply_type == AMQP_RESPONSE_SERVER_EXCEPTION && reply.reply.decoded) {
        const amqp_channel_close_t *m = rabbitmq_link_closing(&reply.reply);
        snprintf(detail, RABBITMQ_DETAIL_SIZE, "%s: %.*s", what, m ? (int)m->reply_text.len : 0,
                 m ? (const char *)m->reply_text.bytes : "");
        return err_of_code(m ? m->reply_code : 0);
    }
    snprintf(detail, RABBITMQ_DETAIL_SIZE, "%s: %s", what, amqp_error_string2(reply.library_error));
    return ERR_UNAVAILABLE;
}

enum err rabbitmq_link_outcome(struct rabbitmq_link *link, const char *what,
                               char detail[RABBITMQ_DETAIL_SIZE])
{
    return outcome_of(amqp_get_rpc_reply(link->connection), what, detail);
}

static amqp_table_entry_t can(const char *what)
{
    return (amqp_table_entry_t){
        .key = amqp_cstring_bytes(what),
        .value = {.kind = AMQP_FIELD_KIND_BOOLEAN, .value = {.boolean = 1}},
    };
}

static amqp_rpc_reply_t log_in(amqp_connection_state_t c, const struct rabbitmq_address *a,
                               const char *name)
{
    amqp_table_entry_t abilities[] = {
        can("publisher_confirms"), can("consumer_cancel_notify"),       can("basic.nack"),
        can("connection.blocked"), can("authentication_failure_close"),
    };
    amqp_table_entry_t properties[] = {
        {.key = amqp_cstring_bytes("connection_name"),
         .value = {.kind = AMQP_FIELD_KIND_UTF8, .value = {.bytes = amqp_cstring_bytes(name)}}},
        {.key = amqp_cstring_bytes("capabilities"),
         .value = {.kind = AMQP_FIELD_KIND_TABLE,
                   .value = {.table = {.num_entries = COUNT_OF(abilities), .entries = abilities}}}},
    };
    amqp_table_t table = {.num_entries = COUNT_OF(properties), .entries = properties};
    return amqp_login_with_properties(c, a->info.vhost, CHANNELS_MAX, FRAME_SIZE,
                                      (int)a->heartbeat_s, &table, AMQP_SASL_METHOD_PLAIN,
                                      a->info.user, a->info.password);
}

enum err rabbitmq_link_open(struct rabbitmq_link *link, const struct rabbitmq_address *a,
                            const char *name, char detail[RABBITMQ_DETAIL_SIZE])
{
    char what[160];
    snprintf(what, sizeof what, "RabbitMQ at %.100s:%d", a->info.host, a->info.port);
    *link = (struct rabbitmq_link){.connection = amqp_new_connection(), .fd = -1};
    buf_init(&link->out, RABBITMQ_OUT_MAX);
    struct timeval connect_timeout = timeval_of(CONNECT_MS), rpc_timeout = timeval_of(RPC_MS);
    amqp_socket_t *socket = link->connection ? amqp_tcp_socket_new(link->connection) : NULL;
    if (!socket) {
        snprintf(detail, RABBITMQ_DETAIL_SIZE, "%s: out of memory", what);
        rabbitmq_link_close(link, false);
        return ERR_NO_MEMORY;
    }
    amqp_set_handshake_timeout(link->connection, &connect_timeout);
    amqp_set_rpc_timeout(link->connection, &rpc_timeout);
    enum err e = OK;
    int status = amqp_socket_open_noblock(socket, a->info.host, a->info.port, &connect_timeout);
    if (status != AMQP_STATUS_OK) {
        snprintf(detail, RABBITMQ_DETAIL_SIZE, "%s: %s", what, amqp_error_string2(status));
        e = ERR_UNAVAILABLE;
    }
    if (!e)
        e = outcome_of(log_in(link->connection, a, name), what, detail);
    if (e) {
        rabbitmq_link_close(link, false);
        return e;
    }
    link->fd = amqp_get_sockfd(link->connection);
    link->heartbeat_us = amqp_get_heartbeat(link->connection) * INT64_C(1000000);
    amqp_tune_connection(link->connection, amqp_get_channel_max(link->connection),
                         amqp_get_frame_max(link->connection), 0);
    link->heard_us = link->spoke_us = clock_mono_us(clock_system());
    return OK;
}

void rabbitmq_link_close(struct rabbitmq_link *link, bool politely)
{
    if (!link->connection)
        return;
    if (politely && !rabbitmq_link_has_out(link)) {
        struct timeval patience = timeval_of(CLOSE_MS);
        amqp_set_rpc_timeout(link->connection, &patience);
        amqp_connection_close(link->connection, AMQP_REPLY_SUCCESS);
    }
    amqp_destroy_connection(link->connection);
    buf_done(&link->out);
    *link = (struct rabbitmq_link){.fd = -1};
}

/* ---- sending and receiving ---- */

/* Drops sent bytes, so that a link that is never quite empty does not grow. */
static void compact(struct rabbitmq_link *link)
{
    size_t left = link->out.len - link->out_sent;
    memmove(link->out.ptr, link->out.ptr + link->out_sent, left);
    link->out.len = left;
    link->out_sent = 0;
}

bool rabbitmq_link_flush(struct rabbitmq_link *link, int64_t now_us)
{
    if (link->out.failed)
        return false;
    while (rabbitmq_link_has_out(link)) {
        ssize_t n = send(link->fd, link->out.ptr + link->out_sent, link->out.len - link->out_sent,
                         MSG_DONTWAIT | MSG_NOSIGNAL);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0 && errno != EAGAIN)
            return false;
        if (n < 0) {
            compact(link);
            return true;
        }
        link->out_sent += (size_t)n;
        link->spoke_us = now_us;
    }
    buf_clear(&link->out);
    link->out_sent = 0;
    return true;
}

int rabbitmq_link_next(struct rabbitmq_link *link, amqp_frame_t *frame)
{
    struct timeval at_once = {0, 0};
    int status = amqp_simple_wait_frame_noblock(link->connection, frame, &at_once);
    return status == AMQP_STATUS_OK ? 1 : status == AMQP_STATUS_TIMEOUT ? 0 : -1;
}

void rabbitmq_link_read(struct rabbitmq_link *link)
{
    amqp_maybe_release_buffers(link->connection);
}

/* ---- heartbeats ---- */

/* One that has something to send already speaks, or is not read: neither needs a heartbeat. */
void rabbitmq_link_beat(struct rabbitmq_link *link, int64_t now_us)
{
    if (link->heartbeat_us && now_us - link->spoke_us >= link->heartbeat_us / 2 &&
        !rabbitmq_link_has_out(link))
        rabbitmq_frame_heartbeat(&link->out);
}

bool rabbitmq_link_is_silent(const struct rabbitmq_link *link, int64_t now_us)
{
    return link->heartbeat_us && now_us - link->heard_us > 2 * link->heartbeat_us;
}

int64_t rabbitmq_link_next_beat_us(const struct rabbitmq_link *link)
{
    if (link->heartbeat_us == 0)
        return INT64_MAX;
    int64_t speak_us = link->spoke_us + link->heartbeat_us / 2;
    int64_t give_up_us = link->heard_us + 2 * link->heartbeat_us;
    return rabbitmq_link_has_out(link) || give_up_us < speak_us ? give_up_us : speak_us;
}
