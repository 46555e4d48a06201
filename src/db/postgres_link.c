/* One connection: opening it, what is on the way over it, and errors as ours.
 *
 * A connection is used by one thread at a time and is always in pipeline mode: statements are sent
 * without waiting for the answers to those before, up to a synchronization point whose answer ends
 * a round. `sent` is the list of what is on the way; answers come in the same order. After a
 * failure the server skips everything up to the synchronization point, and libpq reports those
 * statements as aborted: only the first failure of a round says anything.
 *
 * No call here blocks without limit. Sockets are non-blocking and every wait is a poll(): for a
 * connection as a whole connect_timeout_ms, for an answer the statement timeout and a second more.
 * The server ends statements itself at the statement timeout, so a server that is silent longer is
 * gone, stopped or cut off, and the driver drops the connection. (Looking up a host's name is the
 * system's resolver's matter, which has its own timeouts.) */
#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "db/postgres_driver.h"

/* ---- errors ---- */

static bool begins(const char *state, const char *with)
{
    return strncmp(state, with, strlen(with)) == 0;
}

/* What the states mean, by how they begin; the first row that fits counts. */
static const struct meaning {
    const char *state;
    enum err kind;
    enum pg_trouble trouble;
} meanings[] = {
    {"08P01", ERR_INTERNAL, PG_REFUSED}, /* our mistake, such as a wrong number of parameters */
    {"08", ERR_UNAVAILABLE, PG_LOST},
    {"57P0", ERR_UNAVAILABLE, PG_LOST},
    {"25P03", ERR_UNAVAILABLE, PG_LOST},
    {"26000", ERR_UNAVAILABLE, PG_LOST}, /* a prepared statement is gone, or has another form: */
    {"0A000", ERR_UNAVAILABLE, PG_LOST}, /* a new connection prepares it again */
    {"40001", ERR_UNAVAILABLE, PG_CONTENTION},
    {"40P01", ERR_UNAVAILABLE, PG_CONTENTION},
    {"55P03", ERR_UNAVAILABLE, PG_CONTENTION},
    {"23505", ERR_CONFLICT, PG_CONFLICT},
    {"25006", ERR_UNAVAILABLE, PG_REFUSED}, /* read-only */
    {"53100", ERR_STORAGE_FULL, PG_REFUSED},
    {"53200", ERR_NO_MEMORY, PG_REFUSED},
    {"57014", ERR_TIMEOUT, PG_REFUSED},
    {"54", ERR_TOO_LARGE, PG_REFUSED},
    {"22021", ERR_INVALID, PG_REFUSED}, /* text that is not UTF-8 */
    {"53", ERR_UNAVAILABLE, PG_REFUSED},
    {"40", ERR_UNAVAILABLE, PG_REFUSED},
    {"55", ERR_UNAVAILABLE, PG_REFUSED},
    {"28", ERR_UNAVAILABLE, PG_REFUSED},
    {"3D", ERR_UNAVAILABLE, PG_REFUSED},
    {"57", ERR_UNAVAILABLE, PG_REFUSED},
    {"XX001", ERR_STORAGE_FAILED, PG_REFUSED},
    {"XX002", ERR_STORAGE_FAILED, PG_REFUSED},
    {"", ERR_INTERNAL, PG_REFUSED},
};

static struct meaning meaning_of(const struct pg_failure *f)
{
    const struct meaning *m = meanings;
    if (!f->state[0]) /* libpq's own words: the connection failed */
        return (struct meaning){"", ERR_UNAVAILABLE, PG_LOST};
    while (!begins(f->state, m->state))
        m++;
    return *m;
}

enum pg_trouble pg_failure_trouble(const struct pg_failure *f)
{
    return meaning_of(f).trouble;
}

/* A reader's connections are read-only by our own wish, a writer's only by the server's. */
enum err pg_failure_kind(const struct pg_failure *f, enum pg_role role)
{
    return role == PG_READER && begins(f->state, "25006") ? ERR_INTERNAL : meaning_of(f).kind;
}

void pg_failure_describe(const struct pg_failure *f, char detail[TX_DETAIL_MAX])
{
    if (f->state[0])
        snprintf(detail, TX_DETAIL_MAX, "%.160s (PostgreSQL %s)", f->message, f->state);
    else
        snprintf(detail, TX_DETAIL_MAX, "PostgreSQL: %.160s", f->message);
}

/* libpq's messages end in newlines and may have several lines: ours are one. */
static void copy_message(struct pg_failure *f, const char *text)
{
    size_t n = 0;
    for (; text && text[n] && n < sizeof f->message - 1; n++)
        f->message[n] = text[n] == '\n' ? ' ' : text[n];
    while (n > 0 && f->message[n - 1] == ' ')
        n--;
    f->message[n] = '\0';
}

static void fail_as(struct pg_link *l, const char *state, const char *why)
{
    l->failed = true;
    snprintf(l->failure.state, sizeof l->failure.state, "%s", state);
    copy_message(&l->failure, why);
}

static void lose(struct pg_link *l, const char *why)
{
    if (l->lost)
        return;
    l->lost = true;
    if (!l->failed)
        fail_as(l, "", why);
}

void pg_link_take_failure(struct pg_link *l, const PGresult *result)
{
    if (l->failed)
        return;
    l->failed = true;
    const char *state = PQresultErrorField(result, PG_DIAG_SQLSTATE);
    const char *message = PQresultErrorField(result, PG_DIAG_MESSAGE_PRIMARY);
    snprintf(l->failure.state, sizeof l->failure.state, "%s", state ? state : "");
    copy_message(&l->failure, message ? message : PQresultErrorMessage(result));
    l->lost |= pg_failure_trouble(&l->failure) == PG_LOST;
    if (pg_failure_kind(&l->failure, l->role) == ERR_STORAGE_FAILED)
        pg_db_damaged(l->db, l->failure.message);
}

/* ---- waiting ---- */

/* False: nothing happened for `ms`. */
static bool wait_for(PGconn *handle, short events, int64_t ms)
{
    int64_t end = pg_now_ms() + ms;
    for (;;) {
        struct pollfd p = {.fd = PQsocket(handle), .events = events};
        int64_t left = end - pg_now_ms();
        int n = poll(&p, 1, left > 0 ? (int)left : 0);
        if (n > 0)
            return true;
        if (n == 0 || errno != EINTR)
            return false;
    }
}

/* Reads (and writes what is left to write) until the next result is there. */
static bool await_result(struct pg_link *l)
{
    int64_t patience_ms = l->patience_ms + PG_SILENCE_MS;
    while (!l->lost) {
        int unsent = PQflush(l->handle);
        if (unsent < 0) {
            lose(l, PQerrorMessage(l->handle));
        } else if (!PQisBusy(l->handle)) {
            return true;
        } else if (!wait_for(l->handle, (short)(POLLIN | (unsent ? POLLOUT : 0)), patience_ms)) {
            lose(l, "no answer from the server");
        } else if (!PQconsumeInput(l->handle)) {
            lose(l, PQerrorMessage(l->handle));
        }
    }
    return false;
}

PGresult *pg_link_result(struct pg_link *l)
{
    if (!await_result(l))
        return NULL;
    PGresult *r = PQgetResult(l->handle);
    if (PQstatus(l->handle) == CONNECTION_BAD) {
        if (r && PQresultStatus(r) == PGRES_FATAL_ERROR)
            pg_link_take_failure(l, r);
        lose(l, PQerrorMessage(l->handle));
        PQclear(r);
        return NULL;
    }
    return r;
}

/* ---- what is on the way ---- */

static struct pg_sent *oldest(struct pg_link *l)
{
    return &l->sent[l->sent_first];
}

void pg_link_drop_oldest(struct pg_link *l)
{
    l->sent_first = (l->sent_first + 1) % PG_SENT_MAX;
    l->sent_count--;
}

bool pg_link_note(struct pg_link *l, int sent, enum pg_sent_kind kind, struct pg_statement *s)
{
    CHECK(l->sent_count < PG_SENT_MAX);
    if (!sent) {
        lose(l, PQerrorMessage(l->handle));
        return false;
    }
    l->sent[(l->sent_first + l->sent_count++) % PG_SENT_MAX] = (struct pg_sent){kind, s};
    l->unsynchronized = kind != PG_SENT_SYNC;
    return true;
}

bool pg_link_send(struct pg_link *l, const char *sql, enum pg_sent_kind kind)
{
    if (l->lost)
        return false;
    int sent = PQsendQueryParams(l->handle, sql, 0, NULL, NULL, NULL, NULL, 1);
    return pg_link_note(l, sent, kind, NULL);
}

bool pg_link_control(struct pg_link *l, const char *sql)
{
    return pg_link_send(l, sql, PG_SENT_CONTROL);
}

bool pg_link_sync(struct pg_link *l)
{
    if (l->lost || !pg_link_note(l, PQpipelineSync(l->handle), PG_SENT_SYNC, NULL))
        return false;
    if (PQflush(l->handle) < 0)
        lose(l, PQerrorMessage(l->handle));
    return !l->lost;
}

/* The one value of a result, eight bytes of it; false: there is none. */
static bool take_eight(const PGresult *r, uint64_t *value)
{
    if (PQntuples(r) != 1 || PQgetisnull(r, 0, 0) || PQgetlength(r, 0, 0) != 8)
        return false;
    const unsigned char *bytes = (const unsigned char *)PQgetvalue(r, 0, 0);
    *value = 0;
    for (int i = 0; i < 8; i++)
        *value = *value << 8 | bytes[i];
    return true;
}

/* A moment travels as microseconds since the year 2000. */
static void take_time(struct pg_link *l, const PGresult *r)
{
    uint64_t us;
    if (take_eight(r, &us))
        l->begun_ms = (int64_t)us / 1000 + INT64_C(946684800000);
}

static void take_answer(struct pg_link *l, const struct pg_sent *s, PGresult *r)
{
    switch (PQresultStatus(r)) {
    case PGRES_COMMAND_OK:
        if (s->kind == PG_SENT_WRITE)
            l->changed = strtoll(PQcmdTuples(r), NULL, 10);
        if (s->kind == PG_SENT_COMMIT && strcmp(PQcmdStatus(r), "COMMIT") != 0)
            fail_as(l, "25P02", "the transaction could only be undone");
        return;
    case PGRES_TUPLES_OK:
        if (s->kind == PG_SENT_XID)
            take_eight(r, &l->xid);
        else if (s->kind == PG_SENT_TIME)
            take_time(l, r);
        else if (s->kind == PG_SENT_WRITE)
            l->has_rows = true;
        return;
    case PGRES_PIPELINE_SYNC:
        return;
    case PGRES_PIPELINE_ABORTED:
        break;
    default:
        pg_link_take_failure(l, r);
        break;
    }
    if (s->prepares)
        s->prepares->prepared = false;
}

/* A query's rows are its reader's: settling stops at them, and goes on when they are read. */
bool pg_link_settle(struct pg_link *l)
{
    if (l->unsynchronized && !pg_link_sync(l))
        return false;
    while (l->sent_count && !l->lost) {
        struct pg_sent s = *oldest(l);
        if (s.kind == PG_SENT_QUERY && l->streaming)
            return true;
        PGresult *r = pg_link_result(l);
        if (!r && l->lost)
            break;
        if (r)
            take_answer(l, &s, r);
        bool whole = !r || s.kind == PG_SENT_SYNC;
        if (r && s.kind == PG_SENT_FIRST && PQresultStatus(r) == PGRES_TUPLES_OK) {
            CHECK(l->first_count < PG_FIRST_MAX);
            l->first[l->first_count++] = r;
        } else {
            PQclear(r);
        }
        if (whole)
            pg_link_drop_oldest(l);
    }
    return !l->lost;
}

/* ---- one statement by itself ---- */

bool pg_link_ask(struct pg_link *l, const char *sql, const char *const *values, int n, char *out,
                 size_t out_size)
{
    if (out)
        out[0] = '\0';
    pg_link_settle(l); /* what an earlier round left to read */
    l->failed = false;
    if (l->lost)
        return false;
    int sent = PQsendQueryParams(l->handle, sql, n, NULL, values, NULL, NULL, 0);
    bool ok = pg_link_note(l, sent, PG_SENT_QUERY, NULL) && pg_link_sync(l);
    PGresult *r;
    while (ok && (r = pg_link_result(l))) {
        ExecStatusType status = PQresultStatus(r);
        if (status == PGRES_TUPLES_OK && out && PQntuples(r) > 0 && PQnfields(r) > 0)
            snprintf(out, out_size, "%s", PQgetvalue(r, 0, 0));
        if (status != PGRES_TUPLES_OK && status != PGRES_COMMAND_OK)
            pg_link_take_failure(l, r);
        PQclear(r);
    }
    if (!ok || l->lost)
        return false;
    pg_link_drop_oldest(l);
    return pg_link_settle(l) && !l->failed;
}

/* ---- life cycle ---- */

static void be_silent(void *arg, const PGresult *result)
{
    (void)arg, (void)result;
}

/* What stands before the URL is only a default, what stands after it is an order. */
static PGconn *start(struct pg_db *db, enum pg_role role)
{
    char silence_ms[24];
    snprintf(silence_ms, sizeof silence_ms, "%" PRId64,
             db->config.statement_timeout_ms + PG_SILENCE_MS);
    const char *const names[] = {
        "keepalives_idle", "keepalives_interval", "tcp_user_timeout", "target_session_attrs",
        "dbname",          "client_encoding",     "application_name", NULL};
    const char *const values[] = {"15",
                                  "5",
                                  silence_ms,
                                  "read-write",
                                  db->config.url,
                                  "UTF8",
                                  role == PG_WRITER ? PG_WRITER_NAME : PG_READER_NAME,
                                  NULL};
    return PQconnectStartParams(names, values, 1);
}

static bool connect_within(struct pg_link *l)
{
    int64_t end = pg_now_ms() + l->db->config.connect_timeout_ms;
    PostgresPollingStatusType next = PGRES_POLLING_WRITING;
    while (PQstatus(l->handle) != CONNECTION_BAD) {
        short events = next == PGRES_POLLING_READING ? POLLIN : POLLOUT;
        int64_t left = end - pg_now_ms();
        if (left <= 0 || !wait_for(l->handle, events, left)) {
            lose(l, "no answer to the attempt to connect");
            return false;
        }
        next = PQconnectPoll(l->handle);
        if (next == PGRES_POLLING_OK)
            return true;
        if (next == PGRES_POLLING_FAILED)
            break;
    }
    lose(l, PQerrorMessage(l->handle));
    return false;
}

/* No table is scanned where an index will do: all statements have one. A plan that was made while a
 * table was small, or known to be empty, is kept while it grows; and a writer's scan counts as
 * having read all of the table, which fails other serializable transactions. So there is one plan
 * for each of a writer's statements, which is made once: left alone the server makes some of them
 * anew each time, because it takes an array for longer than it is, and that costs more than the
 * statement itself. A node that froze in the middle of a transaction must not hold its rows, and
 * the horizon, for long. */
static bool apply_settings(struct pg_link *l)
{
    long long ms = (long long)l->db->config.statement_timeout_ms;
    char sql[560];
    snprintf(sql, sizeof sql,
             "SET SESSION CHARACTERISTICS AS TRANSACTION ISOLATION LEVEL %s;"
             "SET statement_timeout = %lld; SET jit = off; SET lock_timeout = %d;"
             "SET idle_in_transaction_session_timeout = %d; SET enable_seqscan = off;"
             "SET client_min_messages = error; SET plan_cache_mode = %s",
             l->role == PG_WRITER ? "SERIALIZABLE, READ WRITE" : "REPEATABLE READ, READ ONLY", ms,
             l->role == PG_WRITER ? PG_LOCK_WAIT_MS : 0, l->role == PG_WRITER ? PG_IDLE_MS : 0,
             l->role == PG_WRITER ? "force_generic_plan" : "auto");
    if (!PQsendQuery(l->handle, sql)) {
        lose(l, PQerrorMessage(l->handle));
        return false;
    }
    PGresult *r;
    while ((r = pg_link_result(l))) {
        if (PQresultStatus(r) != PGRES_COMMAND_OK)
            pg_link_take_failure(l, r);
        PQclear(r);
    }
    return !l->lost && !l->failed;
}

static bool open_now(struct pg_link *l)
{
    l->handle = start(l->db, l->role);
    CHECK(l->handle);
    map_init(&l->statements, sizeof(struct pg_statement_slot), sizeof(uint64_t));
    PQsetNoticeReceiver(l->handle, be_silent, NULL);
    return connect_within(l) && PQsetnonblocking(l->handle, 1) == 0 && apply_settings(l) &&
           PQenterPipelineMode(l->handle) == 1;
}

/* The first connection after a crash names the new life. Without tables there is no life either. */
void pg_link_note_life(struct pg_link *l)
{
    char text[24];
    pg_link_ask(l,
                "INSERT INTO server_life (one, id) VALUES (1, 1 + (random() * 1e15)::bigint) "
                "ON CONFLICT DO NOTHING",
                NULL, 0, NULL, 0);
    pg_link_ask(l, "SELECT id FROM server_life WHERE one = 1", NULL, 0, text, sizeof text);
    l->life = strtoll(text, NULL, 10);
    if (!l->lost)
        l->failed = false;
}

enum err pg_link_ensure(struct pg_link *l, char detail[TX_DETAIL_MAX])
{
    if (l->handle && !l->lost)
        return OK;
    pg_link_close(l);
    if (!pg_absence_may_try(l->db)) {
        snprintf(detail, TX_DETAIL_MAX, "the PostgreSQL server is away");
        return ERR_UNAVAILABLE;
    }
    if (open_now(l)) {
        if (l->role == PG_WRITER)
            pg_link_note_life(l);
        if (!l->lost) {
            pg_absence_end(l->db);
            return OK;
        }
    }
    pg_absence_note(l->db);
    if (!l->failed)
        fail_as(l, "", "cannot connect");
    pg_failure_describe(&l->failure, detail);
    enum err e = pg_failure_kind(&l->failure, l->role);
    pg_link_close(l);
    return e == ERR_INTERNAL ? ERR_UNAVAILABLE : e;
}

void pg_link_close(struct pg_link *l)
{
    CHECK(!l->streaming);
    pg_statements_free(l);
    if (l->handle)
        PQfinish(l->handle);
    l->handle = NULL;
    l->lost = l->failed = l->has_rows = l->unsynchronized = false;
    l->sent_first = l->sent_count = 0;
    l->names_given = 0;
    l->xid = 0;
    l->begun_ms = 0;
    l->life = 0;
}

void pg_link_init(struct pg_link *l, struct pg_db *db, enum pg_role role)
{
    *l = (struct pg_link){.db = db, .role = role, .patience_ms = db->config.statement_timeout_ms};
    buf_init(&l->scratch, 0);
}

void pg_link_done(struct pg_link *l)
{
    pg_link_close(l);
    buf_done(&l->scratch);
}
