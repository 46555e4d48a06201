/* The commands of operators: each a row with its words, its options, what it asks the server and
 * how the answer is shown (cmd/operate.h, cmd/show.h). To add one, add a row: parsing, help, checks
 * of options, --json, paging and the text follow from it. */
#include "cmd/operate.h"

#include "base/check.h"

enum {
    RATE_MAX = 1000000,
    LIST_MAX = 100000,
    DEPTH_MAX = 100000,
    LIST_SLICE = 200,
    KEY_DAYS_MAX = 3650
};

#define JSON_OPTION                                                                                \
    {                                                                                              \
        "json", NULL, "as JSON"                                                                    \
    }

/* ---- status ---- */

static const char status_text[] =
    "Fantail {version} on {asked.data}, [?asked.remote {uptime_ms:ms}][?!asked.remote not "
    "serving]\n"
    "[?cluster node {cluster.node}, [?cluster.leader!=null node {cluster.leader} leads in term "
    "{cluster.term}][?cluster.leader=null NO NODE LEADS]; "
    "{cluster.parts.db.kind}[?cluster.parts.db.state!=up  {cluster.parts.db.state}], "
    "{cluster.parts.views.kind}[?cluster.parts.views.state!=up  {cluster.parts.views.state}], "
    "{cluster.parts.bus.kind}[?cluster.parts.bus.state!=up  {cluster.parts.bus.state}]\n"
    "[?cluster.quarantined THIS NODE IS QUARANTINED: it refuses writes until it reaches its "
    "servers "
    "again\n]"
    "[?nodes>1   node is       roles                       silent       up version   address\n"
    "<nodes [?leads *][?!leads  ] {number:4} [?left&state=gone left    ][?!left|state!=gone "
    "{state:-8}] {roles:-25} {silent_ms:8ms} "
    "[?state!=gone {started_at:8since}][?state=gone        -] {version:-9} {address}\n>"
    "  * leads\n\n]]"
    "[?!engine no node that leads answers: writes and reads go on, deliveries wait\n\n]"
    "[?engine [?headline.worst_ms worst lag that people notice: {headline.worst_ms:ms}: "
    "{headline.late_means}\n]"
    "[?!headline.worst_ms nothing that people notice is late\n]"
    "[{headline.dead:dead letter waits|dead letters wait} for a decision: fantail dead groups\n]"
    "[{engine.states.parked:event is parked|events are parked}, not read by this version: fantail "
    "dead groups\n]"
    "[?overload_guard.level AT RISK: {overload_guard.why}; [?overload_guard.level=1 bulk work "
    "rests][?overload_guard.level>1 nothing "
    "new is taken]\n]"
    "\nconsumer   type            lane     is        oldest   target  backlog   dead\n"
    "<freshness.cells [?target_ms|backlog {consumer:-10} {type:-15} {lane:-8} {verdict:-7} "
    "{oldest_age_ms:8ms} {target_ms:8ms} {backlog:8n} {dead:6n}[  {delayed+waiting:n} to retry]"
    "[?verdict!=green&backlog   caught up [?catch_up_ms=null never][?catch_up_ms!=null in "
    "{catch_up_ms:ms}]]\n]>"
    "\nlane       backlog in flight   oldest     delivered    repeated   failed\n"
    "<engine.lanes {name:-9} {backlog:8n} {in_flight:9n} {oldest_age_ms:8ms} {delivered:13n} "
    "{repeated:11n} {failed:8n}[?breaker.state!=running   STOPPED[: {breaker.reason}]"
    "[?!breaker.reason  {breaker.state}]]\n>"
    "\nevents    {engine.undone:n} undone, oldest {engine.oldest_undone_ms:ms}; "
    "{engine.events_done:n} done since the start\n"
    "states    {engine.states?no events:sums}\n"
    "[blocked   {engine.blocked_keys:key waits|keys wait} behind a delivery that is tried again: "
    "fantail dead list --state delayed\n]"
    "[unknown   {engine.duplicates.unknown:act|acts} of unknown outcome: fantail dead groups\n]]"
    "groups    {groups.per_second:.0} entries/s, sequenced in {groups.lag_p50_ms:.1} ms (p50) and "
    "{groups.lag_p99_ms:.1} ms (p99)[; {groups.limited:n} refused: their group wrote too much]\n"
    "[?inboxes inboxes   oldest undelivered {inboxes.lag_ms:ms}, {inboxes.failed:batch|batches} "
    "not written at the first try\n"
    "<inboxes.lanes [?backlog|failed|dead           {consumer} in {lane}: oldest {lag_ms:ms}, "
    "{backlog:n} waiting, {failed:n} failed\n]>]"
    "[?groups.hot hot      <groups.hot [?#<5 [?# ,] {group_id} at {per_second:.1}/s]>"
    "[?groups.hot>5 , more: --json]\n]"
    "views     {views.accounts:n} accounts, {views.follows:n} follows, {views.timelines:n} "
    "timelines with {views.entries:n} entries, {views.bytes:bytes}\n"
    "snapshot  {views.saved_at?none yet}\n"
    "cards     {cards.posts:n} posts, hit rate {cards.hit_rate:%}, {cards.bytes:bytes} of "
    "{cards.bytes_max:bytes}\n"
    "pages     {pages.pages:n} first pages, hit rate {pages.hit_rate:%}, {pages.bytes:bytes} of "
    "{pages.bytes_max:bytes}\n"
    "store     {db.commits:n} commits, {db.queue_depth:n} waiting, file {db.file_bytes:bytes}, log "
    "{db.wal_bytes:bytes}[?db.full , FULL]\n"
    "http      {http.connections:connection|connections}, {http.requests:request|requests}\n"
    "celebrity {celebrity.threshold:n} followers[?celebrity.adaptive , adaptive]\n"
    "audit     {audit.feeds:n} feeds and {audit.inboxes:n} inboxes compared with truth, "
    "{audit.drift:n} wrong\n"
    "[?asked.numbers \nprocess: {process}\nhttp: {http}\nstreams: {streams}\nlive: {live}\nauth: "
    "{auth}\ndb: {db}\n"
    "views: {views}\ncards: {cards}\npages: {pages}\ninvalidation: {invalidation}\n]";

static const struct operation status_operation[] = {
    {.method = "GET", .target = "/v1/admin/status", .text = status_text, .then = status_show},
};

/* ---- check, explain, event ---- */

static const struct operation check_operation[] = {
    {.method = "POST",
     .target = "/v1/admin/check",
     .members = "{\"from\": \"0\", \"limit\": 100, \"depth\": 200}",
     .resume = "from",
     .next = "next",
     .label = "checking",
     .counted = "feeds",
     .take = check_take_slice,
     .text = "{feeds:n} feeds, {inboxes:n} inboxes, {counters:n} counters, {edges:n} edges "
             "compared: {found:n} differences[?asked.repair , {repaired:n} repaired]\n",
     .run = check_run},
};

static const struct operation explain_operation[] = {
    {.method = "GET",
     .target = "/v1/admin/explain?user={0}&post={1}",
     .text = "[?!visible not ]in the feed: {verdict}\n<facts   - {.}\n>"},
};

/* The number of a trace record means something else for each kind of it (pipe/trace.h). */
static const struct operation event_operation[] = {
    {.method = "GET",
     .target = "/v1/admin/events/{0:id}",
     .text =
         "event {id}: {type?of a type not known}, {state}\n"
         "[  by {actor}[?object , about {object}]\n]"
         "[  this version of the program cannot read it: {unread}\n]"
         "  committed  {committed_at} ({committed_at:ago})\n"
         "[  published  {published_at} ({published_at:ago})\n]"
         "[  done       {done_at} ({done_at:ago})\n]"
         "<rules   [?!wanted not ]for {consumer}[?wanted , lane {lane}][?!wanted : {why_not}]\n>"
         "[?batches.count   delivered to {batches.members:account|accounts} in "
         "{batches.count:batch|batches}: {batches.delivered:n} changed something, "
         "{batches.skipped:n} skipped[?!batches.complete  (the trace does not reach back to its "
         "beginning)]\n]"
         "<in_flight   in flight: {consumer}, lane {lane}, part {part}, after {cursor}: {state}\n>"
         "[?deliveries deliveries on record:\n"
         "<deliveries   {consumer?the event itself}: {state}, {changed_at:ago}, after "
         "{tries:try|tries}; {reason}[: {detail}][; next try {due_at:ago}] (delivery {id})\n"
         "<history     {at:-11ago} {reason}\n>>]"
         "[?trace what happened:\n<trace   {at:-11ago} {kind:-11}[ {consumer}, lane {lane}]"
         "[?n [?consumer ,][?kind=published  {n:message|messages}][?kind=failed  try {n}]"
         "[?kind=dead|kind=dropped  after {n:try|tries}][?kind=delayed  by {n:ms}]"
         "[?kind!=published&kind!=failed&kind!=dead&kind!=dropped&kind!=delayed  "
         "{n:account|accounts}][ ({done:n} changed something)]][: {why}]\n>]"
         "[  … and {trace_left_out} more between these\n]"
         "[?state=dead next: fantail dead redrive --event {id}\n"
         "or:   fantail dead discard --event {id} --why TEXT\n]"
         "[?state=parked next: after an upgrade, fantail dead release --event {id}\n]"},
};

/* ---- dead letters ---- */

#define CHANGE(verb_, done_, needs_)                                                               \
    {                                                                                              \
        .verb = verb_, .method = "POST", .target = "/v1/admin/deliveries/" verb_, .needs = needs_, \
        .filtered = true, .resume = "next", .next = "next", .label = "changing",                   \
        .counted = "changed",                                                                      \
        .text = "[?changed {changed:n} " done_ "\n][?!changed nothing that could be " done_        \
                " matches; see: fantail dead groups\n]"                                            \
    }

static const struct operation dead_operations[] = {
    {.verb = "list",
     .method = "GET",
     .target = "/v1/admin/deliveries",
     .members = "{\"state\": \"dead\", \"limit\": 50}",
     .resume = "cursor",
     .next = "next_cursor",
     .slice_max = LIST_SLICE,
     .text = "[?!items no {asked.state} deliveries match\n]"
             "[?items event              consumer  type            reason          tries since\n"
             "<items {event:-18} {consumer?-:-9} {type:-15} {reason:-15} {tries:5} "
             "{opened_at:-10ago}[  next try {due_at:ago}][  {detail}]\n>"
             "[?next_cursor there are more: --limit N shows N of them\n]"
             "one event's history: fantail event ID\n]"},
    {.verb = "groups",
     .method = "GET",
     .target = "/v1/admin/deliveries/groups",
     .text = "[?!items no dead letters and nothing parked\n]"
             "[?items state  reason          consumer  type              count  newest     oldest\n"
             "<items {state:-6} {reason:-15} {consumer?-:-9} {type:-15} {count:7n}  "
             "{newest_at:-10ago} {oldest_at:ago}\n>]"
             "[?items.state=dead dead, next: fantail dead redrive --reason REASON\n"
             "        or: fantail dead discard --reason REASON --why TEXT\n]"
             "[?items.state=parked parked, after an upgrade: fantail dead release --all\n]"},
    CHANGE("redrive", "tried again", NULL),
    CHANGE("discard", "discarded", "why"),
    CHANGE("release", "released", NULL),
    {.verb = NULL},
};

/* ---- replays and rebuilds ---- */

#define JOB_LOOK(path_, noun_, label_, outcome_)                                                   \
    {.verb = "list",                                                                               \
     .method = "GET",                                                                              \
     .target = path_,                                                                              \
     .text =                                                                                       \
         "[?!items no " noun_ "s\n][?items id                   state      what               "    \
         "  looked at          of  started     note\n"                                             \
         "<items {id:-20} {state:-10} [?spec.consumer {spec.consumer:-18}][?!spec.consumer "       \
         "{kind:-18}] {seen:11n} {total:11n}  {created_at:-11ago} {note}\n>]"},                    \
    {                                                                                              \
        .verb = "watch", .method = "GET", .target = path_ "/{1:id}", .label = label_,              \
        .text = outcome_, .then = job_watch                                                        \
    }
#define JOB_STATE(verb_, path_, noun_, state_)                                                     \
    {                                                                                              \
        .verb = verb_, .method = "PUT", .target = path_ "/{1:id}",                                 \
        .members = "{\"state\": \"" state_ "\"}", .text = noun_ " {id} is {state}\n"               \
    }
#define JOB_OPERATIONS(path_, noun_, label_, outcome_)                                             \
    JOB_LOOK(path_, noun_, label_, outcome_), JOB_STATE("pause", path_, noun_, "paused"),          \
        JOB_STATE("resume", path_, noun_, "running"),                                              \
        JOB_STATE("cancel", path_, noun_, "cancelled"),                                            \
    {                                                                                              \
        .verb = "rate", .method = "PUT", .target = path_ "/{1:id}", .needs = "rate",               \
        .text = noun_ " {id} is {state}, at {rate:n} a second\n"                                   \
    }

#define REPLAY_OUTCOME                                                                             \
    "replay {id} {state}: {seen:event|events} looked at, {acted:n} delivered again, {repeated:n} " \
    "already done, {suppressed:n} suppressed, {failed:n} failed[ ({note})]\n"                      \
    "[?failed what failed is on record: fantail dead groups, fantail dead list\n]"

static const struct operation replay_operations[] = {
    {.verb = "plan",
     .method = "POST",
     .target = "/v1/admin/replays/plan",
     .members = "{\"position\": \"0\"}",
     .needs = "consumer",
     .resume = "position",
     .next = "position",
     .label = "planning",
     .counted = "events",
     .take = replay_take_slice,
     .text = "{asked.consumer} of {asked.type?every type}, {asked.from?the oldest kept} to "
             "{asked.to}\n"
             "  events that match                      {events:15n}\n"
             "[  under way, left to the live engine     {undone:15n}\n]"
             "[  that this version cannot read          {unreadable:15n}\n]"
             "[  already done, by the duplicate memory  {remembered:15n}\n]"
             "[  of unknown outcome, not acted on       {unknown:15n}\n]"
             "[  suppressed: channel not allowed        {suppressed:15n}\n]"
             "  would act                              {would_act:15n}\n"
             "<channels     {#:-36} {would_act:15n}[?suppressed   ({suppressed:n} suppressed; "
             "--allow {#})]\n>"
             "[  from event {first} to {last}\n][note: {note}\n]",
     .run = replay_plan},
    {.verb = "start",
     .method = "POST",
     .target = "/v1/admin/replays",
     .needs = "consumer",
     .label = "replaying",
     .text = REPLAY_OUTCOME,
     .run = replay_start},
    JOB_OPERATIONS("/v1/admin/replays", "replay", "replaying", REPLAY_OUTCOME),
    {.verb = NULL},
};

#define REBUILD_OUTCOME                                                                            \
    "rebuild {id} {state}: {seen:account|accounts} looked at, {acted:n} [?acted=1 "                \
    "was][?acted!=1 were] different[ ({note})]\n"
#define REBUILD(what_)                                                                             \
    {                                                                                              \
        .verb = what_, .method = "POST", .target = "/v1/admin/rebuilds",                           \
        .members = "{\"what\": \"" what_ "\"}", .label = "rebuilding", .text = REBUILD_OUTCOME,    \
        .then = job_follow                                                                         \
    }

static const struct operation rebuild_operations[] = {
    REBUILD("timelines"),
    REBUILD("inboxes"),
    REBUILD("counters"),
    JOB_OPERATIONS("/v1/admin/rebuilds", "rebuild", "rebuilding", REBUILD_OUTCOME),
    {.verb = NULL},
};

/* ---- keys ---- */

static const struct operation key_operations[] = {
    {.verb = "create",
     .method = "POST",
     .target = "/v1/admin/keys",
     .members = "{\"name\": \"command line\"}",
     .needs = "scope",
     .create = true,
     .text = "{key}\n",
     .note = "key {id} with the scopes '{asked.scopes}': it is shown this once only.\n"},
    {.verb = "list",
     .method = "GET",
     .target = "/v1/admin/keys",
     .text = "[?!items no keys\n]"
             "[?items id                    scopes                created                   name\n"
             "<items {id:-20}  {scopes:-20}  {created_at:-24}  {name}[?revoked_at  "
             "(revoked)][?expires_at  (until {expires_at})]\n>]"},
    {.verb = "revoke", .method = "DELETE", .target = "/v1/admin/keys/{1:id}", .text = "revoked\n"},
    {.verb = NULL},
};

/* ---- the commands ---- */

/* The verbs that take an option. */
#define SELECTS  "list redrive discard release "
#define PLANS    "plan start "
#define REBUILDS "timelines inboxes counters "

const struct command operator_commands[] = {
    {.name = "status",
     .arguments = "",
     .summary = "show what is late, lanes, states and how the parts are",
     .about =
         "Shows the worst lag that people notice. Then, for each consumer, event type and lane, "
         "how "
         "old the oldest undone event is against its target, worst first; for each lane its "
         "backlog "
         "and what it delivered; events by state; how fast groups get their sequence numbers, how "
         "late inboxes are, which groups are busy; then the views, caches, store and the celebrity "
         "threshold. Where several nodes use one store, also the nodes and which one leads. The "
         "engine's part always comes from the leader, the rest from the node that runs on the data "
         "folder.",
     .examples = "  fantail status\n  fantail status --watch\n  fantail status --json",
     .options = {JSON_OPTION,
                 {"watch", NULL, "again every two seconds"},
                 {"numbers", NULL, "also every number of each part, by its name in the API"}},
     .operations = status_operation},
    {.name = "check",
     .arguments = "",
     .summary = "compare feeds, inboxes, counters and the graph with truth",
     .about = "Reads every feed and every inbox as its owner would and compares it with one plain "
              "query over the store; counts the edges behind every counter, and the entries and "
              "members behind those of groups; compares the graph in the views with the stored "
              "one. The exit code is 1 when something differs, also when it was repaired.",
     .examples =
         "  fantail check\n  fantail check --user ada --depth 1000\n  fantail check --repair",
     .options = {{"all", NULL, "every account (the default)"},
                 {"user", "USER", "one account, by name or id"},
                 {"depth", "N", "posts of each feed and groups of each inbox (default 200)",
                  OPTION_NUMBER, NULL, 1, DEPTH_MAX},
                 {"repair", NULL, "correct what differs", OPTION_TRUE},
                 JSON_OPTION},
     .operations = check_operation},
    {.name = "explain",
     .arguments = "USER POST",
     .summary = "say why a post is or is not in a person's feed",
     .about =
         "USER is an account's name or id, POST a post's id. Prints the verdict and every fact "
         "behind it: pushed or pulled, followed, muted, blocked, deleted, delivered or in "
         "flight.",
     .examples = "  fantail explain ada 7266382940364193792",
     .arguments_min = 2,
     .arguments_max = 2,
     .options = {JSON_OPTION},
     .operations = explain_operation},
    {.name = "event",
     .arguments = "ID",
     .summary = "show one event's whole history",
     .about =
         "Prints what became true, when it was committed and published, which consumers want it, "
         "what was delivered, each try that failed and what follows, and every decision not to "
         "act, with its reason. 'fantail dead list' and GET /v1/events show the ids of events.",
     .examples = "  fantail event 7266382940364193792",
     .arguments_min = 1,
     .arguments_max = 1,
     .options = {JSON_OPTION},
     .operations = event_operation},
    {.name = "dead",
     .arguments = "list | groups | redrive | discard | release",
     .summary = "dead letters: look, try again, give up",
     .about =
         "A delivery that used up its tries becomes a dead letter and waits for a decision; later "
         "events of its key wait behind it where order matters. 'redrive' tries dead letters "
         "again, "
         "at a rate; 'discard' gives them up and records why; 'release' takes up parked events "
         "that "
         "this version can read. Those three need a filter, or --all.",
     .examples =
         "  fantail dead groups\n  fantail dead list --reason UNAVAILABLE\n"
         "  fantail dead redrive --reason UNAVAILABLE --rate 200\n"
         "  fantail dead discard --event 7266382940364193792 --why 'asked for by the owner'\n"
         "  fantail dead release --all",
     .arguments_min = 1,
     .arguments_max = 1,
     .options = {{"reason", "REASON", "that failed for this, such as UNAVAILABLE", OPTION_FILTER,
                  SELECTS},
                 {"consumer", "NAME", "of this consumer", OPTION_FILTER, SELECTS},
                 {"type", "TYPE", "of events of this type", OPTION_FILTER, SELECTS},
                 {"event", "ID", "of this event", OPTION_FILTER, SELECTS},
                 {"key", "ID", "of events of this account", OPTION_FILTER, SELECTS},
                 {"delivery", "ID", "this one alone (redrive, discard, release)", OPTION_FILTER,
                  "redrive discard release "},
                 {"state", "STATE", "list: in this state instead of dead; discard: only these",
                  OPTION_TEXT, "list discard "},
                 {"all", NULL, "every one", OPTION_TRUE, "redrive discard release "},
                 {"rate", "N", "redrive: so many a second (default 500); 0: all at once",
                  OPTION_NUMBER, "redrive ", 0, RATE_MAX},
                 {"why", "TEXT", "discard: recorded with each", OPTION_TEXT, "discard "},
                 {"limit", "N", "list: at most so many (default 50)", OPTION_NUMBER, "list ", 1,
                  LIST_MAX},
                 JSON_OPTION},
     .operations = dead_operations},
    {.name = "replay",
     .arguments = "plan | start | list | watch ID | pause ID | resume ID | cancel ID | rate ID",
     .summary = "deliver events again to one consumer",
     .about =
         "Selects events by consumer, type, time, account or dead letter and delivers them again, "
         "under their own ids, in a lane and at a rate of their own. 'plan' is a dry run; 'start' "
         "plans, then begins and shows its progress (Ctrl-C leaves it running). Only the channels "
         "named with --allow have outside effects. A replay pauses while live work is late, and "
         "survives a restart.\n"
         "Times are 2026-11-15T08:00:00Z, or 2h for two hours ago (s, m, h, d).",
     .examples = "  fantail replay plan --consumer timelines --from 2h\n"
                 "  fantail replay start --consumer timelines --type post.created --from 2h --rate "
                 "500\n"
                 "  fantail replay start --consumer backfill --dead UNAVAILABLE --detach\n"
                 "  fantail replay list\n  fantail replay pause 7266382940364193792\n"
                 "  fantail replay rate 7266382940364193792 --rate 50",
     .arguments_min = 1,
     .arguments_max = 2,
     .options =
         {{"consumer", "NAME", "whose deliveries; 'fantail status' lists the consumers",
           OPTION_TEXT, PLANS},
          {"type", "TYPE", "only events of this type, such as post.created", OPTION_TEXT, PLANS},
          {"from", "TIME", "from this moment on (default: the oldest kept)", OPTION_MOMENT, PLANS},
          {"to", "TIME", "up to this moment (default: now)", OPTION_MOMENT, PLANS},
          {"key", "ID", "only events of this account", OPTION_TEXT, PLANS},
          {"dead", "REASON", "only events with a dead letter for REASON; '*' for any", OPTION_TEXT,
           PLANS, .member = "dead_reason"},
          {"allow", "CHANNEL", "may use this outside channel; may be repeated", OPTION_LIST, PLANS},
          {"rate", "N", "start, rate: events a second (default 1000); 0: no limit", OPTION_NUMBER,
           "start rate ", 0, RATE_MAX},
          {"accept-duplicates", NULL, "also what is older than the duplicate memory", OPTION_TRUE,
           PLANS},
          {"detach", NULL, "start: do not wait for the end", OPTION_LOCAL, "start "},
          JSON_OPTION},
     .operations = replay_operations},
    {.name = "rebuild",
     .arguments =
         "timelines | inboxes | counters | list | watch ID | pause ID | resume ID | cancel ID | "
         "rate ID",
     .summary = "derive timelines, inboxes or counters again from truth, online",
     .about =
         "Walks accounts by id and derives again: home timelines from posts and follows, inboxes "
         "from groups and their members, counters from what they count. The server keeps serving. "
         "A rebuild pauses while the store is at risk, continues after a restart, and shows its "
         "progress (Ctrl-C leaves it running).\n"
         "'fantail check' says whether there is anything to rebuild.",
     .examples = "  fantail rebuild timelines\n  fantail rebuild inboxes --account ada\n"
                 "  fantail rebuild timelines --rate 100 --detach\n  fantail rebuild list",
     .arguments_min = 1,
     .arguments_max = 2,
     .options = {{"user", "USER", "one account, by name or id", OPTION_TEXT, REBUILDS},
                 {"account", "USER", "the same", OPTION_TEXT, REBUILDS, .member = "user"},
                 {"rate", "N", "accounts a second (default 500); 0: no limit", OPTION_NUMBER,
                  REBUILDS "rate ", 0, RATE_MAX},
                 {"detach", NULL, "do not wait for the end", OPTION_LOCAL, REBUILDS},
                 JSON_OPTION},
     .operations = rebuild_operations},
    {.name = "key",
     .arguments = "create | list | revoke ID",
     .summary = "create, list and revoke API keys",
     .about = "Send a key as 'Authorization: Bearer KEY'. Scopes:\n"
              "  act         act for the account named in the Fantail-Account header\n"
              "  admin       everything under /v1/admin\n"
              "  admin:read  look only\n"
              "The key is printed once, on standard output, and stored only as a hash.",
     .examples = "  fantail key create --scope act --scope admin --name backend\n"
                 "  fantail key list\n  fantail key revoke 7266382940364193792",
     .arguments_min = 1,
     .arguments_max = 2,
     .options = {{"scope", "SCOPE", "act, admin or admin:read; may be repeated", OPTION_WORDS,
                  "create ", .member = "scopes"},
                 {"name", "NAME", "what it is for", OPTION_TEXT, "create "},
                 {"days", "N", "expires after so many days (default: never)", OPTION_NUMBER,
                  "create ", 1, KEY_DAYS_MAX},
                 {"rate", "N", "so many requests a second (default: no limit)", OPTION_NUMBER,
                  "create ", 1, RATE_MAX},
                 JSON_OPTION},
     .operations = key_operations},
};

const size_t operator_command_count = COUNT_OF(operator_commands);
