/* The table operator_acts. Rows are only ever added: a record that its subject could change would
 * prove nothing. An act that is a transaction is recorded in it, so that neither is there without
 * the other. */
#include "model/operator_act.h"

#include "base/id.h"

enum err operator_act_record(struct tx *tx, const struct operator_act *act)
{
    return tx_exec(tx,
                   "INSERT INTO operator_acts (id, at, who, act, target, request, why) "
                   "VALUES ($1, $2, $3, $4, $5, $6, $7)",
                   DB_ARGS(DB_I64(id_next(tx->ids)), DB_I64(clock_wall_ms(tx->ids->clock)),
                           DB_TEXT(act->who), DB_TEXT(act->act), DB_TEXT(act->target),
                           DB_TEXT(str_cut(act->request, OPERATOR_REQUEST_MAX)),
                           DB_TEXT(str_cut(act->why, OPERATOR_WHY_MAX))),
                   NULL);
}

enum err operator_act_list(struct tx *tx, uint64_t below, struct arena *arena,
                           struct operator_act *out, size_t max, size_t *n)
{
    *n = 0;
    struct db_rows rows =
        tx_rows(tx,
                "SELECT id, at, who, act, target, request, why FROM operator_acts "
                "WHERE id < $1 ORDER BY id DESC LIMIT $2",
                DB_ARGS(DB_BELOW(below), DB_I64(max)));
    for (; *n < max && db_next(&rows); (*n)++)
        out[*n] = (struct operator_act){.id = db_id(&rows, 0),
                                        .at_ms = db_i64(&rows, 1),
                                        .who = arena_str(arena, db_text(&rows, 2)),
                                        .act = arena_str(arena, db_text(&rows, 3)),
                                        .target = arena_str(arena, db_text(&rows, 4)),
                                        .request = arena_str(arena, db_text(&rows, 5)),
                                        .why = arena_str(arena, db_text(&rows, 6))};
    return db_rows_done(&rows);
}
