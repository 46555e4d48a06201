/* One group, many at once: senders, editors, deleters, leavers and readers on threads of their own.
 * Whatever they did, the log must be one history that explains everything: no gap, no number twice,
 * no writer who is not a member, every answer kept, and events in its order. */
#include <pthread.h>
#include <semaphore.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/check.h"
#include "base/rand.h"
#include "group_place.h"
#include "model/group.h"
#include "model/inbox.h"

enum { THREADS = 16, ACTS = 120, LOG_MAX = THREADS * ACTS * 2 + 100 };

static struct group_place place;
static uint64_t group;
static _Atomic int together; /* calls of send_together */

/* ---- what they do ---- */

struct sent {
    int64_t seq;
    int author, number;
};

struct actor {
    struct db_job job; /* of a message: those that wait go together */
    sem_t sent_it;
    enum err result;
    int index;
    pthread_t thread;
    struct rand rnd;
    struct sent sent[ACTS];
    size_t sent_count, refused, broken;
    /* of the act at hand */
    int who, other, number;
    int64_t seq;
};

static struct str text_of(const struct actor *a, char out[40])
{
    return (struct str){out, (size_t)snprintf(out, 40, "%d of %d", a->number, a->index)};
}

static enum err send(struct tx *tx, void *arg)
{
    struct actor *a = arg;
    struct arena arena;
    struct group_entry out;
    bool repeated;
    char body[40];
    struct str text = text_of(a, body);
    struct message_new in = {
        .group = group, .author = place.people[a->who], .body = text, .client_id = text};
    arena_init(&arena);
    enum err e = message_send(tx, &in, &arena, &out, &repeated);
    a->seq = e ? 0 : out.seq;
    arena_done(&arena);
    return e;
}

static struct actor *actor_of(struct db_job *job)
{
    return CONTAINER_OF(job, struct actor, job);
}

static enum err send_alone(struct tx *tx, struct db_job *job)
{
    return send(tx, actor_of(job));
}

static enum err send_together(struct tx *tx, struct db_job *const *jobs, size_t n, bool *taken)
{
    struct message_new in[THREADS];
    struct group_entry out[THREADS];
    char bodies[THREADS][40];
    struct arena arena;
    for (size_t i = 0; i < n; i++) {
        const struct actor *a = actor_of(jobs[i]);
        struct str text = text_of(a, bodies[i]);
        in[i] = (struct message_new){
            .group = group, .author = place.people[a->who], .body = text, .client_id = text};
    }
    arena_init(&arena);
    enum err e = message_send_all(tx, in, n, &arena, out, taken);
    for (size_t i = 0; i < n && !e; i++)
        if (taken[i])
            actor_of(jobs[i])->seq = out[i].seq;
    arena_done(&arena);
    atomic_fetch_add(&together, 1);
    return e;
}

static void send_done(struct db_job *job, enum err result, const char *detail)
{
    (void)detail;
    actor_of(job)->result = result;
    sem_post(&actor_of(job)->sent_it);
}

static enum err send_soon(struct actor *a)
{
    a->job = (struct db_job){.run = send_alone, .together = send_together, .done = send_done};
    TRY(db_submit(place.db, &a->job));
    while (sem_wait(&a->sent_it) != 0)
        ;
    return a->result;
}

static enum err edit(struct tx *tx, void *arg)
{
    struct actor *a = arg;
    struct arena arena;
    struct group_entry out;
    char body[40];
    arena_init(&arena);
    enum err e =
        message_edit(tx, group, a->seq, place.people[a->who], text_of(a, body), &arena, &out);
    arena_done(&arena);
    return e;
}

static enum err take_back(struct tx *tx, void *arg)
{
    struct actor *a = arg;
    struct arena arena;
    struct group_entry out;
    arena_init(&arena);
    enum err e = message_delete(tx, group, a->seq, place.people[a->who], &arena, &out);
    arena_done(&arena);
    return e;
}

static enum err add(struct tx *tx, void *arg)
{
    struct actor *a = arg;
    struct member_wish wish = {0};
    enum member_outcome outcome;
    return group_member_put(tx, group, place.people[0], place.people[a->other], &wish, &outcome);
}

static enum err leave(struct tx *tx, void *arg)
{
    struct actor *a = arg;
    return group_member_remove(tx, group, place.people[a->other], place.people[a->other]);
}

static enum err read_up_to(struct tx *tx, void *arg)
{
    struct actor *a = arg;
    struct arena arena;
    struct inbox_item item;
    arena_init(&arena);
    enum err e = inbox_mark_read(tx, group, place.people[a->who], a->seq, &arena, &item);
    arena_done(&arena);
    return e;
}

static void *act(void *arg)
{
    struct actor *a = arg;
    int64_t last = 1;
    for (int i = 0; i < ACTS; i++) {
        uint64_t dice = rand_below(&a->rnd, 100);
        a->who = (int)rand_below(&a->rnd, PLACE_PEOPLE);
        a->other = 1 + (int)rand_below(&a->rnd, PLACE_PEOPLE - 1);
        a->number = i;
        a->seq = 1 + (int64_t)rand_below(&a->rnd, (uint64_t)last + 5);
        tx_fn what = dice < 50   ? send
                     : dice < 62 ? edit
                     : dice < 68 ? take_back
                     : dice < 80 ? add
                     : dice < 88 ? leave
                                 : read_up_to;
        if (what == edit && a->sent_count > 0) { /* mostly one's own, so that most succeed */
            const struct sent *s = &a->sent[rand_below(&a->rnd, a->sent_count)];
            a->who = s->author;
            a->seq = s->seq;
        }
        enum err e = what == send ? send_soon(a) : db_write(place.db, what, a, NULL);
        a->refused += e != OK;
        a->broken += e && err_class(e) != ERR_CLASS_CLIENT;
        if (!e && what == send) {
            a->sent[a->sent_count++] = (struct sent){a->seq, a->who, i};
            last = a->seq;
        }
    }
    return NULL;
}

/* ---- the history ---- */

struct entry {
    int64_t seq, kind, target, messages, edited_seq;
    uint64_t author, subject;
    bool deleted, has_body;
    char body[40];
};

static struct entry log_[LOG_MAX];
static size_t log_count;

static enum err read_log(struct tx *tx, void *arg)
{
    (void)arg;
    struct db_rows rows;
    enum err e = tx_query(tx,
                          "SELECT seq, kind, author_id, subject_id, target_seq, messages, "
                          "edited_seq, deleted_at, body FROM group_log WHERE group_id = $1 "
                          "ORDER BY seq",
                          DB_ARGS(DB_I64(group)), &rows);
    log_count = 0;
    while (!e && db_next(&rows)) {
        CHECK(log_count + 1 < LOG_MAX);
        struct str body = db_text(&rows, 8);
        struct entry *x = &log_[++log_count];
        *x = (struct entry){.seq = db_i64(&rows, 0),
                            .kind = db_i64(&rows, 1),
                            .author = db_id(&rows, 2),
                            .subject = db_id(&rows, 3),
                            .target = db_i64(&rows, 4),
                            .messages = db_i64(&rows, 5),
                            .edited_seq = db_i64(&rows, 6),
                            .deleted = !db_is_null(&rows, 7),
                            .has_body = body.ptr != NULL};
        snprintf(x->body, sizeof x->body, "%.*s", STR_ARG(body));
    }
    return e ? e : db_rows_done(&rows);
}

static int person_of(uint64_t id)
{
    int i = 0;
    while (i < PLACE_PEOPLE && place.people[i] != id)
        i++;
    assert_true(i < PLACE_PEOPLE);
    return i;
}

static int64_t joined[PLACE_PEOPLE], left[PLACE_PEOPLE]; /* left 0: is in; joined 0: never was */

static void replay(void)
{
    int64_t messages = 0;
    memset(joined, 0, sizeof joined);
    memset(left, 0, sizeof left);
    for (size_t s = 1; s <= log_count; s++) {
        const struct entry *e = &log_[s];
        assert_int_equal(e->seq, s);
        messages += e->kind == ENTRY_MESSAGE;
        assert_int_equal(e->messages, messages);
        if (e->kind == ENTRY_JOIN) {
            int who = person_of(e->subject);
            assert_true(joined[who] == 0 || left[who] != 0);
            joined[who] = e->seq;
            left[who] = 0;
            continue;
        }
        int who = person_of(e->author);
        assert_true(joined[who] != 0 && left[who] == 0); /* an actor is a member */
        if (e->kind == ENTRY_LEAVE)
            left[person_of(e->subject)] = e->seq;
        if (e->target) {
            assert_true(e->target < e->seq);
            assert_int_equal(log_[e->target].kind, ENTRY_MESSAGE);
        }
    }
}

/* Each message is as its last edit and its deletion left it. */
static void check_messages(void)
{
    static int64_t edited[LOG_MAX], deleted[LOG_MAX];
    memset(edited, 0, sizeof edited);
    memset(deleted, 0, sizeof deleted);
    for (size_t s = 1; s <= log_count; s++) {
        const struct entry *e = &log_[s];
        if (e->kind == ENTRY_EDIT) {
            assert_int_equal(deleted[e->target], 0);
            assert_true(e->author == log_[e->target].author);
            edited[e->target] = e->seq;
        } else if (e->kind == ENTRY_DELETE || e->kind == ENTRY_MODERATION) {
            assert_int_equal(deleted[e->target], 0);
            deleted[e->target] = e->seq;
        }
        assert_true(e->kind == ENTRY_MESSAGE || !e->has_body);
    }
    for (size_t s = 1; s <= log_count; s++) {
        assert_int_equal(log_[s].edited_seq, edited[s]);
        assert_int_equal(log_[s].deleted, deleted[s] != 0);
        if (log_[s].kind == ENTRY_MESSAGE)
            assert_int_equal(log_[s].has_body, deleted[s] == 0);
    }
}

static void check_answers(const struct actor *actors)
{
    size_t sent = 0, messages = 0;
    for (int i = 0; i < THREADS; i++) {
        sent += actors[i].sent_count;
        for (size_t k = 0; k < actors[i].sent_count; k++) {
            const struct sent *one = &actors[i].sent[k];
            const struct entry *e = &log_[one->seq];
            char wanted[40];
            snprintf(wanted, sizeof wanted, "%d of %d", one->number, i);
            assert_int_equal(e->kind, ENTRY_MESSAGE);
            assert_true(e->author == place.people[one->author]);
            if (e->has_body && !e->edited_seq)
                assert_string_equal(e->body, wanted);
        }
    }
    for (size_t s = 1; s <= log_count; s++)
        messages += log_[s].kind == ENTRY_MESSAGE;
    assert_int_equal(sent, messages);
}

static void check_rows(void)
{
    int64_t id = (int64_t)group, in = 0;
    for (int i = 0; i < PLACE_PEOPLE; i++)
        in += joined[i] && !left[i];
    assert_int_equal(group_place_ask(&place, "SELECT seq FROM groups WHERE id = $1", id),
                     log_count);
    assert_int_equal(group_place_ask(&place, "SELECT member_count FROM groups WHERE id = $1", id),
                     in);
    assert_int_equal(group_place_ask(&place, "SELECT messages FROM groups WHERE id = $1", id),
                     log_[log_count].messages);
    /* A mark counts the messages up to it. */
    assert_int_equal(group_place_ask(&place,
                                     "SELECT COUNT(*) FROM group_members m JOIN group_log l "
                                     "ON l.group_id = m.group_id AND l.seq = m.read_seq "
                                     "WHERE m.group_id = $1 AND l.messages <> m.read_count",
                                     id),
                     0);
    for (int i = 0; i < PLACE_PEOPLE; i++) {
        int64_t account = (int64_t)place.people[i];
        assert_int_equal(group_place_ask(&place,
                                         "SELECT COALESCE(MAX(joined_seq), 0) FROM group_members "
                                         "WHERE account_id = $1",
                                         account),
                         joined[i]);
        assert_int_equal(
            group_place_ask(
                &place,
                "SELECT COALESCE(MAX(left_seq), 0) FROM group_members WHERE account_id = $1",
                account),
            left[i]);
    }
}

/* Every entry has one event, in the order of the numbers, and the row has the greatest id. */
static void check_events(void)
{
    int64_t told = 0;
    uint64_t last_id = 0;
    for (size_t i = 0; i < place.told.count; i++) {
        const struct event *e = &place.told.items[i];
        if (e->type == EVENT_GROUP_CREATED || e->type == EVENT_GROUP_READ)
            continue;
        assert_true(e->actor == group);
        assert_int_equal(e->value, ++told);
        enum event_type wanted = log_[told].kind == ENTRY_MESSAGE ? EVENT_GROUP_MESSAGE
                                 : log_[told].kind == ENTRY_JOIN  ? EVENT_GROUP_JOINED
                                 : log_[told].kind == ENTRY_LEAVE ? EVENT_GROUP_LEFT
                                                                  : EVENT_GROUP_ENTRY;
        assert_int_equal(e->type, wanted);
        if (e->type == EVENT_GROUP_MESSAGE && e->id > last_id)
            last_id = e->id;
    }
    assert_int_equal(told, log_count);
    assert_int_equal(
        group_place_ask(&place, "SELECT last_id FROM groups WHERE id = $1", (int64_t)group),
        (int64_t)last_id);
}

static enum err create(struct tx *tx, void *arg)
{
    (void)arg;
    struct arena arena;
    struct group out;
    arena_init(&arena);
    enum err e = group_create(tx,
                              &(struct group_new){.owner = place.people[0],
                                                  .name = STR("busy"),
                                                  .members = place.people,
                                                  .member_count = PLACE_PEOPLE / 2},
                              &arena, &out);
    if (!e)
        group = out.id;
    arena_done(&arena);
    return e;
}

static void many_at_once_make_one_history(void **state)
{
    (void)state;
    static struct actor actors[THREADS];
    group_place_open(&place);
    group_place_write(&place, create, NULL, OK);
    for (int i = 0; i < THREADS; i++) {
        actors[i] = (struct actor){.index = i};
        sem_init(&actors[i].sent_it, 0, 0);
        rand_seed(&actors[i].rnd, (uint64_t)i + 77);
        CHECK(pthread_create(&actors[i].thread, NULL, act, &actors[i]) == 0);
    }
    size_t refused = 0, broken = 0;
    for (int i = 0; i < THREADS; i++) {
        pthread_join(actors[i].thread, NULL);
        refused += actors[i].refused;
        broken += actors[i].broken;
    }
    assert_true(!place.db->shared || together > 0);
    assert_int_equal(broken, 0);
    assert_true(refused < THREADS * ACTS / 2);
    assert_int_equal(db_read(place.db, read_log, NULL, NULL), OK);
    replay();
    check_messages();
    check_answers(actors);
    check_rows();
    check_events();
    group_place_close(&place);
}

int main(int count, char **arguments)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(many_at_once_make_one_history)};
    if (!group_place_choose(count, arguments))
        return 1;
    return cmocka_run_group_tests_name("model/group_threads", tests, NULL, NULL);
}
