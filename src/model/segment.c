/* The audience "segment": accounts that exist, are active and fit a few conditions, for what goes
 * to many people who have nothing in common: an announcement, a bulk send.
 *
 * The event's data name it: {"segment":{…}} with any of
 *
 *     above, through             ids, as texts: a range
 *     created_from, created_before, seen_from   ms
 *
 * and {} is every account. Ids are in the order of creation, so all but the last are one range of
 * the primary key. An account created after the event is not in it: its own id is the upper end,
 * and when an event is delivered every account with a smaller id is there to be seen.
 *
 * A page is a read of its own that looks at a bounded number of rows from where the one before
 * ended: no walk holds a snapshot, and one that is interrupted goes on at its cursor. So a page may
 * have fewer members than it could, or none. Who is suspended or deleted while the walk is on the
 * way may be met or left out. */
#include <jansson.h>

#include "base/id.h"
#include "model/account.h"
#include "model/sinks.h"

struct segment {
    uint64_t above, through;
    int64_t seen_from_ms;
};

static bool read_id(const json_t *in, const char *name, uint64_t *out)
{
    const json_t *value = json_object_get(in, name);
    return !value ||
           (json_is_string(value) && str_parse_u64(str_of(json_string_value(value)), out));
}

static bool read_ms(const json_t *in, const char *name, int64_t *out)
{
    const json_t *value = json_object_get(in, name);
    if (json_is_integer(value))
        *out = json_integer_value(value);
    return !value || (json_is_integer(value) && *out >= 0);
}

static bool known_names(const json_t *in)
{
    static const char *const names[] = {"above", "through", "created_from", "created_before",
                                        "seen_from"};
    size_t known = 0;
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        known += json_object_get(in, names[i]) != NULL;
    return known == json_object_size(in);
}

/* The first id of that moment; ids begin later than 1970. */
static uint64_t first_id_at(int64_t ms)
{
    return ms > id_time_ms(0) ? id_at(ms, 0, 0) : 0;
}

/* False: it says something else. Whom that means is not guessed. */
static bool read_segment(const struct event *e, struct segment *out)
{
    json_t *data = json_loadb(e->data.ptr ? e->data.ptr : "", e->data.len, 0, NULL);
    const json_t *in = json_object_get(data, "segment");
    int64_t from_ms = 0, before_ms = INT64_MAX;
    *out = (struct segment){.through = e->id};
    uint64_t through = UINT64_MAX;
    bool ok = json_is_object(in) && known_names(in) && read_id(in, "above", &out->above) &&
              read_id(in, "through", &through) && read_ms(in, "created_from", &from_ms) &&
              read_ms(in, "created_before", &before_ms) &&
              read_ms(in, "seen_from", &out->seen_from_ms);
    json_decref(data);
    uint64_t from = first_id_at(from_ms);
    if (from > 0 && from - 1 > out->above)
        out->above = from - 1;
    if (before_ms < id_time_ms(e->id)) {
        uint64_t before = first_id_at(before_ms);
        through = before == 0 ? 0 : before - 1 < through ? before - 1 : through;
    }
    out->through = through < out->through ? through : out->through;
    return ok;
}

struct reading {
    const struct segment *segment;
    struct audience_page *page;
};

static enum err read_page(struct tx *tx, void *arg)
{
    const struct reading *r = arg;
    const struct segment *s = r->segment;
    struct audience_page *page = r->page;
    uint64_t after = page->cursor.after > s->above ? page->cursor.after : s->above, last = after;
    size_t looked_at = 0;
    page->n = 0;
    struct db_rows rows = tx_rows(tx,
                                  "SELECT id, state, seen_at FROM accounts "
                                  "WHERE id > $1 AND id <= $2 ORDER BY id LIMIT $3",
                                  DB_ARGS(DB_I64(after), DB_I64(s->through), DB_I64(page->max)));
    while (looked_at < page->max && db_next(&rows)) {
        looked_at++;
        last = db_id(&rows, 0);
        if (db_i64(&rows, 1) == ACCOUNT_ACTIVE && db_i64(&rows, 2) >= s->seen_from_ms)
            page->members[page->n++] = last;
    }
    TRY(db_rows_done(&rows));
    page->cursor.after = last;
    page->cursor.end = looked_at < page->max;
    return OK;
}

static void give_segment(struct sink_env *env, const struct event *const *events,
                         struct audience_page *pages, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        struct segment segment;
        struct audience_page page = pages[i];
        struct reading r = {&segment, &page};
        page.error =
            read_segment(events[i], &segment) ? db_read(env->db, read_page, &r, NULL) : ERR_INVALID;
        if (page.error)
            pages[i].error = page.error;
        else
            pages[i] = page;
    }
}

const struct audience audience_segment = {.name = "segment", .pages = give_segment};
