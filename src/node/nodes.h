/* The nodes that use one store: a row each, with its number (which is in every id it gives), where
 * others reach it, what it does, and its beat. A number is 1 … NODE_MAX. It belongs to the node
 * that wrote the row's token; when the beat has not moved for NODE_SILENCE_MS of a watcher's own
 * time, another node may have the number. A node that could not count its beat for NODE_GIVE_UP_MS
 * writes nothing until it can. */
#pragma once

#include "api/edge/cluster.h"
#include "port/db.h"

enum {
    NODE_MAX = 1023,
    NODE_BEAT_MS = 1000,
    NODE_GIVE_UP_MS = 20000,  /* silent for so long: writes nothing */
    NODE_SILENCE_MS = 60000,  /* silent for so long: its number is free */
    NODE_FORGET_MS = 3600000, /* silent for so long: its row is removed */
};

/* A row: what all may know, and what tells its owners apart. */
struct node {
    struct cluster_node shown;
    uint64_t token; /* random: means one data folder's node, also over a restart */
    uint64_t beat;
};

/* Takes a number for `self` (token, roles, address, version, started_ms): the one that its token
 * has, else a free one. Numbers of silent nodes are free only when `watch` has watched them for
 * NODE_SILENCE_MS. ERR_OVERLOADED: none is free. */
struct node_watch;
struct clock;
enum err node_join(struct db *db, struct node_watch *watch, struct node *self, int64_t now_us);
/* Counts a beat with the report and the address. ERR_CONFLICT: the number was given to another
 * node. */
enum err node_beat(struct db *db, struct node *self);
enum err node_leave(struct db *db, struct node *self); /* says that it goes; keeps its number */

/* All nodes, by number, as of the last look, with how long they have been silent. Any thread may
 * read; one thread looks. */
struct node_watch *node_watch_new(struct clock *clock);
void node_watch_free(struct node_watch *w);
enum err node_watch_look(struct node_watch *w, struct db *db, int64_t now_us);
/* Copies at most `max` of them; returns how many there are. */
size_t node_watch_list(struct node_watch *w, struct cluster_node *out, size_t max);

/* "api,worker"; false: an unknown or no role. "gateway" names a role that did nothing: it is taken
 * for one version more, adds nothing, and *retired says that it was there. */
bool roles_parse(struct str text, unsigned *roles, bool *retired);
