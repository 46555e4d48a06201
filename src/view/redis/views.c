/* The Redis views driver: opening, closing and counts. driver.h and script.c explain how it works.
 * apply.c changes; graph.c, timelines.c and inboxes.c are the three ports; state.c knows what Redis
 * can be trusted with.
 *
 * Counts are sums of differences. Scripts say what they changed, the process adds that up and hands
 * it to Redis once a second, and when a caller asks for the sum. A process that is killed takes a
 * moment's differences along, so these numbers are for looking at. */
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/log.h"
#include "view/redis/driver.h"

enum { BYTES_EVERY_MS = 5000, POUR_EVERY_MS = 1000, TIMELINE_CAP_MAX = 100000 };

#define STATS_KEY key_named("stats{fantail}")

/* What Redis calls the parts, and where they are reported. */
static const struct {
    const char *name;
    size_t at;
} tally_parts[TALLY_PARTS] = {
    [TALLY_ACCOUNTS] = {"accounts", offsetof(struct view_stats, accounts)},
    [TALLY_FOLLOWS] = {"follows", offsetof(struct view_stats, follows)},
    [TALLY_DROPPED] = {"dropped", offsetof(struct view_stats, dropped)},
    [TALLY_ENTRIES] = {"entries", offsetof(struct view_stats, entries)},
    [TALLY_PULL_LISTS] = {"pull_lists", offsetof(struct view_stats, pull_lists)},
    [TALLY_GROUPS] = {"groups", offsetof(struct view_stats, groups)},
    [TALLY_MEMBERSHIPS] = {"memberships", offsetof(struct view_stats, memberships)},
    [TALLY_INBOXES] = {"inboxes", offsetof(struct view_stats, inboxes)},
    [TALLY_INBOX_ENTRIES] = {"inbox_entries", offsetof(struct view_stats, inbox_entries)},
};

enum err flush_pushes(struct redis_views *r, struct batch *b)
{
    return batch_flush(b, FLUSH_PUSHED | (r->safe_pushes ? FLUSH_REPLICATE : 0));
}

/* ---- counts ---- */

void queue_at_masters(struct redis_views *r, struct batch *b, const char *command,
                      const char *option)
{
    unsigned nodes[REDIS_NODES_MAX];
    size_t n = connections_masters(r->client.connections, nodes, REDIS_NODES_MAX);
    for (size_t i = 0; i < n; i++)
        batch_at_node(b, batch_queue(b, command, &arg_text(option), option != NULL), nodes[i]);
}

static int64_t read_memory(const struct batch *b, size_t from)
{
    int64_t bytes = 0;
    for (size_t i = from; i < batch_count(b); i++) {
        struct str rest = batch_text(b, i), line;
        while (str_split(&rest, '\n', &line)) {
            static const struct str name = {"used_memory:", 12};
            uint64_t n = 0;
            if (str_starts(line, name) &&
                str_parse_u64((struct str){line.ptr + name.len,
                                           line.len - name.len - (line.ptr[line.len - 1] == '\r')},
                              &n))
                bytes += (int64_t)n;
        }
    }
    return bytes;
}

/* Queues what this process has counted; the sums are the replies. */
static void queue_tally(struct redis_views *r, struct batch *b, int64_t taken[TALLY_PARTS])
{
    for (int i = 0; i < TALLY_PARTS; i++) {
        taken[i] = atomic_exchange(&r->tally[i], 0);
        batch_command(b, "HINCRBY", arg_key(STATS_KEY), arg_text(tally_parts[i].name),
                      arg_signed(taken[i]));
    }
    atomic_store(&r->poured_at_ms, clock_mono_ms(clock_system()));
}

static void put_back(struct redis_views *r, const int64_t taken[TALLY_PARTS])
{
    for (int i = 0; i < TALLY_PARTS; i++)
        tally_add(r, (enum tally_part)i, taken[i]);
}

static bool has_tally(struct redis_views *r)
{
    bool any = false;
    for (int i = 0; i < TALLY_PARTS; i++)
        any |= atomic_load_explicit(&r->tally[i], memory_order_relaxed) != 0;
    return any;
}

void tally_pour(struct redis_views *r)
{
    int64_t last = atomic_load(&r->poured_at_ms), now_ms = clock_mono_ms(clock_system());
    if (now_ms - last < POUR_EVERY_MS || !has_tally(r) ||
        !atomic_compare_exchange_strong(&r->poured_at_ms, &last, now_ms))
        return;
    int64_t taken[TALLY_PARTS];
    BORROWED struct batch *b = batch_borrow(&r->client);
    queue_tally(r, b, taken);
    if (batch_flush(b, FLUSH_WAIT))
        put_back(r, taken);
}

static void redis_stats(struct views *v, struct view_stats *out)
{
    struct redis_views *r = CONTAINER_OF(v, struct redis_views, views);
    BORROWED struct batch *b = batch_borrow(&r->client);
    int64_t taken[TALLY_PARTS], now_ms = clock_mono_ms(clock_system());
    *out = (struct view_stats){.saved_position = VIEWS_LASTING};
    queue_tally(r, b, taken);
    pthread_mutex_lock(&r->lock); /* memory is asked for now and then: it takes Redis a while */
    bool ask_memory = r->bytes_at_ms == 0 || now_ms - r->bytes_at_ms >= BYTES_EVERY_MS;
    if (ask_memory)
        r->bytes_at_ms = now_ms + 1;
    pthread_mutex_unlock(&r->lock);
    if (ask_memory)
        queue_at_masters(r, b, "INFO", "memory");
    if (batch_flush(b, FLUSH_HURRY) == OK) {
        for (int i = 0; i < TALLY_PARTS; i++) {
            int64_t n = batch_integer(b, (size_t)i, 0);
            *(uint64_t *)(void *)((char *)out + tally_parts[i].at) = n > 0 ? (uint64_t)n : 0;
        }
        out->timelines = out->accounts > out->dropped ? out->accounts - out->dropped : 0;
        pthread_mutex_lock(&r->lock);
        if (ask_memory)
            r->bytes = read_memory(b, TALLY_PARTS);
        out->bytes = (uint64_t)r->bytes;
        pthread_mutex_unlock(&r->lock);
    } else {
        put_back(r, taken);
    }
}

/* ---- opening and closing ---- */

/* A node does not know who listens at the others: signals name all members. */
static enum err redis_listen(struct views *v, uint64_t account, bool on)
{
    (void)v, (void)account, (void)on;
    return OK;
}

static size_t redis_listening(struct views *v, const uint64_t *members, size_t n,
                              uint64_t *accounts)
{
    (void)v;
    memcpy(accounts, members, n * sizeof *accounts);
    return n;
}

static void redis_free(struct views *v)
{
    struct redis_views *r = CONTAINER_OF(v, struct redis_views, views);
    struct view_stats last;
    if (has_tally(r))
        redis_stats(v, &last);
    client_close(&r->client);
    map_done(&r->rebuilds);
    pthread_mutex_destroy(&r->lock);
    free(r);
}

static const struct views_ops redis_ops = {
    .apply = redis_apply,
    .listen = redis_listen,
    .listening = redis_listening,
    .save = redis_save,
    .clear = redis_clear,
    .loaded = redis_loaded,
    .is_complete = redis_is_complete,
    .suspect = redis_suspect,
    .stats = redis_stats,
    .free = redis_free,
};

/* The first tag h0, h1, … that falls into each range of slots. */
static void name_copies(struct redis_views *r)
{
    size_t named = 0;
    r->copies = connections_is_cluster(r->client.connections) ? COPIES_MAX : 1;
    for (unsigned tag = 0; named < r->copies; tag++) {
        char name[KEY_MAX];
        snprintf(name, sizeof name, "h{h%u}", tag);
        struct key k = key_named(name);
        size_t at = r->copies > 1 ? k.slot / COPY_SLOTS : 0;
        if (r->hidden[at].len > 0)
            continue;
        r->hidden[at] = r->hidden_recent[at] = k;
        r->hidden_recent[at].text[0] = 'e';
        named++;
    }
}

/* Positions are account ids and would stay valid; but after a loss of everything a walk should not
 * continue in the middle. So the epoch is a number that lives and dies with the data. */
enum err redis_set_epoch(struct redis_views *r, bool anew, uint64_t *epoch)
{
    BORROWED struct batch *b = batch_borrow(&r->client);
    uint64_t mine = (client_random(&r->client) >> 2) + 1;
    batch_queue(b, "SET", (struct arg[]){arg_key(EPOCH_KEY), arg_number(mine), arg_text("NX")},
                anew ? 2 : 3);
    batch_command(b, "GET", arg_key(EPOCH_KEY));
    enum err e = batch_flush(b, FLUSH_GOOD);
    if (!e && !str_parse_u64(batch_text(b, 1), epoch))
        e = ERR_UNAVAILABLE;
    if (!e)
        atomic_store(&r->epoch_seen, *epoch);
    return e;
}

enum err views_redis_open(const struct redis_config *config, struct views **out)
{
    if (config->store && strlen(config->store) > STORE_TEXT_MAX)
        return ERR_BAD_INPUT;
    struct redis_views *r = calloc(1, sizeof *r);
    CHECK(r);
    enum err e = client_open(&r->client, config);
    if (e) {
        free(r);
        return e;
    }
    r->graph.ops = &redis_graph_ops;
    r->timelines.ops = &redis_timelines_ops;
    r->inboxes.ops = &redis_inboxes_ops;
    r->views.ops = &redis_ops;
    r->views.graph = &r->graph;
    r->views.timelines = &r->timelines;
    r->views.inboxes = &r->inboxes;
    r->views.remote = true;
    r->views.cap = clamp_cap(config->timeline_cap, TIMELINE_CAP_MAX);
    r->pull_cap = clamp_cap(config->pull_cap, TIMELINE_CAP_MAX);
    r->safe_pushes = config->safe_pushes;
    r->clock = config->clock;
    if (config->store)
        memcpy(r->store, config->store, strlen(config->store) + 1);
    pthread_mutex_init(&r->lock, NULL);
    rebuilds_init(r);
    memcpy(r->sweep_cursor, "0", 2);
    name_copies(r);
    bool complete = false;
    e = redis_own(r);
    if (!e)
        e = redis_set_epoch(r, false, &r->views.epoch);
    if (!e)
        e = redis_look(r, FLUSH_WAIT, &complete);
    if (e) {
        redis_free(&r->views);
        return e;
    }
    r->views.loaded_position = complete ? VIEWS_LASTING : 0;
    *out = &r->views;
    return OK;
}
