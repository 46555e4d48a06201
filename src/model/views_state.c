/* Numbers and a name in `meta`, whose values are text.
 *
 * The counter of losses is raised by one statement, so that two nodes that lose something at the
 * same time count two; a loader notes the number that it saw before it began to clear, so a loss in
 * the middle of a load does not count as repaired by it. */
#include "model/views_state.h"

#include <stdio.h>
#include <string.h>
#include <sys/random.h>

#include "base/check.h"
#include "model/meta.h"

enum err views_state_read(struct tx *tx, uint64_t *lost, uint64_t *loaded)
{
    TRY(meta_get(tx, STR("views_lost"), lost));
    return meta_get(tx, STR("views_loaded"), loaded);
}

static enum err raise_lost(struct tx *tx, void *arg)
{
    return tx_get_i64(tx,
                      "INSERT INTO meta (name, value) VALUES ('views_lost', '1') "
                      "ON CONFLICT (name) DO UPDATE SET "
                      "value = CAST(CAST(meta.value AS BIGINT) + 1 AS TEXT) "
                      "RETURNING CAST(value AS BIGINT)",
                      DB_NO_ARGS, arg);
}

enum err views_state_lost(struct db *db, uint64_t *lost)
{
    int64_t number = 0;
    TRY(db_write(db, raise_lost, &number, NULL));
    *lost = (uint64_t)number;
    return OK;
}

enum err views_state_loaded(struct tx *tx, uint64_t lost_seen)
{
    char text[24];
    int n = snprintf(text, sizeof text, "%llu", (unsigned long long)lost_seen);
    return tx_exec(tx,
                   "INSERT INTO meta (name, value) VALUES ('views_loaded', $1) "
                   "ON CONFLICT (name) DO UPDATE SET value = excluded.value "
                   "WHERE CAST(meta.value AS BIGINT) < CAST(excluded.value AS BIGINT)",
                   DB_ARGS(DB_TEXT(((struct str){text, (size_t)n}))), NULL);
}

/* ---- the store's name ---- */

static enum err read_store_id(struct tx *tx, void *arg)
{
    char *out = arg;
    out[0] = 0;
    struct db_rows rows = tx_rows(tx, "SELECT value FROM meta WHERE name = 'store_id'", DB_NO_ARGS);
    if (db_next(&rows)) {
        struct str s = db_text(&rows, 0);
        if (s.len > 0 && s.len < STORE_ID_MAX) {
            memcpy(out, s.ptr, s.len);
            out[s.len] = 0;
        }
    }
    return db_rows_done(&rows);
}

/* Another node's, made at the same moment, is as good. */
static enum err make_store_id(struct tx *tx, void *arg)
{
    uint8_t random[(STORE_ID_MAX - 1) / 2];
    char text[STORE_ID_MAX - 1];
    CHECK(getrandom(random, sizeof random, 0) == sizeof random);
    str_hex(random, sizeof random, text);
    TRY(tx_exec(tx,
                "INSERT INTO meta (name, value) VALUES ('store_id', $1) "
                "ON CONFLICT (name) DO NOTHING",
                DB_ARGS(DB_TEXT(((struct str){text, sizeof text}))), NULL));
    return read_store_id(tx, arg);
}

enum err store_id_read(struct db *db, char out[STORE_ID_MAX])
{
    char found[STORE_ID_MAX] = "";
    enum err e = db_read(db, read_store_id, found, NULL);
    if (!e && !found[0])
        e = db_write(db, make_store_id, found, NULL);
    if (!e && !found[0])
        e = ERR_INTERNAL;
    if (!e)
        memcpy(out, found, sizeof found);
    return e;
}
