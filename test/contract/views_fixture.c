/* The fixture of the views contract and the words that its cases are written in. */
#include "views_cases.h"

int set_up(void **state)
{
    struct fixture *f = calloc(1, sizeof *f);
    assert_non_null(f);
    f->driver = *state;
    snprintf(f->place.folder, sizeof f->place.folder, "/tmp/fantail-views-XXXXXX");
    assert_non_null(mkdtemp(f->place.folder));
    snprintf(f->place.path, sizeof f->place.path, "%s/views", f->place.folder);
    manual_clock_init(&f->place.clock, NOW_MS);
    if (f->driver->clear)
        f->driver->clear();
    f->v = f->driver->open(&f->place);
    *state = f;
    return 0;
}

int tear_down(void **state)
{
    struct fixture *f = *state;
    static const char *const endings[] = {"", ".part", ".damaged"};
    if (f->v)
        views_free(f->v);
    for (size_t i = 0; i < COUNT_OF(endings); i++) {
        char path[128];
        snprintf(path, sizeof path, "%s%s", f->place.path, endings[i]);
        unlink(path);
    }
    assert_int_equal(rmdir(f->place.folder), 0);
    free(f);
    return 0;
}

void reopen(struct fixture *f)
{
    views_free(f->v);
    f->v = f->driver->open(&f->place);
}

/* ---- words ---- */

void apply(struct views *v, enum view_change_kind kind, bool on, uint64_t account, uint64_t other,
           int64_t value)
{
    struct view_change c = {kind, on, account, other, value};
    assert_int_equal(views_apply(v, &c, 1), OK);
}

void account(struct views *v, uint64_t id)
{
    apply(v, VIEW_ACCOUNT, true, id, 0, NOW_MS);
}

/* People sign up before they follow. A driver may take an account that it knows only from an edge
 * for lost, and drop it. */
void follow(struct views *v, uint64_t viewer, uint64_t author)
{
    struct view_change known[] = {{.kind = VIEW_ACCOUNT, .on = true, .account = viewer},
                                  {.kind = VIEW_ACCOUNT, .on = true, .account = author}};
    assert_int_equal(views_apply(v, known, COUNT_OF(known)), OK);
    apply(v, VIEW_FOLLOW, true, viewer, author, 0);
}

void unfollow(struct views *v, uint64_t viewer, uint64_t author)
{
    apply(v, VIEW_FOLLOW, false, viewer, author, 0);
}

void post_pulled(struct views *v, uint64_t author, uint64_t post)
{
    apply(v, VIEW_POST, true, author, post, DELIVERY_PULL);
}

bool sees(struct views *v, uint64_t viewer, uint64_t author)
{
    bool out = false;
    assert_int_equal(graph_visible(v->graph, viewer, &author, 1, &out), OK);
    return out;
}

struct members walk(struct views *v, uint64_t author, struct audience_cursor cursor, size_t page)
{
    struct members m = {.n = 0};
    while (!cursor.end) {
        size_t n = 0;
        assert_true(m.n + page <= COUNT_OF(m.handles));
        assert_int_equal(graph_audience(v->graph, author, &cursor, m.handles + m.n, page, &n), OK);
        assert_true(n <= page);
        m.n += n;
        m.pages++;
    }
    return m;
}

struct members followers(struct views *v, uint64_t author)
{
    return walk(v, author, (struct audience_cursor){.part = AUDIENCE_ALL}, 64);
}

size_t push(struct views *v, uint64_t post, const struct members *m)
{
    size_t added = 0;
    assert_int_equal(timelines_push_one(v->timelines, post, m->handles, m->n, &added), OK);
    return added;
}

size_t fan_out(struct views *v, uint64_t author, uint64_t post)
{
    struct members m = followers(v, author);
    return push(v, post, &m);
}

struct page home_below(struct views *v, uint64_t viewer, uint64_t below, size_t max)
{
    struct page p;
    assert_int_equal(timelines_home(v->timelines, viewer, below, p.ids, max, &p.n, &p.floor), OK);
    assert_true(p.n <= max);
    for (size_t i = 0; i < p.n; i++) {
        assert_true(p.ids[i] < (i > 0 ? p.ids[i - 1] : below));
        assert_true(p.ids[i] > p.floor);
    }
    return p;
}

struct page home(struct views *v, uint64_t viewer)
{
    return home_below(v, viewer, UINT64_MAX, 1000);
}

void assert_home(struct views *v, uint64_t viewer, const uint64_t *ids, size_t n, uint64_t floor)
{
    struct page p = home(v, viewer);
    assert_int_equal(p.n, n);
    for (size_t i = 0; i < n; i++)
        assert_int_equal(p.ids[i], ids[i]);
    assert_int_equal(p.floor, floor);
}

/* An account whose timeline has been dropped. */
void dropped_account(struct views *v, uint64_t id)
{
    apply(v, VIEW_ACCOUNT, false, id, 0, NOW_MS);
}
