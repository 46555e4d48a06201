/* Sending and answering.
 *
 * A flush goes in rounds: whatever has no final reply yet is given to the node that serves its
 * slot, each node gets one connection and its share in one piece, and all of them are read side by
 * side. What comes back as MOVED, ASK, TRYAGAIN and the like, or does not come back at all, is left
 * for the next round; when nothing was achieved in a round the slot map is asked for again and a
 * short pause follows. A batch in a hurry asks once more which node serves a slot, and fails when
 * that node is away.
 *
 * Timeouts count from the last byte that moved, so a long batch to a busy server is no failure. */
#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>

#include "base/check.h"
#include "base/clock.h"
#include "base/log.h"
#include "view/redis/batch_state.h"

enum {
    PAUSE_FIRST_MS = 5,
    PAUSE_LAST_MS = 100,
    REPLICATE_WAIT_MS = 100,
    HINTS_MAX = 8,    /* rounds without a pause: nodes may send us around in circles */
    PASSED_OVER = -1, /* in a lane's queue: a reply that belongs to no command */
    REPLICATED = -2,  /* how many replicas have it */
    LEADS_TO = -3     /* LEADS_TO - n: one that comes before the reply to command n */
};

static int64_t now_ms(void)
{
    return clock_mono_ms(clock_system());
}

/* ---- replies ---- */

/* hiredis makes a reply of many pieces, and the batch frees all of them at once: they lie in its
 * arena. A connection that is given back makes its replies as before. */
static redisReply *new_reply(const redisReadTask *task, size_t more)
{
    redisReply *r = arena_alloc(task->privdata, sizeof *r + more);
    r->type = task->type;
    if (task->parent)
        ((redisReply *)task->parent->obj)->element[task->idx] = r;
    return r;
}

static void *new_text(const redisReadTask *task, char *text, size_t n)
{
    redisReply *r = new_reply(task, n + 1);
    r->str = memcpy(r + 1, text, n);
    r->len = n;
    return r;
}

#if HIREDIS_MAJOR >= 1
static void *new_array(const redisReadTask *task, size_t n)
#else
static void *new_array(const redisReadTask *task, int n)
#endif
{
    redisReply *r = new_reply(task, (size_t)n * sizeof *r->element);
    r->element = (redisReply **)(void *)(r + 1);
    r->elements = (size_t)n;
    return r;
}

static void *new_integer(const redisReadTask *task, long long n)
{
    redisReply *r = new_reply(task, 0);
    r->integer = n;
    return r;
}

static void *new_nil(const redisReadTask *task)
{
    redisReply *r = new_reply(task, 0);
    r->type = REDIS_REPLY_NIL; /* the task is a text that is not there */
    return r;
}

static void free_none(void *reply)
{
    (void)reply;
}

static redisReplyObjectFunctions in_arena = {.createString = new_text,
                                             .createArray = new_array,
                                             .createInteger = new_integer,
                                             .createNil = new_nil,
                                             .freeObject = free_none};

static void lane_take_reader(struct batch *b, struct lane *lane)
{
    redisReader *reader = lane->c->context->reader;
    lane->makes = reader->fn;
    reader->fn = &in_arena;
    reader->privdata = &b->replies;
}

/* Nothing is left in it: every command was answered. */
static void lane_give_reader(struct lane *lane)
{
    redisReader *reader = lane->c->context->reader;
    reader->fn = lane->makes;
    reader->privdata = NULL;
}

/* ---- lanes ---- */

static struct lane *lane_of(struct batch *b, unsigned node)
{
    struct lane *lane = b->lanes[node];
    if (!lane) {
        lane = b->lanes[node] = calloc(1, sizeof *lane);
        CHECK(lane);
        buf_init(&lane->out, 0); /* bounded by the batch that it is copied from */
    }
    return lane;
}

static void lane_expect(struct lane *lane, int32_t command)
{
    if (lane->queued == lane->queue_max) {
        lane->queue_max = lane->queue_max ? lane->queue_max * 2 : 64;
        lane->queue = realloc(lane->queue, lane->queue_max * sizeof *lane->queue);
        CHECK(lane->queue);
    }
    lane->queue[lane->queued++] = command;
}

/* Whatever else must be said before: told in the same breath. */
static void lane_say(struct lane *lane, struct str text)
{
    buf_str(&lane->out, text);
    lane_expect(lane, PASSED_OVER);
}

static void lane_load_scripts(struct lane *lane)
{
    for (enum script_id id = 0; id < SCRIPT_COUNT; id++) {
        batch_append_count(&lane->out, '*', 3);
        batch_append_arg(&lane->out, STR("SCRIPT"));
        batch_append_arg(&lane->out, STR("LOAD"));
        batch_append_arg(&lane->out, script_text(id));
        lane_expect(lane, PASSED_OVER);
    }
}

static struct lane *lane_begin(struct batch *b, unsigned node)
{
    struct lane *lane = lane_of(b, node);
    if (lane->c)
        return lane;
    struct connection *c = connections_take(b->connections, node, b->tracked && !b->unheard);
    if (!c)
        return NULL;
    if (!c->tracking_id)
        batch_spoil(b);
    buf_clear(&lane->out);
    lane->sent = lane->queued = lane->answered = 0;
    lane->failed = lane->silent = false;
    lane->c = c;
    lane_take_reader(b, lane);
    lane->moved_at_ms = now_ms();
    b->used[b->used_count++] = node;
    if (b->needs_scripts[node]) {
        lane_load_scripts(lane);
        b->needs_scripts[node] = false;
    }
    return lane;
}

/* Gives every open command to its node. True: some node could not be reached, or is not known. */
static bool deal_out(struct batch *b, bool replicate, int64_t *down_for_ms)
{
    bool unreachable[REDIS_NODES_MAX] = {false};
    bool left_over = false;
    b->used_count = 0;
    for (size_t i = 0; i < b->count; i++) {
        struct command *c = &b->commands[i];
        if (c->done)
            continue;
        int node = c->node >= 0 ? c->node : connections_node_of(b->connections, c->slot);
        struct lane *lane = node >= 0 && !unreachable[node] ? lane_begin(b, (unsigned)node) : NULL;
        if (!lane) {
            left_over = true;
            if (node >= 0 && !unreachable[node]) {
                unreachable[node] = true;
                int64_t down = connections_down_for_ms(b->connections, (unsigned)node);
                *down_for_ms = down > *down_for_ms ? down : *down_for_ms;
            }
            continue;
        }
        if (c->asking)
            batch_spoil(b); /* the slot is in two places */
        if (c->asking)
            lane_say(lane, STR("*1\r\n$6\r\nASKING\r\n"));
        buf_append(&lane->out, b->text.ptr + c->at, c->len);
        c->refused = false;
        for (unsigned k = 0; k < c->leads; k++)
            lane_expect(lane, LEADS_TO - (int32_t)i);
        lane_expect(lane, (int32_t)i);
    }
    for (size_t i = 0; replicate && i < b->used_count; i++) {
        if (!connections_has_replica(b->connections, b->used[i]))
            continue;
        struct lane *lane = b->lanes[b->used[i]];
        char wait[64];
        int n = snprintf(wait, sizeof wait, "*3\r\n$4\r\nWAIT\r\n$1\r\n1\r\n$3\r\n%d\r\n",
                         REPLICATE_WAIT_MS);
        buf_append(&lane->out, wait, (size_t)n);
        lane_expect(lane, REPLICATED);
    }
    return left_over;
}

/* ---- what a reply means ---- */

struct round {
    size_t answered; /* commands that have a final reply now */
    bool refresh;
    bool again;     /* there is something to send that needs no pause */
    bool not_ready; /* a node answers that it cannot for a while */
};

/* "MOVED 3999 127.0.0.1:6381" */
static int follow_hint(struct batch *b, unsigned from, const redisReply *r, bool for_good)
{
    struct str rest = {r->str, r->len}, word, number;
    uint64_t slot;
    if (!str_split(&rest, ' ', &word) || !str_split(&rest, ' ', &number) ||
        !str_parse_u64(number, &slot) || slot >= SLOT_COUNT)
        return -1;
    return connections_moved(b->connections, from, (uint16_t)slot, rest, for_good);
}

/* To a node that takes a slot over one has to say ASKING before each command, which a transaction
 * has no room for: it ends as an error (EXECABORT), and its caller uses another command. */
static bool is_ask(const redisReply *r)
{
    return r->type == REDIS_REPLY_ERROR && batch_error_is(r, "ASK");
}

/* False: it has to be sent again. */
static bool is_final(struct batch *b, unsigned node, struct command *c, const redisReply *r,
                     struct round *round)
{
    enum { LONG = 3 }; /* the first ones last for a while */
    static const char *const later[] = {"CLUSTERDOWN", "LOADING",  "MASTERDOWN",
                                        "TRYAGAIN",    "READONLY", "BUSY"};
    c->asking = false;
    if (r->type != REDIS_REPLY_ERROR)
        return true;
    if (batch_error_is(r, "NOSCRIPT")) {
        b->needs_scripts[node] = true;
        return false;
    }
    if (batch_error_is(r, "MOVED")) {
        c->node = -1;
        if (follow_hint(b, node, r, true) < 0)
            round->refresh = true;
        return false;
    }
    if (batch_error_is(r, "ASK")) {
        int target = follow_hint(b, node, r, false);
        c->node = (int16_t)target;
        c->asking = target >= 0;
        return false;
    }
    for (size_t i = 0; i < COUNT_OF(later); i++) {
        if (batch_error_is(r, later[i])) {
            c->node = -1;
            round->refresh = true;
            round->not_ready |= i < LONG;
            return false;
        }
    }
    return true;
}

/* ---- input and output ---- */

static void lane_fail(struct lane *lane, bool silent)
{
    lane->failed = true;
    lane->silent = silent;
}

static void lane_send(struct lane *lane)
{
    while (lane->sent < lane->out.len && !lane->failed) {
        ssize_t n = send(lane->c->context->fd, lane->out.ptr + lane->sent,
                         lane->out.len - lane->sent, MSG_DONTWAIT | MSG_NOSIGNAL);
        if (n > 0) {
            lane->sent += (size_t)n;
            lane->moved_at_ms = now_ms();
        } else if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) {
            return;
        } else if (n == 0 || errno != EINTR) {
            lane_fail(lane, false);
        }
    }
}

static void lane_take_replies(struct batch *b, struct lane *lane, struct round *round)
{
    while (lane->answered < lane->queued && !lane->failed) {
        void *got = NULL;
        if (redisReaderGetReply(lane->c->context->reader, &got) != REDIS_OK) {
            lane_fail(lane, false);
            return;
        }
        redisReply *reply = got;
        if (!reply)
            return;
        int32_t index = lane->queue[lane->answered++];
        if (index <= LEADS_TO) {
            struct command *leads = &b->commands[LEADS_TO - index];
            if (!leads->refused && !is_ask(reply))
                leads->refused = !is_final(b, lane->c->node, leads, reply, round);
            continue;
        }
        if (index == REPLICATED)
            b->not_replicated |= reply->type != REDIS_REPLY_INTEGER || reply->integer < 1;
        if (index >= 0) {
            struct command *c = &b->commands[index];
            if (!c->refused && is_final(b, lane->c->node, c, reply, round)) {
                c->done = true;
                c->reply = reply;
                round->answered++;
                continue;
            }
            round->again |= !round->refresh;
        }
    }
}

static void lane_receive(struct batch *b, struct lane *lane, int flags, struct round *round)
{
    ssize_t n = recv(lane->c->context->fd, b->in, BATCH_READ_BYTES, flags);
    if (n > 0) {
        lane->moved_at_ms = now_ms();
        if (redisReaderFeed(lane->c->context->reader, b->in, (size_t)n) != REDIS_OK)
            lane_fail(lane, false);
        else
            lane_take_replies(b, lane, round);
    } else if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) {
        if (flags == 0) /* the socket's own timeout */
            lane_fail(lane, true);
    } else if (n == 0 || errno != EINTR) {
        lane_fail(lane, false);
    }
}

static bool lane_is_busy(const struct lane *lane)
{
    return !lane->failed && lane->answered < lane->queued;
}

/* One lane: the socket's own timeout does what poll would do. */
static void exchange_one(struct batch *b, struct lane *lane, struct round *round)
{
    lane_send(lane);
    while (lane_is_busy(lane) && lane->sent == lane->out.len)
        lane_receive(b, lane, 0, round);
}

static void exchange_many(struct batch *b, struct round *round)
{
    struct pollfd fds[REDIS_NODES_MAX];
    struct lane *busy[REDIS_NODES_MAX];
    for (;;) {
        nfds_t n = 0;
        int64_t oldest = INT64_MAX;
        for (size_t i = 0; i < b->used_count; i++) {
            struct lane *lane = b->lanes[b->used[i]];
            lane_send(lane);
            if (!lane_is_busy(lane))
                continue;
            bool more = lane->sent < lane->out.len;
            fds[n].fd = lane->c->context->fd;
            fds[n].events = (short)(POLLIN | (more ? POLLOUT : 0));
            fds[n].revents = 0;
            busy[n++] = lane;
            oldest = lane->moved_at_ms < oldest ? lane->moved_at_ms : oldest;
        }
        if (n == 0)
            return;
        int64_t wait_ms = oldest + COMMAND_MS - now_ms();
        (void)poll(fds, n, wait_ms > 0 ? (int)wait_ms : 0);
        for (nfds_t i = 0; i < n; i++) {
            if (fds[i].revents & (POLLIN | POLLERR | POLLHUP))
                lane_receive(b, busy[i], MSG_DONTWAIT, round);
            else if (now_ms() - busy[i]->moved_at_ms >= COMMAND_MS)
                lane_fail(busy[i], true);
        }
    }
}

static void exchange(struct batch *b, struct round *round)
{
    if (b->used_count == 1)
        exchange_one(b, b->lanes[b->used[0]], round);
    if (b->used_count >= 1)
        exchange_many(b, round); /* also when one lane could not send everything at once */
    for (size_t i = 0; i < b->used_count; i++) {
        struct lane *lane = b->lanes[b->used[i]];
        if (lane->failed) {
            round->refresh = true;
            round->again |= !lane->silent && !lane->c->fresh;
            connections_drop(b->connections, lane->c, lane->silent);
        } else {
            lane_give_reader(lane);
            connections_give(b->connections, lane->c);
        }
        lane->c = NULL;
    }
}

/* ---- flush ---- */

static void pause_ms(int64_t ms)
{
    struct timespec t = {ms / 1000, (ms % 1000) * 1000000};
    nanosleep(&t, NULL);
}

static size_t count_open(const struct batch *b)
{
    size_t n = 0;
    for (size_t i = 0; i < b->count; i++)
        n += !b->commands[i].done;
    return n;
}

/* A pinned node that has gone may have lost its slots: the map knows better by now. */
static void unpin(struct batch *b)
{
    for (size_t i = 0; i < b->count; i++)
        if (b->commands[i].asking)
            b->commands[i].node = -1, b->commands[i].asking = false;
}

void batch_start(struct batch *b, unsigned how)
{
    CHECK(!b->started);
    b->down_for_ms = 0;
    if (b->text.failed)
        return;
    b->left_over = deal_out(b, how & FLUSH_REPLICATE, &b->down_for_ms);
    for (size_t i = 0; i < b->used_count; i++)
        lane_send(b->lanes[b->used[i]]);
    b->started = true;
}

enum err batch_send(struct batch *b, unsigned how)
{
    bool hurry = how & FLUSH_HURRY;
    bool cluster = connections_is_cluster(b->connections);
    int64_t began = now_ms(), pause = PAUSE_FIRST_MS;
    int64_t patience = connections_patience_ms(b->connections);
    if (b->text.failed)
        return ERR_TOO_LARGE;
    for (unsigned attempt = 0; count_open(b) > 0; attempt++) {
        struct round round = {0};
        if (!b->started)
            batch_start(b, how);
        bool left_over = b->left_over;
        int64_t down_for_ms = b->down_for_ms;
        b->started = false;
        exchange(b, &round);
        if (count_open(b) == 0)
            break;
        bool progress = round.answered > 0 || (round.again && attempt < HINTS_MAX);
        if (hurry && (round.not_ready || (left_over && !progress && (!cluster || attempt > 0))))
            return ERR_UNAVAILABLE;
        if (now_ms() - began >= patience || (left_over && down_for_ms >= patience))
            return ERR_UNAVAILABLE;
        if (left_over || round.refresh) {
            unpin(b);
            (void)connections_refresh(b->connections);
        }
        if (progress)
            continue;
        if (hurry && left_over)
            continue; /* the map may have changed: once more, at once */
        pause_ms(pause);
        pause = pause * 2 < PAUSE_LAST_MS ? pause * 2 : PAUSE_LAST_MS;
    }
    return OK;
}
