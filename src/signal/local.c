/* The local signal: the publisher calls the receiver. */
#include "signal/local.h"

#include <stdlib.h>

#include "base/check.h"

static enum err publish(struct signal *s, const struct signal_message *messages, size_t n)
{
    if (s->received)
        s->received(s->received_ctx, messages, n);
    return OK;
}

/* A process that has just begun has no connections: nothing was missed but what came before. */
struct local_signal {
    struct signal signal;
    bool began;
};

static enum err consume(struct signal *s, int64_t wait_ms, bool *missed)
{
    struct local_signal *l = CONTAINER_OF(s, struct local_signal, signal);
    (void)wait_ms;
    *missed = !l->began;
    l->began = true;
    return OK;
}

static void reset(struct signal *s)
{
    CONTAINER_OF(s, struct local_signal, signal)->began = false;
}

static void local_free(struct signal *s)
{
    free(CONTAINER_OF(s, struct local_signal, signal));
}

static const struct signal_ops local_ops = {
    .publish = publish, .consume = consume, .reset = reset, .free = local_free};

struct signal *signal_local_new(void)
{
    struct local_signal *l = calloc(1, sizeof *l);
    CHECK(l);
    l->signal.ops = &local_ops;
    return &l->signal;
}
