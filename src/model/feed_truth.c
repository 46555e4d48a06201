/* The home feed straight from truth: by merging, and by the oracle.
 *
 * feed_from_truth never looks at more posts than it must: each followee is a source of falling ids,
 * read in small chunks from the (author, id) index, and a heap over the sources' next ids gives the
 * feed's order. An author whose newest post is old costs one short index probe and is never asked
 * again. The oracle says the same in one statement that a reader can check against the definition;
 * tests and `fantail check` hold everything else against it. */
#include "model/feed.h"

#include "model/account.h"

enum { CHUNK_FIRST_MIN = 2, CHUNK_MAX = 256 };

/* One author's posts, newest first, as far as they were read. */
struct source {
    uint64_t author;
    uint64_t *ids;
    uint32_t at, count;
    uint32_t chunk; /* how many to read next time */
    bool more;      /* there may be posts below the last one read */
};

struct merge {
    struct tx *tx;
    struct arena *arena;
    uint64_t viewer;
    bool for_timeline;
    struct source *sources; /* a heap by head(), greatest first */
    size_t count;
};

static uint64_t head(const struct source *s)
{
    return s->ids[s->at];
}

/* Own posts count in either delivery: they are put into the own timeline at posting. */
static const char *source_sql(const struct merge *m, uint64_t author)
{
    if (m->for_timeline && author != m->viewer)
        return "SELECT id FROM posts WHERE author_id = $1 AND id < $2 AND deleted_at IS NULL "
               "AND delivery = 0 ORDER BY id DESC LIMIT $3";
    return "SELECT id FROM posts WHERE author_id = $1 AND id < $2 AND deleted_at IS NULL "
           "ORDER BY id DESC LIMIT $3";
}

/* Reads the next chunk below `below`. Chunks grow: an author whose first chunk was used up posts a
 * lot. */
static enum err refill(struct merge *m, struct source *s, uint64_t below)
{
    struct db_rows rows = tx_rows(m->tx, source_sql(m, s->author),
                                  DB_ARGS(DB_I64(s->author), DB_BELOW(below), DB_I64(s->chunk)));
    s->at = s->count = 0;
    while (s->count < s->chunk && db_next(&rows)) {
        if (s->count == 0)
            s->ids = ARENA_ARRAY(m->arena, uint64_t, s->chunk);
        s->ids[s->count++] = db_id(&rows, 0);
    }
    s->more = s->count == s->chunk;
    s->chunk = s->chunk < CHUNK_MAX / 2 ? s->chunk * 2 : CHUNK_MAX;
    return db_rows_done(&rows);
}

static void sift_down(struct source *heap, size_t count, size_t at)
{
    struct source moved = heap[at];
    for (;;) {
        size_t child = 2 * at + 1;
        if (child >= count)
            break;
        if (child + 1 < count && head(&heap[child + 1]) > head(&heap[child]))
            child++;
        if (head(&moved) >= head(&heap[child]))
            break;
        heap[at] = heap[child];
        at = child;
    }
    heap[at] = moved;
}

/* Whose posts are merged: the viewer's own and those of everyone followed who counts here. */
static enum err find_sources(struct merge *m)
{
    size_t capacity = 64;
    m->sources = ARENA_ARRAY(m->arena, struct source, capacity);
    m->sources[m->count++] = (struct source){.author = m->viewer};
    struct db_rows rows = tx_rows(
        m->tx,
        m->for_timeline ? "SELECT a.id FROM follows f JOIN accounts a ON a.id = f.followee_id "
                          "WHERE f.follower_id = $1 AND a.state <> 2 AND a.post_count > 0"
                        : "SELECT a.id FROM follows f JOIN accounts a ON a.id = f.followee_id "
                          "WHERE f.follower_id = $1 AND a.state = 0 AND a.post_count > 0 "
                          "AND NOT EXISTS (SELECT 1 FROM mutes "
                          "WHERE muter_id = $1 AND muted_id = f.followee_id)",
        DB_ARGS(DB_I64(m->viewer)));
    while (db_next(&rows)) {
        if (m->count == capacity) {
            struct source *wider = ARENA_ARRAY(m->arena, struct source, capacity * 2);
            memcpy(wider, m->sources, sizeof *wider * m->count);
            m->sources = wider;
            capacity *= 2;
        }
        m->sources[m->count++] = (struct source){.author = db_id(&rows, 0)};
    }
    return db_rows_done(&rows);
}

/* The first chunk of every source; those that have nothing below `below` fall out. */
static enum err fill_sources(struct merge *m, uint64_t below, size_t limit)
{
    size_t share = 2 * limit / m->count + CHUNK_FIRST_MIN;
    uint32_t first = share < CHUNK_MAX ? (uint32_t)share : CHUNK_MAX;
    size_t kept = 0;
    for (size_t i = 0; i < m->count; i++) {
        struct source *s = &m->sources[kept];
        *s = m->sources[i];
        s->chunk = first;
        TRY(refill(m, s, below));
        if (s->count > 0)
            kept++;
    }
    m->count = kept;
    for (size_t i = m->count / 2; i-- > 0;)
        sift_down(m->sources, m->count, i);
    return OK;
}

enum err feed_from_truth(struct tx *tx, uint64_t viewer, uint64_t below, size_t limit,
                         bool for_timeline, struct arena *arena, uint64_t *ids, size_t *n)
{
    struct merge m = {.tx = tx, .arena = arena, .viewer = viewer, .for_timeline = for_timeline};
    *n = 0;
    enum err e = find_sources(&m);
    if (!e)
        e = fill_sources(&m, below, limit);
    while (!e && *n < limit && m.count > 0) {
        struct source *s = &m.sources[0];
        uint64_t id = head(s);
        ids[(*n)++] = id;
        s->at++;
        if (s->at == s->count && s->more)
            e = refill(&m, s, id);
        if (s->at == s->count) /* this author has nothing more */
            m.sources[0] = m.sources[--m.count];
        if (m.count > 0)
            sift_down(m.sources, m.count, 0);
    }
    return e;
}

/* The authors that count, their posts, minus hidden ones. Written with the people first (CROSS JOIN
 * keeps that order in SQLite): read from the posts, it would walk through all of them for every
 * feed shorter than the limit. */
enum err feed_oracle(struct tx *tx, uint64_t viewer, uint64_t below, size_t limit, uint64_t *ids,
                     size_t *n)
{
    return tx_get_ids(
        tx,
        "SELECT p.id FROM (SELECT CAST($1 AS BIGINT) AS id "
        "UNION SELECT followee_id FROM follows WHERE follower_id = $1) w "
        "CROSS JOIN posts p JOIN accounts a ON a.id = p.author_id "
        "WHERE p.author_id = w.id AND p.id < $2 AND p.deleted_at IS NULL "
        "AND (p.author_id = $1 OR (a.state = 0 "
        "AND NOT EXISTS (SELECT 1 FROM mutes WHERE muter_id = $1 AND muted_id = p.author_id) "
        "AND NOT EXISTS (SELECT 1 FROM blocks WHERE blocker_id = $1 AND blocked_id = p.author_id) "
        "AND NOT EXISTS (SELECT 1 FROM blocks WHERE blocker_id = p.author_id AND blocked_id = $1)"
        ")) ORDER BY p.id DESC LIMIT $3",
        DB_ARGS(DB_I64(viewer), DB_BELOW(below), DB_I64(limit)), ids, limit, n);
}
