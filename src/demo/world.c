/* How the world is made.
 *
 * People belong to circles (topics). Each follows a number of others that is log-normal around
 * twenty, two thirds of them in the own circle, and chooses them mostly in proportion to the
 * followers they already have: the rich get richer, which gives the power law. Two celebrities are
 * followed by most people. Posting is log-normal, too, and follows the hours of the day; likes come
 * from followers in proportion to their number and the post's luck; comments follow likes.
 *
 * Everything random comes from streams derived from the seed by purpose, so that the names do not
 * change when, say, the captions draw one number more. */
#include "demo/world.h"

#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/hash.h"
#include "base/id.h"
#include "base/json_out.h"
#include "demo/text.h"
#include "model/account.h"

enum {
    DAYS = 30,
    FOLLOWS_MEDIAN = 20,
    FOLLOWS_LIMIT = 400,
    POSTS_MEAN = 4, /* a person, in all */
    POSTS_LIMIT = 120,
    NODE = 1, /* of the ids: the server makes its own as node 0 */
    USERNAME_SIZE = 31,
    NAME_SIZE = 64,
};

static const int64_t day_ms = INT64_C(24) * 3600 * 1000;

enum stream { STREAM_NAMES = 1, STREAM_GRAPH, STREAM_POSTS, STREAM_TEXTS, STREAM_LIKES };

struct person {
    char username[USERNAME_SIZE];
    char name[NAME_SIZE];
    uint16_t topic;
    uint32_t *follows;
    uint32_t follow_count, follower_count;
    uint32_t *followers;
    uint32_t post_count;
    uint64_t id;
};

struct demo_post {
    int64_t at_ms;
    uint64_t id;
    uint32_t author, likes, comments;
    uint32_t number; /* among all of the world, before they are put in order */
};

/* Follow targets so far: choosing one at random is choosing in proportion to followers. */
struct target_pool {
    uint32_t *targets;
    size_t count, capacity;
};

struct demo_world {
    uint64_t seed;
    int64_t now_ms;
    uint32_t people;
    struct person *persons;
    struct demo_post *posts;
    struct demo_counts counts;
};

static void *take_memory(size_t count, size_t size)
{
    void *p = calloc(count > 0 ? count : 1, size);
    CHECK(p);
    return p;
}

/* The numbers for one purpose and one item of its kind (a post, say). */
static struct rand stream_of(const struct demo_world *w, enum stream purpose, uint64_t which)
{
    struct rand r;
    rand_seed(&r, hash_u64(w->seed ^ hash_u64(which * 16 + purpose)));
    return r;
}

static struct rand stream(const struct demo_world *w, enum stream purpose)
{
    return stream_of(w, purpose, 0);
}

static bool chance(struct rand *r, double p)
{
    return rand_unit(r) < p;
}

static double gaussian(struct rand *r)
{
    double a = 1 - rand_unit(r), b = rand_unit(r);
    return sqrt(-2 * log(a)) * cos(2 * 3.14159265358979323846 * b);
}

/* ---- people ---- */

static const struct {
    const char *username, *name, *topic;
} known_people[DEMO_LOGINS + DEMO_CELEBRITIES] = {
    {"ada", "Ada Moreno", "programming"},    {"linus", "Linus Okafor", "birds"},
    {"mei", "Mei Lindqvist", "photography"}, {"nova.rivers", "Nova Rivers", "music"},
    {"chef.marlow", "Chef Marlow", "food"},
};

static bool username_taken(const struct demo_world *w, const uint32_t *table, size_t mask,
                           const char *name, uint64_t hash, size_t *slot)
{
    *slot = hash & mask;
    for (; table[*slot] != 0; *slot = (*slot + 1) & mask)
        if (strcmp(w->persons[table[*slot] - 1].username, name) == 0)
            return true;
    return false;
}

static uint64_t text_hash(const char *text)
{
    uint64_t h = 1469598103934665603u;
    for (; *text; text++)
        h = (h ^ (unsigned char)*text) * 1099511628211u;
    return h;
}

/* First name and last name in one of the ways in which people write themselves; later tries add a
 * number. */
static void make_username(struct rand *r, const char *first, const char *last, int tries, char *out)
{
    static const char *const forms[] = {"%s.%s", "%s_%s", "%s%s"};
    char initial[2] = {last[0], '\0'};
    switch (rand_below(r, 5)) {
    case 0:
        snprintf(out, USERNAME_SIZE, "%.14s%s%d", first, initial, (int)rand_below(r, 90) + 10);
        break;
    case 1:
        snprintf(out, USERNAME_SIZE, "%.14s_%d", first, (int)rand_below(r, 60) + 1950);
        break;
    default:
        snprintf(out, USERNAME_SIZE - 6, forms[rand_below(r, 3)], first, last);
    }
    if (tries > 3)
        snprintf(out + strlen(out), USERNAME_SIZE - strlen(out), "%d", (int)rand_below(r, 9999));
    for (char *p = out; *p; p++)
        *p = (char)tolower((unsigned char)*p);
}

static void make_people(struct demo_world *w)
{
    struct rand r = stream(w, STREAM_NAMES);
    size_t mask = 1;
    while (mask < (size_t)w->people * 2)
        mask *= 2;
    uint32_t *table = take_memory(mask, sizeof(*table));
    mask--;
    for (uint32_t i = 0; i < w->people; i++) {
        struct person *p = &w->persons[i];
        size_t slot = 0;
        bool known = i < COUNT_OF(known_people);
        for (int tries = 0;; tries++) {
            const char *first = demo_text_pick(&r, &demo_first_names);
            const char *last = demo_text_pick(&r, &demo_last_names);
            make_username(&r, first, last, tries, p->username);
            snprintf(p->name, NAME_SIZE, "%s %s", first, last);
            if (known) {
                snprintf(p->username, USERNAME_SIZE, "%s", known_people[i].username);
                snprintf(p->name, NAME_SIZE, "%s", known_people[i].name);
            }
            if (!username_taken(w, table, mask, p->username, text_hash(p->username), &slot))
                break;
        }
        table[slot] = i + 1;
        p->topic = (uint16_t)rand_below(&r, demo_topic_count);
        for (uint16_t t = 0; known && t < demo_topic_count; t++)
            if (strcmp(demo_topics[t].name, known_people[i].topic) == 0)
                p->topic = t;
        /* They joined over the weeks before the first post. */
        int64_t joined_ms = w->now_ms - (DAYS + 20) * day_ms + 15 * day_ms * i / w->people;
        p->id = id_at(joined_ms, NODE, i & 0xfff);
    }
    free(table);
}

/* ---- who follows whom ---- */

static void pool_add(struct target_pool *pool, uint32_t target)
{
    if (pool->count == pool->capacity) {
        pool->capacity = pool->capacity ? pool->capacity * 2 : 256;
        pool->targets = realloc(pool->targets, pool->capacity * sizeof(*pool->targets));
        CHECK(pool->targets);
    }
    pool->targets[pool->count++] = target;
}

static bool follows(const struct person *p, uint32_t other)
{
    for (uint32_t i = 0; i < p->follow_count; i++)
        if (p->follows[i] == other)
            return true;
    return false;
}

static bool add_follow(struct demo_world *w, uint32_t who, uint32_t whom)
{
    struct person *p = &w->persons[who];
    if (who == whom || p->follow_count == FOLLOWS_LIMIT || follows(p, whom))
        return false;
    p->follows[p->follow_count++] = whom;
    w->persons[whom].follower_count++;
    w->counts.follows++;
    return true;
}

static uint32_t wanted_follows(const struct demo_world *w, uint32_t who, struct rand *r)
{
    double wanted = FOLLOWS_MEDIAN * exp(0.8 * gaussian(r));
    double most = w->people / 4.0 < FOLLOWS_LIMIT - 10 ? w->people / 4.0 : FOLLOWS_LIMIT - 10;
    if (who < DEMO_LOGINS)
        wanted = 60; /* an account with something to see */
    return (uint32_t)(wanted < 3 ? 3 : wanted > most ? most : wanted);
}

static void choose_follows(struct demo_world *w, uint32_t who, struct target_pool *circles,
                           struct target_pool *all, struct rand *r)
{
    struct person *p = &w->persons[who];
    p->follows = take_memory(FOLLOWS_LIMIT, sizeof(*p->follows));
    for (uint32_t c = 0; c < DEMO_CELEBRITIES; c++)
        if (chance(r, c == 0 ? 0.85 : 0.7) || who < DEMO_LOGINS)
            add_follow(w, who, DEMO_LOGINS + c);
    uint32_t wanted = wanted_follows(w, who, r);
    for (uint32_t tries = 0; p->follow_count < wanted && tries < wanted * 6; tries++) {
        struct target_pool *pool = chance(r, 0.66) ? &circles[p->topic] : all;
        bool popular = pool->count > 0 && chance(r, 0.88);
        uint32_t target = popular ? pool->targets[rand_below(r, pool->count)]
                                  : (uint32_t)rand_below(r, w->people);
        if (add_follow(w, who, target)) {
            pool_add(&circles[w->persons[target].topic], target);
            pool_add(all, target);
        }
    }
    p->follows = realloc(p->follows, (p->follow_count + 1) * sizeof(*p->follows));
    CHECK(p->follows);
}

/* How often a person is in the pools before the first follow: Pareto, so that follower counts have
 * the long tail that they have everywhere. The people to log in as have some followers. */
static uint32_t charisma(const struct demo_world *w, uint32_t who, struct rand *r)
{
    double places = pow(1 - rand_unit(r), -1 / 1.1);
    double most = w->people / 5.0 + 1;
    if (who < DEMO_LOGINS)
        places = 20;
    return (uint32_t)(places > most ? most : places);
}

static void make_graph(struct demo_world *w)
{
    struct rand r = stream(w, STREAM_GRAPH);
    struct target_pool *circles = take_memory(demo_topic_count, sizeof(*circles));
    struct target_pool all = {0};
    for (uint32_t i = 0; i < w->people; i++) {
        uint32_t places = charisma(w, i, &r);
        for (uint32_t k = 0; k < places; k++) {
            pool_add(&circles[w->persons[i].topic], i);
            pool_add(&all, i);
        }
    }
    for (size_t t = 0; t < demo_topic_count; t++)
        if (circles[t].count == 0)
            pool_add(&circles[t], 0);
    for (uint32_t i = 0; i < w->people; i++)
        choose_follows(w, i, circles, &all, &r);
    for (size_t t = 0; t < demo_topic_count; t++)
        free(circles[t].targets);
    free(circles);
    free(all.targets);

    for (uint32_t i = 0; i < w->people; i++) {
        struct person *p = &w->persons[i];
        p->followers = take_memory(p->follower_count, sizeof(*p->followers));
        p->follower_count = 0;
    }
    for (uint32_t i = 0; i < w->people; i++)
        for (uint32_t k = 0; k < w->persons[i].follow_count; k++) {
            struct person *other = &w->persons[w->persons[i].follows[k]];
            other->followers[other->follower_count++] = i;
        }
}

/* ---- who posts when ---- */

/* How much happens in each hour of the day, of ten. */
static const uint8_t busy_hours[24] = {3, 2, 1, 1, 1, 2, 4, 7, 8,  6,  5, 6,
                                       8, 7, 5, 5, 6, 7, 8, 9, 10, 10, 8, 5};

/* Within the last thirty days. The draw does not depend on the hour at which the world is made:
 * what would lie in today's future happened thirty days earlier. */
static int64_t moment(const struct demo_world *w, struct rand *r)
{
    static const unsigned weight_sum = 134;
    uint64_t ticket = rand_below(r, weight_sum);
    int hour = 0;
    for (; ticket >= busy_hours[hour]; hour++)
        ticket -= busy_hours[hour];
    int64_t in_day_ms = hour * INT64_C(3600000) + (int64_t)rand_below(r, 3600000);
    int64_t midnight_ms = w->now_ms - w->now_ms % day_ms;
    int64_t at_ms = midnight_ms - (int64_t)rand_below(r, DAYS) * day_ms + in_day_ms;
    return at_ms < w->now_ms - 60000 ? at_ms : at_ms - DAYS * day_ms;
}

static int by_time(const void *a, const void *b)
{
    const struct demo_post *x = a, *y = b;
    return x->at_ms < y->at_ms ? -1 : x->at_ms > y->at_ms;
}

static struct demo_post make_post(struct demo_world *w, uint32_t author, uint32_t number)
{
    struct rand r = stream_of(w, STREAM_POSTS, number + 1);
    struct demo_post p = {.author = author, .number = number, .at_ms = moment(w, &r)};
    uint32_t followers = w->persons[author].follower_count;
    double luck = 0.05 * exp(0.9 * gaussian(&r));
    p.likes = (uint32_t)(followers * (luck > 0.6 ? 0.6 : luck) + rand_unit(&r));
    p.likes = p.likes > followers ? followers : p.likes;
    p.comments = (uint32_t)(p.likes * 0.24 * rand_unit(&r) + 0.4 * rand_unit(&r) + 0.1);
    p.comments = followers == 0 ? 0 : p.comments > 60 ? 60 : p.comments;
    w->counts.likes += p.likes;
    w->counts.comments += p.comments;
    return p;
}

static void make_posts(struct demo_world *w)
{
    struct rand r = stream(w, STREAM_POSTS);
    for (uint32_t i = 0; i < w->people; i++) {
        double count = POSTS_MEAN * exp(1.0 * gaussian(&r) - 0.5);
        if (i < DEMO_LOGINS + DEMO_CELEBRITIES)
            count = i < DEMO_LOGINS ? 12 : 40;
        w->persons[i].post_count = (uint32_t)(count > POSTS_LIMIT ? POSTS_LIMIT : count + 0.5);
        w->counts.posts += w->persons[i].post_count;
    }
    w->posts = take_memory(w->counts.posts, sizeof(*w->posts));
    uint32_t n = 0;
    for (uint32_t i = 0; i < w->people; i++)
        for (uint32_t k = 0; k < w->persons[i].post_count; k++, n++)
            w->posts[n] = make_post(w, i, n);
    qsort(w->posts, n, sizeof(*w->posts), by_time);
    for (uint32_t i = 0; i < n; i++)
        w->posts[i].id = id_at(w->posts[i].at_ms, NODE, i & 0xfff);
}

struct demo_world *demo_world_new(uint64_t seed, uint32_t people, int64_t now_ms)
{
    CHECK(people >= DEMO_PEOPLE_MIN && people <= DEMO_PEOPLE_MAX);
    struct demo_world *w = take_memory(1, sizeof(*w));
    w->seed = seed;
    w->people = people;
    w->now_ms = now_ms;
    w->counts.people = people;
    w->persons = take_memory(people, sizeof(*w->persons));
    make_people(w);
    make_graph(w);
    make_posts(w);
    return w;
}

void demo_world_free(struct demo_world *w)
{
    if (!w)
        return;
    for (uint32_t i = 0; i < w->people; i++) {
        free(w->persons[i].follows);
        free(w->persons[i].followers);
    }
    free(w->persons);
    free(w->posts);
    free(w);
}

void demo_world_counts(const struct demo_world *w, struct demo_counts *out)
{
    *out = w->counts;
}

const char *demo_username(const struct demo_world *w, uint32_t person)
{
    return w->persons[person].username;
}

const char *demo_name(const struct demo_world *w, uint32_t person)
{
    return w->persons[person].name;
}

uint32_t demo_followers(const struct demo_world *w, uint32_t person)
{
    return w->persons[person].follower_count;
}

uint32_t demo_pick_person(const struct demo_world *w, struct rand *r)
{
    /* People who post more act more. */
    if (w->counts.posts > 0 && chance(r, 0.8))
        return w->posts[rand_below(r, w->counts.posts)].author;
    return (uint32_t)rand_below(r, w->people);
}

/* ---- what they say ---- */

void demo_caption(const struct demo_world *w, uint32_t person, struct rand *r, struct buf *out)
{
    const struct demo_topic *topic = &demo_topics[w->persons[person].topic];
    bool own = chance(r, 0.8);
    demo_text_fill(demo_text_pick(r, own ? &topic->captions : &demo_everyday), topic, r, out);
    if (chance(r, 0.12)) {
        buf_printf(out, " ");
        demo_text_fill(demo_text_pick(r, &demo_everyday), topic, r, out);
    }
    if (own && chance(r, 0.3))
        buf_printf(out, " #%s", topic->name);
}

void demo_comment(struct rand *r, struct buf *out)
{
    demo_text_fill(demo_text_pick(r, &demo_comments), NULL, r, out);
}

/* ---- as import lines ---- */

struct writer {
    struct buf line, text;
    struct json_out j;
    bool (*emit)(void *ctx, struct str line);
    void *ctx;
};

static void line_begin(struct writer *out, struct str type)
{
    buf_clear(&out->line);
    buf_clear(&out->text);
    json_out_init(&out->j, &out->line);
    json_object_begin(&out->j);
    json_put(&out->j, "type", str, type);
}

static bool line_end(struct writer *out)
{
    json_object_end(&out->j);
    return out->emit(out->ctx, buf_view(&out->line));
}

static bool write_people(struct demo_world *w, struct writer *out, struct rand *r)
{
    struct arena arena;
    struct str hash = {NULL, 0};
    arena_init(&arena);
    /* One hash for all accounts: it is slow on purpose, and none of them has a secret. */
    bool ok = password_hash(STR(DEMO_PASSWORD), &arena, &hash) == OK;
    for (uint32_t i = 0; i < w->people && ok; i++) {
        const struct person *p = &w->persons[i];
        const struct demo_topic *topic = &demo_topics[p->topic];
        line_begin(out, STR("account"));
        json_put(&out->j, "id", id, p->id);
        json_put(&out->j, "username", str, str_of(p->username));
        json_put(&out->j, "display_name", str, str_of(p->name));
        if (chance(r, 0.85) || i < DEMO_LOGINS) {
            demo_text_fill(demo_text_pick(r, &topic->bios), topic, r, &out->text);
            json_put(&out->j, "bio", str, buf_view(&out->text));
        }
        json_put(&out->j, "password_hash", str, hash);
        ok = line_end(out);
    }
    arena_done(&arena);
    return ok;
}

static bool write_follows(struct demo_world *w, struct writer *out)
{
    for (uint32_t i = 0; i < w->people; i++)
        for (uint32_t k = 0; k < w->persons[i].follow_count; k++) {
            line_begin(out, STR("follow"));
            json_put(&out->j, "follower", id, w->persons[i].id);
            json_put(&out->j, "followee", id, w->persons[w->persons[i].follows[k]].id);
            if (!line_end(out))
                return false;
        }
    return true;
}

static bool write_posts(struct demo_world *w, struct writer *out)
{
    for (uint64_t i = 0; i < w->counts.posts; i++) {
        const struct demo_post *p = &w->posts[i];
        struct rand r = stream_of(w, STREAM_TEXTS, p->number + 1);
        line_begin(out, STR("post"));
        json_put(&out->j, "id", id, p->id);
        json_put(&out->j, "author", id, w->persons[p->author].id);
        demo_caption(w, p->author, &r, &out->text);
        json_put(&out->j, "caption", str, buf_view(&out->text));
        if (!line_end(out))
            return false;
    }
    return true;
}

/* Distinct followers: a walk through the list with a stride that has no factor in common with its
 * length. */
static uint32_t nth_liker(const struct person *author, uint32_t start, uint32_t n)
{
    uint32_t count = author->follower_count;
    uint32_t stride = count > 7919 || count % 7919 != 0 ? 7919 : 7907;
    return author->followers[(uint32_t)((start + (uint64_t)n * stride) % count)];
}

static bool write_comment(struct demo_world *w, struct writer *out, const struct demo_post *p,
                          const struct person *who, struct rand *r, uint32_t counter)
{
    double later_ms = -log(1 - rand_unit(r)) * 3 * 3600 * 1000;
    int64_t at_ms = p->at_ms + 20000 + (int64_t)later_ms;
    at_ms = at_ms < w->now_ms ? at_ms : w->now_ms - 1000;
    line_begin(out, STR("comment"));
    json_put(&out->j, "id", id, id_at(at_ms, NODE, counter & 0xfff));
    json_put(&out->j, "author", id, who->id);
    json_put(&out->j, "post", id, p->id);
    demo_comment(r, &out->text);
    json_put(&out->j, "body", str, buf_view(&out->text));
    return line_end(out);
}

static bool write_reactions(struct demo_world *w, struct writer *out)
{
    uint32_t counter = 0;
    for (uint64_t i = 0; i < w->counts.posts; i++) {
        const struct demo_post *p = &w->posts[i];
        const struct person *author = &w->persons[p->author];
        struct rand r = stream_of(w, STREAM_LIKES, p->number + 1);
        if (author->follower_count == 0)
            continue;
        uint32_t start = (uint32_t)rand_below(&r, author->follower_count);
        for (uint32_t k = 0; k < p->likes; k++) {
            line_begin(out, STR("like"));
            json_put(&out->j, "account", id, w->persons[nth_liker(author, start, k)].id);
            json_put(&out->j, "post", id, p->id);
            if (!line_end(out))
                return false;
        }
        for (uint32_t k = 0; k < p->comments; k++)
            if (!write_comment(w, out, p, &w->persons[nth_liker(author, start, k)], &r, counter++))
                return false;
    }
    return true;
}

bool demo_world_write(struct demo_world *w, bool (*emit)(void *ctx, struct str line), void *ctx)
{
    struct writer out = {.emit = emit, .ctx = ctx};
    struct rand texts = stream(w, STREAM_TEXTS);
    buf_init(&out.line, 0);
    buf_init(&out.text, 0);
    bool ok = write_people(w, &out, &texts) && write_follows(w, &out) && write_posts(w, &out) &&
              write_reactions(w, &out);
    buf_done(&out.line);
    buf_done(&out.text);
    return ok;
}
