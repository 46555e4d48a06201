/* Loads a snapshot into an empty driver, before any other thread uses it.
 *
 * The block headers are walked first, which shows whether the file is whole. Then a few threads
 * take the blocks one by one: read, verify, build each account's lists and ring with exactly one
 * allocation. Then the ids enter the directory, and the followers are made out of `following` by
 * counting, each thread for its own range of authors; a group's members are in its record.
 * Everything read is checked against bounds even though the checksums matched: a file from
 * elsewhere must not be able to do harm. On any fault the file is renamed and the driver starts
 * empty. */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/check.h"
#include "base/hash.h"
#include "base/log.h"
#include "view/memory/driver.h"
#include "view/memory/snapshot.h"

enum { THREADS_MAX = 4 };

struct block_place {
    struct snapshot_block head;
    off_t at; /* of the payload */
};

struct loader {
    struct memory_views *m;
    int fd;
    uint64_t file_bytes;
    struct snapshot_header header;
    struct block_place *blocks;
    size_t block_count;
    uint64_t block_bytes_max;
    _Atomic size_t next_block;
    _Atomic int failed; /* enum err */
    uint32_t threads;
};

/* One of the threads that share a phase. */
struct crew_member {
    struct loader *l;
    uint32_t index;
    void (*work)(struct crew_member *c);
    struct tally tally;
    pthread_t thread;
    bool started;
};

static void fail(struct loader *l, enum err e)
{
    int none = OK;
    atomic_compare_exchange_strong(&l->failed, &none, (int)e);
}

static bool read_exactly(int fd, void *to, uint64_t n, off_t at)
{
    char *p = to;
    while (n > 0) {
        ssize_t got = pread(fd, p, n < (1u << 30) ? n : (1u << 30), at);
        if (got < 0 && errno == EINTR)
            continue;
        if (got <= 0)
            return false;
        p += got;
        at += got;
        n -= (uint64_t)got;
    }
    return true;
}

static bool header_is_good(const struct loader *l)
{
    const struct snapshot_header *h = &l->header;
    return h->magic == SNAPSHOT_MAGIC && h->version >= SNAPSHOT_OLDEST_VERSION &&
           h->version <= SNAPSHOT_VERSION &&
           h->checksum == hash_checksum(h, offsetof(struct snapshot_header, checksum), 0) &&
           h->position > 0 && h->accounts <= ACCOUNTS_MAX;
}

/* Walks the block headers: they must cover all slots in order and end where the file ends. */
static bool find_blocks(struct loader *l)
{
    uint64_t at = sizeof l->header;
    uint32_t slot = 0;
    size_t room = 0;
    while (slot < l->header.accounts) {
        struct snapshot_block head;
        if (at + sizeof head > l->file_bytes || !read_exactly(l->fd, &head, sizeof head, (off_t)at))
            return false;
        at += sizeof head;
        if (head.mark != SNAPSHOT_MARK || head.first_slot != slot || head.slots == 0 ||
            head.slots > l->header.accounts - slot || head.bytes > l->file_bytes - at)
            return false;
        if (l->block_count == room) {
            room = room > 0 ? room * 2 : 64;
            struct block_place *blocks = realloc(l->blocks, room * sizeof *blocks);
            if (!blocks)
                return false;
            l->blocks = blocks;
        }
        l->blocks[l->block_count++] = (struct block_place){head, (off_t)at};
        if (head.bytes > l->block_bytes_max)
            l->block_bytes_max = head.bytes;
        at += head.bytes;
        slot += head.slots;
    }
    return at == l->file_bytes;
}

static bool rises(const uint32_t *slots, uint32_t n, uint32_t accounts)
{
    for (uint32_t i = 1; i < n; i++)
        if (slots[i] <= slots[i - 1])
            return false;
    return n == 0 || slots[n - 1] < accounts;
}

static bool ids_rise_above(const uint64_t *ids, uint32_t n, uint64_t floor)
{
    uint64_t before = floor;
    bool good = true;
    for (uint32_t i = 0; i < n; i++) {
        good &= ids[i] > before;
        before = ids[i];
    }
    return good;
}

static enum err load_pulls(struct memory_views *m, uint32_t slot, const struct snapshot_record *r,
                           const uint64_t *pulls, struct tally *t)
{
    struct pull_list *l = pull_list_new(&t->bytes);
    if (!l)
        return ERR_NO_MEMORY;
    atomic_store_explicit(&m->people[slot].pull, l, memory_order_release);
    flag_set(m->pulled, slot, true);
    pull_list_raise_floor(l, r->pull_floor);
    for (uint32_t i = r->pulls; i > 0; i--)
        if (!pull_list_add(l, pulls[i - 1], m->pull_cap, &t->bytes))
            return ERR_NO_MEMORY;
    return OK;
}

/* The lists behind a record. */
struct record_lists {
    const uint64_t *entries, *pulls, *activities;
    const uint32_t *groups, *following, *mutes, *members;
};

static struct record_lists lists_of(const struct snapshot_record *r, const char *behind)
{
    struct record_lists l = {.entries = (const uint64_t *)(const void *)behind};
    l.pulls = l.entries + r->entries;
    l.activities = l.pulls + r->pulls;
    l.groups = (const uint32_t *)(const void *)(l.activities + r->inbox);
    l.following = l.groups + r->inbox;
    l.mutes = l.following + r->following;
    l.members = l.mutes + r->mutes;
    return l;
}

static bool activities_rise(const uint64_t *activities, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++)
        if (activities[i] == 0 || (i > 0 && activities[i] < activities[i - 1]))
            return false;
    return true;
}

/* What it says by itself; what it says of others is looked at when all are there. */
static bool record_is_good(const struct snapshot_record *r, const struct record_lists *at,
                           uint32_t accounts)
{
    bool ready = r->flags & SNAPSHOT_READY, group = r->flags & SNAPSHOT_GROUP,
         has_inbox = r->flags & SNAPSHOT_INBOX_READY;
    if (group && (ready || has_inbox || r->following > 0 || r->mutes > 0))
        return false;
    if (r->id == 0 || r->entries > TIMELINE_CAP_MAX || r->inbox > INBOX_MAX ||
        (!ready && r->entries > 0) || (!has_inbox && r->inbox > 0) || (!group && r->members > 0))
        return false;
    for (uint32_t i = 0; i < r->inbox; i++)
        if (at->groups[i] >= accounts)
            return false;
    return rises(at->following, r->following, accounts) && rises(at->mutes, r->mutes, accounts) &&
           rises(at->members, r->members, accounts) &&
           ids_rise_above(at->entries, r->entries, r->floor) &&
           activities_rise(at->activities, r->inbox);
}

static enum err load_members(struct memory_views *m, uint32_t slot, const uint32_t *members,
                             uint32_t n, struct tally *t)
{
    struct follower_set *f = &m->people[slot].followers;
    enum err e = follower_set_reserve(f, n, &t->bytes);
    for (uint32_t i = 0; i < n && e == OK; i++)
        follower_set_append(f, members[i]);
    t->groups += n > 0;
    t->memberships += n;
    return e == OK ? follower_set_close(f, &t->bytes) : e;
}

static enum err load_inbox(struct memory_views *m, uint32_t slot, const struct record_lists *at,
                           uint32_t n, struct tally *t)
{
    struct inbox *inbox = &m->inboxes[slot];
    if (!inbox_fill(inbox, &t->inboxes, n))
        return ERR_NO_MEMORY;
    if (n > 0) {
        memcpy(atomic_load(&inbox->activities), at->activities, n * sizeof *at->activities);
        memcpy(inbox_groups(inbox), at->groups, n * sizeof *at->groups);
    }
    inbox->state = INBOX_READY;
    flag_set(m->inbox_awake, slot, true);
    return OK;
}

/* ERR_INVALID: the record cannot be. */
static enum err load_account(struct loader *l, uint32_t slot, const struct snapshot_record *r,
                             const char *behind, struct tally *t)
{
    struct memory_views *m = l->m;
    struct person *p = &m->people[slot];
    struct record_lists at = lists_of(r, behind);
    if (!record_is_good(r, &at, l->header.accounts))
        return ERR_INVALID;
    m->ids[slot] = r->id;
    flag_set(m->grouped, slot, r->flags & SNAPSHOT_GROUP);
    atomic_store_explicit(&m->seen[slot], r->seen, memory_order_relaxed);
    if (r->flags & SNAPSHOT_HIDDEN)
        flag_set(m->hidden, slot, true);
    enum err e = slot_list_fill(&p->following, at.following, r->following, &t->bytes);
    if (e == OK && r->mutes > 0) {
        p->mutes = calloc(1, sizeof *p->mutes);
        t->bytes += (int64_t)sizeof *p->mutes;
        e = p->mutes ? slot_list_fill(p->mutes, at.mutes, r->mutes, &t->bytes) : ERR_NO_MEMORY;
    }
    if (e == OK && r->flags & SNAPSHOT_PULLED)
        e = load_pulls(m, slot, r, at.pulls, t);
    if (e == OK && r->members > 0)
        e = load_members(m, slot, at.members, r->members, t);
    if (e == OK && r->flags & SNAPSHOT_INBOX_READY)
        e = load_inbox(m, slot, &at, r->inbox, t);
    if (r->flags & SNAPSHOT_READY) {
        struct timeline_env env = timeline_env_of(m, slot);
        m->timelines[slot].state = TIMELINE_READY;
        timeline_fill(&m->timelines[slot], &env, at.entries, r->entries, r->floor);
        flag_set(m->awake, slot, true);
        t->entries += env.entries;
    }
    t->follows += r->following;
    return e;
}

/* The record at `at`, of whatever version; false: it is not all there. */
static bool read_record(const struct loader *l, const char *at, uint64_t left,
                        struct snapshot_record *r)
{
    uint32_t version = l->header.version;
    *r = (struct snapshot_record){0};
    if (left < snapshot_head_bytes(version))
        return false;
    memcpy(r, at, snapshot_head_bytes(version));
    if (version == 1)
        r->flags |= SNAPSHOT_INBOX_READY;
    return left >= snapshot_record_bytes(r, version);
}

static enum err load_block(struct loader *l, const struct block_place *b, char *payload,
                           struct tally *t)
{
    if (!read_exactly(l->fd, payload, b->head.bytes, b->at) ||
        hash_checksum(payload, b->head.bytes,
                      snapshot_block_seed(l->header.position, b->head.first_slot)) !=
            b->head.checksum)
        return ERR_INVALID;
    uint64_t at = 0;
    for (uint32_t i = 0; i < b->head.slots; i++) {
        struct snapshot_record r;
        if (!read_record(l, payload + at, b->head.bytes - at, &r))
            return ERR_INVALID;
        TRY(load_account(l, b->head.first_slot + i, &r,
                         payload + at + snapshot_head_bytes(l->header.version), t));
        at += snapshot_record_bytes(&r, l->header.version);
    }
    return at == b->head.bytes ? OK : ERR_INVALID;
}

static void load_blocks(struct crew_member *c)
{
    struct loader *l = c->l;
    char *payload = malloc(l->block_bytes_max + 1);
    if (!payload) {
        fail(l, ERR_NO_MEMORY);
        return;
    }
    while (atomic_load(&l->failed) == OK) {
        size_t i = atomic_fetch_add(&l->next_block, 1);
        if (i >= l->block_count)
            break;
        enum err e = load_block(l, &l->blocks[i], payload, &c->tally);
        if (e != OK)
            fail(l, e);
    }
    free(payload);
}

/* An id that is a group in one record must be one in all. */
static bool names_are_good(struct memory_views *m, uint32_t slot)
{
    enum { CHUNK = 256 };
    const struct inbox *b = &m->inboxes[slot];
    uint32_t count = inbox_get(b, count), members[CHUNK], from = 0;
    for (uint32_t i = 0; i < count; i++)
        if (!flag_get(m->grouped, inbox_groups(b)[i]))
            return false;
    size_t got = flag_get(m->grouped, slot) ? CHUNK : 0;
    while (got == CHUNK) {
        got = follower_set_read(&m->people[slot].followers, from, members, CHUNK);
        for (size_t i = 0; i < got; i++)
            if (flag_get(m->grouped, members[i]))
                return false;
        from = got > 0 ? members[got - 1] + 1 : 0;
    }
    return true;
}

/* The followers of this thread's share of the authors: count, make room, fill. Viewers are walked
 * in the order of slots, so each list comes out sorted. */
static void load_followers(struct crew_member *c)
{
    struct memory_views *m = c->l->m;
    uint32_t accounts = c->l->header.accounts;
    uint32_t low = (uint32_t)((uint64_t)accounts * c->index / c->l->threads);
    uint32_t high = (uint32_t)((uint64_t)accounts * (c->index + 1) / c->l->threads);
    uint32_t *counts = calloc(high - low + 1, sizeof *counts);
    enum err e = counts ? OK : ERR_NO_MEMORY;
    for (uint32_t viewer = 0; viewer < accounts && e == OK; viewer++) {
        const struct slot_list *f = &m->people[viewer].following;
        for (uint32_t i = slot_list_at_least(f, low); i < f->count && f->slots[i] < high; i++)
            counts[f->slots[i] - low]++;
    }
    for (uint32_t slot = low; slot < high && e == OK; slot++)
        if (!names_are_good(m, slot) || (counts[slot - low] > 0 && flag_get(m->grouped, slot)))
            e = ERR_INVALID;
    for (uint32_t author = low; author < high && e == OK; author++)
        e = follower_set_reserve(&m->people[author].followers, counts[author - low],
                                 &c->tally.bytes);
    for (uint32_t viewer = 0; viewer < accounts && e == OK; viewer++) {
        const struct slot_list *f = &m->people[viewer].following;
        for (uint32_t i = slot_list_at_least(f, low); i < f->count && f->slots[i] < high; i++)
            follower_set_append(&m->people[f->slots[i]].followers, viewer);
    }
    for (uint32_t author = low; author < high && e == OK; author++)
        e = follower_set_close(&m->people[author].followers, &c->tally.bytes);
    free(counts);
    if (e != OK)
        fail(c->l, e);
}

static void *crew_main(void *arg)
{
    struct crew_member *c = arg;
    c->work(c);
    return NULL;
}

/* Does the work with all threads and waits for them. A thread that cannot be started is replaced by
 * this one. */
static void run_crew(struct loader *l, void (*work)(struct crew_member *c))
{
    struct crew_member crew[THREADS_MAX] = {0};
    for (uint32_t i = 0; i < l->threads; i++) {
        crew[i] = (struct crew_member){.l = l, .index = i, .work = work};
        crew[i].started = i > 0 && pthread_create(&crew[i].thread, NULL, crew_main, &crew[i]) == 0;
    }
    for (uint32_t i = 0; i < l->threads; i++)
        if (!crew[i].started)
            work(&crew[i]);
    for (uint32_t i = 0; i < l->threads; i++) {
        if (crew[i].started)
            pthread_join(crew[i].thread, NULL);
        tally_add(l->m, &crew[i].tally);
    }
}

static enum err fill_directory(struct loader *l)
{
    struct memory_views *m = l->m;
    directory_done(&m->directory);
    if (!directory_init(&m->directory, l->header.accounts))
        return ERR_NO_MEMORY;
    for (uint32_t slot = 0; slot < l->header.accounts; slot++) {
        if (slot + 16 < l->header.accounts)
            directory_prefetch(&m->directory, m->ids[slot + 16]);
        if (directory_find(&m->directory, m->ids[slot]) != DIRECTORY_NONE)
            return ERR_INVALID;
        if (!directory_insert(&m->directory, m->ids[slot], slot))
            return ERR_NO_MEMORY;
    }
    return OK;
}

static enum err load_from(struct loader *l)
{
    struct memory_views *m = l->m;
    struct stat st;
    if (fstat(l->fd, &st) != 0)
        return ERR_UNAVAILABLE;
    l->file_bytes = (uint64_t)st.st_size;
    if (l->file_bytes < sizeof l->header || !read_exactly(l->fd, &l->header, sizeof l->header, 0) ||
        !header_is_good(l) || !find_blocks(l))
        return ERR_INVALID;
    if (l->header.accounts == 0)
        return OK;
    (void)posix_fadvise(l->fd, 0, 0, POSIX_FADV_SEQUENTIAL);
    if (!accounts_extend(m, l->header.accounts))
        return ERR_NO_MEMORY;
    atomic_store(&m->accounts, l->header.accounts);
    run_crew(l, load_blocks);
    enum err e = (enum err)atomic_load(&l->failed);
    if (e == OK)
        e = fill_directory(l);
    if (e != OK)
        return e;
    run_crew(l, load_followers);
    return (enum err)atomic_load(&l->failed);
}

static enum err put_aside(const char *path)
{
    char aside[PATH_MAX];
    if (snprintf(aside, sizeof aside, "%s.damaged", path) >= (int)sizeof aside ||
        rename(path, aside) != 0)
        return ERR_UNAVAILABLE;
    log_warn("the saved views cannot be used and were put aside", LOG_CSTR("file", aside));
    return OK;
}

/* Takes back everything that was loaded. */
static enum err start_empty(struct memory_views *m)
{
    accounts_done(m);
    atomic_store(&m->accounts, 0);
    for (size_t i = 0; i < TALLY_PARTS; i++)
        atomic_store(&m->totals[i], 0);
    return accounts_init(m);
}

enum err memory_load(struct memory_views *m)
{
    if (!m->snapshot_path)
        return OK;
    struct loader l = {.m = m, .fd = open(m->snapshot_path, O_RDONLY | O_CLOEXEC)};
    if (l.fd < 0)
        return errno == ENOENT ? OK : ERR_UNAVAILABLE;
    long cores = sysconf(_SC_NPROCESSORS_ONLN);
    l.threads = cores < 1 ? 1 : cores > THREADS_MAX ? THREADS_MAX : (uint32_t)cores;
    enum err e = load_from(&l);
    free(l.blocks);
    close(l.fd);
    if (e == OK) {
        m->views.loaded_position = l.header.position;
        atomic_store(&m->saved_position, l.header.position);
        atomic_store(&m->saved_at_ms, l.header.saved_at_ms);
        atomic_store(&m->save_bytes, (int64_t)l.file_bytes);
        return OK;
    }
    enum err emptied = start_empty(m);
    if (emptied != OK || e != ERR_INVALID)
        return emptied != OK ? emptied : e;
    return put_aside(m->snapshot_path);
}
