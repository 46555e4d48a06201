/* Snapshots: whole ones come back, damaged ones are put aside, and one taken while everything went
 * on is as good as any once the events after its position are applied again. */
#include <fcntl.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/check.h"
#include "base/hash.h"
#include "base/log.h"
#include "base/rand.h"
#include "port/event.h"
#include "view/memory/memory.h"
#include "view/memory/snapshot.h"

enum { PEOPLE = 3000, CAP = 100, PULL_CAP = 20, GROUPS = 40, GROUP_BASE = 1 << 20 };

struct place {
    char folder[64], path[96], damaged[128], part[128];
};

static int setup(void **state)
{
    struct place *p = calloc(1, sizeof *p);
    snprintf(p->folder, sizeof p->folder, "/tmp/fantail-snapshot-XXXXXX");
    assert_non_null(mkdtemp(p->folder));
    snprintf(p->path, sizeof p->path, "%s/views", p->folder);
    snprintf(p->damaged, sizeof p->damaged, "%s.damaged", p->path);
    snprintf(p->part, sizeof p->part, "%s.part", p->path);
    log_set_level(LOG_ERROR);
    *state = p;
    return 0;
}

static int teardown(void **state)
{
    struct place *p = *state;
    unlink(p->path);
    unlink(p->damaged);
    unlink(p->part);
    assert_int_equal(rmdir(p->folder), 0);
    free(p);
    return 0;
}

static struct views *open_with(const char *path, size_t cap, size_t pull_cap)
{
    struct memory_views_config config = {path, cap, pull_cap, clock_system()};
    struct views *v = NULL;
    assert_int_equal(views_memory_open(&config, &v), OK);
    return v;
}

static struct views *open_views(const struct place *p)
{
    return open_with(p->path, CAP, PULL_CAP);
}

static void apply(struct views *v, enum view_change_kind kind, bool on, uint64_t account,
                  uint64_t other, int64_t value)
{
    struct view_change c = {kind, on, account, other, value};
    assert_int_equal(views_apply(v, &c, 1), OK);
}

static size_t fan_out(struct views *v, uint64_t author, uint64_t post)
{
    struct audience_cursor c = {.part = AUDIENCE_ALL};
    uint64_t members[500];
    size_t n, added, total = 0;
    while (!c.end) {
        assert_int_equal(graph_audience(v->graph, author, &c, members, 500, &n), OK);
        assert_int_equal(timelines_push_one(v->timelines, post, members, n, &added), OK);
        total += added;
    }
    return total;
}

static void member(struct views *v, bool on, uint64_t who, uint64_t group, uint64_t event)
{
    struct view_change c = {VIEW_MEMBER, on, who, GROUP_BASE + group, 0, event};
    assert_int_equal(views_apply(v, &c, 1), OK);
}

static void message(struct views *v, uint64_t group, uint64_t event)
{
    struct audience_cursor c = {.part = AUDIENCE_ALL};
    uint64_t members[500];
    size_t n, changed;
    while (!c.end) {
        assert_int_equal(graph_audience(v->graph, GROUP_BASE + group, &c, members, 500, &n), OK);
        assert_int_equal(
            inboxes_push_one(v->inboxes, GROUP_BASE + group, event, members, n, &changed), OK);
    }
}

/* Group 0 has everybody, and with them a bitmap. */
static void populate_groups(struct views *v, uint64_t seed, uint64_t people)
{
    struct rand r;
    rand_seed(&r, seed);
    for (uint64_t i = 1; i <= people; i++) {
        member(v, true, i, 0, i);
        for (uint64_t k = rand_below(&r, 12); k > 0; k--)
            member(v, true, i, 1 + rand_below(&r, GROUPS - 1), people + i * 20 + k);
    }
    for (uint64_t event = 1; event <= 200; event++)
        message(v, rand_below(&r, GROUPS), people * 30 + event);
    for (uint64_t i = 1; i <= people; i += 5)
        member(v, false, i, rand_below(&r, GROUPS), people * 40 + i);
}

static void populate(struct views *v, uint64_t seed, uint64_t people)
{
    struct rand r;
    rand_seed(&r, seed);
    for (uint64_t i = 1; i <= people; i++) {
        apply(v, VIEW_ACCOUNT, rand_below(&r, 10) > 0, i, 0,
              (int64_t)rand_below(&r, 1u << 30) * 1000);
        for (uint64_t k = rand_below(&r, 20); k > 0; k--)
            apply(v, VIEW_FOLLOW, true, i, 1 + rand_below(&r, people), 0);
        apply(v, VIEW_FOLLOW, true, i, 1, 0);
        if (rand_below(&r, 10) == 0)
            apply(v, VIEW_MUTE, true, i, 1 + rand_below(&r, people), 0);
        if (rand_below(&r, 50) == 0)
            apply(v, VIEW_HIDE, true, i, 0, 0);
    }
    for (uint64_t id = 1; id <= 3 * CAP; id++) {
        uint64_t author = 1 + rand_below(&r, rand_below(&r, 2) ? 5 : people);
        if (author == 3 || rand_below(&r, 10) == 0)
            apply(v, VIEW_POST, true, author, id * 10, DELIVERY_PULL);
        else
            fan_out(v, author, id * 10);
    }
}

/* Everything that can be asked is answered alike. */
static void assert_same(struct views *a, struct views *b, uint64_t people)
{
    uint64_t authors[200];
    for (uint64_t i = 0; i < 200; i++)
        authors[i] = 1 + i * 13 % people;
    for (uint64_t i = 1; i <= people; i++) {
        uint64_t x[3 * CAP], y[3 * CAP], xf, yf;
        bool xv[200], yv[200];
        size_t xn, yn;
        assert_int_equal(timelines_home(a->timelines, i, UINT64_MAX, x, 3 * CAP, &xn, &xf), OK);
        assert_int_equal(timelines_home(b->timelines, i, UINT64_MAX, y, 3 * CAP, &yn, &yf), OK);
        assert_int_equal(xf, yf);
        assert_int_equal(xn, yn);
        assert_memory_equal(x, y, xn * sizeof x[0]);
        graph_visible(a->graph, i, authors, 200, xv);
        graph_visible(b->graph, i, authors, 200, yv);
        assert_memory_equal(xv, yv, sizeof xv);
        for (int followers = 0; followers < 2; followers++) {
            assert_int_equal(graph_neighbours(a->graph, i, followers, 0, x, 3 * CAP, &xn), OK);
            assert_int_equal(graph_neighbours(b->graph, i, followers, 0, y, 3 * CAP, &yn), OK);
            assert_int_equal(xn, yn);
            assert_memory_equal(x, y, xn * sizeof x[0]);
        }
        struct audience_cursor c = {AUDIENCE_ACTIVE, INT64_C(500000000000), INT64_C(500000000000),
                                    0, false};
        struct audience_cursor d = c;
        uint64_t xm[500], ym[500];
        graph_audience(a->graph, i, &c, xm, 500, &xn);
        graph_audience(b->graph, i, &d, ym, 500, &yn);
        assert_int_equal(xn, yn);
        assert_memory_equal(xm, ym, xn * sizeof xm[0]);
        assert_int_equal(c.end, d.end);
        struct inbox_entry xi[GROUPS], yi[GROUPS];
        enum err e = inboxes_read(a->inboxes, i, UINT64_MAX, xi, GROUPS, &xn);
        assert_int_equal(inboxes_read(b->inboxes, i, UINT64_MAX, yi, GROUPS, &yn), e);
        assert_int_equal(xn, yn);
        if (xn > 0)
            assert_memory_equal(xi, yi, xn * sizeof xi[0]);
    }
    for (uint64_t g = 0; g < GROUPS; g++) {
        static uint64_t x[2 * PEOPLE], y[2 * PEOPLE];
        size_t xn, yn;
        enum err e = graph_neighbours(a->graph, GROUP_BASE + g, true, 0, x, 2 * PEOPLE, &xn);
        assert_int_equal(graph_neighbours(b->graph, GROUP_BASE + g, true, 0, y, 2 * PEOPLE, &yn),
                         e);
        assert_int_equal(xn, yn);
        assert_memory_equal(x, y, xn * sizeof x[0]);
    }
    struct view_stats s, t;
    views_stats(a, &s);
    views_stats(b, &t);
    assert_int_equal(s.accounts, t.accounts);
    assert_int_equal(s.follows, t.follows);
    assert_int_equal(s.entries, t.entries);
    assert_int_equal(s.dropped, t.dropped);
    assert_int_equal(s.groups, t.groups);
    assert_int_equal(s.memberships, t.memberships);
    assert_int_equal(s.inboxes, t.inboxes);
    assert_int_equal(s.inbox_entries, t.inbox_entries);
}

static void everything_comes_back(void **state)
{
    struct place *p = *state;
    struct views *v = open_views(p);
    populate(v, 1, PEOPLE);
    populate_groups(v, 1, PEOPLE);
    assert_int_equal(views_save(v, 99), OK);
    struct views *w = open_views(p);
    assert_int_equal(w->loaded_position, 99);
    assert_same(v, w, PEOPLE);
    /* And it works on like the original. */
    for (uint64_t id = 5000; id < 5200; id++)
        assert_int_equal(fan_out(v, 1, id), fan_out(w, 1, id));
    for (struct views *x = v; x; x = x == v ? w : NULL) {
        apply(x, VIEW_FOLLOW, true, PEOPLE + 1, 7, 0);
        member(x, true, PEOPLE + 1, 0, 1 << 19);
        member(x, false, 8, 0, 1 << 19);
        message(x, 0, (1 << 19) + 1);
    }
    assert_same(v, w, PEOPLE + 1);
    views_free(v);
    views_free(w);
}

static void an_empty_state_can_be_saved(void **state)
{
    struct place *p = *state;
    struct views *v = open_views(p);
    assert_int_equal(views_save(v, 5), OK);
    views_free(v);
    v = open_views(p);
    assert_int_equal(v->loaded_position, 5);
    apply(v, VIEW_FOLLOW, true, 1, 2, 0);
    views_free(v);
}

static void position_zero_covers_nothing(void **state)
{
    struct place *p = *state;
    struct views *v = open_views(p);
    apply(v, VIEW_FOLLOW, true, 1, 2, 0);
    assert_int_equal(views_save(v, 0), OK);
    assert_int_equal(access(p->path, F_OK), -1);
    views_free(v);
    v = open_with(NULL, CAP, PULL_CAP);
    assert_int_equal(views_save(v, 10), OK); /* nowhere to save to */
    views_free(v);
}

static void smaller_caps_trim_and_raise_the_floor(void **state)
{
    struct place *p = *state;
    struct views *v = open_views(p);
    apply(v, VIEW_FOLLOW, true, 1, 2, 0);
    apply(v, VIEW_FOLLOW, true, 1, 3, 0);
    for (uint64_t id = 1; id <= 60; id++)
        fan_out(v, 2, id * 10);
    for (uint64_t id = 1; id <= 15; id++)
        apply(v, VIEW_POST, true, 3, 400 + id, DELIVERY_PULL);
    assert_int_equal(views_save(v, 7), OK);
    views_free(v);
    uint64_t ids[100], floor;
    size_t n;
    v = open_with(p->path, 25, PULL_CAP);
    assert_int_equal(timelines_home(v->timelines, 1, UINT64_MAX, ids, 100, &n, &floor), OK);
    assert_int_equal(floor, 350);
    assert_int_equal(n, 25 + 15 - 1); /* 410 is in both */
    views_free(v);
    v = open_with(p->path, CAP, 4);
    assert_int_equal(timelines_home(v->timelines, 1, UINT64_MAX, ids, 100, &n, &floor), OK);
    assert_int_equal(floor, 411);
    assert_int_equal(n, 19 + 4); /* 420 … 600, and 412 … 415 */
    views_free(v);
}

/* ---- files that cannot be used ---- */

static char *slurp(const char *path, size_t *n)
{
    FILE *f = fopen(path, "rb");
    assert_non_null(f);
    struct stat st;
    assert_int_equal(fstat(fileno(f), &st), 0);
    *n = (size_t)st.st_size;
    char *bytes = malloc(*n);
    assert_int_equal(fread(bytes, 1, *n, f), *n);
    fclose(f);
    return bytes;
}

static void spill(const char *path, const char *bytes, size_t n)
{
    FILE *f = fopen(path, "wb");
    assert_non_null(f);
    assert_int_equal(fwrite(bytes, 1, n, f), n);
    fclose(f);
}

static void assert_put_aside(const struct place *p)
{
    struct views *v = open_views(p);
    struct view_stats s;
    views_stats(v, &s);
    assert_int_equal(v->loaded_position, 0);
    assert_int_equal(s.accounts, 0);
    assert_int_equal(s.entries, 0);
    assert_int_equal(access(p->path, F_OK), -1);
    assert_int_equal(access(p->damaged, F_OK), 0);
    apply(v, VIEW_FOLLOW, true, 1, 2, 0); /* and it works */
    assert_int_equal(fan_out(v, 2, 5), 1);
    views_free(v);
}

/* ---- files that were not written by this program ---- */

/* Walks the records of a file; `change` may write into them, and the checksums are made right. */
static void rewrite(char *bytes, size_t n, void (*change)(struct snapshot_record *r, void *arg),
                    void *arg)
{
    struct snapshot_header *h = (struct snapshot_header *)(void *)bytes;
    for (size_t at = sizeof *h; at < n;) {
        struct snapshot_block *b = (struct snapshot_block *)(void *)(bytes + at);
        char *payload = bytes + at + sizeof *b;
        for (uint64_t i = 0, inside = 0; i < b->slots; i++) {
            struct snapshot_record *r = (struct snapshot_record *)(void *)(payload + inside);
            inside += snapshot_record_bytes(r, h->version);
            change(r, arg);
        }
        b->checksum =
            hash_checksum(payload, b->bytes, snapshot_block_seed(h->position, b->first_slot));
        at += sizeof *b + b->bytes;
    }
    h->checksum = hash_checksum(h, offsetof(struct snapshot_header, checksum), 0);
}

/* A file of version 1 out of one of this version without groups. */
static size_t to_version_1(char *bytes, size_t n)
{
    struct snapshot_header *h = (struct snapshot_header *)(void *)bytes;
    size_t to = sizeof *h;
    for (size_t at = sizeof *h; at < n;) {
        struct snapshot_block b;
        memcpy(&b, bytes + at, sizeof b);
        size_t head = to, next = at + sizeof b + b.bytes;
        at += sizeof b;
        to += sizeof b;
        for (uint32_t i = 0; i < b.slots; i++) {
            struct snapshot_record r;
            memcpy(&r, bytes + at, sizeof r);
            size_t whole = snapshot_record_bytes(&r, 2), old = snapshot_record_bytes(&r, 1);
            assert_true(r.inbox == 0 && r.members == 0 && old == whole - 8);
            r.flags &= ~(uint32_t)SNAPSHOT_INBOX_READY;
            memcpy(bytes + to, &r, 48);
            memmove(bytes + to + 48, bytes + at + sizeof r, old - 48);
            at += whole;
            to += old;
        }
        b.bytes = to - head - sizeof b;
        b.checksum = hash_checksum(bytes + head + sizeof b, b.bytes,
                                   snapshot_block_seed(h->position, b.first_slot));
        memcpy(bytes + head, &b, sizeof b);
        at = next;
    }
    h->version = 1;
    h->checksum = hash_checksum(h, offsetof(struct snapshot_header, checksum), 0);
    return to;
}

/* There were no groups then: every inbox is empty, and complete. */
static void a_file_from_before_groups_is_read(void **state)
{
    struct place *p = *state;
    struct views *v = open_views(p);
    populate(v, 4, 500);
    assert_int_equal(views_save(v, 99), OK);
    size_t n;
    char *bytes = slurp(p->path, &n);
    spill(p->path, bytes, to_version_1(bytes, n));
    free(bytes);
    struct views *w = open_views(p);
    assert_int_equal(w->loaded_position, 99);
    for (uint64_t i = 1; i <= 500; i++) { /* whose were dropped has one now, too */
        (void)inboxes_begin(v->inboxes, i);
        (void)inboxes_end(v->inboxes, i, NULL, 0);
    }
    assert_same(v, w, 500);
    member(w, true, 7, 1, 5);
    message(w, 1, 9);
    struct inbox_entry out[2];
    assert_int_equal(inboxes_read(w->inboxes, 7, UINT64_MAX, out, 2, &n), OK);
    assert_true(n == 1 && out[0].activity == 9);
    views_free(v);
    views_free(w);
    bytes = slurp(p->path, &n);
    for (uint32_t version = 0; version <= 3; version += 3) {
        struct snapshot_header *h = (struct snapshot_header *)(void *)bytes;
        h->version = version;
        h->checksum = hash_checksum(h, offsetof(struct snapshot_header, checksum), 0);
        spill(p->path, bytes, n);
        assert_put_aside(p);
    }
    free(bytes);
}

/* Slots: 0 account 1, 1 the group, 2 account 2, who follows 1; both are members. */
static void lie(struct snapshot_record *r, void *arg)
{
    uint64_t *entries = (uint64_t *)(void *)(r + 1), *activities = entries + r->entries + r->pulls;
    uint32_t *groups = (uint32_t *)(void *)(activities + r->inbox), *following = groups + r->inbox;
    uint32_t *members = following + r->following + r->mutes;
    bool group = r->members > 0;
    switch (*(int *)arg) {
    case 0:
        if (r->following > 0)
            following[0] = 1; /* follows a group */
        break;
    case 1:
        if (group)
            members[0] = 1; /* a group in a group */
        break;
    case 2:
        if (!group)
            groups[0] = 2; /* an account in the inbox */
        break;
    case 3:
        if (!group)
            groups[0] = 77; /* nobody */
        break;
    case 4:
        if (group)
            members[1] = 77;
        break;
    case 5:
        if (group)
            members[1] = members[0]; /* twice */
        break;
    case 6:
        if (!group)
            activities[0] = 0;
        break;
    case 7:
        if (group)
            r->flags |= SNAPSHOT_READY;
        break;
    case 8:
        if (group)
            r->flags |= SNAPSHOT_INBOX_READY;
        break;
    case 9:
        r->flags &= ~(uint32_t)SNAPSHOT_GROUP;
        break;
    case 10:
        r->flags &= ~(uint32_t)SNAPSHOT_INBOX_READY;
        break;
    case 11:
        if (group)
            r->members = UINT32_MAX;
        break;
    default:
        if (!group)
            r->inbox = UINT32_MAX / 2;
        break;
    }
}

enum { LIES = 13 };

static char *small_file(const struct place *p, size_t *n)
{
    struct views *v = open_views(p);
    apply(v, VIEW_ACCOUNT, true, 1, 0, 0);
    member(v, true, 1, 0, 3);
    apply(v, VIEW_ACCOUNT, true, 2, 0, 0);
    apply(v, VIEW_FOLLOW, true, 2, 1, 0);
    member(v, true, 2, 0, 4);
    fan_out(v, 1, 50);
    assert_int_equal(views_save(v, 99), OK);
    views_free(v);
    return slurp(p->path, n);
}

static void nothing(struct snapshot_record *r, void *arg)
{
    (void)r, (void)arg;
}

static void a_file_that_lies_is_put_aside(void **state)
{
    struct place *p = *state;
    size_t n;
    char *bytes = small_file(p, &n), *copy = malloc(n);
    rewrite(bytes, n, nothing, NULL);
    spill(p->path, bytes, n);
    struct views *v = open_views(p);
    assert_int_equal(v->loaded_position, 99); /* told the truth */
    views_free(v);
    for (int which = 0; which < LIES; which++) {
        memcpy(copy, bytes, n);
        rewrite(copy, n, lie, &which);
        spill(p->path, copy, n);
        assert_put_aside(p);
    }
    free(copy);
    free(bytes);
}

static void flip(struct snapshot_record *r, void *arg)
{
    struct rand *rand = arg;
    if (rand_below(rand, 3) == 0) {
        size_t at = rand_below(rand, snapshot_record_bytes(r, SNAPSHOT_VERSION));
        ((char *)r)[at] = (char)(((char *)r)[at] ^ (1 << rand_below(rand, 8)));
    }
}

/* Whatever is taken for good can be used. */
static void no_file_does_harm(void **state)
{
    struct place *p = *state;
    size_t n, taken = 0;
    char *bytes = small_file(p, &n), *copy = malloc(n);
    struct rand r;
    rand_seed(&r, 5);
    for (int i = 0; i < 1500; i++) {
        memcpy(copy, bytes, n);
        rewrite(copy, n, flip, &r);
        spill(p->path, copy, n);
        struct views *v = open_views(p);
        taken += v->loaded_position == 99;
        for (uint64_t who = 1; who <= 2; who++) {
            struct inbox_entry out[4];
            uint64_t ids[200], floor;
            size_t count;
            (void)inboxes_read(v->inboxes, who, UINT64_MAX, out, 4, &count);
            (void)timelines_home(v->timelines, who, UINT64_MAX, ids, 200, &count, &floor);
            (void)graph_neighbours(v->graph, GROUP_BASE, true, 0, ids, 200, &count);
        }
        struct view_change c = {VIEW_MEMBER, true, 3, GROUP_BASE, 0, 60};
        if (views_apply(v, &c, 1) == OK)
            message(v, 0, 70);
        fan_out(v, 1, 80);
        views_free(v);
    }
    assert_true(taken > 100 && taken < 1400);
    free(copy);
    free(bytes);
}

static void a_damaged_file_is_put_aside(void **state)
{
    struct place *p = *state;
    struct views *v = open_views(p);
    populate(v, 2, 200);
    populate_groups(v, 2, 200);
    assert_int_equal(views_save(v, 99), OK);
    views_free(v);
    size_t n;
    char *bytes = slurp(p->path, &n);
    struct rand r;
    rand_seed(&r, 3);
    for (int i = 0; i < 60; i++) { /* one bit, anywhere */
        size_t at = i < 20 ? (size_t)i * 5 : rand_below(&r, n);
        char bit = (char)(1 << rand_below(&r, 8));
        bytes[at] = (char)(bytes[at] ^ bit);
        spill(p->path, bytes, n);
        bytes[at] = (char)(bytes[at] ^ bit);
        assert_put_aside(p);
    }
    for (int i = 0; i < 30; i++) { /* cut off, or with something behind it */
        size_t length = i == 0   ? 0
                        : i == 1 ? n - 1
                        : i == 2 ? sizeof(struct snapshot_header)
                                 : rand_below(&r, n);
        spill(p->path, bytes, length);
        assert_put_aside(p);
    }
    bytes = realloc(bytes, n + 8);
    memset(bytes + n, 0, 8);
    spill(p->path, bytes, n + 8);
    assert_put_aside(p);
    spill(p->path, "this is not a snapshot, but it is long enough to be taken for one: 0123456789",
          77);
    assert_put_aside(p);
    free(bytes);
}

static void a_save_that_cannot_be_written_leaves_the_old_one(void **state)
{
    struct place *p = *state;
    struct views *v = open_views(p);
    apply(v, VIEW_FOLLOW, true, 1, 2, 0);
    assert_int_equal(views_save(v, 1), OK);
    assert_int_equal(mkdir(p->part, 0700), 0); /* in the way of the file to be */
    apply(v, VIEW_FOLLOW, true, 1, 3, 0);
    assert_int_equal(views_save(v, 2), ERR_UNAVAILABLE);
    struct view_stats s;
    views_stats(v, &s);
    assert_int_equal(s.saved_position, 1);
    assert_int_equal(rmdir(p->part), 0);
    views_free(v);
    v = open_views(p);
    assert_int_equal(v->loaded_position, 1);
    views_stats(v, &s);
    assert_int_equal(s.follows, 1);
    views_free(v);
}

/* ---- saving while everything goes on ---- */

enum { EVENTS = 30000, CROWD = 400 };

/* An event's effect, the same whenever it is applied. */
static void do_event(struct views *v, uint64_t event)
{
    struct rand r;
    rand_seed(&r, event);
    uint64_t a = 1 + rand_below(&r, CROWD), b = 1 + rand_below(&r, CROWD);
    switch (rand_below(&r, 11)) {
    case 8:
        member(v, true, a, b % GROUPS, event);
        break;
    case 9:
        member(v, rand_below(&r, 2), a, b % GROUPS, event);
        member(v, true, CROWD + event, b % GROUPS, event);
        member(v, true, a, GROUPS + event, event); /* a new group */
        break;
    case 10:
        message(v, b % 4, event);
        break;
    case 0:
        apply(v, VIEW_FOLLOW, true, a, b, 0);
        break;
    case 1:
        apply(v, VIEW_FOLLOW, false, a, b, 0);
        break;
    case 2:
        apply(v, VIEW_ACCOUNT, true, CROWD + event, 0, 0);
        apply(v, VIEW_FOLLOW, true, CROWD + event, b, 0);
        apply(v, VIEW_FOLLOW, true, a, CROWD + event, 0);
        apply(v, VIEW_MUTE, true, a, CROWD + event, 0);
        break;
    case 3:
        apply(v, VIEW_POST, true, a, event, DELIVERY_PULL);
        break;
    case 4:
        apply(v, VIEW_MUTE, rand_below(&r, 2), a, b, 0);
        break;
    default:
        fan_out(v, 1 + rand_below(&r, 4), event);
        break;
    }
}

struct runner {
    struct views *v;
    _Atomic uint64_t done;
};

static void *run_events(void *arg)
{
    struct runner *run = arg;
    for (uint64_t e = 1; e <= EVENTS; e++) {
        do_event(run->v, e);
        atomic_store(&run->done, e);
    }
    return NULL;
}

static void a_fuzzy_save_and_a_replay_lose_nothing(void **state)
{
    struct place *p = *state;
    struct views *v = open_views(p);
    for (uint64_t i = 1; i <= CROWD; i++) {
        apply(v, VIEW_ACCOUNT, true, i, 0, 0);
        for (uint64_t k = 1; k <= 4; k++)
            apply(v, VIEW_FOLLOW, true, i, k, 0);
    }
    struct runner run = {.v = v};
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, run_events, &run), 0);
    uint64_t saves = 0, saved = 0;
    while (atomic_load(&run.done) < EVENTS * 9 / 10) {
        uint64_t position = atomic_load(&run.done);
        if (position == saved)
            continue;
        assert_int_equal(views_save(v, position), OK);
        saved = position;
        saves++;
        struct views *w = open_views(p); /* whole, whatever was made meanwhile */
        assert_int_equal(w->loaded_position, position);
        views_free(w);
    }
    pthread_join(thread, NULL);
    assert_true(saves > 0);
    struct views *w = open_views(p);
    assert_int_equal(w->loaded_position, saved);
    for (uint64_t e = saved + 1; e <= EVENTS; e++)
        do_event(w, e);
    for (uint64_t i = 1; i <= CROWD; i++) {
        uint64_t x[2 * CAP], y[2 * CAP], xf, yf;
        size_t xn, yn, at = 0;
        assert_int_equal(timelines_home(v->timelines, i, UINT64_MAX, x, 2 * CAP, &xn, &xf), OK);
        assert_int_equal(timelines_home(w->timelines, i, UINT64_MAX, y, 2 * CAP, &yn, &yf), OK);
        for (size_t k = 0; k < xn && x[k] > yf; k++) { /* it may hold too much, never too little */
            while (at < yn && y[at] > x[k])
                at++;
            assert_true(at < yn && y[at] == x[k]);
        }
        assert_true(yf < EVENTS);
        for (int followers = 0; followers < 2; followers++) {
            static uint64_t xs[EVENTS], ys[EVENTS];
            assert_int_equal(graph_neighbours(v->graph, i, followers, 0, xs, EVENTS, &xn), OK);
            assert_int_equal(graph_neighbours(w->graph, i, followers, 0, ys, EVENTS, &yn), OK);
            assert_int_equal(xn, yn);
            assert_memory_equal(xs, ys, xn * sizeof xs[0]);
        }
        static struct inbox_entry xi[EVENTS], yi[EVENTS];
        assert_int_equal(inboxes_read(v->inboxes, i, UINT64_MAX, xi, EVENTS, &xn), OK);
        assert_int_equal(inboxes_read(w->inboxes, i, UINT64_MAX, yi, EVENTS, &yn), OK);
        assert_int_equal(xn, yn);
        assert_memory_equal(xi, yi, xn * sizeof xi[0]);
    }
    for (uint64_t g = 0; g < GROUPS; g++) {
        static uint64_t xs[EVENTS], ys[EVENTS];
        size_t xn, yn;
        assert_int_equal(graph_neighbours(v->graph, GROUP_BASE + g, true, 0, xs, EVENTS, &xn), OK);
        assert_int_equal(graph_neighbours(w->graph, GROUP_BASE + g, true, 0, ys, EVENTS, &yn), OK);
        assert_int_equal(xn, yn);
        assert_memory_equal(xs, ys, xn * sizeof xs[0]);
    }
    views_free(v);
    views_free(w);
}

int main(void)
{
#define CASE(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {
        CASE(everything_comes_back),
        CASE(an_empty_state_can_be_saved),
        CASE(position_zero_covers_nothing),
        CASE(smaller_caps_trim_and_raise_the_floor),
        CASE(a_damaged_file_is_put_aside),
        CASE(a_file_from_before_groups_is_read),
        CASE(a_file_that_lies_is_put_aside),
        CASE(no_file_does_harm),
        CASE(a_save_that_cannot_be_written_leaves_the_old_one),
        CASE(a_fuzzy_save_and_a_replay_lose_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
