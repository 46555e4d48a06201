/* A page that is drawn from Redis while another process changes what it is made of: words for the
 * tests of the invalidation listener. */
#pragma once

#include <pthread.h>

#include "port/event.h"
#include "redis_servers.h"
#include "view/redis/redis.h"

enum {
    VIEWER = 1,
    OTHER_VIEWER = 2,
    AUTHOR = 5000,
    FRIEND = 5001, /* not followed yet */
    STAR = 5002,   /* has a pull list */
    RISING = 5003, /* will have one */
    STRANGER = 5004,
    CAP = 50,
    PAGE = 20,
    PATIENCE_MS = 20000
};

#define POST(n)   ((UINT64_C(1000) + (n)) << 22)
#define FIRST     POST(1) /* the author's */
#define OWN       POST(2)
#define STARS     POST(3)
#define LIKED     FIRST
#define ELSEWHERE POST(900)

/* One process's drivers; others have no invalidation. */
struct process {
    struct views *v;
    struct cards *c;
};

struct fixture {
    struct redis_servers servers;
    struct redis_config config;
    struct invalidation *w;
    struct process mine, other;
    pid_t stopped;
};

/* ---- life: state is the kind of servers before, the fixture after ---- */

extern const char *servers_script;
int set_up(void **state);
int tear_down(void **state);
void open_process(const struct redis_config *config, struct process *p);
void close_process(struct process *p);

size_t viewers_host(struct fixture *f);
void stop_server(struct fixture *f); /* the one that serves the viewer */
void go_on(struct fixture *f);

int64_t now_ms(void);
void a_moment(void);

/* ---- changing ---- */

void load(struct fixture *f);
void apply(struct process *p, struct view_change change);
void follow(struct process *p, uint64_t viewer, uint64_t author, bool on);
void post(struct process *p, uint64_t author, uint64_t id, enum delivery how, bool on);
void put_card(struct process *p, uint64_t id, uint64_t author, uint32_t likes);
void put_account(struct process *p, uint64_t id);
void put_likes(struct process *p, uint64_t viewer);
/* To all of the author's followers that are there. */
void deliver(struct process *p, uint64_t author, uint64_t id, bool retract);

/* ---- reading ---- */

/* As a page is drawn; ids that are on it. */
size_t draw(struct process *p, uint64_t *ids);
/* Until the invalidation listener hears from everybody, and all is there. */
void note(struct fixture *f, struct read_trace *trace);
bool same(struct fixture *f, const struct read_trace *t);

/* ---- asking ---- */

struct question {
    struct invalidation_question q;
    pthread_mutex_t lock;
    pthread_cond_t told;
    int answers;
    bool good;
};

#define A_QUESTION                                                                                 \
    {                                                                                              \
        .q.done = on_done, .lock = PTHREAD_MUTEX_INITIALIZER, .told = PTHREAD_COND_INITIALIZER     \
    }

void on_done(struct invalidation_question *base, bool good);
bool await(struct question *q);
bool ask(struct invalidation *w); /* and waits; fails if that takes too long */
