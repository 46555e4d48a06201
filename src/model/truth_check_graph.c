/* The graph in memory against the edges in truth, from both ends: the views keep each edge twice,
 * once for reading feeds and once for fanning out, and either could be wrong alone. Members of
 * groups are edges of the second kind. Both lists are walked side by side in rising order. */
#include "model/inbox.h"
#include "model/truth_check.h"

enum { EDGES_A_PAGE = 1000 };

struct side {
    uint64_t ids[EDGES_A_PAGE];
    size_t at, count;
    uint64_t after; /* the last id read */
    bool end;
};

struct edge_walk {
    struct check *check;
    uint64_t account; /* or a group */
    enum check_edges which;
    struct side truth, views;
};

static enum err read_edges(struct tx *tx, void *arg)
{
    static const char *const sql[] = {
        [CHECK_FOLLOWING] = "SELECT followee_id FROM follows WHERE follower_id = $1 "
                            "AND followee_id > $2 ORDER BY followee_id LIMIT $3",
        [CHECK_FOLLOWERS] = "SELECT follower_id FROM follows WHERE followee_id = $1 "
                            "AND follower_id > $2 ORDER BY follower_id LIMIT $3",
        [CHECK_MEMBERS] = "SELECT account_id FROM group_members WHERE group_id = $1 "
                          "AND account_id > $2 AND left_seq IS NULL ORDER BY account_id LIMIT $3",
    };
    struct edge_walk *w = arg;
    return tx_get_ids(tx, sql[w->which],
                      DB_ARGS(DB_I64(w->account), DB_I64(w->truth.after), DB_I64(EDGES_A_PAGE)),
                      w->truth.ids, EDGES_A_PAGE, &w->truth.count);
}

static enum err read_views(struct edge_walk *w, uint64_t after, uint64_t *ids, size_t max,
                           size_t *n)
{
    enum err e = graph_neighbours(w->check->views->graph, w->account, w->which != CHECK_FOLLOWING,
                                  after, ids, max, n);
    if (e != ERR_NOT_FOUND || w->which != CHECK_MEMBERS)
        return e;
    *n = 0; /* a group that the views do not know has no members there */
    return OK;
}

static enum err refill(struct edge_walk *w, struct side *s)
{
    if (s->at < s->count || s->end)
        return OK;
    TRY(s == &w->truth ? db_read(w->check->db, read_edges, w, NULL)
                       : read_views(w, s->after, s->ids, EDGES_A_PAGE, &s->count));
    s->at = 0;
    s->end = s->count < EDGES_A_PAGE;
    if (s->count > 0)
        s->after = s->ids[s->count - 1];
    return OK;
}

struct edge {
    uint64_t follower, followee; /* or member and group */
    bool of_group, present;
};

static enum err read_edge(struct tx *tx, void *arg)
{
    struct edge *edge = arg;
    int64_t count = 0;
    enum err e = tx_get_i64(
        tx,
        edge->of_group
            ? "SELECT COUNT(*) FROM group_members WHERE account_id = $1 AND group_id = $2 "
              "AND left_seq IS NULL"
            : "SELECT COUNT(*) FROM follows WHERE follower_id = $1 AND followee_id = $2",
        DB_ARGS(DB_I64(edge->follower), DB_I64(edge->followee)), &count);
    edge->present = count > 0;
    return e;
}

/* Truth and views differed about this edge when their pages were read. Do they still? */
static enum err look_again(struct edge_walk *w, uint64_t other, struct edge *edge, bool *differs)
{
    bool towards = w->which != CHECK_FOLLOWING;
    edge->follower = towards ? other : w->account;
    edge->followee = towards ? w->account : other;
    edge->of_group = w->which == CHECK_MEMBERS;
    *differs = true;
    enum err e = OK;
    for (int look = 1; !e && *differs && look < CHECK_LOOKS; look++) {
        uint64_t found = 0;
        size_t n = 0;
        e = db_read(w->check->db, read_edge, edge, NULL);
        if (!e)
            e = read_views(w, other - 1, &found, 1, &n);
        *differs = edge->present != (n == 1 && found == other);
    }
    return e;
}

/* The edge may come or go while it is repaired: what truth says is told by an event, in the order
 * of the commits, so that a repair never undoes an unfollow that was answered meanwhile. Such an
 * event has no subject: no account acted on another. */
static enum err tell_edge(struct tx *tx, void *arg)
{
    struct edge *edge = arg;
    TRY(read_edge(tx, edge));
    if (edge->of_group)
        return outbox_emit(
            tx, (struct event){.type = edge->present ? EVENT_GROUP_JOINED : EVENT_GROUP_LEFT,
                               .actor = edge->followee,
                               .object = edge->follower});
    return outbox_emit(
        tx, (struct event){.type = edge->present ? EVENT_FOLLOW_CREATED : EVENT_FOLLOW_REMOVED,
                           .actor = edge->follower,
                           .object = edge->followee});
}

static enum err report(struct edge_walk *w, const struct edge *edge)
{
    struct check *k = w->check;
    k->result->edge_errors++;
    check_tell(k, &(struct check_difference){.kind = DIFFERENCE_EDGE,
                                             .account = edge->follower,
                                             .group = edge->of_group ? edge->followee : 0,
                                             .followee = edge->of_group ? 0 : edge->followee,
                                             .only_in_truth = edge->present});
    if (!k->repair)
        return OK;
    struct edge now = *edge;
    enum err e = db_write(k->db, tell_edge, &now, NULL);
    k->result->repaired += !e;
    /* Who joins stands on top of the inbox; who was a member all along does not. */
    if (!e && edge->of_group)
        (void)inbox_rebuild(k->views, k->db, edge->follower, true);
    return e;
}

enum err check_graph(struct check *k, uint64_t account, enum check_edges which)
{
    struct edge_walk *w = ARENA_NEW(&k->arena, struct edge_walk);
    w->check = k;
    w->account = account;
    w->which = which;
    for (;;) {
        enum err e = refill(w, &w->truth);
        if (!e)
            e = refill(w, &w->views);
        if (e)
            return e;
        bool truth = w->truth.at < w->truth.count, views = w->views.at < w->views.count;
        if (!truth && !views)
            return OK;
        uint64_t a = truth ? w->truth.ids[w->truth.at] : UINT64_MAX;
        uint64_t b = views ? w->views.ids[w->views.at] : UINT64_MAX;
        k->result->edges++;
        w->truth.at += a <= b;
        w->views.at += b <= a;
        if (a == b)
            continue;
        struct edge edge;
        bool differs;
        e = look_again(w, a < b ? a : b, &edge, &differs);
        if (!e && differs)
            e = report(w, &edge);
        if (e)
            return e;
    }
}
