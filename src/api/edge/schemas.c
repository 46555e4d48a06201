/* One row per shape, in the notation of schemas.h. Lists are all alike, so a macro writes them. */
#include "api/edge/schemas.h"

#include "base/check.h"

#define LIST(of) "{items!:*" of " next_cursor!:text? 'pass it as cursor; null: the end'}"
/* Lists that are never cut into pages. */
#define WHOLE_LIST(of) "{items!:*" of " next_cursor:null}"
#define JOB_RATE       "number[0..1000000] 'a second; 0: no limit'"
#define DELIVERY_STATE "(delayed|retrying|waiting|dead|done|discarded|dropped|parked|released)"
/* Which deliveries: at least one of them, or all. */
#define FILTER                                                                                     \
    "delivery:id event:id key:text 'the account whose act it is' reason:text consumer:text "       \
    "type:text state:" DELIVERY_STATE " all:flag 'every one; without it a filter is required' "    \
    "next:text 'of the answer before'"
#define MOMENT "={'type':['string','integer']} 'RFC 3339, or ms since 1970'"
/* Which events a replay means. */
#define SELECTION                                                                                  \
    "consumer!:text type:text from:" MOMENT " to:" MOMENT " key:text 'the account whose act it "   \
    "is' dead_reason:text 'only events with a dead letter of this reason; * for any' "             \
    "allow:*text 'channels that may be used' accept_duplicates:flag"
#define PART    "(up|suspect|away)"
#define ROLE    "(owner|admin|member)"
#define HISTORY "(joined|all) 'what members may read: from their joining on, or all'"

const struct schema schemas[] = {
    {"Problem",
     "{type!:text 'a page about the kind of problem' code!:text 'the kind, for programs' "
     "title!:text status!:number detail:text 'what is wrong here, for people'}"},
    {"AccountBrief", "{id!:id username!:text display_name!:text avatar_url!:text?}"},
    {"Relationship",
     "{following:flag followed_by:flag blocking:flag muting:flag} 'how the caller stands to the "
     "account'"},
    {"Account",
     "{id!:id username!:text display_name!:text avatar_url!:text? bio:text follower_count:count "
     "following_count:count post_count:count created_at:time email:text? 'only in one’s own "
     "account' relationship:Relationship}"},
    {"AccountList", LIST("AccountBrief")},
    {"NewAccount",
     "{username!:text/^[A-Za-z0-9_.]{3,30}$/ password!:text[8..256] display_name:text[..80] "
     "bio:text[..500] avatar_url:text[..2000] email:text[..254]}",
     "{'username':'ada','password':'correct horse battery'}"},
    {"AccountChange",
     "{display_name:text[..80] bio:text[..500] avatar_url:text[..2000] email:text[..254]}",
     "{'display_name':'Ada Lovelace','bio':'Notes on the Analytical Engine'}"},
    {"PasswordChange", "{current_password!:text new_password!:text[8..256]}",
     "{'current_password':'correct horse battery','new_password':'a better one'}"},
    {"Export", "object 'everything the account has'"},
    {"Credentials", "{username!:text password!:text}",
     "{'username':'ada','password':'correct horse battery'}"},
    {"Login", "{account!:Account token!:text 'send it as Authorization: Bearer'}"},
    {"Session", "{id:id label:text created_at:time used_at:time expires_at:time current:flag}"},
    {"SessionList", WHOLE_LIST("Session")},
    {"Post", "{id!:id author!:AccountBrief caption!:text media!:*object like_count!:count "
             "comment_count!:count liked!:flag 'by the caller' created_at!:time edited_at:time?}"},
    {"PostList", LIST("Post")},
    {"NewPost", "{caption!:text[..2200]}", "{'caption':'Hello, world'}"},
    {"PostChange", "{caption!:text[..2200]}", "{'caption':'Hello again, world'}"},
    {"Comment", "{id!:id post_id:id author!:AccountBrief body!:text created_at!:time}"},
    {"CommentList", LIST("Comment")},
    {"NewComment", "{body!:text[..2200]}", "{'body':'Well said'}"},
    {"Group",
     "{id!:id kind!:(group|chat) name!:text? 'null of a chat' history!:" HISTORY " "
     "member_count!:count seq!:count 'the last number given' created_at!:time role!:" ROLE " "
     "muted!:flag archived!:flag read_seq!:count joined_seq!:count peer!:AccountBrief? 'of a "
     "chat: the other one'}"},
    {"NewGroup", "{name!:text[1..100] history:" HISTORY " members:*[..1000]id}",
     "{'name':'Birds','members':[]}"},
    {"GroupChange", "{name:text[1..100] history:" HISTORY " muted:flag archived:flag}",
     "{'name':'Birds of the harbour'}"},
    {"GroupMember",
     "{id!:id username!:text display_name:text avatar_url:text? state!:(member|invited) role!:" ROLE
     " joined_seq:number? joined_at:time?}"},
    {"GroupMemberList", LIST("GroupMember")},
    {"MemberChange", "{role:" ROLE " invite:flag 'ask, instead of adding at once'}",
     "{'role':'admin'}"},
    {"Invitation", "{group_id:id name:text member_count:count invited_by:id created_at:time}"},
    {"InvitationList", LIST("Invitation")},
    {"Message",
     "{group_id!:id seq!:number[1..] "
     "kind!:(message|edit|delete|moderation|join|leave|rename|role|history) client_id!:text? "
     "author_id!:id body!:text? 'a message’s text, of an edit the text as it is now, the new "
     "name, role or history; null: none, deleted, or from outside of the caller’s membership' "
     "created_at!:time edited_at!:time? deleted!:flag target_seq:number 'edit, delete, "
     "moderation: which message' subject_id:text 'join, leave, role: whom it is about'}"},
    {"NewMessage", "{body!:text[1..10000] client_id:text[1..64] mentions:*[..50]id}",
     "{'client_id':'a-1','body':'Hello, all'}"},
    {"MessageChange", "{body!:text[1..10000]}", "{'body':'Hello, everybody'}"},
    {"MessagePage",
     "{items!:*Message next!:number? 'pass it as after, or as before when the page was asked for "
     "that way or without a number; null: no more for now'}"},
    {"InboxItem", "{group!:Group unread!:count mentions!:number 'unread ones; counted up to 1000' "
                  "last_message!:Message? activity_at!:time}"},
    {"InboxList", LIST("InboxItem")},
    {"Stream",
     "text 'Server-sent events (event, data, retry), and a comment when nothing was sent for a "
     "while. The data of each is JSON, as in x-events. An event holds no content, and the newest "
     "of one kind and group stands for those before it. Connect, wait for hello, then read what "
     "was missed: GET /v1/inbox, and of each group GET /v1/groups/{id}/messages?after= the last "
     "number that is known. When the stream ends, for whatever reason, connect again after the "
     "time in retry and do the same; there is nothing to resume, and Last-Event-ID is not looked "
     "at. A client that reads too slowly is cut off. A stream ends with its token or session, and "
     "after stream-life in any case.' +x-events{"
     "hello:{account!:id} 'the stream is complete from now on; comes first, and again when it may "
     "have missed something: read everything' "
     "group:{group!:id seq!:count} 'the log of the group goes up to this number: messages, edits, "
     "deletions, joins, leaves, names, roles; to a member who left or was removed, the number of "
     "the leaving' "
     "feed:{id!:id} 'a new post in the home feed' "
     "read:{group!:id seq!:count} 'the caller has read the group up to this number, on another "
     "device perhaps' "
     "bye:{reason!:(expired|session|stopping)} 'the server ends the stream; come back unless the "
     "token or session is over'}"},
    {"ReadMark", "{seq!:count}", "{'seq':1}"},
    {"Status",
     "={'allOf':[{'$ref':'#/components/schemas/StatusNumbers'}]} 'of this node: groups (stage "
     "one: how fast entries get their numbers, which groups are busy), views, cards, pages, db, "
     "http, pools, audit; engine, headline and inboxes (stage two) of the node that leads, null "
     "when none answers; cluster: how this node stands to the others, null when there are none'"},
    {"Engine",
     "{headline!:FreshnessHeadline engine!:object 'events, states, lanes' inboxes:object 'how "
     "late inboxes are and what could not be written, by lane'}"},
    {"HotGroups",
     "{window_s:real per_second:real 'of all groups' entries:count lag_p50_ms:real 'submit to "
     "commit' lag_p99_ms:real limit_per_second:count limited:count items!:*[..20]{group_id!:id "
     "per_second!:real entries:number 'at least; more than at_most there were not' "
     "at_most:count}}"},
    {"Node",
     "{number!:count address:text? roles:*(api|relay|worker) version:text started_at:time "
     "silent_ms:number 'since it was last heard of' state!:(up|leaving|gone) left:flag 'it said "
     "good-bye' leads!:flag self:flag 'it is the one that answers' numbers:object 'what it tells "
     "about itself'}"},
    {"NodeList", WHOLE_LIST("Node")},
    {"Key", "{id:id name:text scopes:text created_at:time revoked_at:time? "
            "expires_at:time? rate:number?}"},
    {"KeyList", WHOLE_LIST("Key")},
    {"NewKey",
     "{name!:text[..80] scopes!:text 'act, admin, admin:read; separated by spaces or commas' "
     "days:number[1..3650] 'until it expires' rate:number[1..1000000] 'requests a second'}",
     "{'name':'shop','scopes':'act'}"},
    {"KeyWithSecret", "{id!:id name!:text scopes!:text key!:text}"},
    {"CheckRequest", "{from:id limit:number[1..1000] depth:number[1..100000] repair:flag}",
     "{'limit':100,'depth':200,'repair':false}"},
    {"CheckResult",
     "{feeds:count feed_errors:count inboxes:count inbox_errors:count counters:count "
     "counter_errors:count edges:count edge_errors:count repaired:count drained:flag "
     "differences:*object next:text? 'from of the next slice; null: done'}"},
    {"Explanation", "{visible!:flag verdict!:text}"},
    {"Act",
     "{id!:id at!:time who!:text 'key 12, account 12 or control socket' act!:text 'the operation' "
     "target!:text request:text 'its body, cut' why:text 'the header Fantail-Why, or why of the "
     "body'}"},
    {"ActList", LIST("Act")},
    {"BackupRequest", "{path!:text 'absolute; a new file'}", "{'path':'/var/backups/fantail.db'}"},
    {"BackupResult", "{path:text bytes:count took_ms:count}"},
    {"ImportResult",
     "{accounts:count follows:count posts:count repeated:count rejected:count errors:*object}"},
    {"SaveResult", "{position:id bytes:count took_ms:count}"},
    {"LaneChange",
     "{lane!:text stopped:flag 'true: take nothing more; false: go on, also when it stopped by "
     "itself' concurrency:number[1..1000] rate:number[0..1000000] 'batches per second; 0: no "
     "limit' keep:flag 'true: the lane stays as it is now after the next start; false: it does "
     "not'}",
     "{'lane':'cleanup','concurrency':1,'rate':100}"},
    {"Lane",
     "{name:text backlog:count in_flight:count delivered:count repeated:count failed:count "
     "skipped:count oldest_age_ms:count concurrency:count rate:count "
     "breaker:{state:(running|stopped|by hand) reason:text? since:time? failed:count of:count "
     "opened:count}}"},
    {"FreshnessHeadline",
     "{worst_ms:count consumer:text? type:text? lane:text? late_means:text? green:count "
     "late:count behind:count stopped:count dead:count} 'the worst lag of what people notice, and "
     "how many cells are how'"},
    {"FreshnessCell",
     "{consumer:text type:text lane:text verdict:(green|late|behind|stopped) oldest_age_ms:count "
     "target_ms:count backlog:count delayed:count waiting:count failed:count dead:count "
     "in_per_second:real out_per_second:real net_per_second:real catch_up_ms:number? 'at the "
     "present net rate; null: never' visible:flag 'do people notice?' late_means:text?}"},
    {"Freshness", "{headline:FreshnessHeadline cells:*FreshnessCell 'worst first'}"},
    {"EventStates",
     "{pending:count published:count expanded:count delayed:count waiting:count dead:count "
     "parked:count dropped:count discarded:count settled:count archived:count} 'events by state; "
     "in the delivery store (delayed to discarded) one for each delivery'"},
    {"OverloadGuard", "{level:number[0..2] why:text? free_bytes:number?}"},
    {"Staleness",
     "{verdict!:(green|late|behind|stopped|at risk) headline:FreshnessHeadline stale!:*{says:text "
     "verdict:text consumer:text? type:text? lane:text? count:count age_ms:count target_ms:count} "
     "stopped_lanes:*{lane:text says:text by_hand:flag reason:text? since:time?} "
     "overload_guard:OverloadGuard states:EventStates blocked_keys:count dead:count parked:count "
     "audit_drift:count}"},
    {"Delivery",
     "{id!:id event!:id type!:text version:count payload:text consumer:text? lane:text "
     "state!:" DELIVERY_STATE " tries:count reason:text detail:text due_at:time? opened_at:time "
     "changed_at:time key:id? waits_in_order_of:id? cursor:{part:text after:text until:id?} "
     "members:count replay:id? history:*{at:time reason:text}}"},
    {"DeliveryList", LIST("Delivery")},
    {"DeliveryGroup",
     "{state:(dead|parked) reason:text consumer:text? type:text count:count oldest_event:id "
     "newest_event:id oldest_at:time newest_at:time}"},
    {"DeliveryGroupList", WHOLE_LIST("DeliveryGroup")},
    {"RedriveRequest", "{" FILTER " rate:number[0..1000000] 'a second; 0: all at once'}",
     "{'reason':'UNAVAILABLE','consumer':'timelines','rate':500}"},
    {"DiscardRequest", "{" FILTER " why!:text[..159] 'recorded with each'}",
     "{'event':'7266382940364193792','why':'the account asked for it'}"},
    {"ReleaseRequest", "{" FILTER "}", "{'reason':'UNKNOWN_VERSION'}"},
    {"SliceResult", "{changed!:count next!:text? 'call again with it; null: done'}"},
    {"TraceRecord", "{at:time kind:text consumer:text? lane:text? n:count done:count why:text?}"},
    {"EventStory",
     "{id!:id type:text? version:number? actor:id? object:id? value:number? unread:text? 'why "
     "this version of the program cannot read it' time:time "
     "state!:(pending|published|expanded|delayed|waiting|dead|parked|done|archived) stage:text? "
     "settled:flag kept:flag committed_at:time published_at:time? done_at:time? progress:object "
     "in_flight:*object in_flight_left_out:count rules:*{consumer:text lane:text wanted:flag "
     "why_not:text? late_means:text} decisions:*TraceRecord deliveries:*Delivery "
     "deliveries_left_out:flag batches:{count:count members:count delivered:count skipped:count "
     "failed:count duplicates:count first_at:time? last_at:time? complete:flag} "
     "trace:*TraceRecord trace_left_out:count}"},
    {"NewReplay",
     "{" SELECTION " rate:" JOB_RATE " total:count 'events by the plan, for the estimate'}",
     "{'consumer':'timelines','from':'2026-11-15T08:00:00Z','to':'2026-11-15T09:00:00Z'}"},
    {"ReplayPlanRequest", "{" SELECTION " position:text 'of the slice before'}",
     "{'consumer':'timelines','from':'2026-11-15T08:00:00Z','to':'2026-11-15T09:00:00Z'}"},
    {"ReplayPlan",
     "{position!:text end!:flag events:count undone:count unreadable:count remembered:count "
     "unknown:count suppressed:count would_act:count members:count channels:*{channel:text "
     "would_act:count suppressed:count} first:id? last:id? refused:text? 'why it could not be "
     "started like this' note:text?} 'counts of this slice; add them up'"},
    {"NewRebuild",
     "{what!:(timelines|counters|inboxes) user:text 'an account by id or name; left out: "
     "all accounts' rate:" JOB_RATE "}",
     "{'what':'timelines','rate':500}"},
    {"JobChange", "{state:(paused|running|cancelled) rate:" JOB_RATE "} 'at least one of the two'",
     "{'rate':200}"},
    {"Job",
     "{id!:id kind!:text state!:(running|paused|done|cancelled|failed) spec:object rate:count "
     "position:id? last:id? total:count seen:count acted:count repeated:count "
     "suppressed:count failed:count created_at:time changed_at:time left_ms:number? 'an estimate' "
     "note:text 'why it rests or failed'}"},
    {"JobList", LIST("Job")},
    {"CloudEvent",
     "{specversion!:={'const':'1.0'} id!:id source!:text type!:text time:time subject:text "
     "datacontenttype:text dataversion:count sequence:text 'the id with leading zeros: in order "
     "as a text' data:={'type':['object','string','null'],'properties':{'actor':{'type':'string',"
     "'pattern':'^[1-9][0-9]*$'},'object':{'type':['string','null']},"
     "'value':{'type':'integer'},'subject':{'type':'string'},'data':{'type':'object'}}}} "
     "'CloudEvents 1.0'"},
    {"Consumer",
     "{name!:text position!:id? behind_ms!:number 'age of the oldest event after its position' "
     "behind_at_least!:number 'events after its position; counted up to 10000' unread:text 'the "
     "same as a text: 10000+' target_ms:count verdict:(green|late|stopped|lost) created_at:time? "
     "changed_at:time?}"},
    {"ConsumerList", WHOLE_LIST("Consumer")},
    {"ConsumerPosition", "{cursor!:text/^[0-9]+$/ rewind:flag 'may go back'}",
     "{'cursor':'7266382940364193792'}"},
    {"EventPage",
     "{items!:*CloudEvent next_cursor!:text 'the last event looked at: where to go on, also "
     "later' more:flag 'is there more already?' consumer:Consumer?}"},
    {"Health",
     "{status!:(ok|ready|starting|quarantined) dependencies:{db:" PART " views:" PART " bus:" PART
     " leader:(known|none)} 'of one node of many: how it finds its servers'}"},
    {"OpenAPI", "object"},
};

const size_t schema_count = COUNT_OF(schemas);

const struct schema *schema_find(const char *name)
{
    for (size_t i = 0; name && i < schema_count; i++) {
        if (strcmp(schemas[i].name, name) == 0)
            return &schemas[i];
    }
    return NULL;
}

void schema_write(struct buf *out, const char *text)
{
    for (; *text; text++)
        buf_append(out, *text == '\'' ? "\"" : text, 1);
}
