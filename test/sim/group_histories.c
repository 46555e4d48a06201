/* Groups over the real stack (store, views, bus, engine), by seed: one thread, a clock moved by
 * hand.
 *
 * A history is a random walk through everything that can change a group: messages, with mentions
 * and sent again under their client_id, edits, deletions, joins, leaves, removals, renames, read
 * marks, closed and open histories, chats, deleted, suspended and renamed accounts; inboxes dropped
 * for inactivity and rebuilt while others write; snapshots. Few are many: pages of an audience hold
 * one to three members and a group of two may be large, so that walks split, large groups are
 * pulled, and one page can fail while others do not.
 *
 * Crashes come in both stages: right after a COMMIT, before the commit hook (the first), and in the
 * middle of deliveries, of which some fail before or after their effect (the second). At any moment
 * a member reads, and at the end everything is drained; what must hold is in group_checks.c.
 *
 *     group_histories [--count N] [--seed FIRST] [--long]
 *
 * With FANTAIL_TEST_DRIVERS=cluster the same over PostgreSQL, Redis and RabbitMQ (deliveries do not
 * fail there on purpose: their retries take real time). Prints the seed of a failing history and
 * ends; `--seed S --count 1` runs that one again. */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "group_sim.h"
#include "model/chat.h"

enum { COUNT_NORMAL = 600, COUNT_LONG = 30000, HISTORIES_A_STORE = 300, CAP = 10 };

static const int64_t day_ms = INT64_C(24) * 3600 * 1000;
static struct history history; /* one at a time */

uint64_t below(struct history *h, uint64_t n)
{
    return rand_below(&h->rand, n);
}

void failed(struct history *h, const char *format, ...)
{
    va_list args;
    printf("# history %llu, step %d: ", (unsigned long long)h->seed, h->step);
    va_start(args, format);
    vprintf(format, args);
    va_end(args);
    printf("\n# run it again: group_histories --seed %llu --count 1\n"
           "not ok 1 - every member agrees, and every inbox equals the oracle\n",
           (unsigned long long)h->seed);
    fflush(stdout);
    abort();
}

__attribute__((format(printf, 2, 3))) static void tell(struct history *h, const char *format, ...)
{
    va_list args;
    if (!h->loud)
        return;
    printf("# %4d ", h->step);
    va_start(args, format);
    vprintf(format, args);
    va_end(args);
    printf("\n");
}

/* ---- acts ---- */

enum deed_kind {
    MAKE,
    SEND,
    SEND_AGAIN,
    EDIT,
    ERASE,
    JOIN,
    LEAVE,
    RENAME,
    OPEN_HISTORY,
    ARCHIVE,
    MUTE,
    CHAT,
    READ
};

struct group_act {
    struct history *h;
    enum deed_kind kind;
    size_t who, whom, group;
    uint64_t made;
    int64_t seq;
    char text[BODY_MAX], client_id[BODY_MAX];
    uint64_t named[PEOPLE_MAX];
    size_t named_count;
    bool flag, repeated;
};

static enum err make_group(struct tx *tx, struct group_act *a, struct arena *arena)
{
    struct group g;
    enum err e = group_create(tx,
                              &(struct group_new){.owner = a->h->people[a->who],
                                                  .name = STR("a group"),
                                                  .history = a->flag,
                                                  .members = a->named,
                                                  .member_count = a->named_count},
                              arena, &g);
    a->made = e ? 0 : g.id;
    return e;
}

static enum err send(struct tx *tx, struct group_act *a, struct arena *arena)
{
    struct group_entry out;
    enum err e = message_send(tx,
                              &(struct message_new){.group = a->h->groups[a->group],
                                                    .author = a->h->people[a->who],
                                                    .client_id = str_of(a->client_id),
                                                    .body = str_of(a->text),
                                                    .mentions = a->named,
                                                    .mention_count = a->named_count},
                              arena, &out, &a->repeated);
    if (!e)
        a->seq = out.seq;
    return e;
}

static enum err change(struct tx *tx, struct group_act *a, struct arena *arena)
{
    struct group_change c = {0};
    struct group g;
    if (a->kind == RENAME)
        c.name = str_of(a->text);
    c.set_history = a->kind == OPEN_HISTORY;
    c.set_archived = a->kind == ARCHIVE;
    c.set_muted = a->kind == MUTE;
    c.muted = a->flag;
    c.history = a->flag;
    c.archived = a->flag;
    return group_update(tx, a->h->groups[a->group], a->h->people[a->who], &c, arena, &g);
}

static enum err chat(struct tx *tx, struct group_act *a, struct arena *arena)
{
    struct group g;
    bool made;
    enum err e = chat_open(tx, a->h->people[a->who], a->h->people[a->whom], arena, &g, &made);
    a->made = !e && made ? g.id : 0;
    return e;
}

static enum err run_act(struct tx *tx, struct group_act *a, struct arena *arena)
{
    uint64_t group = a->h->groups[a->group], who = a->h->people[a->who];
    struct group_entry entry;
    struct inbox_item item;
    enum member_outcome outcome;
    switch (a->kind) {
    case MAKE:
        return make_group(tx, a, arena);
    case SEND:
    case SEND_AGAIN:
        return send(tx, a, arena);
    case EDIT:
        return message_edit(tx, group, a->seq, who, str_of(a->text), arena, &entry);
    case ERASE:
        return message_delete(tx, group, a->seq, who, arena, &entry);
    case JOIN:
        return group_member_put(tx, group, who, a->h->people[a->whom],
                                &(struct member_wish){.set_role = a->flag, .role = GROUP_ADMIN},
                                &outcome);
    case LEAVE:
        return group_member_remove(tx, group, who, a->h->people[a->whom]);
    case RENAME:
    case OPEN_HISTORY:
    case ARCHIVE:
    case MUTE:
        return change(tx, a, arena);
    case CHAT:
        return chat(tx, a, arena);
    case READ:
        return inbox_mark_read(tx, group, who, a->seq, arena, &item);
    }
    return ERR_INTERNAL;
}

static enum err run_in_tx(struct tx *tx, void *arg)
{
    struct arena arena;
    arena_init(&arena);
    enum err e = run_act(tx, arg, &arena);
    arena_done(&arena);
    return e;
}

static size_t somebody(struct history *h)
{
    return below(h, h->people_count);
}

/* Mostly by people who may, or little would happen. */
static size_t some_member(struct history *h, size_t group)
{
    size_t who = somebody(h);
    for (int i = 0; i < 4; i++, who = somebody(h)) {
        if (world_i64(h->w,
                      "SELECT COUNT(*) FROM group_members WHERE group_id = $1 "
                      "AND account_id = $2 AND left_seq IS NULL",
                      DB_ARGS(DB_I64(h->groups[group]), DB_I64(h->people[who]))))
            break;
    }
    return who;
}

static void name_some(struct history *h, struct group_act *a, uint64_t most)
{
    for (uint64_t n = below(h, most + 1); n > 0; n--)
        a->named[a->named_count++] = h->people[somebody(h)];
}

static struct group_act some_act(struct history *h)
{
    static const enum deed_kind kinds[] = {
        SEND,       SEND, SEND,   SEND,         SEND,    SEND, SEND, SEND, SEND,
        SEND_AGAIN, EDIT, EDIT,   ERASE,        ERASE,   JOIN, JOIN, JOIN, LEAVE,
        LEAVE,      READ, RENAME, OPEN_HISTORY, ARCHIVE, MAKE, MUTE, CHAT};
    struct group_act a = {.h = h, .kind = kinds[below(h, sizeof kinds / sizeof kinds[0])]};
    if (h->group_count == 0)
        a.kind = MAKE;
    if ((a.kind == MAKE || a.kind == CHAT) && h->group_count == GROUPS_MAX)
        a.kind = SEND;
    if (a.kind == SEND_AGAIN && h->sent_count == 0)
        a.kind = SEND;
    a.flag = below(h, 2);
    snprintf(a.text, sizeof a.text, "text %d", ++h->acts);
    snprintf(a.client_id, sizeof a.client_id, "c%d", h->acts);
    if (a.kind == MAKE) {
        a.who = somebody(h);
        name_some(h, &a, 5);
        return a;
    }
    a.group = below(h, h->group_count);
    a.who = some_member(h, a.group);
    a.whom = a.kind == LEAVE && below(h, 2) ? a.who : somebody(h);
    a.seq = 1 + (int64_t)below(h, 40);
    if (h->sent_count && (a.kind == EDIT || a.kind == ERASE || a.kind == SEND_AGAIN)) {
        const struct sent *s = &h->sent[below(h, h->sent_count)];
        a.group = s->group;
        a.who = below(h, 4) ? s->author : a.who;
        a.seq = s->seq;
        if (a.kind == SEND_AGAIN) {
            a.who = s->author;
            memcpy(a.client_id, s->client_id, sizeof a.client_id);
            memcpy(a.text, s->body, sizeof a.text);
        }
    }
    if (a.kind == SEND && below(h, 3) == 0)
        name_some(h, &a, 2);
    return a;
}

static void note_message(struct history *h, const struct group_act *a)
{
    if (a->kind == SEND && h->sent_count < SENT_MAX) {
        struct sent *s = &h->sent[h->sent_count++];
        *s = (struct sent){.group = a->group, .author = a->who, .seq = a->seq};
        memcpy(s->body, a->text, sizeof s->body);
        memcpy(s->client_id, a->client_id, sizeof s->client_id);
    }
    for (size_t i = 0; i < h->sent_count; i++) {
        struct sent *s = &h->sent[i];
        if (s->group == a->group && s->seq == a->seq && (a->kind == EDIT || a->kind == ERASE))
            s->changed = true;
        if (a->kind == SEND_AGAIN && s->group == a->group && s->author == a->who &&
            strcmp(s->client_id, a->client_id) == 0 && (s->seq != a->seq || !a->repeated))
            failed(h, "message %lld of group %zu was sent again and became %lld", (long long)s->seq,
                   a->group, (long long)a->seq);
    }
}

/* `told`: the commit hook got to run. */
static void act(struct history *h, bool told)
{
    struct group_act a = some_act(h);
    enum err e = db_write(h->w->db, run_in_tx, &a, NULL);
    tell(h, "act %d in group %zu by %zu on %zu, %lld: %s", a.kind, a.group, a.who, a.whom,
         (long long)a.seq, err_name(e));
    if (e && err_class(e) != ERR_CLASS_CLIENT)
        failed(h, "act %d says %s", a.kind, err_name(e));
    if (e)
        return;
    if (a.made)
        h->groups[h->group_count++] = a.made;
    else if (a.kind != CHAT)
        note_message(h, &a);
    if (a.kind == SEND && told)
        h->own[a.who][a.group] = (uint64_t)world_i64(
            h->w, "SELECT last_id FROM groups WHERE id = $1", DB_ARGS(DB_I64(h->groups[a.group])));
    if (a.kind == SEND && told && below(h, 3) == 0)
        check_inbox(h, a.who);
}

static void change_a_person(struct history *h)
{
    static const enum act acts[] = {ACT_DELETE_ACCOUNT, ACT_SUSPEND, ACT_RESTORE, ACT_RESTORE,
                                    ACT_UPDATE,         ACT_UPDATE,  ACT_UPDATE};
    size_t who = somebody(h);
    char name[BODY_MAX];
    snprintf(name, sizeof name, "name %d", ++h->acts);
    struct deed d = {.act = acts[below(h, COUNT_OF(acts))],
                     .who = h->people[who],
                     .what = h->people[who],
                     .text = str_of(name)};
    if (world_do(h->w, &d) != OK)
        return;
    tell(h, "act %d on %zu", d.act, who);
    h->deleted[who] = h->deleted[who] || d.act == ACT_DELETE_ACCOUNT;
}

/* ---- the stack ---- */

/* A page fails before its effect, or after it. */
static enum err unreliable_push(struct inboxes *b, struct inbox_push *pushes, size_t n)
{
    struct history *h = &history;
    uint64_t dice = below(h, 200);
    if (dice < h->failing)
        return ERR_UNAVAILABLE;
    enum err e = h->push(b, pushes, n);
    return dice < 2 * h->failing ? ERR_UNAVAILABLE : e;
}

static void start(struct history *h)
{
    world_start(h->w, CAP);
    h->ops = *h->w->views->inboxes->ops;
    h->push = h->ops.push;
    h->ops.push = unreliable_push;
    h->w->views->inboxes->ops = &h->ops;
}

static void restart(struct history *h)
{
    bool without_snapshot = below(h, 3) == 0;
    tell(h, "restart %s", without_snapshot ? "from truth" : "from the snapshot");
    world_stop(h->w);
    if (without_snapshot)
        world_forget_snapshot(h->w);
    start(h);
}

/* The first stage's crash: the commit hook does not run. */
static void crash_after_commit(struct history *h)
{
    struct views *views = h->w->views;
    struct engine *engine = h->w->engine;
    h->w->views = NULL;
    h->w->engine = NULL;
    tell(h, "a commit, and a crash");
    act(h, false);
    h->w->views = views;
    h->w->engine = engine;
    h->untold = views->remote;
    restart(h);
}

static void work_a_little(struct history *h)
{
    for (uint64_t i = below(h, 6); i > 0; i--)
        world_step(h->w);
    manual_clock_advance(&h->w->clock, (int64_t)below(h, 50));
    if (below(h, 4) == 0)
        engine_watermark_step(h->w->engine);
}

void meanwhile(struct history *h)
{
    if (below(h, 2))
        act(h, true);
    else
        work_a_little(h);
}

static void let_time_pass(struct history *h)
{
    size_t dropped;
    bool wrapped;
    manual_clock_advance(&h->w->clock, (int64_t)below(h, 3) * day_ms / 2);
    if (below(h, 2))
        EXPECT(timelines_sweep(h->w->views->timelines, clock_wall_ms(&h->w->clock.clock) - day_ms,
                               100, &dropped, &wrapped) == OK);
    tell(h, "time passes");
}

static void go_on(struct history *h)
{
    uint64_t dice = below(h, 100);
    if (dice < 58)
        act(h, true);
    else if (dice < 74)
        work_a_little(h);
    else if (dice < 84)
        check_inbox(h, somebody(h));
    else if (dice < 88 && h->group_count)
        check_client(h, somebody(h), below(h, h->group_count));
    else if (dice < 90)
        change_a_person(h);
    else if (dice < 93)
        let_time_pass(h);
    else if (dice < 95)
        world_save(h->w);
    else if (dice < 96)
        restart(h);
    else if (dice < 97)
        crash_after_commit(h);
    else if (dice < 98)
        change_a_person(h);
    else
        check_exact(h);
}

static void run(struct world *w, uint64_t seed, bool loud)
{
    struct history *h = &history;
    world_stop(w); /* its views still use what the last history has lent them */
    memset(h, 0, sizeof *h);
    h->w = w;
    h->seed = seed;
    h->loud = loud;
    rand_seed(&h->rand, seed);
    world_clear(w);
    w->batch_max = below(h, 4) ? 1 + (uint16_t)below(h, 3) : 0;
    w->group_pull_threshold = below(h, 3) ? 2 + (int64_t)below(h, 4) : 0;
    w->active_within_ms = below(h, 2) ? 1000 : day_ms;
    h->failing = w->drivers.kind == TEST_EMBEDDED && below(h, 2) ? 10 : 0;
    start(h);
    h->people_count = 4 + below(h, PEOPLE_MAX - 3);
    for (size_t i = 0; i < h->people_count; i++) {
        char name[32];
        snprintf(name, sizeof name, "person%zu", i);
        h->people[i] = world_account(w, name);
    }
    int steps = 60 + (int)below(h, 240);
    for (h->step = 0; h->step < steps; h->step++)
        go_on(h);
    check_exact(h);
    restart(h);
    check_exact(h);
}

int main(int argc, char **argv)
{
    const char *wanted = getenv("FANTAIL_HISTORIES");
    uint64_t count = wanted ? strtoull(wanted, NULL, 10) : COUNT_NORMAL, first = 1;
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--long") == 0)
            count = COUNT_LONG;
        else if (strcmp(argv[i], "--count") == 0 && i + 1 < argc)
            count = strtoull(argv[++i], NULL, 10);
        else if (strcmp(argv[i], "--seed") == 0 && i + 1 < argc)
            first = strtoull(argv[++i], NULL, 10);
    }
    enum test_drivers_kind kind = test_drivers_wanted();
    struct world w;
    printf("1..1\n");
    fflush(stdout);
    for (uint64_t seed = first; seed < first + count; seed++) {
        bool fresh = (seed - first) % HISTORIES_A_STORE == 0; /* before its clock outruns the ids */
        if (fresh && seed > first)
            world_close(&w);
        if (fresh)
            world_open_on(&w, 3, kind);
        run(&w, seed, count == 1);
    }
    if (count > 0)
        world_close(&w);
    printf("ok 1 - every member agrees, and every inbox equals the oracle, over %llu histories\n",
           (unsigned long long)count);
    return 0;
}
