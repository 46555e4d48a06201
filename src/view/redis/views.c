/* The Redis views driver: opening, closing, counts, and the words that the other files queue
 * commands with. How it works is told in driver.h and script.c. apply.c changes; graph.c,
 * timelines.c and inboxes.c are the three ports; state.c knows what Redis can be trusted with.
 *
 * Counts are sums of differences. Scripts say what they changed, the process adds that up and hands
 * it to Redis once a second, and when somebody asks for the sum. A process that is killed takes a
 * moment's differences along, so these numbers are for looking at. */
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "base/check.h"
#include "base/log.h"
#include "view/redis/driver.h"
#include "view/redis/redis.h"
#include "view/redis/slot.h"

enum { BYTES_EVERY_MS = 5000, POUR_EVERY_MS = 1000, TIMELINE_CAP_MAX = 100000 };

#define STATS_KEY STR("stats{fantail}")

static const char *const tally_names[TALLY_PARTS] = {"accounts",    "follows",    "dropped",
                                                     "entries",     "pull_lists", "groups",
                                                     "memberships", "inboxes",    "inbox_entries"};

/* ---- batches ---- */

struct batch *batch_borrow(struct redis_views *r)
{
    pthread_mutex_lock(&r->lock);
    struct batch *b = r->spare_count > 0 ? r->spare[--r->spare_count] : NULL;
    pthread_mutex_unlock(&r->lock);
    return b ? b : batch_new(r->connections);
}

void batch_return(struct redis_views *r, struct batch *b)
{
    batch_reset(b);
    pthread_mutex_lock(&r->lock);
    bool keep = r->spare_count < SPARE_BATCHES_MAX;
    if (keep)
        r->spare[r->spare_count++] = b;
    pthread_mutex_unlock(&r->lock);
    if (!keep)
        batch_free(b);
}

/* ---- words ---- */

size_t queue_script(struct redis_views *r, struct batch *b, enum script_id id,
                    const struct key *keys, unsigned key_count, unsigned args)
{
    (void)r;
    size_t command = batch_begin(b, keys[0].slot, 3 + key_count + args);
    batch_arg_script(b, script_of(id));
    batch_arg_u64(b, key_count);
    for (unsigned i = 0; i < key_count; i++)
        batch_key(b, &keys[i]);
    return command;
}

void arg_id(struct batch *b, uint64_t id)
{
    char digits[ID_DIGITS];
    id_digits(id, digits);
    batch_arg(b, (struct str){digits, sizeof digits});
}

void arg_post(struct batch *b, uint64_t id)
{
    batch_arg_u64(b, id_score(id));
    arg_id(b, id);
}

void arg_text(struct batch *b, const char *text)
{
    batch_arg(b, str_of(text));
}

size_t queue_complete(struct redis_views *r, struct batch *b, uint16_t slot)
{
    const struct key *k = hidden_near(r, slot);
    size_t command = batch_begin(b, k->slot, 3);
    arg_text(b, "SISMEMBER");
    batch_key(b, k);
    arg_text(b, "0");
    return command;
}

const redisReply *reply_part(const struct batch *b, size_t command, size_t i)
{
    const redisReply *r = batch_reply(b, command);
    return r->type == REDIS_REPLY_ARRAY && i < r->elements ? r->element[i] : NULL;
}

int64_t reply_number(const struct batch *b, size_t command, size_t i)
{
    const redisReply *r = reply_part(b, command, i);
    return r && r->type == REDIS_REPLY_INTEGER ? r->integer : 0;
}

bool reply_is(const struct batch *b, size_t command, int64_t n)
{
    const redisReply *r = batch_reply(b, command);
    return r->type == REDIS_REPLY_INTEGER && r->integer == n;
}

size_t reply_ids(const redisReply *r, uint64_t *ids, size_t max)
{
    size_t n = 0;
    for (size_t i = 0; r && r->type == REDIS_REPLY_ARRAY && i < r->elements && n < max; i++) {
        const redisReply *e = r->element[i];
        if (e->type == REDIS_REPLY_STRING && id_from_digits((struct str){e->str, e->len}, &ids[n]))
            n++;
    }
    return n;
}

size_t reply_accounts(const redisReply *r, size_t from, uint64_t *accounts, size_t max)
{
    size_t n = 0;
    for (size_t i = from; r && r->type == REDIS_REPLY_ARRAY && i < r->elements && n < max; i++) {
        const redisReply *e = r->element[i];
        if (e->type != REDIS_REPLY_STRING ||
            !str_parse_u64((struct str){e->str, e->len}, &accounts[n]))
            accounts[n] = 0; /* nobody */
        n++;
    }
    return n;
}

enum err flush_pushes(struct redis_views *r, struct batch *b)
{
    if (r->safe_pushes)
        batch_replicate(b);
    return batch_flush_good(b, "WRONGTYPE"); /* what is dropped is no sorted set */
}

/* ---- counts ---- */

/* Memory of all masters, asked for now and then: it takes Redis a while to say. */
static void queue_memory(struct redis_views *r, struct batch *b)
{
    unsigned nodes[REDIS_NODES_MAX];
    size_t n = connections_masters(r->connections, nodes, REDIS_NODES_MAX);
    for (size_t i = 0; i < n; i++) {
        size_t command = batch_begin(b, 0, 2);
        arg_text(b, "INFO");
        arg_text(b, "memory");
        batch_at_node(b, command, nodes[i]);
    }
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
        batch_begin(b, slot_of(STATS_KEY), 4);
        arg_text(b, "HINCRBY");
        batch_arg(b, STATS_KEY);
        arg_text(b, tally_names[i]);
        batch_arg_i64(b, taken[i]);
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
    struct batch *b = batch_borrow(r);
    queue_tally(r, b, taken);
    if (batch_flush(b))
        put_back(r, taken);
    batch_return(r, b);
}

static uint64_t stat_of(const struct batch *b, enum tally_part part)
{
    int64_t n = batch_integer(b, part, 0);
    return n > 0 ? (uint64_t)n : 0;
}

static void redis_stats(struct views *v, struct view_stats *out)
{
    struct redis_views *r = redis_of(v);
    struct batch *b = batch_borrow(r);
    int64_t taken[TALLY_PARTS], now_ms = clock_mono_ms(clock_system());
    *out = (struct view_stats){.saved_position = VIEWS_LASTING};
    queue_tally(r, b, taken);
    batch_hurry(b);
    pthread_mutex_lock(&r->lock);
    bool ask_memory = r->bytes_at_ms == 0 || now_ms - r->bytes_at_ms >= BYTES_EVERY_MS;
    if (ask_memory)
        r->bytes_at_ms = now_ms + 1;
    pthread_mutex_unlock(&r->lock);
    if (ask_memory)
        queue_memory(r, b);
    if (batch_flush(b) == OK) {
        out->accounts = stat_of(b, TALLY_ACCOUNTS);
        out->follows = stat_of(b, TALLY_FOLLOWS);
        out->dropped = stat_of(b, TALLY_DROPPED);
        out->entries = stat_of(b, TALLY_ENTRIES);
        out->pull_lists = stat_of(b, TALLY_PULL_LISTS);
        out->groups = stat_of(b, TALLY_GROUPS);
        out->memberships = stat_of(b, TALLY_MEMBERSHIPS);
        out->inboxes = stat_of(b, TALLY_INBOXES);
        out->inbox_entries = stat_of(b, TALLY_INBOX_ENTRIES);
        out->timelines = out->accounts > out->dropped ? out->accounts - out->dropped : 0;
        pthread_mutex_lock(&r->lock);
        if (ask_memory)
            r->bytes = read_memory(b, TALLY_PARTS);
        out->bytes = (uint64_t)r->bytes;
        pthread_mutex_unlock(&r->lock);
    } else {
        put_back(r, taken);
    }
    batch_return(r, b);
}

/* ---- opening and closing ---- */

/* Redis tells whoever has read a key that it was changed: readers trace what they read. */
static enum err redis_listen(struct views *v, uint64_t account, bool on)
{
    (void)v, (void)account, (void)on;
    return OK;
}

static void redis_free(struct views *v)
{
    struct redis_views *r = redis_of(v);
    struct view_stats last;
    if (has_tally(r))
        redis_stats(v, &last);
    while (r->spare_count > 0)
        batch_free(r->spare[--r->spare_count]);
    connections_free(r->connections);
    pthread_mutex_destroy(&r->lock);
    free(r);
}

static const struct views_ops redis_ops = {
    .apply = redis_apply,
    .listen = redis_listen,
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
    r->copies = connections_is_cluster(r->connections) ? COPIES_MAX : 1;
    for (unsigned tag = 0; named < r->copies; tag++) {
        struct key k;
        k.len = (uint8_t)snprintf(k.text, sizeof k.text, "h{h%u}", tag);
        k.slot = slot_of(key_text(&k));
        size_t at = r->copies > 1 ? k.slot / COPY_SLOTS : 0;
        if (r->hidden[at].len > 0)
            continue;
        r->hidden[at] = r->hidden_recent[at] = k;
        r->hidden_recent[at].text[0] = 'e';
        named++;
    }
}

/* Positions are account ids and would stay valid; but who has lost everything should not go on in
 * the middle of a walk. So the epoch is a number that lives and dies with the data. */
static enum err set_epoch(struct redis_views *r, bool anew, uint64_t *epoch)
{
    struct batch *b = batch_borrow(r);
    pthread_mutex_lock(&r->lock);
    uint64_t mine = (rand_u64(&r->rand) >> 2) + 1;
    pthread_mutex_unlock(&r->lock);
    batch_begin(b, slot_of(EPOCH_KEY), anew ? 3 : 4);
    arg_text(b, "SET");
    batch_arg(b, EPOCH_KEY);
    batch_arg_u64(b, mine);
    if (!anew)
        arg_text(b, "NX");
    batch_begin(b, slot_of(EPOCH_KEY), 2);
    arg_text(b, "GET");
    batch_arg(b, EPOCH_KEY);
    enum err e = batch_flush(b);
    if (!e && (!batch_all_good(b, NULL) || !str_parse_u64(batch_text(b, 1), epoch)))
        e = ERR_UNAVAILABLE;
    batch_return(r, b);
    return e;
}

enum err redis_epoch_begin(struct redis_views *r)
{
    uint64_t epoch;
    enum err e = set_epoch(r, true, &epoch);
    if (!e)
        atomic_store(&r->epoch_seen, epoch);
    return e;
}

/* 0: there is none. */
enum err redis_epoch_read(struct redis_views *r, uint64_t *epoch)
{
    struct batch *b = batch_borrow(r);
    batch_begin(b, slot_of(EPOCH_KEY), 2);
    arg_text(b, "GET");
    batch_arg(b, EPOCH_KEY);
    enum err e = batch_flush(b);
    *epoch = 0;
    if (!e)
        (void)str_parse_u64(batch_text(b, 0), epoch);
    batch_return(r, b);
    return e;
}

enum err views_redis_open(const struct redis_config *config, struct views **out)
{
    struct redis_url url;
    const char *why;
    enum err e = redis_url_parse(str_of(config->url), &url, &why);
    if (e) {
        log_error("the URL of Redis cannot be used", LOG_CSTR("why", why));
        return e;
    }
    if (config->store && strlen(config->store) > STORE_TEXT_MAX)
        return ERR_BAD_INPUT;
    struct redis_views *r = calloc(1, sizeof *r);
    CHECK(r);
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
    r->connections = connections_new(&url, config->failover_wait_ms);
    connections_set_invalidation(r->connections, config->invalidation);
    explicit_bzero(&url, sizeof url);
    pthread_mutex_init(&r->lock, NULL);
    uint64_t seed = 0;
    CHECK(getrandom(&seed, sizeof seed, 0) == sizeof seed);
    rand_seed(&r->rand, seed);
    memcpy(r->sweep_cursor, "0", 2);
    name_copies(r);
    bool complete = false;
    (void)connections_refresh(r->connections);
    e = redis_own(r);
    if (!e)
        e = set_epoch(r, false, &r->views.epoch);
    atomic_store(&r->epoch_seen, r->views.epoch);
    if (!e)
        e = redis_look(r, false, &complete);
    if (e) {
        redis_free(&r->views);
        return e;
    }
    r->views.loaded_position = complete ? VIEWS_LASTING : 0;
    *out = &r->views;
    return OK;
}
