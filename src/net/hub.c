/* The hub: a map from each person to their streams, under one lock. Streams join and leave when
 * connections begin and end, and one thread sends, so the lock is hardly contended.
 *
 * The streams of one person are chained through themselves: a few at most. The lock is held to
 * change or walk a chain, never to send: a sender takes references, lets go, and then calls the
 * streams, so no stream's lock is taken under the hub's. A sender looks after its change is
 * visible, and a client reads after it has joined; so one of the two sees the other. */
#include "net/hub.h"

#include <pthread.h>
#include <stdlib.h>

#include "base/check.h"
#include "base/map.h"
#include "net/stream_state.h"

struct person {
    uint64_t key; /* one more than their id: never 0 */
    struct stream *first;
    size_t count; /* of streams */
};

struct hub {
    struct hub_config config;
    pthread_mutex_t lock; /* of all below */
    struct map persons;
    struct hub_stats stats;
};

struct hub *hub_new(const struct hub_config *config)
{
    CHECK(config->person_max >= 1 && config->person_max <= HUB_PERSON_MAX);
    struct hub *h = calloc(1, sizeof *h);
    CHECK(h);
    h->config = *config;
    pthread_mutex_init(&h->lock, NULL);
    map_init(&h->persons, sizeof(struct person), sizeof(uint64_t));
    return h;
}

void hub_free(struct hub *h)
{
    if (!h)
        return;
    CHECK(h->stats.streams == 0);
    pthread_mutex_destroy(&h->lock);
    map_done(&h->persons);
    free(h);
}

static struct person *person_of(const struct hub *h, uint64_t id)
{
    return map_find(&h->persons, &(uint64_t){id + 1});
}

/* ---- joining and leaving ---- */

static enum err join(struct hub *h, struct stream *s)
{
    if (h->stats.streams == h->config.streams_max)
        return ERR_OVERLOADED;
    uint64_t key = s->person + 1;
    struct person *p = map_put(&h->persons, &key, NULL);
    CHECK(p); /* some bytes for each who has a connection already */
    if (p->count >= h->config.person_max)
        return ERR_RATE_LIMITED;
    s->hub_next = p->first;
    p->first = stream_ref(s);
    s->hub = h;
    s->joined = true;
    h->stats.streams++;
    if (p->count++ == 0 && h->config.listen)
        h->config.listen(h->config.ctx, s->person, true);
    return OK;
}

enum err hub_join(struct hub *h, uint64_t person, struct stream *s)
{
    CHECK(!s->hub);
    s->person = person;
    pthread_mutex_lock(&h->lock);
    enum err e = join(h, s);
    if (e)
        h->stats.refused++;
    else
        h->stats.joined++;
    pthread_mutex_unlock(&h->lock);
    return e;
}

static bool leave(struct hub *h, struct stream *s)
{
    if (!s->joined)
        return false;
    struct person *p = person_of(h, s->person);
    struct stream **link = &p->first;
    while (*link != s)
        link = &(*link)->hub_next;
    *link = s->hub_next;
    s->joined = false;
    h->stats.streams--;
    if (--p->count == 0) {
        map_remove(&h->persons, p);
        if (h->config.listen)
            h->config.listen(h->config.ctx, s->person, false);
    }
    return true;
}

void hub_leave(struct hub *h, struct stream *s)
{
    pthread_mutex_lock(&h->lock);
    bool left = leave(h, s);
    pthread_mutex_unlock(&h->lock);
    if (left)
        stream_unref(s);
}

/* ---- sending ---- */

/* The person's streams, or those that were not greeted and now are, with a reference each. */
static unsigned listeners(struct hub *h, uint64_t person, bool greet,
                          struct stream *out[HUB_PERSON_MAX])
{
    unsigned n = 0;
    pthread_mutex_lock(&h->lock);
    const struct person *p = person_of(h, person);
    for (struct stream *s = p ? p->first : NULL; s; s = s->hub_next) {
        if (greet && s->greeted)
            continue;
        s->greeted |= greet;
        out[n++] = stream_ref(s);
    }
    pthread_mutex_unlock(&h->lock);
    return n;
}

static size_t send(struct hub *h, const uint64_t *persons, size_t n, bool greet,
                   const struct frame_text *text)
{
    struct frame *f = NULL; /* made when there is somebody to send it to */
    uint64_t outcomes[4] = {0};
    for (size_t i = 0; i < n; i++) {
        struct stream *streams[HUB_PERSON_MAX];
        unsigned found = listeners(h, persons[i], greet, streams);
        if (found > 0 && !f)
            f = frame_new(text);
        for (unsigned j = 0; j < found; j++) {
            outcomes[stream_send(streams[j], f)]++;
            stream_unref(streams[j]);
        }
    }
    if (!f)
        return 0;
    frame_unref(f);
    size_t sent = outcomes[STREAM_TAKEN] + outcomes[STREAM_MERGED];
    pthread_mutex_lock(&h->lock);
    h->stats.sent += sent;
    h->stats.merged += outcomes[STREAM_MERGED];
    h->stats.slow += outcomes[STREAM_SLOW];
    pthread_mutex_unlock(&h->lock);
    return sent;
}

size_t hub_send(struct hub *h, const uint64_t *persons, size_t n, const struct frame_text *text)
{
    return send(h, persons, n, false, text);
}

void hub_greet(struct hub *h, uint64_t person, const struct frame_text *text)
{
    (void)send(h, &person, 1, true, text);
}

void hub_close(struct hub *h, uint64_t person, const char *reason)
{
    struct stream *streams[HUB_PERSON_MAX];
    unsigned found = listeners(h, person, false, streams);
    for (unsigned i = 0; i < found; i++) {
        stream_close(streams[i], reason);
        stream_unref(streams[i]);
    }
}

/* ---- questions ---- */

bool hub_has(struct hub *h, uint64_t person)
{
    pthread_mutex_lock(&h->lock);
    bool has = person_of(h, person) != NULL;
    pthread_mutex_unlock(&h->lock);
    return has;
}

void hub_stats(struct hub *h, struct hub_stats *out)
{
    pthread_mutex_lock(&h->lock);
    *out = h->stats;
    out->persons = h->persons.count;
    pthread_mutex_unlock(&h->lock);
}
