/* One row per shape. Lists are all alike, so a macro writes them. */
#include "api/edge/schemas.h"

#include "base/check.h"

#define ID           "{'type':'string','pattern':'^[1-9][0-9]*$'}"
#define TIME         "{'type':'string','format':'date-time'}"
#define COUNT        "{'type':'integer','minimum':0}"
#define TEXT         "{'type':'string'}"
#define FLAG         "{'type':'boolean'}"
#define NUMBER       "{'type':'integer'}"
#define REF(name)    "{'$ref':'#/components/schemas/" name "'}"
#define TEXT_OR_NULL "{'type':['string','null']}"
#define ID_OR_NULL   TEXT_OR_NULL
#define TIME_OR_NULL "{'type':['string','null'],'format':'date-time'}"
#define REAL         "{'type':'number'}"
#define JOB_RATE                                                                                   \
    "{'type':'integer','minimum':0,'maximum':1000000,'description':'a second; 0: no limit'}"
#define DELIVERY_STATE                                                                             \
    "{'enum':['delayed','retrying','waiting','dead','done','discarded','dropped','parked',"        \
    "'released']}"
/* Which deliveries: at least one of them, or all. */
#define FILTER                                                                                     \
    "'delivery':" ID ",'event':" ID                                                                \
    ",'key':{'type':'string','description':'the account whose act "                                \
    "it is'},'reason':" TEXT ",'consumer':" TEXT ",'type':" TEXT ",'state':" DELIVERY_STATE        \
    ",'all':{'type':'boolean','description':'every one; without it a filter is required'},"        \
    "'next':{'type':'string','description':'of the answer before'}"
/* Which events a replay means. */
#define SELECTION                                                                                  \
    "'consumer':" TEXT ",'type':" TEXT ",'from':" MOMENT ",'to':" MOMENT                           \
    ",'key':{'type':'string','description':'the account whose act it is'},'dead_reason':{'type':"  \
    "'string','description':'only events with a dead letter of this reason; * for any'},"          \
    "'allow':{'type':'array','items':{'type':'string'},'description':'channels that may be "       \
    "used'},'accept_duplicates':" FLAG
#define MOMENT "{'type':['string','integer'],'description':'RFC 3339, or ms since 1970'}"
#define LIST(of)                                                                                   \
    "{'type':'object','required':['items','next_cursor'],'properties':{"                           \
    "'items':{'type':'array','items':" REF(                                                        \
        of) "},"                                                                                   \
            "'next_cursor':{'type':['string','null'],'description':'pass it as cursor; null: the " \
            "end'}}}"
#define PART           "{'enum':['up','suspect','away']}"
#define HEADLINE       REF("FreshnessHeadline")
#define CELL           REF("FreshnessCell")
#define OVERLOAD_GUARD REF("OverloadGuard")
#define STATES         REF("EventStates")
#define DELIVERY       REF("Delivery")
#define RECORDS        "{'type':'array','items':" REF("TraceRecord") "}"
#define CLOUD_EVENT    REF("CloudEvent")
#define CONSUMER       REF("Consumer")
#define ROLE           "{'enum':['owner','admin','member']}"
#define HISTORY                                                                                    \
    "{'enum':['joined','all'],'description':'what members may read: from their joining on, or "    \
    "all'}"
/* Lists that are never cut into pages. */
#define WHOLE_LIST(of)                                                                             \
    "{'type':'object','required':['items'],'properties':{"                                         \
    "'items':{'type':'array','items':" REF(of) "},'next_cursor':{'type':'null'}}}"

const struct schema schemas[] = {
    {"Problem",
     "{'type':'object','required':['type','title','status'],'properties':{"
     "'type':" TEXT ",'title':" TEXT ",'status':" NUMBER ",'detail':" TEXT "}}",
     NULL},

    {"AccountBrief",
     "{'type':'object','required':['id','username','display_name','avatar_url'],'properties':{"
     "'id':" ID ",'username':" TEXT ",'display_name':" TEXT ",'avatar_url':" TEXT_OR_NULL "}}",
     NULL},
    {"Relationship",
     "{'type':'object','description':'how the caller stands to the account','properties':{"
     "'following':" FLAG ",'followed_by':" FLAG ",'blocking':" FLAG ",'muting':" FLAG "}}",
     NULL},
    {"Account",
     "{'type':'object','required':['id','username','display_name','avatar_url'],'properties':{"
     "'id':" ID ",'username':" TEXT ",'display_name':" TEXT ",'avatar_url':" TEXT_OR_NULL
     ",'bio':" TEXT ","
     "'follower_count':" COUNT ",'following_count':" COUNT ",'post_count':" COUNT
     ",'created_at':" TIME ","
     "'email':{'type':['string','null'],'description':'only in "
     "one\\u2019s own account'},"
     "'relationship':" REF("Relationship") "}}",
     NULL},
    {"AccountList", LIST("AccountBrief"), NULL},
    {"NewAccount",
     "{'type':'object','required':['username','password'],'properties':{"
     "'username':{'type':'string','pattern':'^[A-Za-z0-9_.]{3,30}$'},"
     "'password':{'type':'string','minLength':8,'maxLength':256},"
     "'display_name':{'type':'string','maxLength':80},'bio':{'type':'string','maxLength':500},"
     "'avatar_url':{'type':'string','maxLength':2000},'email':{'type':'string','maxLength':254}}}",
     "{'username':'ada','password':'correct horse battery'}"},
    {"AccountChange",
     "{'type':'object','properties':{'display_name':{'type':'string','maxLength':80},"
     "'bio':{'type':'string','maxLength':500},'avatar_url':{'type':'string','maxLength':2000},"
     "'email':{'type':'string','maxLength':254}}}",
     "{'display_name':'Ada Lovelace','bio':'Notes on the Analytical Engine'}"},
    {"PasswordChange",
     "{'type':'object','required':['current_password','new_password'],'properties':{"
     "'current_password':" TEXT ",'new_password':{'type':'string','minLength':8,'maxLength':256}}}",
     "{'current_password':'correct horse battery','new_password':'a better one'}"},
    {"Export", "{'type':'object','description':'everything the account has'}", NULL},

    {"Credentials",
     "{'type':'object','required':['username','password'],'properties':{'username':" TEXT
     ",'password':" TEXT "}}",
     "{'username':'ada','password':'correct horse battery'}"},
    {"Login",
     "{'type':'object','required':['account','token'],'properties':{"
     "'account':" REF(
         "Account") ",'token':{'type':'string','description':'send it as Authorization: Bearer'}}}",
     NULL},
    {"Session",
     "{'type':'object','properties':{'id':" ID ",'label':" TEXT ",'created_at':" TIME
     ",'used_at':" TIME ","
     "'expires_at':" TIME ",'current':" FLAG "}}",
     NULL},
    {"SessionList", WHOLE_LIST("Session"), NULL},

    {"Post",
     "{'type':'object','required':['id','author','caption','media','like_count','comment_count','"
     "liked','created_at'],"
     "'properties':{'id':" ID ",'author':" REF(
         "AccountBrief") ",'caption':" TEXT ","
                         "'media':{'type':'array','items':{'type':'object'}},'like_count':" COUNT
                         ",'comment_count':" COUNT ","
                         "'liked':{'type':'boolean','description':'by the "
                         "caller'},'created_at':" TIME ","
                         "'edited_at':{'type':['string','null'],'format':'date-time'}}}",
     NULL},
    {"PostList", LIST("Post"), NULL},
    {"NewPost",
     "{'type':'object','required':['caption'],'properties':{'caption':{'type':'string','maxLength':"
     "2200}}}",
     "{'caption':'Hello, world'}"},
    {"PostChange",
     "{'type':'object','required':['caption'],'properties':{'caption':{'type':'string','maxLength':"
     "2200}}}",
     "{'caption':'Hello again, world'}"},

    {"Comment",
     "{'type':'object','required':['id','author','body','created_at'],'properties':{"
     "'id':" ID ",'post_id':" ID ",'author':" REF("AccountBrief") ",'body':" TEXT
                                                                  ",'created_at':" TIME "}}",
     NULL},
    {"CommentList", LIST("Comment"), NULL},
    {"NewComment",
     "{'type':'object','required':['body'],'properties':{'body':{'type':'string','maxLength':2200}}"
     "}",
     "{'body':'Well said'}"},

    {"Group",
     "{'type':'object','required':['id','kind','name','history','member_count','seq','created_at',"
     "'role','muted','archived','read_seq','joined_seq','peer'],'properties':{'id':" ID
     ",'kind':{'enum':['group','chat']},'name':{'type':['string','null'],'description':'null of a "
     "chat'},'history':" HISTORY ",'member_count':" COUNT
     ",'seq':{'type':'integer','minimum':0,'description':'the last number given'},"
     "'created_at':" TIME ",'role':" ROLE ",'muted':" FLAG ",'archived':" FLAG ",'read_seq':" COUNT
     ",'joined_seq':" COUNT ",'peer':{'description':'of a chat: the other one','anyOf':[" REF(
         "AccountBrief") ",{'type':'null'}]}}}",
     NULL},
    {"NewGroup",
     "{'type':'object','required':['name'],'properties':{'name':{'type':'string','minLength':1,"
     "'maxLength':100},'history':" HISTORY ",'members':{'type':'array','maxItems':1000,'items':" ID
     "}}}",
     "{'name':'Birds','members':[]}"},
    {"GroupChange",
     "{'type':'object','properties':{'name':{'type':'string','minLength':1,'maxLength':100},"
     "'history':" HISTORY ",'muted':" FLAG ",'archived':" FLAG "}}",
     "{'name':'Birds of the harbour'}"},
    {"GroupMember",
     "{'type':'object','required':['id','username','state','role'],'properties':{'id':" ID
     ",'username':" TEXT ",'display_name':" TEXT ",'avatar_url':" TEXT_OR_NULL
     ",'state':{'enum':['member','invited']},'role':" ROLE
     ",'joined_seq':{'type':['integer','null']},'joined_at':" TIME_OR_NULL "}}",
     NULL},
    {"GroupMemberList", LIST("GroupMember"), NULL},
    {"MemberChange",
     "{'type':'object','properties':{'role':" ROLE
     ",'invite':{'type':'boolean','description':'ask, instead of adding at once'}}}",
     "{'role':'admin'}"},
    {"Invitation",
     "{'type':'object','properties':{'group_id':" ID ",'name':" TEXT ",'member_count':" COUNT
     ",'invited_by':" ID ",'created_at':" TIME "}}",
     NULL},
    {"InvitationList", LIST("Invitation"), NULL},
    {"Message",
     "{'type':'object','required':['group_id','seq','kind','client_id','author_id','body',"
     "'created_at','edited_at','deleted'],'properties':{'group_id':" ID
     ",'seq':{'type':'integer','minimum':1},'kind':{'enum':['message','edit','delete','moderation',"
     "'join','leave','rename','role','history']},'client_id':" TEXT_OR_NULL ",'author_id':" ID
     ",'body':{'type':['string','null'],'description':'a message\u2019s text, of an edit the "
     "text as it is now, the new name, role or history; null: none, deleted, or from outside of "
     "the caller\u2019s membership'},'created_at':" TIME ",'edited_at':" TIME_OR_NULL
     ",'deleted':" FLAG ",'target_seq':{'type':'integer','description':'edit, delete, moderation: "
     "which message'},'subject_id':{'type':'string','description':'join, leave, role: whom it is "
     "about'}}}",
     NULL},
    {"NewMessage",
     "{'type':'object','required':['body'],'properties':{'body':{'type':'string','minLength':1,"
     "'maxLength':10000},'client_id':{'type':'string','minLength':1,'maxLength':64},"
     "'mentions':{'type':'array','maxItems':50,'items':" ID "}}}",
     "{'client_id':'a-1','body':'Hello, all'}"},
    {"MessageChange",
     "{'type':'object','required':['body'],'properties':{'body':{'type':'string','minLength':1,"
     "'maxLength':10000}}}",
     "{'body':'Hello, everybody'}"},
    {"MessagePage",
     "{'type':'object','required':['items','next'],'properties':{'items':{'type':'array','items'"
     ":" REF(
         "Message") "},'next':{'type':['integer','null'],'description':'pass it as after, or as "
                    "before when the page was asked for that way or without a number; null: no "
                    "more for now'}}}",
     NULL},
    {"InboxItem",
     "{'type':'object','required':['group','unread','mentions','last_message','activity_at'],"
     "'properties':{'group':" REF(
         "Group") ",'unread':" COUNT
                  ",'mentions':{'type':'integer','description':'unread ones; counted up to 1000'},"
                  "'last_message':{'anyOf':[" REF(
                      "Message") ",{'type':'null'}]},'activity_at':" TIME "}}",
     NULL},
    {"InboxList", LIST("InboxItem"), NULL},
    {"Stream",
     "{'type':'string','description':'Server-sent events (event, data, retry), and a comment when "
     "nothing was sent for a while. The data of each is JSON, as in x-events. An event "
     "holds no content, and the newest of one kind and group stands for those before it. "
     "Connect, wait for hello, then read what was missed: GET /v1/inbox, and of each group "
     "GET /v1/groups/{id}/messages?after= the last number that is known. When the stream ends, "
     "for whatever reason, connect again after the time in retry and do the same; there is "
     "nothing to resume, and Last-Event-ID is not looked at. A client that reads too slowly is "
     "cut off. A stream ends with its token or session, and after stream-life in any case.',"
     "'x-events':{"
     "'hello':{'type':'object','description':'from now on everything is told; comes first, and "
     "again when so much is new that everything should be read','required':['account'],"
     "'properties':{'account':" ID "}},"
     "'group':{'type':'object','description':'the log of the group goes up to this number: "
     "messages, edits, deletions, joins, leaves, names, roles; to who left or was removed, that "
     "of the leaving','required':['group','seq'],'properties':{'group':" ID ",'seq':" COUNT "}},"
     "'feed':{'type':'object','description':'a new post in the home feed','required':['id'],"
     "'properties':{'id':" ID "}},"
     "'read':{'type':'object','description':'the caller has read the group up to this number, on "
     "another device perhaps','required':['group','seq'],'properties':{'group':" ID ",'seq':" COUNT
     "}},"
     "'bye':{'type':'object','description':'the server ends the stream; come back unless the "
     "token or session is "
     "over','required':['reason'],'properties':{'reason':{'enum':['expired','session','stopping']}}"
     "}}}",
     NULL},
    {"ReadMark",
     "{'type':'object','required':['seq'],'properties':{'seq':{'type':'integer','minimum':0}}}",
     "{'seq':1}"},

    {"Status",
     "{'allOf':[{'$ref':'#/components/schemas/StatusNumbers'}],'description':'of this node: groups "
     "(stage one: how fast entries get their "
     "numbers, which groups are busy), views, cards, pages, db, http, pools, audit; "
     "engine, headline and inboxes (stage two) of the node that leads, null when none answers; "
     "cluster: how this node stands to the others, null when there are none'}",
     NULL},
    {"Engine",
     "{'type':'object','required':['headline','engine'],'properties':{'headline':" HEADLINE
     ",'engine':{'type':'object','description':'events, states, lanes'},'inboxes':{'type':'object',"
     "'description':'how late inboxes are and what could not be written, by lane'}}}",
     NULL},
    {"HotGroups",
     "{'type':'object','required':['items'],'properties':{'window_s':{'type':'number'},"
     "'per_second':{'type':'number','description':'of all groups'},'entries':" COUNT
     ",'lag_p50_ms':{'type':'number','description':'submit to commit'},'lag_p99_ms':{'type':"
     "'number'},'limit_per_second':" COUNT ",'limited':" COUNT
     ",'items':{'type':'array','maxItems':20,'items':{'type':'object','required':['group_id',"
     "'per_second'],'properties':{'group_id':" ID
     ",'per_second':{'type':'number'},'entries':{'type':'integer','description':'at least; more "
     "than at_most there were not'},'at_most':" COUNT "}}}}}",
     NULL},
    {"Node",
     "{'type':'object','required':['number','state','leads'],'properties':{'number':" COUNT
     ",'address':" TEXT_OR_NULL ",'roles':{'type':'array','items':{'enum':['api','relay',"
     "'worker']}},'version':" TEXT ",'started_at':" TIME
     ",'silent_ms':{'type':'integer','description':'since it was last heard of'},'state':{'enum':["
     "'up','leaving','gone']},'left':{'type':'boolean','description':'it said good-bye'},"
     "'leads':" FLAG ",'self':{'type':'boolean','description':'it is the one that "
     "answers'},'numbers':{'type':'object','description':'what it tells about itself'}}}",
     NULL},
    {"NodeList", WHOLE_LIST("Node"), NULL},
    {"Key",
     "{'type':'object','properties':{'id':" ID ",'name':" TEXT ",'scopes':" TEXT
     ",'created_at':" TIME ","
     "'revoked_at':{'type':['string','null'],'format':'date-time'}}}",
     NULL},
    {"KeyList", WHOLE_LIST("Key"), NULL},
    {"NewKey",
     "{'type':'object','required':['name','scopes'],'properties':{'name':{'type':'string','"
     "maxLength':80},"
     "'scopes':{'type':'string','description':'act, admin, admin:read; separated by spaces or "
     "commas'}}}",
     "{'name':'shop','scopes':'act'}"},
    {"KeyWithSecret",
     "{'type':'object','required':['id','name','scopes','key'],'properties':{"
     "'id':" ID ",'name':" TEXT ",'scopes':" TEXT ",'key':" TEXT "}}",
     NULL},
    {"CheckRequest",
     "{'type':'object','properties':{'from':" ID
     ",'limit':{'type':'integer','minimum':1,'maximum':1000},"
     "'depth':{'type':'integer','minimum':1,'maximum':100000},'repair':" FLAG "}}",
     "{'limit':100,'depth':200,'repair':false}"},
    {"CheckResult",
     "{'type':'object','properties':{'feeds':" COUNT ",'feed_errors':" COUNT ",'inboxes':" COUNT
     ",'inbox_errors':" COUNT ",'counters':" COUNT ","
     "'counter_errors':" COUNT ",'edges':" COUNT ",'edge_errors':" COUNT ",'repaired':" COUNT
     ",'drained':" FLAG ","
     "'differences':{'type':'array','items':{'type':'object'}},"
     "'next':{'type':['string','null'],'description':'from of the next slice; null: done'}}}",
     NULL},
    {"Explanation",
     "{'type':'object','required':['visible','verdict'],'properties':{'visible':" FLAG
     ",'verdict':" TEXT "}}",
     NULL},
    {"BackupRequest",
     "{'type':'object','required':['path'],'properties':{'path':{'type':'string','description':'"
     "absolute; a new file'}}}",
     "{'path':'/var/backups/fantail.db'}"},
    {"BackupResult",
     "{'type':'object','properties':{'path':" TEXT ",'bytes':" COUNT ",'took_ms':" COUNT "}}",
     NULL},
    {"ImportResult",
     "{'type':'object','properties':{'accounts':" COUNT ",'follows':" COUNT ",'posts':" COUNT
     ",'repeated':" COUNT ","
     "'rejected':" COUNT ",'errors':{'type':'array','items':{'type':'object'}}}}",
     NULL},
    {"SaveResult",
     "{'type':'object','properties':{'position':" ID ",'bytes':" COUNT ",'took_ms':" COUNT "}}",
     NULL},
    {"LaneChange",
     "{'type':'object','required':['lane'],'properties':{'lane':" TEXT
     ",'stopped':{'type':'boolean','description':'true: take nothing more; false: go on, also "
     "when it stopped by itself'},'concurrency':{'type':'integer','minimum':1,"
     "'maximum':1000},'rate':{'type':'integer','minimum':0,'maximum':1000000,'description':'"
     "batches per second; "
     "0: no limit'}}}",
     "{'lane':'cleanup','concurrency':1,'rate':100}"},
    {"Lane",
     "{'type':'object','properties':{'name':" TEXT ",'backlog':" COUNT ",'in_flight':" COUNT
     ",'delivered':" COUNT ","
     "'repeated':" COUNT ",'failed':" COUNT ",'skipped':" COUNT ",'oldest_age_ms':" COUNT
     ",'concurrency':" COUNT ",'rate':" COUNT ",'breaker':{'type':'object','properties':{"
     "'state':{'enum':['running','stopped','by hand']},'reason':" TEXT_OR_NULL
     ",'since':" TIME_OR_NULL ",'failed':" COUNT ",'of':" COUNT ",'opened':" COUNT "}}}}",
     NULL},

    {"FreshnessHeadline",
     "{'type':'object','description':'the worst lag of what people notice, and how many cells are "
     "how','properties':{'worst_ms':" COUNT ",'consumer':" TEXT_OR_NULL ",'type':" TEXT_OR_NULL
     ",'lane':" TEXT_OR_NULL ",'late_means':" TEXT_OR_NULL ",'green':" COUNT ",'late':" COUNT
     ",'behind':" COUNT ",'stopped':" COUNT ",'dead':" COUNT "}}",
     NULL},
    {"FreshnessCell",
     "{'type':'object','properties':{'consumer':" TEXT ",'type':" TEXT ",'lane':" TEXT
     ",'verdict':{'enum':['green','late','behind','stopped']},'oldest_age_ms':" COUNT
     ",'target_ms':" COUNT ",'backlog':" COUNT ",'delayed':" COUNT ",'waiting':" COUNT
     ",'failed':" COUNT ",'dead':" COUNT ",'in_per_second':" REAL ",'out_per_second':" REAL
     ",'net_per_second':" REAL
     ",'catch_up_ms':{'type':['integer','null'],'description':'at the present net rate; null: "
     "never'},'visible':{'type':'boolean','description':'do people notice?'},"
     "'late_means':" TEXT_OR_NULL "}}",
     NULL},
    {"Freshness",
     "{'type':'object','properties':{'headline':" HEADLINE
     ",'cells':{'type':'array','description':'worst first','items':" CELL "}}}",
     NULL},
    {"EventStates",
     "{'type':'object','description':'events by state; in the delivery store (delayed to "
     "discarded) one for "
     "each delivery','properties':{'pending':" COUNT ",'published':" COUNT ",'expanded':" COUNT
     ",'delayed':" COUNT ",'waiting':" COUNT ",'dead':" COUNT ",'parked':" COUNT ",'dropped':" COUNT
     ",'discarded':" COUNT ",'settled':" COUNT ",'archived':" COUNT "}}",
     NULL},
    {"OverloadGuard",
     "{'type':'object','properties':{'level':{'type':'integer','minimum':0,'maximum':2},"
     "'why':" TEXT_OR_NULL ",'free_bytes':{'type':['integer','null']}}}",
     NULL},
    {"Staleness",
     "{'type':'object','required':['verdict','stale'],'properties':{'verdict':{'enum':['green',"
     "'late','behind','stopped','at risk']},'headline':" HEADLINE
     ",'stale':{'type':'array','items':{'type':'object','properties':{'says':" TEXT
     ",'verdict':" TEXT ",'consumer':" TEXT_OR_NULL ",'type':" TEXT_OR_NULL ",'lane':" TEXT_OR_NULL
     ",'count':" COUNT ",'age_ms':" COUNT ",'target_ms':" COUNT
     "}}},'stopped_lanes':{'type':'array','items':{'type':'object','properties':{'lane':" TEXT
     ",'says':" TEXT ",'by_hand':" FLAG ",'reason':" TEXT_OR_NULL ",'since':" TIME_OR_NULL
     "}}},'overload_guard':" OVERLOAD_GUARD ",'states':" STATES ",'blocked_keys':" COUNT
     ",'dead':" COUNT ",'parked':" COUNT ",'audit_drift':" COUNT "}}",
     NULL},

    {"Delivery",
     "{'type':'object','required':['id','event','type','state'],'properties':{'id':" ID
     ",'event':" ID ",'type':" TEXT ",'version':" COUNT ",'payload':" TEXT
     ",'consumer':" TEXT_OR_NULL ",'lane':" TEXT ",'state':" DELIVERY_STATE ",'tries':" COUNT
     ",'reason':" TEXT ",'detail':" TEXT ",'due_at':" TIME_OR_NULL ",'opened_at':" TIME
     ",'changed_at':" TIME ",'key':" ID_OR_NULL ",'waits_in_order_of':" ID_OR_NULL
     ",'cursor':{'type':'object','properties':{'part':" TEXT ",'after':" TEXT ",'until':" ID_OR_NULL
     "}},'members':" COUNT ",'replay':" ID_OR_NULL
     ",'history':{'type':'array','items':{'type':'object','properties':{'at':" TIME
     ",'reason':" TEXT "}}}}}",
     NULL},
    {"DeliveryList", LIST("Delivery"), NULL},
    {"DeliveryGroup",
     "{'type':'object','properties':{'state':{'enum':['dead','parked']},'reason':" TEXT
     ",'consumer':" TEXT_OR_NULL ",'type':" TEXT ",'count':" COUNT ",'oldest_event':" ID
     ",'newest_event':" ID ",'oldest_at':" TIME ",'newest_at':" TIME "}}",
     NULL},
    {"DeliveryGroupList", WHOLE_LIST("DeliveryGroup"), NULL},
    {"RedriveRequest",
     "{'type':'object','properties':{" FILTER ",'rate':{'type':'integer','minimum':0,'maximum':"
     "1000000,'description':'a second; 0: all at once'}}}",
     "{'reason':'UNAVAILABLE','consumer':'timelines','rate':500}"},
    {"DiscardRequest",
     "{'type':'object','required':['why'],'properties':{" FILTER ",'why':{'type':'string',"
     "'maxLength':159,'description':'recorded with each'}}}",
     "{'event':'7266382940364193792','why':'the account asked for it'}"},
    {"ReleaseRequest", "{'type':'object','properties':{" FILTER "}}",
     "{'reason':'UNKNOWN_VERSION'}"},
    {"SliceResult",
     "{'type':'object','required':['changed','next'],'properties':{'changed':" COUNT
     ",'next':{'type':['string','null'],'description':'call again with it; null: done'}}}",
     NULL},

    {"TraceRecord",
     "{'type':'object','properties':{'at':" TIME ",'kind':" TEXT ",'consumer':" TEXT_OR_NULL
     ",'lane':" TEXT_OR_NULL ",'n':" COUNT ",'done':" COUNT ",'why':" TEXT_OR_NULL "}}",
     NULL},
    {"EventStory",
     "{'type':'object','required':['id','state'],'properties':{'id':" ID ",'type':" TEXT_OR_NULL
     ",'version':{'type':['integer','null']},'actor':" ID_OR_NULL ",'object':" ID_OR_NULL
     ",'value':{'type':['integer','null']},'unread':{'type':['string','null'],'description':'why "
     "this version of the program cannot read it'},'time':" TIME
     ",'state':{'enum':['pending','published','expanded','delayed','waiting','dead','parked',"
     "'done','archived']},'stage':" TEXT_OR_NULL ",'settled':" FLAG ",'kept':" FLAG
     ",'committed_at':" TIME ",'published_at':" TIME_OR_NULL ",'done_at':" TIME_OR_NULL
     ",'progress':{'type':'object'},'in_flight':{'type':'array','items':{'type':'object'}},"
     "'in_flight_left_out':" COUNT
     ",'rules':{'type':'array','items':{'type':'object','properties':{'consumer':" TEXT
     ",'lane':" TEXT ",'wanted':" FLAG ",'why_not':" TEXT_OR_NULL ",'late_means':" TEXT
     "}}},'decisions':" RECORDS ",'deliveries':{'type':'array','items':" DELIVERY
     "},'deliveries_left_out':" FLAG ",'batches':{'type':'object','properties':{'count':" COUNT
     ",'members':" COUNT ",'delivered':" COUNT ",'skipped':" COUNT ",'failed':" COUNT
     ",'duplicates':" COUNT ",'first_at':" TIME_OR_NULL ",'last_at':" TIME_OR_NULL
     ",'complete':" FLAG "}},'trace':" RECORDS ",'trace_left_out':" COUNT "}}",
     NULL},

    {"NewReplay",
     "{'type':'object','required':['consumer'],'properties':{" SELECTION ",'rate':" JOB_RATE
     ",'total':{'type':'integer','minimum':0,'description':'events by the plan, for the "
     "estimate'}}}",
     "{'consumer':'timelines','from':'2026-11-15T08:00:00Z','to':'2026-11-15T09:00:00Z'}"},
    {"ReplayPlanRequest",
     "{'type':'object','required':['consumer'],'properties':{" SELECTION
     ",'position':{'type':'string','description':'of the slice before'}}}",
     "{'consumer':'timelines','from':'2026-11-15T08:00:00Z','to':'2026-11-15T09:00:00Z'}"},
    {"ReplayPlan",
     "{'type':'object','required':['position','end'],'description':'counts of this slice; add them "
     "up','properties':{'position':" TEXT ",'end':" FLAG ",'events':" COUNT ",'undone':" COUNT
     ",'unreadable':" COUNT ",'remembered':" COUNT ",'unknown':" COUNT ",'suppressed':" COUNT
     ",'would_act':" COUNT ",'members':" COUNT ",'channels':{'type':'array','items':{'type':"
     "'object','properties':{'channel':" TEXT ",'would_act':" COUNT ",'suppressed':" COUNT
     "}}},'first':" ID_OR_NULL ",'last':" ID_OR_NULL ",'refused':{'type':['string','null'],"
     "'description':'why it could not be started like this'},'note':" TEXT_OR_NULL "}}",
     NULL},
    {"NewRebuild",
     "{'type':'object','required':['what'],'properties':{'what':{'enum':['timelines','counters',"
     "'inboxes']},"
     "'user':{'type':'string','description':'an account by id or name; left out: everybody'},"
     "'rate':" JOB_RATE "}}",
     "{'what':'timelines','rate':500}"},
    {"JobChange",
     "{'type':'object','required':['state'],'properties':{'state':{'enum':['paused','running',"
     "'cancelled']}}}",
     "{'state':'paused'}"},
    {"Job",
     "{'type':'object','required':['id','kind','state'],'properties':{'id':" ID ",'kind':" TEXT
     ",'state':{'enum':['running','paused','done','cancelled','failed']},'spec':{'type':'object'},"
     "'rate':" COUNT ",'position':" ID_OR_NULL ",'last':" ID_OR_NULL ",'total':" COUNT
     ",'seen':" COUNT ",'acted':" COUNT ",'repeated':" COUNT ",'suppressed':" COUNT
     ",'failed':" COUNT ",'created_at':" TIME ",'changed_at':" TIME
     ",'left_ms':{'type':['integer','null'],"
     "'description':'an estimate'},'note':{'type':'string','description':'why it rests or "
     "failed'}}}",
     NULL},
    {"JobList", LIST("Job"), NULL},

    {"CloudEvent",
     "{'type':'object','required':['specversion','id','source','type'],'description':'CloudEvents "
     "1.0','properties':{'specversion':{'const':'1.0'},'id':" ID ",'source':" TEXT ",'type':" TEXT
     ",'time':" TIME ",'subject':" TEXT ",'datacontenttype':" TEXT ",'dataversion':" COUNT
     ",'sequence':{'type':'string','description':'the id with leading zeros: in order as a text'},"
     "'data':{'type':['object','string','null'],'properties':{'actor':" ID ",'object':" ID_OR_NULL
     ",'value':" NUMBER "}}}}",
     NULL},
    {"Consumer",
     "{'type':'object','required':['name','position','behind_ms','behind_at_least'],'properties':{"
     "'name':" TEXT ",'position':" ID_OR_NULL
     ",'behind_ms':{'type':'integer','description':'age of "
     "the oldest event after its position'},'behind_at_least':{'type':'integer','description':"
     "'events after its position; counted up to 10000'},'unread':{'type':'string','description':"
     "'the same as a text: 10000+'},'target_ms':" COUNT ",'verdict':{'enum':['green','late',"
     "'stopped','lost']},'created_at':" TIME_OR_NULL ",'changed_at':" TIME_OR_NULL "}}",
     NULL},
    {"ConsumerList", WHOLE_LIST("Consumer"), NULL},
    {"ConsumerPosition",
     "{'type':'object','required':['cursor'],'properties':{'cursor':{'type':'string','pattern':"
     "'^[0-9]+$'},'rewind':{'type':'boolean','description':'may go back'}}}",
     "{'cursor':'7266382940364193792'}"},
    {"EventPage",
     "{'type':'object','required':['items','next_cursor'],'properties':{'items':{'type':'array',"
     "'items':" CLOUD_EVENT "},'next_cursor':{'type':'string','description':'the last event looked "
     "at: where to go on, also later'},'more':{'type':'boolean','description':'is there more "
     "already?'},'consumer':{'anyOf':[" CONSUMER ",{'type':'null'}]}}}",
     NULL},
    {"Health",
     "{'type':'object','required':['status'],'properties':{'status':{'enum':['ok','ready',"
     "'starting','quarantined']},'dependencies':{'type':'object','description':'of one node of "
     "many: "
     "how it finds its servers','properties':{'db':" PART ",'views':" PART ",'bus':" PART
     ",'leader':{'enum':['known','none']}}}}}",
     NULL},
    {"OpenAPI", "{'type':'object'}", NULL},
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
