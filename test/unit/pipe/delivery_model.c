/* See delivery_model.h. */
#include "delivery_model.h"

#include <stdlib.h>
#include <string.h>

#include "base/check.h"

const char *const model_consumers[CONSUMERS] = {"timelines", "mail", "counters"};
const enum lane model_lanes[CONSUMERS] = {LANE_GRAPH, LANE_SMALL, LANE_GRAPH};

struct row rows[ROWS]; /* the model, in the order they were made */
size_t row_count;
int64_t now;
uint64_t epoch, seed_now;

/* ---- the model ---- */

bool is_open(enum delivery_state s)
{
    return s <= DELIVERY_DEAD;
}

struct row *at_page(uint64_t event, int consumer, uint64_t part, uint64_t after, uint64_t replay)
{
    for (size_t i = 0; i < row_count; i++) {
        struct row *r = &rows[i];
        if (r->event == event && r->consumer == consumer && r->part == part && r->after == after &&
            r->replay == replay)
            return r;
    }
    return NULL;
}

static struct row *by_id(uint64_t id)
{
    for (size_t i = 0; i < row_count; i++)
        if (rows[i].id == id)
            return &rows[i];
    return NULL;
}

void set_state(struct row *r, enum delivery_state state)
{
    r->state = state;
    r->changed = now;
}

void forget(struct row *r)
{
    size_t i = (size_t)(r - rows);
    memmove(r, r + 1, (row_count - i - 1) * sizeof *r);
    row_count--;
}

/* Whose turn is it? The list is by age, so of one event the oldest row comes first. */
void model_order(void)
{
    for (uint64_t key = 1; key <= KEYS; key++) {
        struct row *first = NULL, *busy = NULL;
        for (size_t i = 0; i < row_count; i++) {
            struct row *r = &rows[i];
            if (r->key != key || !is_open(r->state))
                continue;
            if (!first || r->event < first->event)
                first = r;
            if (r->state == DELIVERY_RETRYING)
                busy = r;
        }
        struct row *turn = busy ? busy : first;
        for (size_t i = 0; i < row_count; i++) {
            struct row *r = &rows[i];
            if (r->key != key || !is_open(r->state) || r->state == DELIVERY_DEAD)
                continue;
            enum delivery_state right = r != turn                       ? DELIVERY_WAITING
                                        : r->state == DELIVERY_RETRYING ? DELIVERY_RETRYING
                                                                        : DELIVERY_DELAYED;
            if (r->state != right) {
                set_state(r, right);
                r->due = r->due > now ? r->due : now;
            }
        }
    }
}

static bool model_room(struct row *r, uint64_t part, uint64_t after, uint64_t *until)
{
    struct row *other = at_page(r->event, r->consumer, part, after, r->replay);
    if (!other || other == r)
        return true;
    if (is_open(other->state)) {
        if (other->epoch != epoch)
            return false;
        *until = *until == other->until ? *until : 0;
        set_state(other, DELIVERY_DONE);
    }
    other->part = r->part;
    other->after = r->after;
    return true;
}

int consumer_of(const struct delivery_record *b)
{
    for (int i = 0; i < CONSUMERS; i++)
        if (strcmp(b->consumer, model_consumers[i]) == 0)
            return i;
    return -1;
}

static void model_add(const struct delivery_record *b)
{
    CHECK(row_count < ROWS);
    rows[row_count++] = (struct row){
        .event = b->event.id,
        .key = b->order_key,
        .part = b->cursor.part,
        .after = b->cursor.after,
        .until = b->until,
        .epoch = epoch,
        .replay = b->replay,
        .consumer = consumer_of(b),
        .state = b->kind == RECORD_FAIL ? b->state
                 : b->order_key         ? DELIVERY_WAITING
                                        : DELIVERY_DELAYED,
        .tries = b->tries,
        .due = b->kind == RECORD_FAIL && b->state == DELIVERY_DELAYED ? b->due_ms : now,
        .opened = now,
        .changed = now,
        .reason = b->reason ? b->reason : ""};
}

static void model_fail_row(struct row *r, const struct delivery_record *b)
{
    if (!is_open(r->state))
        return;
    uint64_t until = b->delivery || r->until == b->until ? r->until : 0;
    if (r->epoch == epoch && model_room(r, b->cursor.part, b->cursor.after, &until)) {
        r->part = b->cursor.part;
        r->after = b->cursor.after;
    }
    r->until = until;
    r->tries = b->tries > r->tries ? b->tries : r->tries;
    r->changed = now;
    bool under_way = r->state == DELIVERY_RETRYING && !b->delivery;
    bool timed = under_way || (r->state == DELIVERY_DELAYED && !b->delivery);
    if (!timed)
        r->due = b->state == DELIVERY_DELAYED ? b->due_ms : now;
    if (r->state == DELIVERY_DEAD || under_way)
        return;
    r->reason = b->reason;
    r->state = b->state;
}

void model_record(const struct delivery_record *b)
{
    struct row *r = b->delivery ? by_id(b->delivery)
                                : at_page(b->event.id, consumer_of(b), b->cursor.part,
                                          b->cursor.after, b->replay);
    if (!b->delivery && r && r->state == DELIVERY_DONE) {
        forget(r);
        r = NULL;
    }
    if (!b->delivery && !r) {
        model_add(b);
    } else if (!r) {
        return;
    } else if (b->kind == RECORD_FAIL) {
        model_fail_row(r, b);
    } else if (b->kind == RECORD_WAIT) {
        if (is_open(r->state) && r->until != b->until)
            r->until = 0;
    } else if (is_open(r->state) && b->kind == RECORD_DONE) {
        r->members += (int64_t)b->members;
        if (b->until && b->until != r->until && r->epoch == epoch) {
            uint64_t until = r->until;
            if (model_room(r, r->part, b->until, &until))
                r->after = b->until;
            r->until = until;
            r->due = now;
            set_state(r, r->state == DELIVERY_DEAD ? DELIVERY_DEAD : DELIVERY_DELAYED);
        } else {
            set_state(r, DELIVERY_DONE);
        }
    } else if (is_open(r->state) && b->kind == RECORD_MOVE && r->epoch == epoch) {
        uint64_t until = r->until;
        if (!model_room(r, b->cursor.part, b->cursor.after, &until))
            return;
        r->part = b->cursor.part;
        r->after = b->cursor.after;
        r->until = until;
        r->tries = 0;
        r->members += (int64_t)b->members;
        r->changed = now;
        if (r->state == DELIVERY_RETRYING && b->due_ms > r->due)
            r->due = b->due_ms;
    }
}

static int by_due(const void *a, const void *b)
{
    const struct row *x = *(struct row *const *)a, *y = *(struct row *const *)b;
    return x->due != y->due ? (x->due < y->due ? -1 : 1) : x < y ? -1 : x > y;
}

/* `taken`: the rows as they were when they were claimed; another may widen one in the same call. */
size_t model_claim(size_t max, struct row *taken)
{
    struct row *due[ROWS];
    size_t n = 0, count = 0;
    for (size_t i = 0; i < row_count; i++)
        if ((rows[i].state == DELIVERY_DELAYED || rows[i].state == DELIVERY_RETRYING) &&
            rows[i].due <= now)
            due[n++] = &rows[i];
    qsort(due, n, sizeof due[0], by_due);
    for (size_t i = 0; i < n && i < max; i++) {
        struct row *r = due[i];
        if (!is_open(r->state))
            continue;
        if (r->epoch != epoch) {
            for (size_t k = 0; k < row_count; k++) {
                struct row *o = &rows[k];
                if (o != r && o->event == r->event && o->consumer == r->consumer &&
                    o->part == r->part && o->replay == r->replay && is_open(o->state) &&
                    o->epoch != epoch)
                    set_state(o, DELIVERY_DONE);
            }
            struct row *first = at_page(r->event, r->consumer, r->part, 0, r->replay);
            if (first && first != r && is_open(first->state) && first->state != DELIVERY_DEAD) {
                first->until = 0;
                set_state(r, DELIVERY_DONE);
                continue;
            }
            if (first && first != r) {
                if (is_open(first->state))
                    set_state(first, DELIVERY_DONE);
                first->after = r->after;
            }
            r->after = r->until = 0;
            r->epoch = epoch;
        }
        set_state(r, DELIVERY_RETRYING);
        r->due = now + LEASE_MS;
        taken[count++] = *r;
    }
    return count;
}
