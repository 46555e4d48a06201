/* What people with an open stream are told, and when: "something is new, ask for it".
 *
 *   hello  {"account"}        from now on everything is told: read what was missed before. Comes
 *                             first, and again when something may have been missed
 *   group  {"group","seq"}    the group has entries up to this number; to who was removed, that of
 *                             the removal
 *   feed   {"id"}             a new post in the home feed
 *   read   {"group","seq"}    read up to there, on another device perhaps
 *
 * A hint holds no content: what it leads to is asked for as ever, and is refused as ever. Of
 * several hints about one group only the last is sent when a client is slow. Posts that are pulled
 * (of people with very many followers) are hinted at where the engine tells of them.
 *
 * One thread makes the hints: hints_step(). The views say whose inbox or timeline has changed, this
 * module remembers what the top of each looked like, and tells the difference. With views of this
 * process news are callbacks; with shared ones the watch hears of changes by any node, so a stream
 * works at any node. A read mark, or the end of a session, is in truth alone: the node that commits
 * it says so (hints_committed), to the others by views_touch(). Should it die just then, the mark
 * itself is safe, and is shown with the next look at the inbox. Entries of a group that are no
 * messages change no inbox either: they are told to the others by views_tell(), once more by the
 * node that leads, and to the members who listen by hints_news.c.
 *
 * Whoever listens is here: the views are told so again and again (VIEW_SEEN), or somebody who
 * listens for long and asks for nothing would be served last, and be pulled for in large groups. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/clock.h"
#include "base/err.h"
#include "port/cards.h"
#include "port/db.h"
#include "port/event.h"
#include "port/views.h"

struct hints;
struct hub;
struct stream;
struct watch;

struct hints_config {
    struct db *db;
    struct views *views;
    struct cards *cards;
    struct watch *watch; /* NULL: the views are this process's own and tell by themselves */
    struct clock *clock;
    size_t streams_max;
    unsigned person_max;
    int64_t active_within_ms; /* of large fan-outs; 0: nobody asks */
    void (*wake)(void *ctx); /* there is something to do: call the step. Any thread, never blocks */
    void *wake_ctx;
};

/* Before the views' first change, when they are of this process: it takes their callback. */
struct hints *hints_new(const struct hints_config *config);
/* After the server and the thread that calls the step, before the views. */
void hints_free(struct hints *h);
struct hub *hints_hub(struct hints *h);

/* The stream's person is listened to from now on; errors are hub_join's. `session`: it ends with
 * that; 0: with the account alone. Never blocks. */
enum err hints_join(struct hints *h, uint64_t person, uint64_t session, struct stream *s);

/* The commit hook's part. Never blocks. */
void hints_committed(struct hints *h, const struct event *events, size_t n);
/* The entries of groups among these, once more perhaps. Never blocks. */
void hints_entries(struct hints *h, const struct event *events, size_t n);

/* Blocking, one caller; returns when to call again (monotonic µs). */
int64_t hints_step(struct hints *h);

struct hints_stats {
    uint64_t persons; /* listened to now */
    uint64_t looks;   /* so far: how often somebody's inbox or feed was looked at */
    uint64_t failed;  /* of which in vain: views or truth did not answer */
    uint64_t sent;    /* hints, each to all streams of one person */
    uint64_t missed;  /* touches that found no room */
};
void hints_stats(struct hints *h, struct hints_stats *out);
