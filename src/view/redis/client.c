/* Opening and closing, and the pool of batches: a batch keeps its buffers for the next borrower. */
#include "view/redis/client.h"

#include <string.h>
#include <sys/random.h>

#include "base/log.h"

enum err client_url(const struct redis_config *config, struct redis_url *out)
{
    const char *why;
    enum err e = redis_url_parse(str_of(config->url), out, &why);
    if (e)
        log_error("the URL of Redis cannot be used", LOG_CSTR("why", why));
    return e;
}

enum err client_open(struct client *c, const struct redis_config *config)
{
    struct redis_url url;
    TRY(client_url(config, &url));
    *c = (struct client){.connections =
                             connections_new(&url, config->failover_wait_ms, config->invalidation)};
    explicit_bzero(&url, sizeof url);
    pthread_mutex_init(&c->lock, NULL);
    uint64_t seed = 0;
    CHECK(getrandom(&seed, sizeof seed, 0) == sizeof seed);
    rand_seed(&c->rand, seed);
    (void)connections_refresh(c->connections);
    return OK;
}

void client_close(struct client *c)
{
    while (c->spare_count > 0)
        batch_free(c->spare[--c->spare_count]);
    connections_free(c->connections);
    pthread_mutex_destroy(&c->lock);
}

uint64_t client_random(struct client *c)
{
    pthread_mutex_lock(&c->lock);
    uint64_t n = rand_u64(&c->rand);
    pthread_mutex_unlock(&c->lock);
    return n;
}

struct batch *batch_borrow(struct client *c)
{
    pthread_mutex_lock(&c->lock);
    struct batch *b = c->spare_count > 0 ? c->spare[--c->spare_count] : NULL;
    pthread_mutex_unlock(&c->lock);
    return b ? b : batch_new(c->connections, c);
}

void batch_return(struct batch **borrowed)
{
    struct batch *b = *borrowed;
    struct client *c = batch_owner(b);
    batch_reset(b);
    pthread_mutex_lock(&c->lock);
    bool keep = c->spare_count < SPARE_BATCHES_MAX;
    if (keep)
        c->spare[c->spare_count++] = b;
    pthread_mutex_unlock(&c->lock);
    if (!keep)
        batch_free(b);
}

enum err client_epoch(struct client *c, unsigned how, uint64_t *epoch)
{
    BORROWED struct batch *b = batch_borrow(c);
    batch_command(b, "GET", arg_key(EPOCH_KEY));
    enum err e = batch_flush(b, how);
    *epoch = 0;
    if (!e)
        (void)str_parse_u64(batch_text(b, 0), epoch);
    return e;
}
