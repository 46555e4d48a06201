/* The hub: a map from each person to their streams, under one lock. Streams join and leave when
 * connections begin and end, and a sender holds it for some hundred streams at a time.
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
    CHECK(p); /* some bytes for each person with a connection */
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

enum { STREAMS_A_LOCK = 256, ENCODINGS_MAX = 4 };

/* One text in the encodings that a stream wanted so far. */
struct encoded {
    const struct frame_text *text;
    const struct encoding *encodings[ENCODINGS_MAX];
    struct frame *frames[ENCODINGS_MAX];
    size_t n;
};

static struct frame *encode(struct encoded *e, const struct encoding *encoding)
{
    size_t i = 0;
    while (i < e->n && e->encodings[i] != encoding)
        i++;
    if (i == e->n) {
        CHECK(e->n < ENCODINGS_MAX);
        e->encodings[i] = encoding;
        e->frames[e->n++] = frame_new(e->text, encoding);
    }
    return e->frames[i];
}

/* The streams of as many of these people as fit, with a reference each; *persons is how many. */
static unsigned streams_of(struct hub *h, const uint64_t *ids, size_t *persons,
                           struct stream *out[STREAMS_A_LOCK])
{
    unsigned n = 0;
    size_t i = 0;
    pthread_mutex_lock(&h->lock);
    for (; i < *persons && n <= STREAMS_A_LOCK - HUB_PERSON_MAX; i++) {
        const struct person *p = person_of(h, ids[i]);
        for (struct stream *s = p ? p->first : NULL; s; s = s->hub_next)
            out[n++] = stream_ref(s);
    }
    pthread_mutex_unlock(&h->lock);
    *persons = i;
    return n;
}

static void count(struct hub *h, const uint64_t *outcomes)
{
    pthread_mutex_lock(&h->lock);
    h->stats.sent += outcomes[STREAM_TAKEN] + outcomes[STREAM_MERGED];
    h->stats.merged += outcomes[STREAM_MERGED];
    h->stats.slow += outcomes[STREAM_SLOW];
    pthread_mutex_unlock(&h->lock);
}

static size_t send(struct hub *h, const uint64_t *persons, size_t n, const struct frame_text *text,
                   enum stream_outcome (*to)(struct stream *s, struct frame *f))
{
    struct encoded encoded = {.text = text};
    uint64_t outcomes[STREAM_OUTCOMES] = {0};
    for (size_t from = 0, some; from < n; from += some) {
        struct stream *streams[STREAMS_A_LOCK];
        some = n - from;
        unsigned found = streams_of(h, persons + from, &some, streams);
        for (unsigned i = 0; i < found; i++) {
            struct stream *s = streams[i];
            enum stream_outcome outcome = to(s, encode(&encoded, s->encoding));
            outcomes[outcome]++;
            if (outcome == STREAM_FULL && h->config.full)
                h->config.full(h->config.ctx, s->person);
            stream_unref(s);
        }
    }
    for (size_t i = 0; i < encoded.n; i++)
        frame_unref(encoded.frames[i]);
    if (encoded.n > 0)
        count(h, outcomes);
    return outcomes[STREAM_TAKEN] + outcomes[STREAM_MERGED];
}

size_t hub_send(struct hub *h, const uint64_t *persons, size_t n, const struct frame_text *text)
{
    return send(h, persons, n, text, stream_send);
}

void hub_greet(struct hub *h, uint64_t person, const struct frame_text *text)
{
    (void)send(h, &person, 1, text, stream_greet);
}

void hub_close(struct hub *h, uint64_t person, const char *reason)
{
    struct stream *streams[STREAMS_A_LOCK];
    size_t one = 1;
    unsigned found = streams_of(h, &person, &one, streams);
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

size_t hub_grants(struct hub *h, uint64_t person, uint64_t grants[HUB_PERSON_MAX])
{
    size_t n = 0;
    pthread_mutex_lock(&h->lock);
    const struct person *p = person_of(h, person);
    for (const struct stream *s = p ? p->first : NULL; s; s = s->hub_next) {
        size_t i = 0;
        while (i < n && grants[i] != s->grant)
            i++;
        if (i == n && s->grant)
            grants[n++] = s->grant;
    }
    pthread_mutex_unlock(&h->lock);
    return n;
}

void hub_each_granted(struct hub *h, uint64_t grant, void (*visit)(void *ctx, uint64_t person),
                      void *ctx)
{
    pthread_mutex_lock(&h->lock);
    for (const struct person *p = map_next(&h->persons, NULL); p; p = map_next(&h->persons, p)) {
        const struct stream *s = p->first;
        while (s && s->grant != grant)
            s = s->hub_next;
        if (s)
            visit(ctx, s->person);
    }
    pthread_mutex_unlock(&h->lock);
}

void hub_stats(struct hub *h, struct hub_stats *out)
{
    pthread_mutex_lock(&h->lock);
    *out = h->stats;
    out->persons = h->persons.count;
    pthread_mutex_unlock(&h->lock);
}
