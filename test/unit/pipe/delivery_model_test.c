/* Random histories of the delivery store beside a simple model of them: a list of rows in which
 * every rule of the header is a loop. After each operation the table must hold exactly the model's
 * rows, the invariants must hold of the table itself, and everything that failed and was neither
 * delivered since nor given up must be covered by an open row. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "base/check.h"
#include "base/rand.h"
#include "delivery_model.h"
#include "pipe/delivery_store.h"
#include "plain_db.h"

/* Failures have one of the first GIVEN; others are ours. */
enum { GIVEN = 2, REASONS = 4 };
static const char *const reasons[REASONS] = {"UNAVAILABLE", "TIMEOUT", "BURIED", ""};
static const uint64_t places[] = {0, 100, 200, 300};

static struct plain_db *store;
static struct manual_clock hands;
static struct id_gen ids;
static struct rand dice;
static struct row found[ROWS], before[ROWS]; /* the table now, and before the operation */
static size_t found_count, before_count;
static int64_t counts[CONSUMERS][DELIVERY_STATES][REASONS]; /* the table's, less the rows */
static struct claim claims[CLAIMS];                         /* under way */
static size_t claim_count;
static unsigned owed[EVENTS][CONSUMERS][2]; /* segments still to be delivered */

/* ---- the table ---- */

static int reason_index(struct str reason)
{
    for (int i = 0; i < REASONS; i++)
        if (str_eq(reason, str_of(reasons[i])))
            return i;
    fail_msg("a reason that nobody gave");
    return 0;
}

/* Each row takes one from the count of its kind: nothing may be left, nothing missing. */
static enum err look_at_counts(struct tx *tx)
{
    struct db_rows out;
    memset(counts, 0, sizeof counts);
    for (size_t i = 0; i < found_count; i++) {
        const struct row *r = &found[i];
        const char *reason = r->state == DELIVERY_DEAD ? r->reason : "";
        counts[r->consumer][r->state][reason_index(str_of(reason))]--;
    }
    enum err e = tx_query(tx, "SELECT consumer, lane, state, reason, count FROM delivery_counts",
                          DB_NO_ARGS, &out);
    while (!e && db_next(&out)) {
        int c = 0;
        while (!str_eq(db_text(&out, 0), str_of(model_consumers[c])))
            c++;
        assert_true(str_eq(db_text(&out, 1), str_of(lane_name(model_lanes[c]))));
        counts[c][db_i64(&out, 2)][reason_index(db_text(&out, 3))] += db_i64(&out, 4);
    }
    return e ? e : db_rows_done(&out);
}

static enum err look(struct tx *tx, void *arg)
{
    (void)arg;
    struct db_rows out;
    enum err e = tx_query(tx,
                          "SELECT id, event_id, order_key, part, after, until, epoch, replay, "
                          "consumer, state, tries, due_at, opened_at, changed_at, members, reason "
                          "FROM deliveries ORDER BY id",
                          DB_NO_ARGS, &out);
    found_count = 0;
    while (!e && db_next(&out)) {
        struct row *r = &found[found_count++];
        *r = (struct row){.id = db_id(&out, 0),
                          .event = db_id(&out, 1),
                          .key = db_id(&out, 2),
                          .part = db_id(&out, 3),
                          .after = db_id(&out, 4),
                          .until = db_id(&out, 5),
                          .epoch = db_id(&out, 6),
                          .replay = db_id(&out, 7),
                          .consumer = -1,
                          .state = (enum delivery_state)db_i64(&out, 9),
                          .tries = db_i64(&out, 10),
                          .due = db_i64(&out, 11),
                          .opened = db_i64(&out, 12),
                          .changed = db_i64(&out, 13),
                          .members = db_i64(&out, 14),
                          .reason = ""};
        for (int i = 0; i < CONSUMERS; i++)
            if (str_eq(db_text(&out, 8), str_of(model_consumers[i])))
                r->consumer = i;
        r->reason = reasons[reason_index(db_text(&out, 15))];
    }
    if (!e)
        e = db_rows_done(&out);
    return e ? e : look_at_counts(tx);
}

static void describe(const char *who, const struct row *r)
{
    print_error("%s: id %llu event %llu %s key %llu part %llu %llu..%llu epoch %llu replay %llu "
                "%s tries %lld due %lld changed %lld members %lld %s\n",
                who, (unsigned long long)r->id, (unsigned long long)r->event,
                model_consumers[r->consumer], (unsigned long long)r->key,
                (unsigned long long)r->part, (unsigned long long)r->after,
                (unsigned long long)r->until, (unsigned long long)r->epoch,
                (unsigned long long)r->replay, delivery_state_name(r->state), (long long)r->tries,
                (long long)r->due, (long long)r->changed, (long long)r->members, r->reason);
}

static bool same_row(const struct row *a, const struct row *b)
{
    return a->event == b->event && a->key == b->key && a->part == b->part && a->after == b->after &&
           a->until == b->until && a->epoch == b->epoch && a->replay == b->replay &&
           a->consumer == b->consumer && a->state == b->state && a->tries == b->tries &&
           a->due == b->due && a->opened == b->opened && a->changed == b->changed &&
           a->members == b->members && strcmp(a->reason, b->reason) == 0;
}

/* Rows get rising ids, so the n-th row made is the n-th by id: that is how the model learns them.
 */
static void check_rows(const char *what)
{
    for (size_t i = 0; i < row_count && i < found_count; i++) {
        if (!same_row(&rows[i], &found[i]) || (rows[i].id && rows[i].id != found[i].id)) {
            describe("model", &rows[i]);
            describe("table", &found[i]);
            fail_msg("row %zu differs after %s", i, what);
        }
        rows[i].id = found[i].id;
    }
    if (row_count != found_count)
        fail_msg("%zu rows in the model, %zu in the table after %s", row_count, found_count, what);
}

/* Invariant 1, of the table itself. */
static void check_turns(const char *what)
{
    for (uint64_t key = 1; key <= KEYS; key++) {
        const struct row *first = NULL;
        bool busy = false;
        size_t turns = 0, delayed = 0;
        for (size_t i = 0; i < found_count; i++) {
            const struct row *r = &found[i];
            if (r->key != key || !is_open(r->state))
                continue;
            if (!first || r->event < first->event)
                first = r;
            busy = busy || r->state == DELIVERY_RETRYING;
            delayed += r->state == DELIVERY_DELAYED;
            turns += r->state == DELIVERY_DELAYED || r->state == DELIVERY_RETRYING;
        }
        if (turns > 1)
            fail_msg("%zu rows of key %d have a turn after %s", turns, (int)key, what);
        if (delayed && first->state != DELIVERY_DELAYED)
            fail_msg("a later row of key %d is delayed after %s", (int)key, what);
        if (first && first->state == DELIVERY_WAITING && !busy)
            fail_msg("nobody of key %d has a turn after %s", (int)key, what);
    }
}

/* Invariant 3, of the table itself. */
static void check_closed(const char *what)
{
    for (size_t i = 0; i < before_count; i++) {
        if (is_open(before[i].state))
            continue;
        for (size_t k = 0; k < found_count; k++)
            if (found[k].id == before[i].id && found[k].state != before[i].state)
                fail_msg("a closed row opened after %s", what);
    }
}

/* Invariant 2. */
static void check_counts(const char *what)
{
    for (size_t c = 0; c < CONSUMERS; c++)
        for (size_t k = 0; k < DELIVERY_STATES; k++)
            for (size_t r = 0; r < REASONS; r++)
                if (counts[c][k][r])
                    fail_msg("the count of %s, state %zu, \"%s\" is off by %d after %s",
                             model_consumers[c], k, reasons[r], (int)counts[c][k][r], what);
}

static unsigned segments(uint64_t after, uint64_t until)
{
    unsigned mask = 0;
    for (unsigned i = 0; i < SEGMENTS; i++)
        if (places[i] >= after && (until == 0 || until <= after || places[i] < until))
            mask |= 1u << i;
    return mask;
}

static void check_owed(const char *what)
{
    for (size_t v = 0; v < EVENTS; v++) {
        for (int c = 0; c < CONSUMERS; c++) {
            for (int p = 0; p < 2; p++) {
                unsigned covered = 0;
                for (size_t i = 0; i < found_count; i++) {
                    const struct row *r = &found[i];
                    if (r->event == v + 1 && r->consumer == c && (r->replay != 0) == p &&
                        is_open(r->state))
                        covered |= r->epoch == epoch ? segments(r->after, r->until) : ~0u;
                }
                if (owed[v][c][p] & ~covered)
                    fail_msg("seed %d: event %zu, %s: segments %x are lost after %s", (int)seed_now,
                             v + 1, model_consumers[c], owed[v][c][p] & ~covered, what);
            }
        }
    }
}

static void check_all(const char *what)
{
    model_order();
    memcpy(before, found, sizeof found[0] * found_count);
    before_count = found_count;
    assert_int_equal(plain_db_look(store, look, NULL), OK);
    check_rows(what);
    check_turns(what);
    check_closed(what);
    check_counts(what);
    check_owed(what);
}

/* ---- operations ---- */

static unsigned *owed_of(uint64_t event, const char *consumer, uint64_t replay)
{
    int c = 0;
    while (strcmp(model_consumers[c], consumer) != 0)
        c++;
    return &owed[event - 1][c][replay != 0];
}

static int64_t pick(int64_t n)
{
    return (int64_t)rand_below(&dice, (uint64_t)n);
}

static void roll_page(struct delivery_record *b)
{
    uint64_t event = 1 + (uint64_t)pick(EVENTS);
    int consumer = (int)pick(CONSUMERS);
    size_t from = pick(2) ? 0 : (size_t)pick(COUNT_OF(places));
    size_t to = pick(2) ? 0 : (size_t)pick(COUNT_OF(places));
    *b = (struct delivery_record){
        .kind = pick(4) ? RECORD_FAIL : RECORD_WAIT,
        .state = pick(8) == 0   ? DELIVERY_DROPPED
                 : pick(4) == 0 ? DELIVERY_DEAD
                                : DELIVERY_DELAYED,
        .event = {.id = event,
                  .type = EVENT_FOLLOW_CREATED,
                  .version = 1,
                  .actor = 1 + event % KEYS},
        .consumer = model_consumers[consumer],
        .lane = model_lanes[consumer],
        .order_key = model_lanes[consumer] == LANE_GRAPH ? 1 + event % KEYS : 0,
        .cursor = {.after = places[from]},
        .until = to > from ? places[to] : 0,
        .replay = pick(5) ? 0 : REPLAY,
        .tries = (uint16_t)(1 + pick(5)),
        .due_ms = now + pick(3000),
        .reason = reasons[pick(GIVEN)],
    };
    if (b->kind == RECORD_WAIT) {
        b->tries = 0;
        b->reason = NULL;
    }
}

/* Applies the page's delivery_record to the model. */
static void owe_page(const struct delivery_record *b)
{
    struct row *r =
        at_page(b->event.id, consumer_of(b), b->cursor.part, b->cursor.after, b->replay);
    bool given_up = r && !is_open(r->state) && r->state != DELIVERY_DONE;
    unsigned *o = owed_of(b->event.id, b->consumer, b->replay);
    unsigned failed = segments(b->cursor.after, b->until);
    /* A try of this page that is under way and got further has reached those before. */
    for (size_t i = 0; r && i < claim_count; i++)
        if (claims[i].delivery == r->id && claims[i].cursor.after > r->after)
            failed &= ~segments(r->after, claims[i].cursor.after);
    if (!given_up)
        *o |= failed;
    if (b->kind == RECORD_FAIL && b->state == DELIVERY_DROPPED)
        *o = 0;
}

/* A claim's end, or its progress, as the engine would report it. */
static void roll_outcome(struct delivery_record *b, struct claim *c)
{
    size_t from = c->cursor.after / 100, end = c->until ? c->until / 100 : SEGMENTS;
    size_t reached = from < end ? from + (size_t)pick((int64_t)(end - from)) : from;
    *b = (struct delivery_record){.kind = pick(3) == 0   ? RECORD_FAIL
                                          : pick(3) == 0 ? RECORD_MOVE
                                                         : RECORD_DONE,
                                  .delivery = c->delivery,
                                  .event = c->event,
                                  .consumer = c->consumer,
                                  .lane = c->lane,
                                  .order_key = c->order_key,
                                  .cursor = c->cursor,
                                  .until = c->until,
                                  .replay = c->replay,
                                  .tries = (uint16_t)(c->tries + 1),
                                  .due_ms = now + pick(3000),
                                  .members = (size_t)pick(10)};
    unsigned *o = owed_of(c->event.id, c->consumer, c->replay);
    if (b->kind == RECORD_DONE) {
        *o &= ~segments(c->cursor.after, c->until);
        return;
    }
    b->cursor.after = reached < COUNT_OF(places) ? places[reached] : c->cursor.after;
    if (b->cursor.after != c->cursor.after)
        *o &= ~segments(c->cursor.after, b->cursor.after);
    if (b->kind == RECORD_MOVE) {
        c->cursor = b->cursor;
        return;
    }
    b->state = pick(4) ? DELIVERY_DELAYED : pick(3) ? DELIVERY_DEAD : DELIVERY_DROPPED;
    b->reason = reasons[pick(GIVEN)];
    if (b->state == DELIVERY_DROPPED)
        *o = 0;
}

struct batch {
    struct delivery_record records[BATCH];
    size_t n;
};

static enum err run_write(struct tx *tx, void *arg)
{
    struct batch *batch = arg;
    return delivery_store_write(tx, batch->records, batch->n, epoch, now);
}

static void check_free_keys(const struct batch *batch)
{
    for (size_t i = 0; i < batch->n; i++) {
        const struct delivery_record *b = &batch->records[i];
        bool open = false;
        for (size_t k = 0; k < found_count; k++)
            open = open || (found[k].key == b->order_key && is_open(found[k].state));
        assert_int_equal(b->key_is_free, b->order_key != 0 && !open);
    }
}

static void write_batch(void)
{
    struct batch batch = {.n = 1 + (size_t)pick(BATCH)};
    char names[BATCH][40]; /* claims move when one is taken out */
    for (size_t i = 0; i < batch.n; i++) {
        struct delivery_record *b = &batch.records[i];
        if (claim_count > 0 && pick(2)) {
            size_t which = (size_t)pick((int64_t)claim_count);
            roll_outcome(b, &claims[which]);
            snprintf(names[i], sizeof names[i], "%s", b->consumer);
            b->consumer = names[i];
            if (b->kind != RECORD_MOVE)
                claims[which] = claims[--claim_count];
        } else {
            roll_page(b);
            owe_page(b);
        }
        model_record(b);
    }
    assert_int_equal(db_write(plain_db_port(store), run_write, &batch, NULL), OK);
    check_all("delivery_store_write");
    check_free_keys(&batch);
}

static enum err run_claim(struct tx *tx, void *arg)
{
    size_t *n = arg;
    return delivery_store_claim(tx, epoch, now, LEASE_MS, claims + claim_count, *n, n);
}

static void claim_some(void)
{
    size_t max = 1 + (size_t)pick(6);
    if (claim_count + max > CLAIMS)
        return;
    struct row taken[8];
    size_t n = max, expected = model_claim(max, taken);
    assert_int_equal(db_write(plain_db_port(store), run_claim, &n, NULL), OK);
    check_all("book_claim");
    assert_int_equal(n, expected);
    for (size_t i = 0; i < n; i++) {
        const struct claim *c = &claims[claim_count + i];
        const struct row *r = &taken[i];
        assert_int_equal(c->delivery, r->id);
        assert_int_equal(c->event.id, r->event);
        assert_int_equal(c->event.actor, 1 + r->event % KEYS);
        assert_int_equal(c->cursor.after, r->after);
        assert_int_equal(c->until, r->until);
        assert_int_equal(c->tries, r->tries);
        assert_int_equal(c->order_key, r->key);
        assert_string_equal(c->consumer, model_consumers[r->consumer]);
    }
    claim_count += n;
}

static enum err run_reopen(struct tx *tx, void *arg)
{
    (void)arg;
    return delivery_store_reopen(tx, now);
}

/* Memory is lost, and half the time the views with it. */
static void restart(void)
{
    claim_count = 0;
    if (pick(2)) {
        epoch++;
        for (size_t v = 0; v < EVENTS; v++)
            for (int c = 0; c < CONSUMERS; c++)
                for (int p = 0; p < 2; p++)
                    owed[v][c][p] = owed[v][c][p] ? (1u << SEGMENTS) - 1 : 0;
    }
    for (size_t i = 0; i < row_count; i++) {
        if (rows[i].state == DELIVERY_RETRYING) {
            set_state(&rows[i], DELIVERY_DELAYED);
            rows[i].due = now;
        }
    }
    assert_int_equal(db_write(plain_db_port(store), run_reopen, NULL, NULL), OK);
    check_all("delivery_store_reopen");
}

struct asking {
    struct delivery_filter filter;
    struct delivery_slice slice;
    bool redrive;
    int64_t rate;
    uint64_t done_before;
};

static enum err run_asking(struct tx *tx, void *arg)
{
    struct asking *a = arg;
    if (a->redrive)
        return delivery_store_redrive(tx, &a->filter, &a->slice, now + 100, a->rate, a->done_before,
                                      now);
    return delivery_store_discard(tx, &a->filter, &a->slice, STR("not wanted"), now);
}

static bool matches(const struct row *r, const struct delivery_filter *f)
{
    return (!f->state || r->state == f->state) && (!f->event || r->event == f->event) &&
           (!f->delivery || r->id == f->delivery) && (!f->key || 1 + r->event % KEYS == f->key) &&
           (!f->reason.len || str_eq(f->reason, str_of(r->reason))) &&
           (!f->consumer.len || str_eq(f->consumer, str_of(model_consumers[r->consumer])));
}

static void ask_for_many(bool redrive)
{
    struct asking a = {.redrive = redrive, .rate = pick(3), .done_before = (uint64_t)pick(5)};
    a.slice.max = 1 + (size_t)pick(5);
    if (pick(4) == 0)
        a.filter.event = 1 + (uint64_t)pick(EVENTS);
    if (pick(4) == 0)
        a.filter.key = 1 + (uint64_t)pick(KEYS);
    if (pick(4) == 0)
        a.filter.reason = str_of(reasons[pick(GIVEN)]);
    if (pick(4) == 0)
        a.filter.consumer = str_of(model_consumers[pick(CONSUMERS)]);
    if (pick(4) == 0 && row_count)
        a.filter.delivery = rows[pick((int64_t)row_count)].id;
    if (pick(2) || !redrive)
        a.filter.state = DELIVERY_DEAD;
    for (int slices = 0; !a.slice.end; slices++) {
        uint64_t after = a.slice.after;
        assert_true(slices < ROWS);
        assert_int_equal(db_write(plain_db_port(store), run_asking, &a, NULL), OK);
        uint64_t in_slice = 0;
        for (size_t i = 0; i < row_count; i++) {
            struct row *r = &rows[i];
            if (r->id <= after || (r->id > a.slice.after && !a.slice.end) ||
                r->state != DELIVERY_DEAD || !matches(r, &a.filter))
                continue;
            if (redrive) {
                r->tries = 0;
                r->due = now + 100;
                if (a.rate)
                    r->due += (int64_t)(a.done_before + in_slice) * 1000 / a.rate;
                set_state(r, DELIVERY_DELAYED);
            } else {
                set_state(r, DELIVERY_DISCARDED);
                *owed_of(r->event, model_consumers[r->consumer], r->replay) = 0;
            }
            in_slice++;
        }
        assert_int_equal(a.slice.changed, in_slice);
        a.done_before += in_slice;
        check_all(redrive ? "delivery_store_redrive" : "delivery_store_discard");
    }
}

struct cleaning {
    int64_t closed, dead;
    size_t max, removed;
};

static enum err run_clean(struct tx *tx, void *arg)
{
    struct cleaning *c = arg;
    return delivery_store_clean(tx, c->closed, c->dead, c->max, now, &c->removed);
}

static void clean_old(void)
{
    struct cleaning c = {.closed = now - pick(4000), .dead = pick(2) ? now - pick(4000) : 0};
    c.max = 1000;
    size_t removed = 0;
    for (size_t i = 0; i < row_count;) {
        struct row *r = &rows[i];
        bool old = is_open(r->state) ? r->state == DELIVERY_DEAD && r->opened < c.dead
                                     : r->changed < c.closed;
        if (!old) {
            i++;
            continue;
        }
        if (r->state == DELIVERY_DEAD)
            *owed_of(r->event, model_consumers[r->consumer], r->replay) = 0;
        forget(r);
        removed++;
    }
    assert_int_equal(db_write(plain_db_port(store), run_clean, &c, NULL), OK);
    assert_int_equal(c.removed, removed);
    check_all("delivery_store_clean");
}

static enum err run_bury(struct tx *tx, void *arg)
{
    return delivery_store_bury(tx, *(uint64_t *)arg, "BURIED", now);
}

static void bury_one(void)
{
    if (row_count == 0)
        return;
    struct row *r = &rows[pick((int64_t)row_count)];
    uint64_t id = r->id;
    if (r->state == DELIVERY_DELAYED || r->state == DELIVERY_RETRYING) {
        set_state(r, DELIVERY_DEAD);
        r->reason = "BURIED";
    }
    assert_int_equal(db_write(plain_db_port(store), run_bury, &id, NULL), OK);
    check_all("delivery_store_bury");
}

static void run_history(uint64_t seed)
{
    rand_seed(&dice, seed);
    seed_now = seed;
    plain_db_clear(store);
    row_count = found_count = claim_count = 0;
    memset(owed, 0, sizeof owed);
    now = START_MS;
    epoch = 1;
    for (int i = 0; i < OPERATIONS; i++) {
        now += pick(400);
        manual_clock_advance(&hands, 1);
        int64_t what = pick(100);
        if (what < 45)
            write_batch();
        else if (what < 75)
            claim_some();
        else if (what < 80)
            restart();
        else if (what < 86)
            ask_for_many(true);
        else if (what < 90)
            ask_for_many(false);
        else if (what < 95)
            clean_old();
        else
            bury_one();
    }
}

static void random_histories_agree_with_the_model(void **state)
{
    (void)state;
    const char *one = getenv("FANTAIL_SEED");
    for (uint64_t seed = 1; seed <= SEEDS; seed++) {
        if (one && strtoull(one, NULL, 10) != seed)
            continue;
        if (one)
            print_message("seed %llu\n", (unsigned long long)seed);
        run_history(seed);
    }
}

static int set_up(void **state)
{
    (void)state;
    manual_clock_init(&hands, ID_EPOCH_MS + START_MS);
    id_gen_init(&ids, &hands.clock, 1);
    store = plain_db_new(&hands.clock, &ids);
    return store ? 0 : -1;
}

static int tear_down(void **state)
{
    (void)state;
    plain_db_free(store);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(random_histories_agree_with_the_model),
    };
    return cmocka_run_group_tests_name("delivery_model", tests, set_up, tear_down);
}
