/* Each call opens a connection of its own, so that nothing here is in the way of what is tested. */
#include "broker.h"

#include <amqp.h>
#include <amqp_tcp_socket.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"

enum { CHANNEL = 1, NAME_SIZE = 256 };

const char *broker_url(void)
{
    return getenv("FANTAIL_TEST_RABBITMQ");
}

static amqp_connection_state_t connect_broker(void)
{
    char *text = strdup(broker_url());
    struct amqp_connection_info info;
    amqp_default_connection_info(&info);
    CHECK(amqp_parse_url(text, &info) == AMQP_STATUS_OK);
    amqp_connection_state_t c = amqp_new_connection();
    CHECK(amqp_socket_open(amqp_tcp_socket_new(c), info.host, info.port) == AMQP_STATUS_OK);
    amqp_rpc_reply_t reply =
        amqp_login(c, info.vhost, 0, 131072, 0, AMQP_SASL_METHOD_PLAIN, info.user, info.password);
    CHECK(reply.reply_type == AMQP_RESPONSE_NORMAL);
    CHECK(amqp_channel_open(c, CHANNEL));
    free(text);
    return c;
}

static void disconnect_broker(amqp_connection_state_t c)
{
    amqp_connection_close(c, AMQP_REPLY_SUCCESS);
    amqp_destroy_connection(c);
}

void broker_forget(const char *prefix, const char *const *lanes, size_t n)
{
    static const char *const others[] = {"delay.2s",   "delay.8s",   "delay.32s",
                                         "delay.128s", "delay.240s", "dead"};
    amqp_connection_state_t c = connect_broker();
    char name[NAME_SIZE];
    for (size_t i = 0; i < n + COUNT_OF(others); i++) {
        snprintf(name, sizeof name, "%s.%s", prefix, i < n ? lanes[i] : others[i - n]);
        CHECK(amqp_queue_delete(c, CHANNEL, amqp_cstring_bytes(name), 0, 0));
        CHECK(amqp_exchange_delete(c, CHANNEL, amqp_cstring_bytes(name), 0));
    }
    disconnect_broker(c);
}

void broker_delete(const char *queue)
{
    amqp_connection_state_t c = connect_broker();
    CHECK(amqp_queue_delete(c, CHANNEL, amqp_cstring_bytes(queue), 0, 0));
    disconnect_broker(c);
}

void broker_put(const char *queue, const void *bytes, size_t n)
{
    amqp_connection_state_t c = connect_broker();
    CHECK(amqp_confirm_select(c, CHANNEL));
    amqp_bytes_t body = {n, (void *)(uintptr_t)bytes};
    CHECK(amqp_basic_publish(c, CHANNEL, amqp_empty_bytes, amqp_cstring_bytes(queue), 0, 0, NULL,
                             body) == AMQP_STATUS_OK);
    amqp_method_t method;
    CHECK(amqp_simple_wait_method(c, CHANNEL, AMQP_BASIC_ACK_METHOD, &method) == AMQP_STATUS_OK);
    disconnect_broker(c);
}

int64_t broker_count(const char *queue)
{
    amqp_connection_state_t c = connect_broker();
    amqp_queue_declare_ok_t *ok =
        amqp_queue_declare(c, CHANNEL, amqp_cstring_bytes(queue), 1, 0, 0, 0, amqp_empty_table);
    int64_t count = ok ? (int64_t)ok->message_count : -1;
    disconnect_broker(c);
    return count;
}

void broker_declare_plain(const char *queue)
{
    amqp_connection_state_t c = connect_broker();
    CHECK(amqp_queue_declare(c, CHANNEL, amqp_cstring_bytes(queue), 0, 1, 0, 0, amqp_empty_table));
    disconnect_broker(c);
}

static const char *servers_folder(void)
{
    const char *folder = getenv("FANTAIL_TEST_SERVERS");
    CHECK(folder);
    return folder;
}

void broker_signal(int signal)
{
    char path[4096];
    int pid;
    snprintf(path, sizeof path, "%s/rabbitmq/pid", servers_folder());
    FILE *f = fopen(path, "r");
    CHECK(f && fscanf(f, "%d", &pid) == 1);
    fclose(f);
    CHECK(kill(pid, signal) == 0 || errno == ESRCH); /* dead already */
}

static void run_servers(const char *action, const char *arguments)
{
    char command[8192];
    snprintf(command, sizeof command, "'%s' %s '%s' %s >/dev/null", SERVERS_SCRIPT, action,
             servers_folder(), arguments);
    CHECK(system(command) == 0);
}

void broker_start(void)
{
    run_servers("start", "rabbitmq");
}

void broker_settle(void)
{
    run_servers("rabbitmqctl", "-q eval '[ok = dets:sync(T) || T <- dets:all()].'");
}

void broker_alarm(bool on)
{
    run_servers("rabbitmqctl",
                on ? "-q set_disk_free_limit 1000000GB" : "-q set_disk_free_limit 10MB");
}
