/* The graph over HTTP: follow, block, mute, and the lists of followers and followees.
 *
 * A change answers with the other account and how the caller stands to it now, read in the same
 * transaction, so that a client needs no second request. */
#include "api/edge/handlers.h"
#include "api/render/render.h"
#include "model/follow.h"

enum { PEOPLE_MAX = 200 };

static struct follow_policy policy_now(struct call *c)
{
    return (struct follow_policy){
        .celebrity_threshold = celebrity_threshold(c->api->keeper),
        .max_following = c->api->settings->max_following,
    };
}

enum err call_find_account(struct call *c, struct tx *tx, uint64_t id, struct account *account,
                           struct relationship *relationship)
{
    *relationship = (struct relationship){0};
    TRY(account_get(tx, id, &c->x->arena, account));
    if (c->caller.account && c->caller.account != id)
        TRY(account_relationship(tx, c->caller.account, id, relationship));
    bool self = id == c->caller.account;
    if (!self && (account->state != ACCOUNT_ACTIVE || relationship->blocked_by))
        return call_fail(c, ERR_NOT_FOUND, "no such account");
    return OK;
}

/* The other end of an edge. The caller may end an edge, or block, although that end hides from them
 * (by a block of its own, or suspended): then the answer has its name and nothing else. */
struct other_end {
    struct account account;
    struct relationship relationship;
};

static enum err find_other_end(struct call *c, struct tx *tx, uint64_t id)
{
    struct other_end *o = c->work = ARENA_NEW(&c->x->arena, struct other_end);
    TRY(account_get(tx, id, &c->x->arena, &o->account));
    TRY(account_relationship(tx, c->caller.account, id, &o->relationship));
    bool hidden = o->account.state != ACCOUNT_ACTIVE || o->relationship.blocked_by;
    if (hidden && id != c->caller.account)
        o->account = (struct account){.id = o->account.id,
                                      .username = o->account.username,
                                      .display_name = STR(""),
                                      .bio = STR("")};
    return OK;
}

void graph_render(struct call *c)
{
    const struct other_end *o = c->work;
    render_account(&c->json, &o->account, &o->relationship, false);
}

/* Ending something that touches only oneself is refused for accounts one may not know of. */
static enum err check_known(struct call *c, struct tx *tx)
{
    struct account account;
    struct relationship relationship;
    return call_find_account(c, tx, c->params[0], &account, &relationship);
}

enum err graph_repeat(struct call *c, struct tx *tx)
{
    return find_other_end(c, tx, c->params[0]);
}

/* Of a change that is refused for accounts one may not know of. */
enum err follow_repeat(struct call *c, struct tx *tx)
{
    TRY(check_known(c, tx));
    return find_other_end(c, tx, c->params[0]);
}

/* `e`: what the change came to. Asking twice is asking once, so whether it changed anything is not
 * told. */
static enum err answer(struct call *c, struct tx *tx, enum err e)
{
    return e ? e : find_other_end(c, tx, c->params[0]);
}

enum err follow_put(struct call *c, struct tx *tx)
{
    struct follow_policy policy = policy_now(c);
    bool changed;
    return answer(c, tx, follow_create(tx, c->caller.account, c->params[0], &policy, &changed));
}

enum err follow_delete(struct call *c, struct tx *tx)
{
    struct follow_policy policy = policy_now(c);
    bool changed;
    enum err e = check_known(c, tx);
    if (!e)
        e = follow_remove(tx, c->caller.account, c->params[0], &policy, &changed);
    return answer(c, tx, e);
}

enum err block_put(struct call *c, struct tx *tx)
{
    struct follow_policy policy = policy_now(c);
    bool changed;
    return answer(c, tx, block_create(tx, c->caller.account, c->params[0], &policy, &changed));
}

enum err block_delete(struct call *c, struct tx *tx)
{
    bool changed;
    return answer(c, tx, block_remove(tx, c->caller.account, c->params[0], &changed));
}

enum err mute_put(struct call *c, struct tx *tx)
{
    bool changed;
    enum err e = check_known(c, tx);
    if (!e)
        e = mute_create(tx, c->caller.account, c->params[0], &changed);
    return answer(c, tx, e);
}

enum err mute_delete(struct call *c, struct tx *tx)
{
    bool changed;
    return answer(c, tx, mute_remove(tx, c->caller.account, c->params[0], &changed));
}

void call_list_accounts(struct call *c, const struct account_card *accounts, size_t n, size_t limit)
{
    call_list_begin(c);
    for (size_t i = 0; i < n; i++)
        render_account_card(&c->json, &accounts[i]);
    call_list_end(c, n > 0 && n == limit ? accounts[n - 1].id : 0);
}

/* Of the account that the path names, or of the caller, who alone can read their own lists. */
static enum err list_people(struct call *c, struct tx *tx, enum people people)
{
    size_t limit, n = 0;
    uint64_t below, id = c->params[0] ? c->params[0] : c->caller.account;
    struct account account;
    struct relationship relationship;
    struct account_card found[PEOPLE_MAX];
    TRY(call_page(c, PEOPLE_MAX, &limit, &below));
    TRY(call_find_account(c, tx, id, &account, &relationship));
    if (!relationship.blocking)
        TRY(follow_list(tx, id, people, c->caller.account, below, limit, &c->x->arena, found, &n));
    call_list_accounts(c, found, n, limit);
    return OK;
}

enum err followers_list(struct call *c, struct tx *tx)
{
    return list_people(c, tx, PEOPLE_FOLLOWERS);
}

enum err following_list(struct call *c, struct tx *tx)
{
    return list_people(c, tx, PEOPLE_FOLLOWING);
}

enum err blocks_list(struct call *c, struct tx *tx)
{
    return list_people(c, tx, PEOPLE_BLOCKED);
}

enum err mutes_list(struct call *c, struct tx *tx)
{
    return list_people(c, tx, PEOPLE_MUTED);
}
