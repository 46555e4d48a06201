/* Groups against a plain model: a random history of senders, editors, admins and leavers, in which
 * the model predicts every answer, and everything that a person can read is compared, again and
 * again. With "postgres" it runs on the other driver. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/check.h"
#include "group_model.h"
#include "model/chat.h"
#include "model/inbox.h"

enum { STEPS = 1500, ROUND = 75 };

/* ---- comparing ---- */

/* Ids of joins and messages are known from the events alone. */
static void take_events(void)
{
    for (size_t i = 0; i < place.told.count; i++) {
        const struct event *e = &place.told.items[i];
        struct m_group *g = group_of(e->actor);
        if (e->type == EVENT_GROUP_MESSAGE)
            g->last_id = e->id > g->last_id ? e->id : g->last_id;
        if (e->type == EVENT_GROUP_JOINED)
            g->members[person_of(e->object)].joined_id = e->id;
        if (e->type == EVENT_GROUP_MESSAGE || e->type == EVENT_GROUP_ENTRY)
            assert_int_equal(g->log[e->value].author, person_of(e->object));
        if (e->type == EVENT_GROUP_JOINED || e->type == EVENT_GROUP_LEFT)
            assert_int_equal(g->log[e->value].subject, person_of(e->object));
    }
    event_list_clear(&place.told);
}

struct reading {
    struct m_group *g;
    int who;
    int64_t after;
    size_t limit;
    struct arena arena;
    struct log_page page;
    enum err e;
};

static enum err run_log(struct tx *tx, void *arg)
{
    struct reading *r = arg;
    struct log_range range = {.after = r->after, .before = INT64_MAX, .limit = r->limit};
    r->e = group_log_read(tx, r->g->id, place.people[r->who], &range, &r->arena, &r->page);
    return r->e == ERR_NOT_FOUND ? OK : r->e;
}

static void check_entry(struct m_group *g, int who, int seq, const struct group_entry *o)
{
    static const char *const roles[] = {"owner", "admin", "member"};
    const struct m_entry *e = &g->log[seq], *shown = e;
    const struct m_member *m = &g->members[who];
    char id[24], body[24];
    assert_int_equal(o->seq, seq);
    assert_int_equal(o->kind, e->kind);
    assert_true(o->author == place.people[e->author]);
    if (e->kind == ENTRY_EDIT)
        shown = &g->log[e->target];
    bool message = e->kind == ENTRY_MESSAGE || e->kind == ENTRY_EDIT;
    bool hidden = (e->kind == ENTRY_EDIT && !g->history && e->target < m->joined) ||
                  (message && !m->is && shown->edited_seq > m->left);
    assert_int_equal(o->deleted, message && shown->deleted);
    if (e->kind == ENTRY_ROLE) {
        assert_string_equal(o->body.ptr, roles[e->role]);
    } else if ((message && !shown->deleted && !hidden) || e->kind == ENTRY_RENAME) {
        body[body_text(shown->body, body).len] = '\0';
        assert_string_equal(o->body.ptr, body);
    } else if (e->kind != ENTRY_HISTORY) {
        assert_null(o->body.ptr);
    }
    assert_int_equal(o->target_seq, e->target);
    assert_int_equal(o->edited_at_ms != 0, e->kind == ENTRY_MESSAGE && e->edited_seq > 0);
    if (e->subject >= 0)
        assert_int_equal(person_of(o->subject), e->subject);
    if (e->client >= 0) {
        snprintf(id, sizeof id, "c%d", e->client);
        assert_string_equal(o->client_id.ptr, id);
    }
}

/* The whole log as this person may read it, in pages of a random size. */
static void check_log(struct m_group *g, int who)
{
    struct reading r = {.g = g, .who = who, .limit = 1 + rand_below(&rnd, 200)};
    const struct m_member *m = &g->members[who];
    arena_init(&r.arena);
    int seq = g->history ? 1 : m->joined, last = m->is ? g->seq : m->left;
    for (;;) {
        assert_int_equal(db_read(place.db, run_log, &r, NULL), OK);
        assert_int_equal(r.e, m->was ? OK : ERR_NOT_FOUND);
        if (r.e)
            break;
        for (size_t i = 0; i < r.page.count; i++)
            check_entry(g, who, seq++, &r.page.entries[i]);
        if (!r.page.next)
            break;
        assert_int_equal(r.page.next, seq - 1);
        r.after = r.page.next;
    }
    if (m->was)
        assert_int_equal(seq, last + 1);
    arena_done(&r.arena);
}

struct inbox_look {
    int who;
    bool archived;
    uint64_t groups[GROUPS + 2], activities[GROUPS + 2];
    size_t n, count;
    struct inbox_item items[GROUPS + 2];
    struct arena arena;
};

static enum err run_inbox(struct tx *tx, void *arg)
{
    struct inbox_look *l = arg;
    enum err e = inbox_from_truth(tx, place.people[l->who], UINT64_MAX, l->archived, GROUPS + 2,
                                  l->groups, l->activities, &l->n);
    if (!e)
        e = inbox_items(tx, place.people[l->who], l->groups, l->n, &l->arena, l->items, &l->count);
    return e;
}

static void check_item(const struct inbox_item *item, int who, uint64_t activity)
{
    const struct m_group *g = group_of(item->group.id);
    const struct m_member *m = &g->members[who];
    int unread = 0, mentions = 0, count = 0;
    for (int s = m->read + 1; s <= g->seq; s++) {
        unread += g->log[s].kind == ENTRY_MESSAGE && !g->log[s].deleted;
        mentions += (g->log[s].mentions >> who & 1) != 0;
    }
    for (int i = 0; i < PEOPLE; i++)
        count += g->members[i].is;
    assert_int_equal(item->unread, unread);
    assert_int_equal(item->mentions, mentions);
    assert_int_equal(item->activity, activity);
    assert_int_equal(item->group.seq, g->seq);
    assert_int_equal(item->group.member_count, count);
    assert_int_equal(item->group.role, m->role);
    assert_int_equal(item->group.muted, m->muted);
    bool seen = g->last_seq && (g->history || g->last_seq >= m->joined);
    assert_int_equal(item->last.seq, seen ? g->last_seq : 0);
    if (seen)
        assert_int_equal(item->last.body.ptr == NULL, g->log[g->last_seq].deleted);
}

static void check_inbox(int who, bool archived)
{
    struct inbox_look l = {.who = who, .archived = archived};
    size_t wanted = 0;
    uint64_t before = UINT64_MAX;
    arena_init(&l.arena);
    assert_int_equal(db_read(place.db, run_inbox, &l, NULL), OK);
    for (int i = 0; i < GROUPS; i++)
        wanted += model[i].members[who].is && model[i].members[who].archived == archived;
    assert_int_equal(l.n, wanted);
    assert_int_equal(l.count, wanted);
    for (size_t i = 0; i < l.count; i++) {
        const struct m_group *g = group_of(l.items[i].group.id);
        uint64_t joined = g->members[who].joined_id;
        uint64_t activity = joined > g->last_id ? joined : g->last_id;
        assert_int_equal(l.activities[i], activity);
        assert_true(activity < before);
        before = activity;
        assert_int_equal(l.items[i].group.id, l.groups[i]);
        check_item(&l.items[i], who, activity);
    }
    arena_done(&l.arena);
}

/* Who was a member when entry s was written, from the log alone, is what the rows say. */
static void check_members_as_of(struct m_group *g)
{
    for (int who = 0; who < PEOPLE; who++) {
        bool in = false;
        int joined = 0, left = 0;
        for (int s = 1; s <= g->seq; s++) {
            const struct m_entry *e = &g->log[s];
            if (e->subject == who && e->kind == ENTRY_JOIN) {
                assert_false(in);
                in = true;
                joined = s;
            } else if (e->subject == who && e->kind == ENTRY_LEAVE) {
                assert_true(in);
                in = false;
                left = s;
            } else if (e->kind == ENTRY_MESSAGE && e->author == who) {
                assert_true(in);
            }
        }
        assert_int_equal(in, g->members[who].is);
        if (g->members[who].was)
            assert_int_equal(in ? joined : left,
                             in ? g->members[who].joined : g->members[who].left);
    }
}

static void check_store(struct m_group *g)
{
    int64_t erased = 0, mentions = 0;
    for (int s = 1; s <= g->seq; s++) {
        erased += g->log[s].kind == ENTRY_MESSAGE && g->log[s].deleted;
        mentions += __builtin_popcount(g->log[s].mentions);
    }
    int64_t id = (int64_t)g->id;
    assert_int_equal(
        group_place_ask(&place, "SELECT COUNT(*) FROM group_mentions WHERE group_id = $1", id),
        mentions);
    assert_int_equal(group_place_ask(&place,
                                     "SELECT COUNT(*) FROM group_log WHERE group_id = $1 "
                                     "AND kind = 0 AND deleted_at IS NOT NULL AND body IS NULL "
                                     "AND sent_hash IS NULL",
                                     id),
                     erased);
    assert_int_equal(group_place_ask(&place,
                                     "SELECT COUNT(*) FROM group_log WHERE group_id = $1 "
                                     "AND kind IN (1, 2, 3) AND body IS NOT NULL",
                                     id),
                     0);
    assert_int_equal(group_place_ask(&place, "SELECT messages FROM groups WHERE id = $1", id),
                     g->messages);
    assert_int_equal(group_place_ask(&place, "SELECT last_seq FROM groups WHERE id = $1", id),
                     g->last_seq);
}

static void check_all(void)
{
    take_events();
    for (int i = 0; i < GROUPS; i++) {
        check_members_as_of(&model[i]);
        check_store(&model[i]);
        for (int who = 0; who < PEOPLE; who++)
            check_log(&model[i], who);
    }
    for (int who = 0; who < PEOPLE; who++) {
        check_inbox(who, false);
        check_inbox(who, true);
    }
}

/* ---- the tests ---- */

static int set_up(void **state)
{
    (void)state;
    group_place_open(&place);
    model_begin();
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    group_place_close(&place);
    return 0;
}

static void a_random_history_is_as_foretold(void **state)
{
    (void)state;
    const char *seed = getenv("FANTAIL_SEED");
    rand_seed(&rnd, seed ? strtoull(seed, NULL, 10) : 5);
    for (int step = 0; step < STEPS; step++) {
        model_act();
        if (step % ROUND == ROUND - 1)
            check_all();
    }
    int kinds[9] = {0};
    for (int i = 0; i < GROUPS; i++) {
        for (int s = 1; s <= model[i].seq; s++)
            kinds[model[i].log[s].kind]++;
    }
    for (int k = 0; k < 9; k++) /* everything happened */
        assert_true(kinds[k] >= 3);
}

/* ---- what a message costs ---- */

static struct db_ops counting;
static const struct db_ops *real;
static int execs, queries;

static enum err counted_exec(struct tx *tx, const char *sql, const struct db_value *args, size_t n,
                             int64_t *changed)
{
    execs++;
    queries += changed != NULL; /* its answer is waited for */
    return real->exec(tx, sql, args, n, changed);
}

static enum err counted_query(struct tx *tx, const char *sql, const struct db_value *args, size_t n,
                              struct db_rows *rows)
{
    queries++;
    return real->query(tx, sql, args, n, rows);
}

static enum err send_one(struct tx *tx, void *arg)
{
    struct arena arena;
    bool repeated;
    struct message_new in = {.group = model[0].id,
                             .author = place.people[0],
                             .body = STR("hello"),
                             .client_id = STR("c1")};
    arena_init(&arena);
    enum err e = message_send(tx, &in, &arena, arg, &repeated);
    arena_done(&arena);
    return e;
}

static void a_message_takes_a_few_statements_and_one_answer(void **state)
{
    (void)state;
    struct group_entry sent;
    real = place.db->ops;
    counting = *real;
    counting.exec = counted_exec;
    counting.query = counted_query;
    place.db->ops = &counting;
    group_place_write(&place, send_one, &sent, OK);
    place.db->ops = real;
    /* Alone: the number's row is changed, then read. */
    assert_int_equal(execs, place.db->shared ? 3 : 4);
    assert_int_equal(queries, place.db->shared ? 1 : 2);
    assert_int_equal(sent.seq, 2);
}

/* ---- chats ---- */

struct chatting {
    uint64_t account, other, id;
    bool made;
};

static enum err run_chat(struct tx *tx, void *arg)
{
    struct chatting *c = arg;
    struct arena arena;
    struct group out;
    arena_init(&arena);
    enum err e = chat_open(tx, c->account, c->other, &arena, &out, &c->made);
    if (!e)
        c->id = out.id;
    arena_done(&arena);
    return e;
}

static void a_pair_has_one_chat(void **state)
{
    (void)state;
    struct chatting a = {.account = place.people[3], .other = place.people[4]};
    struct chatting b = {.account = place.people[4], .other = place.people[3]};
    group_place_write(&place, run_chat, &a, OK);
    group_place_write(&place, run_chat, &b, OK);
    assert_true(a.made && !b.made && a.id == b.id);
    a.other = a.account;
    group_place_write(&place, run_chat, &a, ERR_INVALID);
    a.other = 1;
    group_place_write(&place, run_chat, &a, ERR_NOT_FOUND);
}

int main(int count, char **arguments)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_random_history_is_as_foretold, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_message_takes_a_few_statements_and_one_answer, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(a_pair_has_one_chat, set_up, tear_down),
    };
    if (!group_place_choose(count, arguments))
        return 1;
    return cmocka_run_group_tests_name("model/group", tests, NULL, NULL);
}
