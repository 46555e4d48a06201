/* The overload guard's levels and its reserve.
 *
 * The disk and the backlog each have a level of their own, because each remembers which limit it
 * passed: a level lasts until there is a tenth more room than its limit, so that the server does
 * not change its level with every commit. The guard's level is the higher of the two.
 *
 * A commit that found no room counts for the disk, whatever the file system says of free space
 * (quotas, reserved blocks, other processes' writes). It counts for FULL_LOOKS looks: once the
 * server refuses growing writes no commit fails any more, and nothing else would show that the disk
 * is still full.
 *
 * The reserve's room never counts as free: while the file is missing, the disk counts as having
 * that much less. Otherwise releasing a large reserve would end the level that released it, and
 * making it again would start the next. */
#include "ops/overload_guard.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/log.h"

enum { FULL_LOOKS = 100, PATH_TEXT_MAX = 4096, WHY_MAX = 120 };

#define RESERVE_FILE "reserve"

static int64_t file_system_free(const char *folder)
{
    struct statvfs s;
    if (statvfs(folder, &s) != 0)
        return -1;
    uint64_t bytes;
    if (__builtin_mul_overflow((uint64_t)s.f_bavail, (uint64_t)s.f_frsize, &bytes) ||
        bytes > INT64_MAX)
        return INT64_MAX;
    return (int64_t)bytes;
}

/* ---- the reserve ---- */

static bool wants_reserve(const struct overload_guard *b)
{
    return b->config.reserve_bytes > 0 && b->config.free_bytes > 0;
}

static bool reserve_path(const struct overload_guard *b, char path[PATH_TEXT_MAX])
{
    int n = snprintf(path, PATH_TEXT_MAX, "%s/" RESERVE_FILE, b->config.folder);
    return n > 0 && n < PATH_TEXT_MAX;
}

static void reserve_give_up(struct overload_guard *b)
{
    char path[PATH_TEXT_MAX];
    if (!b->reserved || !reserve_path(b, path) || (unlink(path) != 0 && errno != ENOENT))
        return;
    b->reserved = false;
    log_warn("the reserve was given up, so that deletes find room",
             LOG_INT("bytes", b->config.reserve_bytes));
}

/* A file whose blocks are really there: a sparse one would keep nothing free. */
static void reserve_make(struct overload_guard *b)
{
    char path[PATH_TEXT_MAX];
    if (b->reserved || !wants_reserve(b) || !reserve_path(b, path))
        return;
    int file = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
    if (file < 0)
        return;
    b->reserved = ftruncate(file, b->config.reserve_bytes) == 0 &&
                  posix_fallocate(file, 0, b->config.reserve_bytes) == 0;
    (void)close(file);
    if (!b->reserved)
        (void)unlink(path); /* a partial reserve is useless, but its room is not */
}

/* What an earlier process or another configuration left. */
static void reserve_remove(const struct overload_guard *b)
{
    char path[PATH_TEXT_MAX];
    if (reserve_path(b, path))
        (void)unlink(path);
}

/* ---- levels ---- */

/* Each limit is passed strictly and left with a tenth of it to spare. `room` and `limit` may be
 * near the end of their type: no product of them is formed. */
static int level_by_room(int before, int64_t room, int64_t limit)
{
    int64_t twice = limit > INT64_MAX / 2 ? INT64_MAX : limit * 2;
    if (room < limit || (before == 2 && room - limit < limit / 10))
        return 2;
    if (room < twice || (before >= 1 && room - twice < twice / 10))
        return 1;
    return 0;
}

static int level_by_backlog(int before, uint64_t backlog, uint64_t limit)
{
    uint64_t half = limit / 2;
    if (backlog > limit || (before == 2 && backlog > limit - limit / 10))
        return 2;
    if (backlog > half || (before >= 1 && backlog > half - half / 10))
        return 1;
    return 0;
}

/* -1: unknown. */
static int64_t see_room(struct overload_guard *b)
{
    const struct overload_guard_config *c = &b->config;
    int64_t free_bytes = (c->disk_free ? c->disk_free : file_system_free)(c->folder);
    if (free_bytes < 0)
        return -1;
    atomic_store(&b->free_bytes, free_bytes);
    if (!wants_reserve(b) || b->reserved)
        return free_bytes;
    return free_bytes > c->reserve_bytes ? free_bytes - c->reserve_bytes : 0;
}

static void look_at_disk(struct overload_guard *b, bool store_full)
{
    int64_t room = see_room(b);
    if (b->config.free_bytes == 0)
        return;
    if (store_full)
        b->full_looks = FULL_LOOKS;
    else if (b->full_looks > 0)
        b->full_looks--;
    atomic_store(&b->full, b->full_looks > 0);
    if (room >= 0) /* else the last known figure stands */
        b->disk_level = level_by_room(b->disk_level, room, b->config.free_bytes);
}

static void log_change(const struct overload_guard *b, int before, int level)
{
    char why[WHY_MAX];
    overload_guard_why(b, why);
    if (level == 0)
        log_info("the overload guard is off", LOG_INT("level", level), LOG_INT("before", before));
    else if (level > before)
        log_warn(level == 2 ? "the overload guard is on: bulk work stopped, new posts are refused"
                            : "the overload guard is on: bulk work stopped",
                 LOG_INT("level", level), LOG_CSTR("why", why));
    else
        log_info("the overload guard is eased: new posts are taken again", LOG_INT("level", level),
                 LOG_CSTR("why", why));
}

void overload_guard_init(struct overload_guard *b, const struct overload_guard_config *config)
{
    memset(b, 0, sizeof *b);
    b->config = *config;
    atomic_store(&b->free_bytes, -1);
    reserve_remove(b);
    if (see_room(b) >= config->free_bytes)
        reserve_make(b);
    if (wants_reserve(b) && !b->reserved)
        log_warn("no room could be reserved for deletes on a full disk",
                 LOG_INT("bytes", config->reserve_bytes));
}

int overload_guard_look(struct overload_guard *b, uint64_t backlog, bool store_full)
{
    atomic_store(&b->backlog_seen, backlog);
    look_at_disk(b, store_full);
    b->backlog_level = b->config.backlog_max
                           ? level_by_backlog(b->backlog_level, backlog, b->config.backlog_max)
                           : 0;
    int disk = b->full_looks > 0 ? 2 : b->disk_level;
    int level = disk > b->backlog_level ? disk : b->backlog_level;
    int before = atomic_load(&b->level);
    atomic_store(&b->disk, level > 0 && disk == level);
    atomic_store(&b->backlog, level > 0 && b->backlog_level == level);
    atomic_store(&b->level, level);
    if (level != before)
        log_change(b, before, level);
    if (disk == 2)
        reserve_give_up(b);
    else if (level == 0)
        reserve_make(b);
    return level;
}

/* ---- words ---- */

static void say(struct buf *out, const char *what, int64_t number, const char *unit)
{
    if (out->len > 0)
        buf_str(out, STR(", and "));
    buf_str(out, str_of(what));
    buf_str(out, STR(" ("));
    buf_u64(out, (uint64_t)number);
    buf_str(out, str_of(unit));
}

/* The longest that can be said fits: the test says it. */
void overload_guard_why(const struct overload_guard *b, char out[WHY_MAX])
{
    int level = atomic_load(&b->level);
    struct buf text = buf_over(out, WHY_MAX - 1);
    if (atomic_load(&b->disk))
        say(&text,
            atomic_load(&b->full) ? "a write found no room on the disk"
            : level == 2          ? "the disk is nearly full"
                                  : "the disk is filling up",
            atomic_load(&b->free_bytes) / (1 << 20), " MiB free)");
    if (atomic_load(&b->backlog))
        say(&text, level == 2 ? "the backlog is too long" : "the backlog is long",
            (int64_t)atomic_load(&b->backlog_seen), " events)");
    out[text.len] = '\0';
}
