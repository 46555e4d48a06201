/* Edges by the thousand: from a loader, what truth says, without events; and from an import, with
 * theirs.
 *
 * One by one each follow is two scripts, and a script costs Redis more than the edge that it puts
 * into a set. So all edges of one account go in one command: whom it follows, and who follows it. A
 * loader walks by follower, whose edges lie together; by author they are sorted here, and the more
 * changes come in one call the more of them share an author.
 *
 * A loader's edges name no event, so none counts against what an event said: where the latest
 * events of an account are known, the script looks each edge up there. Edges with events are looked
 * up, too, and noted: they count as they would one by one. */
#include <stdlib.h>

#include "view/redis/driver.h"

enum { EDGES_A_COMMAND = 1000, COMMANDS_A_FLUSH = 2048 };

/* Edges of one account, one command. */
struct run {
    uint64_t account;
    size_t from, count; /* of the others */
};

struct loading {
    struct redis_views *r;
    struct batch *b, *told;
    uint64_t *keys, *others;    /* edge i: keys[i] to others[i], */
    struct edge_event *changes; /* or, with its event, to changes[i]; NULL: there are no events */
    struct run runs[COMMANDS_A_FLUSH];
    size_t run_count;
    bool back; /* from authors to their followers */
};

/* Many edges of one account, each with its event. */
static void queue_changes(struct loading *l, const struct run *run)
{
    const struct edge_event *changes = &l->changes[run->from];
    if (l->back)
        batch_script(
            l->b, SCRIPT_many_followers, arg_people(run->account),
            arg_account(KEY_TIMELINE, run->account), arg_account(KEY_FOLLOWERS, run->account),
            arg_account(KEY_RECENT, run->account), arg_account(KEY_PULL_LIST, run->account),
            arg_number(run->account), arg_number(RECENT_KEEP_MS), arg_back(changes, run->count));
    else
        batch_script(l->b, SCRIPT_many_followed, arg_people(run->account),
                     arg_account(KEY_TIMELINE, run->account),
                     arg_account(KEY_FOLLOWED, run->account), arg_account(KEY_RECENT, run->account),
                     arg_number(run->account), arg_number(RECENT_KEEP_MS),
                     arg_edges(changes, run->count));
}

static void queue_run(struct loading *l, const struct run *run)
{
    const uint64_t *others = &l->others[run->from];
    if (l->back)
        batch_script(
            l->b, SCRIPT_load_followers, arg_people(run->account),
            arg_account(KEY_TIMELINE, run->account), arg_account(KEY_FOLLOWERS, run->account),
            arg_account(KEY_RECENT, run->account), arg_account(KEY_PULL_LIST, run->account),
            arg_number(run->account), arg_ids(others, run->count));
    else
        batch_script(l->b, SCRIPT_load_followed, arg_people(run->account),
                     arg_account(KEY_TIMELINE, run->account),
                     arg_account(KEY_FOLLOWED, run->account), arg_account(KEY_RECENT, run->account),
                     arg_number(run->account), arg_numbers(others, run->count));
}

/* Who follows an author whose posts are pulled has to know. */
static enum err tell_followers(struct loading *l, const struct run *run)
{
    batch_reset(l->told);
    for (size_t i = 0; i < run->count; i++)
        tell_of_pull_list(l->told, l->others[run->from + i], run->account);
    return batch_flush(l->told, FLUSH_GOOD);
}

static enum err flush_runs(struct loading *l)
{
    /* A replica that has a loader's last mark has everything before it. */
    TRY(batch_flush(l->b, FLUSH_GOOD | (l->changes ? FLUSH_REPLICATE : 0)));
    for (size_t i = 0; i < l->run_count; i++) {
        int64_t is_new = reply_number(l->b, i, 0);
        tally_add(l->r, TALLY_ACCOUNTS, is_new);
        tally_add(l->r, TALLY_DROPPED, is_new);
        if (l->back)
            tally_add(l->r, TALLY_FOLLOWS, reply_number(l->b, i, 1));
        if (l->back && reply_number(l->b, i, 2) == 1)
            TRY(tell_followers(l, &l->runs[i]));
    }
    batch_reset(l->b);
    l->run_count = 0;
    return OK;
}

static enum err load_runs(struct loading *l, size_t n)
{
    for (size_t from = 0, count; from < n; from += count) {
        for (count = 1;
             from + count < n && count < EDGES_A_COMMAND && l->keys[from + count] == l->keys[from];)
            count++;
        l->runs[l->run_count] = (struct run){l->keys[from], from, count};
        if (l->changes)
            queue_changes(l, &l->runs[l->run_count++]);
        else
            queue_run(l, &l->runs[l->run_count++]);
        if (l->run_count == COMMANDS_A_FLUSH)
            TRY(flush_runs(l));
    }
    return l->run_count > 0 ? flush_runs(l) : OK;
}

struct edge {
    uint64_t from, to, event;
};

static int compare_edges(const void *a, const void *b)
{
    const struct edge *x = a, *y = b;
    if (x->from != y->from)
        return x->from < y->from ? -1 : 1;
    if (x->to != y->to)
        return x->to < y->to ? -1 : 1;
    return x->event < y->event ? -1 : x->event > y->event; /* the latest is the last */
}

/* One direction. Sorted, so that the edges of an account lie together. */
static enum err load_direction(struct loading *l, struct edge *edges, size_t n)
{
    qsort(edges, n, sizeof *edges, compare_edges);
    for (size_t i = 0; i < n; i++) {
        l->keys[i] = edges[i].from;
        l->others[i] = edges[i].to;
        if (l->changes)
            l->changes[i] = (struct edge_event){edges[i].to, edges[i].event};
    }
    return load_runs(l, n);
}

enum err redis_add_follows(struct redis_views *r, const struct view_change *changes, size_t n)
{
    BORROWED struct batch *b = batch_borrow(&r->client);
    BORROWED struct batch *told = batch_borrow(&r->client);
    struct edge *edges = calloc(n, sizeof *edges);
    struct loading *l = calloc(1, sizeof *l);
    CHECK(edges && l);
    *l = (struct loading){.r = r, .b = b, .told = told};
    l->keys = calloc(n, sizeof *l->keys);
    l->others = calloc(n, sizeof *l->others);
    if (n > 0 && changes[0].event)
        l->changes = calloc(n, sizeof *l->changes);
    CHECK(l->keys && l->others && (l->changes || n == 0 || !changes[0].event));
    enum err e = OK;
    for (int back = 0; back < 2 && !e; back++) {
        size_t count = 0;
        for (size_t i = 0; i < n; i++)
            if (changes[i].account != changes[i].other)
                edges[count++] =
                    back ? (struct edge){changes[i].other, changes[i].account, changes[i].event}
                         : (struct edge){changes[i].account, changes[i].other, changes[i].event};
        l->back = back;
        e = load_direction(l, edges, count);
    }
    free(edges);
    free(l->keys);
    free(l->others);
    free(l->changes);
    free(l);
    return e;
}
