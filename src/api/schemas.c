/* One row per shape. Lists are all alike, so a macro writes them. */
#include "api/schemas.h"

#include "base/check.h"

#define ID           "{'type':'string','pattern':'^[1-9][0-9]*$'}"
#define TIME         "{'type':'string','format':'date-time'}"
#define COUNT        "{'type':'integer','minimum':0}"
#define TEXT         "{'type':'string'}"
#define FLAG         "{'type':'boolean'}"
#define NUMBER       "{'type':'integer'}"
#define REF(name)    "{'$ref':'#/components/schemas/" name "'}"
#define TEXT_OR_NULL "{'type':['string','null']}"
#define LIST(of)                                                                                   \
    "{'type':'object','required':['items','next_cursor'],'properties':{"                           \
    "'items':{'type':'array','items':" REF(                                                        \
        of) "},"                                                                                   \
            "'next_cursor':{'type':['string','null'],'description':'pass it as cursor; null: the " \
            "end'}}}"
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

    {"Status",
     "{'type':'object','description':'engine and its lanes, views, cards, pages, db, http, pools, "
     "audit'}",
     NULL},
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
     "{'type':'object','properties':{'feeds':" COUNT ",'feed_errors':" COUNT ",'counters':" COUNT
     ","
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
     ",'concurrency':{'type':'integer','minimum':1,"
     "'maximum':1000},'rate':{'type':'integer','minimum':0,'maximum':1000000,'description':'"
     "batches per second; "
     "0: no limit'}}}",
     "{'lane':'cleanup','concurrency':1,'rate':100}"},
    {"Lane",
     "{'type':'object','properties':{'name':" TEXT ",'backlog':" COUNT ",'in_flight':" COUNT
     ",'delivered':" COUNT ","
     "'repeated':" COUNT ",'failed':" COUNT ",'oldest_age_ms':" COUNT ",'concurrency':" COUNT
     ",'rate':" COUNT "}}",
     NULL},
    {"Health", "{'type':'object','properties':{'status':" TEXT "}}", NULL},
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
