/* Each act is what a person with a client would do: read the feed, then like or comment on
 * something in it; or post; or follow another person. People act through the Fantail-Account
 * header, which the operator's socket may use. A refused act (a post deleted meanwhile, a person
 * who blocked) is normal and skipped. */
#include "demo/live.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "base/json_out.h"

enum { FEED_DEPTH = 20 };

struct live {
    struct control *control;
    struct demo_world *w;
    struct rand rand;
    struct buf text, body;
    char header[80];
    const char *actor;
};

/* One request as the present actor. NULL: refused, or the server is gone (*gone). */
static json_t *act(struct live *l, const char *method, const char *target, bool *gone)
{
    int status = 0;
    json_t *answer =
        control_call(l->control, method, target, l->header, buf_view(&l->body), &status);
    *gone = status == 0;
    if (status >= 200 && status < 300)
        return answer;
    json_decref(answer);
    return NULL;
}

static void say(const struct live *l, const char *did, const char *what)
{
    char now[TIME_TEXT_LEN];
    time_format(clock_wall_ms(clock_system()), now);
    printf("%.8s  @%s %s %s\n", now + 11, l->actor, did, what);
    fflush(stdout);
}

static void make_body(struct live *l, const char *key, struct str text)
{
    struct json_out j;
    json_out_init(&j, &l->body);
    json_object_begin(&j);
    json_key(&j, str_of(key));
    json_str(&j, text);
    json_object_end(&j);
}

static bool post(struct live *l, uint32_t person)
{
    bool gone;
    demo_caption(l->w, person, &l->rand, &l->text);
    make_body(l, "caption", buf_view(&l->text));
    json_t *answer = act(l, "POST", "/v1/posts", &gone);
    if (answer)
        say(l, "posted:", answer_text(answer, "caption"));
    json_decref(answer);
    return !gone;
}

/* Something from the actor's feed: fills `id` and returns the author's name in `answer`'s memory.
 */
static const char *pick_from_feed(struct live *l, json_t **answer, char id[24], bool *gone)
{
    char target[40];
    snprintf(target, sizeof(target), "/v1/feed?limit=%d", FEED_DEPTH);
    *answer = act(l, "GET", target, gone);
    const json_t *items = json_object_get(*answer, "items");
    size_t count = json_array_size(items);
    if (count == 0)
        return NULL;
    const json_t *item = json_array_get(items, rand_below(&l->rand, count));
    snprintf(id, 24, "%s", answer_text(item, "id"));
    return answer_text(json_object_get(item, "author"), "username");
}

static bool react(struct live *l, bool comment)
{
    char id[24], target[64];
    bool gone;
    json_t *feed = NULL;
    const char *author = pick_from_feed(l, &feed, id, &gone);
    if (author && strcmp(author, l->actor) != 0) {
        if (comment) {
            demo_comment(&l->rand, &l->text);
            make_body(l, "body", buf_view(&l->text));
        }
        snprintf(target, sizeof(target), "/v1/posts/%s/%s", id, comment ? "comments" : "like");
        json_t *answer = act(l, comment ? "POST" : "PUT", target, &gone);
        if (answer)
            say(l, comment ? "commented on a post by" : "liked a post by", author);
        json_decref(answer);
    }
    json_decref(feed);
    return !gone;
}

static bool follow(struct live *l)
{
    char target[100];
    bool gone;
    uint32_t other = demo_pick_person(l->w, &l->rand);
    snprintf(target, sizeof(target), "/v1/accounts?username=%s", demo_username(l->w, other));
    json_t *found = act(l, "GET", target, &gone);
    const json_t *items = json_object_get(found, "items");
    const json_t *account = items ? json_array_get(items, 0) : found;
    bool on = rand_unit(&l->rand) < 0.75;
    if (account && answer_text(account, "id")[0]) {
        snprintf(target, sizeof(target), "/v1/accounts/%s/follow", answer_text(account, "id"));
        json_t *answer = act(l, on ? "PUT" : "DELETE", target, &gone);
        if (answer)
            say(l, on ? "follows" : "no longer follows", demo_username(l->w, other));
        json_decref(answer);
    }
    json_decref(found);
    return !gone;
}

static bool one_act(struct live *l)
{
    uint32_t person = demo_pick_person(l->w, &l->rand);
    l->actor = demo_username(l->w, person);
    snprintf(l->header, sizeof(l->header),
             "Fantail-Account: @%s\r\nContent-Type: application/json\r\n", l->actor);
    buf_clear(&l->text);
    buf_clear(&l->body);
    uint64_t dice = rand_below(&l->rand, 100);
    if (dice < 35)
        return post(l, person);
    if (dice < 88)
        return react(l, dice >= 70);
    return follow(l);
}

int demo_live(struct control *control, struct demo_world *w, const sigset_t *signals)
{
    struct live l = {.control = control, .w = w};
    int failures = 0;
    rand_seed(&l.rand, (uint64_t)clock_wall_ms(clock_system()));
    buf_init(&l.text, 0);
    buf_init(&l.body, 0);
    for (;;) {
        double wait_s = -log(1 - rand_unit(&l.rand)) * 0.5;
        wait_s = wait_s > 3 ? 3 : wait_s;
        struct timespec wait = {.tv_sec = (time_t)wait_s,
                                .tv_nsec = (long)((wait_s - floor(wait_s)) * 1e9)};
        if (sigtimedwait(signals, NULL, &wait) > 0 || ferror(stdout))
            break;
        failures = one_act(&l) ? 0 : failures + 1;
        if (failures > 0)
            break;
    }
    buf_done(&l.text);
    buf_done(&l.body);
    return failures > 0 ? EXIT_FAILED : EXIT_DONE;
}
