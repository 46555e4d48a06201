/* One transaction as the writers and readers see it: how it begins, what fails it, how it ends. The
 * first failure poisons it: nothing more runs, and it does not commit, whatever its function
 * returns. What it sends is in postgres_statement.c. */
#include <stdio.h>

#include "db/postgres_driver.h"

/* ---- beginning and ending ---- */

void pg_tx_next_job(struct pg_tx *tx)
{
    tx->base.events = (struct event_list){0};
    tx->base.detail[0] = '\0';
    tx->wrote = false;
}

void pg_tx_begin(struct pg_tx *tx, struct pg_link *l, bool writable)
{
    *tx = (struct pg_tx){.base = {.db = &l->db->base, .ids = l->db->base.ids, .writable = writable},
                         .link = l};
}

enum err pg_tx_end_job(struct pg_tx *tx, enum err result)
{
    while (tx->open)
        pg_rows_close(tx->open);
    return tx->poison ? tx->poison : result;
}

void pg_tx_roll_back(struct pg_tx *tx)
{
    struct pg_link *l = tx->link;
    if (l->streaming)
        pg_rows_put_aside(l->streaming);
    pg_link_settle(l);
    if (tx->begun && !l->lost && pg_link_control(l, "ROLLBACK"))
        pg_link_settle(l);
    l->failed = l->has_rows = false;
}

/* ---- failures ---- */

void pg_tx_poison(struct pg_tx *tx, enum err e, enum pg_trouble trouble, const char *detail)
{
    if (tx->poison)
        return;
    tx->poison = e;
    tx->trouble = trouble;
    snprintf(tx->base.detail, TX_DETAIL_MAX, "%s", detail);
}

enum err pg_tx_misuse(struct pg_tx *tx, const char *what, const char *sql)
{
    char detail[TX_DETAIL_MAX];
    snprintf(detail, sizeof detail, "%s: %.120s", what, sql);
    pg_tx_poison(tx, ERR_INTERNAL, PG_REFUSED, detail);
    return ERR_INTERNAL;
}

void pg_tx_lose(struct pg_tx *tx)
{
    char detail[TX_DETAIL_MAX];
    pg_failure_describe(&tx->link->failure, detail);
    pg_tx_poison(tx, ERR_UNAVAILABLE, PG_LOST, detail);
}

enum err pg_tx_take_failure(struct pg_tx *tx)
{
    struct pg_link *l = tx->link;
    tx->deferred = 0;
    if (l->lost) {
        pg_tx_lose(tx);
    } else if (l->failed) {
        char detail[TX_DETAIL_MAX];
        enum err e = pg_failure_kind(&l->failure, l->role);
        pg_failure_describe(&l->failure, detail);
        pg_tx_poison(tx, e, pg_failure_trouble(&l->failure), detail);
    } else if (l->has_rows) {
        pg_tx_misuse(tx, "a statement with rows was run as one without", "");
    }
    l->failed = l->has_rows = false;
    return tx->poison;
}
