/* The nodes that use one store: a row each, with its number (which is in every id it gives), where
 * others reach it, what it does, and its beat. A number is 1 … NODE_MAX. It belongs to whoever
 * wrote the row's token; when the beat has not moved for NODE_SILENCE_MS of a watcher's own time,
 * another node may have the number. A node that could not count its beat for NODE_GIVE_UP_MS writes
 * nothing until it can. */
#pragma once

#include "port/db.h"

enum {
    NODE_MAX = 1023,
    NODE_TEXT_MAX = 256,
    NODE_BODY_MAX = 1024,
    NODE_BEAT_MS = 1000,
    NODE_GONE_MS = 5000,      /* silent for so long: shown as gone */
    NODE_GIVE_UP_MS = 20000,  /* silent for so long: writes nothing */
    NODE_SILENCE_MS = 60000,  /* silent for so long: its number is free */
    NODE_FORGET_MS = 3600000, /* silent for so long: its row is removed */
};

enum node_role { ROLE_API = 1, ROLE_RELAY = 2, ROLE_WORKER = 4, ROLE_GATEWAY = 8, ROLE_ALL = 15 };

struct node {
    uint32_t number;
    uint64_t token;              /* random: means one data folder's node, also over a restart */
    unsigned roles;              /* enum node_role */
    char address[NODE_TEXT_MAX]; /* http://host:port for other nodes; "": none */
    char version[32];
    int64_t started_ms;
    uint64_t beat;
    bool leaving;             /* it is shutting down */
    char body[NODE_BODY_MAX]; /* its own words: "key=value key=value" */
    int64_t silent_ms;        /* by the watcher's time since the watch saw it move; out only */
};

/* Takes a number for `self` (token, roles, address, version, started_ms): the one that its token
 * has, else a free one. Numbers of silent nodes are free only when `watch` has watched them for
 * NODE_SILENCE_MS. ERR_OVERLOADED: none is free. */
struct node_watch;
enum err node_join(struct db *db, struct node_watch *watch, struct node *self, int64_t now_us);
/* Counts a beat with the body and the address. ERR_CONFLICT: the number was given to somebody else.
 */
enum err node_beat(struct db *db, struct node *self);
enum err node_leave(struct db *db, struct node *self); /* says that it goes; keeps its number */

/* Everybody, by number, as of the last look, with how long they have been silent. Any thread may
 * read; one thread looks. */
struct node_watch *node_watch_new(void);
void node_watch_free(struct node_watch *w);
enum err node_watch_look(struct node_watch *w, struct db *db, int64_t now_us);
/* Copies at most `max` of them; returns how many there are. */
size_t node_watch_list(struct node_watch *w, struct node *out, size_t max);

const char *role_name(enum node_role role);
/* "api,worker"; false: an unknown or no role. */
bool roles_parse(struct str text, unsigned *roles);
void roles_format(unsigned roles, char out[64]);
