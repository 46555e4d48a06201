/* A row per lane, by its name: lanes may change their place in the table between versions. The
 * engine reads them when it begins to deliver, so that whichever node leads has them. */
#include "pipe/lane_overrides.h"

enum err lane_override_keep(struct tx *tx, const struct lane_override *o)
{
    return tx_exec(tx,
                   "INSERT INTO lane_overrides (lane, concurrency, rate, stopped) "
                   "VALUES ($1, $2, $3, $4) ON CONFLICT (lane) DO UPDATE SET "
                   "concurrency = excluded.concurrency, rate = excluded.rate, "
                   "stopped = excluded.stopped",
                   DB_ARGS(DB_TEXT(str_of(lane_name(o->lane))), DB_I64(o->concurrency),
                           DB_I64(o->rate), DB_I64(o->stopped)),
                   NULL);
}

enum err lane_override_forget(struct tx *tx, enum lane lane)
{
    return tx_exec(tx, "DELETE FROM lane_overrides WHERE lane = $1",
                   DB_ARGS(DB_TEXT(str_of(lane_name(lane)))), NULL);
}

enum err lane_overrides_read(struct tx *tx, struct lane_override out[LANE_COUNT], size_t *n)
{
    *n = 0;
    struct db_rows rows =
        tx_rows(tx, "SELECT lane, concurrency, rate, stopped FROM lane_overrides ORDER BY lane",
                DB_NO_ARGS);
    while (*n < LANE_COUNT && db_next(&rows)) {
        struct lane_override *o = &out[*n];
        if (!lane_parse(db_text(&rows, 0), &o->lane))
            continue;
        o->concurrency = (uint32_t)db_i64(&rows, 1);
        o->rate = (uint32_t)db_i64(&rows, 2);
        o->stopped = db_i64(&rows, 3) != 0;
        (*n)++;
    }
    return db_rows_done(&rows);
}
