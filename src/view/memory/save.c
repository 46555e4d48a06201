/* Saving the views while everything goes on.
 *
 * The copy is fuzzy: each account is copied under its latch, one after the other, while others
 * change. That is enough. The caller hands in a position such that the effects of all events up to
 * it are there when save() begins; whatever the copy holds beyond it is applied again after a
 * restart, and every effect is idempotent.
 *
 * Only accounts that were there at the beginning are saved, and edges to later ones are left out:
 * the event that made such an account, and each event that names it, comes after the position and
 * will be applied again. So will groups. A timeline or an inbox that is being rebuilt is saved as
 * dropped.
 *
 * The file is written beside the old one, synced, and renamed over it: a save that dies leaves the
 * old one. */
#include <errno.h>
#include <fcntl.h>
#include <libgen.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/fault.h"
#include "base/hash.h"
#include "view/memory/driver.h"
#include "view/memory/snapshot.h"

/* How much may wait in the page cache: a flood of dirty pages would delay the commits of the store
 * beside us. */
#define UNSYNCED_MAX_BYTES (UINT64_C(32) << 20)

struct writer {
    int fd;
    char *block;
    size_t used, room;
    struct snapshot_block head;
    uint64_t position;
    uint64_t written, synced;
};

static enum err write_all(struct writer *w, const void *bytes, size_t n)
{
    const char *p = bytes;
    while (n > 0) {
        ssize_t done = write(w->fd, p, n);
        if (done < 0 && errno == EINTR)
            continue;
        if (done <= 0)
            return errno == ENOSPC || errno == EDQUOT ? ERR_STORAGE_FULL : ERR_UNAVAILABLE;
        p += done;
        n -= (size_t)done;
        w->written += (uint64_t)done;
    }
    if (w->written - w->synced > UNSYNCED_MAX_BYTES) {
        (void)sync_file_range(w->fd, (off_t)w->synced, (off_t)(UNSYNCED_MAX_BYTES / 2),
                              SYNC_FILE_RANGE_WAIT_BEFORE | SYNC_FILE_RANGE_WRITE |
                                  SYNC_FILE_RANGE_WAIT_AFTER);
        w->synced += UNSYNCED_MAX_BYTES / 2;
        (void)sync_file_range(w->fd, (off_t)w->synced, 0, SYNC_FILE_RANGE_WRITE);
    }
    return OK;
}

static enum err close_block(struct writer *w)
{
    if (w->head.slots == 0)
        return OK;
    w->head.mark = SNAPSHOT_MARK;
    w->head.bytes = w->used - sizeof w->head;
    w->head.checksum = hash_checksum(w->block + sizeof w->head, w->head.bytes,
                                     snapshot_block_seed(w->position, w->head.first_slot));
    memcpy(w->block, &w->head, sizeof w->head);
    enum err e = write_all(w, w->block, w->used);
    w->head.first_slot += w->head.slots;
    w->head.slots = 0;
    w->used = sizeof w->head;
    return e;
}

static enum err block_reserve(struct writer *w, uint64_t bytes)
{
    if (w->room >= w->used + bytes)
        return OK;
    size_t room = w->used + bytes + bytes / 4;
    char *block = realloc(w->block, room);
    if (!block)
        return ERR_NO_MEMORY;
    w->block = block;
    w->room = room;
    return OK;
}

static uint32_t groups_below(const struct inbox *b, uint32_t accounts)
{
    uint32_t n = 0, count = inbox_get(b, count);
    const uint32_t *groups = count > 0 ? inbox_groups(b) : NULL;
    for (uint32_t i = 0; i < count; i++)
        n += groups[i] < accounts;
    return n;
}

/* What of the account would be written now; its latch is held. */
static struct snapshot_record describe(struct memory_views *m, uint32_t slot, uint32_t accounts)
{
    const struct person *p = &m->people[slot];
    const struct timeline *t = &m->timelines[slot];
    const struct inbox *inbox = &m->inboxes[slot];
    bool group = flag_get(m->grouped, slot), has_inbox = inbox->state == INBOX_READY;
    struct pull_list *pull = pull_of(m, slot);
    bool ready = t->state == TIMELINE_READY;
    return (struct snapshot_record){
        .id = m->ids[slot],
        .floor = ready ? t->floor : 0,
        .seen = atomic_load_explicit(&m->seen[slot], memory_order_relaxed),
        .flags = (flag_get(m->hidden, slot) ? SNAPSHOT_HIDDEN : 0u) |
                 (ready ? SNAPSHOT_READY : 0u) | (pull ? SNAPSHOT_PULLED : 0u) |
                 (group ? SNAPSHOT_GROUP : 0u) | (has_inbox ? SNAPSHOT_INBOX_READY : 0u),
        .entries = ready ? timeline_get(t, count) : 0,
        .pulls = pull ? (uint32_t)pull_list_count(pull) : 0,
        .following = slot_list_at_least(&p->following, accounts),
        .mutes = p->mutes ? slot_list_at_least(p->mutes, accounts) : 0,
        .inbox = has_inbox ? groups_below(inbox, accounts) : 0,
        .members = group ? follower_set_below(&p->followers, accounts) : 0,
    };
}

static void copy_slots(char **at, const struct slot_list *l, uint32_t count)
{
    if (count > 0)
        memcpy(*at, l->slots, count * sizeof *l->slots);
    *at += count * sizeof *l->slots;
}

static void copy_inbox(char **at, const struct inbox *b, uint32_t count, uint32_t accounts)
{
    uint64_t *activities = (uint64_t *)(void *)*at;
    uint32_t *groups = (uint32_t *)(void *)(activities + count), n = 0;
    for (uint32_t i = 0; n < count; i++) {
        if (inbox_groups(b)[i] >= accounts)
            continue;
        activities[n] = inbox_get(b, activities)[i];
        groups[n++] = inbox_groups(b)[i];
    }
    *at += count * (sizeof *activities + sizeof *groups);
}

/* Copies into the block, which has room. */
static void copy_account(struct memory_views *m, uint32_t slot, uint32_t accounts,
                         struct snapshot_record *r, char *to)
{
    const struct person *p = &m->people[slot];
    char *at = to + sizeof *r;
    memset(to + snapshot_record_bytes(r, SNAPSHOT_VERSION) - 8, 0,
           8); /* the padding, before the rest covers it */
    if (r->entries > 0)
        timeline_copy(&m->timelines[slot], (uint64_t *)(void *)at);
    at += r->entries * sizeof(uint64_t);
    if (r->flags & SNAPSHOT_PULLED)
        (void)pull_list_read(pull_of(m, slot), UINT64_MAX, 0, (uint64_t *)(void *)at, r->pulls,
                             &r->pull_floor);
    at += r->pulls * sizeof(uint64_t);
    copy_inbox(&at, &m->inboxes[slot], r->inbox, accounts);
    copy_slots(&at, &p->following, r->following);
    if (r->mutes > 0)
        copy_slots(&at, p->mutes, r->mutes);
    if (r->members > 0)
        (void)follower_set_read(&p->followers, 0, (uint32_t *)(void *)at, r->members);
    memcpy(to, r, sizeof *r);
}

static enum err save_account(struct memory_views *m, struct writer *w, uint32_t slot,
                             uint32_t accounts)
{
    for (;;) {
        person_lock(m, slot);
        struct snapshot_record r = describe(m, slot, accounts);
        uint64_t bytes = snapshot_record_bytes(&r, SNAPSHOT_VERSION);
        bool fits = w->room >= w->used + bytes;
        if (fits)
            copy_account(m, slot, accounts, &r, w->block + w->used);
        person_unlock(m, slot);
        if (fits) {
            w->used += bytes;
            w->head.slots++;
            return OK;
        }
        TRY(block_reserve(w, bytes));
    }
}

static enum err write_snapshot(struct memory_views *m, struct writer *w)
{
    uint32_t accounts = atomic_load_explicit(&m->accounts, memory_order_acquire);
    struct snapshot_header h = {
        .magic = SNAPSHOT_MAGIC,
        .version = SNAPSHOT_VERSION,
        .accounts = accounts,
        .position = w->position,
        .saved_at_ms = clock_wall_ms(m->clock),
        .timeline_cap = m->views.cap,
        .pull_cap = m->pull_cap,
    };
    h.checksum = hash_checksum(&h, offsetof(struct snapshot_header, checksum), 0);
    enum err e = write_all(w, &h, sizeof h);
    w->used = sizeof w->head;
    if (e == OK)
        e = block_reserve(w, SNAPSHOT_BLOCK_BYTES + SNAPSHOT_BLOCK_BYTES / 4);
    for (uint32_t slot = 0; slot < accounts && e == OK; slot++) {
        e = save_account(m, w, slot, accounts);
        if (e == OK && w->used >= SNAPSHOT_BLOCK_BYTES)
            e = close_block(w);
        if (slot == accounts / 2)
            FAULT(snapshot_half_written);
    }
    return e == OK ? close_block(w) : e;
}

static enum err sync_folder(const char *path)
{
    char copy[PATH_MAX];
    if (snprintf(copy, sizeof copy, "%s", path) >= (int)sizeof copy)
        return ERR_UNAVAILABLE;
    int fd = open(dirname(copy), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0)
        return ERR_UNAVAILABLE;
    enum err e = fsync(fd) == 0 ? OK : ERR_UNAVAILABLE;
    close(fd);
    return e;
}

static enum err save_to(struct memory_views *m, const char *part, struct writer *w)
{
    FAULT(snapshot_before_write);
    w->fd = open(part, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    if (w->fd < 0)
        return errno == ENOSPC ? ERR_STORAGE_FULL : ERR_UNAVAILABLE;
    enum err e = write_snapshot(m, w);
    if (e == OK && fdatasync(w->fd) != 0)
        e = errno == ENOSPC ? ERR_STORAGE_FULL : ERR_UNAVAILABLE;
    if (close(w->fd) != 0 && e == OK)
        e = ERR_UNAVAILABLE;
    FAULT(snapshot_before_rename);
    if (e == OK && rename(part, m->snapshot_path) != 0)
        e = ERR_UNAVAILABLE;
    if (e != OK)
        (void)unlink(part);
    else
        e = sync_folder(m->snapshot_path);
    FAULT(snapshot_after_rename);
    return e;
}

/* Position 0 covers nothing, and a file that says so would be as good as none: nothing is written.
 */
enum err memory_save(struct views *v, uint64_t position)
{
    struct memory_views *m = CONTAINER_OF(v, struct memory_views, views);
    char part[PATH_MAX];
    if (!m->snapshot_path || position == 0)
        return OK;
    if (snprintf(part, sizeof part, "%s.part", m->snapshot_path) >= (int)sizeof part)
        return ERR_UNAVAILABLE;
    pthread_mutex_lock(&m->saving);
    int64_t began_us = clock_mono_us(m->clock);
    struct writer w = {.position = position};
    enum err e = atomic_load(&m->lost) ? ERR_CONFLICT : save_to(m, part, &w);
    free(w.block);
    if (e == OK) {
        atomic_store(&m->saved_position, position);
        atomic_store(&m->saved_at_ms, clock_wall_ms(m->clock));
        atomic_store(&m->save_took_ms, (clock_mono_us(m->clock) - began_us) / 1000);
        atomic_store(&m->save_bytes, (int64_t)w.written);
    }
    pthread_mutex_unlock(&m->saving);
    return e;
}
