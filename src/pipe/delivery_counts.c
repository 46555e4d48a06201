/* The counts of the delivery store: read from `delivery_counts`, which every change of a row keeps
 * right, so that asking costs the number of cells and not the number of rows. */
#include "pipe/delivery_ledger.h"

/* States, and the reasons of those that have some. */
enum { ROWS_PER_CELL = 4 * DELIVERY_STATES };

static bool is_same(const struct delivery_count *c, struct db_rows *rows)
{
    return str_eq(str_of(c->consumer), db_text(rows, 0)) &&
           str_eq(str_of(c->type), db_text(rows, 1)) && str_eq(str_of(c->lane), db_text(rows, 2));
}

static enum err read_cells(struct tx *tx, struct delivery_count *out, size_t max, size_t *n)
{
    struct db_rows rows;
    *n = 0;
    enum err e = tx_query(tx,
                          "SELECT consumer, type, lane, state, count FROM delivery_counts "
                          "ORDER BY consumer, type, lane, state, reason LIMIT $1",
                          DB_ARGS(DB_I64(max * ROWS_PER_CELL)), &rows);
    if (e)
        return e;
    while (db_next(&rows)) {
        if (*n == 0 || !is_same(&out[*n - 1], &rows)) {
            if (*n == max)
                break;
            struct delivery_count *c = &out[(*n)++];
            *c = (struct delivery_count){0};
            entry_text(c->consumer, sizeof c->consumer, db_text(&rows, 0));
            entry_text(c->type, sizeof c->type, db_text(&rows, 1));
            entry_text(c->lane, sizeof c->lane, db_text(&rows, 2));
        }
        int64_t state = db_i64(&rows, 3);
        if (state > 0 && state < DELIVERY_STATES)
            out[*n - 1].states[state] += db_id(&rows, 4);
    }
    return db_rows_done(&rows);
}

enum err delivery_store_count(struct tx *tx, struct delivery_count *out, size_t max, size_t *n)
{
    enum err e = read_cells(tx, out, max, n);
    for (size_t i = 0; i < *n && !e; i++) {
        struct delivery_count *c = &out[i];
        int64_t oldest = 0;
        if (c->states[DELIVERY_DELAYED] + c->states[DELIVERY_RETRYING] +
                c->states[DELIVERY_WAITING] ==
            0)
            continue;
        e = tx_get_i64(tx,
                       "SELECT event_id FROM deliveries WHERE consumer = $1 AND type = $2 "
                       "AND lane = $3 AND state <= 2 ORDER BY event_id LIMIT 1",
                       DB_ARGS(DB_TEXT(str_of(c->consumer)), DB_TEXT(str_of(c->type)),
                               DB_TEXT(str_of(c->lane))),
                       &oldest);
        if (e == ERR_NOT_FOUND)
            e = OK;
        c->oldest_open = (uint64_t)oldest;
    }
    return e;
}
