/* The desk: see delivery_desk.h. */
#include "delivery_desk.h"

enum { TEXTS_MAX = 128 };

struct plain_db *store;
static struct manual_clock hands;
static struct id_gen ids;

/* ---- the statements that were run ---- */

static struct db_ops spying;
static const struct db_ops *real;
static struct {
    const char *sql;
    size_t args;
    char explain[2000];
} texts[TEXTS_MAX];
static size_t text_count;

static void note(const char *sql, size_t n)
{
    for (size_t i = 0; i < text_count; i++)
        if (strcmp(texts[i].sql, sql) == 0)
            return;
    CHECK(text_count < TEXTS_MAX);
    texts[text_count].sql = sql;
    texts[text_count].args = n;
    snprintf(texts[text_count].explain, sizeof texts[0].explain, "EXPLAIN QUERY PLAN %s", sql);
    text_count++;
}

static enum err spy_exec(struct tx *tx, const char *sql, const struct db_value *args, size_t n,
                         int64_t *changed)
{
    note(sql, n);
    return real->exec(tx, sql, args, n, changed);
}

static enum err spy_query(struct tx *tx, const char *sql, const struct db_value *args, size_t n,
                          struct db_rows *rows)
{
    note(sql, n);
    return real->query(tx, sql, args, n, rows);
}

/* ---- doing things ---- */

enum err run_write(struct tx *tx, void *arg)
{
    struct call *c = arg;
    return delivery_store_write(tx, c->records, c->n, c->epoch, c->now);
}
enum err run_claim(struct tx *tx, void *arg)
{
    struct call *c = arg;
    return delivery_store_claim(tx, c->epoch, c->now, LEASE_MS, c->claims, c->max, &c->n);
}
enum err run_redrive(struct tx *tx, void *arg)
{
    struct call *c = arg;
    return delivery_store_redrive(tx, &c->filter, &c->slice, c->start, c->rate, c->before, c->now);
}
enum err run_discard(struct tx *tx, void *arg)
{
    struct call *c = arg;
    return delivery_store_discard(tx, &c->filter, &c->slice, STR("spam"), c->now);
}
enum err run_release(struct tx *tx, void *arg)
{
    struct call *c = arg;
    return delivery_store_release(tx, &c->filter, &c->slice, c->now);
}
enum err run_clean(struct tx *tx, void *arg)
{
    struct call *c = arg;
    return delivery_store_clean(tx, c->closed, c->dead, c->max, c->now, &c->n);
}
enum err run_reopen(struct tx *tx, void *arg)
{
    return delivery_store_reopen(tx, ((struct call *)arg)->now);
}
enum err run_bury(struct tx *tx, void *arg)
{
    struct call *c = arg;
    return delivery_store_bury(tx, c->delivery, "UNKNOWN_CONSUMER", c->now);
}
enum err run_due(struct tx *tx, void *arg)
{
    return delivery_store_next_due(tx, &((struct call *)arg)->due);
}
enum err run_keys(struct tx *tx, void *arg)
{
    struct call *c = arg;
    return delivery_store_open_keys(tx, c->after, c->keys, c->max, &c->n);
}
enum err run_recorded(struct tx *tx, void *arg)
{
    struct call *c = arg;
    return delivery_store_of_events(tx, c->first, c->last, c->recorded, c->max, &c->n);
}
enum err run_counts(struct tx *tx, void *arg)
{
    struct call *c = arg;
    return delivery_store_count(tx, c->counts, c->max, &c->n);
}
enum err run_groups(struct tx *tx, void *arg)
{
    struct call *c = arg;
    return delivery_store_group(tx, c->groups, c->max, &c->n);
}

void run(tx_fn fn, struct call *c)
{
    assert_int_equal(db_write(plain_db_port(store), fn, c, NULL), OK);
}

void write_at(struct delivery_record *records, size_t n, int64_t now)
{
    struct call c = {.records = records, .n = n, .epoch = EPOCH, .now = now};
    run(run_write, &c);
}

void write_one(struct delivery_record b)
{
    write_at(&b, 1, NOW);
}

size_t claim(struct claim *out, size_t max, uint64_t epoch, int64_t now)
{
    struct call c = {.claims = out, .max = max, .epoch = epoch, .now = now};
    run(run_claim, &c);
    return c.n;
}

int64_t ask(const char *sql)
{
    return plain_db_ask(store, sql);
}

int64_t next_due(void)
{
    struct call c = {0};
    run(run_due, &c);
    return c.due;
}

/* A failed page of an unordered fan-out. */
struct delivery_record page(uint64_t event, uint64_t after)
{
    return (struct delivery_record){
        .kind = RECORD_FAIL,
        .state = DELIVERY_DELAYED,
        .event = {.id = event, .type = EVENT_POST_CREATED, .version = 1, .actor = 42, .object = 77},
        .consumer = "timelines",
        .lane = LANE_SMALL,
        .cursor = {.after = after},
        .tries = 1,
        .due_ms = NOW + 2000,
        .reason = "UNAVAILABLE"};
}

/* A failed delivery that keeps the order of its key. */
struct delivery_record keyed(uint64_t event, uint64_t key)
{
    struct delivery_record b = page(event, 0);
    b.event.type = EVENT_FOLLOW_CREATED;
    b.event.actor = key;
    b.lane = LANE_GRAPH;
    b.order_key = key;
    return b;
}

struct delivery_record waiting(uint64_t event, uint64_t key)
{
    struct delivery_record b = keyed(event, key);
    b.kind = RECORD_WAIT;
    b.tries = 0;
    b.reason = NULL;
    return b;
}

struct delivery_record ended(const struct claim *c, enum record_kind kind)
{
    return (struct delivery_record){.kind = kind,
                                    .state = DELIVERY_DELAYED,
                                    .delivery = c->delivery,
                                    .event = c->event,
                                    .consumer = c->consumer,
                                    .lane = c->lane,
                                    .order_key = c->order_key,
                                    .cursor = c->cursor,
                                    .until = c->until,
                                    .replay = c->replay,
                                    .tries = (uint16_t)(c->tries + 1),
                                    .due_ms = NOW + 9000,
                                    .reason = "TIMEOUT",
                                    .members = 3};
}

void put_in_outbox(int version)
{
    char sql[200];
    snprintf(sql, sizeof sql,
             "INSERT INTO outbox (id, type, version, payload, state) VALUES (50, 'post.created', "
             "%d, '{\"actor\":\"4\",\"object\":\"5\",\"value\":0}', 0)",
             version);
    plain_db_run(store, sql);
}

/* ---- the plans ---- */

struct plan {
    size_t text;
    char lines[1000];
};

static enum err run_explain(struct tx *tx, void *arg)
{
    struct plan *p = arg;
    struct db_value nothing[32] = {{.kind = DB_KIND_NULL}};
    struct db_rows rows;
    struct buf out = buf_over(p->lines, sizeof p->lines - 1);
    enum err e = real->query(tx, texts[p->text].explain, nothing, texts[p->text].args, &rows);
    while (!e && db_next(&rows)) {
        buf_str(&out, db_text(&rows, 3));
        buf_str(&out, STR("; "));
    }
    p->lines[out.len] = '\0';
    return e ? e : db_rows_done(&rows);
}

void check_plans(const struct wanted_plan *wanted, size_t n)
{
    bool seen[32] = {false};
    assert_true(n <= COUNT_OF(seen));
    for (size_t i = 0; i < text_count; i++) {
        struct plan p = {.text = i};
        assert_int_equal(plain_db_look(store, run_explain, &p), OK);
        /* Walking an index in its order up to a LIMIT is fine; reading everything is not. */
        bool scans = strstr(p.lines, "SCAN deliveries") &&
                     !strstr(p.lines, "INDEX deliveries_due") &&
                     !strstr(p.lines, "INDEX deliveries_retrying");
        bool sorts = strstr(p.lines, "TEMP B-TREE") && strstr(texts[i].sql, "FROM deliveries ") &&
                     !strstr(texts[i].sql, "event_id = $3");
        if (scans || sorts || strstr(p.lines, "SCAN outbox"))
            fail_msg("%s\n%s", texts[i].sql, p.lines);
        for (size_t k = 0; k < n; k++) {
            if (!strstr(texts[i].sql, wanted[k].words))
                continue;
            seen[k] = true;
            if (!strstr(p.lines, wanted[k].index))
                fail_msg("not by %s: %s\n%s", wanted[k].index, texts[i].sql, p.lines);
        }
    }
    for (size_t k = 0; k < n; k++)
        if (!seen[k])
            fail_msg("no statement was run with: %s", wanted[k].words);
}

/* ---- the frame ---- */

int set_up(void **state)
{
    (void)state;
    plain_db_clear(store);
    return 0;
}

int set_up_all(void **state)
{
    (void)state;
    manual_clock_init(&hands, ID_EPOCH_MS + NOW);
    id_gen_init(&ids, &hands.clock, 1);
    store = plain_db_new(&hands.clock, &ids);
    struct db *port = plain_db_port(store);
    real = port->ops;
    spying = *real;
    spying.exec = spy_exec;
    spying.query = spy_query;
    port->ops = &spying;
    return 0;
}

int tear_down_all(void **state)
{
    (void)state;
    plain_db_port(store)->ops = real;
    plain_db_free(store);
    return 0;
}
