/* The passwords of an import: hashed line by line before the transaction, because a hash takes
 * longer than everything else about a line. Lines without one stay as they are, byte for byte. */
#include <jansson.h>
#include <stdlib.h>

#include "model/account.h"
#include "model/import.h"

/* True when the line was replaced: *out is the new one, to be freed. */
static bool hash_line(struct str text, struct arena *arena, char **out)
{
    json_t *line = json_loadb(text.ptr, text.len, JSON_REJECT_DUPLICATES, NULL);
    const json_t *value = json_object_get(line, "password");
    struct str password = {json_string_value(value), json_string_length(value)};
    struct str hash;
    bool replaced = false;
    if (json_is_string(value) && password_hash(password, arena, &hash) == OK) {
        json_object_del(line, "password");
        json_object_set_new(line, "password_hash", json_stringn(hash.ptr, hash.len));
        *out = json_dumps(line, JSON_COMPACT);
        replaced = *out != NULL;
    }
    json_decref(line);
    return replaced;
}

enum err import_hash_passwords(struct str ndjson, struct arena *arena, struct str *out)
{
    struct str rest = ndjson, text;
    struct buf lines;
    if (!memmem(ndjson.ptr, ndjson.len, "\"password\"", 10)) {
        *out = ndjson;
        return OK;
    }
    buf_init(&lines, 0);
    while (str_split(&rest, '\n', &text)) {
        char *replaced;
        if (memmem(text.ptr, text.len, "\"password\"", 10) && hash_line(text, arena, &replaced)) {
            buf_append(&lines, replaced, strlen(replaced));
            free(replaced);
        } else {
            buf_str(&lines, text);
        }
        buf_append(&lines, "\n", 1);
    }
    bool failed = lines.failed;
    if (!failed)
        *out = arena_str(arena, buf_view(&lines));
    buf_done(&lines);
    return failed ? ERR_NO_MEMORY : OK;
}
