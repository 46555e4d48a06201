/* The rules a second time, as plainly as can be: each act looks up its people, and refuses in the
 * order of the model. */
#include "group_model.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/check.h"
#include "model/inbox.h"

struct group_place place;
struct rand rnd;
struct m_group model[GROUPS];
static int next_body = 1;

static struct m_entry *m_append(struct m_group *g, int kind, int author)
{
    CHECK(g->seq + 1 < ENTRIES_MAX);
    g->messages += kind == ENTRY_MESSAGE;
    struct m_entry *e = &g->log[++g->seq];
    *e = (struct m_entry){
        .kind = kind, .author = author, .subject = -1, .client = -1, .messages = g->messages};
    return e;
}

static void m_join(struct m_group *g, int who, int author, int role)
{
    m_append(g, ENTRY_JOIN, author)->subject = who;
    g->members[who] =
        (struct m_member){.is = true, .was = true, .role = role, .joined = g->seq, .read = g->seq};
}

static void m_role(struct m_group *g, int who, int author, int role)
{
    struct m_entry *e = m_append(g, ENTRY_ROLE, author);
    e->subject = who;
    e->role = role;
    g->members[who].role = role;
}

static void m_leave(struct m_group *g, int who, int author)
{
    int heir = -1;
    m_append(g, ENTRY_LEAVE, author)->subject = who;
    struct m_member *m = &g->members[who];
    m->is = false;
    m->left = g->seq;
    if (m->role != GROUP_OWNER)
        return;
    for (int i = 0; i < PEOPLE; i++) {
        struct m_member *a = &g->members[i], *b = heir < 0 ? NULL : &g->members[heir];
        if (a->is && (!b || a->role < b->role || (a->role == b->role && a->joined < b->joined)))
            heir = i;
    }
    if (heir >= 0)
        m_role(g, heir, author, GROUP_OWNER);
}

bool m_sees(const struct m_group *g, int who, int seq)
{
    const struct m_member *m = &g->members[who];
    return m->was && (g->history || seq >= m->joined) && (m->is || seq <= m->left);
}

struct m_group *group_of(uint64_t id)
{
    for (int i = 0; i < GROUPS; i++) {
        if (model[i].id == id)
            return &model[i];
    }
    fail_msg("no such group");
    return NULL;
}

int person_of(uint64_t id)
{
    for (int i = 0; i < PEOPLE; i++) {
        if (place.people[i] == id)
            return i;
    }
    fail_msg("no such person");
    return -1;
}

/* ---- acts ---- */

/* Mostly a person who may act there; `boss`: with a role. */
static int pick(const struct m_group *g, bool boss)
{
    int fit[PEOPLE], n = 0;
    for (int i = 0; i < PEOPLE; i++) {
        if (g->members[i].is && (!boss || g->members[i].role < GROUP_MEMBER))
            fit[n++] = i;
    }
    return n && rand_below(&rnd, 4) ? fit[rand_below(&rnd, (uint64_t)n)]
                                    : (int)rand_below(&rnd, PEOPLE);
}

struct act {
    struct m_group *g;
    int who, other, seq, body, client, role;
    unsigned mentions;
    bool set_role, invite, flag;
    int what;
    /* what came of it */
    int64_t answer_seq;
    bool repeated;
    int outcome;
};

struct str body_text(int body, char out[24])
{
    return (struct str){out, (size_t)snprintf(out, 24, "body-%d.", body)};
}

/* A message as the act has it; its texts and names are the caller's. */
struct written {
    char body[24], client[24];
    uint64_t mentioned[PEOPLE];
};

static struct message_new message_of(const struct act *a, struct written *w)
{
    struct message_new in = {
        .group = a->g->id, .author = place.people[a->who], .body = body_text(a->body, w->body)};
    if (a->client >= 0)
        in.client_id = (struct str){w->client, (size_t)snprintf(w->client, 24, "c%d", a->client)};
    for (int i = 0; i < PEOPLE; i++) {
        if (a->mentions & 1u << i)
            w->mentioned[in.mention_count++] = place.people[i];
    }
    in.mentions = w->mentioned;
    return in;
}

static enum err run_send(struct tx *tx, void *arg)
{
    struct act *a = arg;
    struct arena arena;
    struct group_entry out;
    struct written w;
    struct message_new in = message_of(a, &w);
    arena_init(&arena);
    enum err e = message_send(tx, &in, &arena, &out, &a->repeated);
    if (!e)
        a->answer_seq = out.seq;
    arena_done(&arena);
    return e;
}

/* What was sent under the act's name before; NULL: nothing. */
static struct m_entry *find_named(const struct act *a)
{
    struct m_entry *sent = NULL;
    for (int s = 1; s <= a->g->seq && a->client >= 0; s++) {
        if (a->g->log[s].client == a->client && a->g->log[s].author == a->who)
            sent = &a->g->log[s];
    }
    return sent;
}

static unsigned members_of(const struct m_group *g)
{
    unsigned members = 0;
    for (int i = 0; i < PEOPLE; i++)
        members |= g->members[i].is ? 1u << i : 0;
    return members;
}

static struct act plan_send(void)
{
    struct m_group *g = &model[rand_below(&rnd, GROUPS)];
    struct act a = {.g = g,
                    .who = pick(g, false),
                    .client = rand_below(&rnd, 2) ? (int)rand_below(&rnd, CLIENT_IDS) : -1,
                    .body = next_body++,
                    .mentions = rand_below(&rnd, 3) ? 0 : (unsigned)rand_below(&rnd, 1u << PEOPLE)};
    const struct m_entry *sent = find_named(&a);
    if (sent && rand_below(&rnd, 2))
        a.body = sent->sent_body;
    if (rand_below(&rnd, 4))
        a.mentions &= members_of(g);
    return a;
}

static void note_sent(const struct act *a)
{
    struct m_group *g = a->g;
    struct m_entry *e = m_append(g, ENTRY_MESSAGE, a->who);
    e->body = e->sent_body = a->body;
    e->client = a->client;
    e->mentions = a->mentions;
    g->last_seq = g->seq;
    g->members[a->who].read = g->seq;
    assert_int_equal(a->answer_seq, g->seq);
}

static void act_send(void)
{
    struct act a = plan_send();
    const struct m_entry *sent = find_named(&a);
    enum err expected = OK;
    if (!a.g->members[a.who].is)
        expected = ERR_NOT_FOUND;
    else if (sent && !sent->deleted && sent->sent_body != a.body)
        expected = ERR_INVALID;
    else if (!sent && (a.mentions & ~members_of(a.g)))
        expected = ERR_INVALID;
    group_place_write(&place, run_send, &a, expected);
    if (expected)
        return;
    assert_int_equal(a.repeated, sent != NULL);
    if (sent)
        assert_int_equal(a.answer_seq, sent - a.g->log);
    else
        note_sent(&a);
}

/* Several at once: what can go together goes, in order, without a gap; nothing happens to the
 * others. */
struct crowd {
    struct act acts[SEND_MAX];
    size_t n;
    bool taken[SEND_MAX];
};

static enum err run_send_all(struct tx *tx, void *arg)
{
    struct crowd *c = arg;
    struct arena arena;
    struct written w[SEND_MAX];
    struct message_new in[SEND_MAX];
    struct group_entry out[SEND_MAX];
    memset(c->taken, 0, sizeof c->taken);
    for (size_t i = 0; i < c->n; i++)
        in[i] = message_of(&c->acts[i], &w[i]);
    arena_init(&arena);
    enum err e = message_send_all(tx, in, c->n, &arena, out, c->taken);
    for (size_t i = 0; i < c->n && !e; i++)
        if (c->taken[i])
            c->acts[i].answer_seq = out[i].seq;
    arena_done(&arena);
    return e;
}

static bool can_go(const struct crowd *c, size_t i)
{
    const struct act *a = &c->acts[i];
    if (a->mentions || find_named(a) || !a->g->members[a->who].is)
        return false;
    for (size_t k = 0; k < i; k++) {
        const struct act *b = &c->acts[k];
        if (a->client >= 0 && b->client == a->client && b->who == a->who && b->g == a->g)
            return false;
    }
    return true;
}

static void act_send_many(void)
{
    struct crowd c = {.n = rand_below(&rnd, SEND_MAX + 1)};
    bool expected[SEND_MAX] = {false};
    for (size_t i = 0; i < c.n; i++)
        c.acts[i] = plan_send();
    for (size_t i = 0; i < c.n; i++)
        expected[i] = can_go(&c, i);
    group_place_write(&place, run_send_all, &c, OK);
    for (size_t i = 0; i < c.n; i++) {
        assert_int_equal(c.taken[i], expected[i]);
        if (c.taken[i])
            note_sent(&c.acts[i]);
    }
}

static enum err run_edit(struct tx *tx, void *arg)
{
    struct act *a = arg;
    struct arena arena;
    struct group_entry out;
    char body[24];
    arena_init(&arena);
    enum err e = message_edit(tx, a->g->id, a->seq, place.people[a->who], body_text(a->body, body),
                              &arena, &out);
    arena_done(&arena);
    return e;
}

static enum err run_delete(struct tx *tx, void *arg)
{
    struct act *a = arg;
    struct arena arena;
    struct group_entry out;
    arena_init(&arena);
    enum err e = message_delete(tx, a->g->id, a->seq, place.people[a->who], &arena, &out);
    arena_done(&arena);
    return e;
}

static void act_change(bool deleting)
{
    struct m_group *g = &model[rand_below(&rnd, GROUPS)];
    struct act a = {.g = g,
                    .who = pick(g, deleting),
                    .seq = 1 + (int)rand_below(&rnd, (uint64_t)g->seq + 1),
                    .body = next_body};
    if (rand_below(&rnd, 2) && g->seq > 5) /* what is new matters to more */
        a.seq = g->seq - (int)rand_below(&rnd, 5);
    bool there = a.seq <= g->seq && g->log[a.seq].kind == ENTRY_MESSAGE;
    struct m_entry *e = &g->log[there ? a.seq : 0];
    if (there && rand_below(&rnd, 2))
        a.who = e->author;
    if (there && !e->deleted && rand_below(&rnd, 5) == 0)
        a.body = e->body;
    const struct m_member *m = &g->members[a.who];
    bool own = e->author == a.who;
    enum err expected = OK;
    if (!m->is || !there || !(own || m_sees(g, a.who, a.seq)))
        expected = ERR_NOT_FOUND;
    else if (!own && (!deleting || m->role == GROUP_MEMBER))
        expected = ERR_FORBIDDEN;
    else if (e->deleted)
        expected = deleting ? ERR_NOT_FOUND : ERR_CONFLICT;
    group_place_write(&place, deleting ? run_delete : run_edit, &a, expected);
    if (expected || (!deleting && a.body == e->body))
        return;
    int kind = !deleting ? ENTRY_EDIT : own ? ENTRY_DELETE : ENTRY_MODERATION;
    m_append(g, kind, a.who)->target = a.seq;
    if (deleting) {
        e->deleted = true;
        e->mentions = 0;
        return;
    }
    next_body++;
    e->body = a.body;
    e->edited_seq = g->seq;
}

static enum err run_put(struct tx *tx, void *arg)
{
    struct act *a = arg;
    enum member_outcome outcome;
    struct member_wish wish = {
        .set_role = a->set_role, .role = (enum group_role)a->role, .invite = a->invite};
    enum err e = group_member_put(tx, a->g->id, place.people[a->who], place.people[a->other], &wish,
                                  &outcome);
    a->outcome = (int)outcome;
    return e;
}

/* The outcome of adding a person; applied to the model when it is allowed. */
static enum err m_put(struct act *a, int *outcome)
{
    struct m_group *g = a->g;
    struct m_member *m = &g->members[a->who], *o = &g->members[a->other];
    *outcome = MEMBER_UNCHANGED;
    if (a->who == a->other) {
        if (!m->is && !m->invited)
            return ERR_NOT_FOUND;
        if (!m->is && (a->set_role || a->invite))
            return ERR_INVALID;
        if (!m->is) {
            *outcome = MEMBER_JOINED;
            m_join(g, a->who, a->who, GROUP_MEMBER);
            return OK;
        }
        if (!a->set_role || a->role == m->role)
            return OK;
        if (m->role == GROUP_OWNER)
            return ERR_CONFLICT;
        if (a->role < m->role)
            return ERR_FORBIDDEN;
        *outcome = MEMBER_CHANGED;
        m_role(g, a->who, a->who, a->role);
        return OK;
    }
    if (!m->is)
        return ERR_NOT_FOUND;
    if (m->role == GROUP_MEMBER)
        return ERR_FORBIDDEN;
    if (o->is) {
        if (!a->set_role || a->role == o->role)
            return OK;
        if (m->role != GROUP_OWNER)
            return ERR_FORBIDDEN;
        *outcome = MEMBER_CHANGED;
        if (a->role == GROUP_OWNER)
            m_role(g, a->who, a->who, GROUP_ADMIN);
        m_role(g, a->other, a->who, a->role);
        return OK;
    }
    int role = a->set_role ? a->role : GROUP_MEMBER;
    if (role == GROUP_OWNER || (a->invite && role != GROUP_MEMBER))
        return ERR_INVALID;
    if (role == GROUP_ADMIN && m->role != GROUP_OWNER)
        return ERR_FORBIDDEN;
    if (a->invite && o->invited)
        return OK;
    *outcome = a->invite ? MEMBER_INVITED : MEMBER_JOINED;
    if (a->invite)
        o->invited = true;
    else
        m_join(g, a->other, a->who, role);
    return OK;
}

static void act_put(void)
{
    struct m_group *g = &model[rand_below(&rnd, GROUPS)];
    struct act a = {.g = g,
                    .who = pick(g, true),
                    .other = (int)rand_below(&rnd, PEOPLE),
                    .set_role = rand_below(&rnd, 3) == 0,
                    .role = (int)rand_below(&rnd, 3),
                    .invite = rand_below(&rnd, 4) == 0};
    int outcome;
    enum err expected = m_put(&a, &outcome);
    group_place_write(&place, run_put, &a, expected);
    if (!expected)
        assert_int_equal(a.outcome, outcome);
}

static enum err run_remove(struct tx *tx, void *arg)
{
    struct act *a = arg;
    return group_member_remove(tx, a->g->id, place.people[a->who], place.people[a->other]);
}

static void act_remove(void)
{
    struct m_group *g = &model[rand_below(&rnd, GROUPS)];
    struct act a = {.g = g, .who = pick(g, false)};
    a.other = rand_below(&rnd, 2) ? a.who : (int)rand_below(&rnd, PEOPLE);
    struct m_member *m = &a.g->members[a.who], *o = &a.g->members[a.other];
    bool self = a.who == a.other, decline = o->invited && !o->is;
    enum err expected = OK;
    if (!m->is && !(self && decline))
        expected = ERR_NOT_FOUND;
    else if (!self && m->role == GROUP_MEMBER)
        expected = ERR_FORBIDDEN;
    else if (!self && !decline && !o->is)
        expected = ERR_NOT_FOUND;
    else if (!self && !decline && o->role <= m->role)
        expected = ERR_FORBIDDEN;
    int left = 0;
    for (int i = 0; i < PEOPLE; i++)
        left += a.g->members[i].is;
    if (!expected && !decline && left == 1)
        return; /* the last one stays, or the history ends here */
    group_place_write(&place, run_remove, &a, expected);
    if (expected)
        return;
    if (decline)
        o->invited = false;
    else
        m_leave(a.g, a.other, a.who);
}

static enum err run_read(struct tx *tx, void *arg)
{
    struct act *a = arg;
    struct arena arena;
    struct inbox_item item;
    arena_init(&arena);
    enum err e = inbox_mark_read(tx, a->g->id, place.people[a->who], a->seq, &arena, &item);
    if (!e)
        a->answer_seq = item.group.read_seq;
    arena_done(&arena);
    return e;
}

static void act_read(void)
{
    struct m_group *g = &model[rand_below(&rnd, GROUPS)];
    struct act a = {.g = g, .who = pick(g, false)};
    struct m_member *m = &a.g->members[a.who];
    a.seq = (int)rand_below(&rnd, (uint64_t)a.g->seq + 5);
    group_place_write(&place, run_read, &a, m->is ? OK : ERR_NOT_FOUND);
    if (!m->is)
        return;
    int to = a.seq < a.g->seq ? a.seq : a.g->seq;
    m->read = to > m->read ? to : m->read;
    assert_int_equal(a.answer_seq, m->read);
}

enum { RENAME, HISTORY, MUTED, ARCHIVED };

static enum err run_update(struct tx *tx, void *arg)
{
    struct act *a = arg;
    struct arena arena;
    struct group out;
    char name[24];
    struct group_change change = {.set_history = a->what == HISTORY,
                                  .history = (enum group_history)a->flag,
                                  .set_muted = a->what == MUTED,
                                  .muted = a->flag,
                                  .set_archived = a->what == ARCHIVED,
                                  .archived = a->flag};
    if (a->what == RENAME)
        change.name = body_text(a->body, name);
    arena_init(&arena);
    enum err e = group_update(tx, a->g->id, place.people[a->who], &change, &arena, &out);
    arena_done(&arena);
    return e;
}

static void act_update(void)
{
    struct m_group *g = &model[rand_below(&rnd, GROUPS)];
    struct act a = {.g = g,
                    .who = pick(g, true),
                    .what = (int)rand_below(&rnd, 4),
                    .flag = rand_below(&rnd, 2),
                    .body = (int)rand_below(&rnd, 3)};
    struct m_member *m = &a.g->members[a.who];
    bool of_all = a.what == RENAME || a.what == HISTORY;
    enum err expected = !m->is                              ? ERR_NOT_FOUND
                        : of_all && m->role == GROUP_MEMBER ? ERR_FORBIDDEN
                                                            : OK;
    group_place_write(&place, run_update, &a, expected);
    if (expected)
        return;
    if (a.what == RENAME && a.body != a.g->name) {
        m_append(a.g, ENTRY_RENAME, a.who)->body = a.g->name = a.body;
    } else if (a.what == HISTORY && a.flag != a.g->history) {
        m_append(a.g, ENTRY_HISTORY, a.who);
        a.g->history = a.flag;
    } else if (a.what == MUTED) {
        m->muted = a.flag;
    } else if (a.what == ARCHIVED) {
        m->archived = a.flag;
    }
}

/* ---- the whole ---- */

static enum err run_create(struct tx *tx, void *arg)
{
    struct m_group *g = arg;
    struct arena arena;
    struct group out;
    char name[24];
    arena_init(&arena);
    enum err e =
        group_create(tx, &(struct group_new){.owner = place.people[0], .name = body_text(0, name)},
                     &arena, &out);
    if (!e)
        g->id = out.id;
    arena_done(&arena);
    return e;
}

void model_begin(void)
{
    memset(model, 0, sizeof model);
    next_body = 10;
    for (int i = 0; i < GROUPS; i++) {
        group_place_write(&place, run_create, &model[i], OK);
        m_join(&model[i], 0, 0, GROUP_OWNER);
    }
}

void model_act(void)
{
    uint64_t dice = rand_below(&rnd, 100);
    if (dice < 34)
        act_send();
    else if (dice < 40)
        act_send_many();
    else if (dice < 52)
        act_change(false);
    else if (dice < 62)
        act_change(true);
    else if (dice < 76)
        act_put();
    else if (dice < 83)
        act_remove();
    else if (dice < 92)
        act_read();
    else
        act_update();
}
