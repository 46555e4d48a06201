/* Worlds to measure in: many accounts, edges and posts, written in bulk straight into truth of a
 * temporary data folder, so that the server under test opens them like any other. */
#pragma once

#include "bench/bench.h"
#include "node/runtime.h"

struct world {
    char folder[128];
    struct settings settings;
    int64_t accounts;
    int64_t created_ms;  /* time of the first account's id */
    uint64_t next_post;  /* how many posts were written */
    const char *program; /* that serves it; NULL: this one */
};

/* Makes the folder; the settings are the bench's with that folder in them. */
bool world_init(struct world *w, struct bench *b);
void world_done(struct world *w); /* removes the folder */

uint64_t world_account(const struct world *w, int64_t index); /* the id of account number `index` */

/* Opens the world, writes it, and closes it so that the next open brings the views up from truth:
 * the rows were written past them. On failure `why` says what is wrong. */
typedef enum err (*world_writer)(struct world *w, struct db *db, void *ctx);
enum err world_write(struct world *w, world_writer write, void *ctx, char why[300]);

/* Each writes rows in large transactions. ERR_… as the store says. */
enum err world_write_accounts(struct world *w, struct db *db);
/* follows(ctx, follower, out, max) names the accounts (indexes) that `follower` follows. */
typedef size_t (*world_follows)(void *ctx, int64_t follower, int64_t *out, size_t max);
enum err world_write_follows(struct world *w, struct db *db, int64_t from, int64_t to,
                             world_follows follows, void *ctx);
/* `count` posts of each author in [from, to), interleaved in time; delivery as given. */
enum err world_write_posts(struct world *w, struct db *db, int64_t from, int64_t to, int64_t count,
                           enum delivery delivery);
/* A session for each account in [from, to); tokens[i] is allocated from the arena. */
enum err world_write_sessions(struct world *w, struct db *db, int64_t from, int64_t to,
                              struct arena *arena, struct str *tokens);
enum err world_set_counters(struct world *w, struct db *db, int64_t celebrity_from,
                            int64_t celebrity_to);

/* Delivers one post of an author without followers: rows were written past the engine, and without
 * an event there is no position to save the views at. */
enum err world_settle(const struct world *w, struct runtime *runtime);
/* Opens the world, gives every account an empty, complete timeline, saves the views and closes it
 * again. */
enum err world_fill_timelines(struct world *w, char why[300]);

/* A server of its own (a child process) on the world; *port is where it listens. */
struct server {
    int pid;
    uint16_t port;
    double ready_s; /* from start to /readyz */
};
bool server_start(struct server *s, const struct world *w);
void server_stop(struct server *s, int signal);
/* Processor time that a process has used, seconds; of other loads it depends less than rates do. */
double process_cpu_s(int pid);
/* Resident memory of a process, bytes. */
int64_t process_rss(int pid);
