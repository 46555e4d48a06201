/* A person's own data, as one JSON object: the profile, then one array per kind of thing, read by
 * key in pages so that neither a transaction nor a query grows with what somebody has. */
#include "base/check.h"
#include "base/id.h"
#include "model/account.h"
#include "model/group.h"

enum { PAGE = 500 };

struct export_part {
    const char *name;
    const char *sql; /* $1 account, $2 after, $3 limit; the first column is the key to go on from */
    void (*write)(struct json_out *j, struct db_rows *rows);
};

static void write_edge(struct json_out *j, struct db_rows *rows)
{
    json_object_begin(j);
    json_put(j, "account_id", id, db_id(rows, 0));
    json_put(j, "since", time, db_i64(rows, 1));
    json_object_end(j);
}

static void write_post(struct json_out *j, struct db_rows *rows)
{
    json_object_begin(j);
    json_put(j, "id", id, db_id(rows, 0));
    json_put(j, "caption", str, db_text(rows, 1));
    json_put(j, "like_count", i64, db_i64(rows, 2));
    json_put(j, "comment_count", i64, db_i64(rows, 3));
    json_put(j, "created_at", time, id_time_ms(db_id(rows, 0)));
    json_object_end(j);
}

static void write_comment(struct json_out *j, struct db_rows *rows)
{
    json_object_begin(j);
    json_put(j, "id", id, db_id(rows, 0));
    json_put(j, "post_id", id, db_id(rows, 1));
    json_put(j, "body", str, db_text(rows, 2));
    json_put(j, "created_at", time, id_time_ms(db_id(rows, 0)));
    json_object_end(j);
}

static void write_like(struct json_out *j, struct db_rows *rows)
{
    json_object_begin(j);
    json_put(j, "post_id", id, db_id(rows, 0));
    json_put(j, "since", time, db_i64(rows, 1));
    json_object_end(j);
}

static void write_group(struct json_out *j, struct db_rows *rows)
{
    json_object_begin(j);
    json_put(j, "group_id", id, db_id(rows, 0));
    json_put(j, "name", str, db_text(rows, 1));
    json_put(j, "role", str, str_of(group_role_name((enum group_role)db_i64(rows, 2))));
    json_put(j, "since", time, id_time_ms(db_id(rows, 3)));
    json_object_end(j);
}

static void write_session(struct json_out *j, struct db_rows *rows)
{
    json_object_begin(j);
    json_put(j, "id", id, db_id(rows, 0));
    json_put(j, "label", str, db_text(rows, 1));
    json_put(j, "used_at", time, db_i64(rows, 2));
    json_object_end(j);
}

static const struct export_part parts[] = {
    {"sessions",
     "SELECT id, label, used_at FROM sessions WHERE account_id = $1 AND id > $2 ORDER BY id LIMIT "
     "$3",
     write_session},
    {"following",
     "SELECT followee_id, created_at FROM follows WHERE follower_id = $1 AND followee_id > $2 "
     "ORDER BY followee_id LIMIT $3",
     write_edge},
    {"followers",
     "SELECT follower_id, created_at FROM follows WHERE followee_id = $1 AND follower_id > $2 "
     "ORDER BY follower_id LIMIT $3",
     write_edge},
    {"blocks",
     "SELECT blocked_id, created_at FROM blocks WHERE blocker_id = $1 AND blocked_id > $2 "
     "ORDER BY blocked_id LIMIT $3",
     write_edge},
    {"mutes",
     "SELECT muted_id, created_at FROM mutes WHERE muter_id = $1 AND muted_id > $2 "
     "ORDER BY muted_id LIMIT $3",
     write_edge},
    {"posts",
     "SELECT id, caption, like_count, comment_count FROM posts WHERE author_id = $1 AND id > $2 "
     "AND deleted_at IS NULL ORDER BY id LIMIT $3",
     write_post},
    {"comments",
     "SELECT id, post_id, body FROM comments WHERE author_id = $1 AND id > $2 "
     "AND deleted_at IS NULL ORDER BY id LIMIT $3",
     write_comment},
    {"likes",
     "SELECT post_id, created_at FROM likes WHERE account_id = $1 AND post_id > $2 "
     "ORDER BY post_id LIMIT $3",
     write_like},
    {"groups",
     "SELECT m.group_id, g.name, m.role, m.joined_id FROM group_members m "
     "JOIN groups g ON g.id = m.group_id WHERE m.account_id = $1 AND m.group_id > $2 "
     "AND m.left_seq IS NULL ORDER BY m.group_id LIMIT $3",
     write_group},
};

static enum err export_account(struct tx *tx, uint64_t id, struct json_out *j)
{
    struct arena arena;
    struct account account;
    arena_init(&arena);
    enum err e = account_get(tx, id, &arena, &account);
    if (!e) {
        json_object_begin(j);
        json_key(j, STR("account"));
        account_write(j, &account, NULL, true);
    }
    arena_done(&arena);
    return e;
}

/* position: part 0 is the account itself, part i the array parts[i - 1]; after: 0 at the start of
 * an array. */
enum err account_export(struct tx *tx, uint64_t id, struct export_position *position,
                        struct json_out *j, bool *more)
{
    *more = true;
    if (position->part == 0) {
        enum err e = export_account(tx, id, j);
        position->part = e ? 0 : 1;
        return e;
    }
    const struct export_part *part = &parts[position->part - 1];
    struct db_rows rows;
    enum err e =
        tx_query(tx, part->sql, DB_ARGS(DB_I64(id), DB_I64(position->after), DB_I64(PAGE)), &rows);
    if (e)
        return e;
    if (position->after == 0) {
        json_key(j, str_of(part->name));
        json_array_begin(j);
    }
    size_t n = 0;
    while (db_next(&rows)) {
        part->write(j, &rows);
        position->after = db_id(&rows, 0);
        n++;
    }
    e = db_rows_done(&rows);
    if (e || n == PAGE)
        return e;
    json_array_end(j);
    position->after = 0;
    position->part++;
    if ((size_t)position->part > COUNT_OF(parts)) {
        json_object_end(j);
        *more = false;
    }
    return OK;
}
