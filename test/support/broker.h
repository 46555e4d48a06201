/* The message broker of a test, from outside: what an operator, another program or bad luck does to
 * it. The broker is the one that script/servers started and that FANTAIL_TEST_RABBITMQ names. */
#pragma once

#include <signal.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

const char *broker_url(void); /* NULL: there is none */

/* Deletes all queues and exchanges that a bus with this prefix and these lanes declared. */
void broker_forget(const char *prefix, const char *const *lanes, size_t n);
void broker_delete(const char *queue);
void broker_put(const char *queue, const void *bytes, size_t n);
/* Messages ready in the queue; -1: there is no such queue. */
int64_t broker_count(const char *queue);
/* A queue without the arguments that the bus wants. */
void broker_declare_plain(const char *queue);

/* With all alarms on the broker stops reading from publishers. */
void broker_alarm(bool on);
/* RabbitMQ writes what it knows of a new queue to disk some seconds late, and a queue that is
 * killed before that never comes back. Makes it write now. */
void broker_settle(void);
void broker_signal(int signal);
void broker_start(void); /* again, after it was killed; waits until it answers */
