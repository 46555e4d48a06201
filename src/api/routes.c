/* The table of routes, and the trie that finds a row.
 *
 * The trie is built once from the table: one node per path segment, literals as a short list of
 * siblings, at most one child for a number ({id}, {account}, {seq}) or a {name}. Numbers are digits
 * and no literal is, and where a {name} may stand no literal does, so a walk never has to go back:
 * it costs one comparison per sibling of each segment, and nothing grows with what a peer sends. */
#include "api/routes.h"

#include <pthread.h>
#include <stdio.h>

#include "api/handlers.h"
#include "base/check.h"
#include "base/id.h"

#define KEYED     ROUTE_KEYED
#define BODY      ROUTE_BODY
#define PAGED     ROUTE_PAGED
#define NO_TOKEN  ROUTE_TOKENLESS
#define GROWS     ROUTE_GROWS
#define LEADER    ROUTE_AT_LEADER
#define CONFLICTS ROUTE_CONFLICTS
#define ENTRY     ROUTE_ENTRY
#define EITHER    ROUTE_EITHER

/* clang-format off */
const struct route routes[] = {
    /* accounts */
    ROUTE(POST, "/v1/accounts", accounts_create, SLOW, ANYONE, AUTH, "NewAccount", "Login", 201,
          BODY | GROWS, "", "Sign up: makes an account and logs it in")
    ROUTE(GET, "/v1/accounts", accounts_find, READ, ANYONE, READ, NULL, "AccountList", 200, PAGED,
          "username=the exact username;q=the beginning of a username",
          "Find accounts by username or by its beginning")
    ROUTE(GET, "/v1/accounts/{id}", accounts_show, READ, ANYONE, READ, NULL, "Account", 200, 0, "",
          "One account, with how the caller stands to it")
    ROUTE(GET, "/v1/me", me_show, READ, ACCOUNT, READ, NULL, "Account", 200, 0, "",
          "The caller's own account")
    ROUTE(PATCH, "/v1/me", me_update, WRITE, ACCOUNT, WRITE, "AccountChange", "Account", 200,
          BODY | KEYED, "", "Change the caller's profile; fields left out stay as they are")
    ROUTE(DELETE, "/v1/me", me_delete, WRITE, ACCOUNT, WRITE, NULL, NULL, 204, KEYED, "",
          "Delete the caller's account and all that is theirs")
    ROUTE(PUT, "/v1/me/password", me_password, SLOW, ACCOUNT, AUTH, "PasswordChange", NULL, 204,
          BODY, "", "Change the password; ends every other session")
    ROUTE(GET, "/v1/me/export", me_export, SLOW, ACCOUNT, WRITE, NULL, "Export", 200, 0, "",
          "Everything the caller has, as one JSON object")

    /* sessions */
    ROUTE(POST, "/v1/sessions", sessions_create, SLOW, ANYONE, AUTH, "Credentials", "Login", 201,
          BODY | NO_TOKEN, "", "Log in: answers a bearer token")
    ROUTE(GET, "/v1/sessions", sessions_list, READ, ACCOUNT, READ, NULL, "SessionList", 200, 0, "",
          "The caller's sessions")
    ROUTE(DELETE, "/v1/sessions/{id}", sessions_end, WRITE, ACCOUNT, WRITE, NULL, NULL, 204, KEYED,
          "", "End one of the caller's sessions")
    ROUTE(DELETE, "/v1/sessions/current", sessions_end_current, WRITE, ACCOUNT, WRITE, NULL, NULL,
          204, 0, "", "Log out")

    /* graph */
    ROUTE(PUT, "/v1/accounts/{id}/follow", follow_put, WRITE, ACCOUNT, WRITE, NULL, "Account", 200,
          KEYED, "", "Follow")
    ROUTE(DELETE, "/v1/accounts/{id}/follow", follow_delete, WRITE, ACCOUNT, WRITE, NULL, "Account",
          200, KEYED, "", "Unfollow")
    ROUTE(PUT, "/v1/accounts/{id}/block", block_put, WRITE, ACCOUNT, WRITE, NULL, "Account", 200,
          KEYED, "", "Block: ends follows both ways and hides each from the other")
    ROUTE(DELETE, "/v1/accounts/{id}/block", block_delete, WRITE, ACCOUNT, WRITE, NULL, "Account",
          200, KEYED, "", "Unblock")
    ROUTE(PUT, "/v1/accounts/{id}/mute", mute_put, WRITE, ACCOUNT, WRITE, NULL, "Account", 200,
          KEYED, "", "Mute: hides the account's posts from the caller's feed")
    ROUTE(DELETE, "/v1/accounts/{id}/mute", mute_delete, WRITE, ACCOUNT, WRITE, NULL, "Account",
          200, KEYED, "", "Unmute")
    ROUTE(GET, "/v1/accounts/{id}/followers", followers_list, READ, ANYONE, READ, NULL,
          "AccountList", 200, PAGED, "", "Who follows the account")
    ROUTE(GET, "/v1/accounts/{id}/following", following_list, READ, ANYONE, READ, NULL,
          "AccountList", 200, PAGED, "", "Whom the account follows")
    ROUTE(GET, "/v1/me/blocks", blocks_list, READ, ACCOUNT, READ, NULL, "AccountList", 200, PAGED,
          "", "Whom the caller blocks")
    ROUTE(GET, "/v1/me/mutes", mutes_list, READ, ACCOUNT, READ, NULL, "AccountList", 200, PAGED, "",
          "Whom the caller mutes")

    /* posts */
    ROUTE(POST, "/v1/posts", posts_create, WRITE, ACCOUNT, WRITE, "NewPost", "Post", 201,
          BODY | KEYED | GROWS, "", "Post")
    ROUTE(GET, "/v1/posts/{id}", posts_show, READ, ANYONE, READ, NULL, "Post", 200, 0, "",
          "One post")
    ROUTE(PATCH, "/v1/posts/{id}", posts_update, WRITE, ACCOUNT, WRITE, "PostChange", "Post", 200,
          BODY | KEYED, "", "Edit one's own post; earlier captions are kept")
    ROUTE(DELETE, "/v1/posts/{id}", posts_delete, WRITE, ACCOUNT, WRITE, NULL, NULL, 204, KEYED, "",
          "Delete one's own post: gone from every read at once")
    ROUTE(GET, "/v1/accounts/{id}/posts", posts_by_account, READ, ANYONE, READ, NULL, "PostList",
          200, PAGED, "", "The account's posts, newest first")
    ROUTE(PUT, "/v1/posts/{id}/like", like_put, WRITE, ACCOUNT, WRITE, NULL, "Post", 200, KEYED, "",
          "Like; twice is once")
    ROUTE(DELETE, "/v1/posts/{id}/like", like_delete, WRITE, ACCOUNT, WRITE, NULL, "Post", 200,
          KEYED, "", "Take the like back")
    ROUTE(GET, "/v1/posts/{id}/likes", likes_list, READ, ANYONE, READ, NULL, "AccountList", 200,
          PAGED, "", "Who likes the post")

    /* comments */
    ROUTE(POST, "/v1/posts/{id}/comments", comments_create, WRITE, ACCOUNT, WRITE, "NewComment",
          "Comment", 201, BODY | KEYED | GROWS, "", "Comment")
    ROUTE(GET, "/v1/posts/{id}/comments", comments_list, READ, ANYONE, READ, NULL, "CommentList",
          200, PAGED, "", "The post's comments, oldest first")
    ROUTE(DELETE, "/v1/comments/{id}", comments_delete, WRITE, ACCOUNT, WRITE, NULL, NULL, 204,
          KEYED, "", "Delete a comment: one's own, or any under one's own post")

    /* feed */
    ROUTE(GET, "/v1/feed", feed_show, INLINE, ACCOUNT, READ, NULL, "PostList", 200, PAGED, "",
          "The home feed: the newest posts by those the caller follows now and the caller's own")

    /* groups */
    ROUTE(POST, "/v1/groups", groups_create, WRITE, ACCOUNT, WRITE, "NewGroup", "Group", 201,
          BODY | KEYED | GROWS | CONFLICTS, "", "Make a group; the caller owns it")
    ROUTE(GET, "/v1/groups/invitations", invitations_list, READ, ACCOUNT, READ, NULL,
          "InvitationList", 200, PAGED, "", "Groups that the caller is invited to")
    ROUTE(GET, "/v1/groups/{id}", groups_show, READ, ACCOUNT, READ, NULL, "Group", 200, 0, "",
          "One of the caller's groups")
    ROUTE(PATCH, "/v1/groups/{id}", groups_update, WRITE, ACCOUNT, WRITE, "GroupChange", "Group",
          200, BODY | KEYED, "",
          "Name and history, by owner and admins; muted and archived, by each for themselves")
    ROUTE(GET, "/v1/groups/{id}/members", members_list, READ, ACCOUNT, READ, NULL,
          "GroupMemberList", 200, PAGED, "",
          "Who is in the group: owner, admins, members, each in the order of joining")
    ROUTE(PUT, "/v1/groups/{id}/members/{account}", members_put, WRITE, ACCOUNT, WRITE,
          "MemberChange", "GroupMember", 200,
          ROUTE_BODY_OPTIONAL | KEYED | CONFLICTS | EITHER, "",
          "Add or invite somebody, give a role; of oneself: accept an invitation. 201: joined or "
          "invited by this")
    ROUTE(DELETE, "/v1/groups/{id}/members/{account}", members_delete, WRITE, ACCOUNT, WRITE, NULL,
          NULL, 204, KEYED, "", "Leave, decline an invitation, or remove somebody")
    ROUTE(POST, "/v1/groups/{id}/messages", messages_send, WRITE, ACCOUNT, WRITE, "NewMessage",
          "Message", 201, BODY | KEYED | GROWS | ENTRY | EITHER, "",
          "Send a message; the same client_id again answers the same message with 200")
    ROUTE(GET, "/v1/groups/{id}/messages", messages_list, READ, ACCOUNT, READ, NULL, "MessagePage",
          200, 0,
          "after=entries above this number;before=the last entries below this number;"
          "limit=entries a page, at most 200",
          "The group's log by number, in rising order; without a number the last entries")
    ROUTE(PATCH, "/v1/groups/{id}/messages/{seq}", messages_edit, WRITE, ACCOUNT, WRITE,
          "MessageChange", "Message", 200, BODY | KEYED | CONFLICTS | ENTRY, "",
          "Edit one's own message; the edit is an entry of its own")
    ROUTE(DELETE, "/v1/groups/{id}/messages/{seq}", messages_delete, WRITE, ACCOUNT, WRITE, NULL,
          NULL, 204, KEYED | ENTRY, "",
          "Delete a message: one's own, or anybody's as owner or admin; gone from every read")
    ROUTE(PUT, "/v1/groups/{id}/read", read_put, WRITE, ACCOUNT, WRITE, "ReadMark", "InboxItem",
          200, BODY, "", "Read up to this number; never goes back")
    ROUTE(PUT, "/v1/accounts/{id}/chat", chat_put, WRITE, ACCOUNT, WRITE, NULL, "Group", 200,
          KEYED | CONFLICTS | EITHER, "",
          "The chat with the account: a group of two. 201: made by this")
    ROUTE(GET, "/v1/inbox", inbox_show, INLINE, ACCOUNT, READ, NULL, "InboxList", 200, PAGED,
          "archived=true: the archived ones instead",
          "The caller's groups and chats, newest activity first, with what is unread")
    ROUTE(GET, "/v1/stream", stream_open, INLINE, ACCOUNT, READ, NULL, "text/event-stream", 200, 0,
          "",
          "Server-sent events that say what is new, for as long as the client listens")

    /* admin */
    ROUTE(GET, "/v1/admin/status", admin_status, SLOW, ADMIN_READ, READ, NULL, "Status", 200, 0, "",
          "Everything an operator wants to see at a glance")
    ROUTE(GET, "/v1/admin/engine", admin_engine, SLOW, ADMIN_READ, READ, NULL, "Engine", 200,
          LEADER, "", "The engine and its lanes, and the worst lag that people notice")
    ROUTE(GET, "/v1/admin/groups/hot", admin_groups_hot, SLOW, ADMIN_READ, READ, NULL, "HotGroups",
          200, 0, "", "The busiest groups of the last minute on this node")
    ROUTE(GET, "/v1/admin/nodes", admin_nodes, SLOW, ADMIN_READ, READ, NULL, "NodeList", 200, 0, "",
          "The nodes that use this store: where, what they do, how they are, who leads")
    ROUTE(POST, "/v1/admin/keys", admin_keys_create, SLOW, ADMIN, WRITE, "NewKey", "KeyWithSecret",
          201, BODY, "", "Make an API key; it is shown this once")
    ROUTE(GET, "/v1/admin/keys", admin_keys_list, READ, ADMIN_READ, READ, NULL, "KeyList", 200, 0,
          "", "API keys, without their secrets")
    ROUTE(DELETE, "/v1/admin/keys/{id}", admin_keys_revoke, WRITE, ADMIN, WRITE, NULL, NULL, 204, 0,
          "", "Revoke an API key")
    ROUTE(PUT, "/v1/admin/accounts/{id}/suspension", admin_suspend, WRITE, ADMIN, WRITE, NULL, NULL,
          204, 0, "", "Suspend an account: it cannot call and nobody sees it")
    ROUTE(DELETE, "/v1/admin/accounts/{id}/suspension", admin_restore, WRITE, ADMIN, WRITE, NULL,
          NULL, 204, 0, "", "Restore a suspended account")
    ROUTE(DELETE, "/v1/admin/posts/{id}", admin_post_delete, WRITE, ADMIN, WRITE, NULL, NULL, 204,
          0, "", "Delete anybody's post")
    ROUTE(POST, "/v1/admin/check", admin_check, SLOW, ADMIN, WRITE, "CheckRequest", "CheckResult",
          200, ROUTE_BODY_OPTIONAL, "",
          "Compare one slice of feeds, inboxes, counters and graph with truth; repair if asked to")
    ROUTE(GET, "/v1/admin/explain", admin_explain, SLOW, ADMIN_READ, READ, NULL, "Explanation", 200,
          0, "user=account id or username;post=post id",
          "Why a post is or is not in somebody's feed")
    ROUTE(POST, "/v1/admin/backup", admin_backup, SLOW, ADMIN, NONE, "BackupRequest",
          "BackupResult", 200, BODY | ROUTE_CONTROL, "",
          "Write a consistent copy of the store to a new file on the server's machine")
    ROUTE(POST, "/v1/admin/import", admin_import, SLOW, ADMIN, NONE, NULL, "ImportResult", 200,
          ROUTE_NDJSON | GROWS | ROUTE_BULK,
          "first_line=number of the first line of this chunk, for messages",
          "Import one chunk of NDJSON lines")
    ROUTE(POST, "/v1/admin/save", admin_save, SLOW, ADMIN, WRITE, NULL, "SaveResult", 200, 0, "",
          "Save the views now")
    ROUTE(PUT, "/v1/admin/lanes", admin_lane, SLOW, ADMIN, WRITE, "LaneChange", "Lane", 200,
          BODY | LEADER, "",
          "Change a lane's concurrency or rate until the next start, stop it or let it go on")
    ROUTE(GET, "/v1/admin/freshness", admin_freshness, SLOW, ADMIN_READ, READ, NULL, "Freshness",
          200, LEADER, "",
          "How late each consumer is, by event type and lane, and whether it catches up")
    ROUTE(GET, "/v1/admin/health", admin_health, SLOW, ADMIN_READ, READ, NULL, "Staleness", 200,
          LEADER, "", "Which truth is stale, and what to do about it")
    ROUTE(GET, "/v1/admin/events/{id}", admin_event_show, READ, ADMIN_READ, READ, NULL,
          "EventStory", 200, LEADER, "", "One event's whole story")
    ROUTE(GET, "/v1/admin/deliveries", deliveries_list, READ, ADMIN_READ, READ, NULL,
          "DeliveryList", 200, PAGED,
          "state=delayed, retrying, waiting, dead, done, discarded, dropped, parked or released;"
          "reason=the name of an error;consumer=who should have got it;type=of the event;"
          "event=its id;key=the account whose act it is",
          "Deliveries that did not simply succeed, newest first")
    ROUTE(GET, "/v1/admin/deliveries/groups", deliveries_groups, READ, ADMIN_READ, READ, NULL,
          "DeliveryGroupList", 200, 0, "",
          "Dead letters and parked events by reason, largest first")
    ROUTE(POST, "/v1/admin/deliveries/redrive", deliveries_redrive, SLOW, ADMIN, WRITE,
          "RedriveRequest", "SliceResult", 200, BODY | LEADER, "",
          "Try dead letters again, at a rate; go on with next until it is null")
    ROUTE(POST, "/v1/admin/deliveries/discard", deliveries_discard, SLOW, ADMIN, WRITE,
          "DiscardRequest", "SliceResult", 200, BODY | LEADER, "",
          "Give deliveries up, and record why; go on with next until it is null")
    ROUTE(POST, "/v1/admin/deliveries/release", deliveries_release, SLOW, ADMIN, WRITE,
          "ReleaseRequest", "SliceResult", 200, BODY | LEADER, "",
          "Take parked events up again that this version can read; go on until next is null")
    ROUTE(GET, "/v1/admin/replays", replays_list, READ, ADMIN_READ, READ, NULL, "JobList", 200,
          PAGED, "", "Replays, newest first")
    ROUTE(POST, "/v1/admin/replays", replays_create, SLOW, ADMIN, WRITE, "NewReplay", "Job", 201,
          BODY | ROUTE_CONFLICTS | LEADER, "", "Start a replay; plan it first")
    ROUTE(POST, "/v1/admin/replays/plan", replays_plan, SLOW, ADMIN, WRITE, "ReplayPlanRequest",
          "ReplayPlan", 200, BODY, "",
          "One slice of a dry run: counts what a replay would do; go on with position until end")
    ROUTE(GET, "/v1/admin/replays/{id}", replays_show, READ, ADMIN_READ, READ, NULL, "Job", 200, 0,
          "", "One replay")
    ROUTE(PUT, "/v1/admin/replays/{id}", replays_change, SLOW, ADMIN, WRITE, "JobChange", "Job",
          200, BODY | ROUTE_CONFLICTS | LEADER, "", "Pause, resume or cancel a replay")
    ROUTE(GET, "/v1/admin/rebuilds", rebuilds_list, READ, ADMIN_READ, READ, NULL, "JobList", 200,
          PAGED, "", "Rebuilds, newest first")
    ROUTE(POST, "/v1/admin/rebuilds", rebuilds_create, SLOW, ADMIN, WRITE, "NewRebuild", "Job", 201,
          BODY | ROUTE_CONFLICTS | LEADER, "",
          "Rebuild timelines, inboxes or counters from truth, online")
    ROUTE(GET, "/v1/admin/rebuilds/{id}", rebuilds_show, READ, ADMIN_READ, READ, NULL, "Job", 200,
          0, "", "One rebuild")
    ROUTE(PUT, "/v1/admin/rebuilds/{id}", rebuilds_change, SLOW, ADMIN, WRITE, "JobChange", "Job",
          200, BODY | ROUTE_CONFLICTS | LEADER, "", "Pause, resume or cancel a rebuild")

    /* events, for other systems */
    ROUTE(GET, "/v1/events", events_follow, INLINE, ADMIN_READ, READ, NULL, "EventPage", 200,
          ROUTE_MAY_BE_GONE,
          "consumer=who reads: begins at its saved position;cursor=the id of the last event seen;"
          "limit=events a page, at most 1000;types=event types, comma-separated",
          "Events in order, as CloudEvents; a bare batch when Accept is "
          "application/cloudevents-batch+json")
    ROUTE(GET, "/v1/events/consumers", consumers_list, READ, ADMIN_READ, READ, NULL, "ConsumerList",
          200, 0, "", "Who follows our events, how far each has got and how late it is")
    ROUTE(PUT, "/v1/events/consumers/{name}", consumers_save, WRITE, ADMIN, WRITE,
          "ConsumerPosition", "Consumer", 200, BODY | ROUTE_CONFLICTS | ROUTE_MAY_BE_GONE, "",
          "Save a consumer's position: the id of the last event that it has dealt with")
    ROUTE(DELETE, "/v1/events/consumers/{name}", consumers_delete, WRITE, ADMIN, WRITE, NULL, NULL,
          204, 0, "", "Forget a consumer and its position")

    /* the server itself */
    ROUTE(GET, "/healthz", health_live, INLINE, ANYONE, NONE, NULL, "Health", 200, NO_TOKEN, "",
          "Is the process alive?")
    ROUTE(GET, "/readyz", health_ready, INLINE, ANYONE, NONE, NULL, "Health", 200, NO_TOKEN, "",
          "May it be sent traffic? 503 until the views are up")
    ROUTE(GET, "/metrics", metrics_show, INLINE, ANYONE, NONE, NULL, "text/plain", 200, NO_TOKEN,
          "", "Metrics in Prometheus text")
    ROUTE(GET, "/openapi.json", openapi_show, INLINE, ANYONE, NONE, NULL, "OpenAPI", 200, NO_TOKEN,
          "", "This API as an OpenAPI 3.1 document")
    ROUTE(GET, "/docs", docs_show, INLINE, ANYONE, NONE, NULL, "text/html", 200, NO_TOKEN, "",
          "This API as a page to read")
};
/* clang-format on */

const size_t route_count = COUNT_OF(routes);
_Static_assert(COUNT_OF(routes) <= ROUTES_MAX, "raise ROUTES_MAX");

/* ---- the trie ---- */

enum { NODES_MAX = 224, METHODS = HTTP_M_OTHER };

struct node {
    struct str text;      /* the literal; {NULL, 0} for an {id} or a {name} */
    int16_t next_sibling; /* among literals; 0: last */
    int16_t first_child;  /* literals; 0: none */
    int16_t id_child;     /* 0: none */
    int16_t name_child;   /* 0: none */
    uint16_t methods;
    const struct route *by_method[METHODS];
};

static struct node nodes[NODES_MAX];
static int16_t node_count;
static pthread_once_t built = PTHREAD_ONCE_INIT;

static int16_t node_add(struct str text)
{
    CHECK(node_count < NODES_MAX);
    nodes[node_count].text = text;
    return node_count++;
}

static int16_t literal_child(const struct node *parent, struct str segment)
{
    for (int16_t i = parent->first_child; i; i = nodes[i].next_sibling) {
        if (str_eq(nodes[i].text, segment))
            return i;
    }
    return 0;
}

/* Takes "/segment" off the front. False at the end, and when what is left does not begin with '/'.
 */
static bool next_segment(struct str *rest, struct str *segment)
{
    if (rest->len == 0 || rest->ptr[0] != '/')
        return false;
    const char *begin = rest->ptr + 1;
    const char *slash = memchr(begin, '/', rest->len - 1);
    size_t len = slash ? (size_t)(slash - begin) : rest->len - 1;
    *segment = (struct str){begin, len};
    *rest = (struct str){begin + len, rest->len - 1 - len};
    return true;
}

static int16_t node_for(int16_t parent, struct str segment)
{
    if (str_eq(segment, STR("{name}"))) {
        if (!nodes[parent].name_child)
            nodes[parent].name_child = node_add((struct str){NULL, 0});
        return nodes[parent].name_child;
    }
    if (str_starts(segment, STR("{"))) {
        if (!nodes[parent].id_child)
            nodes[parent].id_child = node_add((struct str){NULL, 0});
        return nodes[parent].id_child;
    }
    int16_t child = literal_child(&nodes[parent], segment);
    if (!child) {
        child = node_add(segment);
        nodes[child].next_sibling = nodes[parent].first_child;
        nodes[parent].first_child = child;
    }
    return child;
}

static void build(void)
{
    node_add((struct str){NULL, 0}); /* the root; index 0 means "none" everywhere else */
    for (size_t i = 0; i < route_count; i++) {
        const struct route *r = &routes[i];
        int16_t at = 0;
        struct str rest = r->path, segment;
        while (next_segment(&rest, &segment))
            at = node_for(at, segment);
        CHECK(at != 0 && !nodes[at].by_method[r->method]);
        nodes[at].by_method[r->method] = r;
        nodes[at].methods |= (uint16_t)(1u << r->method | 1u << HTTP_M_OPTIONS);
        if (r->method == HTTP_M_GET)
            nodes[at].methods |= (uint16_t)(1u << HTTP_M_HEAD);
    }
}

static bool parse_id_segment(struct str segment, uint64_t *id)
{
    return segment.len > 0 && segment.ptr[0] != '0' && id_parse(segment, id);
}

static bool is_name(struct str segment)
{
    for (size_t i = 0; i < segment.len; i++) {
        char b = segment.ptr[i];
        if (!((b >= 'a' && b <= 'z') || (b >= '0' && b <= '9') || b == '.' || b == '_' || b == '-'))
            return false;
    }
    return segment.len > 0 && segment.len <= ROUTE_NAME_MAX;
}

bool routes_match(enum http_method method, struct str path, struct route_match *out)
{
    pthread_once(&built, build);
    *out = (struct route_match){0};
    int16_t at = 0;
    struct str rest = path, segment;
    while (next_segment(&rest, &segment)) {
        int16_t child = literal_child(&nodes[at], segment);
        if (!child && nodes[at].id_child && out->param_count < CALL_PARAMS_MAX) {
            uint64_t id;
            if (!parse_id_segment(segment, &id))
                return false;
            out->params[out->param_count++] = id;
            child = nodes[at].id_child;
        }
        if (!child && nodes[at].name_child && is_name(segment)) {
            out->name = segment;
            child = nodes[at].name_child;
        }
        if (!child)
            return false;
        at = child;
    }
    if (rest.len > 0 || at == 0 || !nodes[at].methods)
        return false;
    out->methods = nodes[at].methods;
    enum http_method looked_up = method == HTTP_M_HEAD ? HTTP_M_GET : method;
    if ((int)looked_up < METHODS)
        out->route = nodes[at].by_method[looked_up];
    return true;
}

/* ---- names ---- */

const char *route_method_name(enum http_method method)
{
    static const char *const names[] = {"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"};
    return (size_t)method < COUNT_OF(names) ? names[method] : "OTHER";
}

size_t routes_methods_text(unsigned methods, char out[ROUTE_METHODS_TEXT_MAX])
{
    size_t len = 0;
    for (int m = HTTP_M_GET; m < METHODS; m++) {
        if (!(methods & 1u << m))
            continue;
        int n = snprintf(out + len, ROUTE_METHODS_TEXT_MAX - len, "%s%s", len ? ", " : "",
                         route_method_name((enum http_method)m));
        CHECK(n > 0 && (size_t)n < ROUTE_METHODS_TEXT_MAX - len);
        len += (size_t)n;
    }
    return len;
}

bool route_is_everywhere(const struct route *route)
{
    return !str_starts(route->path, STR("/v1/")) || str_starts(route->path, STR("/v1/admin/"));
}

const char *route_policy_text(enum route_policy policy)
{
    switch (policy) {
    case POLICY_ANYONE:
        return "anyone";
    case POLICY_ACCOUNT:
        return "an account";
    case POLICY_ADMIN_READ:
        return "an API key with admin:read or admin";
    case POLICY_ADMIN:
        return "an API key with admin";
    }
    return "nobody";
}

const char *route_tag(const struct route *route)
{
    static const struct {
        const char *segment, *tag;
    } tags[] = {
        {"accounts", "Accounts"}, {"me", "Accounts"},       {"password", "Accounts"},
        {"export", "Accounts"},   {"sessions", "Sessions"}, {"current", "Sessions"},
        {"follow", "Graph"},      {"block", "Graph"},       {"mute", "Graph"},
        {"followers", "Graph"},   {"following", "Graph"},   {"posts", "Posts"},
        {"like", "Posts"},        {"likes", "Posts"},       {"comments", "Comments"},
        {"feed", "Feed"},         {"events", "Events"},     {"consumers", "Events"},
        {"groups", "Groups"},     {"members", "Groups"},    {"invitations", "Groups"},
        {"messages", "Groups"},   {"read", "Groups"},       {"chat", "Groups"},
        {"inbox", "Groups"},      {"stream", "Stream"},
    };
    if (str_starts(route->path, STR("/v1/admin/")))
        return "Administration";
    const char *tag = "Server";
    struct str rest = route->path, segment;
    while (next_segment(&rest, &segment)) { /* the last literal decides */
        for (size_t i = 0; i < COUNT_OF(tags); i++) {
            if (str_eq(segment, str_of(tags[i].segment)))
                tag = tags[i].tag;
        }
    }
    return tag;
}
