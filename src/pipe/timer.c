/* All SQL of the timers, and the step that fires them.
 *
 * The table is looked at when the next one known of is due, and every timer_every_ms besides: a
 * transaction, of any node, may have set an earlier one. That look reads one entry of an index,
 * however many wait.
 *
 * An event that this program cannot read is parked when it is due, as it stands. */
#include "port/timer.h"

#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/fault.h"
#include "base/id.h"
#include "base/log.h"
#include "pipe/state.h"

enum { FIRE_AT_ONCE = 256, TYPE_MAX = 40, FAILED_AGAIN_US = 100 * 1000 };

/* ---- for transactions ---- */

enum err timer_set(struct tx *tx, const struct event *e, uint64_t key, int64_t due_ms)
{
    char memory[EVENT_PAYLOAD_MAX];
    struct buf payload = buf_over(memory, sizeof memory);
    CHECK(e->type < EVENT_TYPE_COUNT && event_keep(e->type) == EVENT_STORED);
    event_payload(e, &payload);
    CHECK(!payload.failed);
    return tx_exec(tx,
                   "INSERT INTO timers (type, key, due_at, version, payload) "
                   "VALUES ($1, $2, $3, $4, $5) ON CONFLICT (type, key) DO UPDATE SET "
                   "due_at = excluded.due_at, version = excluded.version, "
                   "payload = excluded.payload",
                   DB_ARGS(DB_TEXT(str_of(event_wire_name(e->type))), DB_I64(key), DB_I64(due_ms),
                           DB_I64(event_version(e->type)), DB_TEXT(buf_view(&payload))),
                   NULL);
}

enum err timer_cancel(struct tx *tx, enum event_type type, uint64_t key, bool *waited)
{
    int64_t removed = 0;
    enum err e = tx_exec(tx, "DELETE FROM timers WHERE type = $1 AND key = $2",
                         DB_ARGS(DB_TEXT(str_of(event_wire_name(type))), DB_I64(key)), &removed);
    if (waited)
        *waited = removed > 0;
    return e;
}

/* ---- firing ---- */

struct due_timer {
    int64_t due_ms, version;
    uint64_t key;
    char type[TYPE_MAX];
    char payload[EVENT_PAYLOAD_MAX];
    size_t payload_len;
};

struct firing {
    int64_t now_ms;
    size_t count;
    struct due_timer due[FIRE_AT_ONCE];
};

static int by_due(const void *a, const void *b)
{
    const struct due_timer *x = a, *y = b;
    if (x->due_ms != y->due_ms)
        return x->due_ms < y->due_ms ? -1 : 1;
    int type = strcmp(x->type, y->type);
    return type ? type : x->key < y->key ? -1 : x->key > y->key;
}

/* The due time is asked for twice: another node may be moving the timer at this moment, and then
 * the row as it is afterwards counts. */
static enum err take_due(struct tx *tx, struct firing *f)
{
    f->count = 0;
    struct db_rows rows = tx_rows(tx,
                                  "DELETE FROM timers WHERE due_at <= $1 AND (type, key) IN "
                                  "(SELECT type, key FROM timers WHERE due_at <= $1 "
                                  "ORDER BY due_at, type, key LIMIT $2) "
                                  "RETURNING due_at, key, version, type, payload",
                                  DB_ARGS(DB_I64(f->now_ms), DB_I64(FIRE_AT_ONCE)));
    while (f->count < FIRE_AT_ONCE && db_next(&rows)) {
        struct due_timer *t = &f->due[f->count++];
        struct str type = db_text(&rows, 3), payload = db_text(&rows, 4);
        *t = (struct due_timer){.due_ms = db_i64(&rows, 0),
                                .key = db_id(&rows, 1),
                                .version = db_i64(&rows, 2),
                                .payload_len = payload.len < sizeof t->payload ? payload.len
                                                                               : sizeof t->payload};
        memcpy(t->type, type.ptr, type.len < TYPE_MAX ? type.len : TYPE_MAX - 1);
        memcpy(t->payload, payload.ptr, t->payload_len);
    }
    enum err e = db_rows_done(&rows);
    qsort(f->due, f->count, sizeof *f->due, by_due);
    return e;
}

static enum err park(struct tx *tx, const struct due_timer *t, enum event_unread why,
                     int64_t now_ms)
{
    struct delivery_record record = {
        .kind = RECORD_PARK, .event = {.id = id_next(tx->ids)}, .reason = event_unread_name(why)};
    TRY(tx_exec(tx, "INSERT INTO outbox (id, type, version, payload) VALUES ($1, $2, $3, $4)",
                DB_ARGS(DB_I64(record.event.id), DB_TEXT(str_of(t->type)), DB_I64(t->version),
                        DB_TEXT(((struct str){t->payload, t->payload_len}))),
                NULL));
    return delivery_store_write(tx, &record, 1, 0, now_ms);
}

static enum err fire(struct tx *tx, const struct due_timer *t, int64_t now_ms)
{
    struct event event;
    enum event_unread unread = event_read_whole(0, str_of(t->type), t->version,
                                                (struct str){t->payload, t->payload_len}, &event);
    return unread == EVENT_READ ? outbox_emit(tx, event) : park(tx, t, unread, now_ms);
}

static enum err run_fire(struct tx *tx, void *arg)
{
    struct firing *f = arg;
    TRY(take_due(tx, f));
    for (size_t i = 0; i < f->count; i++)
        TRY(fire(tx, &f->due[i], f->now_ms));
    return OK;
}

static enum err run_look(struct tx *tx, void *arg)
{
    int64_t *next_ms = arg;
    enum err e = tx_get_i64(tx, "SELECT due_at FROM timers ORDER BY due_at, type, key LIMIT 1",
                            DB_NO_ARGS, next_ms);
    if (e == ERR_NOT_FOUND)
        *next_ms = INT64_MAX;
    return e == ERR_NOT_FOUND ? OK : e;
}

static void note_fired(struct engine *g, const struct firing *f)
{
    for (size_t i = 0; i < f->count; i++) {
        int64_t late_ms = f->now_ms - f->due[i].due_ms;
        hist_record(&g->timers.late_us, late_ms > 0 ? (uint64_t)late_ms * 1000 : 0);
    }
    atomic_fetch_add(&g->timers.fired, f->count);
}

static enum err fire_due(struct engine *g, int64_t now_ms)
{
    struct firing *f = malloc(sizeof *f);
    CHECK(f);
    f->now_ms = now_ms;
    FAULT(timer_before_fire);
    enum err e = engine_write(g, run_fire, f);
    FAULT(timer_after_fire);
    if (!e)
        note_fired(g, f);
    free(f);
    return e;
}

const struct hist *engine_timers_late_us(struct engine *g)
{
    return &g->timers.late_us;
}

int64_t engine_timer_step(struct engine *g)
{
    int64_t again_us, now_us = clock_mono_us(g->env.clock), next_ms = INT64_MAX;
    if (!engine_enter_leading(g, &again_us))
        return again_us;
    int64_t now_ms = clock_wall_ms(g->env.clock);
    enum err e = db_read(g->env.db, run_look, &next_ms, NULL);
    if (!e && next_ms <= now_ms)
        e = fire_due(g, now_ms);
    engine_exit(g);
    if (e) {
        if (engine_may_log(&g->timers.log_after_us, now_us))
            log_error("timers cannot be fired", LOG_CSTR("error", err_name(e)));
        return now_us + FAILED_AGAIN_US;
    }
    atomic_store(&g->timers.next_ms, next_ms);
    int64_t wait_ms = next_ms <= now_ms ? 0 : next_ms - now_ms;
    wait_ms = wait_ms < g->config.timer_every_ms ? wait_ms : g->config.timer_every_ms;
    return now_us + wait_ms * 1000;
}
