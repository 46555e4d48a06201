/* Named numbers in the table `meta`. */
#include "model/meta.h"

#include "base/id.h"

enum err meta_get(struct tx *tx, struct str name, uint64_t *value)
{
    *value = 0;
    struct db_rows rows =
        tx_rows(tx, "SELECT value FROM meta WHERE name = $1", DB_ARGS(DB_TEXT(name)));
    if (db_next(&rows) && !str_parse_u64(db_text(&rows, 0), value))
        *value = 0;
    return db_rows_done(&rows);
}

enum err meta_set(struct tx *tx, struct str name, uint64_t value)
{
    char text[ID_TEXT_MAX];
    struct str digits = {text, id_format(value, text)};
    return tx_exec(tx,
                   "INSERT INTO meta (name, value) VALUES ($1, $2) "
                   "ON CONFLICT (name) DO UPDATE SET value = excluded.value",
                   DB_ARGS(DB_TEXT(name), DB_TEXT(digits)), NULL);
}
