/* Statements: each SQL text is prepared once per connection and found again by its address, as in
 * the SQLite driver; arguments travel in binary with types given by their kinds.
 *
 * The types of a statement's parameters are those of the first call. A parameter that was NULL so
 * far has no type of ours (the server infers one); when it gets a value, the statement is prepared
 * once more under a new name. A parameter never changes from one kind to another.
 *
 * A write costs round trips, so a write whose outcome no caller asks for (tx_exec without
 * `changed`) is only sent: its answer is looked at with the next statement that waits, or with
 * COMMIT. It may turn out then that it failed. That is no loss: the transaction is run again. Two
 * things depend on it:
 *  - A unique key that is taken ends the whole transaction in PostgreSQL, but only the statement by
 *    the port's contract. So the transaction is run again carefully: every write waits and has a
 *    savepoint to go back to. Writes that expect conflicts say ON CONFLICT and never get here.
 *  - The transaction's own id must be known before COMMIT is sent, or a lost answer could not be
 *    looked up. The question for it travels with the first statement that waits after a write.
 *
 * Jobs that name their first statements (port/db.h) need not wait for them one by one: a group's
 * are sent together, and each job finds its own answer there. So a group of posts is two trips: all
 * its counters, then all its rows with COMMIT. */
#include <endian.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/check.h"
#include "db/postgres_driver.h"
#include "db/sql_text.h"

enum {
    SCRATCH_KEEP_BYTES = 65536,
    MESSAGES_OF_ONE = 12 /* the most that one statement sends: BEGIN, PREPARE, savepoints, … */
};

/* ---- rewriting ---- */

/* Before version 16 PostgreSQL wants a name for every subquery. */
static bool has_alias(const char *p)
{
    while (*p == ' ')
        p++;
    return (p[0] == 'A' || p[0] == 'a') && (p[1] == 'S' || p[1] == 's') && !sql_is_word(p[2]);
}

static void write_ids(struct buf *out, struct str parameter, const char *rest)
{
    buf_printf(out, "(SELECT unnest(%.*s::bigint[]) AS id)%s", STR_ARG(parameter),
               has_alias(rest) ? "" : " AS ids");
}

void pg_statement_rewrite(const char *sql, struct buf *out)
{
    (void)sql_rewrite_ids(sql, out, write_ids);
}

/* A LIMIT inside parentheses says nothing about the rows that come out. */
int pg_statement_find_limit(const char *sql)
{
    int depth = 0, found = -1;
    for (const char *p = sql; *p; p++) {
        depth += (*p == '(') - (*p == ')');
        if (depth || strncmp(p, "LIMIT ", 6) != 0 || (p > sql && sql_is_word(p[-1])))
            continue;
        bool parameter = p[6] == '$';
        long n = strtol(p + 6 + parameter, NULL, 10);
        if (parameter)
            found = n >= 1 && n <= PG_PARAMETERS_MAX ? (int)n : -1;
        else
            found = n >= 1 && n <= PG_WHOLE_ROWS_MAX ? 0 : -1;
    }
    return found;
}

static bool is_select(const char *sql)
{
    sql += strspn(sql, " \t\r\n(");
    return strncasecmp(sql, "SELECT", 6) == 0 && !sql_is_word(sql[6]);
}

/* ---- preparing ---- */

static void statement_free(struct pg_statement *s)
{
    free(s->original);
    free(s->text);
    free(s);
}

void pg_statements_free(struct pg_link *l)
{
    for (struct pg_statement_slot *s = map_next(&l->statements, NULL); s;
         s = map_next(&l->statements, s))
        statement_free(s->statement);
    map_done(&l->statements);
}

static struct pg_statement *statement_new(const char *sql, bool each)
{
    struct pg_statement *s = calloc(1, sizeof *s);
    CHECK(s);
    s->sql = sql;
    s->each = each;
    s->original = strdup(sql);
    CHECK(s->original);
    s->parameter_count = sql_parameter_count(sql);
    s->limit_parameter = (int8_t)pg_statement_find_limit(sql);
    s->is_write = !is_select(sql);
    return s;
}

static struct pg_statement *find(struct pg_link *l, const char *sql, bool each)
{
    uint64_t key = (uint64_t)(uintptr_t)sql << 1 | each;
    struct pg_statement_slot *slot = map_put(&l->statements, &key, NULL);
    CHECK(slot);
    if (slot->statement) {
        CHECK(strcmp(slot->statement->original, sql) == 0);
        return slot->statement;
    }
    CHECK(l->statements.count <= PG_STATEMENTS_MAX); /* texts are literals, and not so many */
    return slot->statement = statement_new(sql, each);
}

/* The text as PostgreSQL gets it: once, and for many rows of arguments whenever a type is new. */
static bool write_text(struct pg_statement *s, size_t n)
{
    struct buf text;
    if (s->text && !s->each)
        return true;
    buf_init(&text, 0);
    bool good = true;
    if (s->each)
        good = pg_each_rewrite(s->sql, s->types, n, &text);
    else
        pg_statement_rewrite(s->sql, &text);
    CHECK(!text.failed);
    free(s->text);
    s->text = text.ptr;
    return good;
}

/* The arguments of a statement: one row of them, or (of one for each) `count`. */
struct given {
    const struct db_value *args;
    size_t n, count;
};

/* The type of a parameter's values; 0: all are NULL. */
static Oid given_type(const struct given *given, size_t i)
{
    Oid type = 0;
    for (size_t row = 0; row < given->count && type == 0; row++)
        type = pg_value_type(&given->args[row * given->n + i]);
    return type;
}

Oid pg_value_type(const struct db_value *v)
{
    switch (v->kind) {
    case DB_KIND_I64:
        return PG_OID_INT8;
    case DB_KIND_TEXT:
        return PG_OID_TEXT;
    case DB_KIND_BLOB:
        return PG_OID_BYTEA;
    case DB_KIND_IDS:
        return PG_OID_INT8_ARRAY;
    case DB_KIND_NULL:
        break;
    }
    return 0;
}

static enum err prepare(struct pg_tx *tx, struct pg_statement *s, const struct given *given)
{
    struct pg_link *l = tx->link;
    bool known = s->prepared;
    size_t n = given->n;
    Oid types[PG_PARAMETERS_MAX];
    for (size_t i = 0; i < n; i++) {
        Oid type = given_type(given, i);
        if (type == 0 || type == s->types[i])
            continue;
        if (s->types[i] != 0)
            return pg_tx_misuse(tx, "an argument of another kind than before", s->sql);
        s->types[i] = type;
        known = false;
    }
    if (known)
        return OK;
    if (!write_text(s, n))
        return pg_tx_misuse(tx, "not a statement for each row of arguments", s->sql);
    for (size_t i = 0; i < n; i++)
        types[i] = s->each ? pg_each_array_type(s->types[i]) : s->types[i];
    snprintf(s->name, sizeof s->name, "s%u", ++l->names_given);
    int sent = PQsendPrepare(l->handle, s->name, s->text, (int)n, types);
    if (!pg_link_note(l, sent, PG_SENT_CONTROL, s)) {
        pg_tx_lose(tx);
        return tx->poison;
    }
    s->prepared = true;
    return OK;
}

/* ---- sending ---- */

struct arguments {
    const char *values[PG_PARAMETERS_MAX];
    int lengths[PG_PARAMETERS_MAX];
    int formats[PG_PARAMETERS_MAX];
    uint64_t numbers[PG_PARAMETERS_MAX]; /* as they travel */
    size_t lists_at[PG_PARAMETERS_MAX];
};

/* An array as it travels: dimensions, has NULLs, element type, then each dimension's length and
 * lower bound, then each element's length and bytes. An empty one has no dimension. */
static void write_array(struct buf *out, const uint64_t *ids, size_t n)
{
    uint32_t head[5] = {htobe32(n > 0), 0, htobe32(PG_OID_INT8), htobe32((uint32_t)n), htobe32(1)};
    buf_append(out, head, n ? sizeof head : 12);
    char *to = buf_reserve(out, n * 12);
    CHECK(to || n == 0);
    const uint32_t length = htobe32(8);
    for (size_t i = 0; i < n; i++) {
        uint64_t id = htobe64(ids[i]);
        memcpy(to, &length, 4);
        memcpy(to + 4, &id, 8);
        to += 12;
    }
    out->len += n * 12;
}

static enum err bind_bytes(struct pg_tx *tx, const struct db_value *v)
{
    if (v->bytes.len > INT32_MAX)
        return tx_fail(&tx->base, ERR_TOO_LARGE, "a value is too large");
    if (v->kind == DB_KIND_TEXT && v->bytes.len && memchr(v->bytes.ptr, 0, v->bytes.len))
        return tx_fail(&tx->base, ERR_INVALID, "text must not contain a NUL character");
    return OK;
}

/* Columns as arrays; one that never had a value is NULL. */
static enum err bind_each(struct pg_tx *tx, const struct pg_statement *s, const struct given *given,
                          struct arguments *a)
{
    struct buf *lists = &tx->link->scratch;
    buf_recycle(lists, SCRATCH_KEEP_BYTES);
    for (size_t i = 0; i < given->n * given->count; i++)
        if (given->args[i].kind == DB_KIND_TEXT || given->args[i].kind == DB_KIND_BLOB)
            TRY(bind_bytes(tx, &given->args[i]));
    for (size_t i = 0; i < given->n; i++) {
        Oid type = given_type(given, i);
        type = type ? type : s->types[i];
        a->formats[i] = 1;
        a->lists_at[i] = lists->len;
        a->values[i] = type ? "" : NULL;
        if (type && !pg_each_write(lists, type, given->args, given->n, given->count, i))
            return pg_tx_misuse(tx, "an argument of two kinds", s->sql);
        if (lists->failed || lists->len - a->lists_at[i] > INT32_MAX)
            return tx_fail(&tx->base, ERR_TOO_LARGE, "the values are too large");
        a->lengths[i] = (int)(lists->len - a->lists_at[i]);
    }
    for (size_t i = 0; i < given->n; i++)
        if (a->values[i])
            a->values[i] = lists->ptr + a->lists_at[i];
    return OK;
}

static enum err bind(struct pg_tx *tx, const struct pg_statement *s, const struct given *given,
                     struct arguments *a)
{
    struct buf *lists = &tx->link->scratch;
    const struct db_value *args = given->args;
    size_t n = given->n;
    if (n != (size_t)s->parameter_count)
        return pg_tx_misuse(tx, "wrong number of arguments", s->sql);
    if (s->each)
        return bind_each(tx, s, given, a);
    buf_recycle(lists, SCRATCH_KEEP_BYTES);
    for (size_t i = 0; i < n; i++) {
        const struct db_value *v = &args[i];
        enum err e = OK;
        a->formats[i] = 1;
        a->lengths[i] = (int)v->bytes.len;
        switch (v->kind) {
        case DB_KIND_NULL:
            a->values[i] = NULL;
            break;
        case DB_KIND_I64:
            a->numbers[i] = htobe64((uint64_t)v->number);
            a->values[i] = (const char *)&a->numbers[i];
            a->lengths[i] = 8;
            break;
        case DB_KIND_TEXT:
        case DB_KIND_BLOB:
            e = bind_bytes(tx, v);
            a->values[i] = v->bytes.ptr ? v->bytes.ptr : ""; /* NULL would be NULL */
            break;
        case DB_KIND_IDS:
            a->lists_at[i] = lists->len;
            write_array(lists, v->ids, v->count);
            a->lengths[i] = (int)(lists->len - a->lists_at[i]);
            break;
        }
        if (e)
            return e;
    }
    for (size_t i = 0; i < n; i++) /* now the lists stay where they are */
        if (args[i].kind == DB_KIND_IDS)
            a->values[i] = lists->ptr + a->lists_at[i];
    return OK;
}

static enum err send_statement(struct pg_tx *tx, struct pg_statement *s, const struct given *given,
                               enum pg_sent_kind kind);

static const struct given nothing = {NULL, 0, 1};

/* BEGIN travels with the first statement: a job that only looks at its own arguments costs nothing.
 * A writer asks for the time in the same breath: from that moment on all nodes can see that the
 * transaction is open, which the horizon depends on. */
static bool begin(struct pg_tx *tx)
{
    static const char time_sql[] = "SELECT clock_timestamp()";
    if (tx->begun)
        return true;
    tx->link->xid = 0;
    tx->link->begun_ms = 0;
    tx->begun = pg_link_control(tx->link, "BEGIN");
    if (!tx->begun || !tx->base.writable)
        return tx->begun;
    return send_statement(tx, find(tx->link, time_sql, false), &nothing, PG_SENT_TIME) == OK;
}

enum err pg_tx_begin_now(struct pg_tx *tx)
{
    if (!begin(tx)) {
        pg_tx_lose(tx);
        return tx->poison;
    }
    pg_link_settle(tx->link);
    return pg_tx_take_failure(tx);
}

static enum err send_statement(struct pg_tx *tx, struct pg_statement *s, const struct given *given,
                               enum pg_sent_kind kind)
{
    struct pg_link *l = tx->link;
    struct arguments a;
    if (!begin(tx)) { /* before binding: what it sends has the same place for its arguments */
        pg_tx_lose(tx);
        return tx->poison;
    }
    TRY(bind(tx, s, given, &a));
    TRY(prepare(tx, s, given));
    int sent =
        PQsendQueryPrepared(l->handle, s->name, (int)given->n, a.values, a.lengths, a.formats, 1);
    if (!pg_link_note(l, sent, kind, NULL)) {
        pg_tx_lose(tx);
        return tx->poison;
    }
    if (s->is_write) {
        tx->wrote = tx->dirty = true;
        tx->unasked = l->xid == 0;
    }
    return OK;
}

/* Ends a round: asks for the transaction's id when there is one by now, and synchronizes. */
static enum err end_round(struct pg_tx *tx)
{
    static const char xid_sql[] = "SELECT pg_current_xact_id_if_assigned()";
    struct pg_link *l = tx->link;
    if (tx->base.writable && tx->unasked) {
        tx->unasked = false;
        enum err e = send_statement(tx, find(l, xid_sql, false), &nothing, PG_SENT_XID);
        if (e)
            return e;
    }
    if (!pg_link_sync(l))
        pg_tx_lose(tx);
    return tx->poison;
}

enum err pg_tx_settle(struct pg_tx *tx)
{
    struct pg_link *l = tx->link;
    if (tx->poison)
        return tx->poison;
    if (l->streaming && !pg_rows_put_aside(l->streaming))
        return tx->poison;
    if (tx->unasked && end_round(tx))
        return tx->poison;
    pg_link_settle(l);
    return pg_tx_take_failure(tx);
}

/* ---- running ---- */

/* The statement, with the connection free for it; NULL when the transaction cannot go on. */
static struct pg_statement *open_statement(struct pg_tx *tx, const char *sql, size_t n, bool each)
{
    struct pg_link *l = tx->link;
    if (tx->poison)
        return NULL;
    if (n > PG_PARAMETERS_MAX) {
        pg_tx_misuse(tx, "too many arguments", sql);
        return NULL;
    }
    if (l->streaming && !pg_rows_put_aside(l->streaming))
        return NULL;
    if (l->sent_count + MESSAGES_OF_ONE > PG_SENT_MAX && pg_tx_settle(tx))
        return NULL;
    return find(l, sql, each);
}

/* Sends a statement and ends the round. A write that is `careful` has a savepoint. */
static enum err send_round(struct pg_tx *tx, struct pg_statement *s, const struct given *given,
                           enum pg_sent_kind kind, bool careful)
{
    struct pg_link *l = tx->link;
    if (careful && (!begin(tx) || !pg_link_control(l, "SAVEPOINT one")))
        pg_tx_lose(tx);
    TRY(tx->poison ? tx->poison : send_statement(tx, s, given, kind));
    /* by us: the savepoint alone is on its way, which is harmless */
    if (careful && !pg_link_control(l, "RELEASE one"))
        pg_tx_lose(tx);
    return tx->poison ? tx->poison : end_round(tx);
}

/* After a write under a savepoint failed: a taken key undoes it alone, and the transaction goes on.
 */
static enum err go_back(struct pg_tx *tx, enum err e)
{
    struct pg_link *l = tx->link;
    if (tx->trouble != PG_CONFLICT)
        return e;
    tx->poison = OK;
    tx->trouble = PG_FINE;
    tx->base.detail[0] = '\0';
    tx->unasked = l->xid == 0;
    if (!pg_link_control(l, "ROLLBACK TO one") || !pg_link_control(l, "RELEASE one"))
        pg_tx_lose(tx);
    return tx->poison ? tx->poison : ERR_CONFLICT;
}

/* ---- first statements ---- */

enum err pg_tx_run_first(struct pg_tx *tx, const struct db_statement *const *firsts, size_t n,
                         PGresult **results)
{
    struct pg_link *l = tx->link;
    CHECK(n <= PG_FIRST_MAX && l->first_count == 0);
    for (size_t i = 0; i < n; i++) {
        const struct db_statement *o = firsts[i];
        struct pg_statement *s = open_statement(tx, o->sql, o->count, false);
        if (!s || send_statement(tx, s, &(struct given){o->args, o->count, 1}, PG_SENT_FIRST))
            break;
    }
    if (!tx->poison && !end_round(tx))
        pg_link_settle(l);
    enum err e = pg_tx_take_failure(tx);
    if (!e && l->first_count != n)
        e = pg_tx_misuse(tx, "a first statement must return rows", firsts[0]->sql);
    for (size_t i = 0; i < l->first_count; i++) {
        if (e)
            PQclear(l->first[i]);
        else
            results[i] = l->first[i];
    }
    l->first_count = 0;
    return e;
}

void pg_tx_give_first(struct pg_tx *tx, const struct db_statement *first, PGresult *result)
{
    tx->first = first;
    tx->first_result = result;
    tx->wrote = PQntuples(result) > 0;
}

bool pg_tx_end_first(struct pg_tx *tx)
{
    bool left = tx->first_result && PQntuples(tx->first_result) > 0;
    PQclear(tx->first_result);
    tx->first_result = NULL;
    return left;
}

static bool is_same_value(const struct db_value *a, const struct db_value *b)
{
    if (a->kind != b->kind)
        return false;
    return a->kind == DB_KIND_NULL ||
           (a->kind == DB_KIND_I64 ? a->number == b->number : str_eq(a->bytes, b->bytes));
}

static bool is_first(const struct pg_tx *tx, const char *sql, const struct db_value *args, size_t n)
{
    const struct db_statement *o = tx->first;
    bool same = sql == o->sql && n == o->count;
    for (size_t i = 0; same && i < n; i++)
        same = is_same_value(&args[i], &o->args[i]);
    return same;
}

static enum err take_first(struct pg_tx *tx, struct db_rows *rows)
{
    struct pg_rows *r = pg_rows_open(tx);
    rows->statement = r;
    pg_rows_put(r, tx->first_result);
    tx->first_result = NULL;
    return OK;
}

static enum err exec(struct pg_tx *tx, const char *sql, const struct given *given, bool each,
                     int64_t *changed)
{
    struct tx *base = &tx->base;
    if (tx->first_result)
        pg_tx_misuse(tx, "not the first statement that was named", sql);
    struct pg_statement *s = open_statement(tx, sql, given->n, each);
    if (!s)
        return tx->poison;
    enum err e;
    bool wrote_before = tx->wrote, begun_before = tx->begun;
    bool careful = tx->careful && s->is_write;
    if (base->writable && s->is_write && !careful && !changed &&
        tx->deferred + 1 < PG_DEFERRED_MAX) {
        e = send_statement(tx, s, given, PG_SENT_WRITE);
        if (e)
            return e;
        tx->deferred++;
        /* The answer can wait; that the transaction begins cannot. */
        if (!begun_before && PQflush(tx->link->handle) < 0)
            pg_tx_lose(tx);
        return tx->poison;
    }
    TRY(send_round(tx, s, given, PG_SENT_WRITE, careful));
    pg_link_settle(tx->link);
    e = pg_tx_take_failure(tx);
    if (careful)
        e = go_back(tx, e);
    if (!e && changed)
        *changed = tx->link->changed;
    if (!e && tx->link->changed == 0)
        tx->wrote = wrote_before;
    return e;
}

enum err pg_statement_exec(struct tx *base, const char *sql, const struct db_value *args, size_t n,
                           int64_t *changed)
{
    return exec((struct pg_tx *)base, sql, &(struct given){args, n, 1}, false, changed);
}

enum err pg_statement_exec_each(struct tx *base, const char *sql, const struct db_value *args,
                                size_t n, size_t count)
{
    return exec((struct pg_tx *)base, sql, &(struct given){args, n, count}, true, NULL);
}

/* Small results are fetched as a whole; a result of unknown size is streamed, so that a hundred
 * thousand rows take the memory of one. What a write returns is as large as what it changed. */
static bool is_small(const struct pg_statement *s, const struct db_value *args)
{
    if (s->is_write || s->each || s->limit_parameter == 0)
        return true;
    if (s->limit_parameter < 0 || s->limit_parameter > s->parameter_count)
        return false;
    const struct db_value *limit = &args[s->limit_parameter - 1];
    return limit->kind == DB_KIND_I64 && limit->number <= PG_WHOLE_ROWS_MAX;
}

static enum err query(struct pg_tx *tx, const char *sql, const struct given *given, bool each,
                      struct db_rows *rows)
{
    *rows = (struct db_rows){.tx = &tx->base};
    if (tx->first_result && !tx->poison && !each && is_first(tx, sql, given->args, given->n))
        return take_first(tx, rows);
    if (tx->first_result)
        pg_tx_misuse(tx, "not the first statement that was named", sql);
    struct pg_statement *s = open_statement(tx, sql, given->n, each);
    rows->error = tx->poison;
    if (!s)
        return rows->error;
    bool careful = tx->careful && s->is_write, wrote_before = tx->wrote;
    rows->error = send_round(tx, s, given, PG_SENT_QUERY, careful);
    if (rows->error)
        return rows->error;
    struct pg_rows *r = pg_rows_open(tx);
    rows->statement = r;
    rows->error = pg_rows_start(r, !is_small(s, given->args));
    if (rows->error && careful)
        rows->error = go_back(tx, rows->error);
    if (!rows->error && r->kept_count == 0)
        tx->wrote = wrote_before; /* a write returns a row for each that it changed */
    if (rows->error) {
        pg_rows_close(r);
        rows->statement = NULL;
    }
    return rows->error;
}

enum err pg_statement_query(struct tx *base, const char *sql, const struct db_value *args, size_t n,
                            struct db_rows *rows)
{
    return query((struct pg_tx *)base, sql, &(struct given){args, n, 1}, false, rows);
}

enum err pg_statement_get_row_each(struct tx *base, const char *sql, const struct db_value *args,
                                   size_t n, size_t count, db_row_reader read, void *out,
                                   size_t size, bool *found)
{
    struct db_rows rows;
    memset(found, 0, count * sizeof *found);
    TRY(query((struct pg_tx *)base, sql, &(struct given){args, n, count}, true, &rows));
    while (pg_rows_next(&rows)) {
        const struct pg_rows *r = rows.statement;
        size_t place = (size_t)pg_rows_i64(&rows, PQnfields(r->current) - 1) - 1;
        CHECK(place < count);
        read(&rows, (char *)out + place * size);
        found[place] = true;
    }
    return pg_rows_done(&rows);
}
