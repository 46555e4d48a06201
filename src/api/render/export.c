/* A person's own data as JSON: per part its name, and which field of a row is shown as what. */
#include "api/render/render.h"
#include "base/check.h"
#include "base/id.h"
#include "model/account.h"
#include "model/group.h"

enum form { END, ID, OTHER_ID, TEXT, AT, COUNT_0, COUNT_1, ID_TIME, OTHER_TIME, ROLE };

static const struct {
    const char *name;
    struct {
        const char *key;
        enum form form;
    } fields[5];
} parts[] = {
    [EXPORT_SESSIONS] = {"sessions", {{"id", ID}, {"label", TEXT}, {"used_at", AT}}},
    [EXPORT_FOLLOWING] = {"following", {{"account_id", ID}, {"since", AT}}},
    [EXPORT_FOLLOWERS] = {"followers", {{"account_id", ID}, {"since", AT}}},
    [EXPORT_BLOCKS] = {"blocks", {{"account_id", ID}, {"since", AT}}},
    [EXPORT_MUTES] = {"mutes", {{"account_id", ID}, {"since", AT}}},
    [EXPORT_POSTS] = {"posts",
                      {{"id", ID},
                       {"caption", TEXT},
                       {"like_count", COUNT_0},
                       {"comment_count", COUNT_1},
                       {"created_at", ID_TIME}}},
    [EXPORT_COMMENTS] =
        {"comments", {{"id", ID}, {"post_id", OTHER_ID}, {"body", TEXT}, {"created_at", ID_TIME}}},
    [EXPORT_LIKES] = {"likes", {{"post_id", ID}, {"since", AT}}},
    [EXPORT_GROUPS] = {"groups",
                       {{"group_id", ID}, {"name", TEXT}, {"role", ROLE}, {"since", OTHER_TIME}}},
};

const char *render_export_name(int part)
{
    return parts[part].name;
}

static void write_field(struct json_out *j, enum form form, const struct export_row *row)
{
    switch (form) {
    case END:
        break;
    case ID:
    case OTHER_ID:
        json_id(j, form == ID ? row->id : row->other);
        break;
    case TEXT:
        json_str(j, row->text);
        break;
    case AT:
        json_time(j, row->at_ms);
        break;
    case COUNT_0:
    case COUNT_1:
        json_i64(j, row->counts[form == COUNT_1]);
        break;
    case ID_TIME:
    case OTHER_TIME:
        json_time(j, id_time_ms(form == ID_TIME ? row->id : row->other));
        break;
    case ROLE:
        json_str(j, str_of(group_role_name((enum group_role)row->counts[0])));
        break;
    }
}

void render_export_row(struct json_out *j, int part, const struct export_row *row)
{
    json_object_begin(j);
    for (size_t i = 0; i < COUNT_OF(parts[0].fields) && parts[part].fields[i].form != END; i++) {
        json_key(j, str_of(parts[part].fields[i].key));
        write_field(j, parts[part].fields[i].form, row);
    }
    json_object_end(j);
}
